"""What a budget is asked for, as plain values (the API's schema builds these)."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from planner.requests import PlanRequest

SCENARIOS = ("low", "base", "high")
KG_CO2E_PER_KWH = 0.445
"""World average of 2024 (IEA, Electricity 2025, chapter Emissions: 445 g CO2/kWh)."""
FLAT = (1.0,) * 12


@dataclass(frozen=True, slots=True)
class Spike:
    """A launch: the rate is multiplied by ``multiplier`` in ``months`` months from ``month``."""

    month: int
    multiplier: float
    months: int = 1


@dataclass(frozen=True, slots=True)
class BudgetWorkload:
    """A plan request and how its traffic moves.

    Attributes
    ----------
    request : PlanRequest
        Rate and lengths are those of ``starts_month``.
    starts_month, ends_month : int
        First and last month of the budget in which it runs, from 1.
    growth_per_month : float
        Share by which the rate grows each month (compound).
    seasonality : tuple of float, length 12
        Factors of the rate in January to December.
    tokens_growth_per_month : float
        Share by which prompts and answers grow each month (compound).
    fleet : str
        Workloads of one name share a fleet; empty: those of one model and equal settings do.
    """

    request: PlanRequest
    name: str
    starts_month: int = 1
    ends_month: int | None = None
    growth_per_month: float = 0.0
    seasonality: tuple[float, ...] = FLAT
    spikes: tuple[Spike, ...] = ()
    tokens_growth_per_month: float = 0.0
    fleet: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one scenario changes: growth added per month, factors of the rate and of prices."""

    name: str
    growth_added: float = 0.0
    demand_multiplier: float = 1.0
    price_multiplier: float = 1.0


DEFAULT_SCENARIOS = (Scenario("low", -0.01, 0.9), Scenario("base"), Scenario("high", 0.01, 1.1))


@dataclass(frozen=True, slots=True)
class Term:
    """A commitment that can be bought: its length and its price, or its discount on the list."""

    term_months: int
    discount: float | None = None
    usd_per_gpu_hour: dict[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commitments:
    """Which commitments may be bought.

    Attributes
    ----------
    terms : tuple of Term or None
        None takes the reserved prices of the catalog; empty: none.
    committed_share : float
        Share of the cheapest base that is committed.
    resale_share : float
        Share of its price that an unused committed hour brings back.
    """

    terms: tuple[Term, ...] | None = None
    committed_share: float = 1.0
    resale_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Server:
    """What a server of one GPU kind costs to own [USD]."""

    gpu: str
    usd_per_server: Decimal
    gpus_per_server: int | None = None
    hosting_usd_per_year: Decimal = Decimal(0)
    licence_usd_per_year: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Owned:
    """Servers that could be bought, and GPUs already owned."""

    servers: tuple[Server, ...] = ()
    depreciation_months: int = 48
    residual_share: float = 0.0
    existing_gpus: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Energy:
    """Power and carbon. ``power_utilization``: mean draw over the GPUs' board power."""

    pue: float = 1.3
    usd_per_kwh: Decimal = Decimal("0.1")
    kg_co2e_per_kwh: float = KG_CO2E_PER_KWH
    power_utilization: float = 1.0


@dataclass(frozen=True, slots=True)
class PriceStep:
    """A change of all rental prices from a month on (0.85 = 15 % off)."""

    month: int
    multiplier: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A question: other prices, another GPU for every fleet, or both, from a month on."""

    name: str
    from_month: int = 1
    price_multiplier: float = 1.0
    gpu: str | None = None
    usd_per_gpu_hour: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Actual:
    """What a month turned out to be."""

    month: int
    gpus: float | None = None
    cost: Decimal | None = None
    requests_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Prices:
    """How prices move and in which currency money is told.

    Attributes
    ----------
    units_per_usd : Decimal
        Units of ``currency`` for one USD.
    negotiated_discount : float
        Off the list price, without any commitment.
    change_per_month : float
        Share by which rental prices change each month (compound; -0.01 = 1 % cheaper).
    """

    currency: str = "USD"
    units_per_usd: Decimal = Decimal(1)
    negotiated_discount: float = 0.0
    change_per_month: float = 0.0
    steps: tuple[PriceStep, ...] = ()
    hours_per_month: float = 730.0


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """One budgeting job; every default is already filled in."""

    workloads: tuple[BudgetWorkload, ...]
    months: int = 12
    start_year: int = 2027
    start_month: int = 1
    name: str = ""
    scenarios: tuple[Scenario, ...] = DEFAULT_SCENARIOS
    headroom: float = 0.0
    spare_replicas: int | None = None
    regions: tuple[str, ...] | None = None
    prices: Prices = Prices()
    commitments: Commitments = Commitments()
    owned: Owned = Owned()
    energy: Energy = Energy()
    lead_time_days: int = 0
    what_if: tuple[WhatIf, ...] = ()
    actuals: tuple[Actual, ...] = ()
    stated: dict[str, Any] = field(default_factory=dict)
    """The request with its defaults, to echo."""
