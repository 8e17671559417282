"""``POST /calibrations`` and ``flask calibrate``: files and rows in, profiles and reasons out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from planner.api.calibrations import EXAMPLE
from planner.api.calibrations_schema import MAX_POINTS

PATH = "/api/v1/calibrations"
FIXTURES = Path(__file__).parent / "fixtures"
FORM = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "engine": "vllm", "weights": "bf16",
        "tensor_parallel": "1", "concurrency": "16"}
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in FORM.items()]
ROW = EXAMPLE["points"][0]


def upload(client: FlaskClient, *names: str, **fields: str) -> Any:
    files = [(io.BytesIO((FIXTURES / n).read_bytes()), n) for n in names]
    return client.post(PATH, data={**FORM, **fields, "files": files})


def pointers(response: Any) -> dict[str, str]:
    assert response.status_code == 422, response.text
    return {e["pointer"]: e["message"] for e in response.json["errors"]}


@pytest.fixture
def profile(client: FlaskClient) -> Iterator[str]:
    """A slug whose row is gone afterwards."""
    yield "test-own-profile"
    found = client.get("/api/v1/engines/test-own-profile")
    if found.status_code == 200:
        client.delete("/api/v1/engines/test-own-profile",
                      headers={"If-Match": found.headers["ETag"]})


@pytest.mark.parametrize("name", sorted(p.name for p in FIXTURES.iterdir()))
def test_every_format_is_taken(client: FlaskClient, name: str) -> None:
    response = upload(client, name)
    assert response.status_code == 201, response.text
    body = response.json
    assert body["kept"] >= 1
    assert body["profiles"][0]["gpu"] == "h100-sxm-80gb"
    assert name in body["profiles"][0]["source"]
    assert body["before"]["tpot_error"] is not None
    assert body["after"]["tpot_error"] <= body["before"]["tpot_error"] + 0.02
    assert not body["saved"]


def test_several_files_make_one_profile(client: FlaskClient) -> None:
    body = upload(client, "plain_rows.csv", "guidellm_0.7.json").json
    assert len(body["profiles"]) == 1
    assert body["profiles"][0]["points"] == body["kept"] > 5


def test_rows_are_as_good_as_files(client: FlaskClient) -> None:
    body = client.post(PATH, json=EXAMPLE).json
    assert (body["kept"], body["rejected"]) == (2, [])
    assert body["profiles"][0]["slug"] == "vllm-h100-sxm-80gb-bf16-custom"
    assert "posted rows" in body["profiles"][0]["source"]


def test_a_saved_profile_is_used_by_its_slug(client: FlaskClient, profile: str) -> None:
    answer = client.post(PATH, json={**EXAMPLE, "slug": profile, "save": True})
    assert answer.status_code == 201
    assert answer.json["saved"]
    stored = client.get(f"/api/v1/engines/{profile}").json
    assert stored == answer.json["profiles"][0]
    point = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "engine": profile,
             "weights": "bf16", **{k: v for k, v in ROW.items() if not k.endswith("ms")}}
    found = client.post("/api/v1/predictions", json={"points": [point]}).json["points"][0]
    assert found["tpot_ms"] == pytest.approx(ROW["tpot_ms"], rel=0.3)
    again = client.post(PATH, json={**EXAMPLE, "slug": profile, "save": True})
    assert again.status_code == 409


def test_without_save_nothing_is_stored(client: FlaskClient, profile: str) -> None:
    assert client.post(PATH, json={**EXAMPLE, "slug": profile}).status_code == 201
    assert client.get(f"/api/v1/engines/{profile}").status_code == 404


def test_rejected_rows_are_listed_with_the_reason(client: FlaskClient) -> None:
    rows = [ROW, {**ROW, "tpot_ms": 0.01}, {**ROW, "request_throughput": 9e3},
            {**ROW, "gpu": "none"}, {**ROW, "source": "run 7", "prefix_hit": 0.5}]
    body = client.post(PATH, json={**EXAMPLE, "points": rows}).json
    assert body["kept"] == 1
    found = {r["source"]: r["code"] for r in body["rejected"]}
    assert found == {"points/1": "tpot-below-roofline", "points/2": "littles-law",
                     "points/3": "unknown-gpu", "run 7": "prefix-cache"}
    assert all(r["reason"] for r in body["rejected"])


def test_nothing_usable_is_a_problem_that_says_why(client: FlaskClient) -> None:
    response = client.post(PATH, json={**EXAMPLE, "points": [{**ROW, "tpot_ms": 0.01}]})
    assert "tpot-below-roofline" in pointers(response)["/points/0"]
    assert response.json["type"].endswith("#nothing-usable")
    response = client.post(PATH, json={**EXAMPLE, "engine": None})
    assert "does not say engine" in pointers(response)["/points/0"]


@pytest.mark.parametrize(("changes", "pointer", "message"), [
    ({"points": []}, "/points", "1 to 2000"), ({"points": 3}, "/points", "must be a list"),
    ({"points": [ROW] * (MAX_POINTS + 1)}, "/points", "1 to 2000"),
    ({"points": [1]}, "/points/0", "must be an object"),
    ({"points": [ROW, {}]}, "/points/1/ttft_ms", "is required"),
    ({"points": [{**ROW, "a/b": 1}]}, "/points/0/a~1b", "unknown field"),
    ({"points": [{**ROW, "tpot_ms": -1}]}, "/points/0/tpot_ms", "must not be negative"),
    ({"points": [{**ROW, "tpot_ms": "x"}]}, "/points/0/tpot_ms", "must be a number"),
    ({"points": [{**ROW, "weights": "fp3"}]}, "/points/0/weights", "unknown precision"),
    ({"points": [{**ROW, "source": 3}]}, "/points/0/source", "one line of text"),
    ({"slug": "vllm"}, "/slug", "name of an engine"), ({"slug": "A b"}, "/slug", "lower-case"),
    ({"save": "yes"}, "/save", "true or false"), ({"tensor_parallel": 0}, "/tensor_parallel", "1"),
    ({"requests_per_second": 2, "concurrency": 2}, "/requests_per_second", "only one"),
    ({"other": 1}, "/other", "unknown field")])
def test_a_refusal_points_at_the_field(client: FlaskClient, changes: dict[str, Any], pointer: str,
                                       message: str) -> None:
    assert message in pointers(client.post(PATH, json={**EXAMPLE, **changes}))[pointer]


@pytest.mark.parametrize(("fields", "pointer", "message"), [
    ({}, "/files", "at least one"), ({"files": (b"", "a.csv")}, "/files", "empty"),
    ({"files": (b"\x1f\x8bxx", "a.gz")}, "/files", "gzip"),
    ({"files": (b"a,b\n1,2\n", "a.csv")}, "/files", "the header lacks"),
    ({"results": (b"a", "a.csv")}, "/results", "unknown field"),
    ({"tensor_parallel": "two"}, "/tensor_parallel", "'two'"),
    ({"save": "maybe"}, "/save", "true or false"), ({"x": "1"}, "/x", "unknown field")])
def test_a_bad_form_is_refused(client: FlaskClient, fields: dict[str, Any], pointer: str,
                               message: str) -> None:
    data = {k: (io.BytesIO(v[0]), v[1]) if isinstance(v, tuple) else v for k, v in fields.items()}
    response = client.post(PATH, data={"model": "llama-3.1-8b", **data},
                           content_type="multipart/form-data")
    assert message in pointers(response)[pointer]


def test_other_content_types_and_large_bodies_are_refused(client: FlaskClient) -> None:
    assert client.post(PATH, data="a=b", content_type="text/csv").status_code == 415
    assert client.post(PATH, data="{", content_type="application/json").status_code == 400
    assert client.post(PATH, data=b"a" * 5_100_000,
                       content_type="multipart/form-data; boundary=b").status_code == 413


# -- the command --------------------------------------------------------------------------------


def run(app: Flask, *arguments: Any) -> Any:
    return app.test_cli_runner().invoke(args=["calibrate", *map(str, arguments)])


def test_the_command_says_the_same(app: Flask, client: FlaskClient) -> None:
    result = run(app, "--results", FIXTURES / "plain_rows.csv", *OPTIONS, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == upload(client, "plain_rows.csv").json


def test_the_command_prints_errors_and_rejections(app: Flask) -> None:
    options = [o for o in OPTIONS if "concurrency" not in o]
    result = run(app, FIXTURES / "guidellm_0.3.json", "--results", FIXTURES / "plain_rows.csv",
                 *options)
    assert result.exit_code == 0, result.output
    assert "vllm-h100-sxm-80gb-bf16-custom" in result.stdout
    assert "before" in result.stdout
    assert "no-load" in result.stdout


@pytest.mark.parametrize("arguments", [
    (), ("--results", FIXTURES / "plain_rows.csv", "--data", FIXTURES),
    ("--data", FIXTURES), (FIXTURES / "plain_rows.csv", "--tensor-parallel", "x"),
    (FIXTURES / "plain_rows.csv", "--engine", "none", "--slug", "vllm"), (Path(__file__),)])
def test_the_command_fails_in_one_line(app: Flask, arguments: tuple[Any, ...]) -> None:
    result = run(app, *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("error: ")


def test_a_data_folder_gives_all_profiles(app: Flask, tmp_path: Path) -> None:
    header = ("source,ttft_ms,ttft_stat,tpot_ms,tpot_stat,concurrency,isl,osl,tp,pp,dp,mode,"
              "hardware,engine,engine_version,weight_precision,spec_decode,dp_attention,model,"
              "date_or_version\n")
    rows = [f"InferenceMAX,{80 + 5 * c},mean,{8 + 0.05 * c},mean,{c},1024,256,1,1,1,colocated,"
            "H100-SXM,vllm,0.19,bf16,none,False,llama-3.1-8b,2026-01-01\n"
            for c in range(1, 21)]
    (tmp_path / "published_benchmarks.csv").write_text(header + "".join(rows), encoding="utf-8")
    result = run(app, "--data", tmp_path, "--write", tmp_path / "engines.csv")
    assert result.exit_code == 0, result.output
    assert "h100-sxm-80gb" in result.stdout
    assert "vllm-hopper-any" in (tmp_path / "engines.csv").read_text(encoding="utf-8")
