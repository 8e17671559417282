"""``/workbooks``: a template to fill in, and a plan for every row of a filled one."""

from __future__ import annotations

from typing import Any

from flask import Response, request
from flask.views import MethodView
from flask_smorest import Blueprint
from marshmallow import Schema, fields

from planner.api.blueprint import ApiBlueprint, View
from planner.api.etags import etag_of, respond
from planner.api.fields import Choice
from planner.api.plan_service import row_of
from planner.api.plans import attachment, varied
from planner.api.uploads import ANY, BINARY, XLSM, XLSX, body_doc, uploaded
from planner.api.validation import StrictSchema
from planner.catalog.store import catalog_from_db
from planner.extensions import db

blp = ApiBlueprint("workbooks", __name__, "Spreadsheets of workloads")
FORMATS = ("xlsx", "json")


class WorkbookQuery(StrictSchema):
    """The form of the answer; wins over ``Accept``."""

    format = Choice(FORMATS)


class WorkbookRowSchema(Schema):
    """One workload of the file with its plan in short."""

    row = fields.Integer(required=True)
    name = fields.String(required=True)
    id = fields.String(required=True)
    model = fields.String(required=True)
    setup = fields.String(required=True, allow_none=True)
    gpus = fields.Integer(required=True, allow_none=True)
    nodes = fields.Integer(required=True, allow_none=True)
    usd_per_hour = fields.Float(required=True, allow_none=True)
    usd_per_month = fields.Float(required=True, allow_none=True)
    limited_by = fields.String(required=True, allow_none=True)
    reason = fields.String(required=True)


class GpuTotalSchema(Schema):
    """What the workloads need of one GPU."""

    gpu = fields.String(required=True)
    workloads = fields.Integer(required=True)
    gpus = fields.Integer(required=True)
    usd_per_hour = fields.Float(required=True, allow_none=True)


class PortfolioTotalsSchema(Schema):
    """Sums over the workloads that have a plan; null where one has no price or power."""

    workloads = fields.Integer(required=True)
    planned = fields.Integer(required=True)
    gpus = fields.Integer(required=True)
    nodes = fields.Integer(required=True)
    usd_per_hour = fields.Float(required=True, allow_none=True)
    usd_per_month = fields.Float(required=True, allow_none=True)
    power_kw = fields.Float(required=True, allow_none=True)
    by_gpu = fields.List(fields.Nested(GpuTotalSchema), required=True)


class PortfolioSchema(Schema):
    """The plans of a file, one a row, and their totals."""

    rows = fields.List(fields.Nested(WorkbookRowSchema), required=True)
    totals = fields.Nested(PortfolioTotalsSchema, required=True)
    notes = fields.List(fields.String(), required=True)


def wants_workbook(form: str | None, default: str = "xlsx") -> bool:
    """Whether a request asked for an xlsx, by ``?format=`` or else by ``Accept``."""
    if form is not None:
        return form == "xlsx"
    kinds = {"xlsx": XLSX, "json": "application/json"}
    order = [kinds.pop(default), *kinds.values()]
    return request.accept_mimetypes.best_match(order, default=order[0]) == XLSX


def _operation(view: View) -> View:
    """Document an operation that takes a file and answers with one or with JSON."""
    described: View = Blueprint.doc(requestBody=body_doc(XLSX, ANY))(view)
    described = blp.alt_response(200, schema=PortfolioSchema)(described)
    described = blp.response(200, dict(BINARY), content_type=XLSX)(described)
    described = blp.arguments(WorkbookQuery, location="query")(described)
    return blp.problems(400, 408, 413, 415, 422, 503)(described)


@blp.route("/workbooks/template")
class WorkbookTemplate(MethodView):
    """The template."""

    @blp.read(dict(BINARY), content_type=XLSX)
    def get(self) -> Response:
        """An xlsx to fill in: one row a workload, drop-downs from the catalog, help."""
        from planner.workbook.template import write_template  # late: the spreadsheet writer

        body = write_template(catalog_from_db(db.session))
        return attachment(body, XLSX, "workloads.xlsx", etag_of(body))


@blp.route("/workbooks")
class Workbooks(MethodView):
    """A filled template."""

    @_operation
    def post(self, args: dict[str, Any]) -> Response:
        """Plan every row of a filled template and store the plans: all rows, or none.

        A cell that cannot be used is named by sheet and place: ``"pointer": "/Workloads/D7"``.
        """
        from planner.api.workbook_service import plan_workloads  # late, as above

        data, _ = uploaded(request, XLSX, ANY, XLSM)
        portfolio = plan_workloads(data, catalog_from_db(db.session))
        db.session.add_all(row_of(plan) for plan in portfolio.plans)
        db.session.commit()
        if not wants_workbook(args.get("format")):
            return varied(respond(portfolio.document()))
        body = portfolio.workbook()
        return varied(attachment(body, XLSX, "plans.xlsx", etag_of(body)))
