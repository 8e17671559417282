"""Turn a request trace into the ``workload`` of a plan request.

The trace is a CSV with one row a request: when it arrived, and its prompt and output tokens, or
JSON lines; the column names of published traces are recognised (``planner.traces.columns``), and
gzip is.

    python scripts/summarize_trace.py trace.csv                      # print workload + statistics
    python scripts/summarize_trace.py trace.csv --into plan.json     # put it into a plan request
    python scripts/summarize_trace.py trace.csv --on-means           # what planning on means sees
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from planner.traces.reader import read_trace
from planner.traces.statistics import statistics, workload_at_peak, workload_on_means
from planner.traces.stream import ReadLimits
from planner.traces.trace import Trace

LINE_WIDTH = 90
LIMITS = ReadLimits(rows=100_000_000, size_bytes=100_000_000_000)
"""A file of one's own may be as large as the memory allows."""


def load_trace(path: Path, skip_empty: bool) -> Trace:
    """Read a trace file."""
    with path.open("rb") as stream:
        return read_trace(stream, LIMITS, skip_empty)


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
        trace = load_trace(options.trace, options.skip_empty)
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
    parser.add_argument("--skip-empty", action="store_true",
                        help="leave out rows without a token: requests that failed")
    parser.add_argument("--window-s", type=float, default=60.0,
                        help="length of the peak window in seconds (default 60)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
