"""Sheets that show results: Summary, Plan against actual, Scenarios."""

from __future__ import annotations

from typing import Any

from planner.workbook.budget_checks import checks, state_of
from planner.workbook.budget_grid import ENGINE_FILL, FIRST, Live, name_cell, serial
from planner.workbook.budget_money import COST, NEVER, LineValues, request_values, sums
from planner.workbook.charts import TEXT, sheet_range, style_chart
from planner.workbook.layout import Page, clean, lines, set_up
from planner.workbook.styles import BAD_FILL, BAD_TEXT, GOOD_FILL, NAVY, SERIES

SUMMARY, ACTUAL, SCENARIOS = "Summary", "Plan against actual", "Scenarios"
SUMMARY_WIDTHS = (30, 22, 22, 22, 22, 22)
TITLE_SCALE = 18 / 10 * 1.08
"""Size of the bold title over plain text."""


def write_summary(state: Live) -> None:
    """The answer on one page."""
    page = Page(state.book.get_worksheet_by_name(SUMMARY), state.styles)
    m = state.model
    set_up(page, m.name or "Budget", SUMMARY, pages_high=1)
    page.widths(SUMMARY_WIDTHS)
    title = clean(m.name or "Budget")
    page.merge(0, 0, 5, title, "title")
    page.sheet.set_row(0, 8.0 + 22.0 * lines(title, sum(SUMMARY_WIDTHS), TITLE_SCALE))
    first, last = state.dates()[0], state.dates()[-1]
    page.merge(1, 0, 5, f"{m.months} months, {first:%B %Y} to {last:%B %Y}; "
               f"{len(m.workloads)} workloads on {len(m.fleets)} fleets; amounts in "
               f"{m.prices.currency}", "note")
    _tiles(state, page)
    _answer(state, page, 7)
    _charts(state, page, 9)
    _notes(state, page, 27)
    page.sheet.print_area(0, 0, 27 + 2 + min(len(_unserved(state)), 8), 5)


def _unserved(state: Live) -> list[Any]:
    return list(state.document["infeasible"])


def _values(state: Live) -> dict[str, Any]:
    found = [LineValues(state, line, months) for line, months in zip(
        state.model.lines, state.base.lines, strict=True)]
    return sums(found, state.model.months)


def _tiles(state: Live, page: Page) -> None:
    """Six figures in two rows, each a named cell."""
    v, place = _values(state), state.place
    cur = state.model.prices.currency

    def total(label: str) -> str:
        return f"{COST}!$C${place['total', label]}"

    cost = float(v["Effective cost"].sum())
    asked = float(request_values(state).sum())
    tiles = (
        (f"Cost [{cur}]", "out_total_cost", f"={total('Effective cost')}", cost, "count"),
        ("GPUs at most", "out_peak_gpus", f"={total('GPUs')}", float(v["GPUs"].max(initial=0)),
         "count"),
        (f"Cost per 1,000 requests [{cur}]", "out_cost_per_thousand_requests",
         f"=IF({total('Requests')}>0,{total('Effective cost')}/{total('Requests')}*1000,0)",
         cost / asked * 1000 if asked else 0.0, "count" if cost > asked else "four"),
        (f"Saved by commitments [{cur}]", "out_savings",
         f"={total('Contracted cost')}+{total('Owned cost')}-{total('Effective cost')}",
         float((v["Contracted cost"] + v["Owned cost"] - v["Effective cost"]).sum()), "count"),
        ("Energy [kWh]", "out_energy_kwh", f"={total('Energy')}", float(v["Energy"].sum()),
         "count"),
        ("Carbon [kg CO2e]", "out_kg_co2e", f"={total('Carbon')}", float(v["Carbon"].sum()),
         "count"))
    for column, (label, name, formula, value, style) in enumerate(tiles):
        page.write(3, column, label, "tile_label")
        page.formula(4, column, formula, value, style, "tile", "left")
        name_cell(state.book, name, SUMMARY, 4, column)
    page.sheet.set_row(3, 28)
    page.sheet.set_row(4, 24)


def _answer(state: Live, page: Page, row: int) -> None:
    """Scenario, break-even and the master check."""
    cells: list[tuple[str, str, Any]] = [("Scenario", "=in_scenario", "base")]
    first = next((i for i, line in enumerate(state.model.lines) if line.server is not None), None)
    if first is not None:
        found = state.document["buy_or_rent"][0]["break_even_month"]
        cells.append(("Buying pays from month", f"=out_break_even_month_{first + 1}",
                      NEVER if found is None else found))
    cells.append(("Checks", "=out_check", state_of(checks(state))))
    column = 0
    for label, formula, value in cells:
        page.write(row - 1, column, label, "label", "bold")
        page.sheet.write_formula(row - 1, column + 1, formula,
                                 state.styles.get("bold", "left", "link"), value)
        column += 2
    for word, color in (("CHECK", BAD_FILL), ("STALE", ENGINE_FILL)):
        page.sheet.conditional_format(row - 1, 0, row - 1, 5, {
            "type": "cell", "criteria": "==", "value": f'"{word}"',
            "format": page.mark({"bg_color": color})})
    page.sheet.conditional_format(row - 1, 0, row - 1, 5, {
        "type": "cell", "criteria": "==", "value": '"OK"',
        "format": page.mark({"bg_color": GOOD_FILL})})


def _charts(state: Live, page: Page, row: int) -> None:
    months = state.model.months
    place, cur = state.place, state.model.prices.currency

    def series(label: str) -> str:
        at = place["total", label] - 1
        return sheet_range(COST, at, FIRST, at, FIRST + months - 1)

    dates = sheet_range(COST, 2, FIRST, 2, FIRST + months - 1)
    gpus = state.book.add_chart({"type": "column", "subtype": "stacked"})
    for label, color in (("Owned GPUs in use", SERIES[3]), ("Committed GPUs", SERIES[0]),
                         ("Burst GPUs", SERIES[1])):
        gpus.add_series({"name": label, "categories": dates, "values": series(label), "gap": 30,
                         "fill": {"color": color}})
    style_chart(gpus, "GPUs by month", "", "GPUs")
    cost = state.book.add_chart({"type": "line"})
    for label, color, dash in (("Contracted cost", SERIES[3], "dash"),
                               ("Effective cost", NAVY, "solid")):
        cost.add_series({"name": label, "categories": dates, "values": series(label),
                         "line": {"color": color, "width": 2, "dash_type": dash}})
    style_chart(cost, f"Cost by month [{cur}]", "", cur)
    texts = ("Stacked columns: owned, committed and burst GPUs in each month.",
             "Lines: effective cost in each month, and what it would be without commitments.")
    for chart, column, told in ((gpus, 0, texts[0]), (cost, 3, texts[1])):
        chart.set_legend({"position": "bottom", "font": TEXT})
        chart.set_x_axis({"num_font": {**TEXT, "rotation": -45}, "num_format": "mmm yy",
                          "interval_unit": max(1, months // 12), "text_axis": True})
        chart.set_size({"width": 470, "height": 330})
        page.sheet.insert_chart(row, column, chart, {"description": told, "object_position": 1})


def _notes(state: Live, page: Page, row: int) -> None:
    found = _unserved(state)
    told = ("Every workload is served." if not found
            else f"{len(found)} of {len(state.model.workloads)} workloads are not served, or not "
            "to the end:")
    page.merge(row, 0, 5, told, "label", "bold")
    for at, one in enumerate(found[:8], row + 1):
        shown = f"{one['name']}: {one['reason']}"
        page.merge(at, 0, 5, shown, "body")
        page.height(at, lines(shown, sum(SUMMARY_WIDTHS)))


# -- plan against actual ------------------------------------------------------------------------

ACTUAL_COLUMNS = ("Month", "From", "Planned [1/s]", "Planned GPUs", "Planned cost",
                  "Actual [1/s]", "Actual GPUs", "Actual cost", "GPUs over plan",
                  "Cost over plan", "Cost over plan, share")


def write_actual(state: Live) -> None:
    """Room for what each month turned out to be."""
    page = Page(state.book.get_worksheet_by_name(ACTUAL), state.styles)
    set_up(page, state.model.name or "Budget", ACTUAL)
    page.widths((8, 13, 13, 13, 17, 13, 13, 17, 13, 17, 13))
    page.write(0, 0, f"Plan against actual [{state.model.prices.currency}]", "heading")
    for column, label in enumerate(ACTUAL_COLUMNS):
        page.write(1, column, label, "text", "header")
    page.height(1, 2)
    v, place = _values(state), state.place
    rates = state.base.rates.sum(axis=0)
    sources = (("Demand", place["demand", "last"] + 1, rates, "two"),
               (COST, place["total", "GPUs"], v["GPUs"], "count"),
               (COST, place["total", "Effective cost"], v["Effective cost"], "count"))
    given = {a.month: a for a in state.model.actuals}
    for i, day in enumerate(state.dates()):
        row, at = 2 + i, 3 + i
        page.write(row, 0, i + 1, "cell", "whole")
        page.formula(row, 1, f"=EDATE(in_start,A{at}-1)", serial(day), "cell", "month")
        for column, (sheet, line, values, style) in enumerate(sources, 2):
            page.formula(row, column, f"=INDEX({sheet}!$D${line}:${state.last}${line},$A{at})",
                         float(values[i]), "cell", style, "link")
        a = given.get(i + 1)
        actual = (None, None, None) if a is None else (
            a.requests_per_second, a.gpus, None if a.cost is None else float(a.cost))
        for column, value, style in zip((5, 6, 7), actual, ("two", "count", "count"),
                                        strict=True):
            page.write(row, column, value, "cell", style, "input")
        gpus, cost = actual[1], actual[2]
        planned = float(v["Effective cost"][i])
        share = cost / planned - 1 if cost is not None and planned else ""
        for column, formula, found, style in (
                (8, f'=IF(G{at}="","",G{at}-D{at})',
                 "" if gpus is None else gpus - float(v["GPUs"][i]), "signed"),
                (9, f'=IF(H{at}="","",H{at}-E{at})', "" if cost is None else cost - planned,
                 "signed"),
                (10, f'=IF(OR(H{at}="",E{at}=0),"",H{at}/E{at}-1)', share, "percent1")):
            page.sheet.write_formula(row, column, formula, state.styles.get("cell", style), found)
    last = 1 + state.model.months
    page.sheet.conditional_format(2, 8, last, 9, {
        "type": "formula", "criteria": "=AND(ISNUMBER(I3),I3>0)",
        "format": page.mark({"bg_color": BAD_FILL, "font_color": BAD_TEXT})})
    page.sheet.freeze_panes(2, 2)
    page.sheet.repeat_rows(1)
    page.sheet.print_area(0, 0, last, len(ACTUAL_COLUMNS) - 1)


# -- scenarios ----------------------------------------------------------------------------------

SCENARIO_COLUMNS = (("Scenario or question", 34.0), ("From month", 9.0), ("Growth added", 10.0),
                    ("Demand factor", 10.0), ("Price factor", 10.0), ("GPU", 20.0),
                    ("GPUs at most", 11.0), ("Cost", 18.0), ("Against base", 18.0),
                    ("Note", 50.0))


def write_scenarios(state: Live) -> None:
    """Scenarios and questions as the engine answered them."""
    page = Page(state.book.get_worksheet_by_name(SCENARIOS), state.styles)
    set_up(page, state.model.name or "Budget", SCENARIOS)
    page.widths([w for _, w in SCENARIO_COLUMNS])
    page.write(0, 0, f"Scenarios and questions [{state.model.prices.currency}]", "heading")
    page.write(1, 0, "Results of the engine for the inputs as delivered; the sheet Checks says "
               "when an edit made them stale. The scenario in use is chosen on Inputs.", "label")
    for column, (label, _) in enumerate(SCENARIO_COLUMNS):
        page.write(2, column, label, "text", "header")
    page.height(2, 2)
    d = state.document
    base = d["totals"]["effective_cost"]
    rows: list[tuple[Any, ...]] = [
        (s["name"], 1, s["growth_added_per_month"], s["demand_multiplier"], s["price_multiplier"],
         "", s["totals"]["peak_gpus"], s["totals"]["effective_cost"],
         s["totals"]["effective_cost"] - base, "") for s in d["scenarios"]]
    rows += [(w["name"], w["from_month"], 0.0, 1.0, w["price_multiplier"], w["gpu"] or "",
              max(w["gpus"], default=None), w["total"], w["difference"], w["reason"] or "")
             for w in d["what_if"]]
    styles = ("text", "whole", "percent1", "two", "two", "text", "count", "count", "signed",
              "text")
    for row, values in enumerate(rows, 3):
        for column, (value, style) in enumerate(zip(values, styles, strict=True)):
            page.write(row, column, value, "cell", style, "engine")
        page.height(row, max(lines(values[0], 33.0), lines(values[-1], 49.0)))
    page.sheet.freeze_panes(3, 1)
    page.sheet.print_area(0, 0, 2 + len(rows), len(SCENARIO_COLUMNS) - 1)
