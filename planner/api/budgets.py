"""``/budgets``: months of money."""

from __future__ import annotations

from typing import Any

from flask import Response, request, url_for
from flask.views import MethodView
from sqlalchemy import select

from models import BudgetRow
from planner.api.blueprint import ApiBlueprint
from planner.api.budget_answer import BudgetAnswerSchema, BudgetSummarySchema
from planner.api.budget_schema import BudgetSchema, budget_of
from planner.api.budget_service import budget_of_row, document_of, focus_table, make, row_of
from planner.api.etags import encode, etag_of, known, require_match, respond
from planner.api.fields import Choice, Text
from planner.api.paging import PageQuery, matches, page, page_schema
from planner.api.plans import attachment, csv_response, varied, wants_csv
from planner.api.problems import Problem
from planner.api.traces import trace_workload
from planner.api.uploads import XLSX
from planner.api.validation import StrictSchema
from planner.api.workloads import saved_workload
from planner.catalog.store import catalog_from_db
from planner.extensions import db

blp = ApiBlueprint("budgets", __name__, "Budgets over months")
BudgetPage = page_schema("BudgetPage", BudgetSummarySchema)
EXAMPLE = {
    "name": "Assistants 2027", "months": 24, "start": "2027-01", "headroom": 0.1,
    "workloads": [{
        "name": "Support chat", "model": "llama-3.1-70b", "gpus": ["h100-sxm-80gb"],
        "precisions": [{"weights": "fp8", "kv": "fp8"}],
        "workload": {"requests_per_second": 12, "prompt_tokens": {"mean": 2000, "p95": 6000},
                     "output_tokens": 300},
        "slo": {"ttft_ms": 1000, "tpot_ms": 50}, "growth_per_month": 0.03,
        "launches": [{"month": 6, "multiplier": 1.5, "months": 2}]}],
    "commitments": {"terms": [{"term_months": 12, "discount": 0.3}]},
    "lead_time_days": 90,
}


class BudgetQuery(PageQuery):
    """A page of the budgets that fit."""

    q = Text(longest=100, metadata={"description": "Part of the name"})


class BudgetFormQuery(StrictSchema):
    """In which form."""

    format = Choice(("json", "csv"))


def find(budget_id: str) -> BudgetRow:
    """The stored budget of an id.

    Raises
    ------
    Problem
        404 when there is none.
    """
    row = None if "\x00" in budget_id else db.session.get(BudgetRow, budget_id)
    if row is None:
        raise Problem(404, "not-found", f"there is no budget {budget_id!r}")
    return row


def summary(row: BudgetRow) -> dict[str, Any]:
    """A budget in a list."""
    totals = row.result["totals"]
    return {"id": row.id, "created_at": document_of(row)["created_at"], "name": row.name,
            "months": row.months, "workloads": len(row.request["workloads"]),
            "peak_gpus": totals["peak_gpus"], "effective_cost": totals["effective_cost"],
            "billing_currency": row.result["billing_currency"]}


@blp.route("/budgets")
class Budgets(MethodView):
    """All budgets."""

    @blp.read(BudgetPage, query=BudgetQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List budgets, the newest first."""
        query = select(BudgetRow).order_by(BudgetRow.created_at.desc(), BudgetRow.id)
        if "q" in args:
            query = query.where(matches(args["q"], BudgetRow.name))
        rows, total, following = page(query, args)
        return respond({"items": [summary(r) for r in rows], "total": total, "next": following})

    @blp.create(BudgetSchema, BudgetAnswerSchema, example=EXAMPLE)
    def post(self, data: dict[str, Any]) -> Response:
        """Budget fleets over months and store the budget with the prices it used."""
        made = make(budget_of(data, saved_workload, trace_workload), catalog_from_db(db.session))
        db.session.add(row_of(made))
        db.session.commit()
        return respond(made.document, 201,
                       url_for("budgets.Budget", budget_id=made.document["id"]))


@blp.route("/budgets/<budget_id>")
class Budget(MethodView):
    """One budget; it never changes."""

    @blp.read(BudgetAnswerSchema, 404, query=BudgetFormQuery, text="text/csv")
    def get(self, args: dict[str, Any], budget_id: str) -> Response:
        """Show a budget; as CSV its charges in the columns of FOCUS."""
        row = find(budget_id)
        if wants_csv(args.get("format")):
            return csv_response(focus_table(budget_of_row(row)), f"budget-{budget_id}.csv")
        return varied(respond(document_of(row)))

    @blp.remove(checked=False)
    def delete(self, budget_id: str) -> Response:
        """Delete a budget. It cannot have changed, so ``If-Match`` is not required."""
        row = find(budget_id)
        if "If-Match" in request.headers:
            require_match(document_of(row))
        db.session.delete(row)
        db.session.commit()
        return Response(status=204)


@blp.route("/budgets/<budget_id>/workbook")
class BudgetWorkbook(MethodView):
    """A budget as a workbook."""

    @blp.read({"type": "string", "format": "binary"}, 404, content_type=XLSX)
    def get(self, budget_id: str) -> Response:
        """The budget as an xlsx that recalculates."""
        from planner.workbook.budget import write_budget  # late: it loads the spreadsheet writer

        budget = budget_of_row(find(budget_id))
        tag = etag_of(encode(budget.document))
        body = b"" if known(tag) else write_budget(budget.document, budget.model)
        return attachment(body, XLSX, f"budget-{budget_id}.xlsx", tag)
