"""A sweep on a Dask cluster of this machine: a scheduler, two workers, one killed at work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs_helpers import BASE, make_app, wait_for

from app import create_app
from planner.api.background import stop_jobs
from planner.extensions import db
from planner.jobs.executors import Dask, ExecutorUnavailable

pytest.importorskip("distributed")
ROOT = Path(__file__).resolve().parents[2]
LOCAL = ["--host", "127.0.0.1", "--no-dashboard"]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


class Cluster:
    """A scheduler and its workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workers = folder, list[subprocess.Popen[bytes]]()
        place = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(place))
        wait_for(place.exists)

        self.address = wait_for(lambda: json.loads(place.read_text() or "{}").get("address"))
        for _ in range(2):
            self.workers.append(self._start(
                "worker", self.address, "--nthreads", "1", "--no-nanny",
                "--local-directory", str(folder)))

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:],
                 *LOCAL], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log,
                stderr=log)

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.stop()


def test_a_killed_worker_costs_no_cell(cluster: Cluster, tmp_path: Path) -> None:
    app = make_app(tmp_path, cluster.address.replace("tcp://", "dask://"))
    client = app.test_client()
    grid = {"model": ["llama-3.1-8b"], "gpus": [["h100-sxm-80gb"]],
            "workload.requests_per_second": [1 + i / 100 for i in range(600)]}
    try:
        job_id = client.post("/api/v1/sweeps", json={"base": BASE, "grid": grid}).json["id"]

        def job() -> Any:
            return client.get(f"/api/v1/jobs/{job_id}").json
        wait_for(lambda: job()["progress"] > 0, 120)
        assert job()["status"] == "running"
        cluster.workers[0].send_signal(signal.SIGKILL)
        found = wait_for(lambda: job() if job()["status"] in ("done", "failed") else None, 180)
        assert (found["status"], found["attempts"]) == ("done", 1), found
        rows = client.get(f"/api/v1/sweeps/{job_id}").json["rows"]
        assert [r[0] for r in rows] == list(range(600))
    finally:
        stop_jobs(app)
        with app.app_context():
            db.engine.dispose()


def test_a_simulation_shows_progress_and_stops_when_cancelled(cluster: Cluster,
                                                              tmp_path: Path) -> None:
    import distributed

    app = make_app(tmp_path, cluster.address.replace("tcp://", "dask://"))
    client = app.test_client()
    pool = {"gpu": "h100-sxm-80gb", "replicas": 2, "batch_size": 64}
    long = {"fleet": {"model": "llama-3.1-8b", "setup": "colocated", "pools": [pool]},
            "workload": BASE["workload"], "slo": BASE["slo"], "requests": 1_000_000}
    watch: Any = distributed.Client(cluster.address, set_as_default=False)
    try:
        job_id = client.post("/api/v1/simulations", json=long).json["id"]

        def job() -> Any:
            return client.get(f"/api/v1/jobs/{job_id}").json
        seen = wait_for(lambda: job()["progress"], 500)  # the worker compiles the loop first
        assert 0.0 < seen < 1.0
        assert any(watch.processing().values())
        client.delete(f"/api/v1/jobs/{job_id}")
        wait_for(lambda: not any(watch.processing().values()), 30)
        assert job()["status"] == "cancelled"
        assert job()["progress"] < 1.0
    finally:
        watch.close()
        stop_jobs(app)
        with app.app_context():
            db.engine.dispose()


def test_no_scheduler_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job waits in the queue until someone can compute."""
    monkeypatch.setattr("planner.jobs.executors.CONNECT_S", 0.5)
    monkeypatch.setattr("planner.jobs.runner.PAUSE_S", 0.1)
    with pytest.raises(ExecutorUnavailable, match=r"no Dask scheduler answers at 127\.0\.0\.1:9"):
        Dask("dask://127.0.0.1:9").submit(print)
    app = make_app(tmp_path, "dask://127.0.0.1:9")
    client = app.test_client()
    try:
        grid = {"model": ["llama-3.1-8b"], "gpus": [["l40s"]]}
        job_id = client.post("/api/v1/sweeps", json={"base": BASE, "grid": grid}).json["id"]
        wait_for(lambda: client.get(f"/api/v1/jobs/{job_id}").json["started_at"])
        found = wait_for(lambda: (j := client.get(f"/api/v1/jobs/{job_id}").json)
                         and j["status"] == "queued" and j)
        assert found["error"] is None
    finally:
        stop_jobs(app)
        with app.app_context():
            db.engine.dispose()


@pytest.mark.parametrize("name", ["dask", "dask://", "dask://host", "threads"])
def test_settings_that_name_no_executor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_EXECUTOR", name)
    with pytest.raises(SystemExit, match="PLANNER_EXECUTOR"):
        create_app()
