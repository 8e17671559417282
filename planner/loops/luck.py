"""The luck of answers with drafted tokens: how many steps they take (:mod:`planner.drafts`).

A law of answers has one pace, or as many as there are parts here: what its steps are over those of
its tokens at the workload's mean, part by part of the answers.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from planner.compiled import Array, compiled

FIRST_PACE = 3
"""Row of the paces of a law, after the moments of its gaps."""
LUCK_EDGES: Array = np.array([0.0, 0.1, 0.25, 0.4, 0.5, 0.65, 0.8, 0.87, 0.9, 0.93, 0.95, 0.98,
                               0.99, 1.0])
"""Between which the parts of the answers lie: the usual percentiles, each with a narrow part below
it, as a part counts with its mean."""
_NORMAL = NormalDist()
_HEIGHTS = np.array([0.0, *(_NORMAL.pdf(_NORMAL.inv_cdf(float(p))) for p in LUCK_EDGES[1:-1]), 0.0])
LUCK_SHARES: Array = np.diff(LUCK_EDGES)
"""Shares of the parts."""
LUCK_SWINGS: Array = -np.diff(_HEIGHTS) / LUCK_SHARES
"""Means of a standard normal law in each."""


@compiled
def share_of_luck(paces: int, place: int) -> float:
    """Share of the answers at one of the paces of a law."""
    return LUCK_SHARES[place] if paces > 1 else 1.0


@compiled
def mean_pace(gaps: Array, law: int) -> float:
    """Mean pace of a law; ``gaps`` as for :func:`planner.loops.answers.token_times`."""
    paces = gaps.shape[0] - FIRST_PACE
    mean = 0.0
    for j in range(paces):
        mean += share_of_luck(paces, j) * gaps[FIRST_PACE + j, law]
    return mean


def mean_of_luck(paces: Array) -> float:
    """The same of paces, shape (k,)."""
    return float(LUCK_SHARES @ paces) if len(paces) > 1 else float(paces[0])


def shares_of_luck(paces: int) -> Array:
    """Shares of the answers at the paces of a law, shape (paces,)."""
    return LUCK_SHARES if paces > 1 else np.ones(1)
