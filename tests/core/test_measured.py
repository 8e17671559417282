"""Plans from measured workers and curves: exact whole numbers."""

from __future__ import annotations

from typing import Any

import pytest

from planner.api.plan_schema import parse_plan
from planner.catalog.shipped import shipped_catalog
from planner.errors import InvalidValue, SloUnreachable
from planner.planning import make_plan

BODY: dict[str, Any] = {
    "model": "llama-3.1-70b",
    "workload": {"requests_per_second": 10, "prompt_tokens": 2000, "output_tokens": 301},
    "slo": {"ttft_ms": 1000, "tpot_ms": 50}, "gpus": ["h100-sxm-80gb"],
    "limits": {"target_utilization": 1.0}}


def plan(measured: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return make_plan(parse_plan({**BODY, **changes, "measured": measured}),
                     shipped_catalog()).document()


def test_distserve_opening_example():
    """DistServe (OSDI 2024) figure 1: two prefill and one decode worker, 3.3 requests/s a GPU."""
    best = plan({"prefill": {"requests_per_second": 5.6},
                 "decode": {"requests_per_second": 10}})["recommended"]
    assert [p["replicas"] for p in best["pools"]] == [2, 1]
    assert best["goodput_rps_per_gpu"] == pytest.approx(3.33, abs=0.01)


def test_a_decode_curve_gives_the_best_point_within_the_target():
    """128 sequences at 45 ms: 128 / (0.045 x 300) = 9.48 requests/s; 256 at 80 ms is too slow."""
    best = plan({"prefill": {"requests_per_second": 20},
                 "decode": [{"batch_size": 32, "tpot_ms": 20}, {"batch_size": 128, "tpot_ms": 45},
                            {"batch_size": 256, "tpot_ms": 80}]})["recommended"]
    decode = best["pools"][1]
    assert decode["capacity_rps"] == pytest.approx(128 / (0.045 * 300))
    assert decode["replicas"] == 2


def test_a_closed_loop_curve_uses_littles_law():
    best = plan({"serve": {"gpus": 4, "points": [
        {"concurrency": 64, "tpot_ms": 28, "ttft_ms": 700}]}})["recommended"]
    assert best["pools"][0]["capacity_rps"] == pytest.approx(64 / (0.7 + 0.028 * 300))
    assert best["gpus"] == 8


@pytest.mark.parametrize(("rate", "prefill", "decode", "peer"), [
    # Llama-70B on H100 at 50 requests/s and DeepSeek-V3 on B200 at 10: one P:D cell repeated
    # needs 112 and 64 GPUs; pools sized apart never need more.
    (50.0, (1.6, 2), (5.6, 4), 112), (10.0, (10.5, 8), (11.0, 8), 64)])
def test_never_more_than_a_repeated_cell(rate, prefill, decode, peer):
    best = plan({"prefill": {"requests_per_second": prefill[0], "gpus": prefill[1]},
                 "decode": {"requests_per_second": decode[0], "gpus": decode[1]}},
                workload={**BODY["workload"], "requests_per_second": rate})["recommended"]
    assert best["gpus"] <= peer


def test_no_point_within_the_targets_is_said():
    with pytest.raises(SloUnreachable, match="no measured point"):
        plan({"serve": [{"concurrency": 8, "tpot_ms": 90, "ttft_ms": 300}]})


def test_prefill_alone_is_refused():
    with pytest.raises(InvalidValue, match="prefill and decode together"):
        plan({"prefill": {"requests_per_second": 1}})
