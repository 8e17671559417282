"""Requests longer than the context of the model: told; refused where the stated lengths are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.api.plan_checks import check_plan
from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog
from planner.contexts import share_beyond
from planner.errors import ContextTooLong
from planner.requests import PlanRequest
from planner.sweeps.lean import cell_rows
from planner.workload import Workload, constant, empirical, from_mean_p95

CONTEXT = 40_960  # of qwen3-235b-a22b


def asked(prompt: Any, output: Any = 300, advice: bool = True) -> PlanRequest:
    """A plan request of a model with a short context."""
    return parse_plan({
        "model": "qwen3-235b-a22b", "gpus": ["h200-sxm-141gb"], "setups": ["chunked"],
        "precisions": [{"weights": "fp8"}], "advice": advice,
        "workload": {"requests_per_second": 1, "prompt_tokens": prompt, "output_tokens": output},
        "slo": {"ttft_ms": 20000, "tpot_ms": 100}})


@pytest.mark.parametrize(("prompt", "output"), [
    (from_mean_p95(20000, 40000), from_mean_p95(400, 1500)),
    (from_mean_p95(20000, 40000), constant(300)),
    (empirical([1000, 40_000], [0.9, 0.1]), from_mean_p95(400, 1500))])
def test_the_share_is_that_of_drawn_requests(prompt: Any, output: Any) -> None:
    from planner.simulator.generate import draw_lengths

    rng = np.random.default_rng(1)
    drawn = sum(draw_lengths(x, 400_000, rng) for x in (prompt, output))
    share = share_beyond(Workload(1.0, prompt, output), CONTEXT)
    assert share == pytest.approx(float((drawn > CONTEXT).mean()), rel=0.05)
    assert 0.005 < share < 0.06


@pytest.mark.parametrize("advice", [True, False])
def test_a_plan_says_which_share_is_too_long(advice: bool) -> None:
    document = make(asked({"mean": 20000, "p95": 40000}, advice=advice),
                    shipped_catalog()).document
    first = document["advice"][0]
    assert first["code"] == "beyond_context"
    assert first["message"] == (
        "4.7 % of the requests are longer than the context of 40,960 tokens that Qwen3-235B-A22B "
        "has: an engine refuses or cuts them. The plan counts them as served.")
    [row] = [r for r in document["assumptions"] if r["name"] == "requests_beyond_context"]
    assert row["value"] == pytest.approx(0.047, abs=0.001)


def test_a_plan_that_fits_says_nothing() -> None:
    document = make(asked({"mean": 5000, "p95": 10000}, advice=False), shipped_catalog()).document
    assert document["advice"] == []
    assert not [r for r in document["assumptions"] if r["name"] == "requests_beyond_context"]


def test_a_row_of_a_sweep_says_it_too() -> None:
    [row] = cell_rows(asked({"mean": 20000, "p95": 40000}), shipped_catalog())
    assert row["detail"].startswith("4.7 % of the requests are longer than the context")
    [row] = cell_rows(asked({"mean": 5000, "p95": 10000}), shipped_catalog())
    assert row["detail"] is None


@pytest.mark.parametrize(("p95", "refused"), [(40_600, False), (40_700, True), (41_000, True)])
def test_stated_lengths_beyond_the_context_are_refused(p95: float, refused: bool) -> None:
    request = asked({"mean": 20000, "p95": p95})
    if not refused:
        check_plan(request, shipped_catalog())
        return
    with pytest.raises(ContextTooLong):
        check_plan(request, shipped_catalog())
