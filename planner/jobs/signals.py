"""Between a job and its single task: how far it is one way, that nobody waits the other way."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any, Protocol

DASK_TOPIC = "dask-topic:"
"""Begins the place of a task on a Dask worker; other places are folders."""


class Abandoned(Exception):
    """Nobody waits for this task any more."""


class Signals(Protocol):
    """The job's end of the line."""

    place: str
    """What the task is given, for :func:`signal_progress`."""

    def progress(self) -> float | None:
        """The progress that the task has signalled, None before it did."""

    def close(self) -> None:
        """Tell the task that nobody waits for it any more."""


class FolderSignals:
    """By a file, where tasks see this machine's files."""

    def __init__(self) -> None:
        self.place = tempfile.mkdtemp(prefix="planner-job-")

    def progress(self) -> float | None:
        """The progress that the task has signalled, None before it did."""
        try:
            return float((Path(self.place) / "progress").read_text())
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """The folder is gone when nobody waits."""
        shutil.rmtree(self.place, ignore_errors=True)


class DaskSignals:
    """By the events and flags of a Dask scheduler."""

    def __init__(self, client: Any) -> None:
        self._client, self._topic = client, f"planner-job-{uuid.uuid4()}"
        self.place = DASK_TOPIC + self._topic

    def progress(self) -> float | None:
        """The progress that the task has signalled, None before it did."""
        if self._client.status != "running":
            return None
        events: Any = self._client.get_events(self._topic)
        return float(events[-1][1]) if events else None

    def close(self) -> None:
        """A flag says that nobody waits."""
        import distributed

        flag: Any = distributed.Event
        if self._client.status == "running":
            flag(self._topic, client=self._client).set()


def signal_progress(place: str, progress: float) -> None:
    """Say how far a task is.

    Raises
    ------
    Abandoned
    """
    if place.startswith(DASK_TOPIC):
        _signal_scheduler(place.removeprefix(DASK_TOPIC), progress)
    else:
        _signal_file(Path(place), progress)


def _signal_scheduler(topic: str, progress: float) -> None:
    import distributed

    flag: Any = distributed.Event
    distributed.get_worker().log_event(topic, progress)
    if flag(topic).is_set():
        raise Abandoned()


def _signal_file(folder: Path, progress: float) -> None:
    if not folder.is_dir():
        raise Abandoned()
    part = folder / "progress.new"
    try:
        part.write_text(repr(progress))
        part.replace(folder / "progress")
    except OSError:
        raise Abandoned() from None
