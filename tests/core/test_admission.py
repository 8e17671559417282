"""Two pools whose decode batches are small: the wait for a place counts at strict percentiles."""

from __future__ import annotations

from typing import Any

import pytest
from core_helpers import plan
from scipy.optimize import brentq
from scipy.special import gammainc

from planner.arrivals import burst_within
from planner.queueing import mg1_wait
from planner.setups.disaggregated import ADMISSION_SHARE, ADMISSION_SHARES, DecodePool
from planner.simulator import fleet_of, simulate, synthetic


def small_batches(ttft_ms: float, cv: float, output: int = 200, **limits: Any) -> Any:
    return plan(10.0, 1000, output, setups=["disaggregated"], advice=False,
                slo={"ttft_ms": ttft_ms, "tpot_ms": 40, "percentile": 99.9},
                limits={"max_sequences": 2, "max_gpus": 100_000, **limits},
                workload={"arrival_cv": cv})


@pytest.mark.parametrize(("ttft_ms", "output"), [(300, 200), (300, 50), (1000, 200), (300, 800)])
def test_bursts_take_no_fewer_gpus(ttft_ms: float, output: int) -> None:
    gpus = [small_batches(ttft_ms, cv, output).options[0]["gpus"] for cv in (0.5, 1.0, 2.0, 3.0)]
    assert gpus == sorted(gpus)


@pytest.mark.parametrize("cv", [1.0, 2.0])
def test_the_simulation_agrees(cv: float) -> None:
    made = small_batches(1000, cv)
    workload = made.request.workload
    seen = simulate(fleet_of(made.sized[0], workload.slos), synthetic(workload, 100_000, 0))
    assert seen.attainment()["ttft"] == pytest.approx(0.999, abs=0.0008)


LOOSE = [({"max_sequences": 1}, 10_000, 50, 1.0, 8), ({"max_sequences": 2}, 10_000, 50, 2.0, 5),
         ({"max_sequences": 1}, 3000, {"mean": 50, "p95": 150}, 1.0, 9),
         ({"max_sequences": 8}, 5000, {"mean": 400, "p95": 800}, 2.0, 8),
         ({"max_sequences": 2}, 4000, {"mean": 200, "p95": 600}, 3.0, 30)]
"""Batch limit, TTFT [ms], answers, CV of arrivals, and GPUs that are more than enough."""


def loose(limits: dict[str, Any], ttft_ms: float, output: Any, cv: float, rate: float = 10.0
          ) -> Any:
    return plan(rate, 1000, 200, setups=["disaggregated"], advice=False, slo={
        "ttft_ms": ttft_ms, "percentile": 90}, limits={"max_gpus": 5000, **limits},
        workload={"arrival_cv": cv, "output_tokens": output})


@pytest.mark.parametrize(("limits", "ttft_ms", "output", "cv", "most"), LOOSE)
def test_a_wait_for_a_place_that_the_target_allows_takes_no_gpus(
        limits: dict[str, Any], ttft_ms: float, output: Any, cv: float, most: int) -> None:
    made = loose(limits, ttft_ms, output, cv)
    assert made.options[0]["gpus"] <= most  # where 1 % may wait up to 440
    workload, [sized] = made.request.workload, made.sized
    seen = simulate(fleet_of(sized, workload.slos), synthetic(workload, 40_000, 0))
    assert seen.attainment()["ttft"] >= 0.9
    promised = sized.latencies.ttft_s
    assert seen.figure_s("ttft")["mean"] <= 1.1 * promised["mean"]
    assert seen.figure_s("ttft")["p90"] <= 1.15 * promised["p90"]


@pytest.mark.parametrize(("limits", "ttft_ms", "output", "cv", "most"), LOOSE)
def test_more_load_and_stricter_targets_take_no_fewer(
        limits: dict[str, Any], ttft_ms: float, output: Any, cv: float, most: int) -> None:
    by_rate = [loose(limits, ttft_ms, output, cv, rate).options[0]["gpus"]
               for rate in (1, 2, 3, 5, 8, 12, 20)]
    by_target = [loose(limits, t, output, cv).options[0]["gpus"]
                 for t in (30_000, ttft_ms, ttft_ms / 2, ttft_ms / 4)]
    assert by_rate == sorted(by_rate)
    assert by_target == sorted(by_target)


@pytest.mark.parametrize("output", [200, {"mean": 200, "p95": 600}])
def test_the_wait_before_one_place_is_that_of_a_single_server(output: Any) -> None:
    made = loose({"max_sequences": 1}, 10_000, output, 1.0)
    pool = made.sized[0].pools[1]
    assert isinstance(pool.source, DecodePool)
    answers = made.request.workload.output
    service_s = float(pool.source.token_s[0]) * answers.tokens
    rate = 10.0 / pool.replicas
    exact = mg1_wait(rate, service_s, answers.weights)
    place = pool.source.admission(pool.source.chain(rate, 1.0), 1).place
    for found, wanted in ((place.busy, exact.busy), (place.mean_s, exact.mean_s),
                          (place.second_s2, exact.second_s2)):
        assert float(found) == pytest.approx(float(wanted), rel=1e-6)


def test_hardly_any_wait_is_allowed_where_the_target_is_strict() -> None:
    [option] = small_batches(300, 1.0).options
    prefill, decode = option["pools"]
    assert prefill["admission_share"] is None
    assert decode["admission_share"] in ADMISSION_SHARES
    usual = plan(10.0, 1000, 200, setups=["disaggregated"]).options[0]["pools"][1]
    assert usual["admission_share"] == ADMISSION_SHARE


def test_a_refusal_names_the_wait_for_a_place() -> None:
    made = small_batches(300, 1.0, max_gpus=150, layouts=[{"tensor_parallel": 1}])
    assert made.options == []
    assert {m.reason for m in made.missed} == {"max_gpus"}
    assert "wait for a place in the decode batch" in made.missed[0].detail


@pytest.mark.parametrize(("percentile", "cv", "most"), [(99.9, 1.5, 2), (99, 1.2, 2), (99, 3.0, 5)])
def test_at_low_rates_a_burst_takes_longer_than_an_answer(
        percentile: float, cv: float, most: int) -> None:
    """Few requests need few places, however their gaps vary; more never need fewer."""
    gpus = [small_batches_at(rate, percentile, cv) for rate in (1e-3, 0.01, 0.1, 1.0)]
    assert gpus == sorted(gpus)
    assert gpus[0] <= most


def small_batches_at(rate: float, percentile: float, cv: float) -> int:
    made = plan(rate, 1000, 200, setups=["disaggregated"], advice=False,
                slo={"ttft_ms": 1000, "percentile": percentile},
                limits={"max_sequences": 2, "max_gpus": 5000}, workload={"arrival_cv": cv})
    found: int = made.options[0]["gpus"]
    return found


def test_of_a_burst_those_within_an_answer_count() -> None:
    assert burst_within(1.0, 5.0, 1.0) == 1.0
    shares = [burst_within(2.0, rate, 1.0) for rate in (1e-6, 1e-3, 0.1, 1.0, 1e3)]
    assert shares == sorted(shares)
    assert shares[0] < 0.03 < 0.9 < shares[-1] == 1.0
    # Half of the gaps are shorter: one comes on end on average, of the 1.5 of the burst.
    half = brentq(lambda s: gammainc(0.25, s / 4.0) - 0.5, 1e-9, 10.0)
    assert burst_within(2.0, 1.0, half) == pytest.approx(1.0 / 1.5)
