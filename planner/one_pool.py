"""Setups on one pool: the best layout (and token budget) of each GPU type.

Best first: what could do with the fewest GPUs is sized before what cannot, so that most layouts
need no question at all; the others are asked only whether they are as good as the best so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from planner.candidates import Candidate
from planner.misses import miss_of
from planner.requests import Layout, PlanRequest
from planner.setups.base import Table, Verdict
from planner.setups.chunked import Chunked
from planner.setups.colocated import Colocated
from planner.setups.continuous import Continuous
from planner.setups.static import Static
from planner.sizing import (
    Answer,
    Check,
    Miss,
    Pool,
    Refusal,
    Serving,
    Sized,
    capacity_rps,
    least_replicas,
    pool_of,
    region_gpus,
    share,
    smallest,
    spared_gpus,
)

DEFAULT_TOKEN_BUDGETS = (512, 1024, 2048, 4096, 8192)
"""[token] chunk budgets to try; vLLM documents 2,048 for latency and 8,192 for throughput."""


@dataclass(frozen=True, slots=True)
class OnePool:
    """A one-pool setup at its fewest replicas; what users see is not worked out yet."""

    setup: str
    pool: Pool

    @property
    def pools(self) -> tuple[Pool]:
        """The pool."""
        return (self.pool,)

    def sized(self, request: PlanRequest) -> Sized:
        """Add the capacity of a replica and what users see."""
        source = self.pool.source
        assert isinstance(source, Serving)
        seen = source.latencies(*share(request, self.pool.replicas), self.pool.batch_size)
        assert seen is not None
        capacity = capacity_rps(source.highest, request, self.pool.replicas, source.ceiling)
        d = self.pool.deployment
        return Sized(self.setup, d.weights, d.kv, (replace(self.pool, capacity_rps=capacity),),
                     seen)


def best_pool(request: PlanRequest, setup: str, held: list[Candidate]
              ) -> tuple[OnePool | None, list[Miss]]:
    """The best layout of a setup on one GPU type, if any, and what cannot work."""
    best, tried = _Best(), list[_Variant]()
    missed, refused = list[Miss](), list[tuple[_Variant, Refusal]]()
    queue: list[tuple[int, float, int, Candidate | _Variant]] = [
        (layout.fewest_gpus, 0.0, place, layout) for place, layout in enumerate(held)]
    heapify(queue)
    while queue and not best.beats(queue[0][0]):
        *_, item = heappop(queue)
        if isinstance(item, _Variant):
            if best.cannot_lose_to(item):
                continue
            answer = _offer(request, item, best)
            refused += [(item, answer)] if isinstance(answer, Refusal) else []
        elif late := item.late_alone:
            missed.append(miss_of(setup, item.table, Refusal(late.metric, True), None))
        else:
            for variant in _variants(request, setup, item):
                tried.append(variant)
                heappush(queue, (variant.fewest_gpus, variant.least_s, len(held) + len(tried),
                                 variant))
    missed += _refused_layouts(setup, tried, refused, best.pool is None)
    return (OnePool(setup, best.pool) if best.pool else None), missed


@dataclass(slots=True)
class _Best:
    """The best pool so far on one GPU type: fewest GPUs, then lowest cost, then one whose own
    answers keep the target on TPOT, then mean latency."""

    gpus: int = 0
    usd_per_hour: float = 0.0
    misses: bool = False
    late_s: float = 0.0
    pool: Pool | None = None

    def limit(self, layout: Layout, request: PlanRequest) -> tuple[int, bool]:
        """Most replicas of a layout worth having, and whether a better fleet is known."""
        gpus = region_gpus(request) if self.pool is None else self.gpus
        return gpus // layout.gpus - request.limits.spare_replicas, self.pool is not None

    def beats(self, gpus: int) -> bool:
        """Whether a fleet of fewer GPUs is known."""
        return self.pool is not None and self.gpus < gpus

    def cannot_lose_to(self, variant: _Variant) -> bool:
        """Whether a variant cannot be better, even on as few GPUs and as fast as it can be."""
        if self.pool is None:
            return False
        d = variant.table.deployment
        usd = variant.candidate.resources.usd_per_hour(d.gpu, d.layout, variant.fewest_gpus)
        return (variant.fewest_gpus, usd, False, variant.least_s) >= (
            self.gpus, self.usd_per_hour, self.misses, self.late_s)

    def offer(self, variant: _Variant, answer: Answer, misses: bool, late_s: float) -> None:
        """Keep the pool of an answer when it is better, spares counted."""
        candidate, d = variant.candidate, variant.table.deployment
        gpus = spared_gpus(d.layout, answer.replicas, candidate.request)
        usd = candidate.resources.usd_per_hour(d.gpu, d.layout, gpus)
        if self.pool is None or (gpus, usd, misses, late_s) < (
                self.gpus, self.usd_per_hour, self.misses, self.late_s):
            self.gpus, self.usd_per_hour, self.misses = gpus, usd, misses
            self.late_s = late_s
            self.pool = pool_of("serve", variant.table, answer, variant.source, candidate.request)


class _Variant(NamedTuple):
    """One way to run a one-pool setup: a layout, and a token budget for ``chunked``.

    Attributes
    ----------
    ceiling_rps : float
        [1/s] that a replica cannot exceed.
    fewest_gpus : int
        GPUs, spares included, that even this rate would take.
    least_s : float
        [s] that mean TTFT and TPOT together are never below.
    """

    candidate: Candidate
    table: Table
    source: Serving
    ceiling_rps: float
    fewest_gpus: int
    least_s: float


def _variants(request: PlanRequest, setup: str, candidate: Candidate) -> Iterator[_Variant]:
    """The ways to run a one-pool setup on a table: token budgets for ``chunked``, else one."""
    table = candidate.table
    sources: Sequence[Serving]
    if setup == "chunked":
        sources = Chunked.of_budgets(table, request.limits.token_budgets or DEFAULT_TOKEN_BUDGETS)
    else:
        sources = [Static(table) if setup == "static" else Colocated(table)]
    for source in sources:
        ceiling = source.ceiling
        replicas = least_replicas(request, ceiling) + request.limits.spare_replicas
        yield _Variant(candidate, table, source, ceiling, replicas * table.deployment.layout.gpus,
                       source.least_s())


def _offer(request: PlanRequest, variant: _Variant, best: _Best) -> Answer | Refusal:
    """Size a variant and offer it to the best."""
    source, table = variant.source, variant.table
    limit, known = best.limit(table.deployment.layout, request)
    answer = smallest(_check(request, source), request, limit, variant.ceiling_rps, known)
    if isinstance(answer, Answer):
        each, cap = share(request, answer.replicas), answer.verdict.cap
        ttft_s, tpot_s = source.means(*each, cap)
        best.offer(variant, answer, source.misses_tpot(*each, cap), ttft_s + tpot_s)
    return answer


def _check(request: PlanRequest, source: Serving) -> Check:
    """The check of a source; with a target on gaps, at the load of the peak itself too: few decodes
    may stand longer for a chunk of one prompt than more do for one of several."""
    gap, headroom = request.workload.slo("itl"), request.limits.target_utilization
    if gap is None or not isinstance(source, Continuous):
        return source.check

    def check(rate_per_s: float, cv2: float) -> Verdict:
        verdict = source.check(rate_per_s, cv2)
        if verdict.ok and source.gaps_late(gap, rate_per_s * headroom, cv2, verdict.cap):
            return Verdict(False, 0, "itl")
        return verdict

    return check


def _refused_layouts(setup: str, tried: list[_Variant], refused: list[tuple[_Variant, Refusal]],
                     nothing_works: bool) -> Iterator[Miss]:
    """Layouts of which every variant was refused: at zero load, or with no fleet at all."""
    ways = Counter(variant.table.deployment.layout for variant in tried)
    last = {variant.table.deployment.layout: (variant, refusal) for variant, refusal in refused}
    asked = Counter(variant.table.deployment.layout for variant, _ in refused)
    for layout, (variant, refusal) in last.items():
        if asked[layout] == ways[layout] and (refusal.at_zero_load or nothing_works):
            yield miss_of(setup, variant.table, refusal, variant.source)
