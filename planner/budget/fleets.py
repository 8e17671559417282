"""Which workloads share a fleet, and at which layout each fleet is sized.

Workloads of one model and equal settings share a fleet unless they name their fleets. The layout
is that of the plan for the fleet's busiest month: the members' rates added, their lengths mixed
and the strictest targets (:mod:`planner.budget.mixing`). Where the members do not go together
(one has no answer beside the others' targets) each gets a fleet of its own; a workload that no
layout serves is left out with its reason, and one that some months' GPUs rule out is served in the
others; the other workloads are budgeted all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.advice import reason_of
from planner.budget.capacity import Capacity, FixedLayout
from planner.budget.demand import Array
from planner.budget.inputs import BudgetRequest
from planner.budget.mixing import grown, mix
from planner.catalog.book import Catalog, PriceChoice
from planner.errors import InvalidValue, PlannerError
from planner.fleet import Fleet, build_fleet, region_rate
from planner.llm import Llm
from planner.measured import worker_rate
from planner.planning import gather, rank
from planner.pricing import Pricer
from planner.requests import PlanRequest
from planner.search import search
from planner.sizing import Resources
from planner.wording import gpus as gpus_text
from planner.workload import Lengths, Workload

ANY_GPUS = 10**9
"""A ``max_gpus`` that rules nothing out."""
CHECKED_SHARE = 0.95
"""Share of log-normal lengths that must fit the model's context, as for a single plan."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Base-scenario curves of all workloads, shape (workloads, months)."""

    rates: Array
    factors: Array


@dataclass(slots=True)
class Layout:
    """A fleet at its layout: the members by index, the sized option, what it costs.

    ``fixed`` is None for measured workers, whose capacity was stated.
    """

    name: str
    members: list[int]
    month: int
    request: PlanRequest
    llm: Llm
    reference: Workload
    setup: str
    weights: str
    kv: str
    limited_by: str
    pools: list[Share]
    prices: dict[str, PriceChoice]
    pricer: Pricer
    fixed: FixedLayout | None


@dataclass(frozen=True, slots=True)
class Share:
    """One pool of a layout: what it runs on and how many replicas its sized month takes."""

    role: str
    gpu: str
    text: str
    gpus_per_replica: int
    replicas: int
    capacity: Capacity | None


@dataclass(slots=True)
class Found:
    """Fleets, the last month each workload is served, why those are not that are not served or
    miss a target, and those of whose months some take more GPUs than are allowed."""

    fleets: list[Layout]
    ends: dict[int, int]
    reasons: dict[int, str]
    partly: set[int]


def regions_of(budget: BudgetRequest, request: PlanRequest) -> int:
    """Regions of a fleet: the budget's, else those of the plan request."""
    return len(budget.regions) if budget.regions is not None else request.limits.regions


def spares_of(budget: BudgetRequest, request: PlanRequest) -> int:
    """Spare replicas of each pool: the budget's, else those of the plan request."""
    return (request.limits.spare_replicas if budget.spare_replicas is None
            else budget.spare_replicas)


def groups(budget: BudgetRequest, catalog: Catalog) -> dict[str, list[int]]:
    """Workloads by the fleet that they share, under a name.

    Raises
    ------
    InvalidValue
        When workloads that name one fleet differ in more than traffic and targets.
    """
    found: dict[str, list[int]] = {}
    keys: dict[str, str] = {}
    for i, w in enumerate(budget.workloads):
        slug = catalog.llm(w.request.model, f"/workloads/{i}/model").slug
        key = repr((slug, _settings(w.request)))
        if w.request.measured:
            key += f" measured {i}"
        if w.fleet:
            other = keys.setdefault(w.fleet, key)
            if other != key:
                first = found[w.fleet][0]
                raise InvalidValue(
                    f"the fleet {w.fleet!r} is shared with /workloads/{first}, which differs in "
                    "model, GPUs, set-ups, precisions, engine, limits, pricing or objective",
                    f"/workloads/{i}/fleet")
            found.setdefault(w.fleet, []).append(i)
            continue
        name = next((n for n, k in keys.items() if k == key and n.startswith(slug)
                     and not _named(budget, n)), None)
        if name is None:
            name = _free(slug, keys)
            keys[name] = key
        found.setdefault(name, []).append(i)
    return found


def _settings(request: PlanRequest) -> tuple[object, ...]:
    """What workloads of one fleet must have in common."""
    r = request
    return (r.gpus, r.setups, r.precisions, r.engine, r.fidelity, r.limits, r.pricing,
            r.speculative, r.power_cap_w, r.objective)


def _named(budget: BudgetRequest, name: str) -> bool:
    return any(w.fleet == name for w in budget.workloads)


def _free(slug: str, taken: dict[str, str]) -> str:
    names = [slug, *(f"{slug} #{n}" for n in range(2, len(taken) + 3))]
    return next(n for n in names if n not in taken)


def lay_out(budget: BudgetRequest, catalog: Catalog, demand: Demand) -> Found:
    """Choose a layout for every fleet.

    Parameters
    ----------
    demand : Demand
        Curves of the base scenario.
    """
    found = Found([], {}, {}, set())
    for name, members in groups(budget, catalog).items():
        kept = [i for i in members if _within_context(budget, catalog, demand, i, found)]
        _solve(budget, catalog, demand, name, kept, found)
    return found


def _within_context(budget: BudgetRequest, catalog: Catalog, demand: Demand, i: int,
                    found: Found) -> bool:
    """Whether a workload is served at all; notes the month in which it outgrows the model."""
    w = budget.workloads[i]
    last = min(w.ends_month or budget.months, budget.months)
    found.ends[i] = last
    if w.starts_month > last:
        found.reasons[i] = f"starts in month {w.starts_month}, after the budget's last"
        return False
    limit = catalog.llm(w.request.model).max_context
    tokens = _longest(w.request.workload.prompt) + _longest(w.request.workload.output)
    if limit is not None:
        fits = [m for m in range(w.starts_month, last + 1)
                if demand.factors[i, m - 1] * tokens <= limit]
        found.ends[i] = max(fits, default=0)
        if found.ends[i] < last:
            found.reasons[i] = (f"from month {found.ends[i] + 1} on its longest requests exceed "
                                f"the {limit} tokens of the model")
    return found.ends[i] >= w.starts_month


def _longest(lengths: Lengths) -> float:
    return lengths.quantile(CHECKED_SHARE) if lengths.kind == "lognormal" else lengths.max


def _solve(budget: BudgetRequest, catalog: Catalog, demand: Demand, name: str,
           members: list[int], found: Found) -> None:
    """Size a fleet for its members; where that fails, without those that cannot be served."""
    if not members:
        return
    month = busiest(budget, demand, members, found)
    layout, why = size(budget, catalog, demand, name, members, month)
    if layout is not None:
        found.fleets.append(layout)
        if why:
            found.reasons.update({i: why for i in members if i not in found.reasons})
    elif len(members) == 1:
        _alone(budget, catalog, demand, name, members[0], month, why, found)
    else:
        for i in members:
            _solve(budget, catalog, demand, f"{name} for {budget.workloads[i].name}"[:120], [i],
                   found)


def _alone(budget: BudgetRequest, catalog: Catalog, demand: Demand, name: str, i: int,
           month: int, why: str, found: Found) -> None:
    """A workload that cannot be served in its busiest month: serve it in those that it can.

    Its lengths may rule months out whatever the GPUs, from some month on; of the others those with
    the most load may take more GPUs than are allowed. Each is found by halving, the second over the
    months in the order of their load.
    """
    def sized(at: int, unlimited: bool) -> tuple[Layout | None, str]:
        return size(budget, catalog, demand, name, [i], at, ANY_GPUS if unlimited else None)

    w = budget.workloads[i]
    loads = demand.rates[i] * demand.factors[i]
    months = [m for m in range(w.starts_month, found.ends[i] + 1) if loads[m - 1] > 0.0]
    found.reasons[i] = f"month {month}: {why}"
    if float(demand.factors[i, found.ends[i] - 1]) > 1.0:
        short, _ = _most(months, lambda m: sized(m, True)[0])
        if short < len(months):
            found.reasons[i] = f"from month {months[short]} on: {sized(months[short], True)[1]}"
    else:
        short = len(months) if sized(month, True)[0] is not None else 0
    served = months[:short]
    ordered = sorted(served, key=lambda m: float(loads[m - 1]))
    _, best = _most(ordered, lambda m: sized(m, False)[0])
    if best is None:
        least = sized(ordered[0], True)[0] if ordered else None
        if least is not None:
            found.reasons[i] = _too_many(budget, least, ordered[0])
        found.ends[i] = 0
        return
    found.ends[i] = served[-1]
    found.partly.add(i)
    found.fleets.append(best)


def _most(months: Sequence[int], layout_of: Callable[[int], Layout | None]
          ) -> tuple[int, Layout | None]:
    """How many of the first months have a layout, and that of the last such one."""
    low, high, best = 0, len(months) + 1, None
    while high - low > 1:
        middle = (low + high) // 2
        layout = layout_of(months[middle - 1])
        if layout is None:
            high = middle
        else:
            low, best = middle, layout
    return low, best


def _too_many(budget: BudgetRequest, layout: Layout, month: int) -> str:
    """By how many GPUs even the easiest month is short."""
    limits = budget.workloads[layout.members[0]].request.limits
    spares = spares_of(budget, layout.request)
    gpus = layout.request.limits.regions * sum(
        (s.replicas + spares) * s.gpus_per_replica for s in layout.pools)
    return (f"month {month}, that with the least load, needs {gpus_text(gpus, ',')}, "
            f"{gpus - limits.max_gpus:,} more than max_gpus ({limits.max_gpus:,})")


def busiest(budget: BudgetRequest, demand: Demand, members: Sequence[int], found: Found) -> int:
    """The month, from 1, with the most tokens a second of all members together."""
    total = np.zeros(budget.months)
    for i in members:
        workload = budget.workloads[i].request.workload
        tokens = workload.prompt.mean + workload.output.mean
        served = np.arange(1, budget.months + 1) <= found.ends[i]
        total += demand.rates[i] * demand.factors[i] * tokens * served
    return int(total.argmax()) + 1


def grown_parts(budget: BudgetRequest, demand: Demand, members: Sequence[int], month: int
                ) -> tuple[list[Workload], list[float]]:
    """Workloads of a fleet as they are in a month, and their rates [1/s]."""
    parts = [grown(budget.workloads[i].request.workload, float(demand.factors[i, month - 1]))
             for i in members]
    return parts, [float(demand.rates[i, month - 1]) for i in members]


def size(budget: BudgetRequest, catalog: Catalog, demand: Demand, name: str,
         members: list[int], month: int, most_gpus: int | None = None
         ) -> tuple[Layout | None, str]:
    """The best layout of a fleet in a month, or why there is none; ``most_gpus`` replaces
    the ``max_gpus`` of its requests."""
    first = budget.workloads[members[0]].request
    workload = mix(*grown_parts(budget, demand, members, month))
    if workload.requests_per_s <= 0.0:
        return None, "no requests"
    regions = regions_of(budget, first)
    peak = workload.requests_per_s * (1.0 + budget.headroom)
    request = replace(
        first, workload=replace(workload, requests_per_s=region_rate(peak, regions)),
        limits=replace(first.limits, regions=regions, spare_replicas=spares_of(budget, first),
                       max_gpus=most_gpus or first.limits.max_gpus))
    pricer = Pricer(catalog, request.pricing)
    try:
        resources, prices = gather(request, catalog)
        if request.measured:
            return _measured(members, month, name, request, resources, prices, pricer)
        return _searched(members, month, name, request, resources, pricer, workload)
    except PlannerError as error:
        raise type(error)(error.message, f"/workloads/{members[0]}{error.pointer}") from None


def _searched(members: list[int], month: int, name: str, request: PlanRequest,
              resources: Resources, pricer: Pricer, workload: Workload
              ) -> tuple[Layout | None, str]:
    found = search(request, resources)
    built = [build_fleet(c.sized(request), request) for c in found.choices]
    fleets = [f for f in built if f.gpus <= request.limits.max_gpus]
    if built and not fleets:
        least = min(f.gpus for f in built)
        return None, f"needs {gpus_text(least)}, more than max_gpus ({request.limits.max_gpus})"
    if not fleets:
        return None, reason_of([], found.missed) or "no layout meets the targets"
    ranked = rank(request, fleets, pricer)
    priced = [(d, f) for d, f in ranked if d["usd_per_hour"] is not None]
    if not priced:
        kinds = ", ".join(sorted({k for f in fleets for k in f.gpus_by_kind()}))
        return None, (f"no price for {kinds} under this pricing; give "
                      "pricing.usd_per_gpu_hour")
    document, fleet = priced[0]
    sized = fleet.sized
    return Layout(name, members, month, request, resources.llm, workload, sized.setup,
                  sized.weights, sized.kv, document["limited_by"] or "", _shares(fleet),
                  pricer.of_fleet(fleet), pricer, FixedLayout(sized, request, resources)), (
                      " ".join(document["warnings"]))


def _shares(fleet: Fleet) -> list[Share]:
    found = []
    for p in (f.pool for f in fleet.pools):
        layout = p.deployment.layout
        degrees = (("TP", layout.tensor), ("PP", layout.pipeline), ("EP", layout.expert),
                   ("DP", layout.data))
        text = " ".join(f"{n}{d}" for n, d in degrees if d > 1) or "TP1"
        found.append(Share(p.role, p.deployment.gpu.slug, text, layout.gpus, p.replicas, None))
    return found


def _measured(members: list[int], month: int, name: str, request: PlanRequest,
              resources: Resources, prices: dict[str, PriceChoice], pricer: Pricer
              ) -> tuple[Layout | None, str]:
    """A fleet of workers whose rate was measured: capacity is the stated rate times utilisation."""
    roles = set(request.measured)
    if roles not in ({"serve"}, {"prefill", "decode"}):
        raise InvalidValue("give either serve, or prefill and decode together",
                           "/measured")
    gpu = resources.gpus[0].slug
    if gpu not in prices:
        return None, f"no price for {gpu} under this pricing; give pricing.usd_per_gpu_hour"
    pools = []
    for role in ("serve", "prefill", "decode"):
        if role in roles:
            worker = request.measured[role]
            rate = worker_rate(role, worker, request.workload)
            held = rate * request.limits.target_utilization
            capacity = Capacity((1,), (held,))
            pools.append(Share(role, gpu, gpus_text(worker.gpus), worker.gpus,
                               capacity.needed(request.workload.requests_per_s), capacity))
    setup = "disaggregated" if len(pools) == 2 else "colocated"
    return Layout(name, members, month, request, resources.llm, request.workload, setup,
                  resources.llm.native_precision, resources.llm.native_kv, "throughput", pools,
                  {gpu: prices[gpu]}, pricer, None), ""

