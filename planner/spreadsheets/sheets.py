"""Uploads as sheets of cells: xlsx read with openpyxl, CSV with the standard library."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import openpyxl
from openpyxl.utils import get_column_letter

from planner.errors import PlannerError
from planner.spreadsheets.package import (
    MAX_UNPACKED_BYTES,
    FileTooLarge,
    UnreadableFile,
    check_package,
)
from planner.spreadsheets.safe_text import from_csv

MAX_SHEETS = 100
MAX_ROWS = 20_000
MAX_COLUMNS = 250
MAX_CELLS = 2_000_000
"""Cells that are looked at, blank ones included."""
LAST_EXCEL_ROW = 1_048_576
NEVER_CALCULATED = ("holds a formula that was never calculated; open the file in a spreadsheet "
                    "program and save it, or type the value")
_DATES = (datetime.datetime, datetime.date)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes
    ----------
    place : str
        ``D7``.
    value : str, int, float, bool, datetime or None
        A formula's is the value that was saved with it.
    percent : bool
        Whether the cell shows its number as a percentage.
    decimal_point : bool
        Whether a point in a text can only be a decimal one.
    fault : str
        Why there is no value to read, empty where there is.
    """

    place: str
    value: Any = None
    percent: bool = False
    decimal_point: bool = False
    fault: str = ""

    @property
    def blank(self) -> bool:
        """Whether there is nothing in the cell."""
        return not self.fault and (self.value is None or (
            isinstance(self.value, str) and not self.value.strip()))


@dataclass(frozen=True, slots=True)
class Line:
    """One row that is not blank: its number from 1, its cells by column from 0."""

    number: int
    cells: dict[int, Cell] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A named sheet and its rows that are not blank."""

    name: str
    lines: list[Line]

    def pointer(self, place: str = "") -> str:
        """JSON pointer of a cell, or of the sheet.

        Examples
        --------
        >>> Sheet("a/b", []).pointer("D7")
        '/a~1b/D7'
        """
        name = self.name.replace("~", "~0").replace("/", "~1")
        name = name.encode("utf-8", "backslashreplace").decode()
        return f"/{name}/{place}" if place else f"/{name}"


def place_of(column: int, row: int) -> str:
    """``D7`` of column 3 (from 0), row 7 (from 1)."""
    return f"{get_column_letter(column + 1)}{row}"


def read_workbook(data: bytes, names: Collection[str] = ()) -> list[Sheet]:
    """The sheets of an xlsx file.

    Values only: a formula gives what was last calculated by the program that saved it, and a
    formula without such a value is a cell with a fault. Macros, links and charts are not read.

    Parameters
    ----------
    data : bytes
    names : collection of str
        Where sheets of these names exist (whatever the case), only they are read; the others
        are then listed without lines.

    Raises
    ------
    UnreadableFile, FileTooLarge
    """
    check_package(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of extensions that openpyxl drops; nothing here uses them
        try:
            return _sheets(data, {name.casefold() for name in names})
        except PlannerError:
            raise
        except Exception as error:  # openpyxl lets whatever a damaged part causes through
            raise UnreadableFile("the workbook is damaged, or no spreadsheet program wrote it "
                                 f"({type(error).__name__})") from None


def _sheets(data: bytes, names: set[str]) -> list[Sheet]:
    books = [openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=values,
                                    keep_links=False) for values in (True, False)]
    try:
        values, formulas = books
        if len(values.worksheets) > MAX_SHEETS:
            raise FileTooLarge(f"the workbook has {len(values.worksheets)} sheets; at most "
                               f"{MAX_SHEETS} are read")
        titles = [v.title.strip().casefold() for v in values.worksheets]
        wanted = names & set(titles) or set(titles)
        return [_sheet(v, f) if title in wanted else Sheet(v.title, []) for title, v, f in
                zip(titles, values.worksheets, formulas.worksheets, strict=True)]
    finally:
        for book in books:
            book.close()


def _sheet(values: Any, formulas: Any) -> Sheet:
    for sheet in (values, formulas):
        sheet.reset_dimensions()  # what a file says of its size need not be true
    found = Sheet(values.title, [])
    seen = 0
    pairs = itertools.zip_longest(values.iter_rows(max_row=LAST_EXCEL_ROW),
                                  formulas.iter_rows(max_row=LAST_EXCEL_ROW), fillvalue=())
    for number, (row, formula_row) in enumerate(pairs, 1):
        seen += len(row)
        if seen > MAX_CELLS:
            raise FileTooLarge(f"sheet {found.name!r} has more than {MAX_CELLS:,} cells")
        cells = _cells(number, row, formula_row)
        if cells:
            _keep(found, Line(number, cells))
    return found


def _keep(sheet: Sheet, line: Line) -> None:
    sheet.lines.append(line)
    if len(sheet.lines) > MAX_ROWS:
        raise FileTooLarge(f"sheet {sheet.name!r} has more than {MAX_ROWS:,} filled rows")
    if max(line.cells) >= MAX_COLUMNS:
        raise FileTooLarge(f"sheet {sheet.name!r} has something in column "
                           f"{get_column_letter(max(line.cells) + 1)}; at most {MAX_COLUMNS} "
                           "columns are read")


def _cells(number: int, row: Sequence[Any], formulas: Sequence[Any]) -> dict[int, Cell]:
    found = {}
    for column, (cell, formula) in enumerate(itertools.zip_longest(row, formulas)):
        if formula is not None and formula.data_type == "f":
            read = _calculated(place_of(column, number), cell)
        elif cell is None or cell.value is None:
            continue
        else:
            read = _value(place_of(column, number), cell)
        if not read.blank:
            found[column] = read
    return found


def _calculated(place: str, cell: Any) -> Cell:
    if cell is None or cell.value is None:
        return Cell(place, fault=NEVER_CALCULATED)
    return _value(place, cell)


def _value(place: str, cell: Any) -> Cell:
    if cell.data_type == "e":
        return Cell(place, fault=f"holds the error {cell.value}")
    if isinstance(cell.value, str):
        return Cell(place, cell.value)
    percent = "%" in (cell.number_format or "") and not isinstance(cell.value, bool)
    return Cell(place, cell.value, percent=percent)


def sheet_of(name: str, rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Rows that are values already as a sheet with a header."""
    header = list(dict.fromkeys(key for row in rows for key in row))
    table: list[Mapping[str, Any]] = [{key: key for key in header}, *rows]
    return Sheet(name, [Line(number, {
        column: Cell(place_of(column, number), row[key], decimal_point=True)
        for column, key in enumerate(header) if row.get(key) not in (None, "")})
        for number, row in enumerate(table, 1)])


# -- CSV ----------------------------------------------------------------------------------------


def read_csv(data: bytes, name: str) -> Sheet:
    """A CSV file as one sheet; the delimiter is a comma, a semicolon or a tab.

    Text is UTF-8 or, with its mark, UTF-16. The apostrophe that keeps a spreadsheet program
    from taking a text for a formula is removed.

    Raises
    ------
    UnreadableFile, FileTooLarge
    """
    if len(data) > MAX_UNPACKED_BYTES:
        raise FileTooLarge(f"the file has {len(data):,} bytes; at most {MAX_UNPACKED_BYTES:,}")
    text = _decoded(data)
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    found = Sheet(name, [])
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""),
                                                delimiter=delimiter, strict=True), 1):
            cells = dict(_csv_cells(number, row, delimiter))
            if cells:
                _keep(found, Line(number, cells))
    except csv.Error as error:
        raise UnreadableFile(f"the file is not CSV: {error}") from None
    if not found.lines:
        raise UnreadableFile("the file is empty")
    return found


def _csv_cells(number: int, row: Iterable[str], delimiter: str) -> Iterator[tuple[int, Cell]]:
    for column, text in enumerate(row):
        cell = Cell(place_of(column, number), from_csv(text), decimal_point=delimiter == ",")
        if not cell.blank:
            yield column, cell


def _decoded(data: bytes) -> str:
    marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    encoding = "utf-16" if marked else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise UnreadableFile("the file is not text in UTF-8; save it as “CSV UTF-8”") from None
    if "\x00" in text:
        raise UnreadableFile("the file is not text")
    return text


def is_date(value: Any) -> bool:
    """Whether a cell's value is a date or a time."""
    return isinstance(value, (*_DATES, datetime.time, datetime.timedelta))
