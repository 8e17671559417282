"""The same by halving, try by try, as a sheet of a workbook finds it."""

from __future__ import annotations

import math

import numpy as np

from planner.compiled import Array, compiled
from planner.loops.gamma import gamma_within
from planner.loops.stored import entry

UNSEEN = 1e-20
"""Weight of a state, relative to the heaviest, below which it changes no digit of a share."""


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
