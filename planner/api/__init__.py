"""The REST API: one module a resource, its schemas beside it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

RESOURCES = ("gpus", "models", "prices", "engines", "workloads", "traces", "plans", "compare",
             "estimates", "simulations", "sweeps", "jobs", "predictions", "calibrations",
             "accuracy", "workbooks", "catalog", "budgets")
"""Modules of this package with a ``blp``, in the order of the documentation."""

OPENAPI = {
    "API_TITLE": "LLM inference capacity planner",
    "API_VERSION": "v1",
    "OPENAPI_VERSION": "3.1.0",
    "OPENAPI_URL_PREFIX": "/api/v1",
    "OPENAPI_JSON_PATH": "openapi.json",
}


def register_api(app: Flask) -> None:
    """Give an app every resource, its specification, the offline documentation and the probes."""
    # Schemas and parsers of this package are used without Flask, so Flask is imported here.
    from flask import redirect
    from flask_swagger_ui import get_swaggerui_blueprint

    from planner.api import health
    from planner.api.blueprint import ProblemApi

    app.config.update(OPENAPI)
    api = ProblemApi(app)
    for name in RESOURCES:
        api.register_blueprint(import_module(f"planner.api.{name}").blp)
    app.register_blueprint(health.blp)
    app.add_url_rule("/", "home", lambda: redirect("/docs/"))
    app.register_blueprint(get_swaggerui_blueprint(
        "/docs", "/api/v1/openapi.json", {"app_name": OPENAPI["API_TITLE"], "validatorUrl": None}))
