"""Ways to read a workbook back."""

from __future__ import annotations

import io
from typing import Any

import openpyxl


def read(data: bytes) -> openpyxl.Workbook:
    """A workbook with the values of its formulas."""
    return openpyxl.load_workbook(io.BytesIO(data), data_only=True)


def named(book: openpyxl.Workbook, name: str) -> Any:
    """The value of a named cell."""
    [(sheet, cell)] = list(book.defined_names[name].destinations)
    return book[sheet][cell.replace("$", "")].value


def table(book: openpyxl.Workbook, sheet: str) -> list[dict[str, Any]]:
    """The rows of a sheet that is one table."""
    header, *rows = book[sheet].iter_rows(values_only=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


def errors(book: openpyxl.Workbook) -> list[str]:
    """Every cell that holds an error value."""
    return [f"{sheet.title}!{c.coordinate} {c.value}" for sheet in book for row in sheet.iter_rows()
            for c in row if c.data_type == "e" or str(c.value).startswith("#")]


def texts(book: openpyxl.Workbook, sheet: str) -> str:
    """All text of a sheet."""
    return "\n".join(str(c) for row in book[sheet].iter_rows(values_only=True) for c in row if c)
