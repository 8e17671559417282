"""GPUs of a plan against those of the published system that served the same load.

    python -m scripts.check_gpu_counts

Each server result of MLPerf in ``planner/calibration/throughput.csv`` is planned: its requests per
second, its limits of TTFT and TPOT at the 99th percentile, its GPU, engine and precision, no
headroom (a submission runs at the edge of its limits). Lengths have the measured mean and spread so
far that the longest of the data set is one in a thousand. Systems of one host, alike ones together.
Printed are the planned GPUs, the measured ones, and the share of results within one replica or
15 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

from planner.api.plan_schema import parse_plan
from planner.calibration.throughput import HOST_GPUS, ThroughputRow, read_throughput
from planner.catalog.book import Catalog
from planner.catalog.shipped import shipped_catalog
from planner.planning import make_plan

WITHIN = 0.15
TAIL = 2.2
"""95th percentile of a length over its mean where the longest is unknown or far away."""
LONGEST = {"llama-2-70b": (1024.0, 1024.0), "llama-3.1-405b": (20000.0, 2000.0),
           "llama-3.1-8b": (2540.0, 128.0)}
"""Longest prompt and output [token] of a model's data set: ``max_input_len`` and ``max_seq_len`` of
the engines that NVIDIA built for MLPerf Inference 5.1, and the limits of the reference code
(``seqlen_limit`` of OpenOrca, ``max_tokens``)."""
RARE, HIGH = 3.0902, 1.6449
"""Standard normal quantiles: one in a thousand, one in twenty."""


def main() -> None:
    """Print the comparison."""
    catalog = shipped_catalog()
    groups: dict[tuple[Any, ...], list[ThroughputRow]] = defaultdict(list)
    for row in read_throughput():
        if row.tpot_p99_ms and row.gpus == HOST_GPUS:
            groups[row.scenario, row.model, row.gpu, row.engine, row.weights,
                   row.tpot_p99_ms].append(row)
    near = planned = total = 0
    for key, rows in sorted(groups.items()):
        gpus, replica = planned_gpus(rows, catalog)
        hit = gpus is not None and abs(gpus - HOST_GPUS) <= max(replica, WITHIN * HOST_GPUS)
        near, total = near + hit * len(rows), total + len(rows)
        planned += (gpus is not None) * len(rows)
        print(*key[:5], f"{len(rows)} results:", "no option" if gpus is None else
              f"{gpus} GPUs planned in replicas of {replica}, {HOST_GPUS} measured",
              "" if hit else "<-")
    print(f"{total} results, {planned} with an option, {near} ({near / total:.0%}) within one "
          f"replica or {WITHIN:.0%}")


def planned_gpus(rows: list[ThroughputRow], catalog: Catalog) -> tuple[int | None, int]:
    """GPUs that a plan needs for the median of some results, and those of a replica."""
    head = rows[0]
    prompt, output, each = (float(np.median([getattr(r, name) for r in rows])) for name in (
        "prompt_tokens", "output_tokens", "output_tokens_per_s_per_gpu"))
    longest = LONGEST.get(head.model, (math.inf, math.inf))
    request = parse_plan({
        "model": head.model, "engine": head.engine, "gpus": [head.gpu], "advice": False,
        "workload": {"requests_per_second": each * HOST_GPUS / output,
                     "prompt_tokens": lengths(prompt, longest[0]),
                     "output_tokens": lengths(output, longest[1])},
        "slo": {"ttft_ms": head.ttft_p99_ms, "tpot_ms": head.tpot_p99_ms, "percentile": 99},
        "setups": ["chunked" if head.engine == "vllm" else "colocated"],
        "precisions": [{"weights": head.weights, "kv": head.kv or "fp8"}],
        "limits": {"target_utilization": 1.0}})
    options = make_plan(request, catalog).options
    if not options:
        return None, 0
    return int(options[0]["gpus"]), int(options[0]["pools"][0]["gpus_per_replica"])


def lengths(mean: float, longest: float) -> dict[str, float]:
    """Lognormal lengths of a mean [token] of which one in a thousand reaches the longest."""
    if longest <= mean * 1.02:
        return {"mean": mean}  # every answer stops at the limit
    spread = TAIL
    if math.isfinite(longest):
        sigma = RARE - math.sqrt(max(RARE ** 2 - 2.0 * math.log(longest / mean), 0.0))
        spread = min(math.exp(HIGH * sigma - sigma ** 2 / 2.0), TAIL)
    return {"mean": mean, "p95": spread * mean}


if __name__ == "__main__":
    main()
