"""What a trace looks like, and the workload of a plan that it stands for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from planner.traces.trace import Array, Trace

WINDOW_S = 60.0
"""[s] the peak is the busiest minute."""
BIN_EDGES = np.concatenate([
    [0.0], np.arange(0.025, 0.88, 0.05),
    [0.89, 0.91, 0.925, 0.94, 0.96, 0.97, 0.98, 0.988, 0.992, 0.996, 0.999, 0.9997, 1.0]])
"""Shares at which lengths are cut. The p50, p90, p95 and p99 lie in the middle of a bin, so that
the bin's mean stands for them; the tail is cut finer because it decides the wait."""


def gap_cv(arrived_at_s: Array) -> float:
    """Standard deviation over mean of the gaps between arrivals (1 = Poisson)."""
    gaps = np.diff(arrived_at_s)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else 1.0


def peak_window(arrived_at_s: Array, window_s: float) -> Array:
    """Arrivals of the busiest window; windows are laid end to end from the first arrival."""
    window = np.floor(arrived_at_s / window_s).astype(np.int64)
    starts = np.flatnonzero(np.diff(window, prepend=window[0] - 1))
    counts = np.diff(np.append(starts, len(window)))
    busiest = int(counts.argmax())
    return arrived_at_s[starts[busiest]:starts[busiest] + counts[busiest]]


def dispersion(arrived_at_s: Array, span_s: float) -> float:
    """Variance over mean of the arrivals per second (1 = Poisson, cv^2 = independent gaps)."""
    start = np.floor(arrived_at_s[0] / span_s) * span_s
    seconds = np.floor(arrived_at_s - start).astype(np.int64)
    counts = np.bincount(seconds, minlength=int(span_s))
    return float(counts.var() / counts.mean())


def length_points(tokens: Array) -> list[dict[str, float]]:
    """Cut lengths at :data:`BIN_EDGES`; each bin becomes its mean [token] and its share."""
    values = np.sort(tokens)
    cuts = np.unique(np.round(BIN_EDGES * len(values)).astype(np.int64))
    points: dict[int, float] = {}
    for start, end in itertools.pairwise(cuts):
        chunk = values[start:end]
        middle = max(round(float(chunk.mean())), 1)
        points[middle] = round(points.get(middle, 0.0) + len(chunk) / len(values), 6)
    largest = max(points, key=lambda t: points[t])
    points[largest] = round(points[largest] + 1.0 - sum(points.values()), 6)
    return [{"tokens": t, "share": share} for t, share in sorted(points.items())]


def length_statistics(tokens: Array) -> dict[str, float]:
    """Mean and percentiles [token] of one kind of length."""
    cuts = {f"p{q}": float(np.percentile(tokens, q)) for q in (50, 90, 95, 99)}
    return {"mean": round(float(tokens.mean()), 2), **cuts, "max": float(tokens.max())}


def statistics(trace: Trace, window_s: float = WINDOW_S) -> dict[str, Any]:
    """Counts, rates, burstiness and lengths of a trace.

    Parameters
    ----------
    trace : Trace
    window_s : float
        [s] window whose busiest is the peak; a shorter trace is its own window.
    """
    arrived = trace.arrived_at_s
    window_s = min(window_s, trace.span_s)
    peak = peak_window(arrived, window_s)
    mean_rate = len(arrived) / trace.span_s
    # The last arrival of a trace no longer than its window is in the next.
    peak_rate = max(len(peak) / window_s, mean_rate)
    return {
        "requests": len(arrived),
        "span_s": round(trace.span_s, 3),
        "requests_per_second_mean": round(mean_rate, 3),
        "requests_per_second_peak": round(peak_rate, 3),
        "peak_over_mean": round(peak_rate / mean_rate, 3),
        "arrival_cv_whole": round(gap_cv(arrived), 2),
        "arrival_cv_peak": round(gap_cv(peak), 2),
        "dispersion_per_second_peak": round(dispersion(peak, window_s), 1),
        "prompt_tokens": length_statistics(trace.prompt_tokens),
        "output_tokens": length_statistics(trace.output_tokens),
    }


def workload_at_peak(trace: Trace, window_s: float = WINDOW_S) -> dict[str, Any]:
    """Peak-window rate, burstiness inside that window, and the lengths of the whole trace."""
    stats = statistics(trace, window_s)
    return {
        "requests_per_second": max(stats["requests_per_second_peak"], 0.001),
        "arrival_cv": min(stats["arrival_cv_peak"], 100.0),
        "prompt_tokens": length_points(trace.prompt_tokens),
        "output_tokens": length_points(trace.output_tokens),
    }


def workload_on_means(trace: Trace) -> dict[str, Any]:
    """Mean rate, mean lengths, Poisson arrivals: everything a plan must not be built on."""
    return {
        "requests_per_second": round(len(trace) / trace.span_s, 3),
        "arrival_cv": 1.0,
        "prompt_tokens": round(float(trace.prompt_tokens.mean())),
        "output_tokens": round(float(trace.output_tokens.mean())),
    }
