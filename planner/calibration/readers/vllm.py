"""Results of ``vllm bench serve`` and of the older ``benchmark_serving.py``.

A JSON object for each run, one a file or appended one after another (``--append-result``), or the
list that ``vllm bench sweep`` collects. The file names neither GPU nor precision nor layout, unless
``--metadata gpu=... tensor_parallel_size=...`` added them; those pairs are read too.

Source: ``main_async`` and ``benchmark`` in
https://github.com/vllm-project/vllm/blob/main/vllm/benchmarks/serve.py and ``main`` in
``benchmarks/benchmark_serving.py`` of the releases before 0.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.calibration.points import MeasuredPoint
from planner.calibration.readers.columns import deployment_of
from planner.calibration.readers.entry import Entry, iso_date
from planner.calibration.readers.names import engine_of
from planner.calibration.readers.serving import (
    latency,
    mean_latency,
    offered_rate,
    tokens_per_request,
)


def matches(record: Mapping[str, Any]) -> bool:
    """Whether an object is such a result."""
    return "request_throughput" in record and "model_id" in record


def read(entry: Entry) -> list[MeasuredPoint]:
    """The point of one result."""
    ttft_s, ttft_statistic = latency(entry, "ttft")
    tpot_s, tpot_statistic = latency(entry, "tpot")
    # A rate that ramps up has no steady state: the point keeps no load, screening lists it.
    steady = entry.text("ramp_up_strategy") is None
    described = deployment_of(entry)
    described.setdefault("engine", engine_of(entry.first("backend", "endpoint_type")))
    described["model"] = entry.text("model_id")
    return [MeasuredPoint(
        prompt_tokens=tokens_per_request(entry, "total_input_tokens"),
        output_tokens=tokens_per_request(entry, "total_output_tokens"),
        ttft_s=ttft_s, ttft_statistic=ttft_statistic,
        tpot_s=tpot_s, tpot_statistic=tpot_statistic, source=entry.where,
        concurrency=entry.number("max_concurrency") if steady else None,
        requests_per_second=offered_rate(entry) if steady else None,
        output_tokens_per_s=entry.number("output_throughput"),
        request_throughput=entry.number("request_throughput"),
        e2e_s=mean_latency(entry, "e2el"), duration_s=entry.number("duration"),
        requests=entry.number("completed"),
        speculative=entry.number("spec_decode_acceptance_length") is not None,
        date=iso_date(entry.text("date")), **described)]
