"""The accuracy report: predicted against measured on the shipped points, and left-out errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.calibration.golden import GoldenRow, read_golden, read_left_out
from planner.calibration.points import MeasuredPoint
from planner.calibration.throughput import ThroughputRow, read_throughput, throughput_errors
from planner.catalog.book import Catalog
from planner.errors import PlannerError
from planner.prediction import Point, predict
from planner.units import ms_to_s

Array = NDArray[np.float64]
PHASES = {"tpot": "decode", "ttft": "prefill"}
"""What each phase shows in: the time per output token, and the time to the first."""
BANDS = ((1, 4), (5, 16), (17, 64), (65, 256), (257, None))
"""Bands of concurrency."""
PEER: dict[str, Any] = {
    "name": "NVIDIA AIConfigurator 0.12", "points": 5221, "coverage": 0.53,
    "coverage_hybrid": 0.68,
    "tpot": {"median_ape": 0.172, "mean_ape": 0.288},
    "ttft": {"median_ape": 0.497, "mean_ape": 0.556, "bias": -0.40},
    "source": "its measured-table mode on the sample of InferenceX and vendor runs that it ships "
              "(ai-dynamo/aiconfigurator, Apache-2.0); 2,780 of 5,221 rows answered, 3,525 in "
              "hybrid mode",
}
"""What the closest other tool scores. The rows of the golden table are from the same sample."""
NOTE = ("The golden rows are part of what the shipped profiles were fitted on (disaggregated ones: "
        "only one factor an engine), so these are train errors; left_out has the errors on "
        "configurations, models and GPUs that a fit had not seen.")


@dataclass(frozen=True, slots=True)
class Errors:
    """Signed relative errors of each point; NaN where a point was not answered."""

    tpot: Array
    ttft: Array

    def median(self, phase: str) -> float | None:
        """Median absolute error of one phase, None without an answered point."""
        found = np.abs(_known(getattr(self, phase)))
        return float(np.median(found)) if found.size else None


def errors_of(measured: Sequence[MeasuredPoint], points: Sequence[Point], catalog: Catalog
              ) -> Errors:
    """Errors of the predictions of measured points."""
    found = np.full((2, len(points)), np.nan)
    able = [i for i, point in enumerate(points) if answerable(point, catalog)]
    for i, answer in zip(able, predict([points[i] for i in able], catalog), strict=True):
        found[:, i] = [np.nan if answer[name] is None else ms_to_s(answer[name])
                       for name in ("tpot_ms", "ttft_ms")]
    truth = np.array([(p.tpot_s, p.ttft_s) for p in measured], dtype=float).reshape(-1, 2).T
    return Errors(*(found / truth - 1.0))


def answerable(point: Point, catalog: Catalog) -> bool:
    """Whether the catalog knows what a point names."""
    places = [point.prefill, point.decode] if point.prefill and point.decode else [point]
    try:
        llm = catalog.llm(point.model)
        for place in places:
            gpu = catalog.gpu(getattr(place, "gpu", None) or "")
            catalog.engine(point.engine, gpu, point.weights or llm.native_precision)
    except PlannerError:
        return False
    return True


def statistics(errors: Array) -> dict[str, Any]:
    """Count, coverage, median, mean and 90th percentile of absolute errors, and the bias.

    The bias is the median of the signed errors: negative where predictions are too low.

    Examples
    --------
    >>> found = statistics(np.array([-0.1, 0.3, np.nan, 0.2]))
    >>> found["points"], found["coverage"], found["median_ape"], found["bias"]
    (4, 0.75, 0.2, 0.2)
    """
    known = _known(errors)
    head = {"points": len(errors), "coverage": _rounded(known.size / max(len(errors), 1))}
    if not known.size:
        return {**head, "median_ape": None, "mean_ape": None, "p90_ape": None, "bias": None}
    size = np.abs(known)
    return {**head, "median_ape": _rounded(np.median(size)), "mean_ape": _rounded(size.mean()),
            "p90_ape": _rounded(np.quantile(size, 0.9)), "bias": _rounded(np.median(known))}


def _known(errors: Array) -> Array:
    return errors[np.isfinite(errors)]


def _rounded(value: Any) -> float:
    return round(float(value), 4)


# -- the report ---------------------------------------------------------------------------------


def band_of(point: MeasuredPoint) -> str:
    """The band of concurrency that a point is in."""
    clients = point.concurrency or 0.0
    low, high = next((b for b in BANDS if b[1] is None or clients <= b[1]), BANDS[-1])
    return f"{low}+" if high is None else f"{low}-{high}"


DIMENSIONS: dict[str, Callable[[GoldenRow], str]] = {
    "gpu": lambda row: row.measured.gpu or "",
    "engine": lambda row: row.measured.engine or "",
    "model": lambda row: row.measured.model or "",
    "precision": lambda row: row.measured.weights or "",
    "setup": lambda row: row.measured.setup or "",
    "concurrency": lambda row: band_of(row.measured),
}
"""What errors are shown by, next to the phase."""


def accuracy_report(catalog: Catalog, by: str | None = None,
                    rows: Sequence[GoldenRow] | None = None) -> dict[str, Any]:
    """Predicted against measured on the golden rows, left-out errors, and the peer's.

    Parameters
    ----------
    catalog : Catalog
        Its profiles are the ones judged.
    by : str, optional
        A key of :data:`DIMENSIONS`, or ``phase``: only this breakdown.
    rows : sequence of GoldenRow, optional
        Other points to judge by.

    Returns
    -------
    dict
        ``golden overall by left_out profiles peer``. Errors are shares: 0.1 is 10 %.
    """
    golden, errors = _judged(catalog) if rows is None else _compared(rows, catalog)
    wanted = [name for name in (*DIMENSIONS, "phase") if by in (None, name)]
    return {
        "golden": {"points": len(golden), "note": NOTE, "sources": sorted(
            {r.measured.source.partition(" (")[0] for r in golden})},
        "overall": {phase: statistics(getattr(errors, phase)) for phase in PHASES},
        "by": {name: _breakdown(name, golden, errors) for name in wanted},
        "throughput": _throughput(catalog),
        "left_out": [asdict(row) for row in read_left_out()],
        "profiles": _profiles(catalog),
        "peer": PEER,
    }


_latest: list[tuple[Catalog, Sequence[GoldenRow], Errors]] = []


def _judged(catalog: Catalog) -> tuple[Sequence[GoldenRow], Errors]:
    """The golden rows and their errors; kept until another catalog asks."""
    for known, golden, errors in tuple(_latest):
        if known is catalog:
            return golden, errors
    golden, errors = _compared(read_golden(), catalog)
    _latest[:] = [(catalog, golden, errors)]
    return golden, errors


_latest_throughput: list[tuple[Catalog, Sequence[ThroughputRow], Array]] = []


def _judged_throughput(catalog: Catalog) -> tuple[Sequence[ThroughputRow], Array]:
    """The throughput rows and their errors; kept until another catalog asks."""
    for known, rows, errors in tuple(_latest_throughput):
        if known is catalog:
            return rows, errors
    rows = read_throughput()
    errors = throughput_errors(rows, catalog)
    _latest_throughput[:] = [(catalog, rows, errors)]
    return rows, errors


def _compared(rows: Sequence[GoldenRow], catalog: Catalog) -> tuple[Sequence[GoldenRow], Errors]:
    return rows, errors_of([r.measured for r in rows], [r.point for r in rows], catalog)


def _breakdown(name: str, golden: Sequence[GoldenRow], errors: Errors) -> list[dict[str, Any]]:
    if name == "phase":
        return [{"name": PHASES[p], "metric": p, **statistics(getattr(errors, p))} for p in PHASES]
    labels = [DIMENSIONS[name](row) for row in golden]
    return [{"name": label, "metric": phase, **statistics(getattr(errors, phase)[places])}
            for label, places in _places(name, labels) for phase in PHASES]


def _places(name: str, labels: Sequence[str]) -> Iterable[tuple[str, NDArray[np.intp]]]:
    """Positions of each label; bands of concurrency in their own order."""
    key = (lambda s: int(s.rstrip("+").split("-")[0])) if name == "concurrency" else str
    whole = np.array(labels)
    return [(label, np.flatnonzero(whole == label)) for label in sorted(set(labels), key=key)]


def _throughput(catalog: Catalog) -> list[dict[str, Any]]:
    """Errors of output tokens/s per GPU, all rows first, then by suite and scenario."""
    found, errors = _judged_throughput(catalog)
    if not found:
        return []
    labels = [f"{row.suite} {row.scenario}" for row in found]
    metric = "output_tokens_per_s_per_gpu"
    return [{"name": "all", "metric": metric, **statistics(errors)},
            *({"name": label, "metric": metric, **statistics(errors[places])}
              for label, places in _places("suite", labels))]


def _profiles(catalog: Catalog) -> list[dict[str, Any]]:
    """Fitted engines and GPUs with their error on left-out configurations."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for profile in sorted(catalog.engines.values(), key=lambda p: p.slug):
        if profile.points and profile.obtained != "assumed":
            found.setdefault((profile.engine, profile.gpu, profile.points), {
                "engine": profile.engine, "gpu": profile.gpu, "points": profile.points,
                "train_error": profile.train_error, "tpot_error": profile.tpot_error,
                "ttft_error": profile.ttft_error, "as_of": profile.as_of})
    return list(found.values())
