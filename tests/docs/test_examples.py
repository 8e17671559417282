"""The example requests: the API takes them, and the real ones keep the figures of their trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.api.budget_schema import parse_budget
from planner.api.plan_schema import parse_plan
from planner.arrivals import split_arrival_cv2
from planner.budget.budget import make_budget
from planner.catalog.shipped import shipped_catalog
from planner.requests import Layout
from planner.roofline import Deployment
from planner.setups.base import Latencies, build_table
from planner.setups.chunked import Chunked
from planner.workload import Lengths, empirical

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BUDGETS = [EXAMPLES / "budget.json"]
FILES = sorted(set(EXAMPLES.glob("*.json")) - set(BUDGETS))

# Azure Public Dataset, AzureLLMInferenceTrace conv and code, 2023 (CC-BY 4.0), computed from the
# published rows: mean and p99 of prompt and output, peak minute, CV of gaps in that minute.
CONVERSATION = {"prompt": (1154.70, 4142), "output": (211.13, 601), "peak": 8.45, "cv": 1.01}
CODE = {"prompt": (2047.85, 7436), "output": (27.88, 251.46), "peak": 632 / 60, "cv": 4.79}
CODE_MEAN_RATE = 8819 / 3435.948


def load(name: str) -> dict[str, Any]:
    return dict(json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8")))


def lengths(points: list[dict[str, float]]) -> Lengths:
    return empirical([p["tokens"] for p in points], [p["share"] for p in points])


def test_the_budget_costs_what_its_row_says() -> None:
    result = make_budget(parse_budget(load("budget")), shipped_catalog())
    low, base, high = (sum(scene.months.effective_cost) for scene in result.scenes)
    row = next(line for line in (EXAMPLES / "README.md").read_text(encoding="utf-8").splitlines()
               if line.startswith("| [budget.json]"))
    for figure in (low, base, high, base - sum(result.what_if[1].effective_cost)):
        assert f"{figure:,.0f}" in row


def test_there_are_enough() -> None:
    assert len(FILES) >= 8


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_api_takes_it(file: Path) -> None:
    request = parse_plan(json.loads(file.read_text(encoding="utf-8")))
    assert request.name


@pytest.mark.parametrize("file", BUDGETS, ids=lambda f: f.stem)
def test_api_takes_the_budget(file: Path) -> None:
    request = parse_budget(json.loads(file.read_text(encoding="utf-8")))
    assert all(w.name for w in request.workloads)


@pytest.mark.parametrize("file", [*FILES, *BUDGETS], ids=lambda f: f.stem)
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


def replicas_of_the_means_plan(name: str, replicas: int) -> tuple[float, Latencies | None]:
    """Prefill load, and latencies, of so many of its replicas under a workload."""
    catalog, request = shipped_catalog(), parse_plan(load(name))
    gpu = catalog.gpu("h100-sxm-80gb")
    deployment = Deployment(catalog.llm("llama-3.1-70b"), gpu, "fp8", "fp8", Layout(tensor=2),
                            catalog.engine("vllm", gpu, "fp8"))
    workload = request.workload
    table = build_table(deployment, workload, request.limits)
    source = Chunked(table, 8192)
    rate = workload.requests_per_s / replicas
    seen = source.latencies(rate, split_arrival_cv2(workload.arrival_cv, replicas),
                            int(source.caps[-1]))
    return rate * float(table.prefill_s @ table.prompt_weights), seen


def test_planning_on_means_fails() -> None:
    """The figures that examples/README.md quotes."""
    load_on_means, seen = replicas_of_the_means_plan("azure_code_means", 1)
    assert load_on_means < 0.4
    assert seen is not None
    assert seen.ttft_s["p90"] == pytest.approx(0.325, rel=0.05)
    load_at_peak, seen = replicas_of_the_means_plan("azure_code", 1)
    assert load_at_peak == pytest.approx(1.38, rel=0.05)
    assert seen is None, "the queue grows without end"
    for replicas, ttft_s in ((2, 7.671), (4, 2.013), (8, 0.982), (9, 0.900)):
        _, seen = replicas_of_the_means_plan("azure_code", replicas)
        assert seen is not None
        assert seen.ttft_s["p90"] == pytest.approx(ttft_s, rel=0.1)
