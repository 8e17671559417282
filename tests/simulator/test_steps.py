"""The compiled step against the step model: equal to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
from sim_helpers import deployment

from planner.catalog.shipped import shipped_catalog
from planner.roofline import StepBatch, StepModel
from planner.simulator.arrays import packed_steps
from planner.simulator.stepping import step_seconds
from planner.simulator.steps import steps_of

LAYOUTS = ({}, {"tensor": 2}, {"tensor": 4, "pipeline": 2}, {"data": 8, "expert": 8})
MODELS = tuple(shipped_catalog().llms)


@pytest.mark.parametrize("fidelity", ["operator", "napkin"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("speculative", [1.0, 4.0])
def test_equal_to_the_step_model(fidelity, layout, speculative):
    rng, worst = np.random.default_rng(7), 0.0
    for place, model in enumerate(MODELS):
        if layout.get("data") and not shipped_catalog().llm(model).is_moe:
            continue
        engine = ("vllm", "sglang", "ideal")[place % 3]
        gpu = ("h100-sxm-80gb", "a100-sxm-80gb", "l40s", "h200-sxm-141gb")[place % 4]
        d = deployment(model, gpu, engine=engine, fidelity=fidelity, plain=False, **layout)
        step_model = StepModel.of(d)
        packed = packed_steps(steps_of(step_model, speculative))
        for _ in range(3):
            decodes, prompts = int(rng.integers(0, 300)), int(rng.integers(0, 4))
            if not decodes and not prompts:
                continue
            context = float(rng.integers(1, 150_000)) if decodes else 0.0
            tokens = float(prompts * rng.integers(1, 3000))
            cached = float(rng.integers(0, 20_000) * rng.integers(0, 2))
            ends = float(rng.integers(0, prompts + 1))
            expected = float(step_model.seconds(StepBatch(
                decodes=decodes * layout.get("data", 1), context=context,
                tokens_per_decode=speculative, prefill_tokens=tokens,
                prefill_sequences=float(prompts), cached=cached, logits=ends)))
            found = step_seconds(packed, float(decodes), context, tokens, cached, prompts, ends)
            worst = max(worst, abs(found / expected - 1.0))
    assert worst < 1e-12
