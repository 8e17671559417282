"""Published benchmark points that come with the project, and the prediction that each asks for.

``golden.csv`` is a sample over GPUs, engines, models and concurrency, small enough to ship, so
that the accuracy report and a regression test run anywhere. ``left_out.csv`` has what no shipped
sample can show: the errors on models and GPUs that a fit had not seen.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from planner.calibration.features import layout_of
from planner.calibration.points import MeasuredPoint
from planner.prediction import Point, WorkerPool
from planner.requests import Layout
from planner.units import ms_to_s, s_to_ms

GOLDEN = Path(__file__).parent / "golden.csv"
LEFT_OUT = Path(__file__).parent / "left_out.csv"
COLUMNS = ("model", "gpu", "engine", "engine_version", "setup", "weights", "tp", "dp", "ep",
           "workers", "batch_size", "prefill_tp", "prefill_dp", "prefill_ep", "prefill_workers",
           "concurrency", "prompt_tokens", "output_tokens", "ttft_ms", "tpot_ms", "statistic",
           "source", "date")
"""Columns of the table. ``tp dp ep workers batch_size`` of a disaggregated row are those of its
decode pool; ``batch_size`` is per rank."""


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One published point; a disaggregated one has both pools."""

    measured: MeasuredPoint
    prefill: WorkerPool | None = None
    decode: WorkerPool | None = None

    @property
    def point(self) -> Point:
        """What to predict."""
        return point_of(self.measured, self.prefill, self.decode)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Errors on points of one kind that a fit had not seen (``sample``: that it had).

    Attributes
    ----------
    kind : str
        ``configuration``, ``model`` or ``gpu``, or ``sample`` where nothing was left out.
    name, engine : str
        What was left out, and of which engine; ``*`` for all. Of a sample: the set-up.
    n : int
    tpot_median, tpot_mean, ttft_median : float
        Absolute relative errors.
    """

    kind: str
    name: str
    engine: str
    n: int
    tpot_median: float
    tpot_mean: float
    ttft_median: float


def point_of(measured: MeasuredPoint, prefill: WorkerPool | None = None,
             decode: WorkerPool | None = None, engine: str | None = None) -> Point:
    """The prediction that a measured point asks for; ``engine`` replaces the measured one."""
    assert measured.model is not None
    return Point(
        measured.model, engine or measured.engine or "", measured.prompt_tokens,
        measured.output_tokens, measured.gpu, layout_of(measured), measured.setup or "colocated",
        measured.weights, measured.kv,
        None if measured.requests_per_second else measured.concurrency,
        measured.requests_per_second, 1, prefill, decode)


def read_golden(path: Path = GOLDEN) -> list[GoldenRow]:
    """The rows of a golden table."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_row(row, f"{path.name}:{line}")
                for line, row in enumerate(csv.DictReader(file), start=2)]


def _row(row: dict[str, str], place: str) -> GoldenRow:
    degrees = {name: int(row[name]) for name in ("tp", "dp", "ep")}
    measured = MeasuredPoint(
        float(row["prompt_tokens"]), float(row["output_tokens"]), ms_to_s(float(row["ttft_ms"])),
        ms_to_s(float(row["tpot_ms"])), row["statistic"], row["statistic"],
        f"{row['source']} ({place})", row["model"], row["gpu"], row["engine"],
        row["engine_version"], row["setup"], row["weights"],
        tensor_parallel=degrees["tp"], pipeline_parallel=1, expert_parallel=degrees["ep"],
        data_parallel=degrees["dp"], concurrency=float(row["concurrency"]), date=row["date"])
    if row["setup"] != "disaggregated":
        return GoldenRow(measured)
    prefill = Layout(int(row["prefill_tp"]), 1, int(row["prefill_ep"]), int(row["prefill_dp"]))
    batch = int(row["batch_size"]) if row["batch_size"] else None
    return GoldenRow(measured, WorkerPool(row["gpu"], prefill, int(row["prefill_workers"])),
                     WorkerPool(row["gpu"], layout_of(measured), int(row["workers"]), batch))


def write_golden(rows: Iterable[GoldenRow], path: Path = GOLDEN) -> None:
    """Write a golden table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_cells(row) for row in rows)


def _cells(row: GoldenRow) -> list[str]:
    point, layout = row.measured, layout_of(row.measured)
    pools = [""] * 6
    if row.prefill and row.decode:
        first = row.prefill.layout
        pools = [str(row.decode.replicas), str(row.decode.batch_size or ""), str(first.tensor),
                 str(first.data), str(first.expert), str(row.prefill.replicas)]
    return [point.model or "", point.gpu or "", point.engine or "", point.engine_version or "",
            point.setup or "", point.weights or "", str(layout.tensor), str(layout.data),
            str(layout.expert), *pools, _short(point.concurrency or 0.0),
            _short(point.prompt_tokens), _short(point.output_tokens),
            _short(s_to_ms(point.ttft_s)), _short(s_to_ms(point.tpot_s)), point.tpot_statistic,
            point.source, point.date]


def _short(value: float) -> str:
    return f"{value:.5g}" if value < 1e5 else f"{value:.0f}"


def read_left_out(path: Path = LEFT_OUT) -> list[LeftOut]:
    """The rows of a table of left-out errors."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [LeftOut(row["kind"], row["name"], row["engine"], int(row["n"]),
                        float(row["tpot_median"]), float(row["tpot_mean"]),
                        float(row["ttft_median"])) for row in csv.DictReader(file)]


def write_left_out(rows: Iterable[LeftOut], path: Path = LEFT_OUT) -> None:
    """Write a table of left-out errors."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(LeftOut.__dataclass_fields__)
        writer.writerows((r.kind, r.name, r.engine, r.n, *(f"{x:.4f}" for x in (
            r.tpot_median, r.tpot_mean, r.ttft_median))) for r in rows)
