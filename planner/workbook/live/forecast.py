"""The sheets Forecast and Sensitivity: GPUs and money when the load, the price or the plan moves.

Both divide the load by the highest rate of one replica, which the sheets of the options find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.workbook.charts import sheet_range, style_chart
from planner.workbook.layout import set_up
from planner.workbook.live.board import Board
from planner.workbook.live.expr import X, most, round_up, when, x
from planner.workbook.live.fleet import FleetCells
from planner.workbook.live.inputs import InputCells
from planner.workbook.styles import NAVY, SERIES

FORECAST, SENSITIVITY = "Forecast", "Sensitivity"
MONTHS = 36
FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
UTILIZATIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SPARES = (0, 1, 2, 3)
PRICES = (0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5)
NOTHING = "No option whose replicas can be counted."


@dataclass(slots=True, eq=False)
class Counter:
    """GPUs of an option at any load, by the highest rate of a replica of each pool."""

    inputs: InputCells
    found: FleetCells

    def gpus(self, rate: X, utilization: X | None = None, spares: X | None = None) -> X:
        """GPUs of all regions at a peak of all regions [1/s]."""
        i, total = self.inputs, x(0.0)
        used = i.utilization if utilization is None else utilization
        kept = i.spares if spares is None else spares
        share = when(i.regions > 1.0, 1.0 / most(i.regions - 1.0, 1.0), 1.0)
        for pool in self.found.option.pools:
            role = pool.plan.role
            highest = self.found.parts[f"{role}_highest"]
            replicas = most(round_up(rate * share / (used * most(highest, 1e-12)) - 1e-6), 1.0)
            total = total + (replicas + kept) * self.found.parts[f"{role}_each"]
        return i.regions * total * self.found.holds

    def hourly(self, gpus: X) -> X:
        """Cost per hour of a number of GPUs, at the average price of the plan."""
        if self.found.hourly is None:
            return x(0.0)
        return gpus * (self.found.hourly / most(self.found.gpus, 1.0))


def forecast(board: Board, title: str, inputs: InputCells, fleets: dict[int, FleetCells]
             ) -> None:
    """Months 0 to 36: the load, GPUs and money of each option."""
    page = board.page
    set_up(page, title, FORECAST, pages_high=1)
    page.sheet.set_portrait()
    page.widths((9, 13, *(15,) * 6))
    labels = ["Month", "Requests per second [1/s]"]
    for rank in fleets:
        short = "recommended" if rank == 1 else "runner-up"
        labels += [f"GPUs, {short}", f"Cost of the month, {short} [USD]",
                   f"Cost so far, {short} [USD]"]
    page.write(0, 0, "Forecast by month", "heading")
    page.write(1, 0, "Growth and price change per month are inputs. Replicas follow from the "
               "highest rate of one; a burst that more replicas smooth is not credited.", "label")
    board.row = 3
    board.columns(labels)
    page.sheet.freeze_panes(4, 1)
    page.sheet.repeat_rows(3)
    if not fleets:
        page.write(4, 0, NOTHING, "label")
        page.sheet.print_area(0, 0, 5, 7)
        return
    row, count = 4, MONTHS + 1
    month = board.values_down(row, 0, np.arange(count), "cell", "count")
    rate = board.down(row, 1, inputs.rate * (1.0 + inputs.growth) ** month.each, count, "cell",
                      "two")
    columns: list[int] = []
    for place, found in enumerate(fleets.values()):
        counter, first = Counter(inputs, found), 2 + 3 * place
        gpus = board.down(row, first, counter.gpus(rate.each), count, "cell", "count")
        hours = inputs.hours * (1.0 + inputs.price_cut) ** month.each
        money = board.down(row, first + 1, counter.hourly(gpus.each) * hours, count, "cell",
                           "count")
        letter = chr(ord("A") + first + 2)
        board.down(row, first + 2, X(f"N({letter}{{p}})+{money.each.text}",
                                     np.cumsum(money.value)), count, "cell", "count")
        columns.append(first)
    _chart(board, fleets, columns, row, count)


def _chart(board: Board, fleets: dict[int, FleetCells], columns: list[int], row: int, count: int
           ) -> None:
    """GPUs by month, and money by month."""
    page, book = board.page, board.book
    for turn, (shift, title, form) in enumerate(((0, "GPUs", "#,##0"),
                                                 (1, "Cost of the month [USD]", "#,##0"))):
        chart = book.add_chart({"type": "line"})
        for place, rank in enumerate(fleets):
            column = columns[place] + shift
            chart.add_series({
                "name": "Recommended" if rank == 1 else "Runner-up",
                "categories": sheet_range(FORECAST, row, 0, row + count - 1),
                "values": sheet_range(FORECAST, row, column, row + count - 1),
                "line": {"color": NAVY if place == 0 else SERIES[2], "width": 2}})
        style_chart(chart, f"{title} by month", "Month", title, form)
        chart.set_legend({"position": "bottom"})
        chart.set_size({"width": 370, "height": 300})
        page.sheet.insert_chart(row + count + 1, 4 * turn, chart, {
            "x_offset": 4, "description": f"Line chart of {title} by month for the recommended "
            "option and the runner-up; the figures are in the table above"})
    page.sheet.print_area(0, 0, row + count + 17, 7)


def sensitivity(board: Board, title: str, inputs: InputCells, fleets: dict[int, FleetCells]
                ) -> None:
    """GPUs and money at multiples of the rate, by target utilisation, spares and price."""
    page = board.page
    set_up(page, title, SENSITIVITY, pages_high=1)
    page.widths((46, *(12,) * 8))
    page.write(0, 0, "Sensitivity", "heading")
    page.write(1, 0, "All cells calculate. Other inputs (lengths, targets, factors): change them "
               "on the sheet Inputs and look at the Summary.", "label")
    page.sheet.freeze_panes(2, 1)
    board.row = 3
    if not fleets:
        page.write(3, 0, NOTHING, "label")
        page.sheet.print_area(0, 0, 4, 8)
        return
    for rank, found in fleets.items():
        _rates(board, inputs, Counter(inputs, found),
               "Recommended" if rank == 1 else "Runner-up")
    if 1 in fleets:
        _crossed(board, inputs, Counter(inputs, fleets[1]))
    page.sheet.print_area(0, 0, board.row, 8)


def _rates(board: Board, inputs: InputCells, counter: Counter, short: str) -> None:
    """GPUs and money of one option at multiples of the rate."""
    _block(board, f"{short}: the rate changes", "Rate × ", FACTORS, (
        ("Requests per second [1/s]", lambda f: inputs.rate * f, "two"),
        ("GPUs", lambda f: counter.gpus(inputs.rate * f), "count"),
        ("Cost per month [USD]", lambda f: counter.hourly(counter.gpus(inputs.rate * f))
         * inputs.hours, "count")))


def _crossed(board: Board, inputs: InputCells, counter: Counter) -> None:
    """The recommended option by the rate and a second quantity."""
    _table(board, "Recommended: GPUs by target utilisation and rate", "Target utilisation",
           [(u, lambda f, v: counter.gpus(inputs.rate * f, v)) for u in UTILIZATIONS],
           "percent", "count")
    _table(board, "Recommended: GPUs by spare replicas and rate", "Spare replicas",
           [(float(n), lambda f, v: counter.gpus(inputs.rate * f, None, v)) for n in SPARES],
           "count", "count")
    if counter.found.hourly is not None:
        _table(board, "Recommended: cost per month [USD] by price and rate", "Price ×",
               [(p, lambda f, v: counter.hourly(counter.gpus(inputs.rate * f)) * inputs.hours * v)
                for p in PRICES], "two", "count")


def _block(board: Board, title: str, prefix: str, factors: tuple[float, ...],
           lines: tuple[Any, ...]) -> None:
    """One line a figure, one column a factor."""
    board.heading(title)
    _factor_row(board, prefix, factors)
    for label, of, style in lines:
        board.page.write(board.row, 0, label, "cell", "text")
        for place, factor in enumerate(factors):
            head = _cell(place, board.factor_row, factor)
            board.put(board.row, 1 + place, of(head), "cell", style)
        board.row += 1


def _factor_row(board: Board, prefix: str, factors: tuple[float, ...]) -> None:
    board.page.write(board.row, 0, prefix, "text", "header")
    for place, factor in enumerate(factors):
        board.page.write(board.row, 1 + place, factor, "two", "header")
    board.factor_row = board.row
    board.row += 1


def _cell(place: int, row: int, value: float) -> X:
    return X(f"{chr(ord('B') + place)}${row + 1}", value)


def _table(board: Board, title: str, label: str, rows: list[Any], style: str, form: str) -> None:
    """A figure by a second quantity down and the factor of the rate across."""
    board.heading(title)
    _factor_row(board, f"{label} (down), rate × (across)", FACTORS)
    for value, of in rows:
        board.page.write(board.row, 0, value, "cell", style)
        for place, factor in enumerate(FACTORS):
            e = of(_cell(place, board.factor_row, factor), X(f"$A{board.row + 1}", value))
            board.put(board.row, 1 + place, e, "cell", form)
        board.row += 1
