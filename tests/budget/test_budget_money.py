"""Commitments, owning, sums, charges, orders, questions, scenarios."""

from __future__ import annotations

import itertools
import json
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from budget_requests import budget, made, workload
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.api.budget_service import focus_table
from planner.budget import commit
from planner.budget.budget import result_of
from planner.budget.document import orders
from planner.budget.inputs import Server
from planner.budget.model import model_from_json, to_json
from planner.budget.owning import break_even_month, own

TERMS = {"terms": [{"term_months": 12, "discount": 0.3}]}
SERVERS = [{"gpu": "h100-sxm-80gb", "usd_per_server": 250_000, "gpus_per_server": 8,
            "hosting_usd_per_year": 10_000}]
DEMANDS = st.lists(st.integers(0, 6), min_size=2, max_size=8)
PRICES = st.floats(0.1, 0.99)


@given(DEMANDS, PRICES, st.floats(0.0, 0.05))
def test_no_base_is_cheaper(demand: list[int], price: float, fall: float) -> None:
    """Against every whole base."""
    gpus, paid = np.array(demand, float), (1 - fall) ** np.arange(len(demand))
    cost = {q: commit.curve_cost(gpus, paid, np.full(len(demand), float(q)),
                                 np.full(len(demand), price)) for q in range(8)}
    base = commit.base_of(gpus, paid, price)
    assert cost[int(base)] <= min(cost.values()) + 1e-6


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=5), PRICES)
def test_staggered_contracts_are_the_optimum(demand: list[int], price: float) -> None:
    """Against every whole schedule of contracts of two months."""
    gpus, months = np.array(demand, float), len(demand)
    paid, offered = np.ones(months), np.full(months, price)
    found = commit.staggered_cost(gpus, paid, [(2, offered)])
    best = float("inf")
    for starts in itertools.product(range(4), repeat=months):
        base = np.array([sum(starts[max(0, m - 1):m + 1]) for m in range(months)], float)
        best = min(best, commit.curve_cost(gpus, paid, base, offered))
    assert found == pytest.approx(best, abs=1e-6)
    renewed = commit.base_curve(gpus, paid, offered, 2)
    assert found <= commit.curve_cost(gpus, paid, renewed, offered) + 1e-6


def test_without_offers_all_is_on_demand() -> None:
    assert commit.staggered_cost(np.array([1.0, 2.0]), np.array([3.0, 3.0]), []) == 9.0


def test_owning_keeps_and_writes_off() -> None:
    found = own([3, 9, 4, 4], Server("g", Decimal(120), 8, Decimal(12)), 8, [Decimal(1)] * 4, 2,
                0.5)
    assert found.servers == (1, 2, 2, 2)
    assert found.capex == (120, 120, 0, 0)
    assert found.running == (2, 3, 3, 3)
    assert found.depreciation == (30, 60, 30, 0)
    assert found.book_value == (90, 150, 120, 120)


def test_break_even() -> None:
    rent, buy = [Decimal(10)] * 4, [Decimal(25), Decimal(1), Decimal(1), Decimal(1)]
    assert break_even_month(rent, buy) == 3
    assert break_even_month(rent, buy, [Decimal(20)] * 4) == 1
    assert break_even_month([Decimal(1)] * 4, buy) is None
    assert break_even_month([Decimal(0)], [Decimal(0)]) is None


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return made(workload(rate=40, growth_per_month=0.06, name="one"), workload(
        rate=40, model="qwen3-32b", name="two", limits={"layouts": [{"tensor_parallel": 2}]}),
        months=24, commitments=TERMS, regions=["eu", "us"], lead_time_days=100,
        owned={"servers": SERVERS, "existing_gpus": {"h100-sxm-80gb": 4}},
        prices={"change_per_month": -0.01, "negotiated_discount": 0.05},
        what_if=[{"name": "cheaper", "from_month": 13, "price_multiplier": 0.5},
                 {"name": "h200", "from_month": 7, "gpu": "h200-sxm-141gb"},
                 {"name": "tiny", "gpu": "l4"}],
        actuals=[{"month": 2, "gpus": 10, "cost": 1000}]).document


def test_amounts_tie_out(document: dict[str, Any]) -> None:
    totals, months = document["totals"], document["months"]
    for name in ("list_cost", "contracted_cost", "effective_cost", "on_demand_cost",
                 "committed_cost", "owned_cost", "breakage_cost", "energy_kwh"):
        assert totals[name] == pytest.approx(sum(m[name] for m in months), abs=1e-6)
    for m in months:
        assert m["effective_cost"] == pytest.approx(
            m["on_demand_cost"] + m["committed_cost"] + m["owned_cost"], abs=1e-6)
        assert m["gpus"] == m["owned_gpus"] + m["burst_gpus"] + m["committed_gpus"] - m[
            "unused_gpus"]
        assert m["contracted_cost"] == pytest.approx(m["list_cost"] * 0.95, abs=0.02)
    assert totals["effective_cost"] <= totals["contracted_cost"] + totals["owned_cost"]


def test_committing_never_costs_more_than_not(document: dict[str, Any]) -> None:
    for line in document["gpu_lines"]:
        assert line["staggered_cost"] <= line["rental_cost"] + 0.01
    free = made(workload(rate=40, growth_per_month=0.06), commitments={"terms": []}).document
    tied = made(workload(rate=40, growth_per_month=0.06), commitments=TERMS).document
    assert tied["totals"]["effective_cost"] < free["totals"]["effective_cost"]
    assert free["totals"]["savings"] == 0


def test_orders_are_early_enough(document: dict[str, Any]) -> None:
    first = next(o for o in document["orders"] if o["month"] == 1)
    assert (first["needed_from"], first["order_by"], first["before_start"]) == (
        "2027-01-01", "2026-09-23", True)
    assert {o["kind"] for o in document["orders"]} == {"capacity", "commitment", "servers"}


def test_orders_before_the_day_of_the_budget_are_overdue() -> None:
    made_ = budget(workload(), lead_time_days=100)
    for day, late in ((date(2026, 9, 23), False), (date(2026, 9, 24), True)):
        first = orders(made_, day)[0]
        assert (first["order_by"], first["overdue"]) == ("2026-09-23", late)


def test_questions(document: dict[str, Any]) -> None:
    cheaper, h200, tiny = document["what_if"]
    assert cheaper["difference"] < 0
    assert cheaper["effective_cost"][:12] == [
        m["effective_cost"] for m in document["months"][:12]]
    assert h200["total"] is not None
    assert h200["gpus"][:6] == [m["gpus"] for m in document["months"][:6]]
    assert tiny["total"] is None
    assert "cannot serve" in tiny["reason"]


def test_plan_against_actual(document: dict[str, Any]) -> None:
    first, second = document["months"][:2]
    assert first["actual_gpus"] is first["variance_cost"] is None
    assert second["variance_gpus"] == 10 - second["gpus"]
    assert second["variance_cost"] == pytest.approx(1000 - second["effective_cost"])


def test_scenarios_are_in_order(document: dict[str, Any]) -> None:
    low, base, high = (s["totals"] for s in document["scenarios"])
    assert low["peak_gpus"] <= base["peak_gpus"] <= high["peak_gpus"]
    assert low["effective_cost"] < base["effective_cost"] < high["effective_cost"]
    assert base == document["totals"]


def test_energy_and_carbon(document: dict[str, Any]) -> None:
    """GPUs x 700 W x 730 h x 1.3, and 0.445 kg/kWh."""
    m = document["months"][0]
    assert m["energy_kwh"] == pytest.approx(m["gpus"] * 0.7 * 730 * 1.3, abs=0.02)
    assert m["kg_co2e"] == pytest.approx(m["energy_kwh"] * 0.445, abs=0.02)


def test_another_currency() -> None:
    dollars, euros = made(workload()).document, made(
        workload(), currency="EUR", units_per_usd=0.5).document
    assert euros["billing_currency"] == "EUR"
    assert euros["totals"]["effective_cost"] == pytest.approx(
        dollars["totals"]["effective_cost"] / 2)


def test_a_model_survives_storage() -> None:
    result = budget(workload(rate=40, growth_per_month=0.06, tokens_growth_per_month=0.01),
                    commitments=TERMS, owned={"servers": SERVERS})
    again = model_from_json(json.loads(json.dumps(to_json(result.model))))
    assert again == result.model
    assert result_of(again).base.months == result.base.months


def test_charges_add_up_to_the_budget() -> None:
    stored = made(workload(rate=40, growth_per_month=0.06), commitments=TERMS,
                  regions=["eu", "us", "asia"], owned={
                      "servers": SERVERS, "existing_gpus": {"h100-sxm-80gb": 2}})
    table, totals = focus_table(stored), stored.document["totals"]
    rows = [dict(zip(table["columns"], r, strict=True)) for r in table["rows"]]
    for column, name in (("EffectiveCost", "effective_cost"), ("BilledCost", "billed_cost"),
                         ("x_EnergyKwh", "energy_kwh")):
        assert float(sum(r[column] or 0 for r in rows)) == pytest.approx(totals[name], abs=0.1)
    owned = sum(r["ListCost"] for r in rows if r["PricingCategory"] == "Other")
    assert float(sum(r["ListCost"] for r in rows) - owned) == pytest.approx(
        totals["list_cost"], abs=0.1)
    assert {r["RegionId"] for r in rows} == {"eu", "us", "asia"}


FOCUS_1_2 = {  # FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec, specification/columns
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "CommitmentDiscountCategory": {"Spend", "Usage", None},
    "CommitmentDiscountStatus": {"Used", "Unused", None},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    "ServiceCategory": {"AI and Machine Learning", "Compute"},
}


def test_charges_use_the_words_of_focus() -> None:
    table = focus_table(made(workload(rate=40, growth_per_month=0.2), commitments=TERMS))
    rows = [dict(zip(table["columns"], r, strict=True)) for r in table["rows"]]
    for column, allowed in FOCUS_1_2.items():
        assert {r[column] for r in rows} <= allowed
    for r in rows:
        committed = r["PricingCategory"] == "Committed"
        assert (r["CommitmentDiscountId"] is not None) == committed
        assert (r["CommitmentDiscountStatus"] is not None) == committed
        assert (r["ConsumedQuantity"] is None) == (r["CommitmentDiscountStatus"] == "Unused")
