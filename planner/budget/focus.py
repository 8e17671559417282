"""A budget as charges in the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

One row a month, GPU line, region and kind of charge. What the specification has no column for
carries the prefix ``x_``, as it asks of custom columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from planner.budget.budget import BudgetResult
from planner.budget.calendar import month_start
from planner.budget.costs import LineCosts
from planner.budget.model import BudgetModel, GpuLine
from planner.budget.money import decimal
from planner.budget.months import LineMonths

COLUMNS = (
    "BilledCost", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd", "ChargeCategory",
    "ChargeDescription", "ChargeFrequency", "ChargePeriodStart", "ChargePeriodEnd",
    "CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountQuantity",
    "CommitmentDiscountStatus", "CommitmentDiscountType", "CommitmentDiscountUnit",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
    "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit",
    "ProviderName", "RegionId", "ResourceType", "ServiceCategory", "ServiceName",
    "ServiceSubcategory", "SkuId", "x_Gpus", "x_EnergyKwh", "x_KgCo2e")
EXACT = Decimal("0.000001")
UNIT = "Hours"
Cell = str | int | float | Decimal | None


@dataclass(frozen=True, slots=True)
class Charge:
    """A kind of charge of one line in one month, over all regions."""

    kind: str
    gpus: int
    cost: Decimal
    list_cost: Decimal
    contracted_cost: Decimal
    status: str | None = None


def charges(costs: LineCosts, counted: LineMonths, m: int) -> Iterator[Charge]:
    """The charges of one line in one month, those of nothing left out."""
    rented, burst = int(counted.rented[m]), int(counted.burst[m])
    used, unused = int(counted.used_committed[m]), int(counted.unused[m])
    base = int(counted.committed[m])
    listed, agreed = costs.list_cost[m], costs.contracted_cost[m]
    if burst:
        yield Charge("on demand", burst, costs.on_demand[m], listed * burst / rented,
                     agreed * burst / rented)
    if used:
        yield Charge("committed", used, costs.committed[m] * used / base,
                     listed * used / rented, agreed * used / rented, "Used")
    if unused:
        yield Charge("committed, unused", unused, costs.committed[m] * unused / base,
                     Decimal(0), Decimal(0), "Unused")
    if costs.owned[m]:
        yield Charge("owned", int(counted.owned[m]), costs.owned[m], costs.owned[m],
                     costs.owned[m])


def region_names(model: BudgetModel) -> tuple[str, ...]:
    """Regions that share every charge evenly; one name where fleets differ in theirs."""
    same = all(f.regions == len(model.regions) for f in model.fleets)
    return model.regions if same else ("several",)


def table(result: BudgetResult) -> dict[str, list[list[Cell]] | tuple[str, ...]]:
    """Columns and rows of the base scenario."""
    model, scene = result.model, result.base
    regions = region_names(model)
    rows: list[list[Cell]] = []
    for m in range(model.months):
        for line, counted, costs in zip(model.lines, scene.figures.lines, scene.lines,
                                        strict=True):
            for charge in charges(costs, counted, m):
                rows += [_row(model, line, counted, costs, charge, m, region, len(regions))
                         for region in regions]
    return {"columns": COLUMNS, "rows": rows}


def _row(model: BudgetModel, line: GpuLine, counted: LineMonths, costs: LineCosts,
         charge: Charge, m: int, region: str, regions: int) -> list[Cell]:
    fx = model.prices.units_per_usd
    start, end = (_time(month_start(model.start_year, model.start_month, m + i))
                  for i in (1, 2))
    hours = decimal(model.prices.hours_per_month) * charge.gpus / regions
    committed, owned = charge.status is not None, charge.kind == "owned"
    unused = charge.status == "Unused"
    term = line.term.term_months if line.term is not None else 0
    energy = None if costs.energy_kwh is None or unused or not counted.gpus[m] else (
        costs.energy_kwh[m] * charge.gpus / int(counted.gpus[m]) / regions)
    values: dict[str, Cell] = {
        "BilledCost": charge.cost / regions, "BillingCurrency": model.prices.currency,
        "BillingPeriodStart": start, "BillingPeriodEnd": end, "ChargeCategory": "Usage",
        "ChargeDescription": f"{charge.gpus} x {line.gpu}, {charge.kind}",
        "ChargeFrequency": "Recurring" if committed or owned else "Usage-Based",
        "ChargePeriodStart": start, "ChargePeriodEnd": end,
        "CommitmentDiscountCategory": "Usage" if committed else None,
        "CommitmentDiscountId": f"{line.name}-{term}m" if committed else None,
        "CommitmentDiscountQuantity": hours if committed else None,
        "CommitmentDiscountStatus": charge.status,
        "CommitmentDiscountType": f"{term} months" if committed else None,
        "CommitmentDiscountUnit": UNIT if committed else None,
        "ConsumedQuantity": None if unused else hours,
        "ConsumedUnit": None if unused else UNIT,
        "ContractedCost": charge.contracted_cost / regions,
        "ContractedUnitPrice": None if owned else decimal(float(counted.on_demand_price[m])) * fx,
        "EffectiveCost": charge.cost / regions, "ListCost": charge.list_cost / regions,
        "ListUnitPrice": None if owned else decimal(float(counted.list_price[m])) * fx,
        "PricingCategory": _pricing(line, committed, owned), "PricingQuantity": hours,
        "PricingUnit": UNIT, "ProviderName": "own" if owned else line.provider,
        "RegionId": region, "ResourceType": "GPU", "ServiceCategory": "Compute",
        "ServiceName": "GPU capacity for LLM inference",
        "ServiceSubcategory": "Virtual Machines", "SkuId": line.gpu,
        "x_Gpus": decimal(charge.gpus) / regions, "x_EnergyKwh": energy,
        "x_KgCo2e": None if energy is None else energy * decimal(model.energy.kg_co2e_per_kwh)}
    return [_exact(values[c]) for c in COLUMNS]


def _pricing(line: GpuLine, committed: bool, owned: bool) -> str:
    if owned:
        return "Other"
    if committed:
        return "Committed"
    return "Dynamic" if line.commitment == "spot" else "Standard"


def _time(day: date) -> str:
    return f"{day.isoformat()}T00:00:00Z"


def _exact(value: Cell) -> Cell:
    """Decimals with at most six places and no trailing zeros."""
    if not isinstance(value, Decimal):
        return value
    rounded = value.quantize(EXACT).normalize()
    return rounded if rounded != rounded.to_integral() else rounded.quantize(Decimal(1))
