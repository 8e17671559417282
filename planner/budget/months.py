"""Demand, replicas, GPUs and commitments of a budget, month by month."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.budget import commit
from planner.budget.demand import compound, rate_curve, seasons, spike_factor
from planner.budget.inputs import Prices, Scenario
from planner.budget.model import BudgetModel, FleetLine, GpuLine, PoolLine, Weight, WorkloadLine

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PoolMonths:
    """A pool in each month: its load in reference requests [1/s] of a region, replicas, GPUs."""

    load: Array
    replicas: Counts
    gpus: Counts


@dataclass(frozen=True, slots=True)
class LineMonths:
    """A GPU line in each month: GPUs needed, owned, rented, committed; prices [USD/h]."""

    gpus: Counts
    owned: Counts
    rented: Counts
    committed: Counts
    list_price: Array
    on_demand_price: Array
    committed_price: Array

    @property
    def used_committed(self) -> Counts:
        """Committed GPUs that work."""
        return np.minimum(self.rented, self.committed)

    @property
    def burst(self) -> Counts:
        """GPUs above the committed base, on demand."""
        return self.rented - self.used_committed

    @property
    def unused(self) -> Counts:
        """Committed GPUs that idle."""
        return self.committed - self.used_committed


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything countable of one scenario.

    Attributes
    ----------
    rates, mean_rates : ndarray, shape (workloads, months)
        [1/s] at the peak, and over the day.
    factors : ndarray, shape (workloads, months)
        Growth of the lengths.
    pools : tuple of tuple of PoolMonths
        By fleet and pool.
    lines : tuple of LineMonths
    """

    scenario: Scenario
    rates: Array
    mean_rates: Array
    factors: Array
    pools: tuple[tuple[PoolMonths, ...], ...]
    lines: tuple[LineMonths, ...]

    @property
    def gpus(self) -> Counts:
        """GPUs of all lines, shape (months,)."""
        total = np.zeros(self.rates.shape[1], dtype=np.int64)
        for line in self.lines:
            total += line.gpus
        return total


def figures(model: BudgetModel, place: int) -> Figures:
    """Count a scenario.

    Parameters
    ----------
    place : int
        Index of the scenario.
    """
    scenario = model.scenarios[place]
    rates = np.array([workload_rates(w, model, scenario) for w in model.workloads])
    factors = np.array([length_factors(w, model.months) for w in model.workloads])
    over = np.array([w.mean_requests_per_s / w.requests_per_s for w in model.workloads])
    pools = tuple(tuple(pool_months(model, fleet, p, place, rates, factors)
                        for p in range(len(fleet.pools))) for fleet in model.fleets)
    lines = tuple(line_months(model, i, pools, scenario) for i in range(len(model.lines)))
    return Figures(scenario, rates, rates * over[:, None], factors, pools, lines)


def workload_rates(w: WorkloadLine, model: BudgetModel, scenario: Scenario) -> Array:
    """Peak rate [1/s] of a workload in each month; 0 when it is not served."""
    if w.fleet is None:
        return np.zeros(model.months)
    shape = seasons(w.seasonality, model.months, model.start_month) * spike_factor(
        w.spikes, model.months)
    return rate_curve(w.requests_per_s, w.growth_per_month, shape, model.months,
                      w.starts_month, w.ends_month, scenario)


def length_factors(w: WorkloadLine, months: int) -> Array:
    """Growth of a workload's lengths since its start."""
    return compound(w.tokens_growth_per_month, months, w.starts_month)


def weight_of(weight: Weight, factors: Array) -> Array:
    """Reference requests that one request stands for, by the growth of its lengths."""
    if len(weight.factors) == 1 and bool((factors == weight.factors[0]).all()):
        return np.full(len(factors), weight.values[0])
    at = np.clip(np.searchsorted(weight.factors, factors, side="right") - 1, 0, None)
    nodes, values = np.array(weight.factors), np.array(weight.values)
    return np.asarray(values[at] * (factors / nodes[at]) ** np.array(weight.exponents)[at])


def pool_load(model: BudgetModel, fleet: FleetLine, place: int, rates: Array, factors: Array
              ) -> Array:
    """Load of a pool in reference requests [1/s], before headroom and regions."""
    load = np.zeros(model.months)
    for i in fleet.members:
        load += rates[i] * weight_of(model.workloads[i].weights[place], factors[i])
    return load


def pool_months(model: BudgetModel, fleet: FleetLine, place: int, scenario: int, rates: Array,
                factors: Array) -> PoolMonths:
    """Replicas and GPUs of one pool of a fleet in each month."""
    pool = fleet.pools[place]
    load = pool_load(model, fleet, place, rates, factors) * (1.0 + model.headroom)
    if pool.mix:
        load = load * np.array(pool.mix[scenario])
    load = load / max(fleet.regions - 1, 1)
    replicas = np.array([pool.capacity.needed(x) for x in load.tolist()], dtype=np.int64)
    return PoolMonths(load, replicas, pool_gpus(fleet, pool, replicas))


def pool_gpus(fleet: FleetLine, pool: PoolLine, replicas: Counts) -> Counts:
    """GPUs of replicas with their spares in every region; a fleet without load has none."""
    standing = replicas + fleet.spare_replicas * (replicas > 0)
    return fleet.regions * pool.gpus_per_replica * standing


def price_path(prices: Prices, months: int, multiplier: float = 1.0) -> Array:
    """Factor on rental prices in each month: change per month and steps."""
    path = multiplier * compound(prices.change_per_month, months, 1)
    index = np.arange(1, months + 1)
    for step in prices.steps:
        path = path * np.where(index >= step.month, step.multiplier, 1.0)
    return path


def line_gpus(model: BudgetModel, place: int,
              pools: Sequence[Sequence[PoolMonths]]) -> Counts:
    """GPUs of one line in each month."""
    total = np.zeros(model.months, dtype=np.int64)
    for fleet, found in zip(model.fleets, pools, strict=True):
        for pool, counted in zip(fleet.pools, found, strict=True):
            if pool.line == place:
                total += counted.gpus
    return total


def line_months(model: BudgetModel, place: int, pools: Sequence[Sequence[PoolMonths]],
                scenario: Scenario) -> LineMonths:
    """GPUs of one line in each month, and how they are paid."""
    return paid(model, model.lines[place], line_gpus(model, place, pools), scenario)


def paid(model: BudgetModel, line: GpuLine, gpus: Counts, scenario: Scenario) -> LineMonths:
    """How GPUs of a line are paid: owned first, then the committed base, then on demand."""
    owned = np.minimum(gpus, line.existing_gpus)
    rented = gpus - owned
    path = price_path(model.prices, model.months, scenario.price_multiplier)
    list_price = float(line.usd_per_gpu_hour) * path
    on_demand = list_price * (1.0 - model.prices.negotiated_discount)
    committed, price = np.zeros(model.months), np.zeros(model.months)
    if line.term is not None:
        offered = float(line.term.usd_per_gpu_hour) * path
        committed = commit.base_curve(rented.astype(float), on_demand, offered,
                                      line.term.term_months, model.commitments.committed_share)
        price = commit.block_price(offered, line.term.term_months)
    return LineMonths(gpus, owned, rented, committed.astype(np.int64), list_price, on_demand,
                      price)
