"""Commands for long work."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from flask import Flask
from jobs_helpers import BASE, GRID, make_app
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from models import EngineRow, GpuRow, JobRow, LlmRow, PriceRow, SweepPartRow
from planner.extensions import db
from planner.jobs import queue

SMALL = {"base": BASE, "grid": {**GRID, "model": ["llama-3.1-8b"]}}


@pytest.fixture(scope="module")
def app_of_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    app = make_app(tmp_path_factory.mktemp("cli"))
    yield app
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def run(app_of_cli: Flask) -> Any:
    return lambda *arguments: app_of_cli.test_cli_runner().invoke(
        args=[str(a) for a in arguments])


def write(folder: Path, document: Any) -> Path:
    path = folder / "request.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_sweep(run: Any, app_of_cli: Flask, tmp_path: Path) -> None:
    result = run("sweep", write(tmp_path, SMALL), "--processes", 1)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [int(r["cell"]) for r in rows] == list(range(6))
    with app_of_cli.app_context(), Session(db.engine) as session:
        job = session.scalars(select(JobRow)).one()
        job_id = job.id
        assert (job.status, job.progress) == ("done", 1.0)
        # As a process leaves it that is interrupted at the last part.
        job.status = "cancelled"
        session.delete(session.get_one(SweepPartRow, (job_id, 5)))
        session.commit()
    for suffix in ("csv", "json", "parquet", "xlsx"):
        out = tmp_path / f"sweep.{suffix}"
        again = run("sweep", "--resume", job_id, "--output", out, "--processes", 1)
        assert again.exit_code == 0, again.output
        assert out.stat().st_size > 500
    assert pq.read_table(tmp_path / "sweep.parquet").num_rows == 6
    assert json.loads((tmp_path / "sweep.json").read_text())["finished_cells"] == 6
    assert (tmp_path / "sweep.csv").read_text().count("\n") == 7


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "give a FILE or --resume ID"), (["--resume", "nothing"], "there is no sweep"),
    (["FILE", "--output", "out.pdf"], "must end with .csv"), (["BAD"], "/grid/modle/0"),
])
def test_sweep_refusals(run: Any, tmp_path: Path, arguments: list[str], words: str) -> None:
    bad = {"base": {**BASE, "model": "llama-3.1-8b"}, "grid": {"modle": ["x"]}}
    files = {"FILE": SMALL, "BAD": bad}
    given = [str(write(tmp_path, files[a])) if a in files else a for a in arguments]
    result = run("sweep", *given)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_a_sweep_without_a_loaded_catalog_plans_with_the_shipped_one(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    with app.app_context():
        for row in (LlmRow, PriceRow, EngineRow, GpuRow):
            db.session.execute(delete(row))
        db.session.commit()
    result = app.test_cli_runner().invoke(
        args=["sweep", str(write(tmp_path, SMALL)), "--processes", "1"])
    assert "using the shipped one" in result.stderr
    statuses = [r["status"] for r in csv.DictReader(io.StringIO(result.stdout))]
    assert len(statuses) == 6
    assert "planned" in statuses
    assert "refused" not in statuses
    with app.app_context():
        db.engine.dispose()


def test_a_sweep_at_work_is_not_resumed(run: Any, app_of_cli: Flask) -> None:
    with app_of_cli.app_context(), Session(db.engine) as session:
        job = queue.enqueue(session, "sweep", {"base": {}, "grid": {"a": [1]}, "workloads": {},
                                               "traces": {}})
        session.commit()
        job_id = job.id
    result = run("sweep", "--resume", job_id)
    assert (result.exit_code, "is queued" in result.stderr) == (1, True)


FLEET = {"fleet": {"model": "llama-3.1-8b", "setup": "chunked",
                   "pools": [{"gpu": "h100-sxm-80gb", "replicas": 1}]},
         "workload": {"requests_per_second": 5, "prompt_tokens": 500, "output_tokens": 50},
         "slo": {"ttft_ms": 1000, "tpot_ms": 40}, "requests": 300}
PLAN = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], **BASE}


def test_simulate_a_fleet(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "requests.csv"
    result = run("simulate", write(tmp_path, FLEET), "--requests", out)
    assert result.exit_code == 0, result.output
    assert "300 requests at" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert len(out.read_text().splitlines()) == 301
    document = json.loads(run("simulate", write(tmp_path, FLEET), "--json").stdout)
    assert document["attainment"]["all"] > 0.9


def test_simulate_a_plan_on_a_trace_of_ones_own(run: Any, tmp_path: Path) -> None:
    trace = Path(__file__).resolve().parents[2] / "examples" / "trace_conversation.csv"
    result = run("simulate", write(tmp_path, PLAN), "--trace", trace, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["requests"] == 2000
    assert document["promised"]["ttft_ms"]["p90"] > 0
    body = {k: v for k, v in FLEET.items() if k not in ("requests", "workload")}
    result = run("simulate", write(tmp_path, body), "--trace", trace)
    assert "2,000 requests at 5.524 requests/s in" in result.stdout, result.output


def test_simulate_leaves_out_requests_that_failed(run: Any, tmp_path: Path) -> None:
    trace = tmp_path / "failed.csv"
    trace.write_text("timestamp,prompt_tokens,output_tokens\n" + "".join(
        f"{i},200,{20 if i % 5 else 0}\n" for i in range(50)))
    body = {k: v for k, v in FLEET.items() if k not in ("requests", "workload")}
    refused = run("simulate", write(tmp_path, body), "--trace", trace)
    assert refused.exit_code != 0
    assert "--skip-empty" in refused.output
    result = run("simulate", write(tmp_path, body), "--trace", trace, "--skip-empty", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["requests"] == 40
    alone = run("simulate", write(tmp_path, FLEET), "--skip-empty")
    assert alone.exit_code == 2
    assert "goes with --trace" in alone.output


def test_simulate_refusals(run: Any, tmp_path: Path) -> None:
    result = run("simulate", write(tmp_path, {"plan": "nothing"}))
    assert (result.exit_code, "/plan" in result.stderr) == (2, True)
    bad = tmp_path / "bad.csv"
    bad.write_text("timestamp,prompt_tokens,output_tokens\n2,1,1\n1,1,1\n")
    result = run("simulate", write(tmp_path, PLAN), "--trace", bad)
    assert (result.exit_code, "row 2 comes before" in result.stderr) == (2, True)


def test_work_needs_an_executor(run: Any) -> None:
    result = run("work")
    assert (result.exit_code, "PLANNER_EXECUTOR is none" in result.stderr) == (2, True)
