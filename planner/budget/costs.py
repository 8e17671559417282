"""Money of a budget, month by month, in the budget's currency and as decimals.

The FOCUS specification of the FinOps Foundation names the amounts: list cost (at list price),
contracted cost (with the negotiated discount, without commitments), effective cost (with
commitments and depreciation) and billed cost (what is invoiced). Commitments here have no upfront
payment, so what is rented is billed as it takes effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate

from planner.budget.model import BudgetModel, GpuLine
from planner.budget.money import breakage, cents, decimal, rental
from planner.budget.months import Figures, LineMonths
from planner.budget.owning import Owning, break_even_month, energy_kwh, own
from planner.units import SECONDS_PER_HOUR

Amounts = tuple[Decimal, ...]
ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class LineCosts:
    """Amounts of one GPU line in each month, in the budget's currency.

    Attributes
    ----------
    on_demand, committed, owned : tuple of Decimal
        Cost of the burst, of the committed base (unused hours included), of GPUs owned already.
    breakage : tuple of Decimal
        Cost of unused committed hours after resale; part of ``committed``.
    energy_kwh, kg_co2e : tuple of Decimal or None
    """

    list_cost: Amounts
    contracted_cost: Amounts
    on_demand: Amounts
    committed: Amounts
    owned: Amounts
    breakage: Amounts
    energy_kwh: Amounts | None
    kg_co2e: Amounts | None

    @property
    def effective_cost(self) -> Amounts:
        """All that the line costs."""
        return added([self.on_demand, self.committed, self.owned])


@dataclass(frozen=True, slots=True)
class Buying:
    """Buying a line's GPUs against renting them, in the budget's currency."""

    owning: Owning
    rent: Amounts
    buy_cash: Amounts
    buy_cost: Amounts
    book_value: Amounts
    break_even_month: int | None
    break_even_month_with_resale: int | None


def added(parts: Iterable[Sequence[Decimal]]) -> Amounts:
    """Sums by month."""
    return tuple(sum(values, ZERO) for values in zip(*parts, strict=True))


def line_costs(model: BudgetModel, line: GpuLine, counted: LineMonths) -> LineCosts:
    """What one line costs."""
    fx, hours = model.prices.units_per_usd, model.prices.hours_per_month
    usd = [decimal(p) * fx for p in counted.list_price.tolist()]
    paid = [decimal(p) * fx for p in counted.on_demand_price.tolist()]
    committed = [decimal(p) * fx for p in counted.committed_price.tolist()]
    gpus, rented, base, burst, unused, owned = (
        x.tolist() for x in (counted.gpus, counted.rented, counted.committed, counted.burst,
                             counted.unused, counted.owned))
    kwh = energies(model, line, gpus)
    return LineCosts(
        tuple(rental(n, hours, p) for n, p in zip(rented, usd, strict=True)),
        tuple(rental(n, hours, p) for n, p in zip(rented, paid, strict=True)),
        tuple(rental(n, hours, p) for n, p in zip(burst, paid, strict=True)),
        tuple(rental(n, hours, p) for n, p in zip(base, committed, strict=True)),
        _owned_cost(model, line, owned),
        tuple(breakage(decimal(hours) * n, 0, p, model.commitments.resale_share)
              for n, p in zip(unused, committed, strict=True)),
        kwh, None if kwh is None else tuple(
            e * decimal(model.energy.kg_co2e_per_kwh) for e in kwh))


def energies(model: BudgetModel, line: GpuLine, gpus: Sequence[int]) -> Amounts | None:
    """Electricity of a line's GPUs in each month [kWh]; None when their power is unknown."""
    if line.watts is None:
        return None
    energy = model.energy
    found = (energy_kwh(n, line.watts, energy.pue, model.prices.hours_per_month,
                        energy.power_utilization) for n in gpus)
    return tuple(e or ZERO for e in found)


def _owned_cost(model: BudgetModel, line: GpuLine, used: Sequence[int]) -> Amounts:
    """Hosting and licences of all GPUs owned already, electricity of those in use."""
    fx = model.prices.units_per_usd
    yearly = ZERO if line.server is None else (
        line.server.hosting_usd_per_year + line.server.licence_usd_per_year)
    standing = yearly / 12 * line.existing_gpus / line.gpus_per_server
    kwh = energies(model, line, used) or tuple(ZERO for _ in used)
    return tuple((standing + e * model.energy.usd_per_kwh) * fx for e in kwh)


def buying(model: BudgetModel, line: GpuLine, counted: LineMonths, costs: LineCosts
           ) -> Buying | None:
    """Buying the servers that a line needs beyond those owned; None without their price."""
    if line.server is None:
        return None
    fx = model.prices.units_per_usd
    gpus = counted.rented.tolist()
    kwh = energies(model, line, gpus) or tuple(ZERO for _ in gpus)
    bought = own(gpus, line.server, line.gpus_per_server,
                 [e * model.energy.usd_per_kwh for e in kwh], model.owned.depreciation_months,
                 model.owned.residual_share)
    rent = added([costs.on_demand, costs.committed])
    cash, cost, value = (tuple(x * fx for x in part)
                         for part in (bought.cash, bought.cost, bought.book_value))
    return Buying(bought, rent, cash, cost, value, break_even_month(rent, cash),
                  break_even_month(rent, cash, value))


@dataclass(frozen=True, slots=True)
class MonthCosts:
    """Amounts of the whole budget in each month, rounded to a hundredth once."""

    list_cost: Amounts
    contracted_cost: Amounts
    effective_cost: Amounts
    billed_cost: Amounts
    on_demand: Amounts
    committed: Amounts
    owned: Amounts
    breakage: Amounts
    energy_kwh: Amounts | None
    kg_co2e: Amounts | None
    requests: Amounts

    def total(self, name: str) -> Decimal:
        """Sum of a column: of the rounded months, so that a reader's sum agrees."""
        return sum(getattr(self, name) or (), ZERO)


def month_costs(model: BudgetModel, counted: Figures, lines: Sequence[LineCosts]) -> MonthCosts:
    """Sums over the lines."""
    nothing = tuple(ZERO for _ in range(model.months))

    def of(name: str) -> Amounts:
        return tuple(map(cents, added([nothing, *(getattr(x, name) for x in lines)])))

    known = bool(lines) and all(x.energy_kwh is not None for x in lines)
    parts = {name: of(name) for name in ("on_demand", "committed", "owned")}
    effective = added(list(parts.values()))
    return MonthCosts(
        of("list_cost"), of("contracted_cost"), effective, effective, **parts,
        breakage=of("breakage"), energy_kwh=of("energy_kwh") if known else None,
        kg_co2e=of("kg_co2e") if known else None, requests=requests(model, counted))


def requests(model: BudgetModel, counted: Figures) -> Amounts:
    """Requests of each month: the mean rate (the peak where no mean is known) times its hours."""
    seconds = decimal(model.prices.hours_per_month) * decimal(SECONDS_PER_HOUR)
    return tuple((decimal(r) * seconds).quantize(Decimal(1))
                 for r in counted.mean_rates.sum(axis=0).tolist())


def cumulated(values: Sequence[Decimal]) -> Amounts:
    """Running sums."""
    return tuple(accumulate(values))
