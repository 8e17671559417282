"""``/plans``: the main job."""

from __future__ import annotations

import csv
import io
from typing import Any

from flask import Response, request, url_for
from flask.views import MethodView
from sqlalchemy import select

from models import PlanRow
from planner.api.blueprint import ApiBlueprint
from planner.api.etags import encode, etag_of, known, require_match, respond
from planner.api.fields import Choice, Text
from planner.api.paging import PageQuery, matches, page, page_schema
from planner.api.plan_answer import PlanAnswerSchema, PlanSummarySchema, PointsSchema
from planner.api.plan_schema import PlanSchema, plan_of
from planner.api.plan_service import document_of, make, row_of, select_points, unpack
from planner.api.problems import Problem
from planner.api.traces import trace_workload
from planner.api.uploads import XLSX
from planner.api.validation import StrictSchema
from planner.api.workloads import saved_workload
from planner.catalog.store import catalog_from_db
from planner.extensions import db
from planner.requests import SETUPS

blp = ApiBlueprint("plans", __name__, "Capacity plans")
PlanPage = page_schema("PlanPage", PlanSummarySchema)
EXAMPLE = {
    "name": "Support chat", "model": "llama-3.1-70b",
    "workload": {"requests_per_second": 12, "prompt_tokens": {"mean": 2000, "p95": 6000},
                 "output_tokens": 300},
    "slo": {"ttft_ms": 1000, "tpot_ms": 50, "percentile": 90},
    "gpus": ["h100-sxm-80gb", "l40s"],
}


class PlanQuery(PageQuery):
    """A page of the plans that fit."""

    q = Text(longest=100, metadata={"description": "Part of the name"})
    model = Text(longest=200)


class PointsQuery(StrictSchema):
    """Which points, and in which form."""

    setup = Choice(SETUPS)
    gpu = Text(longest=100)
    format = Choice(("json", "csv"))


def find(plan_id: str) -> PlanRow:
    """The stored plan of an id.

    Raises
    ------
    Problem
        404 when there is none.
    """
    row = None if "\x00" in plan_id else db.session.get(PlanRow, plan_id)
    if row is None:
        raise Problem(404, "not-found", f"there is no plan {plan_id!r}")
    return row


def summary(row: PlanRow) -> dict[str, Any]:
    """A plan in a list."""
    best = row.result.get("recommended") or {}
    return {"id": row.id, "created_at": document_of(row)["created_at"], "name": row.name,
            "model": row.model, "options": len(row.result.get("options", [])),
            "setup": best.get("setup"), "gpus": best.get("gpus"),
            "usd_per_month": best.get("usd_per_month")}


@blp.route("/plans")
class Plans(MethodView):
    """All plans."""

    @blp.read(PlanPage, query=PlanQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List plans, the newest first."""
        query = select(PlanRow).order_by(PlanRow.created_at.desc(), PlanRow.id)
        if "q" in args:
            query = query.where(matches(args["q"], PlanRow.name))
        if "model" in args:
            query = query.where(PlanRow.model == args["model"])
        rows, total, following = page(query, args)
        return respond({"items": [summary(r) for r in rows], "total": total, "next": following})

    @blp.create(PlanSchema, PlanAnswerSchema, example=EXAMPLE)
    def post(self, data: dict[str, Any]) -> Response:
        """Plan a fleet and store the plan with the catalog rows it used."""
        plan = make(plan_of(data, saved_workload, trace_workload), catalog_from_db(db.session))
        db.session.add(row_of(plan))
        db.session.commit()
        return respond(plan.document, 201, url_for("plans.Plan", plan_id=plan.document["id"]))


@blp.route("/plans/<plan_id>")
class Plan(MethodView):
    """One plan; it never changes."""

    @blp.read(PlanAnswerSchema, 404)
    def get(self, plan_id: str) -> Response:
        """Show a plan."""
        return respond(document_of(find(plan_id)))

    @blp.remove(checked=False)
    def delete(self, plan_id: str) -> Response:
        """Delete a plan. It cannot have changed, so ``If-Match`` is not required."""
        row = find(plan_id)
        if "If-Match" in request.headers:
            require_match(document_of(row))
        db.session.delete(row)
        db.session.commit()
        return Response(status=204)


@blp.route("/plans/<plan_id>/points")
class PlanPoints(MethodView):
    """The operating points behind a plan."""

    @blp.read(PointsSchema, 404, query=PointsQuery, text="text/csv")
    def get(self, args: dict[str, Any], plan_id: str) -> Response:
        """The table of operating points, as JSON or CSV."""
        points = select_points(unpack(find(plan_id).points), args.get("setup"), args.get("gpu"))
        if wants_csv(args.get("format")):
            return csv_response(points, f"plan-{plan_id}-points.csv")
        return varied(respond(points))


@blp.route("/plans/<plan_id>/workbook")
class PlanWorkbook(MethodView):
    """A plan as a workbook."""

    @blp.read({"type": "string", "format": "binary"}, 404, content_type=XLSX)
    def get(self, plan_id: str) -> Response:
        """The plan as an xlsx: values, a chart, every assumption with its source."""
        from planner.workbook import write_plan  # late: it loads the spreadsheet writer

        row = find(plan_id)
        document = document_of(row)
        tag = etag_of(encode(document))
        body = b"" if known(tag) else write_plan(document, unpack(row.points), row.snapshot)
        return attachment(body, XLSX, f"plan-{plan_id}.xlsx", tag)


def wants_csv(form: str | None) -> bool:
    """Whether a request asked for CSV, by ``?format=`` or else by ``Accept``."""
    if form is not None:
        return form == "csv"
    return request.accept_mimetypes.best_match(["application/json", "text/csv"]) == "text/csv"


def varied(response: Response) -> Response:
    """Mark a response as depending on ``Accept``."""
    response.vary.add("Accept")
    return response


def csv_response(table: dict[str, Any], filename: str) -> Response:
    """A table of columns and rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(table["columns"])
    writer.writerows(table["rows"])
    body = text.getvalue().encode()
    return varied(attachment(body, "text/csv; charset=utf-8", filename, etag_of(body)))


def attachment(body: bytes, content_type: str, filename: str, tag: str) -> Response:
    """A file to download, with its tag."""
    response = Response(body, content_type=content_type)
    response.headers["Content-Disposition"] = f'attachment; filename="{filename}"'
    response.set_etag(tag)
    response.make_conditional(request)
    return response
