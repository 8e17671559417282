"""Plans from measured workers and curves: exact whole numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


Worker = tuple[float, int]
"""Requests/s of a worker, and its GPUs."""


def gpus_for(rate: float, prefill: Worker, decode: Worker) -> int:
    best = plan({"prefill": {"requests_per_second": prefill[0], "gpus": prefill[1]},
                 "decode": {"requests_per_second": decode[0], "gpus": decode[1]}},
                workload={**BODY["workload"], "requests_per_second": rate},
                limits={**BODY["limits"], "max_gpus": 100_000})["recommended"]
    return int(best["gpus"])


@pytest.mark.parametrize(("rate", "prefill", "decode", "gpus"), [
    # 32 x 2 and 9 x 4; one worker of 8 each, where a peer repeats its cell to 64.
    (50.0, (1.6, 2), (5.6, 4), 100), (10.0, (10.5, 8), (11.0, 8), 16)])
def test_pools_are_sized_apart_in_whole_workers(rate: float, prefill: Worker, decode: Worker,
                                                gpus: int) -> None:
    assert gpus_for(rate, prefill, decode) == gpus


@settings(max_examples=60, deadline=None)
@given(rate=st.floats(0.5, 200.0), rates=st.tuples(st.floats(0.2, 20.0), st.floats(0.2, 20.0)),
       sizes=st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8])))
def test_never_more_than_a_repeated_cell(rate: float, rates: tuple[float, float],
                                         sizes: tuple[int, int]) -> None:
    """A peer repeats the best cell of so many prefill and decode workers."""
    cells = (math.ceil(rate / min(p * rates[0], d * rates[1])) * (p * sizes[0] + d * sizes[1])
             for p in range(1, 9) for d in range(1, 9))
    assert gpus_for(rate, (rates[0], sizes[0]), (rates[1], sizes[1])) <= min(cells)


def test_no_point_within_the_targets_is_said():
    with pytest.raises(SloUnreachable, match="no measured point"):
        plan({"serve": [{"concurrency": 8, "tpot_ms": 90, "ttft_ms": 300}]})


def test_prefill_alone_is_refused():
    with pytest.raises(InvalidValue, match="prefill and decode together"):
        plan({"prefill": {"requests_per_second": 1}})
