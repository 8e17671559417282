"""The live workbook of a budget: its sheets in order, and its properties."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from planner import __version__
from planner.budget.model import BudgetModel
from planner.collector import collector_paused
from planner.workbook import (
    budget_about,
    budget_checks,
    budget_fleets,
    budget_inputs,
    budget_money,
    budget_views,
)
from planner.workbook.budget_grid import Live, live
from planner.workbook.fast import FastBook, settings
from planner.workbook.layout import clean

SHEETS = (
    budget_views.SUMMARY, budget_inputs.INPUTS, budget_inputs.PRICES, budget_inputs.WORKLOADS,
    budget_inputs.LAUNCHES, budget_fleets.DEMAND, budget_fleets.WEIGHTS, budget_fleets.LAYOUTS,
    budget_fleets.CAPACITY, budget_fleets.FLEETS, budget_money.COST, budget_money.BUY,
    budget_money.ORDERS, budget_views.ACTUAL, budget_views.SCENARIOS, budget_checks.CHECKS,
    budget_checks.SIZED, budget_about.ABOUT)
"""Every sheet in its place."""
WRITERS: tuple[Callable[[Live], None], ...] = (
    budget_inputs.write_inputs, budget_inputs.write_prices, budget_inputs.write_workloads,
    budget_inputs.write_launches, budget_fleets.write_demand, budget_fleets.write_capacity,
    budget_fleets.write_weights, budget_fleets.write_layouts, budget_fleets.write_fleets,
    budget_money.write_cost, budget_money.write_buying, budget_money.write_orders,
    budget_views.write_actual, budget_views.write_scenarios, budget_checks.write_sized,
    budget_checks.write_checks,
    budget_about.write_about, budget_views.write_summary)
"""What fills them, each after those whose rows it refers to."""
COLOURS = {budget_views.SUMMARY: "#1F3864", budget_inputs.INPUTS: "#0000FF",
           budget_inputs.PRICES: "#0000FF", budget_inputs.WORKLOADS: "#0000FF",
           budget_inputs.LAUNCHES: "#0000FF", budget_views.ACTUAL: "#0000FF",
           budget_checks.CHECKS: "#9C0006"}


@collector_paused()
def write_budget(document: Mapping[str, Any], model: BudgetModel) -> bytes:
    """A budget as an Excel workbook that recalculates.

    The same budget always gives the same bytes.

    Parameters
    ----------
    document : mapping
        The body that ``POST /budgets`` answers.
    model : BudgetModel

    Returns
    -------
    bytes
        An xlsx file. Every formula holds its value, so programs that do not calculate read it too.
    """
    target = io.BytesIO()
    with FastBook(target, settings()) as book:
        book.set_properties(_properties(document, model))
        book.set_calc_mode("auto")
        for name in SHEETS:
            sheet = book.add_worksheet(name)
            if name in COLOURS:
                sheet.set_tab_color(COLOURS[name])
        state = live(book, model, document)
        for fill in WRITERS:
            fill(state)
        book.get_worksheet_by_name(budget_views.SUMMARY).activate()
    return target.getvalue()


def _properties(document: Mapping[str, Any], model: BudgetModel) -> dict[str, Any]:
    created = datetime.fromisoformat(str(document["created_at"]).replace("Z", "+00:00"))
    return {"title": clean(model.name or "Budget"), "subject": "Budget of LLM inference capacity",
            "author": "LLM inference capacity planner", "category": "Budget",
            "keywords": "LLM, inference, capacity, GPU, budget",
            "comments": f"Budget {document['id']}, planner {__version__}",
            "created": created.astimezone(UTC).replace(tzinfo=None)}
