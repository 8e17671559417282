"""Build the golden table, the left-out errors and the accuracy plots from a data folder.

    python -m scripts.build_accuracy_golden DATA    # golden.csv, left_out.csv, docs/img
    python -m scripts.build_accuracy_golden         # only docs/img, from the shipped table

DATA holds ``serving_curves.csv`` and ``published_benchmarks.csv`` (docs/accuracy.md). Run it after
``flask calibrate --data DATA --write planner/catalog/engines.csv``: the errors are of the shipped
profiles and of fits made the same way.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.calibration import datasets
from planner.calibration.fit import FOLDS, folds
from planner.calibration.golden import (
    GoldenRow,
    LeftOut,
    read_golden,
    write_golden,
    write_left_out,
)
from planner.calibration.points import MeasuredPoint
from planner.calibration.profiles import fit_all
from planner.calibration.report import Errors, answerable, band_of, errors_of
from planner.calibration.run import offline_points, prior_catalog, profiles_of, split_known
from planner.calibration.throughput import write_throughput
from planner.catalog.book import Catalog
from planner.catalog.shipped import shipped_catalog
from planner.prediction import WorkerPool
from planner.requests import Layout
from planner.units import ms_to_s

AGGREGATED, SPLIT = 330, 40
"""Rows of the golden table from each kind of set-up."""
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "img"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SOURCES = {"serving_curves.csv": "AIConfigurator sample of InferenceX and vendor runs, Apache-2.0",
            "published_benchmarks.csv": "InferenceX run artifacts, Apache-2.0"}


def main(arguments: Sequence[str]) -> None:
    """Build everything, or only the plots."""
    catalog = shipped_catalog()
    if arguments:
        folder = Path(arguments[0])
        points = [tidy(p, catalog) for p in split_known(datasets.load(folder), catalog)[0]]
        split = [r for path in sorted(folder.rglob("serving_curves.csv")) for r in split_rows(path)]
        write_golden(spread(points, AGGREGATED, catalog) + every_nth(split, SPLIT))
        full = datasets.load_throughput(folder)
        known = [r for r in full if answerable(r.points()[0], catalog)]
        write_throughput(known)
        write_left_out(left_out(points, split, catalog, offline_points(full, catalog)))
    IMAGES.mkdir(exist_ok=True)
    golden = read_golden()
    errors = errors_of([r.measured for r in golden], [r.point for r in golden], catalog)
    for phase, title in (("tpot", "Time per output token"), ("ttft", "Time to first token")):
        (IMAGES / f"accuracy_{phase}.svg").write_text(plot(golden, errors, phase, title))


# -- the golden table ---------------------------------------------------------------------------


def tidy(point: MeasuredPoint, catalog: Catalog) -> MeasuredPoint:
    """A point as the table keeps it: the catalog's model, the origin, a date or none."""
    assert point.model is not None
    date = point.date if _DATE.fullmatch(point.date) else ""
    return replace(point, model=catalog.llm(point.model).slug, date=date,
                   source=_SOURCES[point.source.split(":")[0]])


def spread(points: Iterable[MeasuredPoint], most: int, catalog: Catalog) -> list[GoldenRow]:
    """About ``most`` points, one after another from each GPU, engine, model and load."""
    cells: dict[tuple[object, ...], list[MeasuredPoint]] = defaultdict(list)
    for p in {_order(p): p for p in points}.values():  # some runs are in both tables
        if math.isfinite(p.ttft_s):
            cells[p.gpu, p.engine, p.model, p.weights, band_of(p)].append(p)
    random = np.random.default_rng(0)
    for members in cells.values():
        random.shuffle(members)
    turns = [(turn, place, p) for place, members in enumerate(cells.values())
             for turn, p in enumerate(members)]
    chosen = [p for _, _, p in sorted(turns, key=lambda t: t[:2])[:most]]
    return [GoldenRow(p) for p in sorted(chosen, key=_order)]


def _order(p: MeasuredPoint) -> tuple[object, ...]:
    return (p.gpu, p.engine, p.model, p.weights, p.tensor_parallel, p.prompt_tokens,
            p.output_tokens, p.concurrency)


def every_nth(found: Sequence[GoldenRow], most: int) -> list[GoldenRow]:
    """At most ``most`` rows, evenly from the whole list."""
    places = np.linspace(0, len(found) - 1, min(most, len(found))).astype(int)
    return [found[i] for i in places]


def split_rows(path: Path) -> Iterator[GoldenRow]:
    """Disaggregated rows of a table of serving curves that state their pools."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            load = datasets._CONCURRENCY.search(row["silicon_data_source"])
            if (row["mode"] == "disagg" and load and row["silicon_ttft_ms"]
                    and row["prefill_num_workers"] and row["decode_num_workers"]):
                yield _split_row(row, float(load.group(1)))


def _split_row(row: dict[str, str], concurrency: float) -> GoldenRow:
    origin = row["silicon_data_source"]
    ratio = datasets.LENGTH_RATIO if datasets._NOMINAL.search(origin) else 1.0
    first, second = _pool(row, "prefill"), _pool(row, "decode")
    date = datasets._MEASURED.search(origin)
    measured = MeasuredPoint(
        float(row["isl"]) * ratio, float(row["osl"]) * ratio,
        ms_to_s(float(row["silicon_ttft_ms"])), ms_to_s(float(row["silicon_tpot_ms"])),
        source=_SOURCES["serving_curves.csv"], gpu=second.gpu,
        engine=datasets._ENGINES[row["backend"]],
        model=shipped_catalog().llm(datasets.model_name(row["model_path"])).slug,
        engine_version=row["backend_version"], setup="disaggregated",
        weights=datasets._curve_weights(row), tensor_parallel=second.layout.tensor,
        pipeline_parallel=1, expert_parallel=second.layout.expert,
        data_parallel=second.layout.data, concurrency=concurrency,
        date=date.group(1) if date else "")
    return GoldenRow(measured, first, second)


def _pool(row: dict[str, str], role: str) -> WorkerPool:
    tensor, data, expert, workers = (
        datasets._whole(row[f"{role}_{name}"])
        for name in ("tp_size", "attention_dp_size", "moe_ep_size", "num_workers"))
    batch = datasets._whole(row["decode_batch_size"]) if role == "decode" else None
    layout = Layout(tensor, 1, expert, data)
    return WorkerPool(datasets._GPUS[row["system"]], layout, workers, batch)


# -- errors on what a fit has not seen ----------------------------------------------------------


def left_out(points: Sequence[MeasuredPoint], split: Sequence[GoldenRow], catalog: Catalog,
             full: Sequence[MeasuredPoint]) -> list[LeftOut]:
    """Errors with the shipped profiles, and with fits that lacked what they are judged by."""
    base = prior_catalog(catalog)
    found = _rows("sample", "aggregated", points, _errors(points, catalog))
    found += _rows("configuration", "*", *_folds(points, base, full))
    found += _by_name("model", points, base, lambda p: catalog.llm(p.model or "").slug,
                      full)
    found += _by_name("gpu", points, base, lambda p: p.gpu or "", full)
    errors = errors_of([r.measured for r in split], [r.point for r in split], catalog)
    return found + _rows("sample", "disaggregated", [r.measured for r in split], errors)


def _errors(points: Sequence[MeasuredPoint], catalog: Catalog) -> Errors:
    return errors_of(points, [GoldenRow(p).point for p in points], catalog)


def _calibrated(points: Sequence[MeasuredPoint], base: Catalog) -> Catalog:
    """The catalog that a calibration on some points makes."""
    pooled = fit_all(points, base, with_errors=False)
    return replace(base, engines=profiles_of(pooled, base, "", ""))


def _folds(points: Sequence[MeasuredPoint], base: Catalog, full: Sequence[MeasuredPoint]
           ) -> tuple[list[MeasuredPoint], Errors]:
    """Errors of five-fold cross-validation over configurations."""
    fold = folds(points)
    judged: list[MeasuredPoint] = []
    parts = []
    for k in range(FOLDS):
        outside = [p for p, f in zip(points, fold, strict=True) if f == k]
        inside = [p for p, f in zip(points, fold, strict=True) if f != k]
        parts.append(_errors(outside, _calibrated([*inside, *full], base)))
        judged += outside
    return judged, _joined(parts)


def _by_name(kind: str, points: Sequence[MeasuredPoint], base: Catalog,
             name_of: Callable[[MeasuredPoint], str], full: Sequence[MeasuredPoint]
             ) -> list[LeftOut]:
    found: list[LeftOut] = []
    judged: list[MeasuredPoint] = []
    parts = []
    for name in sorted({name_of(p) for p in points}):
        outside = [p for p in points if name_of(p) == name]
        inside = [p for p in (*points, *full) if name_of(p) != name]
        parts.append(_errors(outside, _calibrated(inside, base)))
        judged += outside
        made = _rows(kind, name, outside, parts[-1])
        print(f"{kind} {name}: median TPOT error {made[0].tpot_median:.3f}", flush=True)
        found += made
    return [*_rows(kind, "*", judged, _joined(parts)), *found]


def _joined(parts: Sequence[Errors]) -> Errors:
    return Errors(np.concatenate([p.tpot for p in parts]), np.concatenate([p.ttft for p in parts]))


def _rows(kind: str, name: str, points: Sequence[MeasuredPoint], errors: Errors) -> list[LeftOut]:
    """One row for all engines and one for each."""
    engines = np.array([p.engine for p in points])
    names = sorted({p.engine or "" for p in points})
    names = ["*", *names] if len(names) > 1 else names
    return [_row(kind, name, engine, errors, (engines == engine) | (engine == "*"))
            for engine in names]


def _row(kind: str, name: str, engine: str, errors: Errors, part: np.ndarray) -> LeftOut:
    tpot, ttft = np.abs(errors.tpot[part]), np.abs(errors.ttft[part])
    return LeftOut(kind, name, engine, int(part.sum()), float(np.nanmedian(tpot)),
                   float(np.nanmean(tpot)), float(np.nanmedian(ttft)))


# -- plots --------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, SIDE = 760, 560, 64, 40, 470
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
SHAPES = ("circle", "square", "triangle")


def plot(golden: Sequence[GoldenRow], errors: Errors, phase: str, title: str) -> str:
    """Predicted over measured on logarithmic axes: colour by GPU, shape by engine."""
    truth = np.array([getattr(r.measured, f"{phase}_s") for r in golden]) * 1e3
    guess = truth * (1.0 + getattr(errors, phase))
    low = math.floor(math.log10(min(truth.min(), np.nanmin(guess))))
    high = math.ceil(math.log10(max(truth.max(), np.nanmax(guess))))
    gpus = sorted({r.measured.gpu or "" for r in golden})
    engines = sorted({r.measured.engine or "" for r in golden})

    def scaled(value: float) -> float:
        return SIDE * (math.log10(value) - low) / (high - low)

    parts = [*_frame(low, high, scaled, title), *_legend(gpus, engines)]
    for row, x, y in zip(golden, truth, guess, strict=True):
        if math.isfinite(y):
            parts.append(_mark(SHAPES[engines.index(row.measured.engine or "") % 3],
                               LEFT + scaled(x), TOP + SIDE - scaled(y),
                               COLOURS[gpus.index(row.measured.gpu or "") % 7]))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n'
            + "\n".join(parts) + "\n</svg>\n")


def _frame(low: int, high: int, scaled: Callable[[float], float], title: str) -> list[str]:
    parts = [f'<text x="{LEFT}" y="24" font-size="15">{title} [ms]: predicted over measured'
             '</text>',
             f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 38}" text-anchor="middle">measured'
             '</text>',
             f'<text transform="translate(16 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle">'
             'predicted</text>']
    for power in range(low, high + 1):
        at = scaled(10.0 ** power)
        x, y, label = LEFT + at, TOP + SIDE - at, f"{10.0 ** power:g}"
        parts += [f'<path d="M{x:.1f} {TOP}v{SIDE}M{LEFT} {y:.1f}h{SIDE}" stroke="#ddd"/>',
                  f'<text x="{x:.1f}" y="{TOP + SIDE + 18}" text-anchor="middle">{label}</text>',
                  f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>']
    dashed = ' stroke-dasharray="4 4"'
    return parts + [_diagonal(factor, high - low, style)
                    for factor, style in ((1.0, ""), (1.25, dashed), (0.8, dashed))]


def _diagonal(factor: float, decades: int, style: str) -> str:
    """The line where predicted is ``factor`` times measured, inside the frame."""
    shift = SIDE * math.log10(factor) / decades
    start, end = max(-shift, 0.0), min(SIDE - shift, SIDE)
    return (f'<path d="M{LEFT + start:.1f} {TOP + SIDE - start - shift:.1f}L{LEFT + end:.1f} '
            f'{TOP + SIDE - end - shift:.1f}" stroke="#555" fill="none"{style}/>')


def _legend(gpus: Sequence[str], engines: Sequence[str]) -> list[str]:
    parts = []
    x, y = LEFT + SIDE + 24, TOP + 10
    for i, name in enumerate(gpus):
        parts.append(_mark("circle", x, y + 20 * i, COLOURS[i % 7]))
        parts.append(f'<text x="{x + 12}" y="{y + 20 * i + 4}">{name}</text>')
    y += 20 * len(gpus) + 14
    for i, name in enumerate(engines):
        parts.append(_mark(SHAPES[i % 3], x, y + 20 * i, "#555"))
        parts.append(f'<text x="{x + 12}" y="{y + 20 * i + 4}">{name}</text>')
    y += 20 * len(engines) + 14
    parts.append(f'<text x="{x - 4}" y="{y}">dashed: 25 % too high,</text>'
                 f'<text x="{x - 4}" y="{y + 16}">20 % too low</text>')
    return parts


def _mark(shape: str, x: float, y: float, colour: str) -> str:
    style = f'fill="{colour}" fill-opacity=".6"'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {style}/>'
    if shape == "square":
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" {style}/>'
    return f'<path d="M{x:.1f} {y - 4:.1f}l4 7h-8z" {style}/>'


if __name__ == "__main__":
    main(sys.argv[1:])
