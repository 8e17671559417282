"""From a budget request to a model: demand, layouts, capacity curves, prices, commitments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np

from planner.budget import commit
from planner.budget.capacity import Capacity, FixedLayout
from planner.budget.demand import Array, compound, rate_curve, seasons, spike_factor
from planner.budget.fleets import Demand, Found, Layout, grown_parts, lay_out, spares_of
from planner.budget.inputs import BudgetRequest, BudgetWorkload, Scenario
from planner.budget.mixing import grown, mix
from planner.budget.model import (
    BudgetModel,
    FleetLine,
    GpuLine,
    PoolLine,
    TermPrice,
    Weight,
    WorkloadLine,
)
from planner.budget.money import decimal
from planner.budget.months import figures, line_gpus, paid, weight_of
from planner.budget.partly import served_months
from planner.catalog.book import Catalog, PriceChoice
from planner.hardware import Gpu
from planner.pricing import Pricer
from planner.requests import PlanRequest

CATALOG_TERMS = (("reserved_1y", 12), ("reserved_3y", 36))
NODE_STEP, MOST_NODES = 1.07, 21
"""Growth of the lengths from one sizing to the next, and the most sizings of one workload."""
NODE_REACH = 1.25
"""How far beyond the last month's lengths a curve goes, for edits in the workbook."""
MIX_TOLERANCE = 0.02
"""Share of the load that may move before a mix is sized again."""
MOST_MIXES, LEAST_MIXES = 48, 6
"""Sizings of mixes that the shared fleets of a budget divide between them, and of each at least."""


def make_model(budget: BudgetRequest, catalog: Catalog) -> BudgetModel:
    """Size every fleet and gather what months and money need.

    Raises
    ------
    PlannerError
        When the request names what the catalog lacks, with its pointer.
    """
    base = next(s for s in budget.scenarios if s.name == "base")
    demand = Demand(*_curves(budget, base))
    found = lay_out(budget, catalog, demand)
    lines = _Lines(budget, catalog)
    fleets: list[FleetLine] = []
    weights: dict[int, tuple[int, tuple[Weight, ...]]] = {}
    shared = sum(len(layout.members) > 1 for layout in found.fleets)
    most_mixes = max(MOST_MIXES // max(shared, 1), LEAST_MIXES)
    for layout in found.fleets:
        sizing = _Sizing(budget, demand, layout, found, most_mixes)
        for i in layout.members:
            weights[i] = (len(fleets), sizing.weights[i])
        fleets.append(_fleet_line(budget, layout, sizing, lines))
    model = BudgetModel(
        budget.name, budget.months, budget.start_year, budget.start_month, budget.scenarios,
        budget.headroom, _region_names(budget, fleets), budget.prices, budget.commitments,
        budget.owned, budget.energy, budget.lead_time_days, budget.actuals,
        tuple(_workload_line(w, i, found, weights.get(i))
              for i, w in enumerate(budget.workloads)),
        tuple(fleets), tuple(lines.found), catalog.as_of)
    model = replace(model, workloads=tuple(
        served_months(model, i, budget.workloads[i].request.limits.max_gpus)
        if i in found.partly else line for i, line in enumerate(model.workloads)))
    return replace(model, lines=_with_terms(model))


def _curves(budget: BudgetRequest, scenario: Scenario) -> tuple[Array, Array]:
    rates, factors = [], []
    for w in budget.workloads:
        shape = seasons(w.seasonality, budget.months, budget.start_month) * spike_factor(
            w.spikes, budget.months)
        rates.append(rate_curve(w.request.workload.requests_per_s, w.growth_per_month, shape,
                                budget.months, w.starts_month, w.ends_month or budget.months,
                                scenario))
        factors.append(compound(w.tokens_growth_per_month, budget.months, w.starts_month))
    return np.array(rates), np.array(factors)


def _region_names(budget: BudgetRequest, fleets: Sequence[FleetLine]) -> tuple[str, ...]:
    if budget.regions is not None:
        return budget.regions
    most = max((f.regions for f in fleets), default=1)
    wish = {w.request.pricing.region for w in budget.workloads}
    if most == 1:
        return (wish.pop() or "unspecified",) if len(wish) == 1 else ("unspecified",)
    return tuple(f"region-{i}" for i in range(1, most + 1))


def _workload_line(w: BudgetWorkload, i: int, found: Found,
                   placed: tuple[int, tuple[Weight, ...]] | None) -> WorkloadLine:
    workload = w.request.workload
    fleet, weights = placed if placed is not None else (None, ())
    return WorkloadLine(
        w.name, w.request.model, w.starts_month, found.ends[i],
        workload.requests_per_s, workload.mean_requests_per_s or workload.requests_per_s,
        w.growth_per_month, w.tokens_growth_per_month, w.seasonality, w.spikes,
        workload.prompt.mean, workload.output.mean, fleet, weights, found.reasons.get(i))


def _fleet_line(budget: BudgetRequest, layout: Layout, sizing: _Sizing, lines: _Lines
                ) -> FleetLine:
    limits = layout.request.limits
    pools = tuple(
        PoolLine(s.role, s.gpu, lines.place(layout, s.gpu), s.text, s.gpus_per_replica,
                 sizing.capacity[p], sizing.mixes(p))
        for p, s in enumerate(layout.pools))
    return FleetLine(layout.name, layout.request.model, tuple(layout.members), layout.setup,
                     layout.weights, layout.kv, layout.limited_by, limits.target_utilization,
                     spares_of(budget, layout.request), limits.regions, layout.month, pools)


# -- capacity -----------------------------------------------------------------------------------


class _Sizing:
    """Capacity curves of a fleet, weights of its members, and factors of their mixes."""

    def __init__(self, budget: BudgetRequest, demand: Demand, layout: Layout, found: Found,
                 most_mixes: int) -> None:
        self.most_mixes = most_mixes
        self.budget, self.demand, self.layout, self.found = budget, demand, layout, found
        self.counts = [max(s.replicas, 1) for s in layout.pools]
        self.capacity = self._reference()
        self.weights = {i: self._weights(i) for i in layout.members}
        self._mix = self._mix_factors()

    def _reference(self) -> tuple[Capacity, ...]:
        fixed = self.layout.fixed
        if fixed is None:
            return tuple(s.capacity for s in self.layout.pools if s.capacity is not None)
        found = fixed.capacity(self.layout.reference, most=2 * max(self.counts))
        assert found is not None  # the search has just sized it
        return found

    def _weights(self, i: int) -> tuple[Weight, ...]:
        """Curves of a member's weight over the growth of its lengths, one for each pool."""
        fixed, budget = self.layout.fixed, self.budget
        nodes = _nodes(budget.workloads[i].tokens_growth_per_month,
                       float(self.demand.factors[i].max()))
        same = len(self.layout.members) == 1 and len(nodes) == 1
        if fixed is None or same:
            return tuple(Weight() for _ in self.layout.pools)
        values: list[list[float]] = []
        for factor in nodes:
            values.append(self._at(fixed, i, factor, values, nodes))
        return tuple(Weight(tuple(nodes), tuple(v[p] for v in values))
                     for p in range(len(self.layout.pools)))

    def _at(self, fixed: FixedLayout, i: int, factor: float, before: list[list[float]],
            nodes: Sequence[float]) -> list[float]:
        """Weight of a member in each pool when its lengths have grown by a factor."""
        workload = grown(self.budget.workloads[i].request.workload, factor)
        mean = self.layout.reference
        share = (workload.prompt.mean + workload.output.mean) / (
            mean.prompt.mean + mean.output.mean)
        expected = (1.0 / share if not before
                    else nodes[len(before) - 1] / factor * before[0][0] / before[-1][0])
        found = fixed.capacity(workload, self.counts, guess=expected)
        if found is not None:
            return [ref.holds(k) / own.requests_per_s[0] for ref, own, k in zip(
                self.capacity, found, self.counts, strict=True)]
        if before:  # too long to be served alone: in proportion to its tokens
            return [v * factor / nodes[len(before) - 1] for v in before[-1]]
        return [share for _ in self.counts]

    def mixes(self, pool: int) -> tuple[tuple[float, ...], ...]:
        """Factors of a pool by scenario and month."""
        return tuple(tuple(month[pool] for month in scenario) for scenario in self._mix)

    def _mix_factors(self) -> list[list[list[float]]]:
        """Joint sizing over the sum of the members, in each scenario and month.

        A mix is sized again when more than :data:`MIX_TOLERANCE` of the load has moved between
        the members, or their lengths have grown by as much, since every one sized before; between
        them the factor follows the two nearest.
        """
        fixed, members = self.layout.fixed, self.layout.members
        if fixed is None or len(members) == 1:
            return []
        curves = [_curves(self.budget, s) for s in self.budget.scenarios]
        states = [[self._state(rates, factors, m) for m in range(self.budget.months)]
                  for rates, factors in curves]
        base = [s.name for s in self.budget.scenarios].index("base")
        tolerance = MIX_TOLERANCE
        while len(chosen := _representatives(states[base], tolerance)) > self.most_mixes:
            tolerance *= 1.3
        known = [(states[base][m], self._mixed(fixed, m + 1)) for m in chosen]
        return [[_between(s, known, len(self.counts)) for s in row] for row in states]

    def _state(self, rates: Array, factors: Array, month: int) -> State | None:
        """Shares of the load and growth of the lengths of the members; None without load."""
        load = np.array([
            rates[i, month] * weight_of(self.weights[i][0], factors[i, month:month + 1])[0]
            if month < self.found.ends[i] else 0.0 for i in self.layout.members])
        total = load.sum()
        grown_by = np.log(factors[list(self.layout.members), month])
        return State(load / total, grown_by) if total > 0 else None

    def _mixed(self, fixed: FixedLayout, month: int) -> list[float]:
        """Joint over summed load of the mix of a base month, for each pool."""
        served = [i for i in self.layout.members if month <= self.found.ends[i]]
        parts, rates = grown_parts(self.budget, self.demand, served, month)
        total = sum(rates)
        found = fixed.capacity(mix(parts, rates, fixed.slos), self.counts)
        if found is None:
            return [1.0 for _ in self.counts]
        factors = []
        for p, (ref, joint) in enumerate(zip(self.capacity, found, strict=True)):
            summed = sum(r / total * float(weight_of(
                self.weights[i][p], self.demand.factors[i, month - 1:month])[0])
                for i, r in zip(served, rates, strict=True))
            factors.append(ref.holds(self.counts[p]) / (joint.requests_per_s[0] * summed))
        return factors


def _nodes(growth: float, last: float) -> list[float]:
    """Factors on the lengths at which a growing workload is sized."""
    if growth == 0.0:
        return [1.0]
    if growth < 0.0:
        low = max(last if last < 1.0 else (1.0 + growth) ** 59, 1e-3) / NODE_REACH
        steps = min(max(math.ceil(-math.log(low) / math.log(NODE_STEP)), 2), MOST_NODES - 1)
        return [float(x) for x in np.geomspace(low, 1.0, steps + 1)]
    top = last * NODE_REACH
    steps = min(max(math.ceil(math.log(top) / math.log(NODE_STEP)), 2), MOST_NODES - 1)
    return [float(x) for x in np.geomspace(1.0, top, steps + 1)]


@dataclass(frozen=True, slots=True)
class State:
    """A mix: shares of the load, and the logarithm of the growth of the lengths, by member."""

    shares: Array
    growth: Array

    def moved(self, other: State) -> float:
        """Total variation of the shares plus the mean difference in the lengths' growth."""
        mean = (self.shares + other.shares) / 2.0
        return float(np.abs(self.shares - other.shares).sum() / 2.0
                     + (mean * np.abs(self.growth - other.growth)).sum())


def _representatives(states: Sequence[State | None], tolerance: float) -> list[int]:
    """Months whose mixes stand for all others within a tolerance."""
    chosen: list[tuple[int, State]] = []
    for m, state in enumerate(states):
        if state is not None and all(state.moved(s) > tolerance for _, s in chosen):
            chosen.append((m, state))
    return [m for m, _ in chosen]


def _between(state: State | None, known: Sequence[tuple[State | None, list[float]]], pools: int
             ) -> list[float]:
    """Factors of a mix: those of the two nearest known ones, by the inverse of the distance."""
    if state is None or not known:
        return [1.0] * pools
    near = sorted(((state.moved(s), f) for s, f in known if s is not None),
                  key=lambda pair: pair[0])[:2]
    if near[0][0] < 1e-12 or len(near) == 1:
        return near[0][1]
    pull = [1.0 / d for d, _ in near]
    return [sum(w * f[p] for w, (_, f) in zip(pull, near, strict=True)) / sum(pull)
            for p in range(pools)]


# -- prices -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Lines:
    """GPU lines: fleets whose GPUs have one kind and one price share a line."""

    budget: BudgetRequest
    catalog: Catalog
    found: list[GpuLine] = field(default_factory=list)

    def place(self, layout: Layout, gpu: str) -> int:
        """The line of a fleet's GPU; made when there is none."""
        line = self._line(layout.prices[gpu], layout.pricer, self.catalog.gpu(gpu),
                          layout.request)
        for i, known in enumerate(self.found):
            if replace(known, name=line.name) == line:
                return i
        twins = sum(known.gpu == gpu for known in self.found)
        self.found.append(replace(line, name=f"{gpu} #{twins + 1}" if twins else gpu,
                                  existing_gpus=line.existing_gpus))
        return len(self.found) - 1

    def _line(self, choice: PriceChoice, pricer: Pricer, gpu: Gpu, request: PlanRequest
              ) -> GpuLine:
        price, owned = choice.price, self.budget.owned
        server = next((s for s in owned.servers if s.gpu == gpu.slug), None)
        watts = None if gpu.tdp_w is None else min(gpu.tdp_w, request.power_cap_w or gpu.tdp_w)
        taken = any(k.gpu == gpu.slug and k.usd_per_gpu_hour != price.usd_per_gpu_hour
                    for k in self.found)
        source = ", ".join(str(x) for x in (price.provider, price.region, price.as_of,
                                            price.source) if x)
        return GpuLine(
            gpu.slug, gpu.slug, decimal(price.usd_per_gpu_hour), price.provider, price.region,
            price.commitment, source, watts,
            (server.gpus_per_server if server and server.gpus_per_server else gpu.node_gpus),
            tuple(self._offers(choice, pricer, gpu.slug)), None,
            0 if taken else owned.existing_gpus.get(gpu.slug, 0), server)

    def _offers(self, choice: PriceChoice, pricer: Pricer, gpu: str) -> list[TermPrice]:
        """Commitments cheaper than the price paid without one, not longer than the budget."""
        listed = decimal(choice.price.usd_per_gpu_hour)
        paid_price = listed * (1 - decimal(self.budget.prices.negotiated_discount))
        terms = self.budget.commitments.terms
        found = (self._catalog_offers(choice, pricer, gpu) if terms is None else
                 [TermPrice(t.term_months, price, "request",
                            None if gpu in t.usd_per_gpu_hour else t.discount) for t in terms
                  if (price := _stated_price(t.usd_per_gpu_hour.get(gpu), t.discount, listed))
                  is not None])
        return [t for t in found
                if t.usd_per_gpu_hour < paid_price and t.term_months <= self.budget.months]

    def _catalog_offers(self, choice: PriceChoice, pricer: Pricer, gpu: str) -> list[TermPrice]:
        """Reserved prices of the catalog, when the on-demand price is the catalog's too."""
        if choice.price.provider == "request" or choice.price.commitment != "on_demand":
            return []
        found = []
        for commitment, months in CATALOG_TERMS:
            offer = self.catalog.price_choice(gpu, replace(
                pricer.pricing, commitment=commitment, usd_per_gpu_hour={}))
            if offer is not None:
                p = offer.price
                found.append(TermPrice(months, decimal(p.usd_per_gpu_hour), ", ".join(
                    str(x) for x in (p.provider, p.region, p.as_of, p.source) if x)))
        return found


def _stated_price(price: Decimal | None, discount: float | None, listed: Decimal
                  ) -> Decimal | None:
    if price is not None:
        return price
    return None if discount is None else listed * (1 - decimal(discount))


def _with_terms(model: BudgetModel) -> tuple[GpuLine, ...]:
    """The lines with the commitment that costs least in the base scenario."""
    found = []
    base = model.scenarios[model.base]
    counted = figures(model, model.base)
    for i, line in enumerate(model.lines):
        gpus = line_gpus(model, i, counted.pools)
        best, least = None, math.inf
        for term in (None, *line.offered):
            tried = paid(model, replace(line, term=term), gpus, base)
            cost = commit.curve_cost(tried.rented.astype(float), tried.on_demand_price,
                                     tried.committed.astype(float), tried.committed_price)
            if cost < least * (1.0 - commit.MARGIN):
                best, least = term, cost
        found.append(replace(line, term=best))
    return tuple(found)



