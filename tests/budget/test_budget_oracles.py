"""Published figures that a budget must reproduce; each with its source."""

from __future__ import annotations

from decimal import Decimal

import pytest
from budget_requests import made

from planner.budget.inputs import Server
from planner.budget.money import break_even_utilization, breakage, decimal, rental
from planner.budget.owning import servers_needed, yearly_cost

# NVIDIA developer blog, "LLM Inference Benchmarking: How Much Does Your LLM Inference Cost?"
# (developer.nvidia.com/blog/benchmarking-llm-inference-costs-for-smarter-scaling-and-deployment):
# 120,000 requests a day, a fifth of them in the busiest hour; instances of 2 GPUs; a server of 8
# for 320,000 USD over four years, 3,000 USD hosting and 4,500 USD licence a year.
NVIDIA_SERVER = Server("h100-sxm-80gb", Decimal(320_000), 8, Decimal(3000), Decimal(4500))


def test_nvidia_chain_by_the_formulas() -> None:
    assert servers_needed(3 * 2, 8) == 1
    assert yearly_cost(NVIDIA_SERVER, 48) == 87_500


def test_nvidia_chain_through_a_budget() -> None:
    chat = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "slo": {"ttft_ms": 1000},
            "workload": {"requests_per_day": 120_000, "peak_hour_share": 0.2,
                         "prompt_tokens": 200, "output_tokens": 200},
            "limits": {"target_utilization": 1.0},
            "measured": {"serve": {"requests_per_second": 2.4, "gpus": 2}}}
    document = made(chat, energy={"usd_per_kwh": 0}, owned={
        "servers": [{"gpu": "h100-sxm-80gb", "usd_per_server": 320_000, "gpus_per_server": 8,
                     "hosting_usd_per_year": 3000, "licence_usd_per_year": 4500}],
        "depreciation_months": 48}).document
    assert document["months"][0]["requests_per_second"] == pytest.approx(6.67, rel=1e-3)
    assert document["fleets"][0]["pools"][0]["replicas"] == [3] * 12
    assert document["buy_or_rent"][0]["servers"] == [1] * 12
    year = sum(document["buy_or_rent"][0]["buy_cost"])
    assert year == pytest.approx(87_500, abs=0.1)
    requests = document["totals"]["requests"]
    assert requests == pytest.approx(120_000 * 365, rel=1e-9)
    assert year / requests * 1000 == pytest.approx(2.00, rel=0.002)


def test_deepseek_day() -> None:
    """open-infra-index, day 6: 226.75 nodes of 8 H800 on average at 2 USD per GPU-hour."""
    assert rental(decimal(226.75) * 8, 24, Decimal(2)) == 87_072


def test_reservation_breakage() -> None:
    """calcsimpler.com, cloud GPU reservation breakage: 12,000 h reserved, 8,900 h used."""
    assert breakage(12_000, 8_900, Decimal("4.80"), 0.35) == 9672
    assert Decimal(8_900) / 12_000 == pytest.approx(Decimal("0.7417"), rel=Decimal("0.0005"))
    assert breakage(100, 120, Decimal(5)) == 0


def test_break_even_use() -> None:
    """cloudcostroom.pages.dev, reserved GPU capacity: committed over on demand."""
    assert break_even_utilization(Decimal(2), Decimal("3.20")) == Decimal("0.625")


def test_break_even_use_decides_a_budget() -> None:
    """The same prices: a GPU that works 8 of 12 months is committed, one that works 7 is not."""
    terms = {"terms": [{"term_months": 12, "usd_per_gpu_hour": {"h100-sxm-80gb": 2.0}}]}
    for months, committed in ((8, 1), (7, 0)):
        part = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "slo": {"ttft_ms": 1000},
                "workload": {"requests_per_second": 1, "prompt_tokens": 200,
                             "output_tokens": 200}, "ends_month": months,
                "measured": {"serve": {"requests_per_second": 2.0, "gpus": 1}},
                "pricing": {"usd_per_gpu_hour": {"h100-sxm-80gb": 3.2}}}
        line = made(part, commitments=terms).document["gpu_lines"][0]
        assert line["committed_gpus"] == [committed] * 12
