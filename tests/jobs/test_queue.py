"""The queue: of many who claim a job one gets it, and only its owner writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Engine, delete, update
from sqlalchemy.orm import Session

from models import JobRow, SweepPartRow
from models.base import utc_now
from planner.extensions import db
from planner.jobs import queue
from planner.jobs.run import MOST_DEATHS, JobFailed, Run
from planner.jobs.signals import FolderSignals

ROOT = Path(__file__).resolve().parents[2]
STALE_S = 30.0


@pytest.fixture
def engine(app: Flask) -> Iterator[Engine]:
    with app.app_context():
        yield db.engine
        with Session(db.engine) as session:
            session.execute(delete(JobRow))
            session.commit()


def add(engine: Engine, count: int = 1) -> list[str]:
    with Session(engine) as session:
        jobs = [queue.enqueue(session, "sweep", {}) for _ in range(count)]
        session.commit()
        return [j.id for j in jobs]


def claim(engine: Engine, owner: str) -> str | None:
    with Session(engine) as session:
        return queue.claim(session, owner, STALE_S)


def job(engine: Engine, job_id: str) -> JobRow:
    with Session(engine) as session:
        return session.get_one(JobRow, job_id)


def age(engine: Engine, job_id: str, seconds: float) -> None:
    """Make the last sign of life so old."""
    with Session(engine) as session:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(
            heartbeat_at=utc_now() - timedelta(seconds=seconds)))
        session.commit()


def test_the_oldest_first_and_each_once(engine: Engine) -> None:
    first, second = add(engine)[0], add(engine)[0]
    assert [claim(engine, "a"), claim(engine, "b"), claim(engine, "c")] == [first, second, None]
    assert (job(engine, first).owner, job(engine, first).attempts) == ("a", 1)


def test_many_claim_at_once(engine: Engine) -> None:
    """Threads with connections of their own, as web workers have, share twelve jobs."""
    jobs, got, start = add(engine, 12), [], threading.Barrier(6)

    def work(name: str) -> None:
        start.wait()
        while (found := claim(engine, name)) is not None:
            got.append(found)

    threads = [threading.Thread(target=work, args=(f"worker {i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(jobs)


def test_a_dead_owner_is_replaced_and_writes_no_more(engine: Engine) -> None:
    (job_id,) = add(engine)
    claim(engine, "first")
    assert claim(engine, "second") is None, "it shows life"
    age(engine, job_id, STALE_S + 1)
    assert claim(engine, "second") == job_id
    with Session(engine) as session:
        part = SweepPartRow(sweep=job_id, part=0, cells=1, rows=b"")
        with pytest.raises(queue.LostJob):
            queue.keep(session, job_id, "first", 0.5, [part])
        with pytest.raises(queue.LostJob):
            queue.finish(session, job_id, "first")
        queue.release(session, job_id, "first")
        assert session.get(SweepPartRow, (job_id, 0)) is None
        queue.keep(session, job_id, "second", 0.5)
    found = job(engine, job_id)
    assert (found.status, found.progress, found.attempts) == ("running", 0.5, 2)


def test_a_job_that_kills_its_process_is_given_up(engine: Engine) -> None:
    (job_id,) = add(engine)
    for attempt in range(queue.MOST_ATTEMPTS):
        assert claim(engine, f"attempt {attempt}") == job_id
        age(engine, job_id, STALE_S + 1)
    assert claim(engine, "another") is None
    found = job(engine, job_id)
    assert found.status == "failed"
    assert found.error == ("given up: the service that worked on it died 4 times, "
                           "which is the most")


class Deadly:
    """An executor whose every task takes its process with it."""

    workers, started = 1, 0

    def submit(self, task: Any, *arguments: Any) -> Future[Any]:
        self.started += 1
        future: Future[Any] = Future()
        future.set_exception(BrokenProcessPool())
        return future

    def signals(self) -> FolderSignals:
        return FolderSignals()

    def recover(self) -> None:
        pass

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("alone", [True, False])
def test_a_task_that_kills_its_worker_fails_its_job(engine: Engine, alone: bool) -> None:
    (job_id,) = add(engine)
    claim(engine, "a")
    deadly = Deadly()
    working = Run(engine, deadly, job_id, "a", {})
    with pytest.raises(JobFailed, match=r"worker process of one task died 3 times, which is the m"):
        _ = working.alone(print) if alone else list(working.gather([1], lambda _: (print, ())))
    assert deadly.started == MOST_DEATHS
    working.close()


def test_the_documents_say_both_limits() -> None:
    text = " ".join((ROOT / "docs" / "long_work.md").read_text().split())
    ordinals = {3: "third", 4: "fourth"}
    assert f"the {ordinals[queue.MOST_ATTEMPTS]} death of the service that works on it" in text
    assert f"the {ordinals[MOST_DEATHS]} of the worker process of one task" in text


def test_putting_back_is_no_attempt(engine: Engine) -> None:
    (job_id,) = add(engine)
    claim(engine, "a")
    with Session(engine) as session:
        queue.release(session, job_id, "a")
    assert (job(engine, job_id).status, job(engine, job_id).attempts) == ("queued", 0)
    assert claim(engine, "b") == job_id


def test_how_jobs_end(engine: Engine) -> None:
    done, failed, cancelled = add(engine, 3)
    for _ in range(3):
        claim(engine, "a")
    with Session(engine) as session:
        queue.finish(session, done, "a")
        queue.finish(session, failed, "a", "no reason")
        assert queue.cancel(session, cancelled)
        session.commit()
        assert not queue.cancel(session, done)
        with pytest.raises(queue.LostJob):
            queue.keep(session, cancelled, "a")
    assert [job(engine, j).status for j in (done, failed, cancelled)] == [
        "done", "failed", "cancelled"]
    assert (job(engine, done).progress, job(engine, failed).error) == (1.0, "no reason")
    with Session(engine) as session:
        assert queue.reopen(session, cancelled, "b")
        assert not queue.reopen(session, done, "b")
    assert job(engine, cancelled).owner == "b"
