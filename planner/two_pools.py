"""Disaggregated serving: prefill and decode pools sized apart, on every pair of GPU types.

For each of the best decode pools the cheapest prefill pool is found that hands over to it in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from planner.misses import miss_of
from planner.queueing import Wait
from planner.requests import PlanRequest
from planner.setups.base import Table, Verdict
from planner.setups.continuous import Array
from planner.setups.disaggregated import DecodePool, Pair, PrefillPool
from planner.sizing import (
    Check,
    Miss,
    Pool,
    Refusal,
    Resources,
    Sized,
    capacity_rps,
    pool_of,
    pool_value,
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
DECODE_CANDIDATES = 5
"""Decode layouts per GPU type that are paired with every prefill pool."""
E2E_SPLITS = (0.95, 0.85, 0.7, 0.5, 0.3)
"""Shares of an end-to-end target that the decode pool may take."""
Refusals = dict[str, tuple[Table, Refusal]]
"""By GPU slug: a layout that was refused, and why."""


@dataclass(frozen=True, slots=True)
class TwoPools:
    """Two pools that work together at their fewest replicas.

    Attributes
    ----------
    pools : tuple of Pool
        Prefill, decode.
    rank : tuple of float
        What orders pairs: value of the GPUs, then mean latency [s].
    """

    pair: Pair
    pools: tuple[Pool, Pool]
    rank: tuple[float, float]

    def sized(self, request: PlanRequest) -> Sized:
        """Add what one replica of each pool could carry, and what users see."""
        (prefill, decode), pair = self.pools, self.pair
        asked = replace(request, workload=prefill.table.workload)
        seen = pair.latencies(*_shares(asked, self.pools), decode.batch_size)
        assert seen is not None
        chain = pair.decode.chain(*share(asked, decode.replicas))
        check = _prefill_check(pair.prefill, pair.handover_s(chain, decode.batch_size),
                               pair.decode.admission(chain, decode.batch_size))
        d = decode.deployment
        return Sized("disaggregated", d.weights, d.kv, (
            replace(prefill, capacity_rps=capacity_rps(check, asked, prefill.replicas)),
            replace(decode, capacity_rps=capacity_rps(pair.decode.check, asked, decode.replicas))),
            seen)


def best_pairs(request: PlanRequest, resources: Resources, tables: Mapping[str, list[Table]]
               ) -> tuple[list[TwoPools], list[Miss]]:
    """The best pair of pools for every pair of GPU types, and why a GPU is in none."""
    best: dict[tuple[str, str], TwoPools] = {}
    refusals: Refusals = {}
    for asked in _split_targets(request):
        rows = {slug: [replace(t, workload=asked.workload) for t in row]
                for slug, row in tables.items()}
        decodes = {slug: _decode_pools(asked, row, refusals) for slug, row in rows.items()}
        sources = {slug: [PrefillPool(t, b) for t in row for b in prefill_batches(t.workload)]
                   for slug, row in rows.items()}
        for d_slug, pools in decodes.items():
            for p_slug, row in sources.items():
                value = _values(request, resources, (p_slug, d_slug))
                for pool in pools:
                    _pair_up(asked, value, pool, row, best, refusals)
    covered = {slug for pair in best for slug in pair}
    return list(best.values()), [miss_of("disaggregated", table, refusal, None)
                                 for slug, (table, refusal) in refusals.items()
                                 if slug not in covered]


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
    for x in E2E_SPLITS:
        extra = (Slo("tpot", x * target.limit_s / tokens, target.percentile),
                 Slo("ttft", (1.0 - x) * target.limit_s, target.percentile))
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


def _decode_pools(request: PlanRequest, tables: list[Table],
                  refusals: Refusals) -> list[Pool]:
    pools = []
    for table in tables:
        source = DecodePool(table)
        limit = (region_gpus(request) // table.deployment.layout.gpus
                 - request.limits.spare_replicas)
        answer = smallest(source.check, request, limit, source.ceiling_rps())
        if isinstance(answer, Refusal):
            refusals[table.deployment.gpu.slug] = (table, answer)
        else:
            pools.append(pool_of("decode", table, answer, source, request))
    pools.sort(key=lambda p: (spared_gpus(p, request), float(p.table.decode_s[0])))
    fastest = sorted(pools, key=lambda p: float(p.table.decode_s[0]))[:1]
    return pools[:DECODE_CANDIDATES] + [p for p in fastest if p not in pools[:DECODE_CANDIDATES]]


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


def _pair_up(request: PlanRequest, value: Mapping[str, float], decode: Pool,
             sources: list[PrefillPool], best: dict[tuple[str, str], TwoPools],
             refusals: Refusals) -> None:
    """Offer every prefill pool that goes with a decode pool."""
    assert isinstance(decode.source, DecodePool)
    chain = decode.source.chain(*share(request, decode.replicas))
    admission = decode.source.admission(chain, decode.batch_size)
    first_step_s = decode.source.first_step_s(chain, decode.batch_size)
    for source in sources:
        slug = source.table.deployment.gpu.slug
        key = (slug, decode.deployment.gpu.slug)
        limit, known = _prefill_limit(request, value, decode, source, best.get(key))
        if known and limit * source.ceiling_rps() < request.workload.requests_per_s:
            continue
        pair = Pair(source, decode.source)
        handover_s = pair.transfer_s() + first_step_s
        hopeless = source.hopeless(handover_s)
        if hopeless:
            refusals.setdefault(slug, (source.table, Refusal(hopeless, True)))
            continue
        check = _prefill_check(source, handover_s, admission)
        answer = smallest(check, request, limit, source.ceiling_rps(), known)
        if isinstance(answer, Refusal):
            refusals.setdefault(slug, (source.table, answer))
            continue
        prefill = pool_of("prefill", source.table, answer, source, request)
        _keep_better(request, value, pair, (prefill, decode), best, key)


def _prefill_check(source: PrefillPool, handover_s: Array, admission: Wait) -> Check:
    def check(rate_per_s: float, cv2: float) -> Verdict:
        return source.check(rate_per_s, cv2, handover_s, admission)
    return check


def _prefill_limit(request: PlanRequest, value: Mapping[str, float], decode: Pool,
                   source: PrefillPool, best: TwoPools | None) -> tuple[int, bool]:
    """Most prefill replicas worth having next to a decode pool."""
    d = source.table.deployment
    spare = request.limits.spare_replicas
    most = (region_gpus(request) - spared_gpus(decode, request)) // d.layout.gpus - spare
    if best is None:
        return most, False
    left = pool_value(best.pools, value, request) - pool_value((decode,), value, request)
    worth = int(left / value[d.gpu.slug] / d.layout.gpus + 1e-9) - spare
    return min(most, worth), True


def _keep_better(request: PlanRequest, value: Mapping[str, float], pair: Pair,
                 pools: tuple[Pool, Pool], best: dict[tuple[str, str], TwoPools],
                 key: tuple[str, str]) -> None:
    means = pair.means(*_shares(request, pools), pools[1].batch_size)
    rank = (pool_value(pools, value, request), sum(means))
    if key not in best or rank < best[key].rank:
        best[key] = TwoPools(pair, pools, rank)


def _shares(request: PlanRequest, pools: tuple[Pool, Pool]
            ) -> tuple[tuple[float, float], tuple[float, float]]:
    """Rates [1/s] and squared CVs of the arrivals at one replica of each pool."""
    first, second = (share(request, pool.replicas) for pool in pools)
    return (first[0], second[0]), (first[1], second[1])
