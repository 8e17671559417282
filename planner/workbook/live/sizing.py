"""Fewest replicas of a pool: bisection of the highest rate, then the whole numbers beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.workbook.live.expr import X, both, least, most, round_up, sqrt, square, when, x
from planner.workbook.live.onepool import FIRST_OCTAVES, OCTAVES, STEPS, Load
from planner.workbook.live.search import Asked, Rows, Scalars

Ask = Callable[[int, X, X, X | None], tuple[Asked, X]]
"""From a column, a rate, an arrival CV² and a batch limit (or none) to the cells of the column and
whether the rate holds."""


@dataclass(slots=True, eq=False)
class Found:
    """A sized pool as cells.

    Attributes
    ----------
    replicas : X
        0 when no number of replicas holds.
    highest : X
        [1/s] the highest rate of one replica that holds.
    planned, peak : Asked
        The columns at the planned rate and at the peak.
    asked : X
        The number of replicas that those two columns ask, whether they hold or not.
    """

    replicas: X
    highest: X
    planned: Asked
    peak: Asked
    asked: X


def arrival_cv2(load: Load, replicas: X) -> X:
    """Squared CV at one of the replicas (``arrivals.split_arrival_cv2``)."""
    return 1.0 + (square(load.cv) - 1.0) / most(replicas, 1.0)


@dataclass(slots=True, eq=False)
class Sought:
    """What the columns of a search came to.

    Attributes
    ----------
    count : X
        Replicas that the last columns ask.
    holds : X
        Whether they hold.
    highest : X
        [1/s] the highest rate of one replica that holds.
    planned, peak : Asked
        The columns at the planned rate and at the peak.
    """

    count: X
    holds: X
    highest: X
    planned: Asked
    peak: Asked


def search(rows: Rows, load: Load, ceiling: X, ask: Ask, limited: bool = False) -> Sought:
    """Write the columns of the search, see :func:`size`."""
    wanted = load.rate / load.utilization
    low, high = ceiling / float(2**OCTAVES), ceiling
    for i in range(1, STEPS + 1):
        rate = sqrt(low * high) if i > 1 else ceiling / float(2**FIRST_OCTAVES)
        one, holds = _column(rows, i, f"Try {i}", rate, load, wanted, ask)
        put = Scalars(rows, rows.column(i))
        high = put("Highest rate not known to hold", when(holds > 0.0, high, one.rate))
        low = put("Highest rate known to hold", when(holds > 0.0, one.rate, low))
    put = Scalars(rows, rows.column(STEPS + 1))
    first = put("Replicas by the highest rate", most(round_up(wanted / low - 1e-9), 1.0))
    fewer = put("One fewer", most(first - 1.0, 1.0))
    one, holds = _replicas(rows, STEPS + 1, "One fewer", fewer, wanted, load, ask, None)
    put = Scalars(rows, rows.column(STEPS + 2))
    count = put("Replicas by the highest rate", when(both(holds > 0.0, first > 1.0), fewer, first))
    planned, holds = _replicas(rows, STEPS + 2, "Planned", count, wanted, load, ask, None)
    limit = planned.cells["limit"] if limited else x(1.0)
    peak, _ = _replicas(rows, STEPS + 3, "At the peak", count, load.rate, load, ask, limit)
    return Sought(count, holds, low, planned, peak)


def size(rows: Rows, load: Load, ceiling: X, ask: Ask, tag: str) -> Found:
    """Write the columns of the search and its results.

    Parameters
    ----------
    ceiling : X
        [1/s] no replica carries more.
    ask : callable
        Writes one column and says whether its rate holds; the columns search a batch limit, which
        the last one takes over.
    tag : str
        End of the names of the results.
    """
    board, found = rows.board, search(rows, load, ceiling, ask, limited=True)
    replicas = board.line("Replicas that carry the peak", when(
        both(found.holds > 0.0, found.count <= load.limit), found.count, 0.0), "",
        "0: no number of replicas within the limits holds the targets", "count",
        name=f"replicas_found_{tag}")
    highest = board.line("Highest rate of a replica", found.highest, "1/s",
                         "at which every target holds", "six", name=f"highest_found_{tag}")
    return Found(replicas, highest, found.planned, found.peak, found.count)


def _title(rows: Rows, place: int, title: str) -> None:
    rows.board.page.write(rows.top - 1, rows.column(place), title, "count", "header")


def _column(rows: Rows, place: int, title: str, rate: X, load: Load, wanted: X, ask: Ask
            ) -> tuple[Asked, X]:
    """One rate, with the burstiness of the replicas that it takes."""
    _title(rows, place, title)
    cv2 = 1.0 + (square(load.cv) - 1.0) * least(rate / wanted, 1.0)
    return ask(rows.column(place), rate, cv2, None)


def _replicas(rows: Rows, place: int, title: str, count: X, peak: X, load: Load, ask: Ask,
              limit: X | None) -> tuple[Asked, X]:
    """The rate of one of a number of replicas."""
    _title(rows, place, title)
    return ask(rows.column(place), peak / count, arrival_cv2(load, count), limit)
