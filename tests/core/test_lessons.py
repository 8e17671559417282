"""The numbers of the lessons: L rows exactly at napkin fidelity, M rows in direction and size.

Sources: DistServe (OSDI 2024) figure 1; Splitwise (ISCA 2024) table IV and figure 9;
Sarathi-Serve (OSDI 2024) pages 8-9; Kipply, *Transformer inference arithmetic*.
"""

from __future__ import annotations

from typing import Any

import pytest
from core_helpers import (
    catalog,
    close,
    deployment,
    golden_by_id,
    gpu,
    napkin,
    plan,
    prefill_ms,
    step_ms,
)

from planner.measured import whole_ratio


def check(name: str, value: float) -> None:
    row = golden_by_id("lessons.csv")[name]
    assert close(value, row), f"{name} {row['quantity']}: {value} against {row['value']}"


def decode(n: int, context: int, **rest: Any) -> dict[str, Any]:
    return napkin(batch={"decodes": n, "context_tokens": context}, **rest)


def ceiling(params: float, bytes_per_value: float, bandwidth: float = 3.35e12) -> float:
    """Tokens/s when every token reads all weights."""
    return bandwidth / (params * bytes_per_value)


def test_prefill_time():
    check("L01", napkin(batch={"prefill_tokens": 2000})["step_ms"])


def test_decode_step_reads_the_weights():
    check("L02", decode(1, 0)["step_ms"])


def test_request_latency():
    """The lesson leaves the cache reads out of the decode part; the request's answer has them."""
    answer = napkin(batch={"decodes": 1}, prompt_tokens=2000, output_tokens=300)["request"]
    check("L03", (answer["ttft_ms"] + 299 * decode(1, 0)["step_ms"]) / 1e3)
    assert answer["e2e_ms"] / 1e3 == pytest.approx(1.466 + 299 * 2150 * 131072 / 3.35e12, rel=1e-3)
    assert answer["e2e_ms"] == pytest.approx(answer["ttft_ms"] + 299 * answer["tpot_ms"])


def test_kv_per_token():
    check("L04", decode(1, 0)["memory"]["kv_bytes_per_token"])
    check("L04", catalog().llm("llama-3.1-8b").kv_bytes_per_token())


def test_weights():
    check("L05", decode(1, 0)["memory"]["weights_gib"] * 2**30 / 1e9)


@pytest.mark.parametrize(("row", "slug"), [("L06", "h100-sxm-80gb"), ("L14", "a100-sxm-80gb")])
def test_ridge_point(row, slug):
    check(row, decode(1, 0, gpu=slug)["ridge_point"])


def test_decode_compute_time():
    check("L07", decode(1, 0)["terms"][0]["compute_ms"])


def test_prompt_length_that_turns_compute_bound():
    check("L08", decode(1, 0)["crossovers"]["prefill_tokens"])


def test_step_is_compute_bound_past_that_length():
    assert napkin(batch={"prefill_tokens": 280})["bound"] == "memory"
    assert napkin(batch={"prefill_tokens": 310})["bound"] == "compute"


def test_decode_step_of_32_users():
    check("L09", decode(32, 1500)["step_ms"])


def test_chunks():
    answer = napkin(batch={"decodes": 32}, prompt_tokens=8000, output_tokens=1,
                    max_batched_tokens=512)["request"]
    check("L10", answer["chunk_steps"])
    assert answer["chunk_tokens"] == 480


def test_batch_at_the_ridge():
    check("L11", decode(1, 0)["crossovers"]["decode_batch"])


def test_kv_per_user():
    check("L12", catalog().llm("llama-3.1-8b").kv_bytes_per_token() * 2300 / 1e9)


def test_memory_left_for_caches():
    memory = decode(1, 0, memory_utilization=1.0)["memory"]
    check("L13", memory["kv_pool_gib"] * 2**30 / 1e9)


def test_disaggregated_goodput():
    prefill, workers, goodput = whole_ratio(5.6, 10.0)
    check("L15", goodput)
    assert f"{prefill}:{workers}" == golden_by_id("lessons.csv")["L16"]["value"]


def test_disaggregated_plan_of_measured_workers():
    option = plan(10.0, limits={"target_utilization": 1.0}, measured={
        "prefill": {"requests_per_second": 5.6}, "decode": {"requests_per_second": 10.0}}
    ).options[0]
    assert [p["replicas"] for p in option["pools"]] == [2, 1]
    check("L15", option["goodput_rps_per_gpu"] * 10.0 / min(11.2, 10.0))
    assert option["whole_ratio"]["prefill"] == 2


@pytest.mark.parametrize(("row", "weights"), [("L17", "bf16"), ("L18", "fp8"), ("L19", "int4")])
def test_decode_ceilings_of_8b(row, weights):
    """8.0e9 parameters in the table, 8.03e9 in the model: scaled."""
    tokens = decode(1, 0, weights=weights)["tokens_per_s"]
    check(row, tokens * catalog().llm("llama-3.1-8b").total_params / 8.0e9)


def test_decode_ceiling_of_70b():
    answer = decode(1, 0, model="llama-3.1-70b", tensor_parallel=2)
    check("L20", answer["tokens_per_s"])
    assert not decode(1, 0, model="llama-3.1-70b")["memory"]["fits"]


def test_prefill_without_attention():
    check("L21", 2 * 8.0e9 * 2000 / gpu().peak_flop_per_s["bf16"] * 1e3)
    answer = napkin(batch={"prefill_tokens": 2000})
    llm = catalog().llm("llama-3.1-8b")
    linear = answer["flops"] - 2 * llm.layers * llm.hidden * 2000**2
    assert linear == pytest.approx(2 * llm.active_params * 2000)


def test_decode_with_context():
    check("L22", decode(1, 4048)["tokens_per_s"])


def test_usable_memory():
    check("L23", decode(1, 0)["memory"]["usable_gib"] * 2**30 / 1e9)


def test_ceiling_of_7b():
    check("L24", ceiling(7e9, 2.0, 3.3e12))


def test_intensity_of_prefill():
    """Exactly the tokens in flight when attention is left out; decode is 1."""
    llm = catalog().llm("llama-2-7b")
    answer = napkin(model="llama-2-7b", batch={"prefill_tokens": 1000})
    attention = 2 * llm.layers * llm.hidden * 1000**2
    check("L25", (answer["flops"] - attention) / answer["bytes"])
    assert decode(1, 0, model="llama-2-7b")["arithmetic_intensity"] == pytest.approx(1.0)


def test_weights_only_throughput():
    check("L26", decode(32, 0)["tokens_per_s"])


# -- measured effects, operator fidelity ------------------------------------------------------


def test_h100_halves_prefill_but_not_decode():
    """Splitwise table IV, Llama-2-70B on eight GPUs."""
    new, old = (deployment("llama-2-70b", slug, tensor=8)
                for slug in ("h100-sxm-80gb", "a100-sxm-80gb"))
    prompt = prefill_ms(new, 1500) / prefill_ms(old, 1500)
    token = step_ms(new, decodes=8, context=1600) / step_ms(old, decodes=8, context=1600)
    assert prompt == pytest.approx(0.51, abs=0.15)
    assert token == pytest.approx(0.70, abs=0.15)
    assert prompt < token - 0.1


def test_tile_quantisation():
    """257 tokens cost clearly more than 256: measured 1.32 (Sarathi-Serve p. 9)."""
    d = deployment("yi-34b", "a100-sxm-80gb", tensor=2)
    ratio = prefill_ms(d, 257) / prefill_ms(d, 256)
    assert 1.15 < ratio < 1.5


def test_worst_gap_rises_with_a_full_prefill_and_stays_bounded_with_chunks():
    """Up to 28.3 times between tokens (Sarathi-Serve p. 8)."""
    d = deployment("yi-34b", "a100-sxm-80gb", tensor=2)
    alone = step_ms(d, decodes=32, context=2000)
    full = step_ms(d, decodes=32, context=2000, prefill_tokens=8192, prefill_sequences=1)
    chunk = step_ms(d, decodes=32, context=2000, prefill_tokens=480, prefill_sequences=1)
    assert 10 < full / alone < 80
    assert chunk / alone < 6


def test_power_cap_hits_prefill_only():
    """Splitwise figure 9: H100 from 700 W to 350 W."""
    free = deployment("llama-2-70b", tensor=8)
    capped = deployment("llama-2-70b", tensor=8, power_cap_w=350)
    prompt = prefill_ms(capped, 2000) / prefill_ms(free, 2000)
    token = step_ms(capped, decodes=8, context=1600) / step_ms(free, decodes=8, context=1600)
    assert prompt > 1.15
    assert token < 1.05


def test_kernels_reach_their_usual_share_of_the_peak():
    """Large prefills sustain 500-700 TFLOP/s on H100; small decodes use few per cent."""
    d = deployment("llama-3.1-8b")
    llm = d.llm
    flops = 2 * (llm.linear_params - llm.lm_head_params) * 4096
    assert 450e12 < flops / (prefill_ms(d, 4096) / 1e3) < 750e12
    decode_flops = 2 * llm.linear_params * 32
    share = decode_flops / (step_ms(d, decodes=32, context=1500) / 1e3) / 989.5e12
    assert share < 0.15


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b"])
def test_one_precision_step_down(model):
    """16 to 8 bits makes decode 30-50 % faster, not twice as fast."""
    tensor = 4 if "70b" in model else 1
    wide = step_ms(deployment(model, tensor=tensor), decodes=32, context=1500)
    small = step_ms(deployment(model, weights="fp8", tensor=tensor), decodes=32, context=1500)
    assert 1.2 < wide / small < 1.75


def test_llama_2_7b_on_rtx_4090():
    """20 tokens 310 ms against 10 ms for a 200-token prompt (AWQ figure 3).

    The prompt ran faster than the card's rate with fp32 accumulation, so only its order counts.
    """
    d = deployment("llama-2-7b", "rtx-4090", weights="fp16")
    tokens = 20 * step_ms(d, decodes=1, context=210)
    assert tokens == pytest.approx(310, rel=0.25)
    assert tokens / prefill_ms(d, 200) > 7
