"""The table of a sweep as CSV, xlsx and Parquet, part by part where the format allows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from planner.sweeps.grid import Grid
from planner.sweeps.lean import RESULTS
from planner.sweeps.tasks import column_names

FORMATS = {
    "json": "application/json",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
"""Content types by format."""
XLSX_ROWS = 1_048_575
"""Rows of a sheet below its header (Excel specifications and limits)."""
Rows = Iterable[Sequence[Any]]


def column_types(grid: Grid) -> list[type]:
    """What each column holds: ``int``, ``float``, ``bool`` or ``str``."""
    given = [_type_of(values) for values in grid.values.values()]
    return [int, *given, *RESULTS.values()]


def _type_of(values: Sequence[Any]) -> type:
    known = [v for v in values if v is not None]
    if known and all(isinstance(v, bool) for v in known):
        return bool
    if known and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known):
        return float
    return str


def flat(value: Any, kind: type) -> Any:
    """A value for one cell of a table: lists of words joined, other structures as JSON.

    Examples
    --------
    >>> flat(["h100-sxm-80gb", "l40s"], str)
    'h100-sxm-80gb + l40s'
    """
    if value is None or kind is not str:
        return kind(value) if kind is float and value is not None else value
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return " + ".join(value)
    return json.dumps(value, separators=(",", ":"))


def _flat_rows(grid: Grid, rows: Rows) -> Iterator[list[Any]]:
    kinds = column_types(grid)
    for row in rows:  # most values of a large table are as they should be
        yield [value if value is None or type(value) is kind else flat(value, kind)
               for value, kind in zip(row, kinds, strict=True)]


def csv_blocks(grid: Grid, parts: Iterable[Rows]) -> Iterator[str]:
    """The table as CSV, a block a part."""
    yield _csv([column_names(grid)])
    for rows in parts:
        yield _csv(_flat_rows(grid, rows))


def _csv(rows: Rows) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def parquet_bytes(grid: Grid, parts: Iterable[Rows]) -> bytes:
    """The table as a Parquet file, a row group a part."""
    import pyarrow as pa  # late: it takes a while to load and few ask for it
    import pyarrow.parquet as pq

    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    names = column_names(grid)
    schema = pa.schema([(n, kinds[k]) for n, k in zip(names, column_types(grid), strict=True)])
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema) as writer:
        for rows in parts:
            columns = list(zip(*_flat_rows(grid, rows), strict=True)) or [()] * len(names)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return sink.getvalue()


def xlsx_bytes(grid: Grid, parts: Iterable[Rows]) -> bytes:
    """The table as a workbook: one sheet with a header that stays, filters and number formats.

    Rows beyond what a sheet holds are left out; a last line says so.
    """
    import xlsxwriter

    sink = io.BytesIO()
    with xlsxwriter.Workbook(sink, {"constant_memory": True, "strings_to_formulas": False,
                                    "strings_to_urls": False}) as book:
        sheet, names = book.add_worksheet("Sweep"), column_names(grid)
        bold = book.add_format({"bold": True, "bg_color": "#E8EDF3", "bottom": 1})
        form = {k: book.add_format({"num_format": f}) for k, f in _NUMBER_FORMATS.items()}
        sheet.freeze_panes(1, 1)
        for place, name in enumerate(names):
            sheet.set_column(place, place, _width(name), form.get(_form_of(name)))
        sheet.write_row(0, 0, names, bold)
        last = 0
        for row in (r for rows in parts for r in _flat_rows(grid, rows)):
            last += 1
            if last >= XLSX_ROWS:
                sheet.write(last, 0, "more rows than a sheet holds; take CSV or Parquet")
                break
            sheet.write_row(last, 0, row)
        sheet.autofilter(0, 0, last, len(names) - 1)
    return sink.getvalue()


_NUMBER_FORMATS = {"usd": "#,##0.00", "ms": "#,##0.0", "share": "0%"}


def _form_of(name: str) -> str:
    if name.startswith("usd_"):
        return "usd"
    return "share" if name == "utilization" else "ms" if name.endswith("_ms") else ""


def _width(name: str) -> int:
    return {"layout": 34, "detail": 60, "reason": 18, "cell": 7}.get(
        name, max(len(name) + 2, 22 if name.startswith("request.") else 10))
