"""What an option says of targets that it does not keep, and where that ranks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def planned(**changed: Any) -> dict[str, Any]:
    """The code hour, bursts and answers of a few tokens, with something changed."""
    request = json.loads((EXAMPLES / "azure_code.json").read_text(encoding="utf-8"))
    return make(parse_plan({**request, "advice": False, **changed}), shipped_catalog()).document


def test_options_that_miss_a_target_say_so_and_come_last() -> None:
    document = planned()
    missed = [bool(o["warnings"]) for o in document["options"]]
    assert True in missed
    assert missed == sorted(missed)
    for option in document["options"]:
        left = min(option["headroom"].values())
        assert bool(option["warnings"]) == (left < -1e-3)
        for words in option["warnings"]:
            level = option["tpot_ms"]["p90"]
            assert words.startswith(f"Misses its target: tpot p90 is {level:.1f} ms")
            assert "96 tokens" in words


def test_a_plan_of_such_options_alone_does_not_say_that_it_meets_the_targets() -> None:
    document = planned(setups=["colocated"])
    assert document["recommended"]["warnings"]
    assert document["reason"].startswith("No option meets every target.")


def test_an_option_ahead_of_them_is_compared_by_its_targets() -> None:
    document = planned()
    assert document["recommended"]["warnings"] == []
    assert "does not: Misses its target: tpot" in document["reason"]
