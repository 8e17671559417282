"""Making and storing plans and estimates, for the views and the command line alike. No Flask."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from models import PlanRow
from models.base import utc_now
from planner.api.echo import echo
from planner.api.plan_checks import check_estimate, check_plan
from planner.catalog.book import Catalog
from planner.plain import plain
from planner.requests import EstimateRequest, PlanRequest


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan as JSON types, before or after it is stored.

    Attributes
    ----------
    document : dict
        The body that ``POST /plans`` answers.
    points : dict
        ``columns`` and ``rows`` of every operating point.
    snapshot : dict
        The catalog rows used.
    """

    document: dict[str, Any]
    points: dict[str, Any]
    snapshot: dict[str, Any]


def make(request: PlanRequest, catalog: Catalog) -> MadePlan:
    """Check a request against the catalog and plan it.

    Raises
    ------
    PlannerError
        When the request names what the catalog lacks, or too long a context.
    """
    from planner.planning import make_plan  # imported late: commands without plans start faster

    check_plan(request, catalog)
    result = make_plan(request, catalog)
    body = plain(result.document())
    body["assumptions"] = _assumptions(request, body.get("assumptions", []))
    created = utc_now().isoformat().replace("+00:00", "Z")
    head = {"id": str(uuid.uuid4()), "created_at": created, "request": plain(echo(request))}
    return MadePlan({**head, **body}, plain(result.points()), plain(result.snapshot()))


def _assumptions(request: PlanRequest, found: list[Any]) -> list[Any]:
    """What reading the request assumed, then what planning did, each once."""
    known = {row.get("name") for row in found}
    return [plain(r) for r in request.assumptions if r["name"] not in known] + found


def estimate(request: EstimateRequest, catalog: Catalog) -> dict[str, Any]:
    """Check an estimate request against the catalog and evaluate it.

    Raises
    ------
    PlannerError
        When the request names what the catalog lacks.
    """
    from planner.estimate import make_estimate

    check_estimate(request, catalog)
    document: dict[str, Any] = plain(make_estimate(request, catalog))
    return document


def row_of(plan: MadePlan) -> PlanRow:
    """The table row of a plan."""
    body = {k: v for k, v in plan.document.items() if k not in ("id", "created_at", "request")}
    request = plan.document["request"]
    return PlanRow(id=plan.document["id"], name=request["name"], model=request["model"],
                   created_at=datetime.fromisoformat(plan.document["created_at"]),
                   request=request, result=body, snapshot=plan.snapshot,
                   points=pack(plan.points))


def plan_of(row: PlanRow) -> MadePlan:
    """A plan from its table row."""
    return MadePlan(document_of(row), unpack(row.points), row.snapshot)


def document_of(row: PlanRow) -> dict[str, Any]:
    """The body of a stored plan, equal to the one that was answered when it was made."""
    created = row.created_at.isoformat().replace("+00:00", "Z")
    return {"id": row.id, "created_at": created, "request": row.request, **row.result}


def select_points(points: Mapping[str, Any], setup: str | None, gpu: str | None
                  ) -> dict[str, Any]:
    """The points of one setup, one GPU, or both; a point with two pools has two GPU columns."""
    columns: list[str] = points["columns"]
    setups = [i for i, c in enumerate(columns) if c == "setup"]
    gpus = [i for i, c in enumerate(columns) if c == "gpu" or c.endswith("_gpu")]
    rows = [row for row in points["rows"]
            if (setup is None or any(row[i] == setup for i in setups))
            and (gpu is None or any(row[i] == gpu for i in gpus))]
    return {"columns": columns, "rows": rows}


def pack(points: Mapping[str, Any]) -> bytes:
    """Points as compressed JSON."""
    return zlib.compress(json.dumps(points, separators=(",", ":")).encode())


def unpack(data: bytes) -> dict[str, Any]:
    """Points from compressed JSON."""
    points: dict[str, Any] = json.loads(zlib.decompress(data))
    return points
