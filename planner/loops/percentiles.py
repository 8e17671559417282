"""Where mixtures of gammas reach shares."""

from __future__ import annotations

import math

import numpy as np

from planner.compiled import Array, compiled
from planner.loops.answers import token_law, token_times
from planner.loops.gamma import LIKELY, TINY
from planner.loops.gaps import MOST_LEAST
from planner.loops.luck import FIRST_PACE, share_of_luck
from planner.loops.stored import entry


@compiled
def log_gammas(shapes: Array) -> Array:
    """ln Gamma of every shape, shape (laws, N)."""
    found = np.empty(shapes.shape)
    for law in range(shapes.shape[0]):
        for i in range(shapes.shape[1]):
            found[law, i] = math.lgamma(shapes[law, i])
    return found


@compiled
def beyond(x: float, start_s: Array, times: Array, logs: Array, law: int, most_s: Array,
           weights: Array) -> tuple[float, float, float]:
    """ln P(X > x) and ln P(X >= x) of a mixture, a start and with some chance a gamma more; and by
    how much the first falls with x [1/s]. ``logs`` are the :func:`log_gammas` of its shapes."""
    share = here = density = 0.0
    for i in range(len(start_s)):
        at = i if times.shape[2] > 1 else 0
        within, own = token_law(x, start_s[i], times[0, law, at], times[1, law, at],
                                logs[law, at], times[2, law, at], most_s[i])
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
    logs = log_gammas(times[1])
    low, first, reached, fall = least_s, middle_s, 0.0, 0.0
    for place in range(len(shares)):
        law, goal = place if times.shape[1] > 1 else 0, math.log(1.0 - shares[place])
        if times.shape[1] > 1 or goal > reached:
            low, first = least_s, middle_s
        elif place > 0:
            first = found[place - 1]
            first = min(first + (reached - goal) / fall, 2.0 * first) if fall > 0.0 else 2.0 * first
        found[place], low, reached, fall = percentile(
            goal, low, first, start_s, times, logs, law, most_s, weights, close, most_steps)
    return found


@compiled
def percentile(goal: float, below: float, first: float, start_s: Array, times: Array, logs: Array,
               law: int, most_s: Array, weights: Array, close: float, most_steps: int
               ) -> tuple[float, float, float, float]:
    """Where ln P(X > x) falls to ``goal``, the last x found below it, and of the last x asked the
    logarithm and by how much it falls with x; the first is asked first."""
    above, x, after, fall = np.inf, first, 0.0, 0.0
    for step in range(most_steps):
        after, before, fall = beyond(x, start_s, times, logs, law, most_s, weights)
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


@compiled
def paced_percentiles(shares: Array, step_s: Array, times: Array, most_s: Array, weights: Array,
                      gaps: Array, close: float, most_steps: int) -> Array:
    """:func:`answer_percentiles` of answers with luck, from its likely states: over their paces
    too, a law after the other."""
    paces, size, laws = gaps.shape[0] - FIRST_PACE, len(step_s), gaps.shape[1]
    found, each = np.empty(len(shares)), len(shares) // laws
    start, most, weight = np.empty(paces * size), np.empty(paces * size), np.empty(paces * size)
    own = np.empty((3, 1, paces * size))
    for law in range(laws):
        middle_s = 0.0
        for j in range(paces):
            pace, part = gaps[FIRST_PACE + j, law], share_of_luck(paces, j)
            for i in range(size):
                at = j * size + i
                start[at], most[at] = pace * step_s[i], pace * most_s[i]
                weight[at] = part * weights[i]
                own[:, 0, at] = times[:, law * paces + j, i]
                middle_s += weight[at] * (start[at] + (1.0 - own[0, 0, at]) * own[1, 0, at]
                                          * own[2, 0, at])
        found[law * each:(law + 1) * each] = mixture_percentiles(
            shares[law * each:(law + 1) * each], middle_s, start, own, most, weight, close,
            most_steps)
    return found


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
    gaps : ndarray, shape (3 + k, laws)
        As for :func:`token_times`; of one law, or of one for each share.
    """
    paces = gaps.shape[0] - FIRST_PACE
    likely = np.flatnonzero(tokens >= LIKELY * tokens.max())
    first, end = likely[0], likely[-1] + 1
    start_s, most, weights = step_s[first:end], most_s[first:end], tokens[first:end]
    weights = weights / weights.sum()
    times = token_times(np.ascontiguousarray(columns[:, first:end]), start_s, before_s[first:end],
                        most, bursts_per_s, behind, gaps)
    if paces > 1:
        return paced_percentiles(shares, start_s, times, most, weights, gaps, close, most_steps)
    middle_s = 0.0
    for law in range(gaps.shape[1]):
        mean_s = 0.0
        for i in range(len(start_s)):
            added_s = (1.0 - times[0, law, i]) * times[1, law, i] * times[2, law, i]
            mean_s += weights[i] * (start_s[i] + added_s)
        middle_s = max(middle_s, mean_s)
    return mixture_percentiles(shares, middle_s, start_s, times, most, weights, close, most_steps)


@entry
def parted_percentiles(shares: Array, tokens: Array, step_s: Array, columns: Array,
                       before_s: Array, most_s: Array, least_s: Array, bursts_per_s: float,
                       behind: float, gaps: Array, close: float, most_steps: int) -> Array:
    """:func:`answer_percentiles` of answers in equal parts, a law of ``gaps`` each and no luck.

    What meets a prompt holds at least the shortest one, ``least_s`` [s], shape (cap,).
    """
    parts = gaps.shape[1]
    likely = np.flatnonzero(tokens >= LIKELY * tokens.max())
    first, end = likely[0], likely[-1] + 1
    size, total = end - first, tokens[first:end].sum()
    times = token_times(np.ascontiguousarray(columns[:, first:end]), step_s[first:end],
                        before_s[first:end], most_s[first:end], bursts_per_s, behind, gaps)
    start, most, weight = (np.empty(2 * parts * size), np.empty(2 * parts * size),
                           np.empty(2 * parts * size))
    own = np.ones((3, 1, 2 * parts * size))
    middle_s = 0.0
    for k in range(parts):
        for i in range(size):
            at, state = 2 * (k * size + i), first + i
            none, each_s = times[0, k, i], times[1, k, i] * times[2, k, i]
            swing = each_s * times[2, k, i]
            least = min(least_s[state] * gaps[1, k], MOST_LEAST * each_s)
            part = tokens[state] / total / parts
            start[at], most[at], weight[at] = step_s[state], most_s[state], none * part
            start[at + 1], most[at + 1] = step_s[state] + least, most_s[state] - least
            weight[at + 1] = (1.0 - none) * part
            own[0, 0, at + 1] = 0.0
            own[1, 0, at + 1] = (each_s - least) * (each_s - least) / swing
            own[2, 0, at + 1] = swing / (each_s - least)
            middle_s += part * (step_s[state] + (1.0 - none) * each_s)
    return mixture_percentiles(shares, middle_s, start, own, most, weight, close, most_steps)
