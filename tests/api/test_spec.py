"""The specification is valid, and the service keeps to it."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

PATHS = {"/gpus", "/gpus/{slug}", "/models", "/models/{slug}", "/prices", "/prices/{id}",
         "/engines", "/engines/{slug}", "/workloads", "/workloads/{slug}", "/plans",
         "/plans/{plan_id}", "/plans/{plan_id}/points", "/plans/{plan_id}/workbook", "/estimates",
         "/traces", "/traces/{slug}", "/traces/{slug}/requests", "/jobs", "/jobs/{job_id}",
         "/sweeps", "/sweeps/{sweep_id}", "/simulations", "/simulations/{simulation_id}",
         "/simulations/{simulation_id}/requests"}
FILES = {"/workbooks", "/workbooks/template", "/catalog", "/catalog/{table}", "/plans/compare",
         "/plans/compare/workbook"}


@pytest.fixture
def spec(client: FlaskClient) -> dict[str, Any]:
    document: dict[str, Any] = client.get("/api/v1/openapi.json").json
    return document


def test_it_is_valid_openapi_3_1(spec: dict[str, Any]) -> None:
    assert spec["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(spec).validate()


def test_it_names_every_path(spec: dict[str, Any]) -> None:
    assert {p.removeprefix("/api/v1") for p in spec["paths"]} >= PATHS | FILES


def test_every_operation_documents_its_problems(spec: dict[str, Any]) -> None:
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            if method in ("get", "post", "put", "delete"):
                responses = operation["responses"]
                assert "500" in responses, (path, method)
                if method in ("post", "put"):
                    assert {"400", "413", "415", "422"} <= set(responses), (path, method)


def test_writes_document_their_precondition(spec: dict[str, Any]) -> None:
    put = spec["paths"]["/api/v1/gpus/{slug}"]["put"]
    assert {"412", "428"} <= set(put["responses"])
    assert any(p.get("name") == "If-Match" for p in put["parameters"])
    get = spec["paths"]["/api/v1/gpus/{slug}"]["get"]
    assert "ETag" in get["responses"]["200"]["headers"]


def test_the_documentation_works_offline(client: FlaskClient) -> None:
    page = client.get("/docs/")
    assert page.status_code == 200
    assert "https://" not in page.text.replace("https://www.w3.org", "")
    with client.get("/docs/swagger-ui-bundle.js") as script:
        assert script.status_code == 200


OPERATIONS = [
    *((path, method) for name in ("gpus", "models", "prices", "engines", "workloads")
      for path, method in [(f"/{name}", "GET"), (f"/{name}", "POST")]),
    *((f"/{name}/{{{key}}}", method) for name, key in (
        ("gpus", "slug"), ("models", "slug"), ("prices", "id"), ("engines", "slug"),
        ("workloads", "slug")) for method in ("GET", "PUT", "DELETE")),
    *((f"/{name}", method) for name in ("sweeps", "simulations") for method in ("GET", "POST")),
    *((f"/{name}/{{{key}}}", method) for name, key in (
        ("traces", "slug"), ("jobs", "job_id"), ("sweeps", "sweep_id"),
        ("simulations", "simulation_id")) for method in ("GET", "DELETE")),
    ("/traces", "GET"), ("/traces/{slug}/requests", "GET"), ("/jobs", "GET"),
    ("/simulations/{simulation_id}/requests", "GET"),
    ("/plans", "GET"), ("/plans", "POST"), ("/plans/{plan_id}", "GET"),
    ("/plans/{plan_id}", "DELETE"), ("/plans/{plan_id}/points", "GET"),
    ("/plans/{plan_id}/workbook", "GET"), ("/estimates", "POST"),
    ("/workbooks/template", "GET"), ("/workbooks", "POST"), ("/catalog", "GET"),
    ("/catalog", "POST"), ("/catalog/{table}", "GET"), ("/catalog/{table}", "POST"),
    ("/plans/compare", "POST"), ("/plans/compare/workbook", "POST"),
]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance,
          response_schema_conformance, negative_data_rejection]
BUDGET = settings(max_examples=12, derandomize=True, deadline=None, database=None,
                  suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[" ".join(o) for o in OPERATIONS])
@pytest.mark.usefixtures("stub_planner")
def test_the_service_keeps_to_it(described: Any, path: str, method: str) -> None:
    operation = described["/api/v1" + path][method]
    anything = operation.as_strategy() | operation.as_strategy(GenerationMode.NEGATIVE)

    @BUDGET
    @given(case=anything)
    def keeps_to_it(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    keeps_to_it()
