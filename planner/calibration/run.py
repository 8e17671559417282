"""The calibration job: a data folder in, profile rows out."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path

from planner.calibration.datasets import load
from planner.calibration.points import MeasuredPoint
from planner.calibration.profiles import EngineFit, fit_all, merged, rows, transferred
from planner.catalog.book import Catalog
from planner.catalog.rows import engine_from_fields
from planner.catalog.shipped import engine_rows
from planner.engine import EngineProfile
from planner.errors import InvalidValue, NotInCatalog

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
    fits = fit_all(known, base)
    day = as_of.isoformat()
    fresh = [row for f in fits for row in rows(f, base, day, "fit to published closed-loop curves")]
    return Calibration(fits, dict(merged(base, [*transferred(fits, base, day), *fresh])), unknown)


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
