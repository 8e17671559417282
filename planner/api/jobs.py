"""``/jobs``: long work, how far it is, and how to cancel it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import Response, request, url_for
from flask.views import MethodView
from marshmallow import Schema, fields
from sqlalchemy import select

from models import JobRow, SweepPartRow
from models.job import STATUSES
from planner.api.background import runner
from planner.api.blueprint import BASE_PATH, ApiBlueprint
from planner.api.etags import require_match, respond
from planner.api.fields import Choice
from planner.api.paging import PageQuery, page, page_schema
from planner.api.problems import Problem
from planner.extensions import db
from planner.jobs import queue

blp = ApiBlueprint("jobs", __name__, "Long work: simulations and sweeps")
KINDS = ("simulation", "sweep")


class JobSchema(Schema):
    """A job. ``result`` is where to read what it found, null until there is something."""

    id = fields.String(required=True)
    kind = fields.String(required=True, metadata={"enum": list(KINDS)})
    status = fields.String(required=True, metadata={"enum": list(STATUSES)})
    progress = fields.Float(required=True, metadata={"minimum": 0, "maximum": 1})
    result = fields.String(required=True, allow_none=True)
    error = fields.String(required=True, allow_none=True)
    attempts = fields.Integer(required=True)
    created_at = fields.String(required=True, metadata={"format": "date-time"})
    started_at = fields.String(required=True, allow_none=True, metadata={"format": "date-time"})
    finished_at = fields.String(required=True, allow_none=True, metadata={"format": "date-time"})


JobPage = page_schema("JobPage", JobSchema)


class JobQuery(PageQuery):
    """A page of the jobs that fit."""

    kind = Choice(KINDS)
    status = Choice(STATUSES)


def find_job(job_id: str, kind: str | None = None) -> JobRow:
    """The job of an id.

    Raises
    ------
    Problem
        404 when there is none, or none of that kind.
    """
    row = None if "\x00" in job_id else db.session.get(JobRow, job_id)
    if row is None or kind not in (None, row.kind):
        raise Problem(404, "not-found", f"there is no {kind or 'job'} {job_id!r}")
    return row


def document(row: JobRow) -> dict[str, Any]:
    """A job as the API shows it."""
    return {"id": row.id, "kind": row.kind, "status": row.status, "progress": row.progress,
            "result": _result(row), "error": row.error, "attempts": row.attempts,
            "created_at": _time(row.created_at), "started_at": _time(row.started_at),
            "finished_at": _time(row.finished_at)}


def _result(row: JobRow) -> str | None:
    if row.kind == "sweep":
        has_part = select(SweepPartRow.part).where(SweepPartRow.sweep == row.id).limit(1)
        if row.status != "done" and db.session.scalar(has_part) is None:
            return None
        return f"{BASE_PATH}/sweeps/{row.id}"
    return f"{BASE_PATH}/simulations/{row.id}" if row.status == "done" else None


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat().replace("+00:00", "Z")


def accept(kind: str, body: dict[str, Any]) -> Response:
    """Queue a job and answer 202 with where to look for it."""
    row = queue.enqueue(db.session, kind, body)
    db.session.commit()
    runner().wake()
    return respond(document(row), 202, url_for("jobs.Job", job_id=row.id))


def delete_result(job_id: str, kind: str) -> Response:
    """Delete a job with what it found; one that runs ends soon."""
    row = find_job(job_id, kind)
    if "If-Match" in request.headers:
        require_match(document(row))
    db.session.delete(row)
    db.session.commit()
    return Response(status=204)


@blp.route("/jobs")
class Jobs(MethodView):
    """All jobs."""

    @blp.read(JobPage, query=JobQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List jobs, the newest first."""
        query = select(JobRow).order_by(JobRow.created_at.desc(), JobRow.id)
        if "kind" in args:
            query = query.where(JobRow.kind == args["kind"])
        if "status" in args:
            query = query.where(JobRow.status == args["status"])
        rows, total, following = page(query, args)
        return respond({"items": [document(r) for r in rows], "total": total, "next": following})


@blp.route("/jobs/<job_id>")
class Job(MethodView):
    """One job."""

    @blp.read(JobSchema, 404)
    def get(self, job_id: str) -> Response:
        """Show a job: its status, its progress from 0 to 1, and where its result is."""
        row = find_job(job_id)
        if row.status in ("queued", "running"):
            runner().start()  # where no server hook did: jobs go on after a restart
        return respond(document(row))

    @blp.remove(checked=False)
    @blp.problems(409)
    def delete(self, job_id: str) -> Response:
        """Cancel a job. It stays readable as ``cancelled``, and so does what a sweep has found.

        409 when it is done or has failed already; deleting the sweep or simulation removes both.
        """
        row = find_job(job_id)
        if "If-Match" in request.headers:
            require_match(document(row))
        if not queue.cancel(db.session, job_id):
            db.session.rollback()
            db.session.refresh(row)
            if row.status != "cancelled":
                raise Problem(409, "already-ended", f"the job is {row.status} already; delete its "
                              f"{row.kind} to remove it")
        db.session.commit()
        return Response(status=204)
