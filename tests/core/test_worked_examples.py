"""Published worked examples, redone with the planner's functions (sources in the golden table).

Where a source rounds a parameter count (70e9 for 70.55e9) the answer is scaled to it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from core_helpers import GIB, catalog, close, deployment, golden_by_id, gpu, napkin, plan

from planner.api.plan_schema import parse_plan
from planner.architectures import from_fields
from planner.engine import IDEAL
from planner.estimate import crossovers
from planner.fleet import nodes_for
from planner.hardware import Gpu
from planner.kv_cache import sequence_cache_bytes
from planner.llm import Llm
from planner.measured import replicas_for
from planner.memory import memory_budget
from planner.roofline import StepBatch, StepModel


def check(name: str, value: float) -> None:
    row = golden_by_id("worked_examples.csv")[name]
    assert close(value, row), f"{name} {row['quantity']}: {value} against {row['value']}"


def v5e(bandwidth: float = 8.1e11) -> Gpu:
    return gpu("tpu-v5e", bandwidth_bytes_per_s=bandwidth)


def napkin_step(llm: Llm | str, chip: Gpu, weights: str = "bf16", kv: str = "bf16",
                tensor: int = 1, **batch: float) -> float:
    d = deployment(llm, chip, weights, kv, engine="ideal", fidelity="napkin", tensor=tensor)
    return float(StepModel.of(d).seconds(StepBatch(**batch)))


# -- How to scale your model: Llama 3 70B and Llama 2 13B on TPU v5e --------------------------


def test_llama_3_70b_cache():
    llm = catalog().llm("llama-3-70b")
    check("W001", llm.kv_bytes_per_token("int8"))
    check("W003", float(sequence_cache_bytes(llm, 32768, "int8")))
    check("W004", 70e9 + 32 * float(sequence_cache_bytes(llm, 8192, "int8")))


def test_llama_3_70b_step_on_16_chips():
    llm = catalog().llm("llama-3-70b")
    seconds = napkin_step(llm, v5e(), "int8", "int8", 16, decodes=32, context=8192)
    rounded = seconds - (llm.total_params - 70e9) / 16 / 8.1e11
    check("W009", rounded * 1e3)


@pytest.mark.parametrize(("row", "weights"), [("W010", "bf16"), ("W011", "int8")])
def test_critical_batch(row, weights):
    """Weight-only int8 halves the bytes and keeps the 16-bit peak."""
    check(row, crossovers(deployment("llama-3-70b", v5e(), weights, engine="ideal"))[
        "decode_batch"])


@pytest.mark.parametrize(("row", "weights", "kv", "chips"), [
    ("W012", "bf16", "bf16", 16), ("W013", "int8", "int8", 8)])
def test_most_sequences(row, weights, kv, chips):
    """W013 prints 52 from a subtraction error; 43 is right."""
    d = deployment("llama-3-70b", v5e(), weights, kv, "ideal", "napkin", tensor=chips)
    pool = memory_budget(d, utilization=1.0).kv_pool_bytes * chips
    check(row, math.floor(pool / float(sequence_cache_bytes(d.llm, 8192, kv))))


def fewer_kv_heads(llm: Llm, factor: int) -> Llm:
    """The same model with a cache ``factor`` times smaller."""
    def slim(group):
        streams = tuple(replace(s, values_per_entry=s.values_per_entry // factor)
                        for s in group.mixer.streams)
        return replace(group, mixer=replace(group.mixer, streams=streams))
    return replace(llm, groups=tuple(map(slim, llm.groups)))


@pytest.mark.parametrize(("step", "rate", "batch", "factor"), [
    ("W026", "W027", 1, 1), ("W028", "W029", 8, 1), ("W030", None, 16, 1), ("W032", "W033", 32, 1),
    (None, "W035", 64, 1), (None, "W037", 240, 1), ("W041", None, 32, 5), ("W042", None, 64, 5),
    (None, "W045", 8, 5), (None, "W049", 240, 5)])
def test_llama_2_13b_decode(step, rate, batch, factor):
    llm = fewer_kv_heads(catalog().llm("llama-2-13b"), factor)
    seconds = napkin_step(llm, v5e(8.2e11), tensor=8, decodes=batch, context=8192)
    if step:
        check(step, seconds * 1e3)
    if rate:
        check(rate, batch / seconds)


def test_llama_2_13b_cache():
    check("W050", float(sequence_cache_bytes(catalog().llm("llama-2-13b"), 8192, "bf16")))


def test_prefill_to_decode_instances():
    decode = 32 / (0.019 * 512)
    check("W018", decode * 0.91)
    assert replicas_for(decode, 1 / 0.91, 1.0) == 3


# -- caches of named shapes -------------------------------------------------------------------


def test_52b_of_the_inference_arithmetic():
    llm = from_fields({"slug": "anthropic-52b", "hidden": 8192, "layers": 64, "heads": 64,
                       "vocab": 65536, "intermediate": 32768, "gated": False})
    check("W051", llm.kv_bytes_per_token("fp16"))
    assert llm.total_params == pytest.approx(52e9, rel=0.02)


@pytest.mark.parametrize(("row", "model", "kv", "tokens"), [
    ("W060", "llama-2-7b", "fp16", 1), ("W107", "llama-3-8b", "bf16", 8192)])
def test_cache_bytes(row, model, kv, tokens):
    check(row, float(sequence_cache_bytes(catalog().llm(model), tokens, kv)))


@pytest.mark.parametrize(("row", "model", "kv", "tokens", "tensor"), [
    ("W139", "mistral-small-4-119b-2603", "bf16", 1048576, 2),
    ("W140", "qwen3-30b-a3b", "bf16", 262144, 1), ("W141", "qwen3-30b-a3b", "fp8", 221000, 1),
    ("W143", "qwen3-8b", "fp16", 32768, 1), ("W144", "qwen3-8b", "fp16", 262144, 1)])
def test_cache_gib(row, model, kv, tokens, tensor):
    """W139: an MLA latent is whole on each of two ranks."""
    check(row, float(sequence_cache_bytes(catalog().llm(model), tokens, kv, tensor)) / GIB)


# -- rooflines --------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "slug", "bandwidth", "weights"), [
    ("W059", "a10g", 600e9, "fp16"), ("W108", "a100-sxm-80gb", 2e12, "bf16"),
    ("W110", "b200-sxm-180gb", 8e12, "bf16"), ("W111", "h100-sxm-80gb", 3.35e12, "fp8"),
    ("W112", "b200-sxm-180gb", 8e12, "fp8"), ("W113", "b200-sxm-180gb", 8e12, "fp4")])
def test_ridge_points(row, slug, bandwidth, weights):
    chip = gpu(slug, bandwidth_bytes_per_s=bandwidth)
    check(row, crossovers(deployment("llama-3-8b", chip, weights, engine="ideal"))["ridge_point"])


@pytest.mark.parametrize(("row", "slug", "bandwidth"), [("W063", "t4", 300e9),
                                                        ("W064", "a10", 600e9)])
def test_llama_2_7b_token(row, slug, bandwidth):
    chip = gpu(slug, bandwidth_bytes_per_s=bandwidth)
    check(row, napkin_step("llama-2-7b", chip, "fp16", decodes=1, context=1) * 1e3)


@pytest.mark.parametrize(("row", "slug"), [("W066", "t4"), ("W067", "a10"),
                                           ("W068", "a100-sxm-80gb")])
def test_llama_2_7b_prefill(row, slug):
    llm = catalog().llm("llama-2-7b")
    seconds = napkin_step(llm, gpu(slug), "fp16", prefill_tokens=350, prefill_sequences=1)
    check(row, seconds * 7e9 / llm.total_params * 1e3)


def test_70b_ceiling():
    llm = catalog().llm("llama-3-70b")
    seconds = napkin_step(llm, gpu(), decodes=1, context=0)
    check("W106", llm.total_params / 70e9 / seconds)


def test_mbu():
    """Half of the bandwidth reached is an MBU of a half: 14 GB in 14 ms at 2 TB/s."""
    chip = gpu("a100-sxm-80gb", bandwidth_bytes_per_s=2e12)
    d = replace(deployment("llama-2-7b", chip, "fp16", engine="ideal"),
                profile=replace(IDEAL, mbu=0.5, attention_mbu=0.5))
    step = StepModel.of(d).step(StepBatch(decodes=1.0, context=1.0))
    check("W078", round(float(step.mbu), 6))
    assert float(step.seconds) * 1e3 == pytest.approx(14.0, rel=0.08)


def test_latency_identity():
    """TTFT 0.2 s and TPOT 0.05 s: 100 tokens end after 0.2 + 99 x 0.05 s."""
    answer = napkin(batch={"decodes": 1}, prompt_tokens=500, output_tokens=100)["request"]
    check("W088", answer["e2e_ms"] / (answer["ttft_ms"] + 99 * answer["tpot_ms"]))


# -- memory of engine logs --------------------------------------------------------------------


@pytest.mark.parametrize(("row", "model", "kv", "tensor"), [
    ("W133", "llama-3.1-8b", "fp8", 1), ("W134", "llama-3.1-8b", "bf16", 2),
    ("W136", "qwen2-72b", "bf16", 2)])
def test_kv_tokens(row, model, kv, tensor):
    chip = gpu(memory_bytes=79.19 * GIB)
    d = deployment(model, chip, "bf16", kv, tensor=tensor)
    check(row, memory_budget(d, utilization=0.95).kv_tokens)


def test_kv_pool():
    d = deployment("llama-3.1-8b", gpu(memory_bytes=79.19 * GIB))
    check("W130", memory_budget(d, utilization=0.95).kv_pool_bytes / GIB)


# -- demand and money -------------------------------------------------------------------------


def test_peak_of_a_day():
    request = parse_plan({"model": "llama-3.1-8b", "slo": {"tpot_ms": 50}, "workload": {
        "requests_per_day": 120000, "peak_hour_share": 0.2, "prompt_tokens": 100,
        "output_tokens": 100}})
    check("W101", request.workload.requests_per_s)


def test_servers():
    check("W103", nodes_for([2, 2, 2], 8))


def money(rate: float, prompt: int, output: int, measured: dict[str, dict[str, float]]
          ) -> dict[str, float]:
    return plan(rate, prompt, output, limits={"target_utilization": 1.0}, measured=measured,
                pricing={"usd_per_gpu_hour": {"h100-sxm-80gb": 2.0}}).options[0]


def test_cost_per_million_tokens():
    option = money(1.0, 1, 84, {"serve": {"requests_per_second": 1.0}})
    check("W154", option["usd_per_million_tokens"])


def test_cost_of_a_decode_node():
    option = money(22.3, 1, 999, {"serve": {"requests_per_second": 22.3, "gpus": 8}})
    check("W156", option["usd_per_million_tokens"])


def test_cost_of_prefill_and_decode_nodes():
    rate = 9 * 22.3
    option = money(rate, 1, 999, {
        "prefill": {"requests_per_second": rate / 3, "gpus": 8},
        "decode": {"requests_per_second": 22.3, "gpus": 8}})
    assert [p["replicas"] for p in option["pools"]] == [3, 9]
    check("W157", option["usd_per_million_tokens"])
