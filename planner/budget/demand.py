"""Demand curves: the rate and the lengths of each workload in each month.

``rate(m) = rate (1 + g + d)^(m - s) season(m) (1 + spikes(m)) x`` for ``m >= s``, with the growth
``g`` per month, the scenario's added growth ``d`` and factor ``x``, and the start month ``s``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.budget.calendar import season
from planner.budget.inputs import Scenario, Spike

Array = NDArray[np.float64]


def active(months: int, starts: int, ends: int) -> NDArray[np.bool_]:
    """Months in which a workload runs, shape (months,)."""
    index = np.arange(1, months + 1)
    return (index >= starts) & (index <= ends)


def compound(per_month: float, months: int, starts: int) -> Array:
    """``(1 + g)^(m - s)`` from the start month, 1 before it; shape (months,)."""
    age = np.maximum(np.arange(1, months + 1) - starts, 0)
    return np.asarray((1.0 + per_month) ** age, dtype=float)


def spike_factor(spikes: Sequence[Spike], months: int) -> Array:
    """``1 + sum(multiplier - 1)`` over the spikes that run in a month, not below 0."""
    index = np.arange(1, months + 1)
    total = np.ones(months)
    for s in spikes:
        total += (s.multiplier - 1.0) * ((index >= s.month) & (index < s.month + s.months))
    return np.maximum(total, 0.0)


def seasons(seasonality: Sequence[float], months: int, start_month: int) -> Array:
    """Factor of each month of the budget from the twelve of a calendar year."""
    return np.array([seasonality[season(start_month, m)] for m in range(1, months + 1)])


def rate_curve(rate_per_s: float, growth: float, shape: Array, months: int, starts: int,
               ends: int, scenario: Scenario) -> Array:
    """Peak rate [1/s] of a workload in each month.

    Parameters
    ----------
    shape : ndarray, shape (months,)
        Seasons times spikes.
    """
    curve = rate_per_s * scenario.demand_multiplier * compound(
        growth + scenario.growth_added, months, starts) * shape
    return np.where(active(months, starts, ends), curve, 0.0)
