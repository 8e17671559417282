"""Liveness, readiness, and the list of problem types."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify
from sqlalchemy import func, select

from models import GpuRow, LlmRow
from planner.api.problems import Problem, problem_types
from planner.extensions import db

blp = Blueprint("health", __name__)


@blp.get("/healthz")
def healthz() -> Response:
    """The process answers."""
    return jsonify(status="ok")


@blp.get("/readyz")
def readyz() -> Response:
    """The database answers and holds a catalog.

    Raises
    ------
    Problem
        503 when the catalog is empty; a database that cannot be reached is 503 as well.
    """
    gpus = db.session.scalar(select(func.count()).select_from(GpuRow)) or 0
    models = db.session.scalar(select(func.count()).select_from(LlmRow)) or 0
    if not gpus:
        raise Problem(503, "catalog-empty", "the catalog is empty; run: flask catalog load")
    return jsonify(status="ok", gpus=gpus, models=models)


@blp.get("/api/v1/problems")
def problems() -> Response:
    """Every problem type that input can cause."""
    return jsonify(items=problem_types())
