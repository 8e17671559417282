"""Sheets of inputs: general ones, scenarios, GPU prices, workloads, launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.budget.inputs import PriceStep
from planner.budget.model import GpuLine, WorkloadLine
from planner.workbook.budget_grid import Live, name_cell, serial
from planner.workbook.layout import Page, lines, print_bands, set_up

INPUTS, PRICES, WORKLOADS, LAUNCHES = "Inputs", "GPU prices", "Workloads", "Launches"
WIDTHS = (36, 16, 18, 34, 66)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SPARE_STEPS, SPARE_LAUNCHES = 4, 12
SHARE = {"validate": "decimal", "criteria": "between", "minimum": 0, "maximum": 1,
         "error_message": "a share from 0 to 1 (0 % to 100 %)"}
POSITIVE = {"validate": "decimal", "criteria": ">=", "value": 0,
            "error_message": "a number of at least 0"}
COUNT = {"validate": "integer", "criteria": ">=", "value": 0,
         "error_message": "a whole number of at least 0"}
GROWTH = {"validate": "decimal", "criteria": "between", "minimum": -0.9, "maximum": 1,
          "error_message": "a share from -0.9 to 1 (-90 % to 100 % a month)"}


@dataclass(frozen=True, slots=True)
class Line:
    """One general input."""

    label: str
    value: Any
    unit: str
    name: str
    style: str
    meaning: str
    rule: Mapping[str, Any]


def general(state: Live) -> list[Line]:
    """The inputs that hold for the whole budget."""
    m = state.model
    p, c, e = m.prices, m.commitments, m.energy
    spare = common([f.spare_replicas for f in m.fleets], 0)
    regions = common([f.regions for f in m.fleets], 1)
    return [
        Line("First month", serial(state.dates()[0]), "date", "in_start", "date",
             "first day of the first month; the seasons move with it",
             {"validate": "integer", "criteria": ">=", "value": 25569,
              "error_message": "a date"}),
        Line("Headroom", m.headroom, "share of the rate", "in_headroom", "percent1",
             "added to every rate", POSITIVE),
        Line("Spare replicas", spare, "replicas", "in_spare_replicas", "whole",
             "of each pool in each region, beyond those that carry the peak (N+1: 1)", COUNT),
        Line("Regions", regions, "regions", "in_regions", "whole",
             "with more than one, the others carry the peak when one fails",
             {**COUNT, "value": 1}),
        Line("Price change per month", p.change_per_month, "share", "in_price_change_per_month",
             "percent1", "of all rental prices, compound; negative: cheaper", GROWTH),
        Line("Negotiated discount", p.negotiated_discount, "share of the list price",
             "in_negotiated_discount", "percent1", "without any commitment", SHARE),
        Line("Committed share", c.committed_share, "share", "in_committed_share", "percent",
             "of the cheapest committed base", POSITIVE),
        Line("Resale share", c.resale_share, "share", "in_resale_share", "percent",
             "of its price that an unused committed hour brings back", SHARE),
        Line("Hours per month", p.hours_per_month, "h", "in_hours_per_month", "one",
             "730 h = 365 days / 12", POSITIVE),
        Line("Exchange rate", float(p.units_per_usd), f"{p.currency} per USD",
             "in_units_per_usd", "four", "prices are in USD, amounts in the currency", POSITIVE),
        Line("PUE", e.pue, "", "in_pue", "two", "power of the site over that of the GPUs",
             {**POSITIVE, "value": 1}),
        Line("Electricity price", float(e.usd_per_kwh), "USD per kWh", "in_usd_per_kwh", "price",
             "of owned GPUs; rent includes it", POSITIVE),
        Line("Carbon intensity", e.kg_co2e_per_kwh, "kg CO2e per kWh", "in_kg_co2e_per_kwh",
             "three", "0.445: world average of 2024 (IEA, Electricity 2025)", POSITIVE),
        Line("Mean power", e.power_utilization, "share of board power", "in_power_utilization",
             "percent", "100 % is the upper bound", SHARE),
        Line("Lead time", m.lead_time_days, "days", "in_lead_time_days", "whole",
             "from order to service", COUNT),
        Line("Depreciation", m.owned.depreciation_months, "months", "in_depreciation_months",
             "whole", "of bought servers, straight line", {**COUNT, "value": 1}),
        Line("Residual value", m.owned.residual_share, "share of the price", "in_residual_share",
             "percent", "at the end of the depreciation", SHARE),
    ]


def common(values: Sequence[int], otherwise: int) -> int:
    """The most frequent value."""
    return max(set(values), key=list(values).count) if values else otherwise


def write_inputs(state: Live) -> None:
    """Fill the Inputs sheet."""
    page = Page(state.book.get_worksheet_by_name(INPUTS), state.styles)
    set_up(page, state.model.name or "Budget", INPUTS)
    page.widths(WIDTHS)
    page.write(0, 0, "Inputs of the whole budget", "heading")
    for column, label in enumerate(("Input", "Value", "Unit", "Cell name", "Meaning")):
        page.write(1, column, label, "count" if column == 1 else "text", "header")
    row = _scenario_cell(state, page, 2)
    for line in general(state):
        row = _general_line(state, page, row, line)
    row = _scenarios(state, page, row + 1)
    row = _steps(state, page, row + 1)
    page.sheet.freeze_panes(2, 1)
    page.sheet.repeat_rows(1)
    page.sheet.print_area(0, 0, row - 1, len(WIDTHS) - 1)


def _scenario_cell(state: Live, page: Page, row: int) -> int:
    names = [s.name for s in state.model.scenarios]
    _general_line(state, page, row, Line(
        "Scenario", "base", "", "in_scenario", "bold", "which scenario the sheets calculate",
        {"validate": "list", "source": names}))
    return row + 1


def _general_line(state: Live, page: Page, row: int, line: Line) -> int:
    page.write(row, 0, line.label, "cell", "label")
    page.write(row, 1, line.value, "cell", line.style, "input")
    for column, found in ((2, line.unit), (3, line.name), (4, line.meaning)):
        page.write(row, column, found, "cell", "text")
    page.height(row, max(lines(line.meaning, WIDTHS[4] - 1), lines(line.unit, WIDTHS[2] - 1)))
    page.sheet.data_validation(row, 1, row, 1, dict(line.rule))
    name_cell(state.book, line.name, INPUTS, row, 1)
    return row + 1


def _scenarios(state: Live, page: Page, row: int) -> int:
    page.write(row, 0, "Scenarios", "heading")
    row += 1
    labels = ("Scenario", "Growth added", "Demand factor", "Price factor")
    for column, label in enumerate(labels):
        page.write(row, column, label, "label" if column == 0 else "count", "header")
    first = row + 1
    for i, s in enumerate(state.model.scenarios):
        at = first + i
        page.write(at, 0, s.name, "cell", "label")
        for column, (value, style, name) in enumerate((
                (s.growth_added, "percent1", "growth_added"),
                (s.demand_multiplier, "two", "demand_multiplier"),
                (s.price_multiplier, "two", "price_multiplier")), 1):
            page.write(at, column, value, "cell", style, "input")
            name_cell(state.book, f"in_{name}_{s.name}", INPUTS, at, column)
    last = first + len(state.model.scenarios) - 1
    name_cell(state.book, "scenario_names", INPUTS, first, 0, last)
    page.sheet.data_validation(first, 1, last, 1, dict(GROWTH))
    page.sheet.data_validation(first, 2, last, 3, dict(POSITIVE))
    at = last + 1
    page.write(at, 0, "in use", "cell", "label", "bold")
    base = state.model.scenarios[state.model.base]
    for column, (name, style, value) in enumerate((
            ("sc_growth_added", "percent1", base.growth_added),
            ("sc_demand", "two", base.demand_multiplier),
            ("sc_price", "two", base.price_multiplier)), 1):
        letter = "ABCD"[column]
        page.formula(at, column, f"=INDEX({letter}{first + 1}:{letter}{last + 1},sc_place)",
                     value, "cell", style, "bold")
        name_cell(state.book, name, INPUTS, at, column)
    page.write(at + 1, 0, "place in the list", "cell", "label")
    page.formula(at + 1, 1, "=MATCH(in_scenario,scenario_names,0)", state.model.base + 1, "cell",
                 "whole")
    name_cell(state.book, "sc_place", INPUTS, at + 1, 1)
    return at + 2


def combined(steps: Sequence[PriceStep]) -> list[tuple[int, float]]:
    """Month and change of each step; steps of one month made one."""
    found: dict[int, float] = {}
    for s in steps:
        found[s.month] = found.get(s.month, 1.0) * s.multiplier
    return [(month, factor - 1.0) for month, factor in sorted(found.items())]


def _steps(state: Live, page: Page, row: int) -> int:
    page.write(row, 0, "Price steps", "heading")
    row += 1
    for column, label in enumerate(("Month", "Change")):
        page.write(row, column, label, "count", "header")
    steps = combined(state.model.prices.steps)
    first = row + 1
    last = first + len(steps) + SPARE_STEPS - 1
    for i in range(last - first + 1):
        month, change = steps[i] if i < len(steps) else (None, None)
        page.write(first + i, 0, month, "cell", "whole", "input")
        page.write(first + i, 1, change, "cell", "percent1", "input")
    page.merge(first, 2, 4, "From that month on, on top of the change per month; -15 % is a price "
               "cut. One row a month.", "short")
    name_cell(state.book, "step_months", INPUTS, first, 0, last)
    name_cell(state.book, "step_changes", INPUTS, first, 1, last)
    return last + 1


# -- GPU prices ---------------------------------------------------------------------------------

PRICE_COLUMNS = (
    ("GPU line", 26.0), ("List price [USD/GPU-h]", 13.0), ("Committed price [USD/GPU-h]", 13.0),
    ("Term [months]", 10.0), ("GPUs owned", 10.0), ("Board power [W]", 10.0),
    ("GPUs per server", 10.0), ("Server price [USD]", 14.0), ("Hosting [USD/year]", 12.0),
    ("Licence [USD/year]", 12.0), ("Break-even use", 11.0),
    ("Discount of the term", 11.0), ("Source", 60.0))
PRICE_FIRST = 2
"""Row of the first GPU line, from 0."""


def write_prices(state: Live) -> None:
    """Fill the sheet of GPU prices."""
    page = Page(state.book.get_worksheet_by_name(PRICES), state.styles)
    set_up(page, state.model.name or "Budget", PRICES)
    page.widths([w for _, w in PRICE_COLUMNS])
    page.write(0, 0, "What a GPU costs", "heading")
    for column, (label, _) in enumerate(PRICE_COLUMNS):
        page.write(1, column, label, "text", "header")
    page.height(1, 3)
    for i, line in enumerate(state.model.lines):
        _price_line(state, page, PRICE_FIRST + i, i, line)
    last = PRICE_FIRST + max(len(state.model.lines), 1) - 1
    page.sheet.data_validation(PRICE_FIRST, 1, last, 2, dict(POSITIVE))
    page.sheet.data_validation(PRICE_FIRST, 4, last, 9, dict(POSITIVE))
    if not state.model.lines:
        page.write(PRICE_FIRST, 0, "no workload can be served", "label")
    page.sheet.freeze_panes(2, 1)
    page.sheet.print_area(0, 0, last, len(PRICE_COLUMNS) - 1)
    print_bands(page, [w for _, w in PRICE_COLUMNS], 1)


def _price_line(state: Live, page: Page, row: int, place: int, line: GpuLine) -> None:
    server, term = line.server, line.term
    committed = None if term is None else float(term.usd_per_gpu_hour)
    page.write(row, 0, line.name, "cell", "label")
    cells = ((1, float(line.usd_per_gpu_hour), "price", "input"),
             (3, None if term is None else term.term_months, "whole", "engine"),
             (4, line.existing_gpus, "count", "input"), (5, line.watts, "figure", "input"),
             (6, line.gpus_per_server, "whole", "input"),
             (7, None if server is None else float(server.usd_per_server), "count", "input"),
             (8, 0.0 if server is None else float(server.hosting_usd_per_year), "count", "input"),
             (9, 0.0 if server is None else float(server.licence_usd_per_year), "count",
              "input"))
    for column, value, style, kind in cells:
        page.write(row, column, value, "cell", style, kind)
    at = row + 1
    discount = None if term is None else term.discount
    if discount is None or committed is None:
        page.write(row, 2, committed, "cell", "price", "input")
        page.write(row, 11, None, "cell", "percent1")
    else:
        page.formula(row, 2, f"=B{at}*(1-L{at})", committed, "cell", "price")
        page.write(row, 11, discount, "cell", "percent1", "input")
        name_cell(state.book, f"in_term_discount_{place + 1}", PRICES, row, 11)
        page.sheet.data_validation(row, 11, row, 11, dict(SHARE))
    if committed is None:
        page.write(row, 10, "n/a", "cell", "short")
    else:
        paid = float(line.usd_per_gpu_hour) * (1.0 - state.model.prices.negotiated_discount)
        page.formula(row, 10, f"=IF(B{at}>0,C{at}/(B{at}*(1-in_negotiated_discount)),0)",
                     committed / paid, "cell", "percent1")
    offer = "" if term is None else f"; committed: {term.source}"
    page.write(row, 12, f"{line.source}{offer}", "cell", "text")
    page.height(row, lines(f"{line.source}{offer}", 60.0))
    for name, column in (("usd_per_gpu_hour", 1), ("committed_usd_per_gpu_hour", 2),
                         ("existing_gpus", 4), ("usd_per_server", 7)):
        name_cell(state.book, f"in_{name}_{place + 1}", PRICES, row, column)
    state.place["price", place] = at


# -- workloads ----------------------------------------------------------------------------------

WORKLOAD_COLUMNS = (
    ("No.", 6.0), ("Workload", 30.0), ("Model", 20.0), ("Fleet", 22.0),
    ("First month", 8.0), ("Last month", 8.0), ("Requests per second [1/s]", 12.0),
    ("Mean over peak", 10.0), ("Growth per month", 10.0), ("Growth of tokens per month", 11.0),
    *((f"Season {m}", 8.5) for m in MONTHS),
    ("Weight, pool 1", 10.0), ("Weight, pool 2", 10.0), ("Prompt tokens, mean", 10.0),
    ("Output tokens, mean", 10.0), ("TTFT [ms]", 9.0), ("TPOT [ms]", 9.0), ("Gap [ms]", 9.0),
    ("End to end [ms]", 10.0), ("Percentile", 10.0), ("Served", 44.0))
WORKLOAD_FIRST = 3
"""Row of the first workload, from 0."""
SEASON = 10
WEIGHT = 22
LENGTHS = 24
"""Columns of the first season, weight and mean length."""


def write_workloads(state: Live) -> None:
    """Fill the sheet of workloads, in the order of their fleets."""
    page = Page(state.book.get_worksheet_by_name(WORKLOADS), state.styles)
    set_up(page, state.model.name or "Budget", WORKLOADS)
    page.widths([w for _, w in WORKLOAD_COLUMNS])
    page.write(0, 0, "Workloads", "heading")
    page.write(1, 2, "Lengths and targets are inputs of the engine: when they are edited, sizes "
               "are stale.", "label")
    for column, (label, _) in enumerate(WORKLOAD_COLUMNS):
        page.write(2, column, label, "text", "header")
    page.height(2, 3)
    order = state.order
    for row, i in enumerate(order, WORKLOAD_FIRST):
        _workload_line(state, page, row, i, state.model.workloads[i])
    last = WORKLOAD_FIRST + len(order) - 1
    page.sheet.data_validation(WORKLOAD_FIRST, 4, last, 5, dict(COUNT))
    page.sheet.data_validation(WORKLOAD_FIRST, 6, last, 7, dict(POSITIVE))
    page.sheet.data_validation(WORKLOAD_FIRST, 8, last, 9, dict(GROWTH))
    page.sheet.data_validation(WORKLOAD_FIRST, SEASON, last, SEASON + 11, dict(POSITIVE))
    page.sheet.freeze_panes(3, 2)
    page.sheet.repeat_rows(2)
    page.sheet.print_area(0, 0, last, len(WORKLOAD_COLUMNS) - 1)
    print_bands(page, [w for _, w in WORKLOAD_COLUMNS], 2)


def targets(state: Live, i: int) -> tuple[list[Any], list[Any]]:
    """Targets of a workload [ms] and their percentiles as the request states them."""
    slo = state.document["request"]["workloads"][i]["slo"]
    limits = [slo.get(f"{m}_ms") for m in ("ttft", "tpot", "itl", "e2e")]
    return limits, [slo.get("percentile")]


def _workload_line(state: Live, page: Page, row: int, i: int, w: WorkloadLine) -> None:
    fleet = "" if w.fleet is None else state.model.fleets[w.fleet].name
    weights = [x.values[0] if len(x.factors) == 1 else None for x in w.weights]
    weights = [*weights, None, None][:2]
    limits, percentile = targets(state, i)
    told = w.reason or "yes"
    cells: list[tuple[Any, str, str]] = [
        (i + 1, "whole", "row"), (w.name, "text", "row"), (w.model, "text", "row"),
        (fleet, "text", "row"), (w.starts_month, "whole", "input"),
        (w.ends_month, "whole", "input"), (w.requests_per_s, "fraction", "input"),
        (w.mean_requests_per_s / w.requests_per_s, "three", "input"),
        (w.growth_per_month, "percent1", "input"),
        (w.tokens_growth_per_month, "percent1", "input"),
        *((s, "two", "input") for s in w.seasonality),
        *((x, "four", "engine") for x in weights),
        (w.prompt_tokens_mean, "figure", "input"), (w.output_tokens_mean, "figure", "input"),
        *((x, "figure", "input") for x in (*limits, *percentile)), (told, "text", "row")]
    for column, (value, style, kind) in enumerate(cells):
        page.write(row, column, value, "cell", style, kind)
    page.height(row, max(lines(told, 43.0), lines(w.name, 29.0), lines(fleet, 21.0)))
    for name, column in (("requests_per_second", 6), ("growth_per_month", 8),
                         ("tokens_growth_per_month", 9)):
        name_cell(state.book, f"in_{name}_{i + 1}", WORKLOADS, row, column)
    state.place["workload", i] = row + 1


def write_launches(state: Live) -> None:
    """Fill the sheet of launches, with room for more."""
    page = Page(state.book.get_worksheet_by_name(LAUNCHES), state.styles)
    set_up(page, state.model.name or "Budget", LAUNCHES)
    page.widths((14, 12, 12, 14, 12, 12))
    page.write(0, 0, "Launches: the rate times a factor for some months", "heading")
    labels = ("Workload No.", "First month", "Months", "Rate factor", "Last month", "Uplift")
    for column, label in enumerate(labels):
        page.write(1, column, label, "count", "header")
    found = [(i + 1, s.month, s.months, s.multiplier)
             for i, w in enumerate(state.model.workloads) for s in w.spikes]
    first, last = 2, 2 + len(found) + SPARE_LAUNCHES - 1
    for row in range(first, last + 1):
        known = found[row - first] if row - first < len(found) else (None,) * 4
        for column, value in enumerate(known):
            page.write(row, column, value, "cell", "two" if column == 3 else "whole", "input")
        at = row + 1
        end = 0 if known[1] is None or known[2] is None else known[1] + known[2] - 1
        page.formula(row, 4, f"=IF(B{at}=\"\",0,B{at}+C{at}-1)", end, "cell", "whole or blank")
        page.formula(row, 5, f"=IF(D{at}=\"\",0,D{at}-1)",
                     0 if known[3] is None else known[3] - 1.0, "cell", "two or blank")
    page.sheet.data_validation(first, 0, last, 2, dict(COUNT))
    page.sheet.data_validation(first, 3, last, 3, dict(POSITIVE))
    for name, column in (("launch_no", 0), ("launch_first", 1), ("launch_last", 4),
                         ("launch_uplift", 5)):
        name_cell(state.book, name, LAUNCHES, first, column, last)
    page.write(last + 1, 0, "A workload's number is in column A of the sheet Workloads. Rows may "
               "be added above this line.", "label")
    page.sheet.freeze_panes(2, 0)
    page.sheet.print_area(0, 0, last + 1, 5)
