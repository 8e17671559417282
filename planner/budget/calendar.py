"""Months of a budget as dates."""

from __future__ import annotations

from datetime import date, timedelta


def month_start(year: int, month: int, index: int) -> date:
    """First day of a budget's month.

    Parameters
    ----------
    year, month : int
        Calendar month in which the budget starts.
    index : int
        Month of the budget, from 1.

    Examples
    --------
    >>> month_start(2027, 11, 3)
    datetime.date(2028, 1, 1)
    """
    place = year * 12 + (month - 1) + (index - 1)
    return date(place // 12, place % 12 + 1, 1)


def order_by(needed: date, lead_time_days: int) -> date:
    """Last day on which to order what must stand on a day.

    Examples
    --------
    >>> order_by(date(2027, 7, 1), 120)
    datetime.date(2027, 3, 3)
    """
    return needed - timedelta(days=lead_time_days)


def season(start_month: int, index: int) -> int:
    """Place of a budget's month in January to December, from 0."""
    return (start_month - 1 + index - 1) % 12
