"""``/traces``: recorded requests, uploaded as CSV or JSON lines, plain or gzip."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from flask import Response, current_app, request
from flask.views import MethodView
from flask_smorest import Blueprint
from marshmallow import Schema, fields
from sqlalchemy import select
from werkzeug.exceptions import RequestEntityTooLarge

from models import JobRow, TraceRow
from planner.api.blueprint import ApiBlueprint, View
from planner.api.etags import etag_of, require_match, respond
from planner.api.fields import SLUG, Choice, QueryFlag, Text, slug_field
from planner.api.paging import SearchQuery, matches, page, page_schema
from planner.api.problems import Problem, errors_of
from planner.api.resource import Resource
from planner.api.uploads import other_names
from planner.api.validation import StrictSchema, load_document
from planner.api.workload_schema import WorkloadSchema
from planner.errors import InvalidValue
from planner.extensions import db
from planner.jobs.kinds import SIMULATION
from planner.plain import plain
from planner.reading import READERS
from planner.traces.packing import pack, unpack
from planner.traces.reader import TIME_UNITS, read_trace
from planner.traces.statistics import statistics, workload_at_peak
from planner.traces.stream import ReadLimits, TraceTooLarge
from planner.traces.trace import Trace

blp = ApiBlueprint("traces", __name__, "Traces of requests")
CSV_TYPES = ("text/csv", "text/plain", "application/gzip", "application/x-gzip",
             "application/x-ndjson", "application/jsonl", "application/octet-stream")
_SLACK_BYTES = 1 << 17
"""[B] a body may be larger than its limit: the reader, which knows the row, refuses first."""
_FILE = {"type": "string", "format": "binary"}
_CSV_EXAMPLE = "timestamp,prompt_tokens,output_tokens\n0,374,44\n4.31,396,109\n4.5,879,55\n"


class TraceOptionsSchema(StrictSchema):
    """How to read a trace; in the query string, or as fields of a form."""

    slug = slug_field()
    name = Text(longest=200)
    skip_empty = QueryFlag(metadata={
        "description": "Leave out rows without a token (requests that failed)"})
    time_unit = Choice(TIME_UNITS, metadata={
        "description": "Of numeric times; default what the time column's name or the format says"})


class TraceLengthsSchema(Schema):
    """Lengths [token] of a trace."""

    mean = fields.Float(required=True)
    p50 = fields.Float(required=True)
    p90 = fields.Float(required=True)
    p95 = fields.Float(required=True)
    p99 = fields.Float(required=True)
    max = fields.Float(required=True)


class TraceSummarySchema(Schema):
    """What a trace looks like."""

    slug = fields.String(required=True)
    name = fields.String(required=True)
    format = fields.String(required=True)
    skipped = fields.Integer(required=True)
    requests = fields.Integer(required=True)
    span_s = fields.Float(required=True)
    requests_per_second_mean = fields.Float(required=True)
    requests_per_second_peak = fields.Float(required=True)
    peak_over_mean = fields.Float(required=True)
    arrival_cv_whole = fields.Float(required=True)
    arrival_cv_peak = fields.Float(required=True)
    dispersion_per_second_peak = fields.Float(required=True)
    prompt_tokens = fields.Nested(TraceLengthsSchema, required=True)
    output_tokens = fields.Nested(TraceLengthsSchema, required=True)


class TraceSchema(TraceSummarySchema):
    """A trace with the workload that a plan takes from it."""

    workload = fields.Nested(WorkloadSchema, required=True)


TracePage = page_schema("TracePage", TraceSummarySchema)
_BODY = {"required": True, "content": {
    "text/csv": {"schema": {"type": "string"}, "example": _CSV_EXAMPLE},
    "application/gzip": {"schema": _FILE},
    "application/x-ndjson": {"schema": {"type": "string"}},
    "multipart/form-data": {"schema": {
        "type": "object", "required": ["file"], "additionalProperties": False,
        "properties": {"file": _FILE, "slug": {"type": "string", "pattern": f"^{SLUG.pattern}$"},
                       "name": {"type": "string", "maxLength": 200},
                       "skip_empty": {"type": "string", "enum": ["true", "false"]},
                       "time_unit": {"type": "string", "enum": list(TIME_UNITS)}}}}}}
_OPTIONS = [
    {"in": "query", "name": name, "schema": schema, "description": words}
    for name, schema, words in (
        ("slug", {"type": "string", "pattern": f"^{SLUG.pattern}$"},
         "Required for a new trace, unless a form sends a file with a name"),
        ("name", {"type": "string", "maxLength": 200}, "For people"),
        ("skip_empty", {"type": "string", "enum": ["true", "false"]},
         "Leave out rows without a token (requests that failed)"),
        ("time_unit", {"type": "string", "enum": list(TIME_UNITS)},
         "Of numeric times; default what the time column's name or the format says"))]


def summary(row: TraceRow) -> dict[str, Any]:
    """A trace in a list."""
    return {"slug": row.slug, "name": row.name, "format": row.format,
            **row.summary["statistics"]}


def document(row: TraceRow) -> dict[str, Any]:
    """A trace as the API shows it."""
    return {**summary(row), "workload": row.summary["workload"]}


def trace_workload(slug: str) -> dict[str, Any] | None:
    """The workload of a stored trace at its peak, None when there is none."""
    row = db.session.get(TraceRow, slug)
    return row.summary["workload"] if row else None


def stored_trace(slug: str, pointer: str = "/trace") -> Trace:
    """The rows of a stored trace.

    Raises
    ------
    InvalidValue
        When there is none.
    """
    row = db.session.get(TraceRow, slug)
    if row is None:
        raise InvalidValue(f"there is no trace {slug!r}", pointer)
    return unpack(row.data, row.format)


def columns(slug: str, name: str, trace: Trace) -> dict[str, Any]:
    """Columns of a row from a trace."""
    stats = {"skipped": trace.skipped, **statistics(trace)}
    return {"slug": slug, "name": name, "format": trace.format, "requests": len(trace),
            "summary": plain({"statistics": stats, "workload": workload_at_peak(trace)}),
            "data": pack(trace)}


def users(row: TraceRow) -> list[str]:
    """Simulations that will read the rows of a trace: those that are not done."""
    waiting = select(JobRow).where(JobRow.kind == SIMULATION,
                                   JobRow.status.in_(("queued", "running")))
    found = db.session.scalars(waiting.order_by(JobRow.created_at, JobRow.id))
    return [f"simulation {job.id!r} ({job.status})" for job in found
            if job.request.get("trace") == row.slug]


traces = Resource(TraceRow, "slug", "trace", "traces.TraceOne", document, users)


def _uploaded(slug: str | None = None) -> dict[str, Any]:
    """Columns of a row from the body and options of the request."""
    settings = current_app.config
    limit: int = settings["PLANNER_MAX_TRACE_BYTES"]
    request.max_content_length = limit + _SLACK_BYTES
    if request.content_length is not None and request.content_length > limit + _SLACK_BYTES:
        raise TraceTooLarge(f"the body has {request.content_length:,} bytes; allowed are {limit:,}")
    with READERS.reading(), _body() as (stream, filename, form):
        with _named_where_given():
            options = load_document(TraceOptionsSchema(), {**request.args.to_dict(), **form})
            slug = options.get("slug") or slug or _slug_of(filename)
        trace = read_trace(stream, ReadLimits(settings["PLANNER_MAX_TRACE_ROWS"], limit),
                           options.get("skip_empty", False), options.get("time_unit"))
        return columns(slug, options.get("name", ""), trace)


@contextmanager
def _named_where_given() -> Iterator[None]:
    """Refusals of options name the query parameter, or the field of the form that gave it."""
    try:
        yield
    except (InvalidValue, Problem) as error:
        rows = [_named(row) for row in errors_of(error)]
        if rows == errors_of(error):
            raise
        detail = "; ".join(f"{row.get('parameter', row.get('pointer'))}: {row['message']}"
                           for row in rows)
        status, code = (error.status, error.code) if isinstance(error, Problem) else (
            422, error.code)
        raise Problem(status, code, detail, rows) from None


def _named(row: Mapping[str, str]) -> Mapping[str, str]:
    """A field at fault by its parameter, unless a form gave it or should have."""
    name = row.get("pointer", "").strip("/")
    form = request.mimetype == "multipart/form-data"
    if not name or (form and name not in request.args) or name in request.form:
        return row
    return {"parameter": name, "message": row["message"]}


@contextmanager
def _body() -> Iterator[tuple[BinaryIO, str, dict[str, str]]]:
    """The trace as a stream, its file name, and the fields of a form."""
    if request.mimetype == "multipart/form-data":
        try:
            files = request.files
        except RequestEntityTooLarge:
            raise TraceTooLarge("the form is too large") from None
        extra = other_names(files, "file")
        if "file" not in files or extra or len(files.getlist("file")) != 1:
            raise InvalidValue("send one trace, as the file field", f"/{(extra or ['file'])[0]}")
        yield files["file"].stream, files["file"].filename or "", {  # type: ignore[misc]
            name or "": text for name, text in request.form.items()}
    elif request.mimetype in CSV_TYPES:
        yield request.stream, "", {}  # type: ignore[misc]
    else:
        raise Problem(415, "unsupported-media-type",
                      f"send multipart/form-data, {', '.join(CSV_TYPES)}; "
                      f"not {request.mimetype or 'nothing'}")


def _slug_of(filename: str) -> str:
    stem = re.sub(r"(\.(csv|jsonl|json|txt|gz))+$", "", filename.rsplit("/", 1)[-1].lower())
    slug = re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")[:100]
    if not SLUG.fullmatch(slug):
        raise InvalidValue("is required", "/slug")
    return slug


def _upload(status: int, *problems: int) -> Callable[[View], View]:
    """Document an operation whose body is a file; the view reads it."""
    def decorate(view: View) -> View:
        described: View = Blueprint.doc(requestBody=_BODY, parameters=_OPTIONS)(view)
        documented: View = blp.response(status, TraceSchema)(described)
        return blp.problems(400, 408, 413, 415, 422, 503, *problems)(documented)
    return decorate


@blp.route("/traces")
class Traces(MethodView):
    """All traces."""

    @blp.read(TracePage, query=SearchQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List traces."""
        query = select(TraceRow).order_by(TraceRow.slug)
        if "q" in args:
            query = query.where(matches(args["q"], TraceRow.slug, TraceRow.name))
        rows, total, following = page(query, args)
        return respond({"items": [summary(r) for r in rows], "total": total, "next": following})

    @_upload(201, 409)
    def post(self) -> Response:
        """Store a trace: a row a request, its time, prompt and output tokens.

        The column names of the Azure, BurstGPT, Mooncake and Vidur traces are recognised beside
        ``timestamp, prompt_tokens, output_tokens``. Rows must be sorted by time.
        """
        made = _uploaded()
        with _named_where_given():
            return traces.create(made)


@blp.route("/traces/<slug>")
class TraceOne(MethodView):
    """One trace."""

    @blp.read(TraceSchema, 404)
    def get(self, slug: str) -> Response:
        """Show the statistics of a trace and the workload that a plan takes from it."""
        return traces.read(slug)

    @ApiBlueprint.replaces
    @_upload(200, 404, 412, 428)
    def put(self, slug: str) -> Response:
        """Replace a trace."""
        require_match(document(traces.find(slug)))
        made = _uploaded(slug)
        with _named_where_given():
            return traces.replace(slug, made)

    @blp.remove()
    def delete(self, slug: str) -> Response:
        """Delete a trace that no unfinished simulation reads; plans made from it keep their own
        copy of its workload."""
        return traces.delete(slug)


@blp.route("/traces/<slug>/requests")
class TraceRequests(MethodView):
    """The rows of a trace."""

    @blp.read({"type": "string"}, 404, content_type="text/csv")
    def get(self, slug: str) -> Response:
        """The rows of a trace as CSV; uploading it again gives the same trace."""
        row = traces.find(slug)
        trace = unpack(row.data, row.format)
        response = Response(_csv(trace), content_type="text/csv; charset=utf-8")
        response.headers["Content-Disposition"] = f'attachment; filename="{slug}.csv"'
        response.set_etag(etag_of(row.data))
        response.make_conditional(request)
        return response


def _csv(trace: Trace) -> Iterator[str]:
    """The rows in blocks, so that a large trace is never one text."""
    rows = zip(trace.arrived_at_s.tolist(), trace.prompt_tokens.astype(int).tolist(),
               trace.output_tokens.astype(int).tolist(), strict=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("timestamp", "prompt_tokens", "output_tokens"))
    for time, prompt, output in rows:
        writer.writerow((round(time, 6), prompt, output))
        if text.tell() > 1 << 16:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()
