"""The calibration job: a data folder in, profile rows out."""

from __future__ import annotations

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path

import numpy as np

from planner.calibration.datasets import load, load_disaggregated, load_throughput
from planner.calibration.points import MeasuredPoint
from planner.calibration.profiles import (
    EngineFit,
    PooledFit,
    fit_all,
    merged,
    rows,
    transferred,
)
from planner.calibration.throughput import ThroughputRow, best_points
from planner.catalog.book import Catalog
from planner.catalog.rows import engine_from_fields
from planner.catalog.shipped import engine_rows
from planner.engine import EngineProfile
from planner.errors import InvalidValue, NotInCatalog
from planner.prediction import Point, predict, running_cap
from planner.requests import Layout
from planner.roofline import Deployment
from planner.units import ms_to_s

OFFLINE_FROM, OFFLINE_FAMILIES = "1.0", ("hopper", "blackwell")
"""Offline rows of TensorRT-LLM that are fitted: of releases as new as those of the closed loops."""
MLPERF_WEIGHT = 12.0
"""Points that all offline results of MLPerf of one model, GPU, engine and precision count as."""
SHRINK = 5
"""Points' worth of doubt in a factor of disaggregated serving."""
PRIORS = Path(__file__).parent / "priors.csv"
"""Profiles before any fit: medians of published rows, with their source."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a run found: fits, all profile rows, and points that name no catalog entry."""

    fits: list[EngineFit]
    profiles: dict[str, EngineProfile]
    unknown: list[MeasuredPoint]


def prior_catalog(catalog: Catalog) -> Catalog:
    """A catalog with the profiles that a calibration starts from instead of the fitted ones."""
    return replace(catalog, engines={row["slug"]: engine_from_fields(row)
                                     for row in engine_rows(PRIORS)})


def calibrate(folder: Path, catalog: Catalog, as_of: date) -> Calibration:
    """Fit every engine and GPU that a data folder has enough points of.

    Raises
    ------
    InvalidValue
        When the folder holds no benchmark table.
    """
    points = load(folder)
    if not points:
        raise InvalidValue(f"{folder} holds no serving_curves.csv or published_benchmarks.csv "
                           "with closed-loop points", "/data")
    base = prior_catalog(catalog)
    known, unknown = split_known(points, base)
    full = offline_points(load_throughput(folder), base)
    pooled = fit_all([*known, *full], base)
    day = as_of.isoformat()
    profiles = profiles_of(pooled, base, day, "fit to published closed-loop curves")
    scales = disaggregated_scales(load_disaggregated(folder), replace(base, engines=profiles))
    return Calibration(pooled.fits, {slug: replace(p, disaggregated_scale=scales.get(p.engine, 1.0))
                              for slug, p in profiles.items()}, unknown)


def offline_points(rows: Iterable[ThroughputRow], catalog: Catalog) -> list[MeasuredPoint]:
    """Offline rows as points of a fit: full batches, which closed loops lack.

    As many sequences run as the memory holds, and each gains a token every ``n / throughput``.
    TensorRT-LLM: releases from 1.0, of GPUs whose families have closed loops too. MLPerf: in the
    best layout under the profiles of the catalog; many results repeat one submission, so those of a
    model, GPU, engine and precision together count as :data:`MLPERF_WEIGHT` points at most.
    """
    chosen = [row for row in rows if row.scenario == "offline" and _usable(row, catalog)]
    alike = Counter(map(submission, chosen))
    found = []
    for row, (_, point) in zip(chosen, best_points(chosen, catalog), strict=True):
        if point is not None:
            weight = min(MLPERF_WEIGHT / alike[submission(row)], 1.0)
            found.append(_offline_point(row, point.layout, catalog,
                                        weight if row.suite == "MLPerf" else 1.0))
    return found


def submission(row: ThroughputRow) -> tuple[str, ...]:
    """What MLPerf results share that repeat one another: suite, model, GPU, engine, precision."""
    return row.suite, row.model, row.gpu, row.engine, row.weights


def _usable(row: ThroughputRow, catalog: Catalog) -> bool:
    try:
        catalog.llm(row.model)
        family = catalog.gpu(row.gpu).architecture.lower()
    except NotInCatalog:
        return False
    return row.suite == "MLPerf" or (row.suite == "TensorRT-LLM" and row.layout is not None
                                     and row.engine_version >= OFFLINE_FROM
                                     and family in OFFLINE_FAMILIES)


def _offline_point(row: ThroughputRow, layout: Layout, catalog: Catalog, weight: float
                   ) -> MeasuredPoint:
    gpu, llm = catalog.gpu(row.gpu), catalog.llm(row.model)
    profile = catalog.engine(row.engine, gpu, row.weights)
    deployment = Deployment(llm, gpu, row.weights, row.kv or llm.native_kv, layout, profile)
    running = float(running_cap(deployment, np.array([row.prompt_tokens]),
                                np.array([row.output_tokens]))[0])
    return MeasuredPoint(
        row.prompt_tokens, row.output_tokens, math.nan,
        running / (row.output_tokens_per_s_per_gpu * layout.gpus), source=row.source,
        model=row.model, gpu=row.gpu, engine=row.engine, engine_version=row.engine_version,
        setup="colocated", weights=row.weights, kv=row.kv or None,
        tensor_parallel=layout.tensor, pipeline_parallel=layout.pipeline,
        expert_parallel=layout.expert, data_parallel=layout.data,
        concurrency=running, weight=weight)


def profiles_of(pooled: PooledFit, base: Catalog, as_of: str, source: str
                ) -> dict[str, EngineProfile]:
    """All profiles of a catalog after a fit: fitted, transferred, and those left as they were."""
    fresh = [row for f in pooled.fits for row in rows(f, base, as_of, source)]
    return dict(merged(base, [*transferred(pooled, base, as_of), *fresh]))


def disaggregated_scales(points: Sequence[tuple[Point, float]], catalog: Catalog
                         ) -> dict[str, float]:
    """Measured over predicted TPOT of decode pools, one factor an engine.

    The geometric mean, pulled towards 1 as if :data:`SHRINK` more points had said so; not below 1.
    """
    predicted = predict([p for p, _ in points], catalog)
    logs: dict[str, list[float]] = defaultdict(list)
    for (point, tpot_s), answer in zip(points, predicted, strict=True):
        logs[point.engine].append(math.log(_ratio(tpot_s, answer["tpot_ms"])))
    return {engine: round(max(math.exp(sum(v) / (len(v) + SHRINK)), 1.0), 3)
            for engine, v in logs.items()}


def _ratio(measured_s: float, predicted_ms: float) -> float:
    """Ratio of a measured [s] to a predicted [ms] time."""
    return measured_s / ms_to_s(predicted_ms)


def split_known(points: Iterable[MeasuredPoint], catalog: Catalog
                ) -> tuple[list[MeasuredPoint], list[MeasuredPoint]]:
    """Points whose model and GPU are in the catalog, and the rest."""
    known, unknown = [], []
    for point in points:
        try:
            catalog.llm(point.model or "")
            catalog.gpu(point.gpu or "")
        except NotInCatalog:
            unknown.append(point)
        else:
            known.append(point)
    return known, unknown


def write_profiles(profiles: Iterable[EngineProfile], path: Path) -> None:
    """Write profile rows as the catalog's CSV (``ideal`` is built in and left out)."""
    names = [f.name for f in fields(EngineProfile) if f.name != "notes"]
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, names, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for profile in sorted(profiles, key=lambda p: p.slug):
            if profile.engine != "ideal":
                row = asdict(profile)
                writer.writerow({k: "" if v is None else v for k, v in row.items()})
