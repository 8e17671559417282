"""Planning results as the plain documents of the API contract (units in the names)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from planner.catalog.book import PriceChoice
from planner.cost import Cost, fleet_cost
from planner.drafting import drafted_step
from planner.engine import MEMORY_SCOPES, EngineProfile
from planner.fleet import Fleet, FleetPool
from planner.memory import MemoryBudget, sequence_bytes_per_gpu
from planner.pricing import whole_instances_usd
from planner.profile_scope import confidence_of
from planner.requests import PlanRequest
from planner.roofline import StepBatch
from planner.setups.base import Latencies
from planner.setups.disaggregated import DecodePool, PrefillPool
from planner.setups.static import Static
from planner.sizing import Miss, Pool, Source, first_failure
from planner.units import bytes_to_gib, s_to_ms
from planner.workload import REFERENCE_TOKENS

BARELY_OVER = 1e-3
"""Share of a target by which a percentile may be above it: how finely they are read off."""


def latency_ms(figure: Mapping[str, float]) -> dict[str, float | None]:
    """A latency figure in milliseconds, the contract's percentiles only."""
    keys = ("mean", "p50", "p90", "p95", "p99")
    return {k: s_to_ms(figure[k]) if math.isfinite(figure[k]) else None for k in keys}


def memory_document(memory: MemoryBudget, max_sequences: int | None = None) -> dict[str, Any]:
    """Every line of the memory budget [GiB]; the pool is signed."""
    return {
        "physical_gib": bytes_to_gib(memory.physical_bytes),
        "usable_gib": bytes_to_gib(memory.usable_bytes),
        "weights_gib": bytes_to_gib(memory.weights_bytes),
        "activation_gib": bytes_to_gib(memory.activation_bytes),
        "runtime_gib": bytes_to_gib(memory.runtime_bytes),
        "graphs_gib": bytes_to_gib(memory.graph_bytes),
        "draft_gib": bytes_to_gib(memory.draft_bytes),
        "kv_pool_gib": bytes_to_gib(memory.kv_pool_bytes),
        "kv_bytes_per_token": memory.bytes_per_token,
        "kv_reserved_bytes_per_token": memory.reserved_bytes_per_token,
        "kv_tokens": memory.kv_tokens,
        "max_sequences": max_sequences,
        "fits": memory.fits,
    }


def option_document(rank: int, fleet: Fleet, request: PlanRequest,
                    prices: dict[str, PriceChoice]) -> dict[str, Any]:
    """One option of a plan."""
    sized, seen = fleet.sized, fleet.sized.latencies
    usd = {slug: float(p.price.usd_per_gpu_hour) for slug, p in prices.items()}
    power = fleet.power_kw(request.power_cap_w)
    cost = fleet_cost(fleet, request, usd, power)
    limiting = limiting_pool(fleet, request)
    return {
        "rank": rank, "setup": sized.setup, "weights": sized.weights, "kv": sized.kv,
        "gpus": fleet.gpus, "gpus_by_kind": fleet.gpus_by_kind(), "nodes": fleet.nodes,
        "gpus_in_whole_nodes": fleet.gpus_in_whole_nodes, "regions": fleet.regions,
        "pools": [pool_document(p, seen) for p in fleet.pools],
        "ttft_ms": latency_ms(seen.ttft_s), "tpot_ms": latency_ms(seen.tpot_s),
        "itl_ms": latency_ms(seen.itl_s), "e2e_ms": latency_ms(seen.e2e_s),
        **_disaggregated_latencies(seen),
        "headroom": headroom(seen, request), "warnings": warnings(seen, request),
        "limited_by": limiting[0], "limited_by_pool": limiting[1],
        "bound": bounds(fleet), **_money(cost),
        "usd_per_hour_whole_instances": whole_instances_usd(fleet, prices), "power_kw": power,
        "prices": [price_document(prices[s]) for s in fleet.gpus_by_kind() if s in prices],
        "confidence": confidence(fleet, request),
    }


def _money(cost: Cost) -> dict[str, float | None]:
    return asdict(cost)


def _disaggregated_latencies(seen: Latencies) -> dict[str, Any]:
    """``prefill_done_ms`` (first token from the prefill side) and the KV transfer, if any."""
    if "transfer_mean_s" not in seen.extra:
        return {}
    done = {"mean": seen.extra["prefill_done_mean_s"]}
    for key in ("p50", "p90", "p95", "p99"):
        done[key] = seen.extra[f"prefill_done_{key}_s"]
    return {"prefill_done_ms": latency_ms(done),
            "kv_transfer_ms": s_to_ms(seen.extra["transfer_mean_s"])}


def _running(pool: Pool, seen: Latencies) -> dict[str, float | None]:
    """Sequences that decode at once on a replica at the peak, and the cache they fill."""
    if pool.role == "prefill":
        return {"concurrency_mean": None, "kv_used_share": None}
    table = pool.table
    each = sequence_bytes_per_gpu(table.deployment, table.workload.running_context)
    used = seen.mean_running / table.deployment.layout.data * each
    return {"concurrency_mean": seen.mean_running,
            "kv_used_share": used / table.memory.kv_pool_bytes}


def pool_document(fleet_pool: FleetPool, seen: Latencies) -> dict[str, Any]:
    """One pool of an option."""
    pool, d = fleet_pool.pool, fleet_pool.pool.deployment
    return {
        "role": pool.role, "gpu": d.gpu.slug, "tensor_parallel": d.layout.tensor,
        "pipeline_parallel": d.layout.pipeline, "expert_parallel": d.layout.expert,
        "data_parallel": d.layout.data, "gpus_per_replica": d.layout.gpus,
        "replicas": fleet_pool.replicas,
        "spare_replicas": fleet_pool.spare_replicas, "gpus": fleet_pool.gpus,
        "batch_size": pool.batch_size, "token_budget": pool.token_budget,
        "admission_share": (pool.source.admission_share if isinstance(pool.source, DecodePool)
                            else None),
        **_running(pool, seen),
        "requests_per_s_per_replica": pool.rate_per_s / pool.replicas,
        "capacity_rps": pool.capacity_rps, "utilization": fleet_pool.utilization,
        "engine": d.profile.slug,
        "memory": memory_document(pool.table.memory, pool.table.memory_cap),
    }


def price_document(choice: PriceChoice) -> dict[str, Any]:
    """The price row that was used, and how far the market's rows spread."""
    price = choice.price
    return {"id": price.id, "gpu": price.gpu, "provider": price.provider, "region": price.region,
            "instance": price.instance, "commitment": price.commitment,
            "usd_per_gpu_hour": float(price.usd_per_gpu_hour), "as_of": price.as_of,
            "source": price.source, "notes": price.notes,
            "gpus_per_instance": price.gpus_per_instance,
            "usd_per_gpu_hour_low": float(choice.low),
            "usd_per_gpu_hour_high": float(choice.high), "providers": choice.providers}


def headroom(seen: Latencies, request: PlanRequest) -> dict[str, float]:
    """Share of each target that is left at its percentile: 0 = at the limit."""
    left = {}
    for slo in request.workload.targets:
        value = seen.of(slo.metric).get(f"p{slo.percentile:g}")
        if value is not None and math.isfinite(value):
            left[slo.metric] = 1.0 - value / slo.limit_s
    return left


def missed_targets(seen: Latencies, request: PlanRequest) -> list[str]:
    """Metrics whose promise at the percentile of their target is above it.

    A pool for answers of less than :data:`REFERENCE_TOKENS` is sized for the TPOT of answers of
    that mean; its own may promise more.
    """
    return [metric for metric, left in headroom(seen, request).items() if left < -BARELY_OVER]


def warnings(seen: Latencies, request: PlanRequest) -> list[str]:
    """What an option does not keep: a sentence each, and why where that is known."""
    missed, found = missed_targets(seen, request), []
    for slo in request.workload.targets:
        if slo.metric not in missed:
            continue
        value = seen.of(slo.metric)[f"p{slo.percentile:g}"]
        words = (f"{slo.metric.upper()} p{slo.percentile:g} is {s_to_ms(value):.1f} ms, above its "
                 f"target of {s_to_ms(slo.limit_s):g} ms.")
        if (slo.metric == "tpot" and request.workload.output.mean < REFERENCE_TOKENS
                and request.limits.max_sequences != 1):  # alone nothing waits for another prompt
            words += (f" The pool is sized for answers of {REFERENCE_TOKENS:g} tokens; in answers "
                      f"of {request.workload.output.mean:.0f} the wait for another prompt spreads "
                      "over fewer tokens. Two pools, smaller chunks, other layouts or more "
                      "replicas lower it; verify finds which.")
        found.append(words)
    return found


def limiting_pool(fleet: Fleet, request: PlanRequest) -> tuple[str, str]:
    """What sets the capacity, and in which pool: that of the pool with the most GPUs.

    ``memory`` only where more cache would raise the throughput of a replica.
    """
    largest = max(fleet.pools, key=lambda p: p.gpus).pool
    failed = first_failure(_check_of(largest.source), request, largest) or "throughput"
    if failed == "throughput" and more_cache_helps(largest):
        failed = "memory"
    return failed, largest.role


def more_cache_helps(pool: Pool) -> bool:
    """Whether twice the batch would carry 5 % more, where memory caps the batch.

    The step of twice the batch is extrapolated linearly: D(2n) = D(n) + 2 (D(n) - D(n/2)).
    """
    source, table = pool.source, pool.table
    allowed = pool.deployment.profile.default_max_sequences * pool.deployment.layout.data
    if isinstance(source, PrefillPool | Static) or table.memory_cap >= allowed:
        return False
    if not source.caps.size or pool.batch_size < int(source.caps[-1]):
        return False
    n = pool.batch_size
    step = float(table.decode_s[n - 1])
    half = float(table.decode_s[max(n // 2, 1) - 1])
    prefill = 0.0 if isinstance(source, DecodePool) else (
        float(table.prefill_s @ table.prompt_weights) * table.occupancy)
    output = table.workload.output.mean
    now = n / (output * step + n * prefill)
    then = 2 * n / (output * (step + 2.0 * (step - half)) + 2 * n * prefill)
    return then > 1.05 * now


def _check_of(source: Source) -> Any:
    return source.check


def bounds(fleet: Fleet) -> dict[str, str]:
    """Which roof binds a prefill of a mean prompt and a decode step at the mean batch."""
    prefill, decode = fleet.pools[0].pool, fleet.pools[-1].pool
    workload = prefill.table.workload
    first = drafted_step(prefill.table.model, StepBatch(
        tokens_per_decode=prefill.table.tokens_per_decode,
        prefill_tokens=workload.new_prompt.mean, prefill_sequences=1.0))
    running = max(fleet.sized.latencies.mean_running, 1.0)
    later = drafted_step(decode.table.model, StepBatch(
        decodes=running, context=workload.running_context,
        tokens_per_decode=decode.table.tokens_per_decode))
    return {"prefill": str(first.bound), "decode": str(later.bound)}


def confidence(fleet: Fleet, request: PlanRequest) -> dict[str, Any]:
    """How sure the option is, and the GPUs if step times were off by the profile's error."""
    sure = confidence_of([p.pool.deployment for p in fleet.pools])
    error = sure["tpot_error"]
    return {**sure,
            "gpus_low": _gpus_at(fleet, request, 1.0 + error),
            "gpus_high": _gpus_at(fleet, request, 1.0 / (1.0 + error))}


def _gpus_at(fleet: Fleet, request: PlanRequest, scale: float) -> int:
    """GPUs of the fleet when every replica carries ``scale`` times its capacity."""
    total = 0
    for p in fleet.pools:
        room = p.pool.capacity_rps * scale * request.limits.target_utilization
        replicas = max(1, math.ceil(p.pool.rate_per_s / room - 1e-9)) if room > 0 else 0
        if (scale > 1.0) == (replicas > p.pool.replicas):
            replicas = p.pool.replicas
        total += (replicas + p.spare_replicas) * p.pool.deployment.layout.gpus
    return total * fleet.regions


def miss_document(miss: Miss) -> dict[str, Any]:
    """One combination that cannot work."""
    return {"setup": miss.setup, "gpu": miss.gpu, "weights": miss.weights,
            "tensor_parallel": miss.layout.tensor, "pipeline_parallel": miss.layout.pipeline,
            "expert_parallel": miss.layout.expert, "data_parallel": miss.layout.data,
            "reason": miss.reason, "detail": miss.detail}


def profile_assumptions(profile: EngineProfile) -> list[dict[str, Any]]:
    """The factors of an engine profile as assumption rows."""
    source = f"{profile.slug} ({profile.obtained}, {profile.as_of}): {profile.source}"
    rows = (("mfu", profile.mfu, "share of dense peak"),
            ("mbu", profile.mbu, "share of memory bandwidth"),
            ("expert_mfu", profile.expert_mfu, "share of dense peak"),
            ("expert_mbu", profile.expert_mbu, "share of memory bandwidth"),
            ("attention_mfu", profile.attention_mfu, "share of dense peak"),
            ("attention_mbu", profile.attention_mbu, "share of memory bandwidth"),
            ("link_efficiency", profile.link_efficiency, "share of link bandwidth"),
            ("collective_latency_us", profile.collective_latency_s * 1e6, "us"),
            ("layer_overhead_us", profile.layer_s * 1e6, "us per dense layer and step"),
            ("moe_layer_overhead_us", profile.moe_layer_s * 1e6, "us per MoE layer and step"),
            ("latent_layer_overhead_us", profile.latent_layer_s * 1e6, "us more per MLA layer"),
            ("recurrent_layer_overhead_us", profile.recurrent_layer_s * 1e6,
             "us more per recurrent layer"),
            ("sequence_overhead_us", profile.sequence_s * 1e6, "us per sequence and step"),
            ("step_overhead_ms", s_to_ms(profile.step_s), "ms per step"),
            ("request_overhead_ms", s_to_ms(profile.request_s), "ms per request"),
            ("memory_utilization", profile.memory_utilization, MEMORY_SCOPES[profile.memory_scope]))
    return [{"name": f"{profile.slug}.{name}", "value": value, "unit": unit, "source": source}
            for name, value, unit in rows]
