"""Benchmark result files to measured points, whichever tool wrote them.

A format is recognised by what is inside the file; its name only appears in messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from planner.calibration.points import MeasuredPoint, with_defaults
from planner.calibration.readers import aiperf, guidellm, rows, sglang, trtllm, vllm
from planner.calibration.readers.entry import Entry
from planner.calibration.readers.source import MAX_BYTES, MAX_ROWS, decode, documents
from planner.errors import InvalidValue

__all__ = ["FORMATS", "MAX_BYTES", "MAX_ROWS", "detect", "read", "with_defaults"]

FORMATS: dict[str, str] = {
    "vllm": "vllm bench serve (JSON)", "sglang": "SGLang bench_serving (JSON lines)",
    "guidellm": "GuideLLM (JSON)", "aiperf": "AIPerf or GenAI-Perf (JSON or CSV aggregate)",
    "trtllm": "trtllm-bench (JSON report)", "csv": "plain rows (CSV, or JSON objects)",
}
"""What can be read, by format name."""


class _Format(NamedTuple):
    """How to recognise the JSON objects of a format and read one."""

    matches: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Entry], list[MeasuredPoint]]


_OBJECTS = {"guidellm": _Format(guidellm.matches, guidellm.read),
            "trtllm": _Format(trtllm.matches, trtllm.read),
            "aiperf": _Format(aiperf.matches, aiperf.read),
            "sglang": _Format(sglang.matches, sglang.read),
            "vllm": _Format(vllm.matches, vllm.read), "csv": _Format(rows.matches, rows.read)}
"""In the order in which they are tried on a JSON object."""


def detect(name: str, content: bytes) -> str:
    """The format of a result file: a key of :data:`FORMATS`.

    Raises
    ------
    InvalidValue
        For a file that is none of them (see :func:`read`).
    """
    name = _label(name)
    text = decode(name, content)
    if not _is_json(text):
        return _table_format(rows.cells(name, text))
    entry = next(_entries(name, text), None)
    if entry is None:
        raise InvalidValue(f"{name}: no results inside")
    return _object_format(entry)


def read(name: str, content: bytes) -> list[MeasuredPoint]:
    """All points of a result file.

    Parameters
    ----------
    name : str
        File name for messages and for ``source``.
    content : bytes
        UTF-8 text of at most :data:`MAX_BYTES`, with at most :data:`MAX_ROWS` results.

    Returns
    -------
    list of MeasuredPoint
        In the order of the file; at least one. What the format does not contain is None (fill it
        in with :func:`with_defaults`).

    Raises
    ------
    InvalidValue
        For anything else: a packed or too large file, text that is not UTF-8, broken JSON or CSV,
        an unknown format, a missing, negative or non-finite value. The message has the file, the
        line, row or entry, and the field. No other exception is raised.

    Examples
    --------
    >>> header = b"concurrency,prompt_tokens,output_tokens,TTFT (ms),TPOT (ms)"
    >>> point, = read("mine.csv", header + b"\\n16,1024,128,60,8.5")
    >>> point.concurrency, point.ttft_s, point.source
    (16.0, 0.06, 'mine.csv:2')
    """
    name = _label(name)
    text = decode(name, content)
    points = list(_limited(name, _json_points(name, text) if _is_json(text)
                           else iter(_table_points(name, text))))
    if not points:
        raise InvalidValue(f"{name}: no results inside")
    return points


def _label(name: str) -> str:
    """A file name that is safe to put in a message."""
    shown = "".join(c if c.isprintable() else "?" for c in name)[:100]
    return shown or "the file"


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _limited(name: str, points: Iterator[MeasuredPoint]) -> Iterator[MeasuredPoint]:
    for count, point in enumerate(points, 1):
        if count > MAX_ROWS:
            raise InvalidValue(f"{name}: more than {MAX_ROWS} results")
        yield point


# -- JSON ---------------------------------------------------------------------------------------


def _json_points(name: str, text: str) -> Iterator[MeasuredPoint]:
    for entry in _entries(name, text):
        yield from _OBJECTS[_object_format(entry)].read(entry)


def _entries(name: str, text: str) -> Iterator[Entry]:
    """Result objects of a file: its documents, lists (also of lists) taken apart."""
    for line, document in documents(name, text):
        yield from _objects(f"{name}:{line}", document)


def _objects(where: str, value: Any, depth: int = 0) -> Iterator[Entry]:
    if isinstance(value, Mapping):
        yield Entry(where, value)
    elif isinstance(value, list) and depth < 2:
        for index, item in enumerate(value):
            yield from _objects(f"{where}[{index}]", item, depth + 1)
    else:
        raise InvalidValue(f"{where}: a result must be a JSON object")


def _object_format(entry: Entry) -> str:
    for name, known in _OBJECTS.items():
        if known.matches(entry.values):
            return name
    raise InvalidValue(f"{entry.where}: not the result of a known benchmark; known: "
                       f"{'; '.join(FORMATS.values())}")


# -- CSV ----------------------------------------------------------------------------------------


def _table_format(table: list[list[str]]) -> str:
    header = table[rows.first_filled(table)] if table else []
    return "aiperf" if aiperf.matches_table(header) else "csv"


def _table_points(name: str, text: str) -> list[MeasuredPoint]:
    table = rows.cells(name, text)
    if _table_format(table) == "aiperf":
        return aiperf.read_table(name, table)
    return rows.read_table(name, table)
