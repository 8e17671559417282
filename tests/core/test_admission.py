"""Two pools whose decode batches are small: the wait for a place counts at strict percentiles."""

from __future__ import annotations

from typing import Any

import pytest
from core_helpers import plan

from planner.setups.disaggregated import ADMISSION_SHARE, TIGHTER_SHARES
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


def test_hardly_any_wait_is_allowed_where_the_target_is_strict() -> None:
    [option] = small_batches(300, 1.0).options
    prefill, decode = option["pools"]
    assert prefill["admission_share"] is None
    assert decode["admission_share"] in TIGHTER_SHARES
    usual = plan(10.0, 1000, 200, setups=["disaggregated"]).options[0]["pools"][1]
    assert usual["admission_share"] == ADMISSION_SHARE


def test_a_refusal_names_the_wait_for_a_place() -> None:
    made = small_batches(300, 1.0, max_gpus=150, layouts=[{"tensor_parallel": 1}])
    assert made.options == []
    assert {m.reason for m in made.missed} == {"max_gpus"}
    assert "wait for a place in the decode batch" in made.missed[0].detail
