"""``GET /accuracy`` and ``flask accuracy``."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from planner.calibration.report import DIMENSIONS

PATH = "/api/v1/accuracy"
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance,
          response_schema_conformance]


def test_the_report_has_all_parts(client: FlaskClient) -> None:
    body = client.get(PATH).json
    assert set(body) == {"golden", "overall", "by", "throughput", "left_out", "profiles", "peer"}
    assert set(body["by"]) == {*DIMENSIONS, "phase"}
    for phase in ("tpot", "ttft"):
        assert set(body["overall"][phase]) == {"points", "coverage", "median_ape", "mean_ape",
                                               "p90_ape", "bias"}
    assert {(p["engine"], p["gpu"]) for p in body["profiles"]} >= {("vllm", "hopper")}


def test_an_unchanged_report_is_not_sent_again(client: FlaskClient) -> None:
    tag = client.get(PATH).headers["ETag"]
    assert client.get(PATH, headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize("by", [*DIMENSIONS, "phase"])
def test_one_breakdown(client: FlaskClient, by: str) -> None:
    assert list(client.get(f"{PATH}?by={by}").json["by"]) == [by]


def test_an_unknown_breakdown_is_refused(client: FlaskClient) -> None:
    response = client.get(f"{PATH}?by=colour")
    assert response.status_code == 422
    assert response.json["errors"][0]["parameter"] == "by"
    assert client.get(f"{PATH}?colour=1").status_code == 422


def test_the_command_prints_tables(app: Flask) -> None:
    result = app.test_cli_runner().invoke(args=["accuracy"])
    assert result.exit_code == 0, result.output
    for word in ("h100-sxm-80gb", "Left out", "AIConfigurator", "coverage"):
        assert word in result.stdout


def test_the_command_prints_json(app: Flask, client: FlaskClient) -> None:
    result = app.test_cli_runner().invoke(args=["accuracy", "--json", "--by", "gpu"])
    assert json.loads(result.stdout) == client.get(f"{PATH}?by=gpu").json
    wrong = app.test_cli_runner().invoke(args=["accuracy", "--by", "colour"])
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("error: --by must be one of gpu")


@pytest.mark.parametrize(("path", "method"), [
    ("/predictions", "POST"), ("/calibrations", "POST"), ("/accuracy", "GET")])
def test_the_service_keeps_to_its_specification(described: Any, path: str, method: str) -> None:
    operation = described["/api/v1" + path][method]
    anything = operation.as_strategy() | operation.as_strategy(GenerationMode.NEGATIVE)

    @settings(max_examples=25, derandomize=True, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(case=anything)
    def keeps_to_it(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    keeps_to_it()
