"""The search: every setup on every GPU, precision and layout, each at its fewest replicas.

Pools of a disaggregated fleet are sized apart, on every pair of GPU types. A layout that cannot
be better than the best so far is asked once and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from planner.hardware import Gpu
from planner.layouts import layouts
from planner.llm import Llm
from planner.memory import sequence_bytes_per_gpu
from planner.queueing import Wait
from planner.requests import Layout, Limits, PlanRequest
from planner.roofline import Deployment
from planner.setups.base import Table, Verdict, build_table
from planner.setups.chunked import Chunked
from planner.setups.colocated import Colocated
from planner.setups.continuous import Array
from planner.setups.disaggregated import DecodePool, Pair, PrefillPool
from planner.setups.static import Static
from planner.sizing import (
    Answer,
    Check,
    Miss,
    Pool,
    Refusal,
    Resources,
    Serving,
    Sized,
    capacity_rps,
    pool_value,
    region_gpus,
    share,
    smallest,
    spared_gpus,
)
from planner.units import bytes_to_gib, s_to_ms
from planner.workload import Slo, Workload

DEFAULT_TOKEN_BUDGETS = (512, 1024, 2048, 4096, 8192)
"""[token] chunk budgets to try; vLLM documents 2,048 for latency and 8,192 for throughput."""
PREFILL_BATCHES = (1, 2, 4, 8)
"""Prompts packed into one pass of a prefill pool."""
PACKED_TOKENS = 2048
"""[token] mean tokens of a packed pass beyond which packing only adds latency: far above the
prompt length where a prefill turns compute-bound (DistServe, OSDI 2024, section 3.1)."""
DECODE_CANDIDATES = 5
"""Decode layouts per GPU type that are paired with every prefill pool."""
E2E_SPLITS = (0.95, 0.85, 0.7, 0.5, 0.3)
"""Shares of an end-to-end target that the decode pool may take."""


@dataclass(slots=True)
class Search:
    """Everything that was tried: what works and what does not."""

    sized: list[Sized] = field(default_factory=list)
    missed: list[Miss] = field(default_factory=list)


def search(request: PlanRequest, resources: Resources) -> Search:
    """Size every setup of a request on every GPU, precision and layout.

    Returns
    -------
    Search
        The best layout of each setup, GPU (or pair) and precision, and every miss.
    """
    found = Search()
    for weights, kv in precisions(request, resources.llm):
        tables = {gpu.slug: list(_tables(request, resources, gpu, (weights, kv), found))
                  for gpu in resources.gpus}
        for rows in tables.values():
            for setup in request.setups:
                if setup != "disaggregated":
                    _one_pool(request, setup, rows, found)
        if "disaggregated" in request.setups:
            _two_pools(request, resources, tables, found)
    return found


def precisions(request: PlanRequest, llm: Llm) -> Iterator[tuple[str, str]]:
    """Weight and KV precision pairs to try; None means what the model ships in."""
    pairs = [(wish.weights or llm.native_precision, wish.kv or llm.native_kv)
             for wish in request.precisions]
    yield from dict.fromkeys(pairs)


def _tables(request: PlanRequest, resources: Resources, gpu: Gpu, pair: tuple[str, str],
            found: Search) -> Iterator[Table]:
    """Tables of the layouts that fit; layouts that do not become misses of every setup."""
    weights, kv = pair
    profile = resources.profiles[gpu.slug, weights]
    tried = layouts(resources.llm, gpu, request.limits)
    if not tried:
        found.missed += [Miss(setup, gpu.slug, Layout(), weights, "max_gpus",
                              "no layout stays within max_gpus") for setup in request.setups]
    for layout in tried:
        deployment = Deployment(resources.llm, gpu, weights, kv, layout, profile,
                                request.power_cap_w, request.fidelity)
        table = build_table(deployment, request.workload, request.limits, request.speculative,
                            resources.draft)
        if table.memory_cap >= 1:
            yield table
        else:
            found.missed += [Miss(setup, gpu.slug, layout, weights, "memory",
                                  memory_detail(table)) for setup in request.setups]


def memory_detail(table: Table) -> str:
    """By how many GiB a deployment does not fit, and what takes the room."""
    m = table.memory
    need = sequence_bytes_per_gpu(table.deployment, table.workload.running_context)
    other = m.runtime_bytes + m.graph_bytes + m.draft_bytes
    return (f"does not fit, {bytes_to_gib(need - m.kv_pool_bytes):.1f} GiB short per GPU: "
            f"{bytes_to_gib(m.usable_bytes):.1f} GiB usable, weights "
            f"{bytes_to_gib(m.weights_bytes):.1f}, activation "
            f"{bytes_to_gib(m.activation_bytes):.1f}, runtime {bytes_to_gib(other):.1f}, "
            f"one sequence {bytes_to_gib(need):.2f} GiB")


# -- one pool ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Best:
    """The best pool so far on one GPU type: fewest GPUs, then lowest mean latency."""

    gpus: int = 0
    late_s: float = 0.0
    pool: Pool | None = None

    def limit(self, layout: Layout, request: PlanRequest) -> tuple[int, bool]:
        """Most replicas of a layout worth having, and whether a better fleet is known."""
        gpus = region_gpus(request) if self.pool is None else self.gpus
        return gpus // layout.gpus - request.limits.spare_replicas, self.pool is not None

    def offer(self, pool: Pool, late_s: float, request: PlanRequest) -> None:
        """Keep a pool when it is better, spares counted."""
        gpus = spared_gpus(pool, request)
        if self.pool is None or (gpus, late_s) < (self.gpus, self.late_s):
            self.gpus, self.late_s, self.pool = gpus, late_s, pool


def _one_pool(request: PlanRequest, setup: str, tables: list[Table], found: Search) -> None:
    """The best layout (and token budget) of a one-pool setup on one GPU type."""
    best = _Best()
    for table in tables:
        hopeless = zero_load_miss(setup, table)
        if hopeless:
            found.missed.append(hopeless)
            continue
        answers = list(_offer_variants(request, setup, table, best))
        refusals = [r for r in answers if r]
        if len(refusals) == len(answers):
            source, refusal = refusals[-1]
            if refusal.at_zero_load or best.pool is None:
                found.missed.append(_miss(setup, table, refusal, source))
    if best.pool is not None:
        found.sized.append(_finished(request, setup, best.pool))


def _variants(setup: str, table: Table, limits: Limits) -> Iterator[tuple[Serving, int | None]]:
    """The ways to run a one-pool setup on a table: token budgets for ``chunked``, else one."""
    if setup == "static":
        yield Static(table), None
    elif setup == "colocated":
        yield Colocated(table), None
    else:
        for budget in limits.token_budgets or DEFAULT_TOKEN_BUDGETS:
            yield Chunked(table, budget), budget


def _offer_variants(request: PlanRequest, setup: str, table: Table, best: _Best
                    ) -> Iterator[tuple[Serving, Refusal] | None]:
    """Offer each variant to the best; yield why a variant was refused, None when it works."""
    layout = table.deployment.layout
    for source, budget in _variants(setup, table, request.limits):
        limit, known = best.limit(layout, request)
        answer = smallest(source.check, request, limit, source.ceiling_rps(), known)
        if isinstance(answer, Refusal):
            yield source, answer
            continue
        ttft_s, tpot_s = source.means(*share(request, answer.replicas), answer.verdict.cap)
        best.offer(_pool("serve", table, answer, budget, source, request), ttft_s + tpot_s,
                   request)
        yield None


def _pool(role: str, table: Table, answer: Answer, budget: int | None,
          source: Serving | PrefillPool | DecodePool, request: PlanRequest) -> Pool:
    return Pool(role, table, answer.replicas, answer.verdict.cap, budget,
                request.workload.requests_per_s, source, answer.failed_below)


def _finished(request: PlanRequest, setup: str, pool: Pool) -> Sized:
    """Add the capacity of a replica and what users see."""
    source = pool.source
    assert not isinstance(source, PrefillPool | DecodePool)
    seen = source.latencies(*share(request, pool.replicas), pool.batch_size)
    assert seen is not None
    capacity = capacity_rps(source.check, request, pool.replicas)
    d = pool.deployment
    return Sized(setup, d.weights, d.kv, (replace(pool, capacity_rps=capacity),), seen)


# -- two pools --------------------------------------------------------------------------------


def _two_pools(request: PlanRequest, resources: Resources, tables: Mapping[str, list[Table]],
               found: Search) -> None:
    """Every pair of GPU types: the cheapest prefill pool for each of the best decode pools."""
    best: dict[tuple[str, str], Sized] = {}
    refusals: dict[str, tuple[Table, Refusal]] = {}
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
    found.sized += [_with_capacities(request, option) for option in best.values()]
    covered = {slug for pair in best for slug in pair}
    found.missed += [_miss("disaggregated", table, refusal, None)
                     for slug, (table, refusal) in refusals.items() if slug not in covered]


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
                  refusals: dict[str, tuple[Table, Refusal]]) -> list[Pool]:
    pools = []
    for table in tables:
        source = DecodePool(table)
        limit = (region_gpus(request) // table.deployment.layout.gpus
                 - request.limits.spare_replicas)
        answer = smallest(source.check, request, limit, source.ceiling_rps())
        if isinstance(answer, Refusal):
            refusals[table.deployment.gpu.slug] = (table, answer)
        else:
            pools.append(_pool("decode", table, answer, None, source, request))
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
             sources: list[PrefillPool], best: dict[tuple[str, str], Sized],
             refusals: dict[str, tuple[Table, Refusal]]) -> None:
    """Offer every prefill pool that goes with a decode pool."""
    assert isinstance(decode.source, DecodePool)
    chain = decode.source.chain(*share(request, decode.replicas))
    admission = decode.source.admission(chain, decode.batch_size)
    for source in sources:
        slug = source.table.deployment.gpu.slug
        key = (slug, decode.deployment.gpu.slug)
        pair = Pair(source, decode.source)
        check = _prefill_check(source, pair.handover_s(chain, decode.batch_size), admission)
        limit, known = _prefill_limit(request, value, decode, source, best.get(key))
        if known and limit * source.ceiling_rps() < request.workload.requests_per_s:
            continue
        answer = smallest(check, request, limit, source.ceiling_rps(), known)
        if isinstance(answer, Refusal):
            refusals.setdefault(slug, (source.table, answer))
            continue
        prefill = _pool("prefill", source.table, answer, None, source, request)
        _keep_better(request, value, pair, (prefill, decode), best, key)


def _prefill_check(source: PrefillPool, handover_s: Array, admission: Wait) -> Check:
    def check(rate_per_s: float, cv2: float) -> Verdict:
        return source.check(rate_per_s, cv2, handover_s, admission)
    return check


def _prefill_limit(request: PlanRequest, value: Mapping[str, float], decode: Pool,
                   source: PrefillPool, best: Sized | None) -> tuple[int, bool]:
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
                 pools: tuple[Pool, Pool], best: dict[tuple[str, str], Sized],
                 key: tuple[str, str]) -> None:
    rates, cv2s = zip(*(share(request, p.replicas) for p in pools), strict=True)
    means = pair.means(rates, cv2s, pools[1].batch_size)
    old = best.get(key)
    rank = (pool_value(pools, value, request), sum(means))
    if old is not None:
        old_late = old.latencies.ttft_s["mean"] + old.latencies.tpot_s["mean"]
        if rank >= (pool_value(old.pools, value, request), old_late):
            return
    seen = pair.latencies(rates, cv2s, pools[1].batch_size)
    if seen is not None:
        d = pools[1].deployment
        best[key] = Sized("disaggregated", d.weights, d.kv, pools, seen)


def _with_capacities(request: PlanRequest, option: Sized) -> Sized:
    """Add what one replica of each pool could carry."""
    prefill, decode = option.pools
    assert isinstance(prefill.source, PrefillPool)
    assert isinstance(decode.source, DecodePool)
    asked = replace(request, workload=prefill.table.workload)
    chain = decode.source.chain(*share(asked, decode.replicas))
    handover = Pair(prefill.source, decode.source).handover_s(chain, decode.batch_size)
    check = _prefill_check(prefill.source, handover,
                           decode.source.admission(chain, decode.batch_size))
    return replace(option, pools=(
        replace(prefill, capacity_rps=capacity_rps(check, asked, prefill.replicas)),
        replace(decode, capacity_rps=capacity_rps(decode.source.check, asked, decode.replicas))))


# -- misses -----------------------------------------------------------------------------------


def _miss(setup: str, table: Table, refusal: Refusal, source: Serving | None) -> Miss:
    d = table.deployment
    if not refusal.at_zero_load:
        return Miss(setup, d.gpu.slug, d.layout, d.weights, "max_gpus",
                    f"needs more than max_gpus; one replica is limited by {refusal.failed}")
    reason = {"ttft": "ttft_at_zero_load", "tpot": "tpot_at_batch_one", "itl": "itl_at_batch_one",
              "e2e": "e2e_at_zero_load"}.get(refusal.failed, refusal.failed)
    target = table.workload.slo(refusal.failed)
    over = math.inf if target is None else max(
        _best_case_s(table, target, source) / target.limit_s - 1.0, 0.0)
    return Miss(setup, d.gpu.slug, d.layout, d.weights, reason,
                _zero_load_detail(table, refusal.failed, source), over)


def zero_load_miss(setup: str, table: Table) -> Miss | None:
    """The target that a layout misses with no other request, by its columns alone."""
    for target in table.workload.slos:
        if target.metric == "itl":
            continue
        level = target.percentile / 100.0
        token_s = float(table.decode_s[0])
        left = {"ttft": target.limit_s, "tpot": math.inf if token_s <= target.limit_s else -1.0,
                "e2e": target.limit_s - token_s * max(
                    table.workload.output.quantile(level) - 1.0, 0.0)}[target.metric]
        within = float(table.prompt_weights[table.first_token_s <= left].sum())
        if within < level - 1e-9:
            return _miss(setup, table, Refusal(target.metric, True), None)
    return None


def _zero_load_detail(table: Table, failed: str, source: Serving | None) -> str:
    """What the best case is against what was asked."""
    target = table.workload.slo(failed)
    if target is None:
        return f"not even one sequence at a time is possible: {failed}"
    best_s = _best_case_s(table, target, source)
    if best_s <= target.limit_s:
        return (f"{failed} p{target.percentile:g}: the prefill alone takes "
                f"{s_to_ms(best_s):.1f} ms of {s_to_ms(target.limit_s):g} ms; the KV transfer and "
                "the first decode step do not fit in the rest; more replicas do not help")
    return (f"{failed} p{target.percentile:g} is {s_to_ms(best_s):.1f} ms with no other request, "
            f"{s_to_ms(best_s - target.limit_s):.1f} ms over the target of "
            f"{s_to_ms(target.limit_s):g} ms; more replicas do not help")


def _best_case_s(table: Table, target: Slo, source: Serving | None) -> float:
    if source is not None:
        return source.best_case_s(target)
    token_s = float(table.decode_s[0])
    if target.metric in ("tpot", "itl"):
        return token_s
    if target.metric == "e2e":
        tokens = table.workload.output.quantile(target.percentile / 100.0) - 1.0
        return token_s * max(tokens, 0.0) + _best_case_s(
            table, Slo("ttft", target.limit_s, target.percentile), None)
    at = table.workload.new_prompt.quantile(target.percentile / 100.0)
    return float(table.first_token_s[int(abs(table.prompt_tokens - at).argmin())])
