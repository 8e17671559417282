"""The batch as a birth-death chain (:class:`planner.queueing.Chain`)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planner.compiled import Array, compiled
from planner.loops.gamma import TINY
from planner.loops.stored import entry

GONE = 100.0
"""Natural logarithm of the weight, below the heaviest, at which a state weighs nothing."""
UNSTABLE = 1e12
"""Weight of the waiting tail relative to the last state where the queue has no limit."""


@entry
def influx_peaks(own: float, swing: Array, load: Array, overlap: float, ranks: float) -> Array:
    """Peakedness of the requests that come to decode, over the states:
    :meth:`planner.arrivals.Influx.beside`. ``own`` is the squared CV at a rank, at least 1."""
    peaks = np.empty(len(load))
    for i in range(len(load)):
        left = 1.0 - load[i]
        peaks[i] = ranks * (1.0 + overlap * ((own + swing[i]) / (left * left) - 1.0))
    return peaks


@entry
def prompts_left(own: float, swing: Array, load: Array) -> Array:
    """Prompts that a rank leaves behind when one is done, mean, over the states:
    :attr:`planner.arrivals.Influx.left`. ``own`` as of :func:`influx_peaks`."""
    left = np.empty(len(load))
    for i in range(len(load)):
        squares = swing[i] + own * load[i] * load[i]
        left[i] = load[i] * (1.0 + (own - 1.0) / 2.0) + squares / (2.0 * (1.0 - load[i]))
    return left


@entry
def chain_columns(load: float, tpot_s: Array, peak: Array, full_peak: float, prompt_load: Array,
                  left: Array, lanes: float) -> tuple[Array, float]:
    """Of every state the ratio of the tail past it, the load of a full replica, the weight, and
    how many times longer than the state itself a batch that it fills stays full, shape (4, N), and
    the weight of the empty system: ``Chain.of``.

    States past the heaviest weigh 0 from :data:`GONE` on: the weights fall while the utilisation
    is below 1.
    """
    size = len(tpot_s)
    rows = np.empty((4, size))
    log_weight = top = 0.0
    gone = size
    for i in range(size):
        utilization = load * tpot_s[i] / (i + 1.0)
        full = prompt_load[i] + (1.0 - prompt_load[i]) * utilization
        rows[0, i] = full if full_peak == 1.0 else full ** (1.0 / full_peak)
        rows[1, i] = full
        rows[3, i] = lanes * (1.0 - prompt_load[i] + left[i] * full / utilization)
        if i < gone:
            log_weight += math.log(utilization) / peak[i]
            top = max(top, log_weight)
            rows[2, i] = log_weight
            if log_weight < top - GONE and utilization < 1.0:
                gone = i + 1
        elif utilization >= 1.0:
            gone = size
            for k in range(i + 1):
                again = math.log(load * tpot_s[k] / (k + 1.0)) / peak[k]
                rows[2, k] = again + (rows[2, k - 1] if k > 0 else 0.0)
            log_weight = rows[2, i]
            top = max(top, log_weight)
    for i in range(gone):
        rows[2, i] = math.exp(rows[2, i] - top)
    rows[2, gone:] = 0.0
    return rows, math.exp(-top)


@compiled
def tail_of(ratio: float) -> float:
    """Weight of those that wait, relative to the last state's: r / (1 - r)."""
    return ratio / (1.0 - ratio) if ratio < 1.0 else UNSTABLE


@entry
def tail_columns(ratio: Array) -> Array:
    """:func:`tail_of` of every state."""
    tail = np.empty(len(ratio))
    for i in range(len(ratio)):
        tail[i] = tail_of(ratio[i])
    return tail


@entry
def waiting_columns(weight: Array, empty: float, ratio: Array, answer_s: Array, stay: Array,
                    left: Array) -> Array:
    """For every cap the probability of waiting for a place and the mean wait [s] of those who do,
    shape (2, N): ``Chain.waiting``. ``answer_s`` is the time between two departures, ``stay`` the
    last row of :func:`chain_columns`, ``left`` of :func:`prompts_left`."""
    rows = np.empty((2, len(weight)))
    reached = empty
    for i in range(len(weight)):
        reached += weight[i]
        rows[0, i], rows[1, i] = waiting_at(reached, weight[i], ratio[i], answer_s[i], stay[i],
                                            left[i])
    return rows


@compiled
def waiting_at(reached: float, last: float, ratio: float, answer_s: float, stay: float,
               left: float) -> tuple[float, float]:
    """:func:`waiting_columns` of one cap, from the weight up to it and that of its last state."""
    gap = 1.0 - ratio
    if gap <= 0.0:
        return 1.0, np.inf
    full = last * stay / gap
    return full / max(reached - last + full, TINY), answer_s * (1.0 / gap + left)


@entry
def running_by_cap(weight: Array, empty: float, tail: Array) -> Array:
    """For every cap the mean of the running sequences, shape (N,)."""
    means = np.empty(len(weight))
    total, running = empty, 0.0
    for i in range(len(weight)):
        total += weight[i]
        running += weight[i] * (i + 1.0)
        waiting = weight[i] * tail[i]
        means[i] = (running + waiting * (i + 1.0)) / max(total + waiting, TINY)
    return means


@compiled
def admissions_at(caps: NDArray[np.int64], weight: Array, empty: float, ratio: Array,
                  answer_s: Array, stay: Array, left: Array) -> Array:
    """:func:`running_by_cap` and :func:`waiting_columns` at some caps, which ascend, shape
    (3, caps)."""
    rows, total, running, place = np.empty((3, len(caps))), empty, 0.0, 0
    for i in range(caps[-1]):
        total += weight[i]
        running += weight[i] * (i + 1.0)
        if i + 1 == caps[place]:
            waiting = weight[i] * tail_of(ratio[i])
            rows[0, place] = (running + waiting * (i + 1.0)) / max(total + waiting, TINY)
            rows[1, place], rows[2, place] = waiting_at(total, weight[i], ratio[i], answer_s[i],
                                                        stay[i], left[i])
            place += 1
    return rows


@entry
def shares_by_cap(weight: Array, tail: Array, value: Array) -> Array:
    """For every cap the mean of ``value`` over states that weigh ``weight``, of which the last
    weighs ``1 + tail`` times as much, shape (N,)."""
    means = np.empty(len(weight))
    total = held = 0.0
    for i in range(len(weight)):
        total += weight[i]
        held += weight[i] * value[i]
        waiting = weight[i] * tail[i]
        means[i] = (held + waiting * value[i]) / max(total + waiting, TINY)
    return means


@compiled
def shares_at(caps: NDArray[np.int64], weight: Array, ratio: Array, value: Array) -> Array:
    """:func:`shares_by_cap` at some caps, which ascend."""
    means, total, held, place = np.empty(len(caps)), 0.0, 0.0, 0
    for i in range(caps[-1]):
        total += weight[i]
        held += weight[i] * value[i]
        if i + 1 == caps[place]:
            waiting = weight[i] * tail_of(ratio[i])
            means[place] = (held + waiting * value[i]) / max(total + waiting, TINY)
            place += 1
    return means


@entry
def share_at_cap(weight: Array, ratio: float, value: Array) -> float:
    """The last of :func:`shares_by_cap`."""
    total = held = 0.0
    for i in range(len(weight)):
        total += weight[i]
        held += weight[i] * value[i]
    waiting = weight[len(weight) - 1] * tail_of(ratio)
    return (held + waiting * value[len(weight) - 1]) / max(total + waiting, TINY)


@entry
def running_at_cap(weight: Array, empty: float, ratio: float) -> tuple[float, float]:
    """Mean of the running sequences under the cap ``len(weight)``, and the probability that an
    arrival waits for a place."""
    total, running = empty, 0.0
    for i in range(len(weight)):
        total += weight[i]
        running += weight[i] * (i + 1.0)
    last = weight[len(weight) - 1]
    waiting = last * tail_of(ratio)
    total = max(total + waiting, TINY)
    return (running + waiting * len(weight)) / total, (last + waiting) / total
