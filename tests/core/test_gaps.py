"""The law of single gaps between tokens (docs/formulas.md 4.6), against its limits and
simulations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core_helpers import plan
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.arrivals import Influx
from planner.queueing import Chain
from planner.simulator import fleet_of, simulate, synthetic
from planner.stalls import Stalls
from planner.workload import Gaps

STEP_S, STOP_S = 0.01, 0.05
LEVELS = (50.0, 90.0, 95.0, 99.0)


def chain(rate: float, output: float, **more: Any) -> Chain:
    """One sequence at a time at most, steps of 10 ms, prompts that stop it for 50 ms."""
    stalls = replace(Stalls(rate, rate * STOP_S, STOP_S, STOP_S**2, 0.0, STOP_S, 1.0, 0.0,
                            least_s=STOP_S), **more)
    step_s = np.array([STEP_S])
    return Chain.of(rate, output, step_s / (1.0 - rate * STOP_S), Influx(), stalls.added(step_s),
                    Gaps.of_length(output))


def test_without_prompts_a_gap_is_a_step() -> None:
    mean, values = chain(1e-12, 100.0).gap_figures(1, LEVELS)
    assert [mean, *values] == pytest.approx([STEP_S] * 5)


@given(rate=st.floats(0.01, 10.0), output=st.floats(2.0, 1000.0))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_equal_answers_have_gaps_as_long_as_their_tpot_on_average(rate: float, output: float
                                                                  ) -> None:
    made = chain(rate, output)
    assert made.gap_figures(1, LEVELS)[0] == pytest.approx(made.mean_tpot(1))


@given(rate=st.floats(0.01, 10.0), output=st.floats(2.0, 1000.0), apart=st.booleans(),
       most=st.sampled_from([math.inf, 0.08, 0.02]), stages=st.sampled_from([1.0, 4.0]))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_the_share_within_a_percentile_is_its_level(
        rate: float, output: float, apart: bool, most: float, stages: float) -> None:
    made = chain(rate, min(output, 90.0), apart=apart, most_s=most, stages=stages)
    found = made.gap_figures(1, LEVELS)[1]
    assert found == pytest.approx(sorted(found), rel=1e-5)
    assert found[-1] <= (STEP_S + most) * (1.0 + 1e-5)
    for level, value in zip(LEVELS, found, strict=True):
        assert made.gaps_within(value)[0] >= level / 100.0 - 1e-9
        if value > STEP_S:
            assert made.gaps_within(value * 0.999)[0] <= level / 100.0 + 1e-9


def test_two_tokens_have_one_gap_that_holds_who_came_before() -> None:
    rate = 4.0
    found = float(chain(rate, 2.0).gaps_within(STEP_S)[0])
    assert found == pytest.approx(math.exp(-rate * (STOP_S + STEP_S)))


def test_a_stop_is_as_long_as_the_shortest_prompt() -> None:
    made, first = chain(1.0, 96.0), 1.0 / 95.0
    alone = (1.0 - first) * math.exp(-STEP_S) + first * math.exp(-STEP_S - STOP_S)
    for part in (0.0, 0.5, 0.9):
        assert made.gaps_within(STEP_S + part * STOP_S)[0] == pytest.approx(alone)
    assert made.gaps_within(STEP_S + 1.2 * STOP_S)[0] > alone


def test_a_pipeline_spreads_a_stop_over_its_stages() -> None:
    whole, parts = chain(1.0, 1e4), chain(1.0, 1e4, stages=5.0)
    assert parts.gaps_within(STEP_S)[0] < whole.gaps_within(STEP_S)[0]
    assert parts.gaps_within(STEP_S + 0.4 * STOP_S)[0] > whole.gaps_within(STEP_S + 0.4 * STOP_S)[0]


@pytest.mark.parametrize("setup", ["colocated", "chunked"])
@pytest.mark.parametrize(("prompt", "output", "cv", "itl_ms", "level"), [
    (8000, 2, 1.0, 200, 90), (2000, 8, 1.0, 60, 90), ({"mean": 1000, "p95": 3000}, 20, 2.0, 40, 95),
    (1500, 300, 1.0, 50, 99)])
def test_a_target_on_gaps_is_kept_in_a_simulation(
        setup: str, prompt: Any, output: int, cv: float, itl_ms: float, level: float) -> None:
    made = plan(10.0, 1000, output, setups=[setup], advice=False,
                slo={"ttft_ms": 8000, "itl_ms": itl_ms, "percentile": level},
                workload={"arrival_cv": cv, "prompt_tokens": prompt},
                limits={"max_gpus": 500, "spare_replicas": 0})
    workload, sized = made.request.workload, made.sized[0]
    assert sized.latencies.itl_s[f"p{level:g}"] <= itl_ms / 1000.0 * 1.0001
    seen = simulate(fleet_of(sized, workload.slos), synthetic(workload, 30_000, 0))
    assert seen.attainment()["itl"] >= level / 100.0 - 0.005


@pytest.mark.parametrize(("setup", "model", "workload", "itl_ms", "level"), [
    ("chunked", "qwen3-30b-a3b", {"requests_per_second": 53.07, "prompt_tokens": 300,
                                  "output_tokens": 5, "arrival_cv": 2,
                                  "prefix_cache_hit_rate": 0.65}, 57.1, 90),
    ("colocated", "llama-3.1-8b", {"requests_per_second": 69.13, "output_tokens": 5,
                                   "prompt_tokens": {"mean": 1000, "p95": 2771}, "arrival_cv": 3},
     12.9, 75)])
def test_a_layout_that_keeps_the_target_is_taken(
        setup: str, model: str, workload: dict[str, Any], itl_ms: float, level: float) -> None:
    made = plan(1.0, 1000, 200, model=model, gpus=["a100-sxm-80gb"], setups=[setup], advice=False,
                slo={"itl_ms": itl_ms, "percentile": level}, workload=workload)
    assert made.options[0]["warnings"] == []
    assert made.sized[0].latencies.itl_s[f"p{level}"] <= itl_ms / 1000.0


def test_a_higher_rate_takes_no_fewer_gpus() -> None:
    gpus = [plan(rate, 500, 2, model="qwen3-30b-a3b", setups=["chunked"], advice=False,
                 slo={"itl_ms": 48.2, "percentile": 90},
                 limits={"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048],
                         "max_gpus": 2000}).options[0]["gpus"] for rate in (80, 120, 190.2, 400)]
    assert gpus == sorted(gpus)
