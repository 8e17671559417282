"""The golden table, the report on it, and the bounds that predictions must keep."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.golden import (
    GOLDEN,
    GoldenRow,
    read_golden,
    read_left_out,
    write_golden,
    write_left_out,
)
from planner.calibration.report import DIMENSIONS, accuracy_report, errors_of, statistics
from planner.catalog.shipped import shipped_catalog


@pytest.fixture(scope="module")
def golden() -> list[GoldenRow]:
    return read_golden()


def test_predictions_stay_as_close_as_they_were(golden: list[GoldenRow]) -> None:
    rows = [r for r in golden if r.decode is None]
    report = accuracy_report(shipped_catalog(), "phase", rows)["overall"]
    assert report["tpot"]["coverage"] == report["ttft"]["coverage"] == 1.0
    assert report["tpot"]["median_ape"] <= 0.10
    assert report["ttft"]["median_ape"] <= 0.35


def test_disaggregated_predictions_stay_as_close_as_they_were(golden: list[GoldenRow]) -> None:
    rows = [r for r in golden if r.decode is not None]
    report = accuracy_report(shipped_catalog(), "phase", rows)["overall"]
    assert report["tpot"]["coverage"] == 1.0
    assert report["tpot"]["median_ape"] <= 0.25


def test_the_table_spans_what_was_measured(golden: list[GoldenRow]) -> None:
    assert 300 <= len(golden) <= 400
    points = [r.measured for r in golden]
    assert len({p.gpu for p in points}) >= 6
    assert {p.engine for p in points} == {"vllm", "sglang", "tensorrt-llm"}
    assert len({p.model for p in points}) >= 8
    assert all(p.source and p.ttft_s > 0 and p.tpot_s > 0 for p in points)


def test_the_table_survives_a_round_trip(golden: list[GoldenRow], tmp_path: Path) -> None:
    bare = [replace(r, measured=replace(r.measured, source=r.measured.source.partition(" (")[0]))
            for r in golden]
    write_golden(bare, tmp_path / "golden.csv")
    assert (tmp_path / "golden.csv").read_bytes() == GOLDEN.read_bytes()


def test_every_dimension_covers_every_point(golden: list[GoldenRow]) -> None:
    report = accuracy_report(shipped_catalog())
    for name in DIMENSIONS:
        rows = [r for r in report["by"][name] if r["metric"] == "tpot"]
        assert sum(r["points"] for r in rows) == len(golden)
    assert [r["name"] for r in report["by"]["phase"]] == ["decode", "prefill"]
    assert report["peer"]["tpot"]["median_ape"] == 0.172


def test_one_breakdown_is_that_of_the_whole_report() -> None:
    catalog = shipped_catalog()
    assert accuracy_report(catalog, "gpu")["by"] == {"gpu": accuracy_report(catalog)["by"]["gpu"]}


def test_points_that_the_catalog_does_not_know_are_not_covered(golden: list[GoldenRow]) -> None:
    catalog = shipped_catalog()
    known = {k: v for k, v in catalog.gpus.items() if k != "mi300x"}
    report = accuracy_report(replace(catalog, gpus=known), rows=golden)
    mi300x = next(r for r in report["by"]["gpu"] if r["name"] == "mi300x")
    assert mi300x["coverage"] == 0.0
    assert mi300x["median_ape"] is None
    assert 0.9 < report["overall"]["tpot"]["coverage"] < 1.0


def test_statistics_are_those_of_the_definition() -> None:
    errors = np.array([-0.5, -0.1, 0.1, 0.2, 1.0, math.nan])
    found = statistics(errors)
    assert (found["points"], found["coverage"]) == (6, round(5 / 6, 4))
    assert (found["median_ape"], found["bias"]) == (0.2, 0.1)
    assert found["mean_ape"] == pytest.approx(1.9 / 5)
    assert found["p90_ape"] == pytest.approx(np.quantile([0.5, 0.1, 0.1, 0.2, 1.0], 0.9))


def test_errors_keep_the_order_of_the_points(golden: list[GoldenRow]) -> None:
    some = golden[::40]
    whole = errors_of([r.measured for r in some], [r.point for r in some], shipped_catalog())
    for place, row in enumerate(some):
        alone = errors_of([row.measured], [row.point], shipped_catalog())
        assert alone.tpot[0] == pytest.approx(whole.tpot[place])


def test_left_out_errors_ship_and_survive_a_round_trip(tmp_path: Path) -> None:
    rows = read_left_out()
    assert {r.kind for r in rows} == {"sample", "configuration", "model", "gpu"}
    write_left_out(rows, tmp_path / "left_out.csv")
    assert read_left_out(tmp_path / "left_out.csv") == rows
    assert read_left_out(tmp_path / "nothing.csv") == []
