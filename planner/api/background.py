"""The runner of jobs of an app: made when first needed, started where the app is served."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from typing import Any

from flask import Flask, current_app

from planner.extensions import db
from planner.jobs.executors import make_executor

_KEY = "planner-jobs"
LATE = ("planner.planning", "planner.budget.budget", "planner.budget.document", "planner.workbook",
        "planner.workbook.budget", "planner.workbook.compare")
"""Modules that views load when they are first asked."""
_lock = threading.Lock()


def register_jobs(app: Flask) -> None:
    """Check the settings of an app's jobs.

    Raises
    ------
    ValueError
        When the executor needs what is not installed.
    """
    make_executor(app.config["PLANNER_EXECUTOR"], app.config["PLANNER_JOB_PROCESSES"])


def runner() -> Any:
    """The current app's ``planner.jobs.runner.Runner``."""
    from planner.jobs.runner import Runner

    with _lock:
        found = current_app.extensions.get(_KEY)
        if found is None:
            found = current_app.extensions[_KEY] = Runner(db.engine, _handlers, current_app.config)
    return found


def _handlers() -> Any:
    from planner.jobs.handlers import HANDLERS

    return HANDLERS


def start_jobs(app: Flask) -> None:
    """Work on jobs in this process from now on; a server calls it in each of its workers."""
    with app.app_context():
        runner().start()


def stop_jobs(app: Flask) -> None:
    """Put the job at hand back and end; a server calls it before a worker ends."""
    found = app.extensions.get(_KEY)
    if found is not None:
        found.stop()


def load_late_parts() -> None:
    """Load what commands do without and views load late, so that no first request waits for it."""
    for name in LATE:
        importlib.import_module(name)


def compile_simulator() -> None:
    """Start a process of the lowest priority that compiles the simulator, once for each version."""
    subprocess.Popen([sys.executable, "-m", "planner.simulator"],
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
