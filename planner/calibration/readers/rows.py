"""Plain rows: CSV with a header, or JSON objects with the same names.

Needed are mean prompt and output tokens, TTFT, TPOT, and one of concurrency and offered rate; the
rest may be there. Spellings: :mod:`planner.calibration.readers.columns`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from planner.calibration.points import DEPLOYMENT, MeasuredPoint
from planner.calibration.readers.columns import Column, columns_of, described
from planner.calibration.readers.entry import Entry, iso_date
from planner.calibration.readers.source import MAX_ROWS
from planner.errors import InvalidValue

NEEDED = {"prompt_tokens": "prompt_tokens", "output_tokens": "output_tokens",
          "ttft_s": "ttft_ms", "tpot_s": "tpot_ms"}
"""Fields that every row has, and the name of their column."""
LOADS = ("concurrency", "requests_per_second")
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0", "")


def matches(record: Mapping[str, Any]) -> bool:
    """Whether an object is such a row."""
    return set(NEEDED) <= {c.name for c in columns_of(k for k in record if isinstance(k, str))}


def read(entry: Entry) -> list[MeasuredPoint]:
    """The point of one JSON row."""
    return [_point(entry, columns_of(entry.values))]


def cells(name: str, text: str) -> list[list[str]]:
    """Rows of a CSV text; the separator is the one of comma, semicolon and tab in the header.

    Raises
    ------
    InvalidValue
        For text that is no CSV, or past the limit of rows.
    """
    header = next(iter(text.lstrip("\r\n").splitlines()), "")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True,
                        delimiter=max(",;\t", key=header.count))
    rows: list[list[str]] = []
    try:
        for row in reader:
            rows.append(row)
            if len(rows) > MAX_ROWS + 1:
                raise InvalidValue(f"{name}: more than {MAX_ROWS} rows")
    except csv.Error as error:
        raise InvalidValue(f"{name}, row {len(rows) + 1}: not CSV: {error}") from None
    return rows


def read_table(name: str, rows: Sequence[Sequence[str]]) -> list[MeasuredPoint]:
    """A point for each row below the header; blank rows are skipped.

    Raises
    ------
    InvalidValue
        For a header that lacks a column, and for the first bad cell, by row and column.
    """
    start = first_filled(rows)
    header = [cell.strip() for cell in rows[start]] if rows else []
    columns = _columns(name, header)
    points = []
    for number, row in enumerate(rows[start + 1:], start + 2):
        if not _filled(row):
            continue
        if len(row) > len(header):
            raise InvalidValue(f"{name}, row {number}: {len(row)} cells under "
                               f"{len(header)} headers")
        values = dict(zip(header, row, strict=False))
        points.append(_point(Entry(f"{name}, row {number}", values), columns, f"{name}:{number}"))
    if not points:
        raise InvalidValue(f"{name}: a header but no rows")
    return points


def first_filled(rows: Sequence[Sequence[str]]) -> int:
    """Index of the first row with anything in it, 0 when there is none."""
    return next((i for i, row in enumerate(rows) if _filled(row)), 0)


def _filled(row: Sequence[str]) -> bool:
    return any(cell.strip() for cell in row)


def _columns(name: str, header: list[str]) -> list[Column]:
    columns = columns_of(header)
    twice = next((c.header for c in columns if header.count(c.header) > 1), None)
    if twice is not None:
        raise InvalidValue(f"{name}, row 1: the column {twice!a} is there twice")
    present = {c.name for c in columns}
    lacking = [label for field, label in NEEDED.items() if field not in present]
    if not present & set(LOADS):
        lacking.append("concurrency or requests_per_second")
    if lacking:
        raise InvalidValue(f"{name}: the header lacks {', '.join(lacking)}")
    return columns


def _point(entry: Entry, columns: list[Column], source: str = "") -> MeasuredPoint:
    values: dict[str, Any] = {"source": source or entry.where}
    for column in columns:
        value = _value(entry, column)
        if value is None and column.name in NEEDED:
            raise entry.error(column.header, "missing")
        if value is not None:
            values[column.name] = value
        if column.name in ("ttft_s", "tpot_s"):
            values[f"{column.name[:-2]}_statistic"] = column.statistic
    if not any(name in values for name in LOADS):
        raise entry.error("concurrency", "missing, and so is requests_per_second")
    return MeasuredPoint(**values)


def _value(entry: Entry, column: Column) -> Any:
    if column.name in DEPLOYMENT:
        return described(entry, column)
    if column.name == "speculative":
        return _flag(entry, column.header)
    if column.name == "date":
        return iso_date(entry.text(column.header))
    value = entry.scaled(column.header, column.factor)
    if column.name == "prefix_hit" and value is not None and value >= 1.0:
        raise entry.error(column.header, f"must be from 0 to below 1, not {value:g}")
    return value


def _flag(entry: Entry, key: str) -> bool:
    text = str(entry.values.get(key)).strip().lower()
    if text in _YES or text in _NO or text == "none":
        return text in _YES
    raise entry.error(key, "must be true or false")
