"""The queue of jobs in the database: every change is one guarded UPDATE, so two never collide.

A process that takes a job up writes its own name as ``owner``. Whatever it writes later names the
owner again, so a process that was believed dead, or whose job was cancelled, changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.orm import Session

from models import Base, JobRow
from models.base import utc_now

MOST_ATTEMPTS = 4
"""A job is given up when the process that works on it (a service, not one of its worker processes,
see ``run.MOST_DEATHS``) died so often: the job may be what kills it."""


class LostJob(Exception):
    """The job is no longer this process's: cancelled, deleted or taken over."""


def enqueue(session: Session, kind: str, request: dict[str, Any]) -> JobRow:
    """Add a job to the queue; the caller commits."""
    job = JobRow(id=str(uuid.uuid4()), kind=kind, request=request, status="queued", progress=0.0)
    session.add(job)
    return job


def claim(session: Session, owner: str, stale_s: float) -> str | None:
    """Take up the oldest job that waits or whose process shows no life; its id.

    Parameters
    ----------
    session : Session
        Committed.
    owner : str
        Who takes it up.
    stale_s : float
        [s] age of a heartbeat beyond which its process counts as dead.
    """
    limit = utc_now() - timedelta(seconds=stale_s)
    waiting = _claimable(limit)
    for job_id, attempts in session.execute(
            select(JobRow.id, JobRow.attempts).where(waiting).order_by(JobRow.created_at)).all():
        if attempts >= MOST_ATTEMPTS:
            values: dict[str, Any] = {
                "status": "failed", "finished_at": utc_now(), "owner": None,
                "error": f"given up: the service that worked on it died {attempts} "
                         "times, which is the most"}
        else:
            values = {"status": "running", "owner": owner, "heartbeat_at": utc_now(),
                      "started_at": utc_now(), "attempts": JobRow.attempts + 1}
        taken = _update(session, and_(JobRow.id == job_id, waiting), values)
        session.commit()
        if taken and attempts < MOST_ATTEMPTS:
            return str(job_id)
    session.rollback()
    return None


def _claimable(limit: datetime) -> ColumnElement[bool]:
    return or_(JobRow.status == "queued",
               and_(JobRow.status == "running", JobRow.heartbeat_at < limit))


def keep(session: Session, job_id: str, owner: str, progress: float | None = None,
         rows: Iterable[Base] = ()) -> None:
    """Show life, and store progress and rows in the same transaction.

    Raises
    ------
    LostJob
        When the job is no longer the owner's; then nothing is stored.
    """
    values: dict[str, Any] = {"heartbeat_at": utc_now()}
    if progress is not None:
        values["progress"] = min(max(progress, 0.0), 1.0)
    _owned(session, job_id, owner, values)
    session.add_all(rows)
    session.commit()


def finish(session: Session, job_id: str, owner: str, error: str | None = None,
           rows: Iterable[Base] = ()) -> None:
    """End a job as done, or as failed when there is an error.

    Raises
    ------
    LostJob
        When the job is no longer the owner's.
    """
    values: dict[str, Any] = {"finished_at": utc_now(), "heartbeat_at": utc_now(), "owner": None}
    values |= {"status": "failed", "error": error} if error else {"status": "done", "progress": 1.0}
    _owned(session, job_id, owner, values)
    session.add_all(rows)
    session.commit()


def release(session: Session, job_id: str, owner: str) -> None:
    """Put a job back into the queue: the process stops, through no fault of the job."""
    values = {"status": "queued", "owner": None, "attempts": JobRow.attempts - 1}
    _update(session, _mine(job_id, owner), values)
    session.commit()


def cancel(session: Session, job_id: str) -> bool:
    """Cancel a job that waits or runs; whether it was one. The caller commits."""
    alive = and_(JobRow.id == job_id, JobRow.status.in_(("queued", "running")))
    return _update(session, alive, {"status": "cancelled", "owner": None,
                                    "finished_at": utc_now()})


def reopen(session: Session, job_id: str, owner: str) -> bool:
    """Take up a job that was cancelled or has failed again; whether it was one."""
    ended = and_(JobRow.id == job_id, JobRow.status.in_(("cancelled", "failed")))
    values = {"status": "running", "owner": owner, "heartbeat_at": utc_now(), "error": None,
              "finished_at": None, "attempts": 1}
    taken = _update(session, ended, values)
    session.commit()
    return taken


def _mine(job_id: str, owner: str) -> ColumnElement[bool]:
    return and_(JobRow.id == job_id, JobRow.owner == owner, JobRow.status == "running")


def _owned(session: Session, job_id: str, owner: str, values: dict[str, Any]) -> None:
    if not _update(session, _mine(job_id, owner), values):
        session.rollback()
        raise LostJob(job_id)


def _update(session: Session, condition: ColumnElement[bool], values: dict[str, Any]) -> bool:
    statement = update(JobRow).where(condition).values(**values)
    found: Any = session.execute(statement, execution_options={"synchronize_session": False})
    return bool(found.rowcount)
