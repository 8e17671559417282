"""GPUs of a month are those of the planner for that month at the fleet's layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from budget_requests import IMPOSSIBLE, budget, catalog, made, workload

from planner.api.budget_schema import parse_budget
from planner.api.plan_schema import parse_plan
from planner.budget.capacity import PRECISION, Capacity, FixedLayout, highest_rate, samples
from planner.budget.mixing import MOST_POINTS, mix, mixed_lengths, strictest
from planner.errors import InvalidValue
from planner.planning import gather, make_plan
from planner.search import search
from planner.setups.base import Verdict
from planner.workload import Slo, constant, from_mean_p95

PAIR = {"setups": ["disaggregated"], "precisions": [{"weights": "bf16", "kv": "bf16"}]}


def planned_gpus(document: dict[str, Any], rate: float) -> int:
    """GPUs of a single plan at a rate; the layout is fixed in the request."""
    base = {k: v for k, v in document.items() if k not in (
        "growth_per_month", "name", "tokens_growth_per_month")}
    asked = {**base, "workload": {**document["workload"], "requests_per_second": rate},
             "advice": False}
    plan = make_plan(parse_plan(asked), catalog())
    return int(plan.options[0]["gpus"])


@pytest.mark.parametrize("changes", [
    {}, {"cv": 3.0}, {"cv": 0.3}, {"limits": {
        "layouts": [{"tensor_parallel": 2}], "token_budgets": [1024], "spare_replicas": 2}},
    {"setups": ["colocated"]}, {"setups": ["static"], "slo": {"e2e_ms": 30000}},
    {"setups": ["colocated"], "cv": 8.0, "slo": {"ttft_ms": 320, "tpot_ms": 50}}],
    ids=["chunked", "bursty", "smooth", "spares", "colocated", "static", "few hold nothing"])
def test_each_month_is_a_plan_of_its_own(changes: dict[str, Any]) -> None:
    document = workload(rate=17, growth_per_month=0.11, **changes)
    figures = budget(document, months=18).base.figures
    rates, gpus = figures.rates[0].tolist(), figures.gpus.tolist()
    assert gpus == [planned_gpus(document, r) for r in rates]
    assert gpus[-1] > gpus[0]


@pytest.mark.parametrize("changes", [{}, {"setups": ["colocated"]}, {"slo": {"ttft_ms": 400}},
                                     {"slo": {"tpot_ms": 30}}, {"slo": {"e2e_ms": 9000}}])
def test_a_capacity_is_what_halving_finds(changes: dict[str, Any]) -> None:
    """The highest rate of the sized lengths: from the range of sizing, by what targets leave."""
    asked = parse_plan({**workload(rate=17, **changes), "advice": False})
    found = search(asked, gather(asked, catalog())[0])
    sized = found.choices[0].sized(asked)
    check = sized.pools[0].source.check
    [capacity] = FixedLayout(sized, asked, gather(asked, catalog())[0]).capacity(
        asked.workload) or ()
    [each] = capacity.requests_per_s
    each /= asked.limits.target_utilization
    low, high = sized.pools[0].capacity_rps * 0.9, sized.pools[0].capacity_rps * 1.1
    while high - low > 1e-7 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if check(middle, 1.0).ok else (low, middle)
    assert check(each, 1.0).ok
    assert low * (1.0 - PRECISION) <= each <= high


def test_two_pools_are_a_plan_or_one_prefill_replica_more() -> None:
    document = workload(rate=17, growth_per_month=0.15, **PAIR)
    figures = budget(document).base.figures
    planned = [planned_gpus(document, r) for r in figures.rates[0].tolist()]
    over = [a - b for a, b in zip(figures.gpus.tolist(), planned, strict=True)]
    assert set(over) <= {0, 1}


def test_headroom_and_failover() -> None:
    document = workload(rate=60)
    plain, headroom, regions = (budget(document, **c).base.figures.gpus[0] for c in (
        {}, {"headroom": 0.5}, {"regions": ["eu", "us", "asia"]}))
    assert headroom == planned_gpus(document, 90)
    assert regions == 3 * planned_gpus(document, 30)
    assert plain <= headroom


def test_growing_lengths_are_sized_again() -> None:
    """At the lengths that were sized, and between them, as a plan of those lengths."""
    document = workload(rate=60, tokens_growth_per_month=0.03, growth_per_month=0.02,
                        prompt=1000, output=200)
    figures = budget(document, months=24).base.figures
    for m in (0, 7, 15, 23):
        factor = 1.03**m
        grown = {**document, "workload": {**document["workload"],
                                          "prompt_tokens": {"mean": 1000 * factor},
                                          "output_tokens": {"mean": 200 * factor}}}
        assert abs(figures.gpus[m] - planned_gpus(grown, figures.rates[0][m])) <= 1
    assert figures.gpus[23] > 1.5 * figures.gpus[0] * 1.02**23


# -- shared fleets ------------------------------------------------------------------------------


def test_the_same_workload_twice_is_one_of_twice_the_rate() -> None:
    shared = budget(workload(rate=20, growth_per_month=0.1), workload(
        rate=20, growth_per_month=0.1))
    alone = budget(workload(rate=40, growth_per_month=0.1))
    assert len(shared.model.fleets) == 1
    assert shared.base.figures.gpus.tolist() == alone.base.figures.gpus.tolist()


def test_a_mix_is_sized_as_one_workload() -> None:
    """Two length classes and a growing share of the second, against plans of the mixture."""
    short, long = (workload(rate=r, prompt=p, output=o, growth_per_month=g) for r, p, o, g in (
        (60, 500, 100, 0.0), (10, 2500, 300, 0.12)))
    figures = budget(short, long).base.figures
    for m in (0, 5, 11):
        one, two = (float(figures.rates[i][m]) for i in (0, 1))
        rows = {"prompt_tokens": [{"tokens": 500, "share": one}, {"tokens": 2500, "share": two}],
                "output_tokens": [{"tokens": 100, "share": one}, {"tokens": 300, "share": two}]}
        mixture = {**short, "workload": {**short["workload"], **rows}}
        assert figures.gpus[m] == planned_gpus(mixture, one + two)


def test_sharing_saves_spares() -> None:
    limits = {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048], "spare_replicas": 1}
    parts = [workload(rate=5, limits=limits, name=n) for n in "ab"]
    shared = budget(*parts).base.figures.gpus[0]
    apart = budget(*({**p, "fleet": p["name"]} for p in parts)).base.figures.gpus[0]
    assert shared < apart


def test_the_strictest_target_holds() -> None:
    a, b = (parse_plan(workload(slo=s)).workload for s in (
        {"ttft_ms": 500, "percentile": 90}, {"ttft_ms": 1000, "tpot_ms": 40, "percentile": 99}))
    assert strictest([a, b]) == (Slo("ttft", 0.5, 99.0), Slo("tpot", 0.04, 99.0))


def test_a_mixture_keeps_the_mean_and_stays_small() -> None:
    parts = [from_mean_p95(m, 3 * m) for m in (500, 1000, 4000)]
    found = mixed_lengths(parts, [0.5, 0.3, 0.2])
    assert found.mean == pytest.approx(0.5 * parts[0].mean + 0.3 * parts[1].mean
                                       + 0.2 * parts[2].mean)
    assert len(found.tokens) <= MOST_POINTS
    assert mixed_lengths([constant(10), constant(30)], [0.5, 0.5]).mean == 20


def test_bursts_mix_by_variance() -> None:
    smooth, bursty = (parse_plan(workload(cv=c)).workload for c in (1.0, 3.0))
    assert mix([smooth, bursty], [1.0, 1.0]).arrival_cv == pytest.approx(5**0.5)
    assert mix([smooth, bursty], [0.0, 1.0]).arrival_cv == 3.0


def test_a_fleet_shared_by_name_must_fit_together() -> None:
    parts = (workload(fleet="one"), workload(fleet="one", model="qwen3-32b"))
    with pytest.raises(InvalidValue) as caught:
        budget(*parts)
    assert caught.value.pointer == "/workloads/1/fleet"


# -- what cannot be served ----------------------------------------------------------------------


def test_a_workload_that_cannot_be_served_leaves_the_others() -> None:
    document = made(workload(name="fine"), IMPOSSIBLE).document
    assert [w["served"] for w in document["workloads"]] == [True, False]
    assert document["infeasible"][0]["pointer"] == "/workloads/1"
    assert document["infeasible"][0]["reason"]
    assert document["totals"]["peak_gpus"] == made(workload()).document["totals"]["peak_gpus"]


def test_nothing_can_be_served() -> None:
    document = made(IMPOSSIBLE).document
    assert document["totals"]["effective_cost"] == 0
    assert document["totals"]["peak_gpus"] == 0
    assert document["fleets"] == document["gpu_lines"] == []
    assert document["totals"]["cost_per_thousand_requests"] is None


def test_lengths_that_outgrow_the_model_end_there() -> None:
    document = made(workload(prompt=100_000, output=100, rate=0.1, slo={"ttft_ms": 60_000},
                             tokens_growth_per_month=0.05, limits={})).document
    line = document["workloads"][0]
    assert line["served"]
    assert line["ends_month"] == 6  # 100,100 x 1.05^5 = 127,756 <= 131,072 tokens
    assert "131072" in line["reason"]
    assert document["months"][6]["gpus"] == 0


def test_no_price_is_a_reason() -> None:
    document = made(workload(pricing={"commitment": "owned"})).document
    assert "no price" in document["infeasible"][0]["reason"]


def test_too_many_gpus_is_a_reason() -> None:
    limits = {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048], "max_gpus": 2}
    document = made(workload(rate=5000, limits=limits)).document
    assert "max_gpus" in document["infeasible"][0]["reason"]


def test_a_model_keeps_the_name_that_it_was_asked_by() -> None:
    alias = "meta-llama/Llama-3.1-8B-Instruct"
    document = made(workload(model=alias), workload(), workload(model=alias, fleet="x")).document
    assert [w["model"] for w in document["workloads"]] == [alias, "llama-3.1-8b", alias]
    assert [len(f["workloads"]) for f in document["fleets"]] == [2, 1], "names do not part fleets"
    assert document["fleets"][1]["model"] == alias


LIMITED = {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048], "max_gpus": 8}
SEASON = [1.0] * 8 + [2.0, 1.0, 3.0, 4.0]


@pytest.mark.parametrize("changes", [
    {"growth_per_month": 0.2}, {"seasonality": SEASON},
    {"seasonality": SEASON, "growth_per_month": 0.03, "cv": 2.0},
    {"launches": [{"month": 2, "multiplier": 1.5, "months": 11},
                  {"month": 6, "multiplier": 5, "months": 2}]},
    {"growth_per_month": 0.05, "tokens_growth_per_month": 0.05}])
def test_months_within_the_limit_are_served_and_the_others_named(changes: dict[str, Any]) -> None:
    document = workload(rate=40, **changes)
    free = made(document, months=14).document
    held = made({**document, "limits": LIMITED}, months=14).document
    line = held["workloads"][0]
    gpus = [m["gpus"] for m in free["months"]]
    over = [m + 1 for m, g in enumerate(gpus) if g > 8]
    assert 0 < len(over) < 14
    assert [u["month"] for u in line["unserved_months"]] == over
    assert [(u["gpus"], u["gpus_short"]) for u in line["unserved_months"]] == [
        (gpus[m - 1], gpus[m - 1] - 8) for m in over]
    assert [m["gpus"] for m in held["months"]] == [0 if g > 8 else g for g in gpus]
    rates = zip(line["requests_per_second"], free["workloads"][0]["requests_per_second"],
                strict=True)
    assert all(a == (0 if m in over else b) for m, (a, b) in enumerate(rates, 1))
    [told] = held["infeasible"]
    assert f"{max(gpus) - 8} more than max_gpus (8)" in told["reason"]


def test_months_of_two_pools_within_the_limit() -> None:
    document = workload(rate=40, growth_per_month=0.2, limits=LIMITED, setups=["disaggregated"])
    held = made(document, months=14).document
    line = held["workloads"][0]
    last = line["ends_month"]
    assert [u["month"] for u in line["unserved_months"]] == list(range(last + 1, 15))
    gpus = [m["gpus"] for m in held["months"]]
    assert max(gpus) <= 8
    assert all(gpus[:last])
    assert not any(gpus[last:])
    assert all(u["gpus"] == 8 + u["gpus_short"] for u in line["unserved_months"])


def test_a_month_that_none_fits_says_by_how_much() -> None:
    document = made(workload(rate=5000, limits={**LIMITED, "max_gpus": 2})).document
    need = made(workload(rate=5000)).document["totals"]["peak_gpus"]
    assert f"needs {need:,} GPUs, {need - 2:,} more than max_gpus (2)" in (
        document["infeasible"][0]["reason"])


def test_starting_after_the_end_of_lengths() -> None:
    request = parse_budget({"start": "2027-01", "workloads": [workload()]})
    late = replace(request.workloads[0], starts_month=13)
    from planner.budget.budget import make_budget

    result = make_budget(replace(request, workloads=(late,)), catalog())
    assert "after the budget" in (result.model.workloads[0].reason or "")


# -- capacity curves ----------------------------------------------------------------------------


def test_a_curve_rounds_up() -> None:
    curve = Capacity((1, 2, 4), (2.0, 5.0, 11.0))
    assert [curve.needed(r) for r in (0.0, 0.1, 2.0, 2.1, 5.0, 8.0, 8.1, 11.0, 14.0, 14.1)] == [
        0, 1, 1, 2, 2, 3, 4, 4, 5, 6]
    assert curve.holds(3) == 8.0


@pytest.mark.parametrize("truth", [0.013, 0.9, 1.0, 7.3, 99.99])
def test_the_highest_rate_is_found_from_any_guess(truth: float) -> None:
    def check(rate: float, cv2: float) -> Verdict:
        return Verdict(rate <= truth, 1, "" if rate <= truth else "tpot")

    for guess in (1e-6, 0.5, 1.0, 1e4):
        assert highest_rate(check, 1.0, 100.0, guess) == pytest.approx(truth, rel=3e-6)


def test_no_rate_at_all() -> None:
    assert highest_rate(lambda r, c: Verdict(False, 0, "ttft"), 1.0, 10.0, 1.0) == 0.0


def test_bent_curves_are_sampled() -> None:
    assert samples(1.0, 100) == (1,)
    assert samples(2.0, 10)[-1] >= 20


def test_a_workload_says_which_target_its_fleet_misses() -> None:
    """Answers of a few tokens: the pool is sized as if they had 96."""
    document = made(workload(output=10, cv=2.0, rate=60, setups=["colocated"], slo={
        "ttft_ms": 1000, "tpot_ms": 20, "percentile": 95})).document
    assert document["workloads"][0]["reason"].startswith("TPOT p95 is")
    assert made(workload()).document["workloads"][0]["reason"] is None
