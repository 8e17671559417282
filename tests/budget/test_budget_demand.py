"""Demand curves: growth, seasons, launches, starts and ends."""

from __future__ import annotations

import numpy as np
import pytest
from budget_requests import budget, workload
from hypothesis import given
from hypothesis import strategies as st

from planner.budget.demand import compound, rate_curve, seasons, spike_factor
from planner.budget.inputs import FLAT, Scenario, Spike

BASE = Scenario("base")


def test_growth_compounds_from_the_start() -> None:
    curve = rate_curve(10.0, 0.1, np.ones(5), 5, 3, 5, BASE)
    assert curve.tolist() == pytest.approx([0, 0, 10, 11, 12.1])


def test_it_ends() -> None:
    assert rate_curve(10.0, 0.0, np.ones(4), 4, 1, 2, BASE).tolist() == [10, 10, 0, 0]


def test_a_scenario_adds_growth_and_multiplies() -> None:
    curve = rate_curve(10.0, 0.05, np.ones(3), 3, 1, 3, Scenario("high", 0.05, 2.0))
    assert curve.tolist() == pytest.approx([20, 22, 24.2])


def test_seasons_follow_the_calendar() -> None:
    year = (*range(1, 13),)
    assert seasons(year, 4, 11).tolist() == [11, 12, 1, 2]


def test_spikes_add_up() -> None:
    found = spike_factor([Spike(2, 1.5, 2), Spike(3, 2.0, 1), Spike(4, 0.2, 1)], 5)
    assert found.tolist() == pytest.approx([1, 1.5, 2.5, 0.2, 1])
    assert spike_factor([Spike(1, 0.0), Spike(1, 0.0)], 1).tolist() == [0]


@given(st.floats(-0.5, 0.5), st.integers(1, 60))
def test_compound_never_leaves_the_ground(growth: float, starts: int) -> None:
    found = compound(growth, 60, starts)
    assert (found > 0).all()
    assert (found[:starts] == 1).all()


def test_months_of_a_budget() -> None:
    result = budget(
        workload(rate=20, growth_per_month=0.1, seasonality=[*FLAT[:11], 2.0],
                 launches=[{"month": 6, "multiplier": 3.0, "months": 2}]),
        workload(rate=5, starts_month=4, name="later"))
    rates = result.base.figures.rates
    assert rates[0].tolist() == pytest.approx(
        [20 * 1.1**m * (2 if m == 11 else 1) * (3 if m in (5, 6) else 1) for m in range(12)])
    assert rates[1].tolist() == [0] * 3 + [5] * 9


def test_no_growth_is_flat() -> None:
    result = budget(workload())
    assert len(set(result.base.figures.gpus.tolist())) == 1
    assert len(set(result.base.months.effective_cost)) == 1
