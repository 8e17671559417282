"""What a refusal names: of the layouts of a GPU the one that comes nearest to the targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CATALOG = shipped_catalog()


def refused(setup: str, **changes: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """The answer, and by GPU the smallest time that a detail names [ms]."""
    request = json.loads((EXAMPLES / "chat.json").read_text(encoding="utf-8"))
    request |= {"setups": [setup], "advice": False, **changes}
    request["workload"]["requests_per_second"] = 1
    document = make(parse_plan(request), CATALOG).document
    least: dict[str, float] = {}
    for row in document["infeasible"]:
        if row["reason"] not in ("memory", "max_gpus"):
            found = float(row["detail"].split(" is ")[1].split(" ms")[0])
            least[row["gpu"]] = min(found, least.get(row["gpu"], found))
    return document, least


@pytest.mark.parametrize("slo", [{"tpot_ms": 5}, {"ttft_ms": 5}])
def test_two_pools_name_the_layout_that_is_least_over(slo: dict[str, float]) -> None:
    """Not the first layout that was refused; each pool alone is as fast as one pool is."""
    document, two = refused("disaggregated", slo=slo)
    assert document["recommended"] is None
    _, one = refused("colocated", slo=slo)
    assert two == one
    [nearest] = {f"{ms:.1f} ms" for ms in [min(two.values())]}
    assert nearest in document["reason"]


def test_a_layout_that_holds_alone_is_nearer_than_one_that_is_late() -> None:
    """With few GPUs allowed the reason is their number, although smaller layouts are too late."""
    request = {"slo": {"tpot_ms": 10, "ttft_ms": 4000}, "gpus": ["h100-sxm-80gb"]}
    held, _ = refused("disaggregated", **request)
    assert held["recommended"]["pools"][1]["tensor_parallel"] == 8
    limits = {"max_gpus": 8, "spare_replicas": 0}
    document, _ = refused("disaggregated", **request, limits=limits)
    [row] = [r for r in document["infeasible"] if r["reason"] != "memory"]
    assert (row["reason"], "max_gpus" in row["detail"]) == ("max_gpus", True)
