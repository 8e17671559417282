"""Whole numbers: the fewest replicas of a pool whose latencies hold at the peak, and its capacity.

Every question to a pool is "does this arrival rate hold?", which is monotone in the rate, so both
answers come by doubling and bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.arrivals import split_arrival_cv2
from planner.engine import EngineProfile
from planner.hardware import Gpu
from planner.llm import Llm
from planner.requests import Layout, PlanRequest
from planner.roofline import Deployment
from planner.setups.base import Latencies, Table, Verdict
from planner.setups.chunked import Chunked
from planner.setups.colocated import Colocated
from planner.setups.disaggregated import DecodePool, PrefillPool
from planner.setups.static import Static

IDLE_RATE_PER_S = 1e-9
"""[1/s] that stands for zero load: what fails here no number of replicas can mend."""

Serving = Static | Colocated | Chunked
Source = Serving | PrefillPool | DecodePool
Check = Callable[[float, float], Verdict]


@dataclass(frozen=True, slots=True)
class Resources:
    """Catalog values a plan works with."""

    llm: Llm
    gpus: tuple[Gpu, ...]
    profiles: Mapping[tuple[str, str], EngineProfile]
    """By GPU slug and weight precision."""
    usd_per_gpu_hour: Mapping[str, float]
    """Missing for a GPU without a price."""
    usd_by_stage: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """USD per GPU-hour by GPU slug and the GPUs of a stage, which must sit in one instance."""
    draft: Llm | None = None
    unfit: Mapping[str, str] = field(default_factory=dict)
    """By GPU slug: why the engine cannot stand for it."""
    tables: dict[object, Table] = field(default_factory=dict, compare=False, repr=False)
    """Tables that were built for this plan, so that its levers need not build them again."""


    def usd_per_hour(self, gpu: Gpu, layout: Layout, gpus: int) -> float:
        """Cost [USD/h] of so many GPUs in a layout, infinite where no price is known."""
        return gpus * self.usd_by_stage.get((gpu.slug, stage_gpus(gpu, layout)), math.inf)


@dataclass(frozen=True, slots=True)
class Pool:
    """One sized pool: its deployment, replicas and the batch limit that serves the load."""

    role: str
    table: Table
    replicas: int
    batch_size: int
    token_budget: int | None
    rate_per_s: float
    """[1/s] of the whole pool at the peak."""
    source: Source
    failed_below: str
    """Constraint that one replica fewer would miss."""
    capacity_rps: float = 0.0

    @property
    def deployment(self) -> Deployment:
        """What a replica runs."""
        return self.table.deployment

    @property
    def gpus(self) -> int:
        """GPUs without spares."""
        return self.replicas * self.deployment.layout.gpus


@dataclass(frozen=True, slots=True)
class Sized:
    """A setup that works: its pools and what users see at the peak."""

    setup: str
    weights: str
    kv: str
    pools: tuple[Pool, ...]
    latencies: Latencies

    @property
    def gpus(self) -> int:
        """GPUs without spares, one region."""
        return sum(p.gpus for p in self.pools)


class Miss(NamedTuple):
    """A setup on a layout that cannot work, and why."""

    setup: str
    gpu: str
    layout: Layout
    weights: str
    reason: str
    detail: str
    over: float = math.inf
    """How far the best case is over the target (0.1 = 10 %); infinite where that has no meaning."""


# -- whole numbers ----------------------------------------------------------------------------


class Answer(NamedTuple):
    """The smallest number of replicas that holds, and what fails with one fewer."""

    replicas: int
    verdict: Verdict
    failed_below: str


class Refusal(NamedTuple):
    """No number of replicas up to the limit holds.

    Attributes
    ----------
    failed : str
        The constraint in the way.
    at_zero_load : bool
        True when it already fails with no other request: more replicas never help.
    """

    failed: str
    at_zero_load: bool


def peak_rps(request: PlanRequest) -> float:
    """Rate [1/s] that the replicas of a pool must be able to carry: the peak with headroom."""
    return request.workload.requests_per_s / request.limits.target_utilization


def least_replicas(request: PlanRequest, ceiling_rps: float) -> int:
    """Replicas that even the highest rate [1/s] of one would take."""
    return max(1, math.ceil(peak_rps(request) / ceiling_rps - 1e-9)) if ceiling_rps > 0 else 1


def stage_gpus(gpu: Gpu, layout: Layout) -> int:
    """GPUs of a pipeline stage that one instance must hold, at most a node."""
    return min(layout.tensor * layout.data, gpu.node_gpus)


def smallest(check: Check, request: PlanRequest, limit: int, ceiling_rps: float,
             known: bool = False) -> Answer | Refusal:
    """Fewest replicas whose share of the peak holds with the target headroom.

    Each of R replicas is asked for ``peak / (R u)`` with u the target utilisation, so that the
    load is at most u of what it could carry. Starts where the rate is below a replica's ceiling.

    Parameters
    ----------
    check : callable
        ``check(rate_per_s, arrival_cv2) -> Verdict``.
    limit : int
        Most replicas.
    ceiling_rps : float
        Rate [1/s] that a replica cannot exceed whatever the latency.
    known : bool
        ``limit`` comes from a fleet that is already as good: ask it first.
    """
    peak, least = peak_rps(request), least_replicas(request, ceiling_rps)
    asked: dict[int, Verdict] = {}

    def holds(replicas: int) -> bool:
        if replicas not in asked:
            cv2 = split_arrival_cv2(request.workload.arrival_cv, replicas)
            asked[replicas] = check(peak / replicas, cv2)
        return asked[replicas].ok

    if limit < least:
        if known:
            return Refusal("throughput", False)
        return _refusal(check, "throughput" if limit < 1 or holds(limit) else asked[limit].failed)
    if not known and not holds(least):
        refusal = _refusal(check, asked[least].failed)
        if refusal.at_zero_load:
            return refusal
    if not (least in asked and holds(least)) and not holds(limit):
        return Refusal(asked[limit].failed, False)
    low, high = least - 1, limit if known else least
    while not holds(high):
        low, high = high, min(high * 2, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return Answer(high, asked[high], asked[low].failed if low in asked else "")


def _refusal(check: Check, failed: str) -> Refusal:
    """Why a rate does not hold: at zero load already, or for what failed."""
    idle = check(IDLE_RATE_PER_S, 1.0)
    return Refusal(failed if idle.ok else idle.failed, not idle.ok)


def pool_of(role: str, table: Table, answer: Answer, source: Source, request: PlanRequest) -> Pool:
    """The pool that an answer makes."""
    budget = source.token_budget if isinstance(source, Chunked) else None
    return Pool(role, table, answer.replicas, answer.verdict.cap, budget,
                request.workload.requests_per_s, source, answer.failed_below)


def share(request: PlanRequest, replicas: int) -> tuple[float, float]:
    """Rate [1/s] and squared CV of the arrivals at one of ``replicas`` at the peak."""
    return (request.workload.requests_per_s / replicas,
            split_arrival_cv2(request.workload.arrival_cv, replicas))


def capacity_rps(highest: Callable[[float, float, float, float], float], request: PlanRequest,
                 replicas: int, ceiling_rps: float) -> float:
    """Highest rate [1/s] of one of ``replicas`` that holds.

    Starts from the rate that sizing has shown to hold.

    Parameters
    ----------
    highest : callable
        ``highest(low, high, most, arrival_cv2)``, see :func:`planner.setups.base.highest_held`.
    """
    cv2 = split_arrival_cv2(request.workload.arrival_cv, replicas)
    low = peak_rps(request) / replicas
    step = 1.0 / max(replicas - 1, 1)
    return highest(low, low * (1.0 + step), ceiling_rps * (1.0 + 1e-9), cv2)


def first_failure(check: Check, request: PlanRequest, pool: Pool) -> str:
    """What limits a pool: the constraint that one replica fewer, or 5 % more load, would miss."""
    if pool.failed_below:
        return pool.failed_below
    return check(pool.capacity_rps * 1.05, share(request, pool.replicas)[1]).failed


def spared_gpus(layout: Layout, replicas: int, request: PlanRequest) -> int:
    """GPUs of a pool with its spare replicas: what a choice between layouts compares."""
    return (replicas + request.limits.spare_replicas) * layout.gpus


def region_gpus(request: PlanRequest) -> int:
    """Most GPUs of one region."""
    return request.limits.max_gpus // request.limits.regions
