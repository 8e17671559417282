"""Cells of filled areas as XML, by compiled code."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import numpy as np
import openpyxl
from xlsxwriter.utility import xl_col_to_name

from planner.workbook.areas import Area, pieces
from planner.workbook.cells import DIGITS
from planner.workbook.fast import FastBook, settings

CELL = re.compile(r'<c r="([A-Z]+)(\d+)"( s="\d+")?>(<f[^>]*?(?:/>|>[^<]*</f>))<v>([^<]*)</v></c>')


def written(*areas: Area, table: dict[int, dict[int, Any]] | None = None) -> list[tuple[str, ...]]:
    """Column, row, style, formula and value of the cells, in the order in which they come."""
    xml = b"".join(xml for _, _, xml in pieces(areas, table or {})).decode()
    found = CELL.findall(xml)
    assert "".join(m[0] for m in CELL.finditer(xml)) == xml
    return found


def numbers(values: Any) -> list[str]:
    """Numbers as the cells of a column have them."""
    return [cell[4] for cell in written(Area(0, 0, "1", 0, np.asarray(values)[None, :]))]


def test_numbers_are_rounded_as_percent_g_does() -> None:
    random = np.random.default_rng(1)
    values = np.concatenate([
        10.0 ** random.uniform(-12, 14, 3000) * random.choice([-1.0, 1.0], 3000),
        10.0 ** random.uniform(-307, 308, 500), np.arange(-9.0, 300.0) / 8.0,
        10.0 ** np.arange(-300, 301), 1.0 - 10.0 ** -np.arange(1.0, 16.0),
        random.integers(0, 10**12, 500) * 1.0, [0.0, 5e-324, 1.7e308, 1e9]])
    found = numbers(values)
    usual = [f"{value:.{DIGITS}g}" for value in values]
    assert sum(a != b for a, b in zip(found, usual, strict=True)) <= 5
    for text, value in zip(found, values, strict=True):
        assert math.isclose(float(text), value, rel_tol=0.51 * 10.0 ** (1 - DIGITS),
                            abs_tol=1e-320), (text, value)


def test_what_is_no_number_and_minus_zero_are_zeros() -> None:
    assert numbers([math.nan, math.inf, -0.0, 2.0]) == ["0", "0", "0", "2"]


def test_every_column_and_row_has_its_name() -> None:
    for first in (0, 24, 700, 16382):
        cells = written(Area(8, first, "A1", 3, np.ones((2, 3))))
        assert [(c[0], c[1]) for c in cells] == [
            (xl_col_to_name(first + i), str(9 + row)) for row in range(3) for i in range(2)]
        assert {c[2] for c in cells} == {' s="3"'}
    assert written(Area(1048575, 0, "1", 0, np.ones((1, 1))))[0][:3] == ("A", "1048576", "")


def test_the_first_cell_holds_the_formula_and_the_others_its_number() -> None:
    cells = written(Area(1, 1, "A1<5", 0, np.ones((2, 2))), Area(1, 3, "B2", 0, np.ones((1, 2))))
    assert [c[3] for c in cells] == [
        '<f t="shared" ref="B2:C3" si="0">A1&lt;5</f>', '<f t="shared" si="0"/>',
        '<f t="shared" ref="D2:D3" si="1">B2</f>', '<f t="shared" si="0"/>',
        '<f t="shared" si="0"/>', '<f t="shared" si="1"/>']


def test_other_cells_keep_their_place_between_areas() -> None:
    """Programs want the cells of a row in the order of their columns."""
    target = io.BytesIO()
    with FastBook(target, settings()) as book:
        sheet, form = book.add_worksheet("A"), book.add_format({})
        sheet.reach(5, 9)
        for column, rows in ((5, 3), (1, 3), (3, 3), (4, 1), (7, 2)):
            sheet.add_area(0, column, "1", form, np.full((1, rows), float(column)))
        sheet.put_number(2, 2, 2.0, form)
        sheet.put_text(1, 6, "é", form)
    read = openpyxl.load_workbook(io.BytesIO(target.getvalue()), data_only=True)["A"]
    assert [[c.value for c in row] for row in read.iter_rows()] == [
        [None, 1, None, 3, 4, 5, None, 7], [None, 1, None, 3, None, 5, "é", 7],
        [None, 1, 2, 3, None, 5, None, None]]
    assert order_of_columns(target.getvalue())


def order_of_columns(data: bytes) -> bool:
    """Whether the cells of every row come in the order of their columns."""
    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True)
    return all(
        [c.column for c in row if c.value is not None] == sorted(
            {c.column for c in row if c.value is not None})
        for sheet in book for row in sheet.iter_rows())
