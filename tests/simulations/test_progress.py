"""The progress of a simulation's job moves in all its parts, up to its packed columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.api.simulation_schema import SimulationSchema
from planner.api.simulation_service import job_of_plan
from planner.catalog.shipped import shipped_catalog
from planner.jobs.sending import pack_catalog
from planner.simulations import tasks

REQUEST = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked"],
           "advice": False, "slo": {"ttft_ms": 1000, "tpot_ms": 50},
           "workload": {"requests_per_second": 20, "prompt_tokens": 500, "output_tokens": 20},
           "limits": {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048]}}


def job(requests: int) -> dict[str, Any]:
    made = make(parse_plan(REQUEST), shipped_catalog())
    data = SimulationSchema().load({"plan": made.document["id"], "requests": requests})
    return job_of_plan(data, made.document, made.snapshot, shipped_catalog())


def test_it_moves_while_requests_are_played_and_while_results_are_packed(
        monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(tasks, "signal_progress", lambda _, share: seen.append(share))
    document, packed = tasks.simulate_job(pack_catalog(shipped_catalog()), job(60_000), None, "")
    assert document["requests"] == 60_000
    assert seen == sorted(seen)
    assert 0 < seen[0] < 0.05
    assert seen[-1] < 1.0, "it is done when it is stored"
    assert max(b - a for a, b in pairwise(seen)) < 0.1
    assert len([s for s in seen if s > tasks.TOLD]) >= 10
    columns = tasks.unpack_columns(packed)
    assert len(columns["ttft_ms"]) == 60_000
    assert np.isfinite(columns["ttft_ms"]).all()
