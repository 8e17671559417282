"""Money: what a fleet costs per hour, month, request and million tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.fleet import Fleet
from planner.requests import PlanRequest
from planner.setups.disaggregated import PrefillPool
from planner.setups.static import Static
from planner.sizing import Pool
from planner.units import SECONDS_PER_HOUR, TOKENS_PER_MILLION


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a fleet [USD] at the workload's actual rate, None without a price.

    ``input x usd_per_million_input + output x usd_per_million_output`` is the whole cost: it is
    shared out by the GPU time that prefill and decode take.
    """

    usd_per_hour: float | None
    usd_per_month: float | None
    usd_per_request: float | None
    usd_per_million_tokens: float | None
    usd_per_million_input_tokens: float | None
    usd_per_million_output_tokens: float | None
    usd_per_million_output_tokens_all_in: float | None
    energy_usd_per_hour: float | None


def fleet_cost(fleet: Fleet, request: PlanRequest, usd_per_gpu_hour: Mapping[str, float],
               power_kw: float | None) -> Cost:
    """Cost of a fleet, GPUs times their price.

    Requests and tokens are counted at the mean rate of the day where the request gives one, else
    at the peak; idle capacity is paid for either way.
    """
    energy = None if power_kw is None else power_kw * request.pricing.pue * (
        request.pricing.usd_per_kwh)
    kinds = fleet.gpus_by_kind()
    if any(slug not in usd_per_gpu_hour for slug in kinds):
        return Cost(None, None, None, None, None, None, None, energy)
    hourly = sum(n * usd_per_gpu_hour[slug] for slug, n in kinds.items())
    workload = request.workload
    rate = workload.mean_requests_per_s or workload.requests_per_s
    per_request = hourly / (rate * SECONDS_PER_HOUR)
    prompt, output = workload.prompt.mean, workload.output.mean
    prefill = prefill_share(fleet)
    return Cost(
        hourly, hourly * request.pricing.utilization_hours_per_month, per_request,
        per_request / (prompt + output) * TOKENS_PER_MILLION,
        per_request * prefill / prompt * TOKENS_PER_MILLION,
        per_request * (1.0 - prefill) / output * TOKENS_PER_MILLION,
        per_request / output * TOKENS_PER_MILLION, energy)


def prefill_share(fleet: Fleet) -> float:
    """Share of the cost that the prompts cause: GPU time of prefills over all GPU time."""
    if len(fleet.pools) == 2:
        by_role = {p.pool.role: float(p.gpus) for p in fleet.pools}
        return by_role["prefill"] / (by_role["prefill"] + by_role["decode"])
    pool = fleet.pools[0].pool
    prefill_s, decode_s = request_work_s(pool, fleet.sized.latencies.mean_running)
    return prefill_s / (prefill_s + decode_s)


def request_work_s(pool: Pool, running: float) -> tuple[float, float]:
    """Replica seconds [s] that one request takes in prefill and in decode at a batch size."""
    table = pool.table
    prefill = float(table.prefill_s @ table.prompt_weights) * table.occupancy
    n = max(min(round(running), len(table.n)), 1)
    decode = table.workload.output.mean * float(table.decode_s[n - 1]) / n
    if isinstance(pool.source, Static):
        prefill = float(pool.source.prefill_s[min(n, len(pool.source.n)) - 1]) / n
    if isinstance(pool.source, PrefillPool):
        decode = 0.0
    return prefill, decode
