"""Answers of one token: no time between tokens is promised or asked of them."""

from __future__ import annotations

from typing import Any

import pytest
from core_helpers import catalog, estimate, fewest, plan

from planner.prediction import Point, predict
from planner.simulator import fleet_of, simulate, synthetic

SETUPS = ("static", "colocated", "chunked", "disaggregated")
SOME = [{"tokens": 1, "share": 0.8}, {"tokens": 101, "share": 0.2}]


def one_setup(setup: str, output: Any, **slo: float) -> Any:
    return plan(10.0, 1000, output, setups=[setup], slo={"ttft_ms": 1500, **slo}, advice=False)


@pytest.mark.parametrize("setup", SETUPS)
def test_no_time_between_tokens_where_no_answer_has_a_second(setup: str) -> None:
    made = one_setup(setup, 1, tpot_ms=1, itl_ms=1)
    document = made.document()
    best = document["recommended"]
    assert set(best["tpot_ms"].values()) == set(best["itl_ms"].values()) == {None}
    assert best["e2e_ms"]["mean"] == pytest.approx(best["ttft_ms"]["mean"])
    assert best["warnings"] == []
    assert set(best["headroom"]) == {"ttft"}
    assert fewest(made) == fewest(one_setup(setup, 1)), "such targets cost nothing"
    names = {row["name"]: row["value"] for row in document["assumptions"]}
    assert names["tpot_target"] == names["itl_target"] == "always met"
    points = made.points()
    columns = [points["columns"].index(name) for name in ("tpot_ms", "itl_ms")]
    assert {row[i] for row in points["rows"] for i in columns} == {None}


@pytest.mark.parametrize("setup", SETUPS)
def test_longer_answers_keep_their_targets(setup: str) -> None:
    made = one_setup(setup, SOME, tpot_ms=1)
    assert made.options == [], "no GPU writes a token in 1 ms"
    assert not any(a["name"] == "tpot_target" for a in made.assumptions())


@pytest.mark.parametrize("setup", SETUPS)
def test_percentiles_are_those_of_answers_with_a_second_token(setup: str) -> None:
    made = one_setup(setup, SOME, tpot_ms=60)
    workload = made.request.workload
    seen = simulate(fleet_of(made.sized[0], workload.slos),
                    synthetic(workload, 4000, 1)).document()["observed"]["tpot_ms"]
    for level in ("mean", "p50", "p90"):
        assert made.options[0]["tpot_ms"][level] == pytest.approx(seen[level], rel=0.1)


def test_one_request_alone() -> None:
    request = estimate(model="llama-3.1-8b", gpu="h100-sxm-80gb", batch={"decodes": 1},
                       prompt_tokens=500, output_tokens=1)["request"]
    assert request["tpot_ms"] is None
    assert request["e2e_ms"] == request["ttft_ms"]


def test_no_lever_is_for_decoding() -> None:
    made = plan(10.0, 1000, 1, setups=["colocated", "chunked"], slo={"ttft_ms": 1500})
    rows = {row["code"]: row for row in made.document()["advice"]}
    assert not {"speculative_decoding", "disaggregated", "fp8_kv"} & set(rows)
    assert "decode" not in rows["faster_gpu"]["message"]
    assert rows["faster_gpu"]["decode_speedup"] is None
    assert rows["faster_gpu"]["prefill_speedup"] > 1.0
    usual = {row["code"] for row in plan(10.0, 1000, 200).document()["advice"]}
    assert {"speculative_decoding", "faster_gpu"} <= usual


def test_predictions() -> None:
    one, two = predict([Point("llama-3.1-8b", "vllm", 500, output, "h100-sxm-80gb", concurrency=4)
                        for output in (1, 2)], catalog())
    assert one["tpot_ms"] is None
    assert one["ttft_ms"] > 0
    assert two["tpot_ms"] > 0
