"""The example requests: the API takes them, and the real ones keep the figures of their trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.workload import Lengths, empirical

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.json"))

# Azure Public Dataset, AzureLLMInferenceTrace conv and code, 2023 (CC-BY 4.0), computed from the
# published rows: mean and p99 of prompt and output, peak minute, CV of gaps in that minute.
CONVERSATION = {"prompt": (1154.70, 4142), "output": (211.13, 601), "peak": 8.45, "cv": 1.01}
CODE = {"prompt": (2047.85, 7436), "output": (27.88, 251.46), "peak": 632 / 60, "cv": 4.79}
CODE_MEAN_RATE = 8819 / 3435.948


def load(name: str) -> dict[str, Any]:
    return dict(json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8")))


def lengths(points: list[dict[str, float]]) -> Lengths:
    return empirical([p["tokens"] for p in points], [p["share"] for p in points])


def test_there_are_enough() -> None:
    assert len(FILES) >= 8


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_api_takes_it(file: Path) -> None:
    schema = pytest.importorskip("planner.api.plan_schema")
    request = schema.parse_plan(json.loads(file.read_text(encoding="utf-8")))
    assert request.name


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_is_explained(file: Path) -> None:
    assert f"]({file.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "truth"),
                         [("azure_conversation", CONVERSATION), ("azure_code", CODE)])
def test_real_workload_keeps_the_trace(name: str, truth: dict[str, Any]) -> None:
    workload = load(name)["workload"]
    assert workload["requests_per_second"] == pytest.approx(truth["peak"], rel=1e-3)
    assert workload["arrival_cv"] == pytest.approx(truth["cv"], abs=0.005)
    for kind in ("prompt", "output"):
        points = workload[f"{kind}_tokens"]
        mean, p99 = truth[kind]
        assert len(points) <= 40
        assert sum(p["share"] for p in points) == pytest.approx(1.0, abs=1e-9)
        assert lengths(points).mean == pytest.approx(mean, rel=0.01)
        assert lengths(points).quantile(0.99) == pytest.approx(p99, rel=0.01)


def test_means_of_the_code_hour() -> None:
    at_peak, on_means = load("azure_code"), load("azure_code_means")
    workload = on_means["workload"]
    assert workload["requests_per_second"] == pytest.approx(CODE_MEAN_RATE, rel=1e-3)
    assert (workload["prompt_tokens"], workload["output_tokens"]) == (2048, 28)
    assert workload["arrival_cv"] == 1.0
    peak = at_peak["workload"]["requests_per_second"]
    assert peak / workload["requests_per_second"] == pytest.approx(4.1, abs=0.01)
    for document in (at_peak, on_means):
        del document["workload"], document["name"]
    assert at_peak == on_means, "the pair must differ in the workload alone"
