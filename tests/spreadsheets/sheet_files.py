"""Files to read: filled templates and hostile ones, made by hand."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import openpyxl

from planner.catalog.shipped import shipped_catalog
from planner.spreadsheets.sheets import read_workbook
from planner.spreadsheets.workloads import ReadWorkloads, read_workloads

CATALOG = shipped_catalog()
ROW: dict[str, Any] = {
    "Name": "chat", "Model": "llama-3.1-8b", "Requests per second [1/s]": 5,
    "Prompt tokens, mean [token]": 1000, "Output tokens, mean [token]": 200,
    "Time to first token [ms]": 1000, "Time per output token [ms]": 50, "GPUs": "l40s",
    "Set-ups": "chunked",
}
"""A workload with what it needs, by header."""


def saved(book: openpyxl.Workbook) -> bytes:
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


def table(rows: Sequence[Sequence[Any]], sheet: str = "Workloads", at: int = 1) -> bytes:
    """A workbook of one sheet, its first row in line ``at``."""
    book = openpyxl.Workbook()
    page = book.active
    page.title = sheet
    for number, row in enumerate(rows, at):
        for column, value in enumerate(row, 1):
            page.cell(number, column, value)
    return saved(book)


def workloads(*rows: Mapping[str, Any]) -> bytes:
    """A workload sheet with the columns that the rows name."""
    header = list(dict.fromkeys(k for row in rows for k in row))
    return table([header, *([row.get(k) for k in header] for row in rows)])


def read(data: bytes) -> ReadWorkloads:
    return read_workloads(read_workbook(data), CATALOG)


def archive(parts: Mapping[str, bytes | str]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in parts.items():
            made.writestr(name, content)
    return target.getvalue()


def altered(data: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """A workbook with parts replaced, added, or (None) taken away."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        parts = {n: source.read(n) for n in source.namelist()}
    return archive({n: c for n, c in {**parts, **changes}.items() if c is not None})
