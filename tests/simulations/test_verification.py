"""Plans that are verified: replicas are added until the simulation holds, and the plan says so."""

from __future__ import annotations

from typing import Any

import pytest

from planner import verification
from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog
from planner.fleet import Fleet
from planner.wording import gpus

REQUEST = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb", "l40s"],
           "setups": ["chunked", "disaggregated"], "advice": False,
           "workload": {"requests_per_second": 8, "prompt_tokens": {"mean": 800, "p95": 2000},
                        "output_tokens": 100}, "slo": {"ttft_ms": 1000, "tpot_ms": 40},
           "limits": {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048]}}


class Seen:
    """A simulation that misses a target until a pool is large enough."""

    def __init__(self, fleet: Fleet, metric: str, enough: int) -> None:
        roles = {p.pool.role: p.pool.replicas for p in fleet.pools}
        pool = roles.get({"ttft": "prefill", "tpot": "decode"}[metric], roles.get("serve", 0))
        self.missed = [metric] if pool < enough else []

    def missed_slos(self) -> list[str]:
        return self.missed

    def document(self) -> dict[str, Any]:
        figure = {"p90": 1.0}
        return {"requests": 100, "attainment": {"all": 1.0},
                "observed": {f"{m}_ms": figure for m in ("ttft", "tpot", "itl", "e2e")}}


def verified(monkeypatch: pytest.MonkeyPatch, metric: str, enough: int, **changes: Any) -> Any:
    monkeypatch.setattr(verification, "_simulated",
                        lambda fleet, *_: Seen(fleet, metric, enough))
    plain = make(parse_plan({**REQUEST, **changes}), shipped_catalog()).document
    checked = make(parse_plan({**REQUEST, **changes, "verify": True}), shipped_catalog()).document
    return plain, checked


def replicas(option: dict[str, Any], role: str) -> int:
    return next((p["replicas"] for p in option["pools"] if p["role"] in (role, "serve")), 0)


def test_what_holds_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, checked = verified(monkeypatch, "ttft", 0)
    assert [o["gpus"] for o in plain["options"]] == [o["gpus"] for o in checked["options"]]
    shown = ["verification" in o for o in checked["options"]]
    assert shown == [i < verification.VERIFIED_OPTIONS for i in range(len(shown))]
    assert checked["options"][0]["verification"]["held"]
    assert checked["options"][0]["verification"]["missed_as_planned"] == []
    assert checked["advice"] == []
    assert checked["request"]["verify"] is True


@pytest.mark.parametrize(("metric", "role"), [("ttft", "prefill"), ("tpot", "decode")])
def test_replicas_are_added_where_they_help(monkeypatch: pytest.MonkeyPatch, metric: str,
                                            role: str) -> None:
    plain, checked = verified(monkeypatch, metric, 5)
    for option in checked["options"][:verification.VERIFIED_OPTIONS]:
        before = next(o for o in plain["options"] if o["setup"] == option["setup"]
                      and [p["gpu"] for p in o["pools"]] == [p["gpu"] for p in option["pools"]])
        found = option["verification"]
        assert found["held"]
        assert found["missed_as_planned"] == [metric]
        assert replicas(option, role) == 5
        added = sum(p["replicas"] for p in option["pools"]) - sum(
            p["replicas"] for p in before["pools"])
        assert found["added_replicas"] == added == 5 - replicas(before, role)
        assert found["gpus_before"] == before["gpus"] < option["gpus"]
        assert option["usd_per_hour"] > before["usd_per_hour"]
        assert option["ttft_ms"]["p90"] <= before["ttft_ms"]["p90"] + 1e-9
    assert [o["rank"] for o in checked["options"]] == list(range(1, len(plain["options"]) + 1))
    line = checked["advice"][0]
    assert line["code"] == "verification"
    assert metric.upper() in line["message"]
    assert line["gpus_after"] == checked["options"][0]["gpus"]


def test_what_cannot_be_mended_is_last(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, checked = verified(monkeypatch, "ttft", 10**6)
    assert sorted(o["gpus"] for o in plain["options"]) == sorted(
        o["gpus"] for o in checked["options"]), "nothing is added in vain"
    assert not checked["options"][-1]["verification"]["held"]
    assert "do not count on this option" in checked["advice"][0]["message"]


def test_max_gpus_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {**REQUEST["limits"], "max_gpus": 3}
    _, checked = verified(monkeypatch, "ttft", 50, limits=limits)
    assert all(o["gpus"] <= 3 for o in checked["options"])


def test_a_real_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "REQUESTS", 500)
    plan = make(parse_plan({**REQUEST, "gpus": ["h100-sxm-80gb"], "setups": ["chunked"],
                            "verify": True}), shipped_catalog()).document
    found = plan["recommended"]["verification"]
    assert found["held"]
    assert found["requests"] == 500
    assert found["observed"]["tpot_ms"]["p90"] <= 40
    assert found["attainment"]["all"] > 0.8


def test_measured_workers_cannot_be_verified() -> None:
    from planner.api.validation import InvalidDocument

    with pytest.raises(InvalidDocument) as found:
        parse_plan({**REQUEST, "verify": True, "measured": {"serve": {"requests_per_second": 5}}})
    assert found.value.pointer == "/verify"


TWO_LAYOUTS: dict[str, Any] = {
    "setups": ["chunked"], "gpus": ["h100-sxm-80gb"],
    "limits": {"layouts": [{"tensor_parallel": 1}, {"tensor_parallel": 2}],
               "token_budgets": [2048]}}


def tensor(fleet: Fleet) -> int:
    return fleet.sized.pools[0].deployment.layout.tensor


def in_layouts(monkeypatch: pytest.MonkeyPatch, held: tuple[int, ...]) -> dict[str, Any]:
    """A verified plan of which only some tensor degrees hold, whatever the replicas."""
    monkeypatch.setattr(verification, "_simulated", lambda fleet, *_: Seen(
        fleet, "tpot", 0 if tensor(fleet) in held else 10**6))
    return make(parse_plan({**REQUEST, **TWO_LAYOUTS, "verify": True}), shipped_catalog()).document


def test_another_layout_takes_the_place_of_one_that_replicas_do_not_mend(
        monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make(parse_plan({**REQUEST, **TWO_LAYOUTS}), shipped_catalog()).document
    [before] = plain["options"]
    assert before["pools"][0]["tensor_parallel"] == 1
    checked = in_layouts(monkeypatch, (2,))
    [option] = checked["options"]
    assert option["pools"][0]["tensor_parallel"] == 2
    assert option["verification"]["held"]
    assert checked["recommended"] == option
    [line] = [a for a in checked["advice"] if a["code"] == "verification"]
    assert f"missed its target of TPOT at {gpus(before['gpus'])}" in line["message"]
    assert "(tensor parallel 1, chunks of 2,048)" in line["message"]
    assert f"(tensor parallel 2, chunks of 2,048) it holds at {option['gpus']}" in line["message"]
    assert (line["gpus_before"], line["gpus_after"]) == (before["gpus"], option["gpus"])


def test_where_no_layout_holds_the_first_stays_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = in_layouts(monkeypatch, ())
    [option] = checked["options"]
    assert not option["verification"]["held"]
    assert option["pools"][0]["tensor_parallel"] == 1
    assert option["warnings"] == ["The simulation misses the target of TPOT."]
    [line] = [a for a in checked["advice"] if a["code"] == "verification"]
    assert "no other layout that was tried holds" in line["message"]


def test_short_answers_get_the_layout_that_holds_with_the_fewest_gpus() -> None:
    """More replicas of the first one would take 52 GPUs."""
    request = {"model": "llama-3.1-70b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked"],
               "workload": {"requests_per_second": 60, "prompt_tokens": 2000, "output_tokens": 8},
               "precisions": [{"weights": "fp8", "kv": "fp8"}],
               "slo": {"ttft_ms": 1000, "tpot_ms": 60}, "verify": True}
    plan = make(parse_plan(request), shipped_catalog()).document
    best = plan["recommended"]
    assert best["verification"]["held"]
    assert best["gpus"] <= 40
    assert best["warnings"] == []
    assert not any(a["code"].startswith("misses_") for a in plan["advice"])
