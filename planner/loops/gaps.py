"""Gaps between the tokens of an answer (:mod:`planner.stalls`)."""

from __future__ import annotations

import math

import numpy as np

from planner.compiled import Array, compiled
from planner.loops.answers import token_within
from planner.loops.gamma import LIKELY
from planner.loops.stored import entry

MOST_LEAST = 0.9
"""Part of the mean of what a gap holds that the least of it may be."""


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
