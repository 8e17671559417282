"""What two pools that hand over to each other hold (:mod:`planner.setups.disaggregated`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.compiled import Array, compiled
from planner.loops.chain import admissions_at, chain_columns, shares_at
from planner.loops.gamma import NOTICEABLE
from planner.loops.luck import share_of_luck
from planner.loops.stored import entry
from planner.loops.waits import shared_wait, wait_law, waits_within


@compiled
def placed_law(mean_s: float, second_s2: float, given_s: float, given_s2: float
               ) -> tuple[float, float, float]:
    """:func:`wait_law` of a wait and one after it that is always there."""
    return wait_law(1.0, mean_s + given_s, second_s2 + given_s2 + 2.0 * mean_s * given_s)


@entry
def placed_laws(busy: float, mean_s: float, second_s2: float, given_s: float, given_s2: float
                ) -> Array:
    """:func:`wait_law` of a wait, and of the same with one after it whose mean and mean of squares
    are ``given_s`` [s] and ``given_s2`` [s^2], shape (3, 1, 2)."""
    laws = np.empty((3, 1, 2))
    laws[0, 0, 0], laws[1, 0, 0], laws[2, 0, 0] = wait_law(busy, mean_s, second_s2)
    laws[0, 0, 1], laws[1, 0, 1], laws[2, 0, 1] = placed_law(mean_s, second_s2, given_s, given_s2)
    return laws


@entry
def starts_placed(limit_s: float, level: float, busy: float, mean_s: float, second_s2: float,
                  places: float, given_s: float, given_s2: float, latency: Array, weights: Array
                  ) -> bool:
    """Whether a wait and a latency keep a limit at a level where a share ``places`` of the requests
    waits for a place as well, see :func:`placed_laws`: never more of them in time than of others.
    """
    alone = 0.0
    for k in range(len(latency)):
        alone += weights[k] if latency[k] <= limit_s else 0.0
    if alone < level or not np.isfinite(mean_s) or not np.isfinite(given_s):
        return False
    total = waits_within(limit_s, wait_law(busy, mean_s, second_s2), latency, weights)
    late = waits_within(limit_s, placed_law(mean_s, second_s2, given_s, given_s2), latency, weights
                        ) if places > NOTICEABLE else 0.0
    return (1.0 - places) * total + places * min(late, total) >= level


@entry
def prompts_placed(rate_per_s: float, first: float, second: float, third: float, kept: float,
                   arrival_cv2: float, cards: float, cards_s: float, cards_s2: float,
                   places: float, given_s: float, given_s2: float, limit_s: float, level: float,
                   latency: Array, weights: Array) -> bool:
    """Whether prompts keep a limit at a level at a prefill pool's rank: their wait there
    (:func:`shared_wait`) and for the decode side's network cards, then :func:`starts_placed`."""
    busy, mean_s, square = shared_wait(rate_per_s, first, second, third, kept, arrival_cv2,
                                       max(arrival_cv2 - 1.0, 0.0) / 2.0, 0.0)
    if not np.isfinite(mean_s) or not np.isfinite(cards_s):
        return False
    return starts_placed(limit_s, level, 1.0 - (1.0 - busy) * (1.0 - cards), mean_s + cards_s,
                         square + cards_s2 + 2.0 * mean_s * cards_s, places, given_s, given_s2,
                         latency, weights)


@entry
def decode_limit(caps: NDArray[np.int64], load: float, token_s: Array, peak: float,
                 full_peak: float, most_waiting: float, limits_s: Array, levels: Array,
                 paces: Array) -> tuple[int, int]:
    """Place of the largest batch limit of a decode pool that is stable, makes at most a share of
    the requests wait and keeps the targets on a token's time; -1 and what fails where none does.

    Parameters
    ----------
    load : float
        [token/s] to generate.
    token_s : ndarray, shape (N,)
        [s] of a token.
    peak, full_peak : float
        See :func:`chain_columns`.
    limits_s, levels : ndarray, shape (targets,)
        Targets [s], infinite where there are none, and the shares that must keep them.
    paces : ndarray, shape (targets, k)
        Times a token's time that a target counts, for each part of the answers
        (:mod:`planner.loops.luck`).

    Returns
    -------
    int, int
        The second is 0 for throughput and 1 + the place of a target.
    """
    size = len(token_s)
    none = np.zeros(size)
    rows, empty = chain_columns(load, token_s, np.full(size, peak), full_peak, none, none, 1.0)
    waits = admissions_at(caps, rows[2], empty, rows[0], rows[1], rows[3], none)[1]
    good, failed = np.empty(len(caps), dtype=np.bool_), 0
    for place in range(len(caps)):
        good[place] = rows[0, caps[place] - 1] < 1.0 and waits[place] <= most_waiting
    written, value = rows[2] * np.arange(1.0, size + 1.0) / token_s, np.empty(size)
    for target in range(len(limits_s)):
        if limits_s[target] == np.inf:
            continue
        for i in range(size):
            value[i] = 0.0
            for j in range(paces.shape[1]):
                if paces[target, j] * token_s[i] <= limits_s[target] * (1.0 + 1e-12):
                    value[i] += share_of_luck(paces.shape[1], j)
        held = shares_at(caps, written, rows[0], value) >= levels[target]
        if held.sum() < good.sum() and not (good & held).any():
            failed = 1 + target
        good &= held
    for place in range(len(caps) - 1, -1, -1):
        if good[place]:
            return place, -1
    return -1, failed
