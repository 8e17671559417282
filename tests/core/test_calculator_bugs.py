"""Faults that other calculators had, with the right values (sources in the golden table)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_helpers import (
    GIB,
    catalog,
    close,
    deployment,
    estimate,
    golden_by_id,
    gpu,
    napkin,
    plan,
    step_ms,
)

from planner.api.plan_schema import parse_plan
from planner.architectures import from_config
from planner.fleet import nodes_for
from planner.kv_cache import sequence_cache_bytes
from planner.memory import memory_budget, token_bytes_per_gpu
from planner.planning import make_plan
from planner.requests import Limits
from planner.roofline import StepBatch, StepModel
from planner.setups.base import build_table
from planner.setups.disaggregated import PrefillPool
from planner.workload import Slo, Workload, constant


def check(name: str, value: float) -> None:
    row = golden_by_id("calculator_bugs.csv")[name]
    assert close(value, row), f"{name} {row['quantity']}: {value} against {row['value']}"


def least(name: str, value: float) -> None:
    """The value is a floor that no estimate may undercut."""
    assert value >= float(golden_by_id("calculator_bugs.csv")[name]["value"]) * 0.999


# -- cache ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "model"), [
    ("B001", "qwen3-4b"), ("B003", "llama-3-8b"),
    ("B064", "mistral-nemo-2407"), ("B083", "qwen3-0.6b"),
    ("B086", "llama-3_3-nemotron-super-49b-v1"), ("B100", "llama-3-70b")])
def test_kv_bytes_per_token(row, model):
    check(row, catalog().llm(model).kv_bytes_per_token())


def test_head_dim_of_its_own_default():
    """Mistral NeMo's config gives head_dim 128 where hidden / heads is 160; without it, 160."""
    config = {"architectures": ["MistralForCausalLM"], "model_type": "mistral",
              "hidden_size": 5120, "intermediate_size": 14336, "num_hidden_layers": 40,
              "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072,
              "head_dim": 128, "max_position_embeddings": 131072, "hidden_act": "silu",
              "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    check("B064", from_config(config, slug="nemo").kv_bytes_per_token())


def test_sliding_layers_stop_at_their_window():
    """Gemma 4 26B-A4B at 128k: 25 of 30 layers keep 1,024 tokens; the source adds a batch."""
    check("B010", float(sequence_cache_bytes(catalog().llm("gemma-4-26b-a4b"), 131072, "bf16"))
          / 1e9)


def test_chunked_attention():
    """Llama 4 Scout at 32k, spread over the context."""
    llm = catalog().llm("llama-4-scout-17b-16e")
    check("B085", float(sequence_cache_bytes(llm, 32768, "bf16")) / 32768)


@pytest.mark.parametrize("weights", ["int4", "fp4", "int8"])
def test_weight_precision_leaves_the_cache_alone(weights):
    """B049 and B091: an int4 checkpoint keeps a 16-bit cache."""
    answer = estimate(model="llama-3-70b", gpu="h100-sxm-80gb", weights=weights,
                      batch={"decodes": 1})
    assert answer["kv"] == "bf16"
    check("B091", answer["memory"]["kv_bytes_per_token"])


def test_mla_latent_is_whole_on_every_rank():
    check("B061", token_bytes_per_gpu(deployment("deepseek-v3", kv="fp8", tensor=8)))


def test_mla_latent_is_divided_by_data_parallel_attention():
    """Each of eight ranks holds other sequences, so the replica holds eight times the tokens."""
    one = memory_budget(deployment("deepseek-v3", "h200-sxm-141gb", tensor=8))
    many = memory_budget(deployment("deepseek-v3", "h200-sxm-141gb", data=8, expert=8))
    assert many.kv_tokens > 5 * one.kv_tokens


def test_heads_are_replicated_past_their_number():
    """Llama 3.1 70B on 16 ranks of 8 KV heads: 358 sequences of 4,500 tokens."""
    chip = gpu(memory_bytes=80 * GIB)
    d = deployment("llama-3.1-70b", chip, "bf16", engine="ideal", tensor=16)
    assert token_bytes_per_gpu(d) == token_bytes_per_gpu(
        deployment("llama-3.1-70b", weights="bf16", tensor=8))
    memory = memory_budget(d, utilization=0.9)
    sequences = memory.kv_pool_bytes / (4500 * memory.bytes_per_token)
    assert 300 < sequences < 400


def test_concurrency_of_one_gpu():
    """Llama 3.1 8B on one H100: about 194 sequences of 2,300 tokens fit, not 10."""
    memory = memory_budget(deployment("llama-3.1-8b"), utilization=0.9)
    row = golden_by_id("calculator_bugs.csv")["B075"]
    assert memory.kv_tokens / 2300 == pytest.approx(float(row["value"]), rel=0.08)


# -- parameters and weights -------------------------------------------------------------------


@pytest.mark.parametrize(("row", "model"), [
    ("B033", "mixtral-8x7b-v0.1"), ("B038", "gemma-2-9b"), ("B068", "llama-3.1-8b")])
def test_parameters(row, model):
    check(row, catalog().llm(model).total_params / 1e9)


@pytest.mark.parametrize(("row", "model", "unit"), [
    ("B028", "llama-3.1-70b", GIB), ("B056", "llama-3.1-8b", 1e9),
    ("B057", "mixtral-8x7b-v0.1", 1e9)])
def test_weights(row, model, unit):
    llm = catalog().llm(model)
    check(row, llm.weight_bytes(llm.native_precision) / unit)


def test_fp8_checkpoint_is_read_as_fp8():
    """DeepSeek-V3: 641 GiB on disk with its prediction layer, 625 without; not 1,250."""
    llm = catalog().llm("deepseek-v3")
    layer = llm.extra_params.get("multi_token_prediction", 0)
    check("B095", (llm.weight_bytes("fp8") + layer) / GIB)
    assert llm.native_precision == "fp8"


def test_experts_are_divided_over_all_ranks():
    d = deployment("deepseek-v3", "h200-sxm-141gb", tensor=8)
    check("B060", memory_budget(d).weights_bytes / GIB)


def test_lookup_is_no_gemm_and_a_tied_head_is_one():
    """B040."""
    llm = catalog().llm("llama-3.2-1b")
    assert llm.tied_embeddings
    step = StepModel.of(deployment(llm, engine="ideal")).step(StepBatch(decodes=1.0, context=0.0))
    assert float(step.flops) == pytest.approx(2 * llm.linear_params, rel=1e-5)
    assert llm.linear_params == llm.total_params


# -- hardware ---------------------------------------------------------------------------------


def test_dense_rates():
    peaks = {slug: gpu(slug).peak_flop_per_s["bf16"] / 1e12 for slug in (
        "h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb", "a100-sxm-80gb", "mi300x",
        "gb200-nvl72")}
    check("B041", peaks["h100-sxm-80gb"])
    assert peaks["h100-pcie-80gb"] == pytest.approx(756, rel=0.001)
    assert peaks["h100-nvl-94gb"] == pytest.approx(835, rel=0.001)
    check("B043", peaks["a100-sxm-80gb"])
    check("B046", peaks["mi300x"])
    assert peaks["gb200-nvl72"] == pytest.approx(2500)
    assert gpu("h100-nvl-94gb").bandwidth_bytes_per_s == pytest.approx(3.9e12, rel=0.02)


def test_no_two_gpus_share_a_name():
    names = [g.name for g in catalog().gpus.values()]
    assert len(names) == len(set(names))


def test_network_between_nodes():
    bandwidth, kind = gpu().group_link(16)
    check("B047", bandwidth / 1e9)
    assert kind == "network"


def test_twelve_ranks_take_two_nodes():
    check("B048", nodes_for([12], 8))


# -- step times -------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["ideal", "vllm"])
@pytest.mark.parametrize(("row", "model", "slug", "tensor", "batch"), [
    ("B059", "mixtral-8x7b-v0.1", "a100-sxm-80gb", 2, {"decodes": 32, "context": 2150}),
    ("B062", "llama-3.1-8b", "h100-sxm-80gb", 1, {"decodes": 1, "context": 2150}),
    ("B070", "llama-3.1-8b", "h100-sxm-80gb", 1, {"decodes": 1, "context": 2150})])
def test_no_decode_beats_the_bandwidth(row, model, slug, tensor, batch, engine):
    chip = gpu(slug, bandwidth_bytes_per_s=2.039e12) if "a100" in slug else gpu(slug)
    d = deployment(model, chip, "bf16", engine=engine, tensor=tensor)
    least(row, step_ms(d, **batch))


def test_decode_of_7b_on_a100():
    """6.87 ms at 100 % of the bandwidth (7e9 parameters), in truth 60-85 % of it."""
    floor = float(golden_by_id("calculator_bugs.csv")["B045"]["value"])
    assert floor / 0.9 < step_ms(deployment("llama-2-7b", "a100-sxm-80gb", "fp16"),
                                 decodes=1, context=500) < floor / 0.6


def test_ideal_step_reads_weights_and_cache_once():
    """B055, B066, B071: 9.86 ms for 64 sequences of 2,150 tokens, nothing twice, nothing more."""
    d = deployment("llama-3.1-8b", weights="bf16", engine="ideal")
    check("B055", step_ms(d, decodes=64, context=2150))


def test_mixture_reads_every_expert_at_a_batch_of_32():
    answer = napkin(model="mixtral-8x7b-v0.1", batch={"decodes": 32, "context_tokens": 0},
                    tensor_parallel=2)
    assert answer["bytes"] == pytest.approx(2 * catalog().llm("mixtral-8x7b-v0.1").total_params,
                                            rel=0.001)


def test_mixture_reads_only_its_active_experts_alone():
    """B030: decode of one sequence follows the active parameters."""
    llm = catalog().llm("qwen3-30b-a3b")
    answer = napkin(model="qwen3-30b-a3b", batch={"decodes": 1})
    assert answer["bytes"] == pytest.approx(2 * llm.active_params, rel=0.001)


def test_prefill_is_ideal_at_most():
    """B098: 2,000 tokens of 8B on H100 take 0.03 s, not 1.62 s."""
    check("B098", napkin(batch={"prefill_tokens": 2000})["step_ms"] * 8.0 / 8.6 / 1e3)


def test_no_tensor_parallel_tax_on_one_gpu():
    """B092."""
    step = StepModel.of(deployment("llama-3-8b")).step(StepBatch(decodes=8.0, context=1000.0))
    assert sum(float(t.seconds) for t in step.terms if t.kind == "communication") == 0.0


# -- plans ------------------------------------------------------------------------------------


def test_prefill_pool_is_no_faster_than_the_gpu():
    """B089: about 34 requests/s of 2,000 tokens at 100 % of the peak, less in truth."""
    workload = Workload(1.0, constant(2000), constant(300), slos=(Slo("ttft", 10.0),))
    for engine, most in (("ideal", 34.5), ("vllm", 30.0)):
        table = build_table(deployment("llama-3.1-8b", weights="bf16", engine=engine), workload,
                            Limits())
        for batch in (1, 2, 4, 8):
            pool = PrefillPool(table, batch)
            mean_s = float(pool.service_s @ table.prompt_weights)
            assert 1.0 / mean_s <= most, (engine, batch)


def test_replicas_are_multiplied_and_stated():
    """B053 and B054: 40 GPUs are five replicas of TP8."""
    option = plan(300, 3000, 400, model="llama-3.1-70b", gpus=["h200-sxm-141gb"],
                  setups=["colocated"], limits={"layouts": [{"tensor_parallel": 8}]},
                  slo={"ttft_ms": 2000, "tpot_ms": 50}).options[0]
    pool = option["pools"][0]
    assert option["gpus"] == pool["replicas"] * 8 == pool["gpus"]
    assert pool["replicas"] > 1


def test_tails_are_above_the_mean():
    """B074 and B077: percentiles come from the queue, and the median may be below the mean."""
    option = plan(14, {"mean": 1500, "p95": 5000}, {"mean": 250, "p95": 700},
                  setups=["colocated"]).options[0]
    ttft = option["ttft_ms"]
    assert ttft["p50"] < ttft["mean"] < ttft["p90"] < ttft["p99"]
    assert ttft["p99"] > 1.7 * ttft["mean"]


def test_median_is_not_a_constant_factor():
    shares = [o["ttft_ms"]["p99"] / o["ttft_ms"]["mean"] for rate in (1, 14)
              for o in plan(rate, setups=["colocated"], limits={"max_gpus": 1}).options]
    assert max(shares) > 1.1 * min(shares)


def test_decode_gpus_are_bound_by_bandwidth_too():
    """B102: half of the bandwidth takes more decode GPUs though FLOPs are the same."""
    def decode_gpus(factor: float) -> int:
        chip = gpu(bandwidth_bytes_per_s=3.35e12 * factor)
        book = replace(catalog(), gpus={**catalog().gpus, chip.slug: chip})
        request = parse_plan({
            "model": "llama-3.1-8b", "gpus": [chip.slug], "setups": ["disaggregated"],
            "workload": {"requests_per_second": 120, "prompt_tokens": 500, "output_tokens": 500},
            "slo": {"ttft_ms": 1000, "tpot_ms": 25}, "limits": {"max_tensor_parallel": 1}})
        return make_plan(request, book).options[0]["pools"][1]["gpus"]
    assert decode_gpus(0.5) > 1.3 * decode_gpus(1.0)


def test_context_defaults_to_the_workload():
    """B032: memory is for the tokens asked about, not for the model's maximum."""
    result = plan(0.5, 500, 100, model="llama-3.1-8b", gpus=["l4"],
                  slo={"ttft_ms": 5000, "tpot_ms": 150})
    assert result.options


def test_prices_carry_provider_and_date():
    """B050."""
    for price in plan().options[0]["prices"]:
        assert price["provider"]
        assert price["as_of"]
        assert price["source"]
