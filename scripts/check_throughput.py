"""Output tokens/s per GPU of published systems: errors of the shipped profiles, and of fits.

    python -m scripts.check_throughput         # the shipped profiles
    python -m scripts.check_throughput DATA    # fits without the MLPerf results they are judged by

The fits are five: each leaves out a fifth of the submissions of MLPerf (a model on a GPU under an
engine in a precision), with all of their results. DATA is the folder of a calibration.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.calibration.datasets import load
from planner.calibration.fit import FOLDS
from planner.calibration.profiles import fit_all
from planner.calibration.run import (
    offline_points,
    prior_catalog,
    profiles_of,
    split_known,
    submission,
)
from planner.calibration.throughput import ThroughputRow, read_throughput, throughput_errors
from planner.catalog.book import Catalog
from planner.catalog.shipped import shipped_catalog

Array = NDArray[np.float64]


def main(arguments: Sequence[str]) -> None:
    """Print median and bias by suite and scenario."""
    rows, catalog = read_throughput(), shipped_catalog()
    if not arguments:
        show(rows, throughput_errors(rows, catalog))
        return
    judged = [row for row in rows if row.suite == "MLPerf"]
    show(judged, left_out(Path(arguments[0]), rows, judged, catalog))


def left_out(folder: Path, rows: Sequence[ThroughputRow], judged: Sequence[ThroughputRow],
             catalog: Catalog) -> Array:
    """Errors of rows under fits without the results of their submissions."""
    base = prior_catalog(catalog)
    closed = split_known(load(folder), base)[0]
    names = sorted({submission(row) for row in judged})
    fold = dict(zip(names, np.random.default_rng(0).permutation(len(names)) % FOLDS, strict=True))
    errors = np.full(len(judged), np.nan)
    for k in range(FOLDS):
        kept = [r for r in rows if fold.get(submission(r)) != k]
        pooled = fit_all([*closed, *offline_points(kept, base)], base, with_errors=False)
        found = replace(base, engines=profiles_of(pooled, base, "", ""))
        here = [i for i, row in enumerate(judged) if fold[submission(row)] == k]
        errors[here] = throughput_errors([judged[i] for i in here], found)
    return errors


def show(rows: Sequence[ThroughputRow], errors: Array) -> None:
    """One line a suite and scenario, after one for all."""
    places: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        for name in ("all", f"{row.suite} {row.scenario}"):
            places[name].append(i)
    for name, at in places.items():
        here = errors[at]
        print(f"{name:28} {len(at):5} results: median {np.nanmedian(np.abs(here)):.1%}, "
              f"bias {np.nanmedian(here):+.1%}, {np.isnan(here).sum()} not answered")


if __name__ == "__main__":
    main(sys.argv[1:])
