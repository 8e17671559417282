"""The compiled loops of :mod:`planner.queueing` and :mod:`planner.stalls` over running sequences.

A plan asks these formulas hundreds of times for a few hundred states, where NumPy spends its time
on calls. All of them are in this one file, because stored machine code is renewed when the file of
the function that Python calls has changed, and not when another has.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.compiled import Array, compiled, entry

TINY = 1e-300
DIGITS = 1e-14
"""Part of a probability that no longer counts."""
GONE = 100.0
"""Natural logarithm of the weight, below the heaviest, at which a state weighs nothing."""
NO_WAIT_S = 1e-12
"""[s] mean below which a wait is none (its moments would underflow)."""
LIKELY = 1e-9
"""Weight of a state, relative to the heaviest, below which it changes no percentile."""
NOTICEABLE = 1e-6
"""Probability of a wait below which it changes nothing."""
UNSEEN = 1e-20
"""Weight of a state, relative to the heaviest, below which it changes no digit of a share."""
MOST_LEAST = 0.9
"""Part of the mean of what a gap holds that the least of it may be."""
UNSTABLE = 1e12
"""Weight of the waiting tail relative to the last state where the queue has no limit."""


@compiled
def gamma_within(shape: float, x: float) -> float:
    """P(X <= x) of a gamma with scale 1."""
    return gamma_law(shape, x)[0]


@compiled
def gamma_law(shape: float, x: float) -> tuple[float, float]:
    """P(X <= x) of a gamma with scale 1, the regularised lower incomplete gamma function, and its
    density.

    Its series below the mean, the continued fraction of the rest above (Press et al., *Numerical
    Recipes*, 3rd ed., section 6.2), from one convergent to the next; each ends where it adds
    less than :data:`DIGITS`. Within 1e-12 of SciPy's for shapes up to 1,000.
    """
    if x <= 0.0:
        return 0.0, 0.0
    lead = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1.0:
        term = total = lead / shape
        step = shape
        while term > DIGITS:
            step += 1.0
            term *= x / step
            total += term
        return min(total, 1.0), lead / x
    if lead < DIGITS:
        return 1.0, 0.0
    b, i = x + 1.0 - shape, 0.0
    above, above_last, below, below_last = 1.0, 0.0, b, 1.0
    fraction, last = 1.0 / b, 2.0
    while abs(fraction - last) * lead > DIGITS:
        for _ in range(2):
            i += 1.0
            a = i * (shape - i)
            b += 2.0
            above, above_last = b * above + a * above_last, above
            below, below_last = b * below + a * below_last, below
        above, above_last, below_last = above / below, above_last / below, below_last / below
        below, last, fraction = 1.0, fraction, above
    return max(1.0 - lead * fraction, 0.0), lead / x


# -- time per output token of single requests (planner.stalls) --------------------------------


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
    return token_law(limit_s, step_s, none, shape, scale_s, most_s)[0]


@compiled
def token_law(limit_s: float, step_s: float, none: float, shape: float, scale_s: float,
              most_s: float) -> tuple[float, float]:
    """P(TPOT <= limit) in one state, and its density there [1/s] where it does not jump."""
    over_s = limit_s - step_s
    if over_s >= most_s:
        return 1.0, 0.0
    if over_s < 0.0:
        return 0.0, 0.0
    within, density = gamma_law(shape, over_s / scale_s)
    return none + (1.0 - none) * within, (1.0 - none) * density / scale_s


@entry
def token_times(columns: Array, step_s: Array, before_s: Array, most_s: Array,
                bursts_per_s: float, behind: float, gaps: Array) -> Array:
    """:func:`token_time` over laws and states, shape (3, laws, N).

    ``columns`` are those of :func:`added_columns`, ``gaps`` of shape (3, laws) the means of the
    gaps of each law, of 1 over them and of the square of that.
    """
    rows = np.empty((3, gaps.shape[1], len(step_s)))
    for law in range(gaps.shape[1]):
        for i in range(len(step_s)):
            rows[0, law, i], rows[1, law, i], rows[2, law, i] = token_time(
                columns[0, i], columns[1, i], columns[2, i], columns[3, i], step_s[i],
                before_s[i], most_s[i], bursts_per_s, behind, gaps[0, law], gaps[1, law],
                gaps[2, law])
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
    for i in range(max(first, 0), last + 1):
        none, shape, scale_s = token_time(
            columns[0, i], columns[1, i], columns[2, i], columns[3, i], step_s[i], before_s[i],
            most_s[i], bursts_per_s, behind, gaps[0, 0], gaps[1, 0], gaps[2, 0])
        good[i] = token_within(limit_s, step_s[i], none, shape, scale_s, most_s[i])
    return good


@entry
def influx_peaks(own: float, swing: Array, load: Array, overlap: float, ranks: float) -> Array:
    """Peakedness of the requests that come to decode, over the states:
    :meth:`planner.arrivals.Influx.beside`. ``own`` is the squared CV at a rank, at least 1."""
    peaks = np.empty(len(load))
    for i in range(len(load)):
        left = 1.0 - load[i]
        peaks[i] = ranks * (1.0 + overlap * ((own + swing[i]) / (left * left) - 1.0))
    return peaks


# -- gaps between tokens (planner.stalls) ------------------------------------------------------


@compiled
def gap_time(once_s: float, gap_s: float, square_s2: float, cross_s2: float, step_s: float,
             before_s: float, most_s: float, least_s: float, bursts_per_s: float, behind: float,
             gaps: float, first: float, stages: float, apart: bool
             ) -> tuple[float, float, float, float]:
    """Share of the gaps that meet no prompt; the least [s] that the others hold, and shape and
    scale [s] of the gamma beyond it: ``Added.gaps``, in one state.

    ``gaps`` are those of an answer, mean, and ``first`` the share of all gaps that are the first
    of an answer.
    """
    open_s = step_s + gap_s if apart else step_s
    thin = (step_s / open_s) ** 2
    bursts_per_s *= stages
    ever = 1.0 - math.exp(-bursts_per_s * (before_s + step_s * gaps)) / (1.0 + behind)
    any_of_first = 1.0 - math.exp(-bursts_per_s * (before_s + open_s)) / (1.0 + behind)
    met = (1.0 - first) * -math.expm1(-bursts_per_s * open_s) + first * any_of_first
    mean_s = min(gap_s + first * once_s, most_s * ever)
    met = max(min(max(met, mean_s / most_s), ever), 1e-12)
    square = ((cross_s2 - 2.0 * once_s * gap_s) * thin / stages + gap_s * gap_s
              + first * (square_s2 * thin + 2.0 * once_s * gap_s))
    each_s = max(mean_s / met, 1e-15)
    swing = max(min(square, most_s * mean_s) / met - each_s * each_s, 1e-3 * each_s * each_s)
    least_s = min(least_s, MOST_LEAST * each_s)
    beyond_s = each_s - least_s
    return 1.0 - met, least_s, beyond_s * beyond_s / swing, swing / beyond_s


@entry
def gap_times(tokens: Array, heaviest: float, columns: Array, step_s: Array, before_s: Array,
              most_s: Array, least_s: Array, bursts_per_s: float, behind: float, gaps: float,
              first: float, stages: float, apart: bool) -> tuple[int, Array]:
    """:func:`gap_time` over the states from the first to the last likely one: the first of them,
    and rows of shape (4, states).

    ``tokens`` weighs the states; one is likely when its weight is at least :data:`LIKELY` times
    the heaviest up to it, or ``heaviest``.
    """
    begin, end = -1, 0
    for i in range(len(tokens)):
        heaviest = max(heaviest, tokens[i])
        if tokens[i] >= LIKELY * heaviest:
            begin, end = i if begin < 0 else begin, i + 1
    rows = np.empty((4, end - begin))
    for k in range(end - begin):
        i = begin + k
        rows[0, k], rows[1, k], rows[2, k], rows[3, k] = gap_time(
            columns[0, i], columns[1, i], columns[2, i], columns[3, i], step_s[i], before_s[i],
            most_s[i], least_s[i], bursts_per_s, behind, gaps, first, stages, apart)
    return begin, rows


@entry
def gaps_in_time(limit_s: float, step_s: Array, times: Array, most_s: Array) -> Array:
    """P(gap <= limit) in each state, shape (N,); ``times`` are rows of :func:`gap_times`."""
    good = np.empty(len(step_s))
    for i in range(len(step_s)):
        none, least_s = times[0, i], times[1, i]
        good[i] = none * (limit_s >= step_s[i]) + (1.0 - none) * token_within(
            limit_s, step_s[i] + least_s, 0.0, times[2, i], times[3, i], most_s[i] - least_s)
    return good


# -- the batch as a birth-death chain (planner.queueing) --------------------------------------


@entry
def chain_columns(load: float, tpot_s: Array, peak: Array, full_peak: float, prompt_load: Array
                  ) -> tuple[Array, float]:
    """Of every state the ratio of the tail past it, the load of a full replica and the weight,
    shape (3, N), and the weight of the empty system: ``Chain.of``.

    States past the heaviest weigh 0 from :data:`GONE` on: the weights fall while the utilisation
    is below 1.
    """
    size = len(tpot_s)
    rows = np.empty((3, size))
    log_weight = top = 0.0
    gone = size
    for i in range(size):
        utilization = load * tpot_s[i] / (i + 1.0)
        full = prompt_load[i] + (1.0 - prompt_load[i]) * utilization
        rows[0, i] = full if full_peak == 1.0 else full ** (1.0 / full_peak)
        rows[1, i] = full
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
def waiting_columns(weight: Array, empty: float, ratio: Array, answer_s: Array) -> Array:
    """For every cap the probability of waiting for a place and the mean wait [s] of those who do,
    shape (2, N): ``Chain.waiting``. ``answer_s`` is the time between two departures."""
    rows = np.empty((2, len(weight)))
    reached = empty
    for i in range(len(weight)):
        reached += weight[i]
        gap = 1.0 - ratio[i]
        if gap > 0.0:
            total = reached + weight[i] * ratio[i] / gap
            rows[0, i] = weight[i] / gap / max(total, TINY)
            rows[1, i] = answer_s[i] / gap
        else:
            rows[0, i], rows[1, i] = 1.0, np.inf
    return rows


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


# -- waits (planner.queueing) -----------------------------------------------------------------


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
def shared_waits(rate_per_s: float, first: Array, second: Array, third: Array, kept: float,
                 arrival_cv2: float, ahead: float, shared: float) -> Array:
    """:func:`shared_wait` of each service, shape (3, cases)."""
    rows = np.empty((3, len(first)))
    for i in range(len(first)):
        rows[0, i], rows[1, i], rows[2, i] = shared_wait(
            rate_per_s, first[i], second[i], third[i], kept, arrival_cv2, ahead, shared)
    return rows


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


# -- percentiles ------------------------------------------------------------------------------


@compiled
def beyond(x: float, start_s: Array, times: Array, law: int, most_s: Array, weights: Array
           ) -> tuple[float, float, float]:
    """ln P(X > x) and ln P(X >= x) of a mixture, a start and with some chance a gamma more; and by
    how much the first falls with x [1/s]."""
    share = here = density = 0.0
    for i in range(len(start_s)):
        at = i if times.shape[2] > 1 else 0
        within, own = token_law(x, start_s[i], times[0, law, at], times[1, law, at],
                                times[2, law, at], most_s[i])
        share += weights[i] * within
        density += weights[i] * own
        if x == start_s[i]:
            here += weights[i] * times[0, law, at]
    left = max(1.0 - share, TINY)
    return math.log(left), math.log(max(1.0 - share + here, TINY)), density / left


@compiled
def nearest_jump(x: float, below: float, above: float, start_s: Array, times: Array, law: int,
                 weights: Array) -> float:
    """The start nearest to x of those between two values at which the mixture jumps; negative where
    there is none."""
    best = -1.0
    for i in range(len(start_s)):
        jump = weights[i] * times[0, law, i if times.shape[2] > 1 else 0]
        if (jump > LIKELY and below < start_s[i] < above
                and (best < 0.0 or abs(start_s[i] - x) < abs(best - x))):
            best = start_s[i]
    return best


@entry
def mixture_percentiles(shares: Array, middle_s: float, start_s: Array, times: Array,
                        most_s: Array, weights: Array, close: float, most_steps: int) -> Array:
    """Where a mixture reaches shares, within ``close`` of them and on the safe side.

    Newton's method on the logarithm of what lies beyond, which is nearly straight for a gamma,
    within a bracket (Press et al., *Numerical Recipes*, 3rd ed., section 9.4). A start in the
    bracket where the mixture jumps is asked before what lies between, some steps halve, and none is
    shorter than the bracket that ends the search.

    Parameters
    ----------
    shares : ndarray, shape (p,)
        Below 1; of one law fastest when they rise.
    middle_s : float
        About the mean: where to look first.
    start_s, weights, most_s : ndarray, shape (N,)
        What is there without the gamma [s], the weights, and the most that it adds [s].
    times : ndarray, shape (3, laws, N or 1)
        As of :func:`token_times`; one law, or one for each share.
    """
    found = np.empty(len(shares))
    least_s = start_s.min() * (1.0 - 1e-9)
    low, first, reached, fall = least_s, middle_s, 0.0, 0.0
    for place in range(len(shares)):
        law, goal = place if times.shape[1] > 1 else 0, math.log(1.0 - shares[place])
        if times.shape[1] > 1 or goal > reached:
            low, first = least_s, middle_s
        elif place > 0:
            first = found[place - 1]
            first = min(first + (reached - goal) / fall, 2.0 * first) if fall > 0.0 else 2.0 * first
        found[place], low, reached, fall = percentile(
            goal, low, first, start_s, times, law, most_s, weights, close, most_steps)
    return found


@compiled
def percentile(goal: float, below: float, first: float, start_s: Array, times: Array, law: int,
               most_s: Array, weights: Array, close: float, most_steps: int
               ) -> tuple[float, float, float, float]:
    """Where ln P(X > x) falls to ``goal``, the last x found below it, and of the last x asked the
    logarithm and by how much it falls with x; the first is asked first."""
    above, x, after, fall = np.inf, first, 0.0, 0.0
    for step in range(most_steps):
        after, before, fall = beyond(x, start_s, times, law, most_s, weights)
        if after <= goal < before:
            return x, below, after, fall
        if after <= goal:
            above = x
        else:
            below = x
        x = x + (after - goal) / fall if fall > 0.0 else np.inf
        if above == np.inf:
            x = min(max(x, below * (1.0 + close)), 2.0 * below)
            continue
        if above - below <= close * above:
            break
        if not below < x < above or step >= 20 or (step > 4 and step % 4 == 3):
            x = (below + above) / 2.0
        least = 0.5 * close * above
        x = min(max(x, below + least), above - least)
        start = nearest_jump(x, below, above, start_s, times, law, weights)
        x = start if start >= 0.0 else x
    return above, below, after, fall


@entry
def answer_percentiles(shares: Array, tokens: Array, step_s: Array, columns: Array,
                       before_s: Array, most_s: Array, bursts_per_s: float, behind: float,
                       gaps: Array, close: float, most_steps: int) -> Array:
    """Percentiles [s] of the TPOT of answers: over the states from the first to the last likely
    one, and within them.

    Parameters
    ----------
    tokens : ndarray, shape (cap,)
        Share of the tokens that each state generates.
    gaps : ndarray, shape (3, laws)
        As for :func:`token_times`; of one law, or of one for each share.
    """
    likely = np.flatnonzero(tokens >= LIKELY * tokens.max())
    first, end = likely[0], likely[-1] + 1
    start_s, most, weights = step_s[first:end], most_s[first:end], tokens[first:end]
    weights = weights / weights.sum()
    times = token_times(np.ascontiguousarray(columns[:, first:end]), start_s, before_s[first:end],
                        most, bursts_per_s, behind, gaps)
    middle_s = 0.0
    for law in range(gaps.shape[1]):
        mean_s = 0.0
        for i in range(len(start_s)):
            added_s = (1.0 - times[0, law, i]) * times[1, law, i] * times[2, law, i]
            mean_s += weights[i] * (start_s[i] + added_s)
        middle_s = max(middle_s, mean_s)
    return mixture_percentiles(shares, middle_s, start_s, times, most, weights, close, most_steps)


@entry
def halvings(spans_s: Array, shares: Array, weights: Array, start_s: Array, spread_s: Array,
             times: Array, most_s: Array, count: int) -> Array:
    """Tries of where mixtures reach shares, by halving a range from 0 on, shape (cases, count).

    The mixture is that of :func:`beyond`, its starts normally distributed; each try after the
    middle of the range goes half as far as the one before it.

    Parameters
    ----------
    spans_s : ndarray, shape (cases,)
        [s] end of the range.
    weights, start_s, spread_s, most_s : ndarray, shape (cases, N)
        ``spread_s`` is the standard deviation of the start [s]; 0 where it is one time.
    times : ndarray, shape (3, cases, N)
        As of :func:`token_times`.
    """
    rows = np.empty((len(spans_s), count))
    for case in range(len(spans_s)):
        least = UNSEEN * weights[case].max()
        at = spans_s[case] / 2.0
        for step in range(count):
            rows[case, step] = at
            share = 0.0
            for i in range(weights.shape[1]):
                if weights[case, i] > least:
                    share += weights[case, i] * spread_within(
                        at, start_s[case, i], spread_s[case, i], times[0, case, i],
                        times[1, case, i], times[2, case, i], most_s[case, i])
            at += (1.0 if share < shares[case] else -1.0) * spans_s[case] / 2.0 ** (step + 2)
    return rows


@compiled
def spread_within(limit_s: float, start_s: float, spread_s: float, none: float, shape: float,
                  scale_s: float, most_s: float) -> float:
    """:func:`token_within` where those without a gamma start at a normally distributed time."""
    over_s = limit_s - start_s
    if over_s >= most_s:
        return 1.0
    if spread_s > 0.0:
        found = none * 0.5 * math.erfc(-over_s / (spread_s * math.sqrt(2.0)))
    else:
        found = none if over_s >= 0.0 else 0.0
    if none >= 1.0 or over_s <= 0.0:
        return found
    return found + (1.0 - none) * gamma_within(shape, over_s / scale_s)


# -- prompts beside decodes (planner.setups.continuous) ---------------------------------------


class Prompts(NamedTuple):
    """How prompts are prefilled on a replica that decodes, over ``n`` running sequences.

    Attributes
    ----------
    chunked : bool
        In chunks beside the decodes, or whole before them.
    ranks : float
        Data-parallel ranks, to which requests are dealt at random.
    rows : ndarray, shape (4, N)
        Space [token], mixed step, decode step [s] and chunk [token]; of whole prompts only the
        decode step counts.
    tokens : ndarray, shape (k,)
        [token] of a prompt.
    further_s, fixed_s : ndarray, shape (k,)
        [s] beyond that of tokens at their mean depth; in which the prefill does not run (of whole
        prompts: until the first token of an idle replica).
    powers : ndarray, shape (4, 4)
        E[p^i f^j] at [i, j] of tokens p and further f; of whole prompts E[S^i] at [i, 0].
    residual : float
        Share of a step that a new prompt waits for.
    kept : float
        Times its time on a rank that a prompt keeps the rank from the next.
    shared : float
        See :meth:`planner.setups.base.Table.wait`.
    together : float
        Share of its time that a prompt takes from those in its pass besides, see
        :class:`planner.setups.colocated.Colocated`.
    """

    chunked: bool
    ranks: float
    rows: Array
    tokens: Array
    further_s: Array
    fixed_s: Array
    powers: Array
    residual: float
    kept: float
    shared: float
    together: float


@entry
def mixed_powers(tokens: Array, further_s: Array, weights: Array) -> Array:
    """E[p^i f^j] at [i, j] of prompts of p tokens that take f beyond, shape (4, 4)."""
    powers = np.zeros((4, 4))
    for k in range(len(tokens)):
        of_tokens = weights[k]
        for i in range(4):
            both = of_tokens
            for j in range(4):
                powers[i, j] += both
                both *= further_s[k]
            of_tokens *= tokens[k]
    return powers


@entry
def chunk_states(step_s: Array, mixed_s: Array, space: Array, chunk: Array, accepted: float,
                 ranks: float, powers: Array) -> Array:
    """:attr:`planner.setups.chunked.Chunked.states`, shape (9, N).

    ``powers`` as of :class:`Prompts`: a prompt of p tokens that take ``a`` each takes ``p a + f``.
    """
    rows = np.empty((9, len(step_s)))
    mean = powers[1, 0]
    for i in range(len(step_s)):
        extra = (mixed_s[i] - step_s[i]) / chunk[i]
        each = step_s[i] / space[i] + extra
        rows[0, i] = step_s[i] / accepted
        rows[1, i] = extra * mean
        rows[2, i] = step_s[i] / space[i]
        rows[3, i] = mean * each / ranks
        rows[4, i] = (each * (each * powers[2, 0] + 2.0 * powers[1, 1]) + powers[0, 2]) / ranks
        rows[5, i] = mean * each + step_s[i]
        rows[6, i] = extra * mean
        rows[7, i] = extra * (extra * powers[2, 0] + 2.0 * powers[1, 1]) + powers[0, 2]
        rows[8, i] = extra * space[i] / accepted
    return rows


@compiled
def prefill_of(rate_per_s: float, arrival_cv2: float, running: float, busy_s: float,
               tokens_per_s: float, p: Prompts, latency: Array) -> tuple[float, float, float]:
    """busy, mean [s] and mean of squares [s^2] of the wait of a prompt that meets ``running``
    sequences; writes its latency [s], shape (k,). ``busy_s`` is what a whole prompt takes from
    the decodes."""
    last = p.rows.shape[1] - 1
    at = min(max(running - 1.0, 0.0), float(last))
    low = int(at)
    high, part = min(low + 1, last), at - low
    decode = p.rows[2, low] + part * (p.rows[2, high] - p.rows[2, low])
    own_cv2 = 1.0 + (arrival_cv2 - 1.0) / p.ranks
    ahead = max(own_cv2 - 1.0, 0.0) / 2.0
    rate = rate_per_s / p.ranks
    if p.chunked:
        space = p.rows[0, low] + part * (p.rows[0, high] - p.rows[0, low])
        mixed = p.rows[1, low] + part * (p.rows[1, high] - p.rows[1, low])
        chunk = p.rows[3, low] + part * (p.rows[3, high] - p.rows[3, low])
        per_token = (mixed - decode) / chunk
        waited_s = p.residual * decode / (1.0 - min(tokens_per_s * per_token, 0.95))
        for k in range(len(p.tokens)):
            latency[k] = (math.ceil(p.tokens[k] / space) * decode + per_token * p.tokens[k]
                          + p.further_s[k] + waited_s + p.fixed_s[k])
        each, e = decode / space + per_token, p.powers
        return shared_wait(
            rate, each * e[1, 0] + e[0, 1],
            each * (each * e[2, 0] + 2.0 * e[1, 1]) + e[0, 2],
            each * (each * (each * e[3, 0] + 3.0 * e[2, 1]) + 3.0 * e[1, 2]) + e[0, 3],
            p.kept, own_cv2, ahead, p.shared)
    for k in range(len(p.tokens)):
        latency[k] = p.fixed_s[k] + p.residual * decode
    busy, mean_s, square = shared_wait(rate, p.powers[1, 0], p.powers[2, 0], p.powers[3, 0],
                                       p.kept, own_cv2, ahead, p.shared)
    if p.together <= 0.0:
        return busy, mean_s, square
    others = rate * max(1.0 - rate_per_s * busy_s, 0.0) * decode
    more_s = others * p.together * p.powers[1, 0]
    more_square = others * p.together * p.together * p.powers[2, 0] + more_s * more_s
    return (1.0 - (1.0 - busy) * math.exp(-others), mean_s + more_s,
            square + more_square + 2.0 * mean_s * more_s)


@entry
def prefills(rate_per_s: float, arrival_cv2: float, running: Array, busy_s: float,
             tokens_per_s: float, p: Prompts) -> tuple[Array, Array]:
    """:func:`prefill_of` of each case: waits, shape (3, cases), and latencies [s], (cases, k)."""
    waits, latency = np.empty((3, len(running))), np.empty((len(running), len(p.tokens)))
    for case in range(len(running)):
        waits[0, case], waits[1, case], waits[2, case] = prefill_of(
            rate_per_s, arrival_cv2, running[case], busy_s, tokens_per_s, p, latency[case])
    return waits, latency


@compiled
def starts_in_time(limit_s: float, level: float, busy: float, mean_s: float, second_s2: float,
                   busy_too: float, mean_too_s: float, second_too_s2: float, latency: Array,
                   weights: Array) -> bool:
    """Whether two waits and a latency together keep a limit at a level.

    The sum of the waits is matched by two moments, which can give it more short ones than the first
    has; so the first alone must keep it too.
    """
    alone = 0.0
    for k in range(len(latency)):
        alone += weights[k] if latency[k] <= limit_s else 0.0
    if alone < level or not np.isfinite(mean_s) or not np.isfinite(mean_too_s):
        return False
    law = wait_law(1.0 - (1.0 - busy) * (1.0 - busy_too), mean_s + mean_too_s,
                   second_s2 + second_too_s2 + 2.0 * mean_s * mean_too_s)
    first = wait_law(busy, mean_s, second_s2)
    both = only = 0.0
    for k in range(len(latency)):
        left = limit_s - latency[k]
        both += weights[k] * token_within(left, 0.0, law[0], law[1], law[2], np.inf)
        if busy_too > NOTICEABLE:
            only += weights[k] * token_within(left, 0.0, first[0], first[1], first[2], np.inf)
    return both >= level and (only >= level or busy_too <= NOTICEABLE)


@compiled
def open_states(rate_per_s: float, arrival_cv2: float, stops: float, overlap: float,
                prompt_tokens: float, states: Array, p: Prompts) -> tuple[Array, Array, float]:
    """:func:`prompt_columns`, the peakedness of what comes to decode in these states, and that of
    a full replica."""
    columns = prompt_columns(rate_per_s, rate_per_s * prompt_tokens,
                             max(arrival_cv2 - 1.0, 0.0) / 2.0, states)
    size, own = columns.shape[1], max(1.0 + (arrival_cv2 - 1.0) / p.ranks, 1.0)
    mean_s, square_s2 = states[6, :size], states[7, :size]
    swing = rate_per_s * stops * rate_per_s * stops * (square_s2 - mean_s * mean_s)
    peak = influx_peaks(own, swing, columns[1], overlap, p.ranks)
    return columns, peak, 1.0 + (own - 1.0) / 2.0


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
    answers, gaps : ndarray, shape (laws,), (3, laws)
        Mean tokens of the answers, of which the first are those that run, and their gaps; TPOT
        must hold for each.
    tpot_s, ttft_s : float
        Targets [s], infinite where there are none.
    """
    tokens_per_s, ahead = rate_per_s * prompt_tokens, max(arrival_cv2 - 1.0, 0.0) / 2.0
    columns, peak, full_peak = open_states(rate_per_s, arrival_cv2, stops, overlap, prompt_tokens,
                                           states, p)
    size, count = columns.shape[1], 0
    while count < len(caps) and caps[count] <= size:
        count += 1
    held = np.ones((3, count), dtype=np.bool_)
    if count == 0:
        return held
    token, load, before, most = states[0, :size], columns[1], columns[3], states[8, :size]
    mean_s, square_s2 = states[6, :size], states[7, :size]
    rows, empty = chain_columns(rate_per_s * answers[0], columns[0], peak, full_peak, load)
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
                                            load)
            written = np.empty(size)
            for i in range(size):
                written[i] = own_rows[2, i] * (i + 1.0) / columns[0, i]
            good = good_states(tpot_s * (1.0 + 1e-12), written, caps[least], LIKELY, added, token,
                               before, most, rate_per_s * stops / (1.0 + ahead), behind,
                               gaps[:, law:law + 1])
            share, kept = shares_by_cap(written, tail_columns(own_rows[0]), good), False
            for place in range(count):
                held[1, place] = held[1, place] and share[caps[place] - 1] >= tpot_level
                kept = kept or (held[0, place] and held[1, place])
            if not kept:
                return held
    if ttft_s < np.inf:
        running = running_by_cap(rows[2], empty, tail_columns(rows[0]))
        answer_s = rows[1] * (p.ranks / rate_per_s)
        waiting = waiting_columns(rows[2], empty, rows[0], answer_s)
        latency, found = np.empty(len(p.tokens)), False
        for place in range(count - 1, -1, -1):
            at = caps[place] - 1
            held[2, place] = False
            if held[0, place] and held[1, place] and not (found and not every):
                busy, wait_s, square = prefill_of(rate_per_s, arrival_cv2, running[at],
                                                  states[1, 0], tokens_per_s, p, latency)
                waits, given_s = waiting[0, at], waiting[1, at]
                found = starts_in_time(ttft_s, ttft_level, busy, wait_s, square, waits,
                                       waits * given_s, 2.0 * waits * given_s * given_s, latency,
                                       weights)
                held[2, place] = found
    return held


@entry
def ends_in_time(limit_s: float, level: float, tokens: float, token_level: float, step_s: Array,
                 times: Array, most_s: Array, written: Array, tail: float, busy: float,
                 mean_s: float, second_s2: float, places: float, given_s: float, latency: Array,
                 weights: Array, close: float) -> bool:
    """Whether whole requests keep a limit at a level under one batch limit.

    TTFT + TPOT g <= E holds when some TPOT t is not exceeded at the level of the tokens while
    TTFT <= E - t g holds at that of the request; each step halves where such a t may be.

    Parameters
    ----------
    tokens, token_level : float
        Gaps g between the tokens of the answer, and the share that must keep t.
    step_s, times, most_s : ndarray, shape (N,), (3, 1, N), (N,)
        [s] of a token, :func:`token_times` of one law, and the most that prompts add [s].
    written, tail : ndarray of shape (cap,), float
        Tokens that each state writes, and the weight of those that wait in the last.
    busy, mean_s, second_s2 : float
        Wait for the prefill [s], [s^2].
    places, given_s : float
        Share that waits for a place in the batch, and its mean wait [s].
    latency, weights : ndarray, shape (k,)
        Of a prompt [s], and the shares of the prompts.
    """
    wait_s, square = places * given_s, 2.0 * places * given_s * given_s
    if tokens <= 0.0:
        return starts_in_time(limit_s, level, busy, mean_s, second_s2, places, wait_s, square,
                              latency, weights)
    low, high, least = step_s[0], limit_s / tokens, LIKELY * written.max()
    while high - low > close * high:
        middle = (low + high) / 2.0
        total = held = 0.0
        for i in range(len(written)):
            if written[i] >= least:
                weight = written[i] * (1.0 + tail) if i == len(written) - 1 else written[i]
                total += weight
                held += weight * token_within(middle, step_s[i], times[0, 0, i], times[1, 0, i],
                                              times[2, 0, i], most_s[i])
        enough = held >= token_level * total
        few = starts_in_time(limit_s - middle * tokens, level, busy, mean_s, second_s2, places,
                             wait_s, square, latency, weights)
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
               answer_tokens: float, inverse: float) -> tuple[float, float]:
    """Mean TTFT, without a wait for a place, and mean TPOT [s] under a batch limit: what
    :meth:`planner.setups.continuous.Continuous.means` asks of the loops above; infinite where
    prompts fill the replica.

    Parameters
    ----------
    answer_tokens, inverse : float
        Mean tokens of the answers, and mean of 1 over their gaps.
    """
    columns, peak, full_peak = open_states(rate_per_s, arrival_cv2, stops, overlap, prompt_tokens,
                                           states, p)
    size = min(cap, columns.shape[1])
    if size == 0:
        return np.inf, np.inf
    rows, empty = chain_columns(rate_per_s * answer_tokens, columns[0], peak, full_peak, columns[1])
    added = added_columns(states[0, :size], rate_per_s * stops, columns[1], states[6, :size],
                          states[7, :size], columns[2], columns[3], max(arrival_cv2, 1.0), behind)
    written, time_s = np.empty(size), np.empty(size)
    for i in range(size):
        written[i] = rows[2, i] * (i + 1.0) / columns[0, i]
        time_s[i] = states[0, i] + min(added[0, i] * inverse + added[1, i], states[8, i])
    ratio, latency = rows[0, size - 1], np.empty(len(p.tokens))
    running, _ = running_at_cap(rows[2, :size], empty, ratio)
    _, ttft_s, _ = prefill_of(rate_per_s, arrival_cv2, running, states[1, 0],
                              rate_per_s * prompt_tokens, p, latency)
    for k in range(len(latency)):
        ttft_s += weights[k] * latency[k]
    return ttft_s, share_at_cap(written, ratio, time_s)


# -- two pools (planner.setups.disaggregated) -------------------------------------------------


@entry
def placed_laws(busy: float, mean_s: float, second_s2: float, given_s: float, given_s2: float
                ) -> Array:
    """:func:`wait_law` of a wait, and of the same with one after it whose mean and mean of squares
    are ``given_s`` [s] and ``given_s2`` [s^2], shape (3, 1, 2)."""
    laws = np.empty((3, 1, 2))
    laws[0, 0, 0], laws[1, 0, 0], laws[2, 0, 0] = wait_law(busy, mean_s, second_s2)
    laws[0, 0, 1], laws[1, 0, 1], laws[2, 0, 1] = wait_law(
        1.0, mean_s + given_s, second_s2 + given_s2 + 2.0 * mean_s * given_s)
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
    laws = placed_laws(busy, mean_s, second_s2, given_s, given_s2)
    total = late = 0.0
    for k in range(len(latency)):
        left = limit_s - latency[k]
        total += weights[k] * token_within(left, 0.0, laws[0, 0, 0], laws[1, 0, 0], laws[2, 0, 0],
                                           np.inf)
        if places > NOTICEABLE:
            late += weights[k] * token_within(left, 0.0, laws[0, 0, 1], laws[1, 0, 1],
                                              laws[2, 0, 1], np.inf)
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
                 full_peak: float, most_waiting: float, limits_s: Array, levels: Array
                 ) -> tuple[int, int]:
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

    Returns
    -------
    int, int
        The second is 0 for throughput and 1 + the place of a target.
    """
    size = len(token_s)
    rows, empty = chain_columns(load, token_s, np.full(size, peak), full_peak, np.zeros(size))
    waiting, tail = waiting_columns(rows[2], empty, rows[0], rows[1]), tail_columns(rows[0])
    good, failed = np.empty(len(caps), dtype=np.bool_), 0
    for place in range(len(caps)):
        at = caps[place] - 1
        good[place] = rows[0, at] < 1.0 and waiting[0, at] <= most_waiting
    written, value = rows[2] * np.arange(1.0, size + 1.0) / token_s, np.empty(size)
    for target in range(len(limits_s)):
        if limits_s[target] == np.inf:
            continue
        for i in range(size):
            value[i] = 1.0 if token_s[i] <= limits_s[target] * (1.0 + 1e-12) else 0.0
        share = shares_by_cap(written, tail, value)
        held = np.empty(len(caps), dtype=np.bool_)
        for place in range(len(caps)):
            held[place] = share[caps[place] - 1] >= levels[target]
        if held.sum() < good.sum() and not (good & held).any():
            failed = 1 + target
        good &= held
    for place in range(len(caps) - 1, -1, -1):
        if good[place]:
            return place, -1
    return -1, failed
