"""The live budget's building blocks: styles, sheets with a column a month, rows of formulas.

Every formula goes in with its value, so that programs that do not calculate show the budget too.
Blue cells are inputs, black ones formulas of their own sheet, green ones take from another sheet,
amber ones are results of the engine that a workbook cannot make again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
from xlsxwriter.utility import quote_sheetname, xl_col_to_name, xl_rowcol_to_cell

from planner.budget.calendar import month_start
from planner.budget.model import BudgetModel
from planner.budget.months import Figures, figures, price_path
from planner.workbook.layout import BOLD, Page, print_bands, set_up, text_width
from planner.workbook.styles import FILL, GREY, LINE, NAVY, PIECES, Styles

INPUT_TEXT, LINK_TEXT = "#0000FF", "#00703C"
INPUT_FILL, ENGINE_FILL = "#FFFBE6", "#FCEFDD"
EXTRA: dict[str, dict[str, Any]] = {
    "input": {"font_color": INPUT_TEXT, "bg_color": INPUT_FILL, "locked": False},
    "link": {"font_color": LINK_TEXT},
    "engine": {"bg_color": ENGINE_FILL},
    "date": {"num_format": "yyyy-mm-dd", "align": "right"},
    "month": {"num_format": "mmm yy", "align": "right"},
    "whole": {"num_format": "0", "align": "right"},
    "whole or blank": {"num_format": "0;-0;", "align": "right"},
    "two or blank": {"num_format": "#,##0.00;-#,##0.00;", "align": "right"},
    "four": {"num_format": "#,##0.0000", "align": "right"},
    "total": {"bold": True, "top": 1, "top_color": NAVY},
    "section": {"bold": True, "bg_color": FILL, "font_color": NAVY},
    "unit": {"font_color": GREY, "align": "left"},
    "row": {"bottom": 4, "bottom_color": LINE},
}
"""Pieces that a budget needs besides those of a plan."""
FIRST = 3
"""Column of the first month: label, unit and total or key come before it."""
HEAD = 3
"""First row below the header of a sheet of months."""
LABEL_WIDTH, UNIT_WIDTH, TOTAL_WIDTH, MONTH_WIDTH = 40.0, 15.0, 17.0, 12.0
"""Least widths [characters]; large amounts make the last two wider."""
NUMBER, DATE = 1, 2
"""Rows of the month's number and date."""
EPOCH = date(1899, 12, 30)
"""Day 0 of the serial numbers that spreadsheets keep dates as."""

Formula = Callable[[str, str, str], str]
"""From the letters of this, the previous and the first month's column to a formula."""


class BudgetStyles(Styles):
    """Formats of a budget workbook."""

    def get(self, *names: str) -> Any:
        """The format that mixes the pieces of the given names; later pieces win."""
        if names not in self._made:
            properties: dict[str, Any] = {}
            for name in names:
                properties.update(EXTRA[name] if name in EXTRA else PIECES[name])
            self._made[names] = self._book.add_format(properties)
        return self._made[names]


def serial(day: date) -> int:
    """A date as spreadsheets keep it: days since the end of 1899.

    Examples
    --------
    >>> serial(date(2027, 1, 1))
    46388
    """
    return (day - EPOCH).days


@dataclass(slots=True)
class Live:
    """What the sheets are written from: the model, its base scenario, and where cells are."""

    book: Any
    styles: BudgetStyles
    model: BudgetModel
    document: Mapping[str, Any]
    base: Figures
    place: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """Rows of other sheets by what they hold, from 1."""

    @property
    def order(self) -> list[int]:
        """Workloads in the order of the sheets: members of a fleet one after the other."""
        lines, last = self.model.workloads, len(self.model.fleets)

        def key(i: int) -> tuple[int, bool, int]:
            w = lines[i]
            return (last if w.fleet is None else w.fleet, w.tokens_growth_per_month != 0.0, i)

        return sorted(range(len(lines)), key=key)

    @property
    def path(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Factor on rental prices by month, base scenario."""
        m = self.model
        return price_path(m.prices, m.months, m.scenarios[m.base].price_multiplier)

    @property
    def last(self) -> str:
        """Letters of the last month's column."""
        return str(xl_col_to_name(FIRST + self.model.months - 1))

    def widths(self) -> tuple[float, float]:
        """Widths of totals and months that hold the largest amount with a digit to spare."""
        d = self.document
        month = max(max(r["list_cost"], r["effective_cost"], r["requests"]) for r in d["months"])
        total = max(d["totals"][k] for k in ("list_cost", "effective_cost", "requests"))
        each = max(r["cost_per_thousand_requests"] or 0.0 for r in d["months"])
        return (max(TOTAL_WIDTH, text_width(f"{total:,.0f}") + 4.0),
                max(MONTH_WIDTH, text_width(f"{month:,.0f}") + 2.5,
                    text_width(f"{each:,.4f}") + 2.5))

    def dates(self) -> list[date]:
        """First day of each month."""
        m = self.model
        return [month_start(m.start_year, m.start_month, i + 1) for i in range(m.months)]


def live(book: Any, model: BudgetModel, document: Mapping[str, Any]) -> Live:
    """Begin a workbook."""
    return Live(book, BudgetStyles(book), model, document, figures(model, model.base))


def name_cell(book: Any, name: str, sheet: str, row: int, column: int,
              last_row: int | None = None, last_column: int | None = None) -> None:
    """Name a cell or a range; rows and columns from 0."""
    cell = xl_rowcol_to_cell(row, column, row_abs=True, col_abs=True)
    if last_row is not None or last_column is not None:
        end = xl_rowcol_to_cell(row if last_row is None else last_row,
                                column if last_column is None else last_column,
                                row_abs=True, col_abs=True)
        cell = f"{cell}:{end}"
    book.define_name(name, f"={quote_sheetname(sheet)}!{cell}")


class Grid:
    """A sheet with a column a month.

    Parameters
    ----------
    state : Live
    name : str
        Of the sheet.
    third : str
        What the third column holds.
    holds : str
        The longest text in the third column, which has to be wide enough for it: pages after the
        first repeat that column and not what a text runs over into.
    """

    def __init__(self, state: Live, name: str, title: str, third: str = "Total", holds: str = ""
                 ) -> None:
        self.state, self.name = state, name
        self.page = Page(state.book.get_worksheet_by_name(name), state.styles)
        self.sheet = self.page.sheet
        self.row = HEAD
        self.months = state.model.months
        self.letters = [xl_col_to_name(FIRST + i) for i in range(self.months)]
        self._head(title, third, BOLD * text_width(holds) + 1.0)

    def _head(self, title: str, third: str, least: float) -> None:
        page, state = self.page, self.state
        set_up(page, state.model.name or "Budget", self.name)
        total, month = state.widths()
        total = max(total, least)
        widths = [LABEL_WIDTH, UNIT_WIDTH, total, *[month] * self.months]
        page.sheet.set_column(0, 0, LABEL_WIDTH)
        page.sheet.set_column(1, 1, UNIT_WIDTH)
        page.sheet.set_column(2, 2, total)
        page.sheet.set_column(FIRST, FIRST + self.months - 1, month)
        page.write(0, 0, title, "heading")
        for column, text in enumerate(("Month", "Unit", third)):
            page.write(NUMBER, column, text, "label" if column < 2 else "count", "header")
            page.write(DATE, column, "From" if column == 0 else None, "label", "header")
        for i, day in enumerate(state.dates()):
            page.write(NUMBER, FIRST + i, i + 1, "whole", "header")
            letter = self.letters[i]
            page.formula(DATE, FIRST + i, f"=EDATE(in_start,{letter}${NUMBER + 1}-1)",
                         serial(day), "month", "header")
        page.sheet.freeze_panes(HEAD, FIRST)
        page.sheet.repeat_rows(NUMBER, DATE)
        print_bands(page, widths, FIRST)

    def section(self, text: str) -> None:
        """A heading above rows."""
        self.row += 1
        for column in range(FIRST + self.months):
            self.page.write(self.row, column, text if column == 0 else None, "section")
        self.row += 1

    def line(self, label: str, unit: str, formula: Formula, values: Sequence[float], style: str,
             *extra: str, total: str | None = None, key: str | None = None,
             total_value: float | None = None) -> int:
        """One row: a formula and its value in every month.

        Parameters
        ----------
        total : str, optional
            ``SUM`` or ``MAX`` of the months in the third column.
        key : str, optional
            Text for the third column instead.

        Returns
        -------
        int
            The row, from 1.
        """
        row, sheet = self.row, self.sheet
        self.page.write(row, 0, label, "label", "row", *extra)
        self.page.write(row, 1, unit, "unit", "row")
        made = self.state.styles.get(style, "row", *extra)
        letters = self.letters
        for i, value in enumerate(values):
            before = letters[i - 1] if i else ""
            sheet.write_formula(row, FIRST + i, formula(letters[i], before, letters[0]), made,
                                value)
        if key is not None:
            self.page.write(row, 2, key, "label", "row")
        elif total is not None:
            found = total_value if total_value is not None else (
                float(sum(values)) if total == "SUM" else float(max(values)))
            self.page.formula(row, 2, f"={total}({letters[0]}{row + 1}:{letters[-1]}{row + 1})",
                              found, style, "row", "bold")
        else:
            self.page.write(row, 2, None, "label", "row")
        self.row += 1
        return row + 1

    def values(self, label: str, unit: str, values: Sequence[float], style: str, *extra: str
               ) -> int:
        """One row of plain values."""
        self.page.write(self.row, 0, label, "label", "row")
        self.page.write(self.row, 1, unit, "unit", "row")
        self.page.write(self.row, 2, None, "label", "row")
        made = self.state.styles.get(style, "row", *extra)
        for i, value in enumerate(values):
            self.sheet.write_number(self.row, FIRST + i, value, made)
        self.row += 1
        return self.row

    def note(self, text: str) -> None:
        """A line of text."""
        self.page.write(self.row, 0, text, "unit")
        self.row += 1

    def close(self) -> None:
        """Set the print area."""
        self.sheet.print_area(0, 0, max(self.row - 1, HEAD), FIRST + self.months - 1)
