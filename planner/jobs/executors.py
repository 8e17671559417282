"""Who computes: spawned processes of this machine, or a Dask cluster.

Processes are spawned, never forked: a fork of a server with threads may hold a lock for ever.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from planner.collector import collector_paused
from planner.jobs.signals import DaskSignals, FolderSignals, Signals

DASK = "dask://"
NONE = "none"
CONNECT_S = 10.0
"""[s] to wait for a Dask scheduler."""
DASK_RETRIES = 5
"""Times a task is given to another Dask worker when the one that had it is lost."""


class ExecutorUnavailable(Exception):
    """Nobody can compute now; the job goes back into the queue."""


class Executor(Protocol):
    """What a job needs of the one who computes."""

    @property
    def workers(self) -> int:
        """Tasks that run at once."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task."""

    def signals(self) -> Signals:
        """A new line between a job and a task."""

    def recover(self) -> None:
        """Make the executor usable again after a process of it died."""

    def stop(self) -> None:
        """Start no more tasks and let the processes go."""


class Processes:
    """A pool of spawned processes, started with the first task."""

    def __init__(self, workers: int = 0) -> None:
        self._workers = workers or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None

    @property
    def workers(self) -> int:
        """Tasks that run at once."""
        return self._workers

    def load(self, module: str) -> None:
        """Start the processes, which load a module while the caller goes on."""
        for _ in range(self._workers):
            self.submit(_load, module)

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task.

        Raises
        ------
        ExecutorUnavailable
            When the program is ending.
        """
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._workers, multiprocessing.get_context("spawn"), initializer=end_with_parent)
        try:
            return self._pool.submit(task, *arguments)
        except BrokenProcessPool:
            self.recover()
            return self.submit(task, *arguments)
        except RuntimeError as error:
            raise ExecutorUnavailable(str(error)) from None

    def signals(self) -> Signals:
        """A new line between a job and a task: a folder."""
        return FolderSignals()

    def recover(self) -> None:
        """Drop a broken pool; the next task starts a new one."""
        self.stop()

    def stop(self) -> None:
        """Let the processes go."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _load(module: str) -> None:
    with collector_paused():
        importlib.import_module(module)


def end_with_parent() -> None:
    """Make this process end when the one that spawned it is gone, killed or not.

    A pool process waits on a queue that it holds itself, so it would never notice.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


class Dask:
    """A Dask cluster; ``distributed`` is only imported when a job needs it."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix(DASK)
        self._client: Any = None
        self._executor: Any = None

    def _connected(self) -> Any:
        if self._executor is not None and self._client.status == "running":
            return self._executor
        import distributed

        connect: Any = distributed.Client
        self.stop()
        try:
            self._client = connect(f"tcp://{self._address}", timeout=CONNECT_S,
                                  set_as_default=False, name="planner")
        except OSError as error:
            raise ExecutorUnavailable(
                f"no Dask scheduler answers at {self._address} ({error})") from None
        self._executor = self._client.get_executor(pure=False, retries=DASK_RETRIES)
        return self._executor

    @property
    def workers(self) -> int:
        """Threads of the cluster; at least one, since workers may join later."""
        self._connected()
        threads: dict[str, int] = self._client.nthreads()
        return max(sum(threads.values()), 1)

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task.

        Raises
        ------
        ExecutorUnavailable
            When no scheduler answers.
        """
        future: Future[Any] = self._connected().submit(task, *arguments)
        return future

    def signals(self) -> Signals:
        """A new line between a job and a task, over the scheduler.

        Raises
        ------
        ExecutorUnavailable
            When no scheduler answers.
        """
        self._connected()
        return DaskSignals(self._client)

    def recover(self) -> None:
        """Connect anew with the next task."""
        self.stop()

    def stop(self) -> None:
        """Leave the cluster."""
        if self._client is not None:
            self._client.close(timeout=CONNECT_S)
        self._client = self._executor = None


def make_executor(name: str, processes: int = 0) -> Executor:
    """The executor that the setting ``PLANNER_EXECUTOR`` names.

    Raises
    ------
    ValueError
        When it needs what is not installed.
    """
    if not name.startswith(DASK):
        return Processes(processes)
    import importlib.util

    if importlib.util.find_spec("distributed") is None:
        raise ValueError(f"PLANNER_EXECUTOR={name} needs Dask: "
                         "pip install -r requirements-dask.txt")
    return Dask(name)
