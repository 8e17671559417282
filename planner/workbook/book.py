"""The workbook of a plan: its sheets in order, and its properties."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import xlsxwriter

from planner import __version__
from planner.workbook import (
    about,
    advice,
    assumptions,
    catalog,
    infeasible,
    inputs,
    memory,
    operating_points,
    options,
    summary,
)
from planner.workbook.layout import Page
from planner.workbook.plan import Plan
from planner.workbook.styles import FONT, FONT_SIZE, Styles

WRITERS: tuple[tuple[str, Any], ...] = (
    (summary.NAME, summary.write),
    (inputs.NAME, inputs.write),
    (options.NAME, lambda page, plan, _: options.write(page, plan)),
    (advice.NAME, lambda page, plan, _: advice.write(page, plan)),
    (options.POOLS, lambda page, plan, _: options.write_pools(page, plan)),
    (options.LATENCIES, lambda page, plan, _: options.write_latencies(page, plan)),
    (operating_points.CURVE, operating_points.write_curve),
    (operating_points.NAME, lambda page, plan, _: operating_points.write(page, plan)),
    (memory.NAME, memory.write),
    (infeasible.NAME, lambda page, plan, _: infeasible.write(page, plan)),
    (assumptions.NAME, lambda page, plan, _: assumptions.write(page, plan)),
    (catalog.NAME, lambda page, plan, _: catalog.write(page, plan)),
    (about.NAME, lambda page, plan, _: about.write(page, plan)),
)
"""Every sheet in its place, with what fills it."""


def write_plan(document: Mapping[str, Any], points: Mapping[str, Any],
               snapshot: Mapping[str, Any]) -> bytes:
    """A stored plan as an Excel workbook.

    The same plan always gives the same bytes.

    Parameters
    ----------
    document : mapping
        The body that ``POST /plans`` answers.
    points : mapping
        Operating points: ``columns`` and ``rows``.
    snapshot : mapping
        The catalog rows that the plan used: ``gpus``, ``model``, ``prices``, ``engines``.

    Returns
    -------
    bytes
        An xlsx file. Every cell holds its value, so programs that do not calculate read it too.
    """
    plan = Plan(document, points, snapshot)
    target = io.BytesIO()
    with xlsxwriter.Workbook(target, _settings()) as book:
        book.set_properties(_properties(plan))
        styles = Styles(book)
        for name, fill in WRITERS:
            fill(Page(book.add_worksheet(name), styles), plan, book)
        book.get_worksheet_by_name(summary.NAME).activate()
    return target.getvalue()


def _settings() -> dict[str, Any]:
    """Options of the writer, made anew for each workbook because it changes them."""
    return {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False,
            "strings_to_numbers": False,
            "default_format_properties": {"font_name": FONT, "font_size": FONT_SIZE,
                                          "font_family": 2, "font_scheme": False}}


def _properties(plan: Plan) -> dict[str, Any]:
    return {"title": plan.name, "subject": f"Capacity plan for {plan.model}",
            "author": "LLM inference capacity planner", "category": "Capacity plan",
            "keywords": "LLM, inference, capacity, GPU",
            "comments": f"Plan {plan.document.get('id') or 'n/a'}, planner {__version__}",
            "created": _created(plan.document.get("created_at"))}


def _created(text: Any) -> datetime:
    """The plan's time, or a fixed one so that equal plans give equal files."""
    try:
        found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return datetime(2000, 1, 1)
    return found.astimezone(UTC).replace(tzinfo=None)
