"""Reports of GuideLLM (``benchmarks.json``): one point for each benchmark of the run.

Up to 0.3 a benchmark has ``args.strategy``, ``worker`` and ``request_totals``; from 0.4 the same
are ``config.strategy``, ``config.backend`` and ``metrics.request_totals``. The statistics under
``metrics`` keep their names. GuideLLM's *time per output token* counts the first token in; the
planner's TPOT is its *inter-token latency*.

Source: ``src/guidellm/benchmark/benchmark.py`` (0.2, 0.3) and
``src/guidellm/benchmark/schemas/metrics.py`` in https://github.com/vllm-project/guidellm
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.calibration.points import MeasuredPoint
from planner.calibration.readers.entry import Entry, epoch_date
from planner.units import ms_to_s


def matches(record: Mapping[str, Any]) -> bool:
    """Whether an object is such a report."""
    return isinstance(record.get("benchmarks"), list)


def read(entry: Entry) -> list[MeasuredPoint]:
    """A point for each benchmark of a report."""
    points = []
    for index, benchmark in enumerate(entry.values["benchmarks"]):
        where = f"{entry.where}:benchmarks[{index}]"
        if not isinstance(benchmark, Mapping):
            raise Entry(where).error("benchmark", "must be an object")
        points.append(_point(Entry(where, benchmark)))
    return points


def _point(entry: Entry) -> MeasuredPoint:
    metrics = entry.child("metrics")
    concurrency, rate = _load(entry)
    return MeasuredPoint(
        prompt_tokens=_needed(metrics, "prompt_token_count"),
        output_tokens=_needed(metrics, "output_token_count"),
        ttft_s=ms_to_s(_needed(metrics, "time_to_first_token_ms")),
        tpot_s=ms_to_s(_needed(metrics, "inter_token_latency_ms")), source=entry.where,
        model=entry.child("config", "backend").text("model")
        or entry.child("worker").text("backend_model"),
        concurrency=concurrency, requests_per_second=rate,
        mean_running=_mean(metrics, "request_concurrency"),
        output_tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        request_throughput=_mean(metrics, "requests_per_second"),
        e2e_s=_mean(metrics, "request_latency"), duration_s=entry.number("duration"),
        requests=_completed(entry), date=epoch_date(entry.number("start_time")))


def _load(entry: Entry) -> tuple[float | None, float | None]:
    """Cap on the requests in flight and offered rate [1/s] of a scheduling strategy."""
    old, new = entry.child("args", "strategy"), entry.child("config", "strategy")
    strategy = new if new.values else old
    kind = strategy.text("type_")
    if kind == "synchronous":
        return 1.0, None
    if kind == "concurrent":
        return strategy.required("streams"), None
    if kind in ("constant", "poisson"):
        return strategy.number("max_concurrency"), strategy.required("rate")
    # "throughput" sends all at once up to its cap; "trace" replays: neither offers a steady rate.
    return (strategy.number("max_concurrency") if kind == "throughput" else None), None


def _completed(entry: Entry) -> float | None:
    old, new = entry.child("request_totals"), entry.child("metrics", "request_totals")
    return new.number("successful") if new.values else old.number("successful")


def _mean(metrics: Entry, name: str) -> float | None:
    """Mean over the successful requests, None where the statistic is missing."""
    return metrics.child(name, "successful").number("mean")


def _needed(metrics: Entry, name: str) -> float:
    """A mean that must be there; 0 when no request succeeded (screening lists that)."""
    if name in metrics.values and metrics.child(name).values.get("successful") is None:
        return 0.0
    return metrics.child(name, "successful").required("mean")
