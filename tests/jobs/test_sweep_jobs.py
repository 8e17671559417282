"""Sweeps from the request to the table, through cancelling, killing and restarting."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow.parquet as pq
import pytest
from flask import Flask
from flask.testing import FlaskClient
from jobs_helpers import BASE, GRID, make_app, wait_for
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from models import JobRow, SweepPartRow
from planner.api.background import runner, stop_jobs
from planner.api.validation import InvalidDocument
from planner.extensions import db
from planner.jobs import queue
from planner.jobs.handlers import work_on_sweep
from planner.jobs.run import Run
from planner.jobs.runner import own_name

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = "/api/v1/sweeps"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    app = make_app(tmp_path_factory.mktemp("served"), "processes")
    yield app
    stop_jobs(app)
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def web(served: Flask) -> FlaskClient:
    return served.test_client()


def post(client: FlaskClient, base: Any = BASE, grid: Any = GRID) -> Any:
    return client.post(SWEEPS, json={"base": base, "grid": grid})


def ended(client: FlaskClient, job_id: str, *statuses: str) -> dict[str, Any]:
    def look() -> Any:
        body = client.get(f"/api/v1/jobs/{job_id}").json
        return body if body["status"] in (statuses or ("done", "failed")) else None
    return dict(wait_for(look, 120))


@pytest.fixture(scope="module")
def finished(served: Flask) -> str:
    """A finished sweep; its id."""
    client = served.test_client()
    answer = post(client)
    assert answer.status_code == 202, answer.text
    assert answer.headers["Location"] == f"/api/v1/jobs/{answer.json['id']}"
    job = ended(client, answer.json["id"])
    assert job["status"] == "done", job
    assert job["result"] == f"{SWEEPS}/{job['id']}"
    return str(job["id"])


def test_the_table(web: FlaskClient, finished: str) -> None:
    body = web.get(f"{SWEEPS}/{finished}").json
    assert (body["cells"], body["finished_cells"], body["progress"]) == (12, 12, 1.0)
    assert body["columns"][:5] == ["cell", "request.model", "request.gpus",
                                   "request.workload.requests_per_second", "setup"]
    rows = [dict(zip(body["columns"], row, strict=True)) for row in body["rows"]]
    assert [r["cell"] for r in rows] == list(range(12))
    assert [r["request.workload.requests_per_second"] for r in rows[:2]] == [1, 4]
    tight = next(r for r in rows if r["request.model"] == "qwen3-32b"
                 and r["request.gpus"] == ["l4"])
    assert (tight["status"], tight["reason"], tight["gpus"]) == ("infeasible", "memory", None)
    assert "GiB short" in tight["detail"]


def test_a_row_is_what_a_plan_says(web: FlaskClient, finished: str) -> None:
    body = web.get(f"{SWEEPS}/{finished}").json
    row = dict(zip(body["columns"], body["rows"][1], strict=True))
    request = {**BASE, "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"],
               "workload": {**BASE["workload"], "requests_per_second": 4}}
    best = web.post("/api/v1/plans", json=request).json["recommended"]
    for name in ("setup", "gpus", "nodes", "weights", "kv", "usd_per_hour", "usd_per_month",
                 "usd_per_million_tokens", "power_kw"):
        assert row[name] == best[name], name
    assert row["ttft_p90_ms"] == best["ttft_ms"]["p90"]
    assert row["tpot_p99_ms"] == best["tpot_ms"]["p99"]
    assert row["utilization"] == best["pools"][0]["utilization"]
    assert row["confidence"] == best["confidence"]["level"]


def test_files(web: FlaskClient, finished: str) -> None:
    body = web.get(f"{SWEEPS}/{finished}").json
    text = web.get(f"{SWEEPS}/{finished}", headers={"Accept": "text/csv"})
    assert text.mimetype == "text/csv"
    rows = list(csv.DictReader(io.StringIO(text.text)))
    assert list(rows[0]) == body["columns"]
    assert rows[0]["request.gpus"] == "h100-sxm-80gb"
    table = pq.read_table(io.BytesIO(web.get(f"{SWEEPS}/{finished}?format=parquet").data))
    assert table.column_names == body["columns"]
    place = body["columns"].index("usd_per_hour")
    assert table["usd_per_hour"].to_pylist() == [r[place] for r in body["rows"]]
    assert str(table.schema.field("gpus").type) == "int64"
    book = openpyxl.load_workbook(io.BytesIO(web.get(f"{SWEEPS}/{finished}?format=xlsx").data))
    cells = list(book["Sweep"].iter_rows(values_only=True))
    assert list(cells[0]) == body["columns"]
    assert len(cells) == 13
    assert cells[2][place] == pytest.approx(body["rows"][1][place])
    tag = web.get(f"{SWEEPS}/{finished}?format=csv").headers["ETag"]
    again = web.get(f"{SWEEPS}/{finished}?format=csv", headers={"If-None-Match": tag})
    assert again.status_code == 304
    assert web.get(f"{SWEEPS}/{finished}?format=pdf").status_code == 422


def test_lists(web: FlaskClient, finished: str) -> None:
    assert finished in [s["id"] for s in web.get(SWEEPS).json["items"]]
    jobs = web.get("/api/v1/jobs?kind=sweep&status=done").json["items"]
    assert finished in [j["id"] for j in jobs]
    assert web.delete(f"/api/v1/jobs/{finished}").status_code == 409


def test_saved_workloads_and_traces_are_taken_along(web: FlaskClient) -> None:
    saved = {"slug": "kept", "workload": BASE["workload"], "slo": BASE["slo"]}
    web.post("/api/v1/workloads", json=saved)
    csv_text = "timestamp,prompt_tokens,output_tokens\n" + "".join(
        f"{i},100,10\n" for i in range(100))
    web.post("/api/v1/traces?slug=steady", data=csv_text, content_type="text/csv")
    base = {k: v for k, v in BASE.items() if k not in ("workload", "slo")}
    answer = post(web, {**base, "model": "llama-3.1-8b", "gpus": ["l40s"], "workload": "kept"},
                  {"workload": ["kept", {"trace": "steady"}], "slo": [{"tpot_ms": 100}],
                   "workload.prefix_cache_hit_rate": [0, 0.5]})
    assert answer.status_code == 202, answer.text
    ended(web, answer.json["id"])
    body = web.get(f"{SWEEPS}/{answer.json['id']}").json
    place = body["columns"].index("status")
    assert [r[place] for r in body["rows"]] == ["planned"] * 4


BAD = [
    ({}, {}, "/grid"), ({}, {"model": []}, "/grid/model"), ({}, {"model": "x"}, "/grid/model"),
    ({}, {"modle": ["a"], "model": ["llama-3.1-8b"]}, "/grid/modle/0"),
    ({}, {"model": ["llama-3.1-8b", "nothing"]}, "/grid/model/1"),
    ({}, {"model": ["llama-3.1-8b"], "gpus": [["l40s"], ["x1"]]}, "/grid/gpus/1/0"),
    ({}, {"model": ["llama-3.1-8b"], "workload.requests_per_second": [1, 2, -1]},
     "/grid/workload.requests_per_second/2"),
    ({}, {"model": ["llama-3.1-8b"], "workload.speed": [1]}, "/grid/workload.speed/0"),
    ({}, {"model": ["llama-3.1-8b"], "workload": ["nothing"]}, "/grid/workload/0"),
    ({"slo": {}}, {"model": ["llama-3.1-8b"]}, "/base/slo"),
    ({"limits": 5}, {"model": ["llama-3.1-8b"]}, "/base/limits"),
    ({"verify": True}, {"model": ["llama-3.1-8b"]}, "/base/verify"),
    ({}, {"model": ["llama-3.1-8b"], "verify": [False, True]}, "/grid/verify/1"),
    ({}, {"model": ["llama-3.1-8b"], "limits": [{}], "limits.regions": [1]},
     "/grid/limits.regions"),
    ({}, {"model": ["llama-3.1-8b"], "workload.requests_per_second": [*range(1, 2001)]}, "/grid"),
    ({}, {"model": ["llama-3.1-8b"] * 500, "gpus": [["l40s"]] * 500}, "/grid"),
]


@pytest.mark.parametrize(("base", "grid", "pointer"), BAD)
def test_bad_grids(web: FlaskClient, base: Any, grid: Any, pointer: str) -> None:
    answer = post(web, {**BASE, **base}, grid)
    assert answer.status_code == 422, answer.text
    assert pointer in [e["pointer"] for e in answer.json["errors"]]


MEAN, P95 = "workload.prompt_tokens.mean", "workload.prompt_tokens.p95"
LENGTHS = {"workload": {**BASE["workload"], "prompt_tokens": {"mean": 500, "p95": 3000}}}
"""No log-normal has a 95th percentile of six times its mean."""
ANY_SETUP = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "limits": {}}
ALONE = [
    (LENGTHS, {MEAN: [500, 1000]}, {"/grid/workload.prompt_tokens.mean/0"}),
    (LENGTHS, {MEAN: [1000, 500, 600]}, {"/grid/workload.prompt_tokens.mean/1",
                                         "/grid/workload.prompt_tokens.mean/2"}),
    (LENGTHS, {"workload.requests_per_second": [1, 2]}, {"/base/workload/prompt_tokens/p95"}),
    ({}, {MEAN: [500], P95: [3000]}, {"/grid/workload.prompt_tokens.p95/0"}),
    ({}, {MEAN: [500, -1], P95: [1500, "x"]},
     {"/grid/workload.prompt_tokens.mean/1", "/grid/workload.prompt_tokens.p95/1"}),
    ({"setups": ["static"]}, {"limits.token_budgets": [[512], [2048]]},
     {"/grid/limits.token_budgets/0", "/grid/limits.token_budgets/1"}),
    ({"colour": 1}, {"workload.requests_per_second": [0, 1]},
     {"/base/colour", "/grid/workload.requests_per_second/0"}),
]


@pytest.mark.parametrize(("base", "grid", "pointers"), ALONE)
def test_a_value_that_is_wrong_in_every_combination(
        web: FlaskClient, base: Any, grid: Any, pointers: set[str]) -> None:
    answer = post(web, {**BASE, **ANY_SETUP, **base}, grid)
    assert answer.status_code == 422, answer.text
    assert {e["pointer"] for e in answer.json["errors"]} == pointers


@pytest.mark.parametrize(("grid", "statuses"), [
    ({MEAN: [500, 1000], P95: [1500, 3000]}, ["planned", "refused", "planned", "planned"]),
    ({P95: [3000, 1500], MEAN: [500, 1000]}, ["refused", "planned", "planned", "planned"]),
    ({"setups": [["static"], ["chunked"]], "limits.token_budgets": [[512], [2048]]},
     ["refused", "refused", "planned", "planned"]),
])
def test_what_only_a_combination_breaks_is_a_row(web: FlaskClient, grid: Any,
                                                 statuses: list[str]) -> None:
    base = {**BASE, **ANY_SETUP, "workload": {**BASE["workload"], "prompt_tokens": {"mean": 500}}}
    answer = post(web, base, grid)
    assert answer.status_code == 202, answer.text
    ended(web, answer.json["id"])
    body = web.get(f"{SWEEPS}/{answer.json['id']}").json
    rows = [dict(zip(body["columns"], row, strict=True)) for row in body["rows"]]
    assert [r["status"] for r in rows] == statuses
    assert all(r["detail"] for r in rows if r["status"] == "refused")


def test_checking_a_large_grid_of_bad_values_ends() -> None:
    from planner.catalog.shipped import shipped_catalog
    from planner.sweeps.grid import MAX_ERRORS, checked_grid

    began = time.process_time()
    values = {"workload.requests_per_second": [-i for i in range(900)], "slo.ttft_ms":
              list(range(1, 1001)), "model": ["llama-3.1-8b", "qwen3-32b"]}
    with pytest.raises(InvalidDocument) as found:
        checked_grid({**BASE}, values, shipped_catalog(), 10**8)
    assert len(found.value.errors) == MAX_ERRORS
    assert time.process_time() - began < 30


def test_a_cell_that_cannot_be_planned_is_a_row(web: FlaskClient) -> None:
    answer = post(web, {**BASE, "gpus": ["l40s"]},
                  {"model": ["llama-3.1-8b", "llama-2-7b"], "workload.prompt_tokens": [500, 8000]})
    assert answer.status_code == 202, answer.text
    ended(web, answer.json["id"])
    body = web.get(f"{SWEEPS}/{answer.json['id']}").json
    rows = [dict(zip(body["columns"], row, strict=True)) for row in body["rows"]]
    assert [r["status"] for r in rows] == ["planned", "planned", "planned", "refused"]
    assert rows[3]["reason"] == "context-too-long"


def big(cells: int) -> dict[str, Any]:
    return {"model": ["llama-3.1-8b"], "gpus": [["h100-sxm-80gb"]],
            "workload.requests_per_second": [1 + i / 100 for i in range(cells)]}


def test_cancelling_keeps_what_was_found(web: FlaskClient) -> None:
    job_id = post(web, BASE, big(1500)).json["id"]
    wait_for(lambda: web.get(f"/api/v1/jobs/{job_id}").json["result"])
    assert web.delete(f"/api/v1/jobs/{job_id}").status_code == 204
    assert web.delete(f"/api/v1/jobs/{job_id}").status_code == 204, "twice is once"
    body = web.get(f"{SWEEPS}/{job_id}").json
    assert body["status"] == "cancelled"
    assert 0 < body["finished_cells"] < 1500
    time.sleep(2)
    assert web.get(f"{SWEEPS}/{job_id}").json["finished_cells"] == body["finished_cells"]
    assert web.delete(f"{SWEEPS}/{job_id}").status_code == 204
    assert web.get(f"/api/v1/jobs/{job_id}").status_code == 404
    next_one = post(web)
    assert ended(web, next_one.json["id"])["status"] == "done", "the runner goes on"


def test_a_worker_process_that_dies_costs_nothing(served: Flask, web: FlaskClient) -> None:
    job_id = post(web, BASE, big(300)).json["id"]
    wait_for(lambda: web.get(f"/api/v1/jobs/{job_id}").json["result"])
    with served.app_context():
        pool: Any = runner().executor._pool
    os.kill(next(iter(pool._processes)), signal.SIGKILL)
    assert ended(web, job_id)["status"] == "done"
    cells = [r[0] for r in web.get(f"{SWEEPS}/{job_id}").json["rows"]]
    assert cells == list(range(300))


def test_stopping_puts_the_job_back(tmp_path: Path) -> None:
    app = make_app(tmp_path, "processes")
    client = app.test_client()
    job_id = post(client, BASE, big(1000)).json["id"]
    wait_for(lambda: client.get(f"/api/v1/jobs/{job_id}").json["result"])
    stop_jobs(app)
    with app.app_context(), Session(db.engine) as session:
        row = session.get_one(JobRow, job_id)
        assert (row.status, row.owner, row.attempts) == ("queued", None, 0)
        db.engine.dispose()


class Inline:
    """An executor that computes at once, in this process, and counts."""

    workers = 1

    def __init__(self) -> None:
        self.done: list[int] = []

    def submit(self, task: Any, *arguments: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        self.done.append(arguments[-1])
        future.set_result(task(*arguments))
        return future

    def recover(self) -> None: ...
    def stop(self) -> None: ...


def test_a_resumed_sweep_repeats_no_part(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    with app.app_context():
        engine: Engine = db.engine
        job_id = post(app.test_client()).json["id"]
        with Session(engine) as session:
            queue.claim(session, "me", 30)
            request = session.get_one(JobRow, job_id).request
            session.add(SweepPartRow(sweep=job_id, part=3, cells=1, rows=b""))
            session.commit()
        executor = Inline()
        work_on_sweep(Run(engine, executor, job_id, "me", request))
        assert executor.done == [p for p in range(12) if p != 3]
        with Session(engine) as session:
            assert len(session.scalars(select(SweepPartRow.part)).all()) == 12
        engine.dispose()


SERVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
if __name__ == "__main__":
    from app import create_app
    from planner.api.background import start_jobs
    start_jobs(create_app())
    time.sleep(600)
"""


def serve(folder: Path) -> subprocess.Popen[bytes]:
    """A process that works on jobs, as a worker of a server does."""
    script = folder / "server.py"
    script.write_text(SERVER)
    settings = {"DATABASE_URL": f"sqlite:///{folder}/jobs.sqlite3", "PLANNER_JOB_STALE_S": "3",
                "PLANNER_JOB_PROCESSES": "1", "PLANNER_LOG_LEVEL": "error"}
    return subprocess.Popen([sys.executable, str(script), str(ROOT)], cwd=ROOT,
                            env={**os.environ, **settings})


@pytest.mark.slow
def test_two_services_share_the_queue_and_one_is_killed(tmp_path: Path) -> None:
    """Two processes on one database; one is killed at work, the other finishes its job."""
    app = make_app(tmp_path, PLANNER_JOB_STALE_S=3)
    client = app.test_client()
    ids = [post(client, BASE, big(400)).json["id"] for _ in range(2)]
    servers = [serve(tmp_path) for _ in range(2)]
    try:
        def running() -> Any:
            with app.app_context(), Session(db.engine) as session:
                found = session.execute(select(JobRow.owner, JobRow.progress).where(
                    JobRow.status == "running")).all()
            return found if len(found) == 2 and all(p > 0 for _, p in found) else None
        owners = {owner for owner, _ in wait_for(running, 120)}
        assert len(owners) == 2, "each has its own"
        servers[0].send_signal(signal.SIGKILL)
        for job_id in ids:
            assert ended(client, job_id)["status"] == "done"
        attempts = sorted(client.get(f"/api/v1/jobs/{j}").json["attempts"] for j in ids)
        assert attempts == [1, 2]
        for job_id in ids:
            rows = client.get(f"{SWEEPS}/{job_id}").json["rows"]
            assert [r[0] for r in rows] == list(range(400))
    finally:
        for server in servers:
            server.kill()
            server.wait()
        with app.app_context():
            db.engine.dispose()


def test_names_are_never_the_same() -> None:
    assert own_name() != own_name()
