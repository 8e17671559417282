"""scripts/summarize_trace.py on small generated traces with known answers."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from planner.traces import statistics as described

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "summarize_trace.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("summarize_trace", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["summarize_trace"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """Two minutes, one request a second, then a minute with three a second; lengths 1 to 300."""
    times = [float(t) for t in range(120)] + [120 + i / 3 for i in range(180)]
    rows = [f"{t},{10 * (i + 1)},{i + 1}" for i, t in enumerate(times)]
    file = tmp_path / "trace.csv"
    file.write_text("timestamp,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    return file


def test_statistics(script: ModuleType, trace_file: Path) -> None:
    stats = described.statistics(script.load_trace(trace_file, False), 60.0)
    assert stats["requests"] == 300
    assert stats["requests_per_second_peak"] == 3.0
    assert stats["requests_per_second_mean"] == pytest.approx(300 / (120 + 179 / 3), rel=1e-3)
    assert stats["arrival_cv_peak"] == 0.0  # evenly spaced inside the peak minute
    assert stats["arrival_cv_whole"] > 0.4  # two rates mixed
    assert stats["output_tokens"]["mean"] == 150.5
    assert stats["prompt_tokens"]["p50"] == 1505.0


def test_peak_is_measured_inside_its_minute(script: ModuleType) -> None:
    rng = np.random.default_rng(1)
    quiet, busy = np.arange(0.0, 60.0, 2.0), 60.0 + np.sort(rng.uniform(0, 60, 1200))
    arrived = np.concatenate([quiet, busy])
    assert described.gap_cv(described.peak_window(arrived, 60.0)) == pytest.approx(1.0, abs=0.1)
    assert described.dispersion(busy, 60.0) == pytest.approx(1.0, abs=0.4)
    assert described.gap_cv(arrived) > 1.5


def test_points_keep_mean_and_percentiles(script: ModuleType) -> None:
    tokens = np.round(np.random.default_rng(2).lognormal(6.0, 1.0, 20_000)) + 1
    points = described.length_points(tokens)
    values, shares = (np.array([p[k] for p in points]) for k in ("tokens", "share"))
    assert len(points) <= 40
    assert shares.sum() == pytest.approx(1.0, abs=1e-9)
    assert values @ shares == pytest.approx(tokens.mean(), rel=0.002)
    p99 = values[np.searchsorted(np.cumsum(shares), 0.99)]
    assert p99 == pytest.approx(np.percentile(tokens, 99), rel=0.01)


def test_a_handful_of_requests_is_enough(script: ModuleType) -> None:
    points = described.length_points(np.array([5.0, 5.0, 9.0]))
    assert points == [{"tokens": 5, "share": pytest.approx(2 / 3, abs=1e-6)},
                      {"tokens": 9, "share": pytest.approx(1 / 3, abs=1e-6)}]


def test_into_keeps_the_rest_of_the_plan(script: ModuleType, trace_file: Path,
                                         tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"model": "llama-3.1-8b", "workload": {"prefix_cache_hit_rate": 0.5}}')
    assert script.main([str(trace_file), "--into", str(plan)]) == 0
    document = json.loads(plan.read_text())
    assert document["model"] == "llama-3.1-8b"
    assert document["workload"]["prefix_cache_hit_rate"] == 0.5
    assert document["workload"]["requests_per_second"] == 3.0


def test_on_means(script: ModuleType, trace_file: Path,
                  capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([str(trace_file), "--on-means"]) == 0
    workload = json.loads(capsys.readouterr().out)["workload"]
    assert workload == {"requests_per_second": pytest.approx(1.67, abs=0.01), "arrival_cv": 1.0,
                        "prompt_tokens": 1505, "output_tokens": 150}


def test_published_columns_and_dates(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                    "2023-11-16 18:17:03.9799600,4808,10\n"
                    "2023-11-16 18:17:04.0319600,3180,8\n"
                    "2023-11-16 18:17:05.9799600,110,27\n")
    trace = script.load_trace(file, False)
    assert trace.arrived_at_s.tolist() == pytest.approx([0.0, 0.052, 2.0])
    assert trace.output_tokens.tolist() == [10, 8, 27]


@pytest.mark.parametrize(("text", "message"), [
    ("timestamp,prompt_tokens\n1,2\n", "no column 'output_tokens'"),
    ("timestamp,prompt_tokens,output_tokens\n1,2,3\n", "at least three requests"),
    ("timestamp,prompt_tokens,output_tokens\n1,2,3\n2,0,3\n3,1,1\n", "row 2 has prompt_tokens '0'"),
])
def test_bad_traces_are_refused(script: ModuleType, tmp_path: Path, text: str, message: str,
                                capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    assert script.main([str(file)]) == 2
    assert message in capsys.readouterr().err
