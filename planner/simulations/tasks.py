"""What a worker process does for a simulation."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.api.plan_schema import parse_plan
from planner.catalog.book import Catalog
from planner.jobs.sending import unpack_catalog
from planner.jobs.signals import Abandoned, signal_progress
from planner.plain import plain
from planner.simulations.fleets import Parts, fleet_from_option, served_workload
from planner.simulations.requests import check_extent, generated, replayed
from planner.simulations.users import closed_loop
from planner.simulator import Failure, SimulationOptions, SimulationResult, simulate
from planner.traces.packing import unpack

Columns = Mapping[str, np.ndarray[Any, Any]]
Progress = Callable[[float], bool]
MADE, PLAYED, TOLD, PACKED = 0.02, 0.85, 0.9, 0.99
"""Share of a simulation that is done when its requests are made, when they are played, and when
its document is written, and its columns are packed; then they are stored."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulation and the rate [1/s] that was asked of it: of a trace its mean, of users the one
    that they send while they wait for these answers."""

    result: SimulationResult
    requests_per_s: float


def simulate_job(catalog: bytes, job: Mapping[str, Any], trace: bytes | None,
                 signals: str) -> tuple[dict[str, Any], bytes]:
    """The document and the packed columns of a simulation."""
    def report(share: float) -> bool:
        try:
            signal_progress(signals, share)
        except Abandoned:
            return False
        return True

    found = run(job, unpack_catalog(catalog), trace, report)
    document = document_of(found, job)
    report(TOLD)
    return document, pack_columns(found.result.rows(), lambda share: report(
        TOLD + (PACKED - TOLD) * share))


def run(job: Mapping[str, Any], catalog: Catalog, trace: bytes | None = None,
        progress: Progress | None = None) -> Simulated:
    """Simulate what a job asks for.

    Parameters
    ----------
    job : mapping
        As made by ``planner.api.simulation_service.job_of``.
    catalog : Catalog
    trace : bytes, optional
        Packed rows of the trace that the job names.
    progress : callable, optional
        Gets the share of the whole job that is done; False stops the run.
    """
    request = parse_plan(job["request"])
    fleet = fleet_from_option(request, job["option"], Parts(catalog, job["snapshot"]),
                              job["spares"])
    workload = served_workload(request, job["option"]) if job["plan"] else request.workload
    options = options_of(job)
    if progress is not None:
        progress(MADE)
    if trace is not None:
        table = replayed(unpack(trace), workload.prefix_hit, job["rate_scale"], job["start_s"],
                         job["end_s"])
        check_extent(len(table), table.span_s, job["warmup_share"], "/rate_scale")
        return Simulated(simulate(fleet, table, options, _part(progress)), table.requests_per_s)

    def play(rate: float, number: int | None = None) -> SimulationResult:
        table = generated(replace(workload, requests_per_s=rate), job["requests"], job["seed"],
                          job["arrivals"])
        check_extent(len(table), table.span_s, job["warmup_share"], "/rate_scale")
        return simulate(fleet, table, options, _part(progress, number))

    rate = workload.requests_per_s * job["rate_scale"]
    if job["plan"] or workload.users is None:
        return Simulated(play(rate), rate)
    rate, result = closed_loop(play, workload.users * job["rate_scale"], workload.think_s, rate)
    return Simulated(result, rate)


def options_of(job: Mapping[str, Any]) -> SimulationOptions:
    """How a job's simulation runs."""
    failures = tuple(Failure(f["at_s"], f["duration_s"], f["pool"], f["replica"])
                     for f in job["failures"])
    return SimulationOptions(job["router"], job["seed"], job["warmup_share"], failures)


def _part(progress: Progress | None, number: int | None = None) -> Progress | None:
    """Progress of one run as that of the job: all there is to play, or of one of several rounds,
    nobody knows how many, half of what is left."""
    if progress is None:
        return None
    left = 1.0 if number is None else 0.5 ** number
    part = left if number is None else left / 2.0
    return lambda share: progress(MADE + (PLAYED - MADE) * (1.0 - left + part * share))


def document_of(found: Simulated, job: Mapping[str, Any]) -> dict[str, Any]:
    """The result as the API shows it, without its id; ``request`` is None of a job that an earlier
    version queued."""
    asked = {name: job[name] for name in ("plan", "rank", "trace", "seed", "router", "rate_scale")}
    document: dict[str, Any] = plain(
        {**asked, "requests_per_second": found.requests_per_s, **found.result.document(),
         "promised": job["promised"], "request": job.get("asked")})
    return document


def pack_columns(columns: Columns, progress: Progress | None = None) -> bytes:
    """Columns of numbers, compressed; times to single precision, which is below 0.1 ms.

    ``progress`` gets the share of the columns after each.
    """
    kinds = {name: _stored_as(name, values) for name, values in columns.items()}
    packer = zlib.compressobj(3)
    parts = [packer.compress(json.dumps(list(kinds.items())).encode() + b"\n")]
    for place, (name, values) in enumerate(columns.items(), start=1):
        parts.append(packer.compress(np.ascontiguousarray(values, dtype=kinds[name]).tobytes()))
        if progress is not None:
            progress(place / len(columns))
    return b"".join([*parts, packer.flush()])


def _stored_as(name: str, values: np.ndarray[Any, Any]) -> str:
    if values.dtype == np.bool_:
        return "|b1"
    if np.issubdtype(values.dtype, np.integer):
        return "<i4"
    return "<f8" if name == "arrival_s" else "<f4"


def unpack_columns(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The columns again."""
    head, _, body = zlib.decompress(data).partition(b"\n")
    kinds = [(name, np.dtype(kind)) for name, kind in json.loads(head)]
    rows = len(body) // sum(kind.itemsize for _, kind in kinds)
    columns, at = {}, 0
    for name, kind in kinds:
        columns[name] = np.frombuffer(body, kind, rows, at)
        at += rows * kind.itemsize
    return columns
