"""An app of its own with a runner, and sweeps small enough to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flask import Flask
from flask_migrate import upgrade

from app import create_app
from planner.catalog.store import load_catalog
from planner.extensions import db

BASE = {"workload": {"requests_per_second": 2, "prompt_tokens": 500, "output_tokens": 100},
        "slo": {"ttft_ms": 2000, "tpot_ms": 60}, "setups": ["chunked"],
        "limits": {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048]}}
GRID = {"model": ["llama-3.1-8b", "qwen3-32b"], "gpus": [["h100-sxm-80gb"], ["l40s"], ["l4"]],
        "workload.requests_per_second": [1, 4]}


def make_app(folder: Path, executor: str = "none", **settings: Any) -> Flask:
    """A migrated app with the shipped catalog and a database in a folder."""
    app = create_app({"DATABASE_URL": f"sqlite:///{folder}/jobs.sqlite3",
                      "PLANNER_LOG_LEVEL": "error", "PLANNER_EXECUTOR": executor,
                      "PLANNER_JOB_PROCESSES": 2, **settings})
    with app.app_context():
        upgrade()
        load_catalog(db.session)
    return app


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true value of a condition; fails when there is none in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")
