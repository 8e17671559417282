"""One job while it is worked on: tasks out, results in, signs of life in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from models import Base
from planner.jobs import queue
from planner.jobs.executors import Executor, ExecutorUnavailable
from planner.jobs.signals import Signals

BEAT_S = 1.0
"""[s] between signs of life."""
MOST_DEATHS = 3
"""Worker processes that one task of a job may take with it before the job fails; how often the
process that works on the job itself may die is ``queue.MOST_ATTEMPTS``."""
Task = tuple[Callable[..., Any], Sequence[Any]]


class JobFailed(Exception):
    """The job cannot be finished; the message goes to whoever asked for it."""


class Stopped(Exception):
    """This process is to end; the job goes back into the queue."""


class Run:
    """What a handler has to do its job with.

    Parameters
    ----------
    engine : Engine
    executor : Executor
    job_id, owner : str
    request : dict
    stopping : callable
        Whether this process is to end.
    """

    def __init__(self, engine: Engine, executor: Executor, job_id: str, owner: str,
                 request: dict[str, Any], stopping: Callable[[], bool] = lambda: False) -> None:
        self.engine, self.executor = engine, executor
        self.job_id, self.owner, self.request = job_id, owner, request
        self.watch: Callable[[float], None] = lambda progress: None
        self._stopping = stopping
        self._beaten = 0.0
        self._signals: Signals | None = None

    def keep(self, progress: float | None = None, rows: Iterable[Base] = ()) -> None:
        """Store progress and rows, and show life.

        Raises
        ------
        LostJob
            When the job was cancelled or taken over.
        """
        rows = list(rows)
        if self._stopping():
            raise Stopped()
        if not rows and time.monotonic() - self._beaten < BEAT_S:
            return
        try:
            with Session(self.engine) as session:
                queue.keep(session, self.job_id, self.owner, progress, rows)
            self._beaten = time.monotonic()
        except OperationalError:  # a database that is busy or away for a moment
            if rows:
                raise
        if progress is not None:
            self.watch(progress)

    def gather(self, keys: Iterable[Any], task_of: Callable[[Any], Task]
               ) -> Iterator[tuple[Any, Any]]:
        """Results of one task a key, in the order in which they are finished.

        At most two tasks a worker are out at once, so that a cancelled job stops soon. The tasks
        of a process that died are started again.
        """
        waiting = iter(keys)
        out: dict[Future[Any], Any] = {}
        deaths: dict[Any, int] = {}
        room = 2 * self.executor.workers
        try:
            while True:
                while len(out) < room and (key := next(waiting, waiting)) is not waiting:
                    out[self._submit(task_of(key))] = key
                if not out:
                    return
                done, _ = wait(out, timeout=BEAT_S, return_when=FIRST_COMPLETED)
                self.keep()
                for future in done:
                    key = out.pop(future)
                    try:
                        result = future.result()
                    except (BrokenProcessPool, CancelledError):
                        out |= self._again([key, *out.values()], task_of, deaths, out)
                        break
                    yield key, result
        finally:
            for future in out:
                future.cancel()

    def _again(self, keys: list[Any], task_of: Callable[[Any], Task], deaths: dict[Any, int],
               out: dict[Future[Any], Any]) -> dict[Future[Any], Any]:
        """Start the tasks of a broken executor again."""
        out.clear()
        self.executor.recover()
        for key in keys:
            deaths[key] = deaths.get(key, 0) + 1
            if deaths[key] >= MOST_DEATHS:
                raise _died()
        return {self._submit(task_of(key)): key for key in keys}

    def _submit(self, task: Task) -> Future[Any]:
        function, arguments = task
        return self.executor.submit(function, *arguments)

    def alone(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a single task, whose last argument is where it signals its progress."""
        signals = self._signals = self.executor.signals()
        futures: dict[Future[Any], int] = {self._submit((task, (*arguments, signals.place))): 0}
        deaths = 0
        while True:
            (future,) = futures
            done, _ = wait(futures, timeout=BEAT_S / 4)
            self.keep(signals.progress())
            if not done:
                continue
            try:
                return future.result()
            except (BrokenProcessPool, CancelledError):
                deaths += 1
                self.executor.recover()
                if deaths >= MOST_DEATHS:
                    raise _died() from None
                signals.close()
                signals = self._signals = self.executor.signals()
                futures = {self._submit((task, (*arguments, signals.place))): 0}

    def close(self) -> None:
        """Tell tasks that nobody waits for them any more."""
        if self._signals is not None:
            self._signals.close()


def _died() -> JobFailed:
    return JobFailed(f"given up: the worker process of one task died {MOST_DEATHS} times, which is "
                     "the most; it may have run out of memory")


__all__ = ["ExecutorUnavailable", "JobFailed", "Run", "Stopped"]
