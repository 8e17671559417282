"""Money as decimals: arithmetic that ties out to the cent, and the formulas of the trade.

Amounts stay exact until they are shown; :func:`cents` rounds once, half to even.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

CENT = Decimal("0.01")
MONTHS_PER_YEAR = 12


def decimal(value: float | int | str | Decimal) -> Decimal:
    """A number as the decimal that it is written as.

    Examples
    --------
    >>> decimal(0.1) * 3
    Decimal('0.3')
    """
    return value if isinstance(value, Decimal) else Decimal(str(value))


def cents(value: Decimal) -> Decimal:
    """An amount rounded to a hundredth, half to even."""
    return value.quantize(CENT, ROUND_HALF_EVEN)


def rental(gpus: Decimal | int | float, hours: Decimal | int | float, usd_per_gpu_hour: Decimal
           ) -> Decimal:
    """GPUs times hours times price.

    Examples
    --------
    DeepSeek's day: 226.75 nodes of 8 GPUs at 2 USD (open-infra-index, day 6).

    >>> rental(decimal(226.75) * 8, 24, decimal(2))
    Decimal('87072.00')
    """
    return decimal(gpus) * decimal(hours) * usd_per_gpu_hour


def break_even_utilization(committed_per_hour: Decimal, on_demand_per_hour: Decimal) -> Decimal:
    """Share of its time that a committed GPU must be used to cost less than on demand.

    Examples
    --------
    >>> break_even_utilization(decimal(2), decimal("3.20"))
    Decimal('0.625')
    """
    return committed_per_hour / on_demand_per_hour


def breakage(reserved_hours: Decimal | int, used_hours: Decimal | int, usd_per_hour: Decimal,
             resale_share: float = 0.0) -> Decimal:
    """What reserved hours that nobody used cost, less what reselling them brings.

    Examples
    --------
    >>> breakage(12000, 8900, decimal("4.80"), 0.35)
    Decimal('9672.0000')
    """
    unused = max(decimal(reserved_hours) - decimal(used_hours), Decimal(0))
    return unused * usd_per_hour * (1 - decimal(resale_share))


def straight_line(price: Decimal, residual_share: float, months: int) -> Decimal:
    """Depreciation of one month: what is lost of the price, spread evenly over its life."""
    return price * (1 - decimal(residual_share)) / months


def cost_per_thousand(cost: Decimal, requests: Decimal) -> Decimal | None:
    """Cost of 1,000 requests, None without requests."""
    return cost / requests * 1000 if requests > 0 else None
