"""``/sweeps``: a plan request over a grid of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Response, current_app, request
from flask.views import MethodView
from marshmallow import fields
from sqlalchemy import func, select

from models import JobRow, SweepPartRow
from planner.api.blueprint import ApiBlueprint
from planner.api.etags import etag_of, respond
from planner.api.fields import Choice, Map
from planner.api.jobs import JobSchema, accept, delete_result, find_job
from planner.api.jobs import document as job_document
from planner.api.paging import PageQuery, page, page_schema
from planner.api.plan_answer import OpenSchema
from planner.api.traces import trace_workload
from planner.api.uploads import XLSX
from planner.api.validation import StrictSchema
from planner.api.workloads import saved_workload
from planner.catalog.store import catalog_from_db
from planner.extensions import db
from planner.jobs.kinds import SWEEP

blp = ApiBlueprint("sweeps", __name__, "Plans over a grid")
FORMATS = ("json", "csv", "parquet", "xlsx")
PARQUET = "application/vnd.apache.parquet"
TYPES = {"json": "application/json", "csv": "text/csv; charset=utf-8", "parquet": PARQUET,
         "xlsx": XLSX}
EXAMPLE = {
    "base": {"workload": {"requests_per_second": 5, "prompt_tokens": {"mean": 1000, "p95": 3000},
                          "output_tokens": 250},
             "slo": {"ttft_ms": 2000, "tpot_ms": 60}, "setups": ["chunked", "disaggregated"]},
    "grid": {"model": ["llama-3.1-8b", "qwen3-32b"],
             "gpus": [["h100-sxm-80gb"], ["l40s"], ["h100-sxm-80gb", "l40s"]],
             "workload.requests_per_second": [1, 5, 20]}}


class SweepSchema(StrictSchema):
    """A plan request, and lists of values for any of its fields (dots lead inside objects)."""

    base = fields.Dict(required=True, metadata={
        "description": "A plan request; fields that the grid gives may be missing"})
    grid = Map(keys=fields.String(), values=fields.Raw(metadata={
        "oneOf": [{"type": "array", "minItems": 1, "items": {}}, {"const": "*"}]}),
               required=True, metadata={
        "description": "Values to try, by dotted field name; for model and gpus \"*\" is all"})


class SweepSummarySchema(OpenSchema):
    """A sweep in a list."""

    id = fields.String(required=True)
    status = fields.String(required=True)
    progress = fields.Float(required=True)
    cells = fields.Integer(required=True)
    finished_cells = fields.Integer(required=True)
    created_at = fields.String(required=True, metadata={"format": "date-time"})


class SweepAnswerSchema(SweepSummarySchema):
    """The table of a sweep, as far as it is finished."""

    error = fields.String(required=True, allow_none=True)
    base = fields.Dict(required=True)
    grid = fields.Dict(required=True)
    columns = fields.List(fields.String(), required=True)
    rows = fields.List(fields.List(fields.Raw(allow_none=True)), required=True)


SweepPage = page_schema("SweepPage", SweepSummarySchema)


class TableQuery(StrictSchema):
    """In which form."""

    format = Choice(FORMATS)


def summary(row: JobRow) -> dict[str, Any]:
    """A sweep in a list."""
    from planner.sweeps.grid import from_json

    finished = db.session.scalar(select(func.coalesce(func.sum(SweepPartRow.cells), 0)).where(
        SweepPartRow.sweep == row.id))
    job = job_document(row)
    return {**{k: job[k] for k in ("id", "status", "progress")},
            "cells": from_json(row.request).cells, "finished_cells": finished,
            "created_at": job["created_at"]}


def parts_of(sweep_id: str) -> Iterator[list[list[Any]]]:
    """The rows of a sweep, a list a finished part, in the order of the cells."""
    from planner.sweeps.tasks import unpack_rows

    query = select(SweepPartRow.rows).where(SweepPartRow.sweep == sweep_id)
    for data in db.session.scalars(query.order_by(SweepPartRow.part)):
        yield unpack_rows(data)


def answer(row: JobRow) -> dict[str, Any]:
    """A sweep with its rows."""
    from planner.sweeps.grid import from_json
    from planner.sweeps.tasks import column_names

    grid = from_json(row.request)
    return {**summary(row), "error": row.error, "base": grid.base, "grid": grid.values,
            "columns": column_names(grid),
            "rows": [values for part in parts_of(row.id) for values in part]}


def chosen_format(asked: str | None) -> str:
    """The form of a table, by ``?format=`` or else by ``Accept``."""
    if asked is not None:
        return asked
    types = {t.partition(";")[0]: name for name, t in TYPES.items()}
    best = request.accept_mimetypes.best_match(list(types), default="application/json")
    return types[best]


def table_response(row: JobRow, form: str) -> Response:
    """The table of a sweep as a file."""
    from planner.sweeps import tables
    from planner.sweeps.grid import from_json

    grid = from_json(row.request)
    made = {"parquet": tables.parquet_bytes, "xlsx": tables.xlsx_bytes}.get(form)
    body = (made(grid, parts_of(row.id)) if made is not None
            else "".join(tables.csv_blocks(grid, parts_of(row.id))).encode())
    response = Response(body, content_type=TYPES[form])
    response.headers["Content-Disposition"] = f'attachment; filename="sweep-{row.id}.{form}"'
    # The rows decide, not the file: a workbook says when it was written.
    count = summary(row)["finished_cells"]
    response.set_etag(etag_of(f"{row.id} {form} {count}".encode()))
    response.make_conditional(request)
    response.vary.add("Accept")
    return response


@blp.route("/sweeps")
class Sweeps(MethodView):
    """All sweeps."""

    @blp.read(SweepPage, query=PageQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List sweeps, the newest first."""
        query = select(JobRow).where(JobRow.kind == SWEEP)
        rows, total, following = page(query.order_by(JobRow.created_at.desc(), JobRow.id), args)
        return respond({"items": [summary(r) for r in rows], "total": total, "next": following})

    @blp.create(SweepSchema, JobSchema, status=202, example=EXAMPLE)
    def post(self, data: dict[str, Any]) -> Response:
        """Queue a sweep: one plan for each combination of the grid's values.

        Every value is checked first. A combination that cannot be planned is a row that says why.
        """
        from planner.sweeps.grid import checked_grid

        grid = checked_grid(data["base"], data["grid"], catalog_from_db(db.session),
                            current_app.config["PLANNER_MAX_SWEEP_CELLS"], saved_workload,
                            trace_workload)
        return accept(SWEEP, grid.to_json())


@blp.route("/sweeps/<sweep_id>")
class Sweep(MethodView):
    """One sweep."""

    @blp.read(SweepAnswerSchema, 404, query=TableQuery, text="text/csv")
    def get(self, args: dict[str, Any], sweep_id: str) -> Response:
        """The table of a sweep as far as it is finished: JSON, CSV, Parquet or xlsx."""
        row = find_job(sweep_id, SWEEP)
        form = chosen_format(args.get("format"))
        if form != "json":
            return table_response(row, form)
        response = respond(answer(row))
        response.vary.add("Accept")
        return response

    @blp.remove(checked=False)
    def delete(self, sweep_id: str) -> Response:
        """Delete a sweep and its rows; if it runs, it ends."""
        return delete_result(sweep_id, SWEEP)
