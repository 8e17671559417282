"""Waits of single servers (:mod:`planner.queueing`), and whether first tokens come in time."""

from __future__ import annotations

import math

import numpy as np

from planner.compiled import Array, compiled
from planner.loops.answers import token_law
from planner.loops.gamma import NOTICEABLE, TINY
from planner.loops.stored import entry

NO_WAIT_S = 1e-12
"""[s] mean below which a wait is none (its moments would underflow)."""


@compiled
def mg1(rate_per_s: float, first: float, second: float, third: float, arrival_cv2: float,
        ahead: float) -> tuple[float, float, float]:
    """busy, mean [s] and mean of squares [s^2] of the wait: ``mg1_wait_of``. ``ahead`` is
    :func:`planner.arrivals.burst_ahead`."""
    rho = rate_per_s * first
    if rho >= 1.0:
        return 1.0, np.inf, np.inf
    smooth = 1.0
    if arrival_cv2 < 1.0:
        service_cv2 = max(second / max(first * first, TINY) - 1.0, 0.0)
        smooth = (arrival_cv2 + service_cv2) / (1.0 + service_cv2)
    of_batch = ahead * first
    squares = second + 2.0 * of_batch * first
    cubes = third + 6.0 * of_batch * (second + of_batch * first)
    mean_s = rate_per_s * squares / (2.0 * (1.0 - rho)) * smooth
    square = 2.0 * mean_s * mean_s + rate_per_s * cubes / (3.0 * (1.0 - rho)) * smooth
    square += 2.0 * mean_s * of_batch + ahead * second + 2.0 * of_batch * of_batch
    return 1.0 - (1.0 - rho) / (1.0 + ahead), mean_s + of_batch, square


@compiled
def shared_wait(rate_per_s: float, first: float, second: float, third: float, kept: float,
                arrival_cv2: float, ahead: float, shared: float) -> tuple[float, float, float]:
    """:func:`mg1` of a service that keeps the server for ``kept`` times as long and shares passes:
    :meth:`planner.setups.base.Table.wait`."""
    each = kept * first
    busy, mean_s, square = mg1(rate_per_s, each, kept * kept * second,
                               kept * kept * kept * third, arrival_cv2, ahead)
    load = min(rate_per_s * each, 1.0)
    longer = 1.0 + shared * load / (1.0 + load)
    return busy, mean_s * longer, square * longer * longer


@entry
def one_wait(rate_per_s: float, first: float, second: float, third: float, kept: float,
             arrival_cv2: float, ahead: float, shared: float) -> tuple[float, float, float]:
    """:func:`shared_wait` of one service."""
    return shared_wait(rate_per_s, first, second, third, kept, arrival_cv2, ahead, shared)


@compiled
def wait_law(busy: float, mean_s: float, second_s2: float) -> tuple[float, float, float]:
    """Share of those who do not wait, and shape and scale [s] of the gamma of the others, which
    matches the two moments. An unstable queue waits for ever."""
    if not np.isfinite(mean_s):
        return 0.0, 1.0, np.inf
    if mean_s <= NO_WAIT_S or busy <= 0.0:
        return 1.0, 1.0, 1.0
    given_s = mean_s / busy
    variance = max(second_s2 / busy - given_s * given_s, 1e-6 * given_s * given_s)
    return 1.0 - busy, given_s * given_s / variance, variance / given_s


@entry
def sum_law(busy: float, mean_s: float, second_s2: float) -> Array:
    """:func:`wait_law` as the times of :func:`mixture_percentiles`, shape (3, 1)."""
    times = np.empty((3, 1))
    times[0, 0], times[1, 0], times[2, 0] = wait_law(busy, mean_s, second_s2)
    return times


@entry
def full_laws(busy: float, mean_s: float, second_s2: float, given_s: float) -> Array:
    """:func:`wait_law` of a wait for the prefill, and of one for a place in the batch, which is
    exponential with mean ``given_s`` [s], shape (3, 1, 2).

    A full batch starts a prompt when an answer ends, so those who wait for a place wait for the
    prompts before them in the same time.
    """
    laws = np.empty((3, 1, 2))
    laws[0, 0, 0], laws[1, 0, 0], laws[2, 0, 0] = wait_law(busy, mean_s, second_s2)
    laws[0, 0, 1], laws[1, 0, 1], laws[2, 0, 1] = 0.0, 1.0, given_s
    return laws


@compiled
def waits_within(limit_s: float, law: tuple[float, float, float], latency: Array, weights: Array
                 ) -> float:
    """P(wait + latency <= limit) where a wait has a :func:`wait_law`."""
    none, shape, scale_s = law
    log_gamma, total = math.lgamma(shape), 0.0
    for k in range(len(latency)):
        total += weights[k] * token_law(limit_s - latency[k], 0.0, none, shape, log_gamma, scale_s,
                                        np.inf)[0]
    return total


@compiled
def starts_in_time(limit_s: float, level: float, busy: float, mean_s: float, second_s2: float,
                   places: float, given_s: float, latency: Array, weights: Array) -> bool:
    """Whether a wait and a latency keep a limit at a level where a share ``places`` of the requests
    waits for a place in the batch instead, see :func:`full_laws`: never more of them in time than
    of the others."""
    alone = 0.0
    for k in range(len(latency)):
        alone += weights[k] if latency[k] <= limit_s else 0.0
    if alone < level or not np.isfinite(mean_s) or not np.isfinite(given_s):
        return False
    total = waits_within(limit_s, wait_law(busy, mean_s, second_s2), latency, weights)
    if places > NOTICEABLE:
        late = waits_within(limit_s, (0.0, 1.0, given_s), latency, weights)
        total += places * min(late - total, 0.0)
    return total >= level
