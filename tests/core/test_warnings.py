"""What an option says of targets that it does not keep, and where that ranks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core_helpers import plan

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog
from planner.describe import warnings
from planner.setups.base import Latencies
from planner.sweeps.lean import cell_rows
from planner.workbook import words
from planner.workbook.plan import Plan

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def planned(**changed: Any) -> dict[str, Any]:
    """The code hour, bursts and answers of a few tokens, with something changed."""
    request = json.loads((EXAMPLES / "azure_code.json").read_text(encoding="utf-8"))
    return make(parse_plan({**request, "advice": False, **changed}), shipped_catalog()).document


def test_who_runs_alone_waits_for_no_other_prompt() -> None:
    late = dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), 1.0)
    seen = Latencies(late, late, lambda: late, late, 1.0)
    for most, told in ((None, True), (2, True), (1, False)):
        request = plan(2.0, 1000, 20, advice=False, limits={"max_sequences": most}).request
        [tpot] = warnings(seen, request)
        assert tpot.startswith("TPOT p90 is 1000.0 ms, above its target of 40 ms.")
        assert ("answers of 96 tokens" in tpot) is told


def test_options_that_miss_a_target_say_so_and_come_last() -> None:
    document = planned()
    missed = [bool(o["warnings"]) for o in document["options"]]
    assert True in missed
    assert missed == sorted(missed)
    for option in document["options"]:
        left = min(option["headroom"].values())
        assert bool(option["warnings"]) == (left < -1e-3)
        for warning in option["warnings"]:
            level = option["tpot_ms"]["p90"]
            assert warning.startswith(f"TPOT p90 is {level:.1f} ms, above its target of 50 ms.")
            assert "96 tokens" in warning


def test_a_plan_of_such_options_alone_does_not_say_that_it_meets_the_targets() -> None:
    document = planned(setups=["colocated"])
    assert document["recommended"]["warnings"]
    assert document["reason"].startswith("No option meets every target;")


def test_of_equal_fleets_one_that_keeps_the_targets_wins() -> None:
    """Short answers behind long prompts: the largest chunks are the fastest and stall the most."""
    request = {
        "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked"], "advice": False,
        "workload": {"requests_per_second": 20, "prompt_tokens": {"mean": 2000, "p95": 4000},
                     "output_tokens": 10}, "slo": {"ttft_ms": 3000, "tpot_ms": 30}}
    best, large = (make(parse_plan({**request, "limits": limits}), shipped_catalog())
                   .document["recommended"] for limits in ({}, {"token_budgets": [8192]}))
    assert best["gpus"] == large["gpus"]
    assert (bool(best["warnings"]), bool(large["warnings"])) == (False, True)


def test_an_option_ahead_of_them_is_compared_by_its_targets() -> None:
    document = planned()
    assert document["recommended"]["warnings"] == []
    assert "does not (TPOT p90 is" in document["reason"]


def test_advice_says_what_is_missed_and_what_would_still_miss_it() -> None:
    document = planned(setups=["colocated"], advice=True)
    advice = {row["code"]: row for row in document["advice"]}
    assert advice["misses_tpot"]["gpus_before"] == document["recommended"]["gpus"]
    assert advice["prefix_caching"]["message"].endswith("TPOT misses its target there.")
    two = advice["disaggregated"]
    assert "misses" not in two["message"]
    best = planned(setups=["disaggregated"])["recommended"]
    assert two["gpus_after"] == best["gpus"]
    assert best["warnings"] == []


def test_a_row_of_a_sweep_says_it_too() -> None:
    asked = json.loads((EXAMPLES / "azure_code.json").read_text(encoding="utf-8"))
    asked |= {"advice": False, "setups": ["colocated"]}
    row, = cell_rows(parse_plan(asked), shipped_catalog())
    assert row["status"] == "planned"
    assert row["detail"].startswith("TPOT p90 is")


def test_the_workbook_names_what_the_first_option_misses() -> None:
    plan = Plan(planned(setups=["colocated"]), {}, {})
    assert "but miss a target: TPOT p90 is" in words.answer(plan)
    assert "miss" not in words.answer(Plan(planned(), {}, {}))
