"""Reserved against on demand: the committed base that costs least on the monthly demand curve.

A commitment of a term is paid in every month of it. Contracts of one term follow one another, so
the months fall into blocks; inside a block the base ``q`` costs ``n c q`` and saves the on-demand
price in every month that uses all of it. The marginal GPU pays while

    sum of on-demand prices over the months with demand >= q  >  n c,

the newsvendor rule with the demand curve itself in place of a distribution: the optimum is one of
the month's demands, so trying them all is exact. With a flat price it is the break-even rule
``share of months used > committed / on demand``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, hstack, identity

Array = NDArray[np.float64]
MARGIN = 1e-9
"""Relative gain below which nothing is committed: with equal cost the free choice is better."""


def blocks(months: int, term: int) -> list[slice]:
    """The months of each contract when one follows the other; the last may outlive the budget."""
    return [slice(first, min(first + term, months)) for first in range(0, months, term)]


def base_of(demand: Array, on_demand: Array, committed: float) -> float:
    """Cheapest constant base of one block.

    Parameters
    ----------
    demand : ndarray, shape (n,)
        GPUs in each month.
    on_demand : ndarray, shape (n,)
        Price of an hour in each month.
    committed : float
        Price of a committed hour, the same in every month.

    Examples
    --------
    Committed 2.00 against 3.20: a GPU must be used in more than 62.5 % of the months.

    >>> base_of(np.array([4.0, 4, 8, 8, 8, 8, 8, 9]), np.full(8, 3.2), 2.0)
    8.0
    >>> base_of(np.array([4.0, 4, 4, 4, 8, 8, 8, 8]), np.full(8, 3.2), 2.0)
    4.0
    """
    cost = len(demand) * committed * (1.0 + MARGIN)
    worth = [q for q in demand if on_demand[demand >= q].sum() > cost]
    return float(max(worth, default=0.0))


def base_curve(demand: Array, on_demand: Array, committed: Array, term: int, share: float = 1.0
               ) -> Array:
    """Committed GPUs in each month, contracts of one term following one another.

    Parameters
    ----------
    demand, on_demand, committed : ndarray, shape (months,)
        GPUs; prices of an hour in each month. A contract keeps the price of its first month.
    share : float
        Part of the cheapest base that is committed, rounded down.
    """
    found = np.zeros(len(demand))
    for block in blocks(len(demand), term):
        base = base_of(demand[block], on_demand[block], float(committed[block.start]))
        found[block] = np.floor(base * share + MARGIN)
    return found


def block_price(committed: Array, term: int) -> Array:
    """Price of a committed hour in each month: that of the first month of its contract."""
    return np.concatenate([np.full(b.stop - b.start, committed[b.start])
                           for b in blocks(len(committed), term)])


def curve_cost(demand: Array, on_demand: Array, base: Array, price: Array) -> float:
    """Cost of a base and the burst above it, for an hour in every month."""
    return float((base * price + np.maximum(demand - base, 0.0) * on_demand).sum())


def staggered_cost(demand: Array, on_demand: Array, committed: Sequence[tuple[int, Array]]
                   ) -> float:
    """Lowest cost when contracts of any length on offer may start in any month.

    A linear programme over contracts by start month and a burst per month. Its matrix has
    consecutive ones in each column, so it is totally unimodular and the optimum is whole.

    Parameters
    ----------
    committed : sequence of (int, ndarray)
        Length of a term and its price of an hour by start month.

    Returns
    -------
    float
        Cost of one hour in every month; contracts are paid to the end of the budget at most.
    """
    months = len(demand)
    columns, costs = [], []
    for term, price in committed:
        for first in range(months):
            last = min(first + term, months)
            columns.append((first, last))
            costs.append(price[first] * (last - first))
    rows = np.concatenate([np.arange(a, b) for a, b in columns]) if columns else np.array([], int)
    place = np.repeat(np.arange(len(columns)), [b - a for a, b in columns])
    cover = csr_matrix((np.ones(len(rows)), (rows, place)), shape=(months, len(columns)))
    found = linprog([*costs, *on_demand], A_ub=-hstack([cover, identity(months)]), b_ub=-demand,
                    method="highs")
    return float(found.fun)
