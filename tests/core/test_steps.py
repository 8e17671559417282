"""The compiled steps against the step model: equal to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import catalog, deployment

from planner.llm import Role
from planner.roofline import StepBatch, StepModel, experts_touched
from planner.steps import StepTimes

LAYOUTS = ({}, {"tensor": 2}, {"tensor": 4, "pipeline": 2}, {"data": 8, "expert": 8})
MODELS = tuple(catalog().llms)
GPUS = ("h100-sxm-80gb", "a100-sxm-80gb", "l40s", "h200-sxm-141gb")
BATCHES = 8


def some_batches(rng, speculative):
    """Batches of decodes, of prompt parts, of both and of neither."""
    n = BATCHES
    decodes = rng.integers(1, 300, n) * rng.integers(0, 2, n).astype(float)
    prompts = rng.integers(1, 4, n) * rng.integers(0, 2, n).astype(float)
    return StepBatch(
        decodes=decodes, context=rng.integers(1, 150_000, n) * (decodes > 0.0),
        tokens_per_decode=speculative, prefill_tokens=prompts * rng.integers(1, 3000, n),
        prefill_sequences=prompts, cached=rng.integers(0, 20_000, n) * rng.integers(0, 2, n),
        logits=np.floor(rng.random(n) * (prompts + 1.0)))


@pytest.mark.parametrize("fidelity", ["operator", "napkin"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("speculative", [1.0, 4.0])
def test_equal_to_the_step_model(fidelity, layout, speculative):
    rng = np.random.default_rng(7)
    for place, model in enumerate(MODELS):
        if layout.get("data") and not catalog().llm(model).is_moe:
            continue
        d = deployment(model, GPUS[place % 4], engine=("vllm", "sglang", "ideal")[place % 3],
                       fidelity=fidelity, **layout)
        step_model, batch = StepModel.of(d), some_batches(rng, speculative)
        found = StepTimes.of(step_model, speculative).seconds(
            batch.decodes, batch.context, batch.prefill_tokens, batch.prefill_sequences,
            batch.cached, batch.logits)
        np.testing.assert_allclose(found, step_model.seconds(batch), rtol=1e-12, err_msg=model)


def test_plain_numbers_stand_for_every_row():
    times = StepTimes.of(StepModel.of(deployment()))
    n, tokens = np.arange(1.0, 5.0), np.full(4, 700.0)
    assert times.seconds(n, 2000.0) == pytest.approx(times.seconds(n, np.full(4, 2000.0)))
    assert times.seconds(n, 2000.0, 700.0, 1.0) == pytest.approx(
        times.seconds(n, 2000.0, tokens, np.ones(4), np.zeros(4), np.ones(4)))
    assert times.seconds(8, 500).shape == (1,)


def test_an_expert_multiplies_a_whole_tile():
    """Few rows take the compute of a tile of each touched expert; as they are if unpacked."""
    for weights, padded in (("fp8", True), ("int4", False)):
        d = deployment("mixtral-8x7b-v0.1", "h100-sxm-80gb", weights=weights)
        tile, half = d.profile.tile_tokens, d.profile.half_tokens
        tokens = np.array([1.0, 4.0])
        step = StepModel.of(d).step(StepBatch(decodes=tokens, context=100.0))
        term = next(t for t in step.terms if t.name == "routed_experts")
        hit = experts_touched(2 / 8, tokens, d.profile.expert_skew)
        rows = tokens * 2 / (8 * hit)
        fmt = d.llm.role_format(Role.ROUTED_EXPERT, weights)
        plain_s = term.flops / (d.gpu.peak(fmt) * d.profile.expert_mfu)
        filled = (tile if padded else rows) + half
        np.testing.assert_allclose(term.compute_s, plain_s * filled / rows, rtol=1e-12)
