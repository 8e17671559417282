"""``/simulations``: every request of a plan's fleet, served one by one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from flask import Response, request
from flask.views import MethodView
from sqlalchemy import select

from models import JobRow, PlanRow, SimulationRow
from planner.api.blueprint import ApiBlueprint
from planner.api.etags import etag_of, respond
from planner.api.jobs import JobSchema, accept, delete_result, find_job
from planner.api.jobs import document as job_document
from planner.api.paging import PageQuery, page, page_schema
from planner.api.plan_service import document_of
from planner.api.problems import Problem
from planner.api.simulation_schema import (
    SimulationAnswerSchema,
    SimulationSchema,
    SimulationSummarySchema,
)
from planner.api.traces import stored_trace, trace_workload
from planner.api.workloads import saved_workload
from planner.catalog.store import catalog_from_db
from planner.errors import NotInCatalog
from planner.extensions import db
from planner.jobs.kinds import SIMULATION

blp = ApiBlueprint("simulations", __name__, "Simulations of plans and fleets")
SimulationPage = page_schema("SimulationPage", SimulationSummarySchema)
_BLOCK = 20_000
EXAMPLE = {
    "fleet": {"model": "llama-3.1-8b", "setup": "chunked",
              "pools": [{"gpu": "h100-sxm-80gb", "replicas": 2, "token_budget": 2048}]},
    "workload": {"requests_per_second": 10, "prompt_tokens": {"mean": 1000, "p95": 3000},
                 "output_tokens": 250},
    "slo": {"ttft_ms": 1000, "tpot_ms": 40}, "requests": 5000, "seed": 1}


def summary(row: JobRow) -> dict[str, Any]:
    """A simulation in a list."""
    job = job_document(row)
    return {**{k: job[k] for k in ("id", "status", "progress", "created_at")},
            **{k: row.request[k] for k in ("plan", "rank", "trace")}}


def find(simulation_id: str) -> SimulationRow:
    """The finished simulation of an id.

    Raises
    ------
    Problem
        404 when there is none, 409 while it is not finished.
    """
    job = find_job(simulation_id, SIMULATION)
    row = db.session.get(SimulationRow, simulation_id)
    if row is None:
        why = f": {job.error}" if job.error else f", {job.progress:.0%} done"
        raise Problem(409, "not-finished", f"the simulation is {job.status}{why}; "
                      f"/api/v1/jobs/{job.id} says how far it is")
    return row


@blp.route("/simulations")
class Simulations(MethodView):
    """All simulations."""

    @blp.read(SimulationPage, query=PageQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List simulations, the newest first."""
        query = select(JobRow).where(JobRow.kind == SIMULATION)
        rows, total, following = page(query.order_by(JobRow.created_at.desc(), JobRow.id), args)
        return respond({"items": [summary(r) for r in rows], "total": total, "next": following})

    @blp.create(SimulationSchema, JobSchema, status=202, example=EXAMPLE)
    def post(self, data: dict[str, Any]) -> Response:
        """Queue a simulation of an option of a stored plan, or of a fleet by hand.

        Requests are those of a trace, or generated from the workload with a seed.
        """
        from planner.api.simulation_service import job_of_fleet, job_of_plan
        from planner.simulations.requests import check_extent, sliced

        if "trace" in data and trace_workload(data["trace"]) is None:
            raise NotInCatalog(f"no trace {data['trace']!r} is stored", "/trace")
        if "trace" in data:
            part = sliced(stored_trace(data["trace"]), data["start_s"], data["end_s"])
            check_extent(len(part), part.span_s / data["rate_scale"], data["warmup_share"],
                         "/rate_scale")
        catalog = catalog_from_db(db.session)
        if "fleet" in data:
            return accept(SIMULATION, job_of_fleet(data, catalog, saved_workload, trace_workload))
        plan = db.session.get(PlanRow, data["plan"])
        if plan is None:
            raise NotInCatalog(f"there is no plan {data['plan']!r}", "/plan")
        return accept(SIMULATION, job_of_plan(data, document_of(plan), plan.snapshot, catalog,
                                              trace_workload))


@blp.route("/simulations/<simulation_id>")
class Simulation(MethodView):
    """One simulation."""

    @blp.read(SimulationAnswerSchema, 404, 409)
    def get(self, simulation_id: str) -> Response:
        """What the requests saw, next to what the plan promised."""
        row = find(simulation_id)
        return respond({"id": row.id, "request": None, **row.result})

    @blp.remove(checked=False)
    def delete(self, simulation_id: str) -> Response:
        """Delete a simulation; if it runs, it ends."""
        return delete_result(simulation_id, SIMULATION)


@blp.route("/simulations/<simulation_id>/requests")
class SimulationRequests(MethodView):
    """The requests of a simulation."""

    @blp.read({"type": "string"}, 404, 409, content_type="text/csv")
    def get(self, simulation_id: str) -> Response:
        """Every request with what it saw, as CSV."""
        row = find(simulation_id)
        response = Response(csv_blocks(row.requests), content_type="text/csv; charset=utf-8")
        response.headers["Content-Disposition"] = (
            f'attachment; filename="simulation-{simulation_id}-requests.csv"')
        response.set_etag(etag_of(row.requests))
        response.make_conditional(request)
        return response


def csv_blocks(data: bytes) -> Iterator[bytes]:
    """Packed columns as CSV (RFC 4180), some ten thousand rows at a time."""
    from planner.simulations.tasks import unpack_columns

    columns = unpack_columns(data)
    yield ",".join(columns).encode() + b"\r\n"
    for start in range(0, len(next(iter(columns.values()))), _BLOCK):
        yield _csv({n: c[start:start + _BLOCK] for n, c in columns.items()})


def _csv(columns: dict[str, np.ndarray[Any, Any]]) -> bytes:
    """Rows of numbers; nothing where there is none."""
    import pyarrow as pa  # late: it takes a while to load
    from pyarrow import csv

    text = io.BytesIO()
    csv.write_csv(pa.table({n: pa.array(_shown(c), from_pandas=True) for n, c in columns.items()}),
                  text, csv.WriteOptions(include_header=False))
    return text.getvalue().replace(b"\n", b"\r\n")


def _shown(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers with no more digits than they have."""
    if values.dtype.kind != "f":
        return values
    return np.asarray(values.astype(float).round(6 if values.dtype.itemsize == 8 else 3))
