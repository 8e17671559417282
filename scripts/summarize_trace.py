"""Turn a request trace into the ``workload`` of a plan request.

The trace is a CSV with one row a request: when it arrived, and its prompt and output tokens.
Column names are read leniently (``timestamp`` or ``arrived_at_s``; ``prompt_tokens`` or
``ContextTokens``; ``output_tokens`` or ``GeneratedTokens``); times are seconds or ISO 8601.

    python scripts/summarize_trace.py trace.csv                      # print workload + statistics
    python scripts/summarize_trace.py trace.csv --into plan.json     # put it into a plan request
    python scripts/summarize_trace.py trace.csv --on-means           # what planning on means sees
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]

COLUMNS = {
    "arrived_at_s": ("arrived_at_s", "timestamp", "arrival_time"),
    "prompt_tokens": ("prompt_tokens", "contexttokens", "input_length", "input_tokens"),
    "output_tokens": ("output_tokens", "generatedtokens", "output_length"),
}
BIN_EDGES = np.concatenate([
    [0.0], np.arange(0.025, 0.88, 0.05),
    [0.89, 0.91, 0.925, 0.94, 0.96, 0.97, 0.98, 0.988, 0.992, 0.996, 0.999, 0.9997, 1.0]])
"""Shares at which lengths are cut. The p50, p90, p95 and p99 lie in the middle of a bin, so that
the bin's mean stands for them; the tail is cut finer because it decides the wait."""
LINE_WIDTH = 90


@dataclass(frozen=True)
class Trace:
    """Arrival times [s], ascending from 0, and lengths [token] of the same requests."""

    arrived_at_s: Array
    prompt_tokens: Array
    output_tokens: Array


def read_trace(path: Path) -> Trace:
    """Read a trace; rows without a token on either side are refused.

    Raises
    ------
    ValueError
        When a column is missing, there are under three rows, or a length is below 1.
    """
    frame = pd.read_csv(path)
    frame.columns = [str(c).strip().lower() for c in frame.columns]
    columns = {name: frame[_find(frame, names)] for name, names in COLUMNS.items()}
    seconds = _seconds(columns["arrived_at_s"])
    order = np.argsort(seconds, kind="stable")
    prompt, output = (columns[c].to_numpy(dtype=float)[order]
                      for c in ("prompt_tokens", "output_tokens"))
    if len(seconds) < 3:
        raise ValueError("a trace needs at least three requests")
    if min(prompt.min(), output.min()) < 1:
        raise ValueError("prompt and output lengths must be at least one token")
    return Trace(seconds[order] - seconds.min(), prompt, output)


def _find(frame: pd.DataFrame, names: tuple[str, ...]) -> str:
    for name in names:
        if name in frame.columns:
            return name
    others = ", ".join(names[1:])
    raise ValueError(f"the trace has no column {names[0]!r} (also accepted: {others})")


def _seconds(column: pd.Series[Any]) -> Array:
    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column, dtype=np.float64)
    times = pd.to_datetime(column, format="ISO8601", utc=True)
    return np.asarray((times - times.min()).dt.total_seconds(), dtype=np.float64)


def gap_cv(arrived_at_s: Array) -> float:
    """Standard deviation over mean of the gaps between arrivals (1 = Poisson)."""
    gaps = np.diff(arrived_at_s)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else 1.0


def peak_window(arrived_at_s: Array, window_s: float) -> Array:
    """Arrivals of the busiest window; windows are laid end to end from the first arrival."""
    window = np.floor(arrived_at_s / window_s).astype(int)
    busiest: Array = arrived_at_s[window == np.bincount(window).argmax()]
    return busiest


def dispersion(arrived_at_s: Array, span_s: float) -> float:
    """Variance over mean of the arrivals per second (1 = Poisson, cv^2 = independent gaps)."""
    seconds = np.floor(arrived_at_s - np.floor(arrived_at_s[0] / span_s) * span_s).astype(int)
    counts = np.bincount(seconds, minlength=int(span_s))
    return float(counts.var() / counts.mean())


def length_points(tokens: Array) -> list[dict[str, float]]:
    """Cut lengths at :data:`BIN_EDGES`; each bin becomes its mean [token] and its share."""
    values = np.sort(tokens)
    cuts = np.unique(np.round(BIN_EDGES * len(values)).astype(int))
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


def statistics(trace: Trace, window_s: float) -> dict[str, Any]:
    """Counts, rates, burstiness and lengths of a trace."""
    arrived = trace.arrived_at_s
    peak = peak_window(arrived, window_s)
    mean_rate, peak_rate = len(arrived) / arrived[-1], len(peak) / window_s
    return {
        "requests": len(arrived),
        "span_s": round(float(arrived[-1]), 3),
        "requests_per_second_mean": round(float(mean_rate), 3),
        "requests_per_second_peak": round(peak_rate, 3),
        "peak_over_mean": round(float(peak_rate / mean_rate), 3),
        "arrival_cv_whole": round(gap_cv(arrived), 2),
        "arrival_cv_peak": round(gap_cv(peak), 2),
        "dispersion_per_second_peak": round(dispersion(peak, window_s), 1),
        "prompt_tokens": length_statistics(trace.prompt_tokens),
        "output_tokens": length_statistics(trace.output_tokens),
    }


def workload_at_peak(trace: Trace, window_s: float) -> dict[str, Any]:
    """Peak-window rate, burstiness inside that window, and the lengths of the whole trace."""
    stats = statistics(trace, window_s)
    return {
        "requests_per_second": stats["requests_per_second_peak"],
        "arrival_cv": stats["arrival_cv_peak"],
        "prompt_tokens": length_points(trace.prompt_tokens),
        "output_tokens": length_points(trace.output_tokens),
    }


def workload_on_means(trace: Trace) -> dict[str, Any]:
    """Mean rate, mean lengths, Poisson arrivals: everything a plan must not be built on."""
    return {
        "requests_per_second": round(float(len(trace.arrived_at_s) / trace.arrived_at_s[-1]), 3),
        "arrival_cv": 1.0,
        "prompt_tokens": round(float(trace.prompt_tokens.mean())),
        "output_tokens": round(float(trace.output_tokens.mean())),
    }


def to_json(value: Any, indent: int = 0) -> str:
    """JSON with every object and list on one line where it fits, so that a plan stays readable."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or 0 < indent <= LINE_WIDTH - len(flat):
        return flat
    pad, close = " " * (indent + 2), "\n" + " " * indent
    if isinstance(value, dict):
        rows = [f"{pad}{json.dumps(k)}: {to_json(v, indent + 2)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + close + "}"
    return "[\n" + ",\n".join(pad + to_json(v, indent + 2) for v in value) + close + "]"


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    options = _parse(arguments)
    try:
        trace = read_trace(options.trace)
    except (OSError, ValueError) as error:
        print(f"{options.trace}: {error}", file=sys.stderr)
        return 2
    workload = (workload_on_means(trace) if options.on_means
                else workload_at_peak(trace, options.window_s))
    if options.into:
        plan = json.loads(options.into.read_text(encoding="utf-8"))
        plan["workload"] = {**plan.get("workload", {}), **workload}
        options.into.write_text(to_json(plan) + "\n", encoding="utf-8")
    else:
        print(to_json({"workload": workload, "statistics": statistics(trace, options.window_s)}))
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Turn a request trace into the workload of a plan request.")
    parser.add_argument("trace", type=Path, help="CSV: timestamp, prompt_tokens, output_tokens")
    parser.add_argument("--into", type=Path, metavar="PLAN.json",
                        help="replace these workload fields of a plan request")
    parser.add_argument("--on-means", action="store_true",
                        help="mean rate, mean lengths, Poisson arrivals, for comparison")
    parser.add_argument("--window-s", type=float, default=60.0,
                        help="length of the peak window in seconds (default 60)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
