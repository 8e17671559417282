"""Lines of a file that may be compressed, never more than a limit of them in memory or in all."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from planner.errors import InvalidValue, PlannerError

GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16


class Readable(Protocol):
    """Something with ``read``: a file, or the body of a request."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes, none at the end."""


class TraceTooLarge(PlannerError):
    """A trace with more rows or bytes than the service takes."""

    code = "trace-too-large"
    title = "The trace is too large"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Most that is read of one trace.

    Attributes
    ----------
    rows : int
    size_bytes : int
        [B] of text, after decompression.
    line_bytes : int
        [B] of one line.
    """

    rows: int = 1_000_000
    size_bytes: int = 200_000_000
    line_bytes: int = 1_000_000


def lines(stream: Readable, limits: ReadLimits) -> Iterator[bytes]:
    """Lines of a stream without their line ends (LF, CR LF or CR); gzip is recognised by its first
    two bytes.

    Raises
    ------
    TraceTooLarge
        As soon as a limit is passed; nothing beyond it is decompressed.
    InvalidValue
        When the compressed data is broken.
    """
    rest, size, count = b"", 0, 0
    for chunk in _text(stream):
        size += len(chunk)
        if size > limits.size_bytes:
            raise TraceTooLarge(f"the trace has more than {limits.size_bytes:,} bytes of text "
                                f"(reached after line {count})")
        text = rest + chunk
        half = text[-1:] if text.endswith(b"\r") else b""  # the LF may come with the next chunk
        parts = text.removesuffix(half).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = parts.pop() + half
        for part in parts:
            count += 1
            yield _checked(part, count, limits)
        if len(rest) > limits.line_bytes:
            _checked(rest, count + 1, limits)
    if rest:
        yield _checked(rest.removesuffix(b"\r"), count + 1, limits)


def _checked(line: bytes, number: int, limits: ReadLimits) -> bytes:
    if len(line) > limits.line_bytes:
        raise InvalidValue(f"line {number} is longer than {limits.line_bytes:,} bytes")
    return line


def _text(stream: Readable) -> Iterator[bytes]:
    first = stream.read(_CHUNK)
    while 0 < len(first) < len(GZIP_MAGIC):
        more = stream.read(_CHUNK)
        if not more:
            break
        first += more
    if first.startswith(GZIP_MAGIC):
        yield from _inflated(stream, first)
        return
    while first:
        yield first
        first = stream.read(_CHUNK)


def _inflated(stream: Readable, data: bytes) -> Iterator[bytes]:
    """Decompress in pieces of bounded size; a file may be several gzip members in a row."""
    engine = zlib.decompressobj(wbits=31)
    while data:
        try:
            text = engine.decompress(data, _CHUNK)
        except zlib.error as error:
            raise InvalidValue(f"the gzip data is broken: {error}") from None
        if text:
            yield text
        data = engine.unconsumed_tail
        if engine.eof:
            data, engine = engine.unused_data.lstrip(b"\x00"), zlib.decompressobj(wbits=31)
            data = data or stream.read(_CHUNK).lstrip(b"\x00")
            if not data:
                return
        data = data or stream.read(_CHUNK)
    raise InvalidValue("the gzip data ends in the middle")
