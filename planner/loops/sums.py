"""Times and sums of independent ones, as a few points: rows of values and of their shares."""

from __future__ import annotations

import numpy as np

from planner.compiled import Array, compiled
from planner.loops.stored import entry

SUM_EDGES: Array = np.array([0.0, 0.2, 0.4, 0.6, 0.75, 0.87, 0.94, 0.98, 0.993, 0.998, 0.9995,
                             0.9999, 1.0])
"""Percentiles between which a time is a point, closer where its longest are."""
POINTS = len(SUM_EDGES) - 1


@compiled
def pointed(values: Array, shares: Array) -> Array:
    """A time with some values, which need not ascend, as :data:`POINTS` points, shape (2, k).

    The means between the percentiles at :data:`SUM_EDGES`; of no more values than points these,
    the shares of the other points being 0.
    """
    found = np.zeros((2, POINTS))
    if len(values) <= POINTS:
        found[0, :len(values)], found[1, :len(values)] = values, shares
        return found
    part, room = 0, SUM_EDGES[1]
    for i in np.argsort(values):
        left = shares[i]
        while left > 0.0:
            last = part == POINTS - 1
            take = left if last else min(left, room)
            found[0, part] += take * values[i]
            found[1, part] += take
            left -= take
            room -= take
            if not last and room <= 0.0:
                part += 1
                room = SUM_EDGES[part + 1] - SUM_EDGES[part]
    for part in range(POINTS):
        found[0, part] /= max(found[1, part], 1e-300)
    return found


@entry
def points_of(values: Array, shares: Array) -> Array:
    """Points of a time [s], shape (2, k): see :func:`pointed`."""
    return pointed(values, shares)


@entry
def points_of_sum(first: Array, second: Array) -> Array:
    """Points of the sum [s] of two independent times, each rows of values and shares."""
    size = 0
    values, shares = (np.empty(first.shape[1] * second.shape[1]),
                      np.empty(first.shape[1] * second.shape[1]))
    for i in range(first.shape[1]):
        for j in range(second.shape[1]):
            share = first[1, i] * second[1, j]
            if share > 0.0:
                values[size], shares[size] = first[0, i] + second[0, j], share
                size += 1
    return pointed(values[:size], shares[:size])
