"""The specification of ``/budgets`` is kept."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

OPERATIONS = [("/budgets", "GET"), ("/budgets", "POST"), ("/budgets/{budget_id}", "GET"),
              ("/budgets/{budget_id}", "DELETE"), ("/budgets/{budget_id}/workbook", "GET")]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance,
          response_schema_conformance, negative_data_rejection]
FEW = settings(max_examples=12, derandomize=True, deadline=None, database=None,
               suppress_health_check=list(HealthCheck))


def test_every_path_is_named(client: FlaskClient) -> None:
    paths = client.get("/api/v1/openapi.json").json["paths"]
    assert {f"/api/v1{path}" for path, _ in OPERATIONS} <= set(paths)


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[" ".join(o) for o in OPERATIONS])
def test_the_service_keeps_to_it(described: Any, path: str, method: str) -> None:
    operation = described["/api/v1" + path][method]
    anything = operation.as_strategy() | operation.as_strategy(GenerationMode.NEGATIVE)

    @FEW
    @given(case=anything)
    def keeps_to_it(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    keeps_to_it()
