"""The requests of a simulation: one row each, as arrays; rate scaling, slicing, statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.errors import InvalidValue
from planner.wording import in_full

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
MAX_TOKENS = 100_000_000
"""[token] beyond which a length is a mistake."""


@dataclass(frozen=True, slots=True)
class RequestTable:
    """Requests in the order of their arrival.

    Attributes
    ----------
    arrival_s : ndarray, shape (N,)
        [s] ascending, from any origin.
    prompt_tokens, output_tokens : ndarray of int, shape (N,)
        [token] at least 1.
    cached_tokens : ndarray of int, shape (N,)
        [token] of the prompt found in the prefix cache, below ``prompt_tokens``.
    """

    arrival_s: Array
    prompt_tokens: Counts
    output_tokens: Counts
    cached_tokens: Counts

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """[s] from the first arrival to the last."""
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0

    @property
    def requests_per_s(self) -> float:
        """Mean rate [1/s] over the span."""
        return (len(self) - 1) / self.span_s if self.span_s > 0 else 0.0


def request_table(arrival_s: ArrayLike, prompt_tokens: ArrayLike, output_tokens: ArrayLike,
                  cached_tokens: ArrayLike | None = None) -> RequestTable:
    """Check columns and make a table of them.

    Parameters
    ----------
    arrival_s : array_like, shape (N,)
        [s] ascending.
    prompt_tokens, output_tokens : array_like of int
        [token].
    cached_tokens : array_like of int, optional
        [token] of each prompt in the prefix cache. A prompt that is in it altogether still computes
        its last token.

    Raises
    ------
    InvalidValue
        Names the first row at fault, counted from 1.
    """
    arrival = np.ascontiguousarray(arrival_s, dtype=np.float64)
    prompt, output = (_whole(name, values) for name, values in (
        ("prompt_tokens", prompt_tokens), ("output_tokens", output_tokens)))
    cached = _whole("cached_tokens", np.zeros(len(arrival)) if cached_tokens is None
                    else cached_tokens, least=0)
    if not len(arrival):
        raise InvalidValue("a simulation needs at least one request", "/requests")
    if {len(arrival), len(prompt), len(output), len(cached)} != {len(arrival)}:
        raise InvalidValue("the columns of the requests differ in length", "/requests")
    _refuse(~np.isfinite(arrival), "arrival_s must be finite")
    _refuse(np.diff(arrival, prepend=arrival[0]) < 0, "arrival_s must not go back in time")
    return RequestTable(arrival, prompt, output, np.minimum(cached, prompt - 1))


def _whole(name: str, values: ArrayLike, least: int = 1) -> Counts:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise InvalidValue(f"{name} must be one column", "/requests")
    _refuse(~np.isfinite(numbers), f"{name} must be finite")
    _refuse((numbers < least) | (numbers > MAX_TOKENS),
            f"{name} must be from {least} to {MAX_TOKENS:,}")
    return np.ascontiguousarray(np.round(numbers), dtype=np.int64)


def _refuse(bad: NDArray[np.bool_], message: str) -> None:
    if bad.any():
        row = int(np.argmax(bad)) + 1
        raise InvalidValue(f"row {row}: {message}", "/requests")


# -- reshaping ------------------------------------------------------------------------------------


def scaled_rate(requests: RequestTable, factor: float) -> RequestTable:
    """The same requests in the same order, ``factor`` times as fast.

    Burstiness (the CV of the gaps) stays.

    Raises
    ------
    InvalidValue
        When the factor is not a positive number.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise InvalidValue(f"a rate factor must be positive, not {factor!r}", "/rate_factor")
    start = requests.arrival_s[0]
    return RequestTable(start + (requests.arrival_s - start) / factor, requests.prompt_tokens,
                        requests.output_tokens, requests.cached_tokens)


def at_rate(requests: RequestTable, requests_per_s: float) -> RequestTable:
    """The same requests at a mean rate [1/s]."""
    if requests.requests_per_s <= 0:
        raise InvalidValue("requests that all arrive at once have no rate to scale", "/requests")
    return scaled_rate(requests, requests_per_s / requests.requests_per_s)


def time_slice(requests: RequestTable, start_s: float = 0.0, end_s: float = math.inf
               ) -> RequestTable:
    """Requests that arrive in ``[start_s, end_s)``, counted from the first arrival.

    Raises
    ------
    InvalidValue
        When no request arrives in that time.
    """
    since = requests.arrival_s - requests.arrival_s[0]
    first, last = np.searchsorted(since, (start_s, end_s))
    if last <= first:
        raise InvalidValue(f"no request arrives from {in_full(start_s)} to {in_full(end_s)} s "
                           f"after the first (the last one arrives at {since[-1]:g} s)", "/slice")
    part = slice(int(first), int(last))
    return RequestTable(requests.arrival_s[part], requests.prompt_tokens[part],
                        requests.output_tokens[part], requests.cached_tokens[part])


def statistics(requests: RequestTable) -> dict[str, Any]:
    """What a trace looks like: counts, rate, burstiness, lengths.

    ``peak_over_mean`` compares the fullest minute with the mean minute (spans of two minutes or
    more); ``arrival_cv`` is the coefficient of variation of the gaps.
    """
    gaps = np.diff(requests.arrival_s)
    mean = float(gaps.mean()) if gaps.size else 0.0
    return {
        "requests": len(requests), "span_s": requests.span_s,
        "requests_per_s": requests.requests_per_s,
        "arrival_cv": float(gaps.std() / mean) if mean > 0 else None,
        "peak_over_mean": _peak_over_mean(requests),
        "prompt_tokens": length_figures(requests.prompt_tokens),
        "output_tokens": length_figures(requests.output_tokens),
        "prefix_cache_hit_rate": float(requests.cached_tokens.sum() / requests.prompt_tokens.sum()),
        "length_correlation": _correlation(requests),
    }


def length_figures(tokens: Counts) -> dict[str, float]:
    """Mean, percentiles and extremes of token counts [token]."""
    p50, p90, p95, p99 = (float(x) for x in np.percentile(tokens, (50, 90, 95, 99)))
    return {"mean": float(tokens.mean()), "p50": p50, "p90": p90, "p95": p95, "p99": p99,
            "min": float(tokens.min()), "max": float(tokens.max())}


def _peak_over_mean(requests: RequestTable) -> float | None:
    if requests.span_s < 120.0:
        return None
    minute = ((requests.arrival_s - requests.arrival_s[0]) // 60.0).astype(np.int64)
    last = int(minute[-1])
    whole = minute[minute < last] if last > 1 else minute
    _, counts = np.unique(whole, return_counts=True)
    return float(counts.max() * (last if last > 1 else last + 1) / len(whole))


def _correlation(requests: RequestTable) -> float | None:
    prompt, output = requests.prompt_tokens, requests.output_tokens
    if len(requests) < 3 or not (prompt.std() > 0 and output.std() > 0):
        return None
    return float(np.corrcoef(prompt, output)[0, 1])
