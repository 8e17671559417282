"""Which batch limit of one pool holds a rate, and the highest rate that one holds
(:mod:`planner.setups.continuous`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.compiled import Array, compiled
from planner.loops.answers import added_columns, good_states, prompt_columns, token_law
from planner.loops.chain import (
    admissions_at,
    chain_columns,
    influx_peaks,
    prompts_left,
    running_at_cap,
    share_at_cap,
    shares_at,
)
from planner.loops.gamma import LIKELY
from planner.loops.luck import mean_pace, share_of_luck
from planner.loops.percentiles import log_gammas
from planner.loops.prompts import Prompts, prefill_of
from planner.loops.stored import entry
from planner.loops.waits import starts_in_time


@compiled
def open_states(rate_per_s: float, arrival_cv2: float, stops: float, overlap: float,
                prompt_tokens: float, states: Array, p: Prompts
                ) -> tuple[Array, Array, float, Array]:
    """:func:`prompt_columns`, the peakedness of what comes to decode in these states, that of
    a full replica, and :func:`prompts_left`."""
    columns = prompt_columns(rate_per_s, rate_per_s * prompt_tokens,
                             max(arrival_cv2 - 1.0, 0.0) / 2.0, states)
    size, own = columns.shape[1], max(1.0 + (arrival_cv2 - 1.0) / p.ranks, 1.0)
    mean_s, square_s2 = states[6, :size], states[7, :size]
    swing = rate_per_s * stops * rate_per_s * stops * (square_s2 - mean_s * mean_s)
    peak = influx_peaks(own, swing, columns[1], overlap, p.ranks)
    return columns, peak, 1.0 + (own - 1.0) / 2.0, prompts_left(own, swing, columns[1])


@entry
def caps_held(caps: NDArray[np.int64], rate_per_s: float, arrival_cv2: float, stops: float,
              behind: float, overlap: float, prompt_tokens: float, weights: Array, states: Array,
              p: Prompts, answers: Array, gaps: Array, tpot_s: float, tpot_level: float,
              ttft_s: float, ttft_level: float, every: bool) -> NDArray[np.bool_]:
    """Which batch limits are stable, keep a target on TPOT and one on TTFT, shape (3, open).

    The composition of the loops above for :meth:`planner.setups.continuous.Continuous.check`; only
    limits up to the first closed state after an open one are open. Where none is stable, or none
    that is keeps the target on TPOT, nothing further is asked. TTFT is asked of those that hold the
    rest, from the largest down to the first that holds, or of ``every`` one.

    Parameters
    ----------
    answers, gaps : ndarray, shape (laws,), (3 + k, laws)
        Mean tokens of the answers, of which the first are those that run, and their gaps; TPOT
        must hold for each.
    tpot_s, ttft_s : float
        Targets [s], infinite where there are none.
    """
    tokens_per_s, ahead = rate_per_s * prompt_tokens, max(arrival_cv2 - 1.0, 0.0) / 2.0
    columns, peak, full_peak, left = open_states(rate_per_s, arrival_cv2, stops, overlap,
                                                 prompt_tokens, states, p)
    size, count = columns.shape[1], 0
    while count < len(caps) and caps[count] <= size:
        count += 1
    held = np.ones((3, count), dtype=np.bool_)
    if count == 0:
        return held
    token, load, before, most = states[0, :size], columns[1], columns[3], states[8, :size]
    mean_s, square_s2 = states[6, :size], states[7, :size]
    rows, empty = chain_columns(rate_per_s * answers[0], columns[0], peak, full_peak, load, left,
                                p.ranks)
    least = 0
    for place in range(count - 1, -1, -1):
        held[0, place] = rows[0, caps[place] - 1] < 1.0
        least = place if held[0, place] else least
    if not held[0, least]:
        return held
    if tpot_s < np.inf:
        added = added_columns(token, rate_per_s * stops, load, mean_s, square_s2, columns[2],
                              before, max(arrival_cv2, 1.0), behind)
        for law in range(len(answers)):
            own_rows = rows
            if answers[law] != answers[0]:
                own_rows, _ = chain_columns(rate_per_s * answers[law], columns[0], peak, full_peak,
                                            load, left, p.ranks)
            written = np.empty(size)
            for i in range(size):
                written[i] = own_rows[2, i] * (i + 1.0) / columns[0, i]
            good = good_states(tpot_s * (1.0 + 1e-12), written, caps[least], LIKELY, added, token,
                               before, most, rate_per_s * stops / (1.0 + ahead), behind,
                               gaps[:, law:law + 1])
            share, kept = shares_at(caps[:count], written, own_rows[0], good), False
            for place in range(count):
                held[1, place] = held[1, place] and share[place] >= tpot_level
                kept = kept or (held[0, place] and held[1, place])
            if not kept:
                return held
    if ttft_s < np.inf:
        admissions = admissions_at(caps[:count], rows[2], empty, rows[0], rows[1], rows[3], left)
        each_s = p.ranks / rate_per_s
        latency, found = np.empty(len(p.tokens)), False
        for place in range(count - 1, -1, -1):
            held[2, place] = False
            if held[0, place] and held[1, place] and not (found and not every):
                waits, given_s = admissions[1, place], admissions[2, place] * each_s
                busy, wait_s, square = prefill_of(rate_per_s, arrival_cv2, admissions[0, place],
                                                  states[1, 0], tokens_per_s, p, latency)
                found = starts_in_time(ttft_s, ttft_level, busy, wait_s, square, waits, given_s,
                                       latency, weights)
                held[2, place] = found
    return held


@entry
def ends_in_time(limit_s: float, level: float, tokens: float, token_level: float, step_s: Array,
                 times: Array, most_s: Array, paces: Array, written: Array, tail: float,
                 busy: float, mean_s: float, second_s2: float, places: float, given_s: float,
                 latency: Array, weights: Array, close: float) -> bool:
    """Whether whole requests keep a limit at a level under one batch limit.

    TTFT + TPOT g <= E holds when some TPOT t is not exceeded at the level of the tokens while
    TTFT <= E - t g holds at that of the request; each step halves where such a t may be.

    Parameters
    ----------
    tokens, token_level : float
        Gaps g between the tokens of the answer, and the share that must keep t.
    step_s, times, most_s : ndarray, shape (N,), (3, k, N), (N,)
        [s] of a token, :func:`token_times` of one law, and the most that prompts add [s].
    paces : ndarray, shape (k,)
        Of the law.
    written, tail : ndarray of shape (cap,), float
        Tokens that each state writes, and the weight of those that wait in the last.
    busy, mean_s, second_s2 : float
        Wait for the prefill [s], [s^2].
    places, given_s : float
        Share that waits for a place in the batch, and its mean wait [s].
    latency, weights : ndarray, shape (k,)
        Of a prompt [s], and the shares of the prompts.
    """
    if tokens <= 0.0:
        return starts_in_time(limit_s, level, busy, mean_s, second_s2, places, given_s, latency,
                              weights)
    low, high, least = paces[0] * step_s[0], limit_s / tokens, LIKELY * written.max()
    logs = log_gammas(times[1])
    while high - low > close * high:
        middle = (low + high) / 2.0
        total = held = 0.0
        for i in range(len(written)):
            if written[i] >= least:
                weight = written[i] * (1.0 + tail) if i == len(written) - 1 else written[i]
                total += weight
                for j in range(len(paces)):
                    held += weight * share_of_luck(len(paces), j) * token_law(
                        middle, paces[j] * step_s[i], times[0, j, i], times[1, j, i], logs[j, i],
                        times[2, j, i], paces[j] * most_s[i])[0]
        enough = held >= token_level * total
        few = starts_in_time(limit_s - middle * tokens, level, busy, mean_s, second_s2, places,
                             given_s, latency, weights)
        if enough == few:
            return enough
        if enough:
            high = middle
        else:
            low = middle
    return False


@compiled
def first_failure(held: NDArray[np.bool_], asked: tuple[bool, bool, bool]) -> int:
    """The row of the constraint without which some batch limit would do, a later one before the
    first; else of that which fewest hold."""
    for row in (1, 2, 0):
        if asked[row]:
            for place in range(held.shape[1]):
                others = 0
                for other in range(3):
                    if other != row and asked[other]:
                        others = others + 1 if held[other, place] else -9
                if others > 0:
                    return row
    fewest = 0
    for row in range(1, 3):
        if asked[row] and held[row].sum() < held[fewest].sum():
            fewest = row
    return fewest


@entry
def batch_limit(caps: NDArray[np.int64], rate_per_s: float, arrival_cv2: float, stops: float,
                behind: float, overlap: float, prompt_tokens: float, weights: Array, states: Array,
                p: Prompts, answers: Array, gaps: Array, tpot_s: float, tpot_level: float,
                ttft_s: float, ttft_level: float) -> tuple[int, int]:
    """Place of the largest batch limit that :func:`caps_held` finds to hold, and the row of the
    first failure where none does; -1 for the other."""
    held = caps_held(caps, rate_per_s, arrival_cv2, stops, behind, overlap, prompt_tokens, weights,
                     states, p, answers, gaps, tpot_s, tpot_level, ttft_s, ttft_level, False)
    tried = False
    for place in range(held.shape[1] - 1, -1, -1):
        if held[0, place] and held[1, place]:
            tried = True
            if held[2, place]:
                return place, -1
    if held.shape[1] == 0:
        return -1, 0
    return -1, first_failure(held, (True, tpot_s < np.inf, ttft_s < np.inf and tried))


@entry
def held_rate(low: float, high: float, most: float, close: float, caps: NDArray[np.int64],
              arrival_cv2: float, asked: Any) -> float:
    """The highest rate [1/s] at which some batch limit holds, within ``close`` of it:
    :func:`planner.setups.base.highest_held`, where ``asked`` are the other arguments of
    :func:`batch_limit`."""
    place = 0
    while place >= 0 and high < most:
        place, _ = batch_limit(caps, high, arrival_cv2, *asked)
        if place >= 0:
            low, high = high, high * 2.0
    while high - low > close * low:
        middle, place = (low + high) / 2.0, -1
        if middle < most:
            place, _ = batch_limit(caps, middle, arrival_cv2, *asked)
        low, high = (middle, high) if place >= 0 else (low, middle)
    return low


@entry
def mean_times(cap: int, rate_per_s: float, arrival_cv2: float, stops: float, behind: float,
               overlap: float, prompt_tokens: float, weights: Array, states: Array, p: Prompts,
               answer_tokens: float, gaps: Array) -> tuple[float, float]:
    """Mean TTFT, without a wait for a place, and mean TPOT [s] under a batch limit: what
    :meth:`planner.setups.continuous.Continuous.means` asks of the loops above; infinite where
    prompts fill the replica.

    Parameters
    ----------
    answer_tokens, gaps : float, ndarray of shape (3 + k, 1)
        Mean tokens of the answers, and their gaps.
    """
    columns, peak, full_peak, left = open_states(rate_per_s, arrival_cv2, stops, overlap,
                                                 prompt_tokens, states, p)
    size = min(cap, columns.shape[1])
    if size == 0:
        return np.inf, np.inf
    rows, empty = chain_columns(rate_per_s * answer_tokens, columns[0], peak, full_peak, columns[1],
                                left, p.ranks)
    added = added_columns(states[0, :size], rate_per_s * stops, columns[1], states[6, :size],
                          states[7, :size], columns[2], columns[3], max(arrival_cv2, 1.0), behind)
    written, time_s, pace = np.empty(size), np.empty(size), mean_pace(gaps, 0)
    for i in range(size):
        written[i] = rows[2, i] * (i + 1.0) / columns[0, i]
        time_s[i] = pace * states[0, i] + min(added[0, i] * gaps[1, 0] + pace * added[1, i],
                                              pace * states[8, i])
    ratio, latency = rows[0, size - 1], np.empty(len(p.tokens))
    running, _ = running_at_cap(rows[2, :size], empty, ratio)
    _, ttft_s, _ = prefill_of(rate_per_s, arrival_cv2, running, states[1, 0],
                              rate_per_s * prompt_tokens, p, latency)
    for k in range(len(latency)):
        ttft_s += weights[k] * latency[k]
    return ttft_s, share_at_cap(written, ratio, time_s)
