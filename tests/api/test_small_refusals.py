"""Fields of the catalog and of calibrations that cannot be true, and sentences of one GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog

ROOT = Path(__file__).resolve().parents[2]
PRICE = {"gpu": "l4", "provider": "Us", "commitment": "owned", "usd_per_gpu_hour": 1,
         "as_of": "2026", "source": "x"}
POINT = {"concurrency": 16, "prompt_tokens": 1024, "output_tokens": 128, "ttft_ms": 82.0,
         "tpot_ms": 8.9}
KNOWN = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "engine": "vllm", "weights": "bf16"}


@pytest.mark.parametrize(("as_of", "words"), [
    ("2999-01", "future"), ("2999", "future"), ("2999-H2", "future"), ("2026-02-31", "calendar")])
def test_a_date_that_cannot_be(client: FlaskClient, as_of: str, words: str) -> None:
    answer = client.post("/api/v1/prices", json={**PRICE, "as_of": as_of})
    assert answer.status_code == 422
    assert [e["pointer"] for e in answer.json["errors"]] == ["/as_of"]
    assert words in answer.json["detail"]


@pytest.mark.parametrize("as_of", ["2026", "2026-H1", "2026-02", "2024-02-29"])
def test_a_date_that_can_be(client: FlaskClient, as_of: str) -> None:
    made = client.post("/api/v1/prices", json={**PRICE, "as_of": as_of})
    assert made.status_code == 201
    client.delete(made.headers["Location"], headers={"If-Match": made.headers["ETag"]})


@pytest.mark.parametrize("url", ["javascript:alert(1)", "ftp://x.org", "https://", "www.x.org"])
def test_an_address_that_is_none(client: FlaskClient, url: str) -> None:
    gpu = client.get("/api/v1/gpus/l4").json
    answer = client.post("/api/v1/gpus", json={**gpu, "slug": "other", "source_url": url})
    assert [e["pointer"] for e in answer.json["errors"]] == ["/source_url"]


@pytest.mark.parametrize(("body", "pointers"), [
    ({**KNOWN, "model": "no-such"}, ["/model"]), ({**KNOWN, "gpu": "no-such"}, ["/gpu"]),
    ({**KNOWN, "points": [{**POINT, "gpu": "no-such"}]}, ["/points/0/gpu"])])
def test_a_calibration_names_the_field(client: FlaskClient, body: dict[str, Any],
                                       pointers: list[str]) -> None:
    answer = client.post("/api/v1/calibrations", json={"points": [POINT], **body})
    assert answer.status_code == 422
    assert [e["pointer"] for e in answer.json["errors"]] == pointers


def test_the_rate_of_users_is_of_one_region() -> None:
    request = {"model": "llama-3.1-8b", "slo": {"tpot_ms": 50, "ttft_ms": 1000}, "advice": False,
               "gpus": ["h100-sxm-80gb"], "setups": ["colocated"], "limits": {"regions": 3},
               "workload": {"concurrent_users": 500, "think_time_s": 10, "prompt_tokens": 500,
                            "output_tokens": 100}}
    document = make(parse_plan(request), shipped_catalog()).document
    [rate] = [a for a in document["assumptions"] if a["name"] == "requests_per_second"]
    assert rate["source"].endswith("at the peak of one region")


def test_a_reader_that_goes_away_ends_a_command_quietly() -> None:
    code = ("from planner.cli import one_line_errors\n"
            "@one_line_errors\ndef say():\n"
            "    for _ in range(100000): print('x' * 100)\nsay()")
    said = subprocess.run(f"{sys.executable} -c \"$CODE\" | head -1", shell=True, cwd=ROOT,
                          env={"CODE": code, "PATH": "/usr/bin:/bin"}, capture_output=True,
                          timeout=120, check=True)
    assert (said.stdout, said.stderr) == (b"x" * 100 + b"\n", b"")


def test_numbers_in_a_refusal_are_in_full(client: FlaskClient) -> None:
    answer = client.post("/api/v1/plans", json={
        "model": "llama-3.1-8b", "slo": {"ttft_ms": 1000},
        "workload": {"requests_per_second": 1_000_000_001, "prompt_tokens": 1_000_001.5,
                     "output_tokens": 5}})
    messages = " ".join(e["message"] for e in answer.json["errors"])
    assert "at most 1000000000, not 1000000001" in messages
    assert "e+0" not in messages
