"""A filled template to plans: read, checked, planned, all rows or none. No Flask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.api.plan_service import MadePlan, make
from planner.api.validation import InvalidDocument
from planner.catalog.book import Catalog
from planner.errors import PlannerError
from planner.spreadsheets.sheets import read_workbook
from planner.spreadsheets.workload_columns import SHEET
from planner.spreadsheets.workloads import (
    MAX_ERRORS,
    Errors,
    ReadWorkloads,
    at_fault,
    read_workloads,
)
from planner.workbook.plan import Plan
from planner.workbook.portfolio import Planned, reason_of, totals, write_portfolio


@dataclass(frozen=True, slots=True)
class Portfolio:
    """The plans of a file.

    Attributes
    ----------
    read : ReadWorkloads
    plans : list of MadePlan
        One a row, in the order of the rows.
    """

    read: ReadWorkloads
    plans: list[MadePlan]

    @property
    def planned(self) -> list[Planned]:
        """The rows with their plans, as the workbook shows them."""
        return [Planned(row.number, row.values, Plan(made.document, {}, made.snapshot))
                for row, made in zip(self.read.rows, self.plans, strict=True)]

    def notes(self) -> list[str]:
        """What the reader should know of the file that was read."""
        found = []
        if self.read.example_left_out:
            found.append("The example row of the template was unchanged and is left out.")
        if self.read.ignored:
            names = ", ".join(self.read.ignored[:20])
            found.append(f"Columns that were not read: {names}.")
        return found

    def workbook(self) -> bytes:
        """The plans as an xlsx file."""
        return write_portfolio(self.planned, self.notes())

    def document(self) -> dict[str, Any]:
        """The plans in short, and the totals."""
        return {"rows": [_row_document(p) for p in self.planned],
                "totals": totals(self.planned), "notes": self.notes()}


def _row_document(row: Planned) -> dict[str, Any]:
    best = row.best
    return {"row": row.number, "name": row.name, "id": row.plan.document["id"],
            "model": row.plan.request["model"], "setup": best.get("setup"),
            "gpus": best.get("gpus"), "nodes": best.get("nodes"),
            "usd_per_hour": best.get("usd_per_hour"), "usd_per_month": best.get("usd_per_month"),
            "limited_by": best.get("limited_by"), "reason": reason_of(row)}


def plan_workloads(data: bytes, catalog: Catalog) -> Portfolio:
    """Plan every workload of a filled template.

    Raises
    ------
    InvalidDocument
        With the pointer of every cell at fault, such as ``/Workloads/D7``.
    UnreadableFile, FileTooLarge
    """
    read = read_workloads(read_workbook(data, (SHEET,)), catalog)
    errors: Errors = []
    plans = []
    for row in read.rows:
        try:
            plans.append(make(row.request, catalog))
        except PlannerError as error:
            errors += at_fault(row.places, error)
    if errors:
        raise InvalidDocument(errors[:MAX_ERRORS])
    return Portfolio(read, plans)
