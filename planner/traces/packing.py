"""A trace as few bytes: gaps in microseconds and lengths, column by column, compressed."""

from __future__ import annotations

import zlib

import numpy as np

from planner.traces.trace import Trace

_US = 1e6
"""[1/s] times are kept to the microsecond."""


def pack(trace: Trace) -> bytes:
    """The rows of a trace; a million of them take a few megabytes."""
    ticks = np.rint(trace.arrived_at_s * _US).astype("<i8")
    columns = (np.diff(ticks, prepend=ticks[:1]), trace.prompt_tokens.astype("<i4"),
               trace.output_tokens.astype("<i4"))
    return zlib.compress(b"".join(c.tobytes() for c in columns))


def unpack(data: bytes, form: str = "plain") -> Trace:
    """The trace again."""
    raw = zlib.decompress(data)
    count = len(raw) // 16
    gaps = np.frombuffer(raw, "<i8", count)
    lengths = np.frombuffer(raw, "<i4", 2 * count, offset=8 * count).astype(np.float64)
    return Trace(np.cumsum(gaps) / _US, lengths[:count], lengths[count:], form)
