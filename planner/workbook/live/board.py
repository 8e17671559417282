"""A worksheet that is filled with labelled formulas from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xlsxwriter.utility import quote_sheetname

from planner.workbook.fast import letters
from planner.workbook.layout import Page, clean, lines
from planner.workbook.live.expr import X

LABEL = 38
"""Characters of a label that fit on one line."""


Held = tuple[int, int, str, Any, tuple[str, ...]]
"""Row, column, formula, values and styles of an area."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A written column of cells.

    Attributes
    ----------
    letter : str
    first, last : int
        Rows, from 1.
    value : ndarray
    name : str
        Of the range.
    several : bool
        Whether it is the first of several columns alike, which formulas reach from columns of
        their own; ``value`` has the shape (columns, rows) then.
    """

    letter: str
    first: int
    last: int
    value: Any
    name: str = ""
    several: bool = False

    @property
    def each(self) -> X:
        """The cell of the same row."""
        return X(f"{'' if self.several else '$'}{self.letter}{{r}}", self.value)

    @property
    def all(self) -> X:
        """The whole column as a range."""
        if self.name:
            return X(self.name, self.value)
        if self.several:
            return X(f"{self.letter}${self.first}:{self.letter}${self.last}", self.value)
        return X(f"${self.letter}${self.first}:${self.letter}${self.last}", self.value)

    @property
    def shifted(self) -> X:
        """The range one row up; the cell above the first row holds 0."""
        letter = self.letter if self.several else f"${self.letter}"
        before = np.zeros_like(self.value)
        before[..., 1:] = self.value[..., :-1]
        return X(f"{letter}${self.first - 1}:{letter}${self.last - 1}", before)

    def row(self, place: int) -> X:
        """One cell, counted from 0."""
        return X(f"${self.letter}${self.first + place}", float(self.value[place]))


class Board:
    """A page with a running row and cells that are formulas.

    Parameters
    ----------
    page : Page
    book : xlsxwriter.Workbook
    """

    def __init__(self, page: Page, book: Any) -> None:
        self.page = page
        self.book = book
        self.row = 0
        self.factor_row = 0
        self.held: list[Held] | None = None
        """Areas that are kept back, where they are."""
        self.side = 17
        """Columns from one of a search to the next of the same rate."""
        self.unprinted: list[tuple[int, int]] = []
        """First and last row of what stays out of print, from 0."""
        self.name = page.sheet.get_name()

    def heading(self, text: str, note: str = "") -> None:
        """A heading with an optional note, on a row of its own."""
        self.row += 1 if self.row else 0
        self.page.write(self.row, 0, text, "heading")
        self.page.height(self.row, 1.5)
        self.row += 1
        if note:
            self.page.write(self.row, 0, note, "label", "grey")
            self.row += 1

    def put(self, row: int, column: int, e: X, *style: str, name: str = "") -> X:
        """Write one formula; a reference to its cell."""
        value = e.value
        if isinstance(value, np.ndarray):
            value = value.item()
        if isinstance(value, np.generic):
            value = value.item()
        text = e.text
        if "{" in text:
            text = text.replace("{r}", str(row + 1)).replace("{p}", str(row))
        self.page.sheet.add_formula(row, column, text, self._form(style), value)
        self.page.sheet.reach(row, column)
        return self._cell(row, column, value, name)

    def put_value(self, row: int, column: int, value: Any, *style: str, name: str = "") -> X:
        """Write one value; a reference to its cell."""
        self.page.write(row, column, value, *style)
        return self._cell(row, column, value, name)

    def _cell(self, row: int, column: int, value: Any, name: str) -> X:
        cell = f"${letters(column)}${row + 1}"
        if name:
            self.book.define_name(name, f"={quote_sheetname(self.name)}!{cell}")
            return X(name, value)
        return X(cell, value)

    def line(self, label: str, e: X | float | str | None, unit: str = "", note: str = "",
             style: str = "figure", kind: str = "", name: str = "") -> X:
        """A row of label, value, unit and note: a formula, or a value where ``e`` is none."""
        row = self.row
        self.row += 1
        self.page.write(row, 0, label, "cell", "text")
        self.page.write(row, 2, unit, "cell", "short")
        self.page.write(row, 3, note, "cell", "short")
        if len(label) > LABEL and lines(label, LABEL) > 1:
            self.page.height(row, 2)
        extra = (kind,) if kind else ()
        if isinstance(e, X):
            if style == "figure":
                style = "fraction"
            return self.put(row, 1, e, "cell", style, *extra, name=name)
        return self.put_value(row, 1, e, "cell", style, *extra, name=name)

    def columns(self, labels: Sequence[str], row: int | None = None, first: int = 0) -> None:
        """A header row of a table."""
        at = self.row if row is None else row
        for place, label in enumerate(labels):
            self.page.write(at, first + place, label, "count", "header")
        self.page.height(at, 3.2)

    def down(self, row: int, column: int, e: X, count: int, *style: str) -> Column:
        """Write a formula down a column, or down several at once where its value is that of
        several; its rows are those of ``{r}``."""
        if np.ndim(e.value) == 2:
            return self._down_several(row, column, e, count, *style)
        values = spread(e.value, (count,))
        self.area(row, column, e.text, values[None, :], *style)
        return Column(letters(column), row + 1, row + count, values)

    def _down_several(self, row: int, column: int, e: X, count: int, *style: str) -> Column:
        values = spread(e.value, (len(e.value), count))
        self.area(row, column, e.text, values, *style)
        return Column(letters(column), row + 1, row + count, values, several=True)

    def across(self, row: int, column: int, e: X, count: int, *style: str) -> X:
        """Write the formula of a first column in it and those after it; as one of these columns,
        by which it may be referred to in turn."""
        values = spread(e.value, (count, 1))
        self.area(row, column, e.text, values, *style)
        return X(f"{letters(column)}${row + 1}", values)

    def each_across(self, row: int, column: int, es: Sequence[tuple[int, X]], *style: str) -> None:
        """Write formulas across, each in so many columns, in place of the area that begins there.
        """
        self.page.sheet.drop_area(row, column)
        for count, e in es:
            values = np.asarray(e.value, dtype=float).reshape(-1, 1)
            self.area(row, column, e.text, np.broadcast_to(values, (count, 1)), *style)
            column += count

    def area(self, row: int, column: int, text: str, values: Any, *style: str) -> None:
        """Write the formula of a first cell (``{r}`` and ``{p}`` as in :meth:`down`) in an area.

        Parameters
        ----------
        values : ndarray, shape (columns, rows)
        """
        text = text.replace("{p}", str(row)).replace("{r}", str(row + 1))
        if self.held is None:
            self._write(row, column, text, values, style)
        else:
            self.held.append((row, column, text, values, style))

    def _write(self, row: int, column: int, text: str, values: Any, style: tuple[str, ...]
               ) -> None:
        sheet = self.page.sheet
        sheet.reach(row + values.shape[1] - 1, column + values.shape[0] - 1)
        sheet.add_area(row, column, text, self._form(style), values)

    def hold(self) -> None:
        """Keep areas back from now on, until :meth:`release`."""
        self.held = []

    def release(self, places: list[int]) -> None:
        """Write the areas that were kept back, of their columns those at some places; none where
        there are no places."""
        held, self.held = self.held or [], None
        if places:
            for row, column, text, values, style in held:
                self._write(row, column, text, values[places], style)

    def _form(self, style: tuple[str, ...]) -> Any:
        """The format of a cell; None for a cell without one, which takes less room in the file."""
        return self.page.styles.get(*style) if style else None

    def values_down(self, row: int, column: int, values: Sequence[float] | Any, *style: str
                    ) -> Column:
        """Write constants down a column."""
        made = self.page.styles.get(*style)
        found = np.asarray(values, dtype=float)
        for i, value in enumerate(found.tolist()):
            self.page.sheet.write_number(row + i, column, value, made)
        return Column(letters(column), row + 1, row + len(found), found)

    def named(self, column: Column, name: str) -> Column:
        """The column as a named range."""
        area = f"${column.letter}${column.first}:${column.letter}${column.last}"
        self.define(name, area)
        return replace(column, name=name)

    def print_rows(self, last_column: int) -> None:
        """Print the rows so far, each stretch between those left out from a new page on; none
        for a stretch without a label."""
        areas, first, table = [], 0, self.page.sheet.table
        for start, end in [*sorted(self.unprinted), (self.row, self.row)]:
            if any(0 in table.get(row, ()) for row in range(first, start)):
                areas.append((first, start - 1))
            first = max(first, end + 1)
        if len(areas) == 1:
            self.page.sheet.print_area(areas[0][0], 0, areas[0][1], last_column)
            return
        sheet = quote_sheetname(self.name)
        self.book.define_name(f"{sheet}!_xlnm.Print_Area", "=" + ",".join(
            f"{sheet}!$A${a + 1}:${letters(last_column)}${b + 1}" for a, b in areas))

    def define(self, name: str, area: str) -> None:
        """Name an area of this sheet."""
        self.book.define_name(name, f"={quote_sheetname(self.name)}!{area}")


def spread(value: Any, shape: tuple[int, ...]) -> Any:
    """Values as an array of a shape: as they are where they have it, else repeated."""
    if value.__class__ is np.ndarray and value.shape == shape and value.dtype == float:
        return value
    return np.array(np.broadcast_to(np.asarray(value, dtype=float), shape))


def tidy(text: Any) -> str:
    """A slug as part of a cell name."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in clean(text))
