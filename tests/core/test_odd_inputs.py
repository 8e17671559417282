"""Odd requests: an answer or a PlannerError, never another exception, NaN, infinity or warning."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from core_helpers import catalog, estimate, numbers, plan_request
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from planner import planning
from planner.api.plan_checks import check_plan
from planner.api.plan_schema import parse_plan
from planner.errors import ContextTooLong, PlannerError
from planner.planning import PlanResult, make_plan
from planner.setups.base import figures
from planner.workload import REFERENCE_TOKENS

SIGNED = ("headroom", "kv_pool_gib")
SLOWEST_S = 8.0
R = plan_request
WIDE = [{"tokens": 1, "share": 1}, {"tokens": 60000, "share": 0.001}]

CASES: dict[str, dict[str, Any]] = {
    "output 1": R(output=1), "prompt 1": R(prompt=1), "both 1": R(prompt=1, output=1),
    "128k prompt": R(0.1, 128000, 300, slo={"ttft_ms": 60000, "tpot_ms": 100}),
    "rate 1e-4": R(1e-4), "rate 1e6": R(1e6), "rate 1e6, many": R(1e6, limits={
        "max_gpus": 1000000}),
    "hit 0.99": R(workload={"prefix_cache_hit_rate": 0.99}),
    "hit 0.99 of 1": R(prompt=1, workload={"prefix_cache_hit_rate": 0.99}),
    "cv 0": R(workload={"arrival_cv": 0}), "cv 20": R(workload={"arrival_cv": 20}),
    "cv 0, one length": R(30, 500, 500, workload={"arrival_cv": 0}, slo={"ttft_ms": 300}),
    "max_gpus 1": R(limits={"max_gpus": 1}), "max_gpus 1, busy": R(80, limits={"max_gpus": 1}),
    "utilization 1": R(limits={"target_utilization": 1}),
    "utilization 0.01": R(limits={"target_utilization": 0.01}),
    "layouts": R(limits={"layouts": [{"tensor_parallel": 3},
                                     {"tensor_parallel": 2, "pipeline_parallel": 3}]}),
    "layouts too wide": R(limits={"layouts": [{"tensor_parallel": 1000}]}),
    "dense with dp": R(limits={"layouts": [{"data_parallel": 4, "expert_parallel": 4}]}),
    "only ttft": R(slo={"ttft_ms": 800}), "only tpot": R(slo={"tpot_ms": 30}),
    "only itl": R(slo={"itl_ms": 60}), "only e2e": R(slo={"e2e_ms": 8000}),
    "p99.9": R(prompt={"mean": 1000, "p95": 3000}, output={"mean": 200, "p95": 700},
               slo={"ttft_ms": 1500, "tpot_ms": 40, "percentile": 99.9}),
    "spares 100": R(limits={"spare_replicas": 100}), "regions 3": R(limits={"regions": 3}),
    "acceptance 0": R(speculative={"draft_tokens": 4, "acceptance": 0}),
    "acceptance 1": R(speculative={"draft_tokens": 4, "acceptance": 1}),
    "64 drafts": R(speculative={"draft_tokens": 64, "acceptance": 1}),
    "draft model": R(model="llama-3.1-70b", gpus=["h200-sxm-141gb"], speculative={
        "draft_tokens": 4, "acceptance": 0.6, "draft_model": "llama-3.2-1b"}),
    "one sequence": R(limits={"max_sequences": 1}),
    "a million sequences": R(limits={"max_sequences": 1000000}),
    "budget 1": R(setups=["chunked"], limits={"token_budgets": [1]}),
    "budget 17": R(setups=["chunked"], limits={"token_budgets": [17]}),
    "budget 1e7": R(setups=["chunked"], limits={"token_budgets": [10000000]}),
    "no memory": R(limits={"memory_utilization": 1e-6}),
    "cap 1 W": R(power_cap_w=1), "cap 150 W": R(power_cap_w=150), "cap 350 W": R(power_cap_w=350),
    "tiny targets": R(slo={"ttft_ms": 1e-6, "tpot_ms": 1e-6}),
    "huge targets": R(slo={"ttft_ms": 1e9, "tpot_ms": 1e9}),
    "wide lists": R(prompt=WIDE, output=WIDE, slo={"ttft_ms": 30000, "tpot_ms": 80}),
    "napkin": R(fidelity="napkin", engine="ideal"), "ideal": R(engine="ideal"),
    "fp4 on A100": R(gpus=["a100-sxm-80gb"], precisions=[{"weights": "fp4", "kv": "fp4"}]),
    "fp8 on V100": R(gpus=["v100-sxm2-32gb"], slo={"tpot_ms": 100},
                     precisions=[{"weights": "fp8", "kv": "int4"}]),
    "fp32": R(precisions=[{"weights": "fp32", "kv": "fp32"}]),
    "three precisions": R(precisions=[{"weights": "fp8"}, {"weights": "int4", "kv": "fp8"}, {}]),
    "measured": R(10, measured={"prefill": {"requests_per_second": 5.6},
                                "decode": {"requests_per_second": 10}}),
    "measured serve": R(10, measured={"serve": {"requests_per_second": 3, "gpus": 2}}),
    "unpriced": R(gpus=["tpu-v5e"], slo={"tpot_ms": 100},
                  pricing={"commitment": "reserved_3y", "provider": "nobody"}),
}
MODELS = ("mixtral-8x7b-v0.1", "deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash",
          "qwen3-235b-a22b-fp8", "granite-4.0-h-small", "nemotron-h-56b-8k",
          "ai21-jamba-mini-1.5", "minimax-m1-80k", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b",
          "gpt-oss-120b", "llama-4-scout-17b-16e", "gemma-4-e4b", "falcon-7b", "opt-175b")
GPUS = ("t4", "v100-sxm2-32gb", "l4", "a10g", "gh200-96gb", "b300-sxm", "gb200-nvl72", "mi250x",
        "mi300x", "gaudi3", "arc-pro-b60", "tpu-v5e", "tpu-v7x", "trainium2", "inferentia2")


@pytest.fixture(autouse=True, scope="module")
def no_other_gpus():
    """The levers of the advice stay; the GPUs nobody asked about do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.advice.MOST_OTHER_GPUS", 1)
        yield


def answered(document: dict[str, Any], advice: bool = True) -> PlanResult | None:
    """The plan, checked for sound numbers; None when the planner refuses the request."""
    started = time.perf_counter()
    try:
        request = parse_plan(document)
        check_plan(request, catalog())
        with pytest.MonkeyPatch.context() as patch:
            if not advice:
                patch.setattr(planning, "advise", lambda *_: [])
            result = make_plan(request, catalog())
    except PlannerError:
        return None
    assert_sound(result.document())
    assert_sound(result.points())
    assert time.perf_counter() - started < SLOWEST_S
    assert result.options or result.missed
    return result


def assert_sound(document: dict[str, Any]) -> None:
    for path, value in numbers(document):
        assert math.isfinite(value), path
        assert value >= 0 or any(name in path for name in SIGNED), (path, value)


ADVISED = {"output 1", "cv 0", "max_gpus 1", "cap 150 W", "draft model", "napkin", "unpriced"}


@pytest.mark.parametrize("name", CASES)
def test_odd_request(name):
    answered(CASES[name], advice=name in ADVISED)


@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_model(model):
    result = answered(R(2, 500, 100, model=model, slo={"ttft_ms": 5000, "tpot_ms": 100}),
                      advice=False)
    assert result is not None
    assert {o["setup"] for o in result.options} >= {"colocated", "chunked", "disaggregated"}


@pytest.mark.parametrize("slug", GPUS)
def test_every_kind_of_gpu(slug):
    result = answered(R(gpus=[slug], slo={"ttft_ms": 6000, "tpot_ms": 200}), advice=False)
    assert result is not None
    assert result.options


@pytest.mark.parametrize("name", ["measured", "measured serve"])
def test_measured_pools_have_the_contract_fields(name):
    option = answered(CASES[name]).options[0]
    for pool in option["pools"]:
        assert {"role", "gpu", "tensor_parallel", "pipeline_parallel", "expert_parallel",
                "data_parallel", "replicas", "spare_replicas", "gpus", "batch_size",
                "token_budget", "capacity_rps", "utilization", "memory"} <= set(pool)
    assert {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "bound", "usd_per_million_input_tokens",
            "usd_per_million_output_tokens"} <= set(option)


def test_measured_fleet_respects_max_gpus():
    result = make_plan(parse_plan(R(100, limits={"max_gpus": 4}, measured={
        "serve": {"requests_per_second": 3, "gpus": 2}})), catalog())
    assert not result.options


def test_tensor_degree_must_divide_the_heads():
    """No engine starts three ranks of 32 heads."""
    result = answered(R(limits={"layouts": [{"tensor_parallel": 3}]}))
    assert result is None or not result.options


def test_tensor_group_of_a_given_layout_may_not_exceed_the_machine():
    """64 ranks on eight-GPU nodes: collectives cross the network, and the plan must say so."""
    assert answered(R(limits={"layouts": [{"tensor_parallel": 32}]})) is not None


def test_capacity_asks_for_both_gap_and_first_token():
    """Two loose targets together are no harder than each alone."""
    both = answered(R(slo={"ttft_ms": 2000, "itl_ms": 500}, setups=["colocated"]))
    assert both.options


@settings(max_examples=25, derandomize=True, deadline=None,
          phases=[Phase.explicit, Phase.generate])
@given(rate=st.floats(1e-3, 400), prompt=st.integers(1, 30000), output=st.integers(1, 4000),
       cv=st.floats(0, 10), hit=st.floats(0, 0.98), percentile=st.floats(50, 99.9),
       ttft=st.floats(50, 60000), tpot=st.floats(5, 300),
       setup=st.sampled_from(("static", "colocated", "chunked", "disaggregated")),
       slug=st.sampled_from(("h100-sxm-80gb", "l4", "mi300x")),
       metric=st.sampled_from(("", "itl_ms", "e2e_ms")))
def test_any_request(rate, prompt, output, cv, hit, percentile, ttft, tpot, setup, slug, metric):
    slo = {"ttft_ms": ttft, "tpot_ms": tpot, "percentile": percentile}
    if metric:
        slo[metric] = ttft + tpot * output if metric == "e2e_ms" else tpot + 200
    result = answered(R(rate, prompt, output, slo=slo, setups=[setup], gpus=[slug],
                        workload={"arrival_cv": cv, "prefix_cache_hit_rate": hit}), advice=False)
    for option in result.options if result else ():
        for target in result.request.workload.targets:
            value = option[f"{target.metric}_ms"].get(f"p{target.percentile:g}", 0.0)
            start = f"{target.metric.upper()} p{target.percentile:g} "
            told = any(w.startswith(start) for w in option["warnings"])
            assert told or value <= target.limit_s * 1e3 * (1 + 1e-3)
            assert not told or (target.metric == "tpot" and output < REFERENCE_TOKENS)


@pytest.mark.parametrize("batch", [
    {"decodes": 1}, {"decodes": 1000000, "context_tokens": 8000}, {"prefill_tokens": 8000},
    {"prefill_tokens": 0.5}, {"prefill_tokens": 1, "prefill_sequences": 1000000},
    {"prefill_tokens": 1, "cached_tokens": 8000}])
@pytest.mark.parametrize("fidelity", ["napkin", "operator"])
def test_odd_steps(batch, fidelity):
    """Steps that no server runs still have a finite time; what does not fit says so."""
    for model in ("llama-3.1-8b", "deepseek-v3", "nemotron-h-56b-8k"):
        assert_sound({k: v for k, v in estimate(
            model=model, gpu="h100-sxm-80gb", batch=batch, fidelity=fidelity, tensor_parallel=8,
            prompt_tokens=1, output_tokens=1, max_batched_tokens=1).items() if k != "memory"})


@pytest.mark.parametrize("batch", [{"decodes": 1, "context_tokens": 1e8},
                                   {"prefill_tokens": 1e8},
                                   {"prefill_tokens": 1, "cached_tokens": 1e8}])
def test_longer_than_the_model_was_built_for_is_refused(batch):
    with pytest.raises(ContextTooLong, match="131,072"):
        estimate(model="llama-3.1-8b", gpu="h100-sxm-80gb", batch=batch)


def test_a_batch_beyond_the_cache_says_so():
    assert estimate(model="llama-3.1-8b", gpu="h100-sxm-80gb",
                    batch={"decodes": 1000, "context_tokens": 100000})["cache_fits"] is False


def test_more_memory_never_needs_more_gpus_under_a_small_budget():
    """Rows that leave no room for a chunk must not outweigh the ones that do."""
    def gpus(**limits):
        body = R(10, 1500, 250, slo={"ttft_ms": 1000, "tpot_ms": 40}, setups=["chunked"],
                 limits={"token_budgets": [512], **limits})
        return make_plan(parse_plan(body), catalog()).options[0]["gpus"]
    assert gpus(memory_utilization=0.9) <= gpus(memory_utilization=0.6)
    assert gpus() <= gpus(max_sequences=128)


def test_longer_answers_never_need_fewer_gpus():
    counts = [make_plan(parse_plan(R(
        30, 2000, output, slo={"ttft_ms": 1000, "tpot_ms": 50}, setups=[setup],
        model="llama-3.1-70b")), catalog()).options[0]["gpus"]
              for setup in ("colocated", "chunked") for output in (1, 2, 8, 32, 128, 512)]
    assert counts[:6] == sorted(counts[:6])
    assert counts[6:] == sorted(counts[6:])


def test_percentiles_that_are_found_to_a_share_of_themselves_still_rise():
    found = figures(1.0, (50.0, 90.0, 99.0), [0.9, 1.0000001, 1.0])
    assert list(found.values()) == [1.0, 0.9, 1.0000001, 1.0000001]
