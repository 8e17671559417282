"""Making, storing and reading budgets, for the views and the command line alike. No Flask."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from models import BudgetRow
from models.base import utc_now
from planner.api.plan_checks import check_plan
from planner.budget.inputs import BudgetRequest
from planner.budget.model import BudgetModel, model_from_json, to_json
from planner.catalog.book import Catalog
from planner.errors import PlannerError
from planner.plain import plain


@dataclass(frozen=True, slots=True)
class MadeBudget:
    """A budget as JSON types and the model that its workbook and CSV follow from."""

    document: dict[str, Any]
    model: BudgetModel


def make(request: BudgetRequest, catalog: Catalog) -> MadeBudget:
    """Check a request against the catalog and budget it.

    Raises
    ------
    PlannerError
        When the request names what the catalog lacks.
    """
    from planner.budget.budget import make_budget  # late: commands without budgets start faster
    from planner.budget.document import document

    check(request, catalog)
    result = make_budget(request, catalog)
    now = utc_now()
    head = {"id": str(uuid.uuid4()), "created_at": now.isoformat().replace("+00:00", "Z"),
            "request": plain(request.stated)}
    return MadeBudget({**head, **plain(document(result, now.date()))}, result.model)


def check(request: BudgetRequest, catalog: Catalog) -> None:
    """Refuse what the catalog lacks, with the pointer of the field."""
    for i, w in enumerate(request.workloads):
        try:
            check_plan(w.request, catalog)
        except PlannerError as error:
            raise type(error)(error.message, f"/workloads/{i}{error.pointer}") from None
    for i, server in enumerate(request.owned.servers):
        catalog.gpu(server.gpu, f"/owned/servers/{i}/gpu")
    for slug in request.owned.existing_gpus:
        catalog.gpu(slug, f"/owned/existing_gpus/{slug}")
    for i, term in enumerate(request.commitments.terms or ()):
        for slug in term.usd_per_gpu_hour:
            catalog.gpu(slug, f"/commitments/terms/{i}/usd_per_gpu_hour/{slug}")
    for i, question in enumerate(request.what_if):
        if question.gpu is not None:
            catalog.gpu(question.gpu, f"/what_if/{i}/gpu")


def row_of(budget: MadeBudget) -> BudgetRow:
    """The table row of a budget."""
    d = budget.document
    body = {k: v for k, v in d.items() if k not in ("id", "created_at", "request")}
    return BudgetRow(id=d["id"], name=d["request"]["name"], months=d["request"]["months"],
                     created_at=datetime.fromisoformat(d["created_at"]), request=d["request"],
                     result=body, model=to_json(budget.model))


def document_of(row: BudgetRow) -> dict[str, Any]:
    """The body of a stored budget, equal to the one that was answered when it was made."""
    created = row.created_at.isoformat().replace("+00:00", "Z")
    return {"id": row.id, "created_at": created, "request": row.request, **row.result}


def budget_of_row(row: BudgetRow) -> MadeBudget:
    """A budget from its table row."""
    return MadeBudget(document_of(row), model_from_json(row.model))


def focus_table(budget: MadeBudget) -> dict[str, Any]:
    """The charges of a budget in FOCUS columns."""
    from planner.budget.budget import result_of
    from planner.budget.focus import table

    return table(result_of(budget.model))
