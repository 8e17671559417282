"""Commands for long work: ``sweep``, ``simulate`` and ``work``."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from flask import current_app
from flask.cli import with_appcontext
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from planner.cli import fail, one_line_errors, read_document, stored_catalog

if TYPE_CHECKING:
    from planner.catalog.book import Catalog
    from planner.jobs.executors import Executor
    from planner.traces.trace import Trace

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
_OUT = click.Path(dir_okay=False, path_type=Path)
SUFFIXES = ("csv", "json", "parquet", "xlsx")


@contextlib.contextmanager
def _bar(words: str, total: int) -> Iterator[Any]:
    """A progress bar on standard error; yields what takes the share that is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(words, total=total)
        yield lambda share: progress.update(task, completed=round(share * total))


@click.command("sweep")
@click.argument("file", required=False,
                type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@click.option("--output", type=_OUT, help="File to write: .csv, .json, .parquet or .xlsx; "
              "standard output gets CSV otherwise.")
@click.option("--processes", type=click.IntRange(0), default=0, help="0: one per core.")
@click.option("--resume", metavar="ID", help="Go on with a sweep that was interrupted.")
@with_appcontext
@one_line_errors
def sweep(file: Path | None, output: Path | None, processes: int, resume: str | None) -> None:
    """Plan every combination of the grid in FILE (JSON with base and grid)."""
    from planner.jobs.executors import Processes
    from planner.sweeps.grid import from_json

    if output is not None and output.suffix.removeprefix(".") not in SUFFIXES:
        fail(f"{output}: the name must end with .{', .'.join(SUFFIXES)}", 2)
    if (file is None) == (resume is None):
        fail("give a FILE or --resume ID", 2)
    executor = Processes(processes)
    try:
        executor.load("planner.sweeps.tasks")
        catalog = stored_catalog()
        job_id, request, owner = _reopened(resume) if resume else _created(file, catalog)
        _work_on_sweep(job_id, request, owner, executor, catalog)
    finally:
        executor.stop()
    _write_sweep(from_json(request), job_id, output)


def _created(file: Path | None, catalog: Catalog) -> tuple[str, dict[str, Any], str]:
    """A new sweep that this process works on."""
    from models.base import utc_now
    from planner.api.sweeps import SweepSchema
    from planner.api.traces import trace_workload
    from planner.api.validation import load_document
    from planner.api.workloads import saved_workload
    from planner.extensions import db
    from planner.jobs import queue
    from planner.jobs.kinds import SWEEP
    from planner.jobs.runner import own_name
    from planner.sweeps.grid import checked_grid

    assert file is not None
    data = load_document(SweepSchema(), read_document(file))
    grid = checked_grid(data["base"], data["grid"], catalog,
                        current_app.config["PLANNER_MAX_SWEEP_CELLS"], saved_workload,
                        trace_workload)
    row = queue.enqueue(db.session, SWEEP, grid.to_json())
    row.status, row.owner, row.attempts = "running", own_name(), 1
    row.started_at = row.heartbeat_at = utc_now()
    owner = row.owner
    db.session.commit()
    return row.id, row.request, owner


def _reopened(job_id: str) -> tuple[str, dict[str, Any], str]:
    """A sweep that was interrupted, now this process's."""
    from planner.api.jobs import find_job
    from planner.extensions import db
    from planner.jobs import queue
    from planner.jobs.kinds import SWEEP
    from planner.jobs.runner import own_name

    row, owner = find_job(job_id, SWEEP), own_name()
    request, status = row.request, row.status
    db.session.rollback()
    if status != "done" and not queue.reopen(db.session, job_id, owner):
        fail(f"the sweep is {status}: a process works on it")
    return job_id, request, owner


def _work_on_sweep(job_id: str, request: dict[str, Any], owner: str, executor: Executor,
                   catalog: Catalog) -> None:
    from models import JobRow
    from planner.extensions import db
    from planner.jobs import queue
    from planner.jobs.handlers import plan_missing_parts
    from planner.jobs.run import Run
    from planner.jobs.runner import finish_run
    from planner.sweeps.grid import from_json

    if db.session.get_one(JobRow, job_id).status == "done":
        return
    db.session.rollback()
    run = Run(db.engine, executor, job_id, owner, request)
    try:
        with _bar("planning", from_json(request).cells) as bar:
            run.watch = bar
            finish_run(run, partial(plan_missing_parts, catalog=catalog))
    except KeyboardInterrupt:
        queue.cancel(db.session, job_id)
        db.session.commit()
        fail(f"interrupted; what is finished is kept, go on with: flask sweep --resume {job_id}",
             130)
    except queue.LostJob:
        fail(f"the sweep {job_id} was cancelled")
    row = db.session.get_one(JobRow, job_id)
    if row.status == "failed":
        fail(row.error or "the sweep failed")


def _write_sweep(grid: Any, job_id: str, output: Path | None) -> None:
    from planner.api.jobs import find_job
    from planner.api.sweeps import answer, parts_of
    from planner.sweeps import tables

    form = "csv" if output is None else output.suffix.removeprefix(".")
    if form == "json":
        body = (json.dumps(answer(find_job(job_id)), indent=1) + "\n").encode()
    elif form == "csv":
        body = "".join(tables.csv_blocks(grid, parts_of(job_id))).encode()
    else:
        made = tables.parquet_bytes if form == "parquet" else tables.xlsx_bytes
        body = made(grid, parts_of(job_id))
    if output is None:
        sys.stdout.write(body.decode().replace("\r\n", "\n"))
    else:
        output.write_bytes(body)
        click.echo(f"{output}: {grid.cells:,} cells (sweep {job_id})")


@click.command("simulate")
@_FILE
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path),
              help="Trace to replay (CSV or JSON lines, plain or gzip) instead of a stored one.")
@click.option("--skip-empty", is_flag=True, help="Leave out rows of --trace without a token "
              "(requests that failed).")
@click.option("--requests", "requests_out", type=_OUT, help="CSV to write every request to.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
@with_appcontext
@one_line_errors
def simulate(file: Path, trace: Path | None, skip_empty: bool, requests_out: Path | None,
             as_json: bool) -> None:
    """Simulate what FILE (the JSON of a simulation, or of a plan request) describes.

    A plan request is planned first; its recommended option is then simulated.
    """
    from planner.simulations.tasks import TOLD, document_of, pack_columns, run

    if skip_empty and trace is None:
        fail("--skip-empty goes with --trace", 2)
    local = _read_trace(trace, skip_empty) if trace is not None else None
    job, packed = _simulation(read_document(file), local)
    count = job["requests"] or 100
    with _bar("simulating", count) as bar:
        found = run(job, stored_catalog(), packed, lambda share: bar(share) or True)
        document = document_of(found, job)
        bar(TOLD)
        columns = pack_columns(found.result.rows(), lambda share: bar(
            TOLD + (1.0 - TOLD) * share) or True) if requests_out is not None else b""
    if requests_out is not None:
        from planner.api.simulations import csv_blocks

        requests_out.write_bytes(b"".join(csv_blocks(columns)))
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        print_simulation(document)


def _simulation(body: Any, local: Trace | None) -> tuple[dict[str, Any], bytes | None]:
    """The job of a request, and the packed rows of its trace."""
    from planner.api.simulation_schema import SimulationSchema
    from planner.api.simulation_service import job_of_fleet, job_of_plan
    from planner.api.traces import trace_workload
    from planner.api.validation import load_document
    from planner.api.workloads import saved_workload
    from planner.traces.packing import pack

    if local is not None and isinstance(body, dict) and "model" not in body:
        body = {**body, "trace": "local"}
    at_peak = (lambda slug: _workload_of(local)) if local is not None else trace_workload
    if isinstance(body, dict) and "model" in body:
        job = _planned(body, {"trace": "local"} if local is not None else {}, at_peak)
    else:
        data = load_document(SimulationSchema(), body)
        catalog = stored_catalog()
        if "fleet" in data:
            job = job_of_fleet(data, catalog, saved_workload, at_peak)
        else:
            job = job_of_plan(data, *_stored_plan(data["plan"]), catalog, at_peak)
    if local is not None:
        return job, pack(local)
    return job, _stored_trace(job["trace"]) if job["trace"] else None


def _read_trace(path: Path, skip_empty: bool) -> Trace:
    from planner.traces.reader import read_trace
    from planner.traces.stream import ReadLimits

    settings = current_app.config
    with path.open("rb") as stream:
        return read_trace(stream, ReadLimits(settings["PLANNER_MAX_TRACE_ROWS"],
                                             settings["PLANNER_MAX_TRACE_BYTES"]), skip_empty)


def _workload_of(trace: Any) -> Any:
    from planner.traces.statistics import workload_at_peak

    return workload_at_peak(trace)


def _planned(body: dict[str, Any], more: dict[str, Any], at_peak: Any) -> dict[str, Any]:
    """The job that simulates the recommended option of a plan request, with more of its fields."""
    from planner.api.plan_schema import parse_plan
    from planner.api.plan_service import make
    from planner.api.simulation_schema import SimulationSchema
    from planner.api.simulation_service import job_of_plan
    from planner.api.traces import trace_workload
    from planner.api.workloads import saved_workload

    catalog = stored_catalog()
    made = make(parse_plan(body, saved_workload, trace_workload), catalog)
    data = SimulationSchema().load({"plan": made.document["id"], **more})
    return job_of_plan(data, made.document, made.snapshot, catalog, at_peak)


def _stored_plan(plan_id: str) -> tuple[Any, Any]:
    from models import PlanRow
    from planner.api.plan_service import document_of
    from planner.errors import NotInCatalog
    from planner.extensions import db

    row = db.session.get(PlanRow, plan_id)
    if row is None:
        raise NotInCatalog(f"there is no plan {plan_id!r}", "/plan")
    return document_of(row), row.snapshot


def _stored_trace(slug: str) -> bytes:
    from models import TraceRow
    from planner.errors import NotInCatalog
    from planner.extensions import db

    row = db.session.get(TraceRow, slug)
    if row is None:
        raise NotInCatalog(f"no trace {slug!r} is stored", "/trace")
    return row.data


def print_simulation(document: dict[str, Any], console: Console | None = None) -> None:
    """Print a simulation: observed against promised percentiles, and how targets were met."""
    console = console or Console()
    table = Table(box=None, pad_edge=False, header_style="bold",
                  caption="ms; in brackets what the plan promises", caption_justify="left")
    table.add_column("")
    names = ("mean", "p50", "p90", "p95", "p99")
    for name in names:
        table.add_column(name, justify="right")
    promises = document["promised"] or {}
    for metric in ("ttft", "tpot", "itl", "e2e"):
        seen, promise = document["observed"][f"{metric}_ms"], promises.get(f"{metric}_ms") or {}
        table.add_row(metric.upper(), *(_pair(seen.get(n), promise.get(n)) for n in names))
    console.print(table)
    shares = ", ".join(f"{k} {v:.1%}" for k, v in document["attainment"].items() if v is not None)
    missed = ", ".join(document["missed"]) or "none"
    for line in (f"{document['requests']:,} requests at {document['requests_per_second']:.4g} "
                 f"requests/s in {document['simulated_s']:,.0f} s "
                 f"(simulated in {document['wall_s']:.2f} s)",
                 f"within the targets: {shares}; missed: {missed}",
                 f"goodput: {document['goodput_rps_per_gpu']:.3f} requests/s and GPU, "
                 f"utilisation {document['utilization']:.0%}, {document['lost']} lost, "
                 f"{document['preemptions']} preemptions"):
        console.print(line, highlight=False)


def _pair(seen: float | None, promise: float | None) -> str:
    words = "–" if seen is None else f"{seen:,.1f}"
    return words if promise is None else f"{words} ({promise:,.1f})"


@click.command("work")
@with_appcontext
@one_line_errors
def work() -> None:
    """Work on queued jobs until stopped, without serving: one more worker for the queue."""
    from planner.api.background import runner

    found = runner()
    if not found.enabled:
        fail("PLANNER_EXECUTOR is none: this process may not work on jobs", 2)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    found.start()
    click.echo("working on jobs; stop with Ctrl-C", err=True)
    stopped.wait()
    found.stop()
