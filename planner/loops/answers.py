"""What prompts add to the time per output token of single requests (:mod:`planner.stalls`)."""

from __future__ import annotations

import math

import numpy as np

from planner.compiled import Array, compiled
from planner.loops.gamma import gamma_law
from planner.loops.luck import FIRST_PACE, share_of_luck
from planner.loops.stored import entry


@entry
def prompt_columns(rate_per_s: float, tokens_per_s: float, ahead: float, states: Array) -> Array:
    """TPOT [s], share of time that prompts take, mean wait [s] for the prefill and the time [s]
    until the first token, shape (4, open): over the states up to the first in which prompts alone
    fill the replica.

    A replica leaves a state so filled only upwards, so where few decodes leave it filled and more
    do not (more prompts then share a chunk), it runs as in the first of the others. ``states`` are
    those of :attr:`planner.setups.continuous.Continuous.states`; the wait is the mean of
    :func:`mg1`.
    """
    rows = np.empty((4, states.shape[1]))
    first = -1
    for i in range(states.shape[1]):
        left = 1.0 - rate_per_s * states[1, i]
        if left <= 0.0 or tokens_per_s * states[2, i] / left >= 1.0:
            if first < 0:
                continue
            return rows[:, :i].copy()
        rows[0, i] = states[0, i] / left
        rows[1, i] = 1.0 - left
        rows[2, i] = ((rate_per_s * states[4, i] / 2.0 + ahead * states[3, i])
                      / (1.0 - rate_per_s * states[3, i]))
        rows[3, i] = rows[2, i] + states[5, i]
        if first < 0:
            first = i
            for k in range(i):
                rows[:, k] = rows[:, i]
    return rows if first >= 0 else rows[:, :0].copy()


@entry
def added_columns(step_s: Array, rate_per_s: float, load: Array, mean_s: Array, square_s2: Array,
                  wait_s: Array, before_s: Array, spread: float, behind: float) -> Array:
    """once, gap, square and cross over the states, shape (4, N): ``Stalls.added``.

    ``spread`` is the squared CV of the arrivals, at least 1.
    """
    rows = np.empty((4, len(step_s)))
    for i in range(len(step_s)):
        left = 1.0 - load[i]
        each_s = mean_s[i] / left
        once_s = (rate_per_s * before_s[i] + behind) * each_s
        gap_s = rate_per_s * each_s * step_s[i]
        mean_square = mean_s[i] * mean_s[i]
        own = square_s2[i] - mean_square
        cycles = rate_per_s * (own + spread * mean_square) / (left * left * left)
        waited = rate_per_s * wait_s[i] * each_s
        swing = (waited * waited
                 + behind * (own / (left * left) + (1.0 + behind) * each_s * each_s))
        rows[0, i] = once_s
        rows[1, i] = gap_s
        rows[2, i] = once_s * once_s + cycles * before_s[i] + swing
        rows[3, i] = cycles * step_s[i] + 2.0 * once_s * gap_s
    return rows


@compiled
def token_time(once_s: float, gap_s: float, square_s2: float, cross_s2: float, step_s: float,
               before_s: float, most_s: float, bursts_per_s: float, behind: float, gaps: float,
               inverse: float, inverse_square: float) -> tuple[float, float, float]:
    """Share that meets no prompt, and shape and scale [s] of the others' gamma:
    ``TokenTimes.of`` in one state."""
    mean_s = min(once_s * inverse + gap_s, most_s)
    square = min(square_s2 * inverse_square + cross_s2 * inverse + gap_s * gap_s, most_s * mean_s)
    none = math.exp(-bursts_per_s * (before_s + step_s * gaps)) / (1.0 + behind)
    met = max(1.0 - none, 1e-12)
    each_s = max(mean_s / met, 1e-15)
    swing = max(square / met - each_s * each_s, 1e-3 * each_s * each_s)
    return none, each_s * each_s / swing, swing / each_s


@compiled
def token_within(limit_s: float, step_s: float, none: float, shape: float, scale_s: float,
                 most_s: float) -> float:
    """P(TPOT <= limit) in one state."""
    return token_law(limit_s, step_s, none, shape, math.lgamma(shape), scale_s, most_s)[0]


@compiled
def token_law(limit_s: float, step_s: float, none: float, shape: float, log_gamma: float,
              scale_s: float, most_s: float) -> tuple[float, float]:
    """P(TPOT <= limit) in one state, and its density there [1/s] where it does not jump;
    ``log_gamma`` as for :func:`gamma_law`."""
    over_s = limit_s - step_s
    if over_s >= most_s:
        return 1.0, 0.0
    if over_s < 0.0:
        return 0.0, 0.0
    within, density = gamma_law(shape, log_gamma, over_s / scale_s)
    return none + (1.0 - none) * within, (1.0 - none) * density / scale_s


@entry
def token_times(columns: Array, step_s: Array, before_s: Array, most_s: Array,
                bursts_per_s: float, behind: float, gaps: Array) -> Array:
    """:func:`token_time` over laws, the paces of each, and states, shape (3, laws k, N).

    ``columns`` are those of :func:`added_columns`, ``gaps`` of shape (3 + k, laws) the means of the
    gaps of each law, of 1 over them and of the square of that, then its paces
    (:mod:`planner.loops.luck`).
    """
    paces = gaps.shape[0] - FIRST_PACE
    rows = np.empty((3, gaps.shape[1] * paces, len(step_s)))
    for law in range(gaps.shape[1]):
        for j in range(paces):
            at, pace = law * paces + j, gaps[FIRST_PACE + j, law]
            for i in range(len(step_s)):
                rows[0, at, i], rows[1, at, i], rows[2, at, i] = token_time(
                    columns[0, i], pace * columns[1, i], columns[2, i], pace * columns[3, i],
                    pace * step_s[i], before_s[i], pace * most_s[i], bursts_per_s, behind,
                    gaps[0, law], gaps[1, law], gaps[2, law])
    return rows


@entry
def good_states(limit_s: float, tokens: Array, least_cap: int, likely: float, columns: Array,
                step_s: Array, before_s: Array, most_s: Array, bursts_per_s: float, behind: float,
                gaps: Array) -> Array:
    """P(TPOT <= limit) in each state from the first to the last likely one, 0 beyond, shape (N,).

    ``tokens`` weighs the states; one is likely when its weight is at least ``likely`` times the
    heaviest up to it or, where that lies further, up to the least cap that is asked about. ``gaps``
    as for :func:`token_times`, of one law.
    """
    heaviest, first, last = tokens[:least_cap].max(), -1, 0
    for i in range(len(tokens)):
        heaviest = max(heaviest, tokens[i])
        if tokens[i] >= likely * heaviest:
            first, last = i if first < 0 else first, i
    good = np.zeros(len(tokens))
    paces = gaps.shape[0] - FIRST_PACE
    for i in range(max(first, 0), last + 1):
        for j in range(paces):
            pace = gaps[FIRST_PACE + j, 0]
            own_s, most = pace * step_s[i], pace * most_s[i]
            none, shape, scale_s = token_time(
                columns[0, i], pace * columns[1, i], columns[2, i], pace * columns[3, i], own_s,
                before_s[i], most, bursts_per_s, behind, gaps[0, 0], gaps[1, 0], gaps[2, 0])
            good[i] += share_of_luck(paces, j) * token_within(
                limit_s, own_s, none, shape, scale_s, most)
    return good
