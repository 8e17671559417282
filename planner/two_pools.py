"""Disaggregated serving: prefill and decode pools sized apart, on every pair of GPU types.

For each decode pool that can be as good the cheapest prefill pool is found that hands over to it in
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Literal, NamedTuple

from planner.candidates import Candidate
from planner.misses import miss_of
from planner.queueing import Chain
from planner.requests import PlanRequest
from planner.setups.base import Table, Verdict, highest_held
from planner.setups.continuous import Array
from planner.setups.disaggregated import (
    ADMISSION_SHARE,
    ADMISSION_SHARES,
    Admission,
    DecodePool,
    Pair,
    PrefillPool,
)
from planner.sizing import (
    Answer,
    Check,
    Miss,
    Pool,
    Refusal,
    Resources,
    Sized,
    capacity_rps,
    least_replicas,
    pool_of,
    region_gpus,
    share,
    smallest,
    spared_gpus,
)
from planner.workload import Slo, Workload

PREFILL_BATCHES = (1, 2, 4, 8)
"""Prompts packed into one pass of a prefill pool."""
PACKED_TOKENS = 2048
"""[token] mean tokens of a packed pass beyond which packing only adds latency: far above the
prompt length where a prefill turns compute-bound (DistServe, OSDI 2024, section 3.1)."""
E2E_SPLITS = (0.95, 0.85, 0.7, 0.5, 0.3)
"""Shares of an end-to-end target that the decode pool may take."""
CLEARLY = 1.02
"""Times the share that waits, by which a pool is below the share that it is named by: formulas that
are not the same to the last digit find it too."""
PLACE = "the wait for a place in the decode batch"
"""What fails where no prefill pool is fast enough beside a decode pool."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Layouts that were refused as pools, and why: the first reason of each.

    Attributes
    ----------
    decode, prefill : dict of str to dict
        By GPU slug, then by the identity of the layout's table.
    decoding : set of str
        GPUs of which some layout makes a decode pool: its others are not why it is in no pair.
    """

    decode: dict[str, dict[int, tuple[Table, Refusal]]] = field(default_factory=dict)
    prefill: dict[str, dict[int, tuple[Table, Refusal]]] = field(default_factory=dict)
    decoding: set[str] = field(default_factory=set)

    def add(self, role: Literal["decode", "prefill"], table: Table, refusal: Refusal) -> None:
        """Keep a reason, unless the layout has one."""
        of_role = self.decode if role == "decode" else self.prefill
        of_role.setdefault(table.deployment.gpu.slug, {}).setdefault(id(table), (table, refusal))

    def nearest(self, slug: str) -> Miss | None:
        """The layout of a GPU that comes nearest to being a pool: one that holds every target
        alone, else the one least over its target."""
        first, then = self.decode.get(slug), self.prefill.get(slug)
        if slug in self.decoding:
            first, then = then, first
        refused = list((first or then or {}).values())
        misses = [(r.at_zero_load, miss_of("disaggregated", t, r, None)) for t, r in refused]
        return min(misses, key=lambda m: (m[0], m[1].over))[1] if misses else None


@dataclass(frozen=True, slots=True)
class TwoPools:
    """Two pools that work together at their fewest replicas.

    Attributes
    ----------
    pools : tuple of Pool
        Prefill, decode.
    rank : tuple of float
        What orders pairs: value of the GPUs, their cost [USD/h], mean latency [s].
    """

    pair: Pair
    pools: tuple[Pool, Pool]
    rank: tuple[float, float, float]

    def sized(self, request: PlanRequest) -> Sized:
        """Add what one replica of each pool could carry, and what users see."""
        (prefill, decode), pair = self.pools, self.pair
        asked = replace(request, workload=prefill.table.workload)
        seen = pair.latencies(*_shares(asked, self.pools), decode.batch_size)
        assert seen is not None
        chain = pair.decode.chain(*share(asked, decode.replicas))
        check = _prefill_check(pair.prefill, pair.handover_s(chain, decode.batch_size),
                               _planned_admission(pair.decode, asked, decode))
        d = decode.deployment
        return Sized("disaggregated", d.weights, d.kv, (
            replace(prefill, capacity_rps=capacity_rps(
                partial(highest_held, check), asked, prefill.replicas, pair.prefill.ceiling)),
            replace(decode, capacity_rps=capacity_rps(
                partial(highest_held, pair.decode.check), asked, decode.replicas,
                pair.decode.ceiling))),
            seen)


def best_pairs(request: PlanRequest, resources: Resources,
               held: Mapping[str, list[Candidate]]) -> tuple[list[TwoPools], list[Miss]]:
    """The best pair of pools for every pair of GPU types, and why a GPU is in none."""
    best: dict[tuple[str, str], TwoPools] = {}
    refusals = Refusals()
    for asked in _split_targets(request):
        decodes = {slug: _DecodePools(asked, row, refusals) for slug, row in held.items()}
        sources = {slug: [_PrefillLayout(asked, x) for x in row] for slug, row in held.items()}
        for d_slug, pools in decodes.items():
            for p_slug, layouts in sources.items():
                if layouts:
                    value = _values(request, resources, (p_slug, d_slug))
                    _Pairing(asked, resources, value, (p_slug, d_slug), best, refusals).run(
                        pools, layouts)
    covered = {slug for pair in best for slug in pair}
    missed = [refusals.nearest(slug) for slug in held if slug not in covered]
    return list(best.values()), [miss for miss in missed if miss is not None]


def prefill_batches(workload: Workload) -> tuple[int, ...]:
    """Packings worth trying: 1, and more while the pass stays below :data:`PACKED_TOKENS`."""
    mean = workload.new_prompt.mean
    return tuple(b for b in PREFILL_BATCHES if b == 1 or b * mean <= PACKED_TOKENS)


def _split_targets(request: PlanRequest) -> Iterator[PlanRequest]:
    """The request itself, or with an end-to-end target shared out over the two pools.

    e2e <= TTFT + TPOT (o - 1) holds when TPOT (o - 1) <= x E and TTFT <= (1 - x) E.
    """
    target = request.workload.slo("e2e")
    if target is None:
        yield request
        return
    tokens = max(request.workload.output.quantile(target.percentile / 100.0) - 1.0, 1.0)
    workload, level = request.workload, target.percentile
    for x in E2E_SPLITS:
        extra = (Slo("tpot", x * target.limit_s / tokens, workload.token_percentile(level)),
                 Slo("ttft", (1.0 - x) * target.limit_s, workload.first_percentile(level)))
        yield replace(request, workload=_with_targets(request.workload, extra))


def _with_targets(workload: Workload, extra: tuple[Slo, ...]) -> Workload:
    """The workload with targets added; of two for one metric the stricter limit stays."""
    merged = {s.metric: s for s in workload.slos}
    for slo in extra:
        old = merged.get(slo.metric)
        if old is None:
            merged[slo.metric] = slo
        else:
            merged[slo.metric] = Slo(slo.metric, min(slo.limit_s, old.limit_s),
                                     max(slo.percentile, old.percentile))
    return replace(workload, slos=tuple(merged.values()))


@dataclass(frozen=True, slots=True)
class _Tighter:
    """A decode layout in which a smaller share may wait for a place."""

    source: DecodePool


class _DecodePools:
    """The decode pools of one GPU type, fewest GPUs first and sized only as far as asked for.

    Attributes
    ----------
    found : list of Pool
        Those that were asked for, by GPUs with spares, then by the step of one sequence.
    """

    def __init__(self, request: PlanRequest, held: list[Candidate], refusals: Refusals) -> None:
        self.request, self.refusals = request, refusals
        self.found: list[Pool] = []
        self._places = count()
        self._queue: list[tuple[int, int, float, int, Candidate | _Tighter | Pool]] = [
            (x.fewest_gpus, 0, 0.0, next(self._places), x) for x in held]
        heapify(self._queue)

    def get(self, place: int, most_gpus: float) -> Pool | None:
        """The pool of a place in the order; None past the last that has at most ``most_gpus``."""
        while len(self.found) <= place and self._queue and self._queue[0][0] <= most_gpus:
            item = heappop(self._queue)[-1]
            if isinstance(item, Pool):
                self.found.append(item)
                self._tighter(item)
            elif pool := self._sized(item.source if isinstance(item, _Tighter) else DecodePool(
                    _with_targets_of(self.request, item.table), self._loosest)):
                heappush(self._queue, (self._gpus(pool), 1, float(pool.table.decode_s[0]),
                                       next(self._places), pool))
        if place < len(self.found) and self._gpus(self.found[place]) <= most_gpus:
            return self.found[place]
        return None

    def _gpus(self, pool: Pool) -> int:
        """Those of a pool with its spares."""
        return spared_gpus(pool.deployment.layout, pool.replicas, self.request)

    @property
    def _loosest(self) -> float:
        """Share of the requests that may wait for a place at most: any that TTFT allows where the
        request bounds the batch, and the usual one where only memory and TPOT do."""
        return ADMISSION_SHARES[0] if self.request.limits.max_sequences else ADMISSION_SHARE

    def _tighter(self, pool: Pool) -> None:
        """Put a pool of the same layout in which fewer wait for a place into the queue."""
        source = pool.source
        assert isinstance(source, DecodePool)
        if not self.request.workload.slo("ttft"):
            return
        waits = min(_waiting_share(source, self.request, pool.replicas, pool.batch_size),
                    source.admission_share)
        smaller = next((s for s in ADMISSION_SHARES if s < waits), None)
        if smaller is not None:
            heappush(self._queue, (self._gpus(pool), 2, 0.0, next(self._places),
                                   _Tighter(source.allowing(smaller))))

    def _sized(self, source: DecodePool) -> Pool | None:
        table, d = source.table, source.table.deployment
        limit = (region_gpus(self.request) // d.layout.gpus
                 - self.request.limits.spare_replicas)
        answer = smallest(source.check, self.request, limit, source.ceiling)
        if isinstance(answer, Refusal):
            self.refusals.add("decode", table, answer)
            return None
        self.refusals.decoding.add(d.gpu.slug)
        return pool_of("decode", table, answer, self._named(source, answer), self.request)

    def _named(self, source: DecodePool, answer: Answer) -> DecodePool:
        """A pool by the smallest share that it holds, of those from the usual one up."""
        waits = CLEARLY * _waiting_share(source, self.request, answer.replicas, answer.verdict.cap)
        held = ADMISSION_SHARE if waits <= ADMISSION_SHARE else min(
            s for s in ADMISSION_SHARES if s >= min(waits, source.admission_share))
        return source.allowing(held) if held < source.admission_share else source


class _Source(NamedTuple):
    """A prefill pool as every decode pool meets it.

    Attributes
    ----------
    least_gpus : int
        GPUs, spares included, that even the highest rate of a replica would take.
    usd_per_hour : float
        Their cost [USD/h].
    """

    pool: PrefillPool
    least_gpus: int
    usd_per_hour: float


class _PrefillLayout:
    """A layout of a prefill pool with its packings, made when first asked for."""

    def __init__(self, request: PlanRequest, layout: Candidate) -> None:
        self.request, self.layout = request, layout

    @cached_property
    def sources(self) -> list[_Source]:
        """One pool a packing."""
        table = _with_targets_of(self.request, self.layout.table)
        return [self._source(PrefillPool(table, batch))
                for batch in prefill_batches(table.workload)]

    def _source(self, pool: PrefillPool) -> _Source:
        d = pool.table.deployment
        gpus = d.layout.gpus * (least_replicas(self.request, pool.ceiling)
                                + self.request.limits.spare_replicas)
        return _Source(pool, gpus, self.layout.resources.usd_per_hour(d.gpu, d.layout, gpus))


def _with_targets_of(request: PlanRequest, table: Table) -> Table:
    """A table with the targets of a request."""
    if table.workload is request.workload:
        return table
    return replace(table, workload=request.workload)


def _values(request: PlanRequest, resources: Resources, slugs: tuple[str, str]
            ) -> dict[str, float]:
    """What one GPU of each kind counts in the objective; 1 where a price is missing."""
    if request.objective == "power":
        watts = {g.slug: g.tdp_w for g in resources.gpus}
        return {s: watts[s] or 1.0 for s in slugs}
    usd = resources.usd_per_gpu_hour
    if request.objective == "cost" and all(usd.get(s) for s in slugs):
        return {s: usd[s] for s in slugs}
    return dict.fromkeys(slugs, 1.0)


class _Beside(NamedTuple):
    """A decode pool as every prefill pool meets it.

    Attributes
    ----------
    first_step_s, tpot_s : float
        [s] of the first decode step and of the mean token.
    admission : Admission
        The waits on its side, at the peak with the target headroom.
    gpus, value, usd_per_hour : float
        Spares included: its GPUs, what they count in the objective, their cost [USD/h].
    """

    pool: Pool
    first_step_s: float
    admission: Admission
    tpot_s: float
    gpus: int
    value: float
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class _Pairing:
    """One pair of GPU types: prefill pools are offered to one decode pool after the other."""

    request: PlanRequest
    resources: Resources
    value: Mapping[str, float]
    key: tuple[str, str]
    best: dict[tuple[str, str], TwoPools]
    refusals: Refusals

    def run(self, decodes: _DecodePools, layouts: list[_PrefillLayout]) -> None:
        """Pair the decode pools, fewest GPUs first, with every prefill layout, until none that is
        left can be as good next to the smallest."""
        layouts = sorted(layouts, key=lambda x: x.layout.fewest_gpus)
        least = layouts[0].layout.fewest_gpus
        for place in count():
            pool = decodes.get(place, self._most_decode_gpus(least))
            if pool is None:
                break
            self._pair_up(pool, layouts)

    def _most_decode_gpus(self, prefill_gpus: int) -> float:
        """GPUs of a decode pool that can still be as good as the best next to a prefill pool."""
        known = self.best.get(self.key)
        if known is None:
            return math.inf
        p_value, d_value = (self.value[slug] for slug in self.key)
        return (known.rank[0] - prefill_gpus * p_value) / d_value + 1e-9

    def _pair_up(self, decode: Pool, layouts: list[_PrefillLayout]) -> None:
        """Offer every prefill layout that can be as good to a decode pool."""
        beside = self._beside(decode)
        assert isinstance(decode.source, DecodePool)
        for layout in layouts:
            if beside.gpus > self._most_decode_gpus(layout.layout.fewest_gpus):
                break
            for source in layout.sources:
                pair = Pair(source.pool, decode.source)
                if not self._cannot_win(source, pair, beside):
                    self._offer(pair, beside)

    def _beside(self, decode: Pool) -> _Beside:
        """A decode pool as every prefill pool meets it."""
        source, d, cap = decode.source, decode.deployment, decode.batch_size
        assert isinstance(source, DecodePool)
        chain = source.chain(*share(self.request, decode.replicas))
        gpus = spared_gpus(d.layout, decode.replicas, self.request)
        return _Beside(decode, source.first_step_s(chain, cap),
                       _planned_admission(source, self.request, decode), chain.mean_tpot(cap),
                       gpus, gpus * self.value[d.gpu.slug],
                       self.resources.usd_per_hour(d.gpu, d.layout, gpus))

    def _offer(self, pair: Pair, beside: _Beside) -> None:
        """Size a prefill pool next to a decode pool and keep the two if they are better."""
        source = pair.prefill
        limit, known = self._prefill_limit(beside, source)
        if known and limit * source.ceiling < self.request.workload.requests_per_s:
            return
        handover_s = pair.transfer_s() + beside.first_step_s
        answer = smallest(_prefill_check(source, handover_s, beside.admission), self.request, limit,
                          source.ceiling, known)
        if isinstance(answer, Refusal):
            if not known:  # else the GPU is in a pair, and no reason is asked for
                why = _why_refused(answer, source, handover_s, beside.admission)
                self.refusals.add("prefill", source.table, why)
            return
        pools = pool_of("prefill", source.table, answer, source, self.request), beside.pool
        ttft_s = source.mean_ttft_s(*share(self.request, answer.replicas), handover_s)
        rank = self._rank(source.table, answer.replicas, beside, ttft_s + beside.tpot_s)
        if self.key not in self.best or rank < self.best[self.key].rank:
            self.best[self.key] = TwoPools(pair, pools, rank)

    def _rank(self, table: Table, replicas: int, beside: _Beside, late_s: float
              ) -> tuple[float, float, float]:
        """What orders pairs, see :class:`TwoPools`, of prefill replicas of a table."""
        d = table.deployment
        gpus = (replicas + self.request.limits.spare_replicas) * d.layout.gpus
        return (gpus * self.value[d.gpu.slug] + beside.value,
                self.resources.usd_per_hour(d.gpu, d.layout, gpus) + beside.usd_per_hour, late_s)

    def _cannot_win(self, source: _Source, pair: Pair, beside: _Beside) -> bool:
        """Whether a pair is no better than the best even with fewest replicas and no wait."""
        known = self.best.get(self.key)
        if known is None:
            return False
        least = (source.least_gpus * self.value[self.key[0]] + beside.value,
                 source.usd_per_hour + beside.usd_per_hour)
        if least != known.rank[:2]:
            return least > known.rank[:2]
        return (source.pool.mean_s + pair.mean_transfer_s() + beside.first_step_s
                + beside.tpot_s) >= known.rank[2]

    def _prefill_limit(self, beside: _Beside, source: PrefillPool) -> tuple[int, bool]:
        """Most prefill replicas worth having next to a decode pool, and whether a pair is known."""
        spare, gpus = self.request.limits.spare_replicas, source.table.deployment.layout.gpus
        most = (region_gpus(self.request) - beside.gpus) // gpus - spare
        known = self.best.get(self.key)
        if known is None:
            return most, False
        left = known.rank[0] - beside.value
        worth = int(left / self.value[self.key[0]] / gpus + 1e-9) - spare
        return min(most, worth), True


def _planned_chain(source: DecodePool, request: PlanRequest, replicas: int) -> Chain:
    """The running sequences at the peak with the target headroom."""
    rate, cv2 = share(request, replicas)
    return source.chain(rate / request.limits.target_utilization, cv2)


def _waiting_share(source: DecodePool, request: PlanRequest, replicas: int, cap: int) -> float:
    """Share of the requests that wait for a place at the peak with the target headroom."""
    chain = _planned_chain(source, request, replicas)
    return float(chain.waiting()[0][cap - 1])


def _planned_admission(source: DecodePool, request: PlanRequest, pool: Pool) -> Admission:
    """Waits on the decode side at the peak with the target headroom, at which targets must hold."""
    return source.admission(_planned_chain(source, request, pool.replicas), pool.batch_size)


def _why_refused(refusal: Refusal, source: PrefillPool, handover_s: Array, admission: Admission
                 ) -> Refusal:
    """Why no number of prefill replicas does: what fails alone, the wait on the other side, or the
    limit."""
    if hopeless := source.hopeless(handover_s):
        return Refusal(hopeless, True)
    if refusal.at_zero_load or not source.placed(admission.place, handover_s):
        return Refusal(PLACE, False)
    return refusal


def _prefill_check(source: PrefillPool, handover_s: Array, admission: Admission) -> Check:
    def check(rate_per_s: float, cv2: float) -> Verdict:
        return source.check(rate_per_s, cv2, handover_s, admission)
    return check


def _shares(request: PlanRequest, pools: tuple[Pool, Pool]
            ) -> tuple[tuple[float, float], tuple[float, float]]:
    """Rates [1/s] and squared CVs of the arrivals at one replica of each pool."""
    first, second = (share(request, pool.replicas) for pool in pools)
    return (first[0], second[0]), (first[1], second[1])
