"""``/plans/compare``: plans side by side, and why the fleet moved."""

from __future__ import annotations

from typing import Any

from flask import Response, request
from flask.views import MethodView

from models import PlanRow
from planner.api.blueprint import ApiBlueprint
from planner.api.compare_schema import CompareSchema, ComparisonSchema
from planner.api.compare_service import Sources, compare_plans
from planner.api.etags import etag_of, respond
from planner.api.plan_service import MadePlan
from planner.api.plan_service import plan_of as stored_plan
from planner.api.plans import EXAMPLE, attachment
from planner.api.traces import trace_workload
from planner.api.uploads import BINARY, XLSX
from planner.api.workloads import saved_workload
from planner.catalog.store import catalog_from_db
from planner.extensions import db

blp = ApiBlueprint("compare", __name__, "Plans side by side")
COMPARE_EXAMPLE = {"base": EXAMPLE, "scenarios": [
    {"name": "Twice the rate", "changes": {"workload": {"requests_per_second": 24}}},
    {"name": "On H200", "changes": {"gpus": ["h200-sxm-141gb"]}}]}


def find_stored(plan_id: str) -> MadePlan | None:
    """The stored plan of an id, None when there is none."""
    row = None if "\x00" in plan_id else db.session.get(PlanRow, plan_id)
    return None if row is None else stored_plan(row)


def sources() -> Sources:
    """Plans, workloads and the catalog of the database."""
    return Sources(catalog_from_db(db.session), find_stored, saved_workload, trace_workload)


@blp.route("/plans/compare")
class Comparison(MethodView):
    """A comparison is computed, not stored."""

    @blp.create(CompareSchema, ComparisonSchema, status=200, example=COMPARE_EXAMPLE)
    def post(self, data: dict[str, Any]) -> Response:
        """Compare plans: stored ones, requests, or a base with changes.

        For every plan but the first a bridge says why GPUs and cost moved: the parts of the
        request are replaced one after another and planned again, so the steps sum to the change.
        """
        document, _ = compare_plans(request.get_json(), sources())
        return respond(document)


@blp.route("/plans/compare/workbook")
class ComparisonWorkbook(MethodView):
    """The same as a workbook."""

    @blp.create(CompareSchema, dict(BINARY), status=200, example=COMPARE_EXAMPLE,
                content_type=XLSX)
    def post(self, data: dict[str, Any]) -> Response:
        """The comparison as an xlsx: side by side, what differs, a bridge with a chart each."""
        from planner.workbook.compare import write_comparison  # late: the spreadsheet writer

        document, plans = compare_plans(request.get_json(), sources())
        body = write_comparison(document, [p.snapshot for p in plans])
        return attachment(body, XLSX, "comparison.xlsx", etag_of(body))
