"""Output tokens per second and GPU of published systems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.calibration.report import accuracy_report
from planner.calibration.run import MLPERF_WEIGHT, offline_points, prior_catalog
from planner.calibration.throughput import (
    LIMITED,
    SATURATING,
    TPOT_TAIL,
    ThroughputRow,
    best_points,
    read_throughput,
    throughput_errors,
    write_throughput,
)
from planner.catalog.shipped import shipped_catalog
from planner.prediction import Point, predict
from planner.requests import Layout

ROW = ThroughputRow("MLPerf", "server", "llama-3.1-8b", "h100-sxm-80gb", "vllm", "", "fp8", "fp8",
                    0, 1, 1, 8, 778.0, 128.0, 0.0, 2000.0, 100.0, 5000.0, "x")


def test_errors_stay_where_they_are() -> None:
    rows = {row["name"]: row for row in accuracy_report(shipped_catalog(), "phase")["throughput"]}
    assert rows["all"]["coverage"] == 1.0
    assert rows["all"]["median_ape"] <= 0.135
    assert rows["InferenceMAX closed loop"]["median_ape"] <= 0.06
    assert rows["TensorRT-LLM offline"]["median_ape"] <= 0.17
    assert rows["MLPerf offline"]["median_ape"] <= 0.11
    assert rows["MLPerf server"]["median_ape"] <= 0.13


def test_a_row_without_a_layout_asks_for_each_that_a_host_has() -> None:
    asked = ROW.points()
    assert {p.layout.tensor for p in asked} == {1, 2, 4, 8}
    assert {p.concurrency for p in asked} == set(LIMITED)


def test_a_tighter_limit_of_tpot_serves_no_more() -> None:
    rows = [ThroughputRow(**{**{n: getattr(ROW, n) for n in ROW.__dataclass_fields__},
                             "tpot_p99_ms": limit}) for limit in (200.0, 40.0, 12.0, 0.01)]
    reached = 1.0 + throughput_errors(rows, shipped_catalog())
    assert reached[0] >= reached[1] >= reached[2] > 0
    assert np.isnan(reached[3])


def test_the_mean_keeps_a_limit_at_the_99th_percentile_with_its_usual_tail() -> None:
    (_, point), = best_points([ROW], shipped_catalog())
    assert point is not None
    answer, = predict([point], shipped_catalog())
    assert answer["tpot_ms"] * TPOT_TAIL <= ROW.tpot_p99_ms


@pytest.mark.parametrize(("model", "gpu", "weights", "least"), [
    ("llama-3.1-405b", "h200-sxm-141gb", "fp8", 4),  # 406 GB of weights, 151 GB a GPU
    ("llama-3.1-405b", "h100-sxm-80gb", "fp8", 8),
    ("llama-2-70b", "l40s", "fp8", 2),
])
def test_no_layout_is_asked_that_does_not_hold_the_model(model: str, gpu: str, weights: str,
                                                         least: int) -> None:
    row = replace(ROW, scenario="offline", model=model, gpu=gpu, engine="tensorrt-llm",
                  weights=weights, tpot_p99_ms=0.0, ttft_p99_ms=0.0)
    (_, point), = best_points([row], shipped_catalog())
    assert point is not None
    assert point.layout.tensor >= least


def test_results_that_repeat_a_submission_share_their_weight_in_a_fit() -> None:
    catalog = prior_catalog(shipped_catalog())
    rows = read_throughput()
    points = offline_points(rows, catalog)
    shares: dict[tuple[object, ...], float] = {}
    for p in points:
        row = next(r for r in rows if r.source == p.source)
        assert row.scenario == "offline"
        tokens = (p.concurrency or 0.0) / p.tpot_s / p.gpus
        assert tokens == pytest.approx(row.output_tokens_per_s_per_gpu)
        if row.suite == "MLPerf":
            key = p.model, p.gpu, p.engine, p.weights
            shares[key] = shares.get(key, 0.0) + p.weight
        else:
            assert p.weight == 1.0
    assert len(shares) >= 10
    assert max(shares.values()) == pytest.approx(MLPERF_WEIGHT)


def test_a_saturated_loop_keeps_littles_law() -> None:
    answer, = predict([Point("llama-3.1-8b", "vllm", 1000, 200, "h100-sxm-80gb", Layout(),
                             "colocated", "fp8", None, SATURATING)], shipped_catalog())
    assert answer["saturated"]
    residence_s = (answer["ttft_ms"] + 199 * answer["tpot_ms"]) / 1e3
    assert answer["output_tokens_per_s"] == pytest.approx(SATURATING * 200 / residence_s)
    more, = predict([Point("llama-3.1-8b", "vllm", 1000, 200, "h100-sxm-80gb", Layout(),
                           "colocated", "fp8", None, 2 * SATURATING)], shipped_catalog())
    assert more["output_tokens_per_s"] == pytest.approx(answer["output_tokens_per_s"], rel=1e-3)


def test_rows_survive_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "throughput.csv"
    write_throughput([ROW], path)
    assert read_throughput(path) == [ROW]
    assert len({row.source for row in read_throughput()}) == len(read_throughput())
