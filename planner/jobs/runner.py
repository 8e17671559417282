"""The thread that takes jobs from the queue and works on them; one in each process that serves."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from models import Base, JobRow
from planner.errors import PlannerError
from planner.jobs import queue
from planner.jobs.executors import NONE, Executor, ExecutorUnavailable, make_executor
from planner.jobs.run import JobFailed, Run, Stopped

POLL_S = 1.0
"""[s] between looks into the queue; a job that this process itself queues is seen at once."""
IDLE_S = 120.0
"""[s] without a job after which the executor lets its processes go."""
PAUSE_S = 5.0
"""[s] to wait when nobody can compute."""
STOP_S = 3.0
"""[s] to wait for the thread at the end."""
Handler = Callable[[Run], list[Base]]
log = structlog.get_logger()


def own_name() -> str:
    """A name for this process that no other has, ever."""
    return f"{socket.gethostname()[:50]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class Runner:
    """Works on the jobs of a database.

    Parameters
    ----------
    engine : Engine
    handlers : callable
        Gives the handlers by kind of job, which take a :class:`Run` and return the rows to store
        when it is done; called when there is a first job, since they load the whole planner.
    settings : mapping
        ``PLANNER_EXECUTOR``, ``PLANNER_JOB_PROCESSES``, ``PLANNER_JOB_STALE_S``.
    """

    def __init__(self, engine: Engine, handlers: Callable[[], Mapping[str, Handler]],
                 settings: Mapping[str, Any]) -> None:
        self.engine, self.handlers = engine, handlers
        self.enabled = settings["PLANNER_EXECUTOR"] != NONE
        self.stale_s = float(settings["PLANNER_JOB_STALE_S"])
        self.executor: Executor = make_executor(settings["PLANNER_EXECUTOR"],
                                                settings["PLANNER_JOB_PROCESSES"])
        self._lock, self._wake, self._stop = threading.Lock(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def start(self) -> None:
        """Start the thread in this process, once; a forked copy starts its own."""
        with self._lock:
            alive = self._thread is not None and self._thread.is_alive()
            if not self.enabled or (alive and self._pid == os.getpid()):
                return
            self._pid = os.getpid()
            self._stop.clear()
            self._thread = threading.Thread(target=self.work, name="planner-jobs", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Start if need be, and look into the queue now."""
        self.start()
        self._wake.set()

    def stop(self) -> None:
        """Put the job at hand back into the queue and end the thread."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(STOP_S)
        self.executor.stop()

    def work(self) -> None:
        """Take up one job after another until stopped."""
        name, idle_since = own_name(), time.monotonic()
        while not self._stop.is_set():
            if self.work_on_one(name):
                idle_since = time.monotonic()
                continue
            if time.monotonic() - idle_since > IDLE_S:
                self.executor.stop()
                idle_since = time.monotonic()
            self._wake.wait(POLL_S)
            self._wake.clear()

    def work_on_one(self, owner: str) -> bool:
        """Work on one job if there is one; whether there was."""
        try:
            with Session(self.engine) as session:
                job_id = queue.claim(session, owner, self.stale_s)
                if job_id is None:
                    return False
                job = session.get_one(JobRow, job_id)
                kind, request = job.kind, job.request
        except SQLAlchemyError as error:  # not migrated yet, or away for a moment
            log.warning("job_queue_unavailable", error=str(error).splitlines()[0])
            self._stop.wait(PAUSE_S)
            return False
        self._handle(Run(self.engine, self.executor, job_id, owner, request, self._stop.is_set),
                     kind)
        return True

    def _handle(self, run: Run, kind: str) -> None:
        log.info("job_started", job=run.job_id, kind=kind)
        try:
            finish_run(run, self.handlers()[kind])
            log.info("job_ended", job=run.job_id, kind=kind)
        except queue.LostJob:
            log.info("job_lost", job=run.job_id, kind=kind)
        except (Stopped, ExecutorUnavailable, SQLAlchemyError) as error:
            log.warning("job_put_back", job=run.job_id, kind=kind, error=str(error))
            self._put_back(run)
            self._stop.wait(PAUSE_S)

    def _put_back(self, run: Run) -> None:
        try:
            with Session(self.engine) as session:
                queue.release(session, run.job_id, run.owner)
        except SQLAlchemyError:  # then it counts as abandoned in a while
            log.warning("job_not_put_back", job=run.job_id)


def finish_run(run: Run, handler: Handler) -> None:
    """Let a handler do a job and store how it ended.

    Raises
    ------
    LostJob, Stopped, ExecutorUnavailable, SQLAlchemyError
        When it did not end.
    """
    error, rows = None, []
    try:
        rows = handler(run)
    except (queue.LostJob, Stopped, ExecutorUnavailable, SQLAlchemyError):
        raise
    except (JobFailed, PlannerError) as failure:
        error = str(failure)
    except Exception as failure:
        log.error("job_failed", job=run.job_id, exc_info=failure)
        error = f"something broke here ({type(failure).__name__}: {failure})"
    finally:
        run.close()
    with Session(run.engine) as session:
        queue.finish(session, run.job_id, run.owner, error, rows)
