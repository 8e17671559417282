"""Reading a trace row by row; the first row at fault is named."""

from __future__ import annotations

import csv
import itertools
import json
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

import numpy as np

from planner.errors import InvalidValue
from planner.traces.columns import FIELDS, Columns, find_columns
from planner.traces.stream import Readable, ReadLimits, TraceTooLarge, lines
from planner.traces.trace import Trace, trace_of
from planner.units import MS_PER_S

MAX_TOKENS = 10_000_000
TIME_UNITS = ("s", "ms")
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds"}
SPARE_LINES = 1000  # beyond the limit of rows: the header, blank lines, line ends inside quotes
Row = Sequence[Any]


class BadTrace(InvalidValue):
    """A trace with a row at fault."""

    code = "bad-trace"
    title = "The trace cannot be used"


def read_trace(stream: Readable, limits: ReadLimits | None = None, skip_empty: bool = False,
               time_unit: str | None = None) -> Trace:
    """Read a trace from CSV or JSON lines, plain or gzip.

    Parameters
    ----------
    stream : file
        Binary.
    limits : ReadLimits, optional
    skip_empty : bool
        Leave out rows with 0 prompt or output tokens (requests that failed) instead of refusing.
    time_unit : str, optional
        ``s`` or ``ms`` of numeric times; by default what the name of the time column says, or else
        what the format uses, seconds for most.

    Raises
    ------
    BadTrace
        With the number of the row at fault (the first row of data is row 1) and what is allowed.
    TraceTooLarge
        Beyond ``limits``.

    Examples
    --------
    >>> import io
    >>> text = b"timestamp,prompt_tokens,output_tokens\\n5,100,10\\n6,200,20\\n9,300,30\\n"
    >>> read_trace(io.BytesIO(text)).arrived_at_s.tolist()
    [0.0, 1.0, 4.0]
    """
    limits = limits or ReadLimits()
    try:
        columns, rows = _open(_decoded(lines(stream, limits), limits))
        reader = _Reader(columns, limits, skip_empty, time_unit)
        reader.take(rows)
        return trace_of(*reader.arrays(), columns.format, reader.skipped)
    except BadTrace:
        raise
    except InvalidValue as error:
        raise BadTrace(error.message, error.pointer) from None


class _TooManyLines(TraceTooLarge):
    """More lines than the rows allowed could need: blank ones, or those of an open quote."""


def _decoded(raw: Iterator[bytes], limits: ReadLimits) -> Iterator[str]:
    most = limits.rows + SPARE_LINES
    for number, line in enumerate(raw, start=1):
        if number > most:
            raise _TooManyLines(f"the trace has more than {most:,} lines, blank ones among them")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadTrace(f"line {number} is not UTF-8 text (byte {error.start + 1} of the line "
                           f"is 0x{line[error.start]:02x})") from None
        yield text.removeprefix("\ufeff") if number == 1 else text


def _open(text: Iterator[str]) -> tuple[Columns, Iterator[Row]]:
    """Columns, and the rows below them."""
    first = next((line for line in text if line.strip()), None)
    if first is None:
        raise BadTrace("the trace is empty")
    if first.lstrip().startswith("{"):
        return _json_lines(first, text)
    separator = next((s for s in (",", "\t", ";") if s in first), ",")
    # With their ends, so that a line end inside quotes stays part of its field.
    ended = (f"{line}\n" for line in itertools.chain([first], text))
    rows = csv.reader(ended, delimiter=separator, strict=True)
    header = [name.strip() for name in _next_row(rows)]
    return find_columns(header), _csv_rows(rows, len(header))


def _next_row(rows: Any) -> list[str]:
    try:
        found: list[str] = next(rows)
    except csv.Error as error:
        raise BadTrace(f"the header is not CSV: {error}") from None
    return found


def _csv_rows(rows: Any, width: int) -> Iterator[Row]:
    number = 0
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            _refuse(number + 1, "", f"is not CSV: {error}")
        if row is None:
            return
        if not row:  # a blank line
            continue
        number += 1
        if len(row) != width:
            _refuse(number, "", f"has {len(row)} fields; the header has {width}")
        yield row


def _json_lines(first: str, text: Iterator[str]) -> tuple[Columns, Iterator[Row]]:
    names = list(_json_object(first, 1))
    columns = find_columns(names)
    keys = columns.names

    def rows() -> Iterator[Row]:
        number = 0
        for line in itertools.chain([first], text):
            if not line.strip():
                continue
            number += 1
            found = _json_object(line, number)
            for key, field in zip(keys, FIELDS, strict=True):
                if key not in found:
                    _refuse(number, field, f"has no {key!r}")
            yield [found[key] for key in keys]

    return replace(columns, index=(0, 1, 2)), rows()


def _json_object(line: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line, object_pairs_hook=_once_each)
    except _Repeated as error:
        _refuse(number, "", f"has the key {_shown(error.args[0])} twice")
    except (ValueError, RecursionError):
        _refuse(number, "", "is not JSON")
    if not isinstance(found, dict):
        _refuse(number, "", "is not a JSON object")
    return found


class _Repeated(Exception):
    """A key that one JSON object has twice."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Repeated(next(name for name in names if names.count(name) > 1))
    return found


class _Reader:
    """Checks rows and gathers them in compact arrays."""

    def __init__(self, columns: Columns, limits: ReadLimits, skip_empty: bool,
                 time_unit: str | None) -> None:
        self.columns, self.limits, self.skip_empty = columns, limits, skip_empty
        self.unit = time_unit or columns.time_unit
        self.times, self.prompts, self.outputs = array("d"), array("d"), array("d")
        self.skipped = 0

    def arrays(self) -> tuple[Any, Any, Any]:
        """Times [s], prompt and output tokens as NumPy arrays."""
        times = np.asarray(self.times)
        return (times / MS_PER_S if self.unit == "ms" else times, np.asarray(self.prompts),
                np.asarray(self.outputs))

    def take(self, rows: Iterator[Row]) -> None:
        """Check and keep every row."""
        try:
            self._take(rows)
        except _TooManyLines as error:
            read = len(self.times) + self.skipped
            raise TraceTooLarge(f"{error.message} (reached after row {read:,})") from None

    def _take(self, rows: Iterator[Row]) -> None:
        at, prompt, output = self.columns.index
        seconds: Callable[[Any], float] | None = None
        last = -math.inf
        for number, row in enumerate(rows, start=1):
            if number > self.limits.rows:
                raise TraceTooLarge(f"the trace has more than {self.limits.rows:,} rows")
            if seconds is None:
                seconds = _clock(row[at])
                self.unit = "s" if seconds is _iso_s else self.unit
            try:
                time = seconds(row[at])
            except (ValueError, TypeError, OverflowError, OSError):
                _refuse(number, "timestamp", f"has the {self.columns.names[0]} {_shown(row[at])}; "
                        f"allowed are {_UNIT_NAMES[self.unit]} from 0, or ISO 8601 times, one kind "
                        "in all rows")
            if time < last:
                _refuse(number, "timestamp", "comes before the row above it "
                        f"({_shown(row[at])}); sort the trace by time")
            last = time
            lengths = self._tokens(row[prompt], number, 1), self._tokens(row[output], number, 2)
            if 0.0 in lengths:
                self.skipped += 1
                continue
            self.times.append(time)
            self.prompts.append(lengths[0])
            self.outputs.append(lengths[1])

    def _tokens(self, value: Any, number: int, field: int) -> float:
        try:
            tokens = _number(value)
        except (ValueError, TypeError, OverflowError):
            tokens = math.nan
        if 1.0 <= tokens <= MAX_TOKENS and tokens == int(tokens):
            return tokens
        if tokens == 0.0 and self.skip_empty:
            return 0.0
        hint = ("; skip_empty=true (of a command: --skip-empty) leaves out such rows, which are "
                "requests that failed"
                if tokens == 0.0 else "")
        _refuse(number, FIELDS[field],
                f"has {self.columns.names[field]} {_shown(value)}; allowed are whole numbers from "
                f"1 to {MAX_TOKENS:,}{hint}")


def _clock(first: Any) -> Callable[[Any], float]:
    """How to read the times of a trace, by its first."""
    try:
        _number(first)
    except (ValueError, TypeError):
        return _iso_s
    return _number_s


def _number(value: Any) -> float:
    """A number as CSV and JSON write it: no ``1_000`` and no digits of other scripts."""
    if isinstance(value, bool) or (isinstance(value, str) and ("_" in value
                                                               or not value.isascii())):
        raise ValueError
    return float(value)


def _number_s(value: Any) -> float:
    number = _number(value)
    if not 0.0 <= number < 1e15:
        raise ValueError
    return number


def _iso_s(value: Any) -> float:
    time = datetime.fromisoformat(value.strip())
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _shown(value: Any) -> str:
    text = str(value)
    return ascii(text if len(text) <= 40 else text[:37] + "...")


def _refuse(number: int, field: str, what: str) -> NoReturn:
    raise BadTrace(f"row {number} {what}", f"/rows/{number}" + (f"/{field}" if field else ""))
