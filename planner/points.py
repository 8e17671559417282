"""Operating points as rows: what a replica would do at each batch size (or utilisation).

These rows are the plan's workings: the API returns them and the workbook prints them. Each row is
the mean field of its batch size: the arrival rate that would keep exactly that batch running.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from planner.arrivals import split_arrival_cv2
from planner.queueing import sum_percentiles
from planner.requests import PlanRequest
from planner.roofline import StepBatch
from planner.setups.base import Table
from planner.setups.chunked import Chunked
from planner.setups.colocated import Colocated
from planner.setups.disaggregated import DecodePool, PrefillPool
from planner.setups.static import Static
from planner.sizing import Pool, Sized
from planner.units import bytes_to_gib, s_to_ms

COLUMNS = ("option_rank", "setup", "role", "gpu", "weights", "kv", "tensor_parallel",
           "pipeline_parallel", "expert_parallel", "data_parallel", "token_budget", "batch_size",
           "utilization", "requests_per_s", "step_ms", "tpot_ms", "itl_ms", "ttft_ms",
           "kv_gib_per_gpu", "kv_pool_share", "mfu", "mbu", "bound", "share_of_time", "feasible")
"""Columns of every operating-point row; a field that a role has not is null."""
UTILIZATIONS = tuple(x / 100.0 for x in range(5, 100, 5))
"""Utilisations of a prefill pool's rows."""


def rows(request: PlanRequest, options: list[Sized]) -> list[list[Any]]:
    """All operating points of all options, in the order of :data:`COLUMNS`."""
    found = []
    for rank, option in enumerate(options, start=1):
        for pool in option.pools:
            head = _head(rank, option, pool)
            for row in _pool_rows(request, pool):
                row = {**head, **row}
                found.append([row.get(name) for name in COLUMNS])
    return found


def _head(rank: int, option: Sized, pool: Pool) -> dict[str, Any]:
    d = pool.deployment
    return {"option_rank": rank, "setup": option.setup, "role": pool.role, "gpu": d.gpu.slug,
            "weights": d.weights, "kv": d.kv, "tensor_parallel": d.layout.tensor,
            "pipeline_parallel": d.layout.pipeline, "expert_parallel": d.layout.expert,
            "data_parallel": d.layout.data, "token_budget": pool.token_budget}


def _pool_rows(request: PlanRequest, pool: Pool) -> Iterator[dict[str, Any]]:
    if isinstance(pool.source, PrefillPool):
        yield from _prefill_rows(request, pool, pool.source)
        return
    table = pool.table
    caps = pool.source.caps
    step = table.model.step(StepBatch(decodes=caps.astype(float),
                                      context=table.workload.running_context,
                                      tokens_per_decode=table.tokens_per_decode))
    share = _time_shares(request, pool)
    for i, cap in enumerate(caps):
        n = int(cap)
        row = _serving_row(pool, n)
        if not table.workload.output.several:
            row.update(tpot_ms=None, itl_ms=None)
        kv = _kv_bytes(table, n)
        row.update(batch_size=n, step_ms=s_to_ms(float(step.seconds[i])),
                   kv_gib_per_gpu=bytes_to_gib(kv),
                   kv_pool_share=kv / table.memory.kv_pool_bytes,
                   mfu=float(step.mfu[i]), mbu=float(step.mbu[i]), bound=str(step.bound[i]),
                   share_of_time=share[n - 1] if n <= len(share) else 0.0)
        row["feasible"] = _meets(request, row)
        yield row


def _kv_bytes(table: Table, n: int) -> float:
    from planner.memory import sequence_bytes_per_gpu

    each = sequence_bytes_per_gpu(table.deployment, table.workload.running_context)
    return each * n / table.deployment.layout.data


def _time_shares(request: PlanRequest, pool: Pool) -> list[float]:
    """Share of time that a replica spends at each batch size at the peak."""
    rate = request.workload.requests_per_s / pool.replicas
    cv2 = split_arrival_cv2(request.workload.arrival_cv, pool.replicas)
    source = pool.source
    if isinstance(source, DecodePool):
        return [float(x) for x in source.chain(rate, cv2).distribution(pool.batch_size)]
    if isinstance(source, Colocated | Chunked):
        chain = source.chain(rate, cv2)
        return [] if chain is None else [float(x) for x in chain.distribution(pool.batch_size)]
    return []


def _serving_row(pool: Pool, n: int) -> dict[str, Any]:
    """Rate and latencies of the mean field at batch ``n``."""
    source, table = pool.source, pool.table
    output = table.workload.output.mean
    if isinstance(source, Static):
        cycle = float(source.cycle_s[n - 1])
        return {"requests_per_s": n / cycle, "utilization": 1.0,
                "tpot_ms": s_to_ms(float(source.decode_s[n - 1])),
                "itl_ms": s_to_ms(float(table.step_s[n - 1])),
                "ttft_ms": s_to_ms(cycle / 2.0 + float(source.prefill_s[n - 1]))}
    if isinstance(source, DecodePool):
        step = float(source.token_s[n - 1])
        return {"requests_per_s": n / (output * step), "tpot_ms": s_to_ms(step),
                "itl_ms": s_to_ms(float(source.step_s[n - 1])), "utilization": 1.0}
    assert isinstance(source, Colocated | Chunked)
    rate, tpot_s, gap_s, load = source.mean_field(n)
    wait, latency = source.prefill(rate, 1.0, np.array([float(n)]))
    ttft = float(wait.mean_s[0]) + float(latency[0] @ table.prompt_weights)
    return {"requests_per_s": rate, "utilization": load, "tpot_ms": s_to_ms(tpot_s),
            "itl_ms": s_to_ms(gap_s), "ttft_ms": s_to_ms(ttft) if math.isfinite(ttft) else None}


def _meets(request: PlanRequest, row: dict[str, Any]) -> bool:
    """Whether the row's mean latencies are within the targets and its cache within the pool."""
    if row["kv_pool_share"] > 1.0:
        return False
    for slo in request.workload.targets:
        value = row.get(f"{slo.metric}_ms", 0.0 if slo.metric == "e2e" else None)
        if value is not None and value > s_to_ms(slo.limit_s):
            return False
    return True


def _prefill_rows(request: PlanRequest, pool: Pool, source: PrefillPool
                  ) -> Iterator[dict[str, Any]]:
    table = pool.table
    weights = table.prompt_weights
    cv2 = split_arrival_cv2(request.workload.arrival_cv, pool.replicas)
    target = request.workload.slo("ttft")
    level = target.percentile if target else 90.0
    mean = float(source.service_s @ weights)
    step = table.model.step(StepBatch(prefill_tokens=table.workload.new_prompt.mean
                                      * source.batch, prefill_sequences=float(source.batch)))
    for rho in UTILIZATIONS:
        rate = rho / mean
        wait = source.wait(rate, cv2)
        late = sum_percentiles(wait, source.latency_s, weights, (level,))[0]
        yield {"batch_size": source.batch, "utilization": rho, "requests_per_s": rate,
               "step_ms": s_to_ms(float(source.pass_s @ weights)), "ttft_ms": s_to_ms(late),
               "mfu": float(step.mfu), "mbu": float(step.mbu), "bound": str(step.bound),
               "feasible": target is None or late <= target.limit_s}
