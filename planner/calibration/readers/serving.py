"""What the result records of ``vllm bench serve`` and SGLang ``bench_serving`` share.

Both descend from one script, so counts, rates and latencies have the same names in both.
"""

from __future__ import annotations

import math

from planner.calibration.readers.entry import Entry
from planner.units import ms_to_s


def tokens_per_request(entry: Entry, total: str) -> float:
    """Mean tokens per completed request; 0 when none completed."""
    completed, tokens = entry.required("completed"), entry.required(total)
    return tokens / completed if completed else 0.0


def latency(entry: Entry, metric: str) -> tuple[float, str]:
    """A latency [s] and whether it is the mean or the median; the mean where both are there."""
    for statistic in ("mean", "median"):
        value = entry.number(f"{statistic}_{metric}_ms")
        if value is not None:
            return ms_to_s(value), statistic
    raise entry.error(f"mean_{metric}_ms", "missing")


def mean_latency(entry: Entry, metric: str) -> float | None:
    """A mean latency [s] that may be missing."""
    value = entry.number(f"mean_{metric}_ms")
    return None if value is None else ms_to_s(value)


def offered_rate(entry: Entry) -> float | None:
    """Offered requests [1/s]; None when all were sent at once (``inf``) or by a trace."""
    rate = entry.values.get("request_rate")
    if isinstance(rate, str) and rate.strip().lower() in ("inf", "infinity", "trace", "self_timed"):
        return None
    if isinstance(rate, float) and rate == math.inf:
        return None
    return entry.number("request_rate")
