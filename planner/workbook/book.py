"""The workbook of a plan: its sheets in order, and its properties."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from planner import __version__
from planner.collector import collector_paused
from planner.workbook import (
    about,
    advice,
    assumptions,
    catalog,
    infeasible,
    memory,
    options,
    summary,
)
from planner.workbook.fast import FastBook, settings
from planner.workbook.layout import Page
from planner.workbook.live import checks, fleet, forecast, inputs
from planner.workbook.live.board import Board
from planner.workbook.live.build import SHEET, Builder
from planner.workbook.live.present import figures
from planner.workbook.plan import Plan
from planner.workbook.styles import Styles


@collector_paused()
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
    with FastBook(target, settings()) as book:
        book.set_properties(_properties(plan))
        book.set_calc_mode("auto")
        _fill(plan, book)
    return target.getvalue()


def sheet_names(places: list[int]) -> tuple[str, ...]:
    """Every sheet in its place; ``places`` are the options that get a sheet of their own."""
    own = [SHEET.format(place=place) for place in places]
    return (summary.NAME, inputs.NAME, options.NAME, *own, fleet.NAME, forecast.FORECAST,
            forecast.SENSITIVITY, memory.NAME, catalog.NAME, checks.NAME, advice.NAME,
            options.POOLS, options.LATENCIES, infeasible.NAME, assumptions.NAME, about.NAME)


def _fill(plan: Plan, book: Any) -> None:
    """Make the sheets in order, fill the workings first, then what shows them."""
    styles = Styles(book)
    pages: dict[str, Page] = {}
    builder = Builder(plan, book, pages.__getitem__)
    for name in sheet_names([s.place for s in builder.found]):
        pages[name] = Page(book.add_worksheet(name), styles)
    live = builder.build()
    figures(plan, live.fleets, {s.place: s.option.get("rank") for s in builder.found},
            live.inputs.several)
    fleets, cells = live.fleets, live.inputs
    if not fleets:
        fleet.nothing(pages[fleet.NAME], plan)
    forecast.forecast(Board(pages[forecast.FORECAST], book), plan.name, cells, fleets)
    forecast.sensitivity(Board(pages[forecast.SENSITIVITY], book), plan.name, cells, fleets)
    checked = checks.write(Board(pages[checks.NAME], book), plan, cells, fleets)
    summary.write(pages[summary.NAME], plan, book, checked)
    memory.write(pages[memory.NAME], plan, book)
    for name, write in ((options.NAME, options.write), (options.POOLS, options.write_pools),
                        (options.LATENCIES, options.write_latencies),
                        (advice.NAME, advice.write), (infeasible.NAME, infeasible.write),
                        (assumptions.NAME, assumptions.write), (catalog.NAME, catalog.write),
                        (about.NAME, about.write)):
        write(pages[name], plan)
    pages[summary.NAME].sheet.activate()


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
