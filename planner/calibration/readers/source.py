"""Bytes to text and text to JSON documents, with the limits and the place of every error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from planner.errors import InvalidValue

MAX_BYTES = 20_000_000
"""[B] largest result file."""
MAX_ROWS = 100_000
"""Most rows or documents of one file."""
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()


def decode(name: str, content: bytes) -> str:
    """The text of a result file: UTF-8, with or without a byte order mark.

    Raises
    ------
    InvalidValue
        For a file that is too large, empty, packed or not UTF-8.
    """
    if len(content) > MAX_BYTES:
        raise InvalidValue(f"{name}: {len(content) / 1e6:.1f} MB; a result file may have "
                           f"{MAX_BYTES / 1e6:.0f} MB (save it without per-request details)")
    for magic, kind in _PACKED.items():
        if content.startswith(magic):
            raise InvalidValue(f"{name}: a {kind} file; unpack it first")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidValue(f"{name}, line {line}: not UTF-8 text") from None
    if not text.strip():
        raise InvalidValue(f"{name}: the file is empty")
    return text


def documents(name: str, text: str) -> Iterator[tuple[int, Any]]:
    """JSON documents one after another (a file, JSON lines, appended results) with their lines.

    Raises
    ------
    InvalidValue
        At the line where the text stops being JSON, or past the limit of documents.
    """
    position, line = _skip(text, 0), 1 + text.count("\n", 0, _skip(text, 0))
    count = 0
    while position < len(text):
        count += 1
        if count > MAX_ROWS:
            raise InvalidValue(f"{name}: more than {MAX_ROWS} results")
        value, end = _one(name, text, position, line)
        yield line, value
        following = _skip(text, end)
        line += text.count("\n", position, following)
        position = following


def _one(name: str, text: str, position: int, line: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        raise InvalidValue(f"{name}, line {error.lineno}: not JSON: {error.msg} "
                           f"(column {error.colno})") from None
    except ValueError:
        # The interpreter refuses integers of thousands of digits with a plain ValueError.
        raise InvalidValue(f"{name}, line {line}: a number has too many digits") from None
    except RecursionError:
        raise InvalidValue(f"{name}, line {line}: nested too deeply") from None


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position
