"""The draft model of speculative decoding: its cache, its passes, and who counts them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from core_helpers import catalog, deployment
from numpy.testing import assert_allclose

from planner.drafting import drafted_step
from planner.estimate import make_estimate
from planner.memory import memory_budget, sequence_bytes_per_gpu
from planner.requests import Batch, EstimateRequest, Layout, Limits, Speculative
from planner.roofline import Deployment, StepBatch, StepModel
from planner.setups.base import build_table
from planner.setups.chunked import Chunked
from planner.setups.static import Static
from planner.simulator import kv_transfer
from planner.simulator.fleet import kv_memory
from planner.steps import StepTimes
from planner.workload import Workload, from_mean_p95

MODELS = (("llama-3.1-70b", "llama-3.1-8b"), ("gemma-3-27b", "llama-3.2-1b"),
          ("gpt-oss-120b", "gpt-oss-20b"))
LAYOUTS = ({}, {"tensor": 2}, {"tensor": 2, "pipeline": 4})
WORKLOAD = Workload(1.0, from_mean_p95(800, 2000), from_mean_p95(400, 900))


def drafting(model: str, draft: str, fidelity: str = "operator", **layout: int) -> Deployment:
    d = deployment(model, "h200-sxm-141gb", fidelity=fidelity, **layout)
    return replace(d, draft=catalog().llm(draft))


def test_cache_of_both_models_by_hand():
    """gpt-oss-120b: 36 layers, every second one with a window of 128; 8 heads of 64 for keys and
    values. Llama 3.1 8B: 32 layers; 8 heads of 128 (their ``config.json``). 16 bits, two GPUs.
    """
    entry = 2 * 8 * 64 * 2 / 2
    model = 18 * entry * 8500 + 18 * entry * 128
    draft = 32 * (2 * 8 * 128 * 2 / 2) * 8500
    assert (model, draft) == (159_031_296, 557_056_000)
    d = drafting("gpt-oss-120b", "llama-3.1-8b", tensor=2)
    assert sequence_bytes_per_gpu(replace(d, draft=None), 8500) == model
    assert sequence_bytes_per_gpu(d, 8500) == model + draft
    found = memory_budget(d)
    assert found.bytes_per_token == 36 * entry + 32 * 2048
    assert found.draft_bytes == pytest.approx(8_030_261_248 * 2 / 2)  # parameters of the card


def test_estimate_counts_the_draft_in_the_sequences_that_fit():
    rows = {}
    for draft in (None, "llama-3.2-1b", "llama-3.1-8b"):
        rows[draft] = make_estimate(EstimateRequest(
            model="gpt-oss-120b", gpu="h100-sxm-80gb", layout=Layout(2), batches=(Batch(),),
            prompt_tokens=8000, output_tokens=500, max_sequences=4096,
            speculative=Speculative(4, 0.7, draft)), catalog())
    pool = rows["llama-3.1-8b"]["memory"]["kv_pool_gib"] * 2**30
    assert rows["llama-3.1-8b"]["memory"]["max_sequences"] == int(pool / 716_087_296) == 27
    fits = [row["memory"]["max_sequences"] for row in rows.values()]
    ttft = [row["request"]["ttft_ms"] for row in rows.values()]
    tpot = [row["request"]["tpot_ms"] for row in rows.values()]
    assert fits == sorted(set(fits), reverse=True)
    assert ttft == sorted(set(ttft))
    assert tpot == sorted(set(tpot))


def test_a_pipeline_holds_the_draft_on_its_last_stage():
    """Gemma 3 27B keeps 8 of 62 layers there, Llama 3.2 1B all of its 16 (8 heads of 64)."""
    d = drafting("gemma-3-27b", "llama-3.2-1b", pipeline=8)
    alone = sequence_bytes_per_gpu(replace(d, draft=None), 4096)
    assert sequence_bytes_per_gpu(d, 4096) - alone == 16 * 2 * 8 * 64 * 2 * 4096
    limits = Limits(max_sequences=64)
    table = build_table(d, WORKLOAD, limits, Speculative(2, 0.75, "llama-3.2-1b"))
    plain = build_table(replace(d, draft=None), WORKLOAD, limits, Speculative(2, 0.75))
    draft = StepModel.of(d.drafting)
    assert_allclose(table.step_s - plain.step_s, [
        2.0 * min(n, 8.0) * draft.seconds(StepBatch(max(n / 8.0, 1.0), WORKLOAD.running_context))
        for n in table.n], rtol=1e-9)
    held, kept = (float(t.prefill_s @ t.prompt_weights) * t.occupancy for t in (table, plain))
    whole, model = (float(t.prefill_s @ t.prompt_weights) for t in (table, plain))
    assert held - kept == pytest.approx(whole - model)


@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=str)
@pytest.mark.parametrize(("model", "draft"), MODELS)
def test_simulator_holds_and_sends_the_cache_of_the_plan(model, draft, layout):
    d, tokens = drafting(model, draft, **layout), np.array([64.0, 1024.0, 8192.0])
    held = kv_memory(d, memory_budget(d)).sequence_bytes(tokens)
    assert_allclose(held, [sequence_bytes_per_gpu(d, t) for t in tokens], rtol=1e-12)
    table, wire = build_table(d, WORKLOAD, Limits()), kv_transfer(d, d)
    sent = (wire.wire_s(WORKLOAD.prompt.tokens) - wire.latency_s) * wire.bytes_per_s
    assert_allclose(sent, table.prompt_cache_bytes, rtol=1e-9)


@pytest.mark.parametrize("fidelity", ["operator", "napkin"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize(("model", "draft"), MODELS)
def test_compiled_steps_equal_the_step_model(model, draft, layout, fidelity):
    step_model = StepModel.of(drafting(model, draft, fidelity, **layout))
    batch = StepBatch(np.array([0.0, 1.0, 37.0, 200.0]), np.array([0.0, 500.0, 3000.0, 900.0]), 4.0,
                      np.array([700.0, 0.0, 512.0, 0.0]), np.array([2.0, 0.0, 1.0, 0.0]),
                      np.array([100.0, 0.0, 0.0, 0.0]))
    found = StepTimes.of(step_model, 4.0).seconds(
        batch.decodes, batch.context, batch.prefill_tokens, batch.prefill_sequences, batch.cached)
    assert_allclose(found, drafted_step(step_model, batch).seconds, rtol=1e-12)
    assert (found > step_model.seconds(batch)).all()


def test_a_step_takes_a_pass_for_each_token_drafted():
    """Time per token is (t_verify + g t_draft) / tokens per step, Leviathan et al. 2023."""
    d, wish = drafting("llama-3.1-70b", "llama-3.1-8b", tensor=2), Speculative(
        4, 0.7, "llama-3.1-8b")
    table, context = build_table(d, WORKLOAD, Limits(), wish), WORKLOAD.running_context
    verify = StepModel.of(d).seconds(StepBatch(table.n, context, 5.0))
    draft = StepModel.of(d.drafting).seconds(StepBatch(table.n, context))
    tokens = table.drafts.accepted  # below the 2.77 of endless answers
    assert tokens == pytest.approx((1 - 0.7**5) / (1 - 0.7), rel=0.01)
    assert_allclose(table.decode_s, (verify + 4 * draft) / tokens, rtol=1e-12)


def test_chunks_beside_decodes_pass_the_draft_too():
    d, wish = drafting("llama-3.1-70b", "llama-3.1-8b", tensor=2), Speculative(
        4, 0.7, "llama-3.1-8b")
    table = build_table(d, WORKLOAD, Limits(), wish)
    source = Chunked(table, 512)
    at = source.caps.astype(int) - 1
    chunk, longest = source.chunk[at], WORKLOAD.prompt_of_token
    batch = StepBatch(at + 1.0, WORKLOAD.running_context, 5.0, chunk,
                      np.maximum(chunk / longest, 1.0),
                      WORKLOAD.cached_of_token + np.maximum(longest - chunk, 0.0) / 2.0, 0.0)
    model, draft = (StepModel.of(x) for x in (d, d.drafting))
    only = replace(batch, tokens_per_decode=1.0)
    alone = StepBatch(at + 1.0, WORKLOAD.running_context)
    steps = model.seconds(batch) + draft.seconds(only) + 3.0 * draft.seconds(alone)
    assert_allclose(source.mixed[at], np.maximum(steps, table.step_s[at]), rtol=1e-12)


def test_static_batches_reserve_the_cache_of_the_draft():
    d, wish = drafting("llama-3.1-70b", "llama-3.1-8b", tensor=2), Speculative(
        4, 0.7, "llama-3.1-8b")
    table = build_table(d, WORKLOAD, Limits(max_sequences=4096), wish)
    longest = WORKLOAD.prompt.quantile(0.99) + WORKLOAD.output.quantile(0.99)
    most = int(Static(table).caps[-1])
    assert most * sequence_bytes_per_gpu(d, longest) <= table.memory.kv_pool_bytes
    following = table.caps[table.caps > most]
    assert following[0] * sequence_bytes_per_gpu(d, longest) > table.memory.kv_pool_bytes
