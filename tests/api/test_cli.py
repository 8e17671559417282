"""Commands: what they print, and one clear line with a non-zero exit when they cannot."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from flask.testing import FlaskClient

from app import create_app


@pytest.fixture
def run(app: Flask) -> Any:
    return lambda *arguments: app.test_cli_runner().invoke(args=[str(a) for a in arguments])


def write(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def assert_one_line(result: Result, *words: str) -> None:
    assert result.exit_code != 0
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert all(word in lines[0] for word in words), lines[0]


def test_catalog_load_twice(run: Any) -> None:
    result = run("catalog", "load")
    assert result.exit_code == 0, result.output
    assert "gpus: 0 added, 0 changed, " in result.output  # other tests may have edited some


def test_catalog_export(run: Any, tmp_path: Path) -> None:
    document = json.loads(run("catalog", "export").stdout)
    assert len(document["gpus"]) == 46
    assert document["prices"][0]["usd_per_gpu_hour"] > 0
    path = tmp_path / "catalog.json"
    assert run("catalog", "export", "--output", path).exit_code == 0
    assert json.loads(path.read_text(encoding="utf-8")) == document


def test_import_model(run: Any, client: FlaskClient, tmp_path: Path,
                      tiny_config: dict[str, Any]) -> None:
    path = write(tmp_path, tiny_config)
    result = run("import-model", path, "--hf-id", "Lab/Imported-7B-Instruct")
    assert (result.exit_code, result.stdout) == (0, "imported-7b: LlamaForCausalLM\n")
    model = client.get("/api/v1/models/Lab/Imported-7B-Instruct")
    assert model.json["slug"] == "imported-7b"
    assert_one_line(run("import-model", path, "--slug", "imported-7b"), "imported-7b")
    taken = ["--slug", "new", "--hf-id", "lab/IMPORTED-7b-instruct"]
    assert_one_line(run("import-model", path, *taken),
                    "is a name of model 'imported-7b'")
    client.delete("/api/v1/models/imported-7b", headers={"If-Match": model.headers["ETag"]})


@pytest.mark.parametrize(("config", "words"), [
    ({"architectures": ["QuuxForCausalLM"]}, ["/hf_config/architectures", "QuuxForCausalLM"]),
    ([], ["/hf_config"]),
    ({"architectures": ["LlamaForCausalLM"]}, ["/hf_config/"]),
])
def test_import_of_what_is_no_model(run: Any, tmp_path: Path, config: Any,
                                    words: list[str]) -> None:
    assert_one_line(run("import-model", write(tmp_path, config)), *words)


@pytest.mark.usefixtures("stub_planner")
class TestPlan:
    def test_table(self, run: Any, tmp_path: Path, plan_body: dict[str, Any]) -> None:
        result = run("plan", write(tmp_path, plan_body))
        assert result.exit_code == 0, result.output
        assert "2x h100-sxm-80gb tp2" in result.stdout
        assert "cost: 8.00 USD/h, 5,840 USD/month" in " ".join(result.stdout.split())
        assert max(map(len, result.stdout.splitlines())) <= 80

    def test_json(self, run: Any, tmp_path: Path, plan_body: dict[str, Any]) -> None:
        document = json.loads(run("plan", write(tmp_path, plan_body), "--json").stdout)
        assert document["recommended"]["gpus"] == 4

    def test_csv(self, run: Any, tmp_path: Path, plan_body: dict[str, Any]) -> None:
        result = run("plan", write(tmp_path, plan_body), "--csv")
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        assert [r["setup"] for r in rows] == ["chunked", "static"]
        assert rows[0]["ttft_p90_ms"] == "2.0"

    def test_workbook(self, run: Any, tmp_path: Path, plan_body: dict[str, Any]) -> None:
        out = tmp_path / "plan.xlsx"
        assert run("plan", write(tmp_path, plan_body), "--workbook", out).exit_code == 0
        assert out.read_bytes() == b"PK-xlsx"

    def test_bad_requests(self, run: Any, tmp_path: Path, plan_body: dict[str, Any]) -> None:
        plan_body["workload"]["output_tokens"] = -1
        assert_one_line(run("plan", write(tmp_path, plan_body)), "/workload/output_tokens")

    def test_unknown_gpu(self, run: Any, tmp_path: Path, plan_body: dict[str, Any]) -> None:
        plan_body["gpus"] = ["h100-sxm"]
        assert_one_line(run("plan", write(tmp_path, plan_body)), "/gpus/0", "did you mean")

    def test_a_defect_is_one_line_too(self, run: Any, tmp_path: Path, plan_body: dict[str, Any],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.modules["planner.planning"], "make_plan", lambda *_: 1 / 0)
        assert_one_line(run("plan", write(tmp_path, plan_body)), "ZeroDivisionError")

    def test_estimate(self, run: Any, tmp_path: Path, tiny: str) -> None:
        path = write(tmp_path, {"model": tiny, "gpu": "l40s", "batch": {"decodes": 1}})
        result = run("estimate", path)
        assert "step 6.67 ms, bound by memory" in result.stdout
        assert json.loads(run("estimate", path, "--json").stdout)["step_ms"] == 6.67


@pytest.mark.parametrize("command", ["plan", "estimate", "import-model"])
def test_unreadable_files(run: Any, tmp_path: Path, command: str) -> None:
    assert_one_line(run(command, tmp_path / "absent.json"), "absent.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    assert_one_line(run(command, broken), "not JSON")
    broken.write_bytes(b"\xff\xfe")
    assert_one_line(run(command, broken), "not JSON")


def test_an_unmigrated_database(tmp_path: Path) -> None:
    app = create_app({"DATABASE_URL": f"sqlite:///{tmp_path}/new.sqlite3"})
    result = app.test_cli_runner().invoke(args=["catalog", "load"])
    assert_one_line(result, "flask db upgrade")
    from planner.extensions import db

    with app.app_context():
        db.engine.dispose()
