"""Buying servers: capital, depreciation, running cost, and when buying beats renting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate

from planner.budget.inputs import Server
from planner.budget.money import MONTHS_PER_YEAR, decimal, straight_line


@dataclass(frozen=True, slots=True)
class Owning:
    """Servers bought to carry a demand, month by month.

    Attributes
    ----------
    servers, bought : tuple of int
        Servers standing, and those bought in each month.
    capex, running, depreciation, book_value : tuple of Decimal
        [USD]: cash for servers; hosting, licences and energy; loss of value; value at its end.
    """

    servers: tuple[int, ...]
    bought: tuple[int, ...]
    capex: tuple[Decimal, ...]
    running: tuple[Decimal, ...]
    depreciation: tuple[Decimal, ...]
    book_value: tuple[Decimal, ...]

    @property
    def cash(self) -> tuple[Decimal, ...]:
        """What is paid in each month [USD]."""
        return tuple(c + r for c, r in zip(self.capex, self.running, strict=True))

    @property
    def cost(self) -> tuple[Decimal, ...]:
        """Depreciation plus running cost of each month [USD]."""
        return tuple(d + r for d, r in zip(self.depreciation, self.running, strict=True))


def servers_needed(gpus: int, per_server: int) -> int:
    """Whole servers that hold so many GPUs."""
    return -(-gpus // per_server)


def yearly_cost(server: Server, depreciation_months: int, residual_share: float = 0.0) -> Decimal:
    """Depreciation, hosting and licence of one server in a year [USD], without energy.

    Examples
    --------
    320,000 USD over four years, 3,000 hosting, 4,500 licence (NVIDIA, "LLM Inference
    Benchmarking: How Much Does Your LLM Inference Cost?", 2025).

    >>> yearly_cost(Server("h100", Decimal(320000), 8, Decimal(3000), Decimal(4500)), 48)
    Decimal('87500.0')
    """
    lost = server.usd_per_server * (1 - decimal(residual_share)) * MONTHS_PER_YEAR
    return (lost / depreciation_months + server.hosting_usd_per_year
            + server.licence_usd_per_year)


def own(gpus: Sequence[int], server: Server, per_server: int, energy: Sequence[Decimal],
        depreciation_months: int, residual_share: float) -> Owning:
    """Buy what each month needs and keep it.

    Parameters
    ----------
    gpus : sequence of int
        Needed in each month.
    energy : sequence of Decimal
        Cost of electricity in each month [USD].
    """
    needed = [servers_needed(g, per_server) for g in gpus]
    standing = list(accumulate(needed, max))
    bought = [s - before for s, before in zip(standing, [0, *standing], strict=False)]
    monthly = straight_line(server.usd_per_server, residual_share, depreciation_months)
    yearly = server.hosting_usd_per_year + server.licence_usd_per_year
    capex = [server.usd_per_server * b for b in bought]
    aging = [sum(bought[max(0, m - depreciation_months + 1):m + 1]) for m in range(len(bought))]
    depreciation = [monthly * n for n in aging]
    running = [yearly * s / MONTHS_PER_YEAR + e for s, e in zip(standing, energy, strict=True)]
    book = [c - d for c, d in zip(accumulate(capex), accumulate(depreciation), strict=True)]
    return Owning(tuple(standing), tuple(bought), tuple(capex), tuple(running),
                  tuple(depreciation), tuple(book))


def break_even_month(rent: Sequence[Decimal], buy: Sequence[Decimal],
                     value: Sequence[Decimal] | None = None) -> int | None:
    """First month, from 1, by whose end renting has cost at least as much as buying; else None.

    Parameters
    ----------
    rent, buy : sequence of Decimal
        Paid in each month.
    value : sequence of Decimal, optional
        What the servers would still bring at the end of each month.
    """
    kept = value or [Decimal(0)] * len(rent)
    for month, (r, b, v) in enumerate(zip(accumulate(rent), accumulate(buy), kept, strict=True), 1):
        if r >= b - v and b > 0:
            return month
    return None


def energy_kwh(gpus: int, watts: float | None, pue: float, hours: float, utilization: float
               ) -> Decimal | None:
    """Electricity of GPUs in a month [kWh], the site's overhead included; None without watts."""
    if watts is None:
        return None
    return (decimal(watts) * gpus * decimal(hours) * decimal(pue) * decimal(utilization)) / 1000
