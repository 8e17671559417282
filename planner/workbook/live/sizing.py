"""Fewest replicas of a pool: bisection of the highest rate, then the whole numbers beside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.workbook.fast import letters
from planner.workbook.live.asked import Asked, Rows, Scalars
from planner.workbook.live.expr import X, both, least, most, round_up, sqrt, square, when, x
from planner.workbook.live.guess import Guess
from planner.workbook.live.targets import FIRST_OCTAVES, OCTAVES, Load

Ask = Callable[[int, X, X, X | None], tuple[Asked, X]]
"""From a column, a rate, an arrival CV² and a batch limit (or none) to the cells of the column and
whether the rate holds. Where the rate's value is that of several, it fills as many columns."""
HIGH, LOW = "Highest rate not known to hold", "Highest rate known to hold"
APART = 3
"""Columns at least from the last of a search to the first that stands beside it."""
BY_RATE, FEWER = "Replicas by the highest rate", "One fewer"


@dataclass(slots=True, eq=False)
class Found:
    """A sized pool as cells.

    Attributes
    ----------
    replicas : X
        0 when no number of replicas holds.
    highest : X
        [1/s] the highest rate of one replica that holds.
    limit : X
        Batch limit at the planned rate; 0 for prefill pools.
    peak : Asked
        The column at the peak.
    asked : X
        The number of replicas that the columns at the planned rate and at the peak ask, whether
        they hold or not.
    """

    replicas: X
    highest: X
    limit: X
    peak: Asked
    asked: X


def arrival_cv2(load: Load, replicas: X) -> X:
    """Squared CV at one of the replicas (``arrivals.split_arrival_cv2``)."""
    return 1.0 + (square(load.cv) - 1.0) / most(replicas, 1.0)


@dataclass(slots=True, eq=False)
class Tried:
    """What the columns before that of the peak came to.

    Attributes
    ----------
    count : X
        Replicas that the last column asks.
    holds : X
        Whether they hold.
    highest : X
        [1/s] the highest rate of one replica that holds.
    limit : X
        Batch limit of the last column; 0 for prefill pools.
    """

    count: X
    holds: X
    highest: X
    limit: X


@dataclass(slots=True, eq=False)
class Sought(Tried):
    """The same, and the column at the peak."""

    peak: Asked


def search(rows: Rows, load: Load, ceiling: X, ask: Ask, limited: bool = False) -> Sought:
    """Write the columns of the search, see :func:`size`."""
    several, tries = np.ndim(ceiling.value) == 2, load.steps + 2
    rows.board.side = max(rows.board.side, tries + APART)
    tried = (one_by_one if several else together)(rows, load, ceiling, ask)
    _title(rows, tries + 1, "At the peak")
    peak, _ = ask(rows.column(tries + 1), load.rate / tried.count, arrival_cv2(load, tried.count),
                  tried.limit if limited else x(1.0))
    return Sought(tried.count, tried.holds, tried.highest, tried.limit, peak)


def one_by_one(rows: Rows, load: Load, ceiling: X, ask: Ask) -> Tried:
    """The tries, each written when the one before it is known."""
    wanted, steps = load.rate / load.utilization, load.steps
    low, high = ceiling / float(2**OCTAVES), ceiling
    for i in range(1, steps + 1):
        rate = sqrt(low * high) if i > 1 else ceiling / float(2**FIRST_OCTAVES)
        _title(rows, i, f"Try {i}")
        one, holds = ask(rows.column(i), rate, _try_cv2(load, rate, wanted), None)
        put = Scalars(rows, rows.column(i))
        high = put(HIGH, when(holds > 0.0, high, one.rate))
        low = put(LOW, when(holds > 0.0, one.rate, low))
    put = Scalars(rows, rows.column(steps + 1))
    first = put(BY_RATE, _by_rate(wanted, low))
    fewer = put(FEWER, most(first - 1.0, 1.0))
    _title(rows, steps + 1, FEWER)
    one, holds = ask(rows.column(steps + 1), wanted / fewer, arrival_cv2(load, fewer), None)
    count = Scalars(rows, rows.column(steps + 2))(BY_RATE, when(
        both(holds > 0.0, first > 1.0), fewer, first))
    _title(rows, steps + 2, "Planned")
    _, holds = ask(rows.column(steps + 2), wanted / count, arrival_cv2(load, count), None)
    return Tried(count, holds, low, x(0.0))


def together(rows: Rows, load: Load, ceiling: X, ask: Ask) -> Tried:
    """The same tries, written at once: rates are guessed until those of the search are there."""
    wanted, steps = load.rate / load.utilization, load.steps
    column, spread = rows.column(1), float(load.cv.value) ** 2 - 1.0
    guess = Guess(float(ceiling.value), float(wanted.value), load.carried,
                  burstier(spread, float(wanted.value), load.carried), steps)
    while True:
        rates = np.array(guess.rates())[:, None]
        cv2 = 1.0 + spread * np.minimum(rates / float(wanted.value), 1.0)
        rows.board.hold()
        one, holds = ask(column, X("0", rates), X("0", cv2), None)
        tried = guess.learn(rates[:, 0].tolist(), (holds.value[:, 0] > 0.0).tolist())
        rows.board.release(tried or [])
        if tried:
            break
    rate, cv2s, limit, holds = (X(e.text, e.value[tried]) for e in (
        one.rate, one.cv2, one.cells["limit"], holds))
    for place in range(1, steps + 3):
        _title(rows, place, f"Try {place}" if place <= steps else FEWER if place < steps + 2
               else "Planned")

    def cell(e: X, place: int) -> X:
        """One of the cells of a row of tries."""
        row = e.text.rpartition("$")[2]
        return X(f"${letters(rows.column(place))}${row}", float(e.value[place - 1, 0]))

    low = _bounds(rows, rate, holds, ceiling, guess)
    board, put = rows.board, Scalars(rows, rows.column(steps + 1))
    first = put(BY_RATE, _by_rate(wanted, low))
    fewer = put(FEWER, most(first - 1.0, 1.0))
    count = Scalars(rows, rows.column(steps + 2))(BY_RATE, when(
        both(cell(holds, steps + 1) > 0.0, first > 1.0), fewer, first))
    row = _row_of(rate)
    before = letters(column)
    board.each_across(row, column, (
        (1, X((ceiling / float(2**FIRST_OCTAVES)).text, rate.value[:1])),
        (steps - 1, X(f"SQRT({before}${rows.known[LOW] + 1}*{before}${rows.known[HIGH] + 1})",
                      rate.value[1:steps])),
        (1, wanted / fewer), (1, wanted / count)))
    board.each_across(_row_of(cv2s), column, (
        (steps, _try_cv2(load, X(rate.text, rate.value[:steps]), wanted)),
        (1, arrival_cv2(load, fewer)), (1, arrival_cv2(load, count))))
    return Tried(count, cell(holds, steps + 2), low, cell(limit, steps + 2))


def burstier(spread: float, wanted: float, carried: float) -> float:
    """Squared CV of arrivals at a replica of a try at a rate, over that at one of the whole number
    of replicas that it takes; ``spread`` is that of all replicas, less 1."""
    if not carried or spread <= 0.0:
        return 1.0
    count = max(math.ceil(wanted / carried - 1e-9), 1)
    return (1.0 + spread * min(carried / wanted, 1.0)) / (1.0 + spread / count)


def _bounds(rows: Rows, rate: X, holds: X, ceiling: X, guess: Guess) -> X:
    """Write what each try leaves of the range of rates; the highest rate known to hold."""
    column, made, steps = rows.column(1), {}, guess.steps
    here, before = letters(column + 1), letters(column)
    second = X(f"{here}${_row_of(rate) + 1}", rate.value[1:steps])
    again = X(f"{here}${_row_of(holds) + 1}", holds.value[1:steps]) > 0.0
    found = np.array(guess.bounds())[:, :, None]
    for name, values, start in ((HIGH, found[1], ceiling), (LOW, found[0], ceiling / float(
            2**OCTAVES))):
        row = rows.row(name)
        last = X(f"{before}${row + 1}", values[:-1])
        ones = (X(e.text, e.value[:1]) for e in (rate, holds))
        at, held = ones
        es = (when(held > 0.0, start, at), when(again, last, second)) if name == HIGH else (
            when(held > 0.0, at, start), when(again, second, last))
        rows.board.each_across(row, column, ((1, es[0]), (steps - 1, es[1])))
        made[name] = X(f"${letters(rows.column(steps))}${row + 1}", float(values[-1, 0]))
    return made[LOW]


def _row_of(e: X) -> int:
    """The row (from 0) of a row of cells."""
    return int(e.text.rpartition("$")[2]) - 1


def _try_cv2(load: Load, rate: X, wanted: X) -> X:
    """Squared CV at one of the replicas that a rate takes."""
    return 1.0 + (square(load.cv) - 1.0) * least(rate / wanted, 1.0)


def _by_rate(wanted: X, highest: X) -> X:
    """Replicas of which none carries more than a rate."""
    return most(round_up(wanted / highest - 1e-9), 1.0)


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
    return Found(replicas, highest, found.limit, found.peak, found.count)


def _title(rows: Rows, place: int, title: str) -> None:
    rows.board.page.write(rows.top - 1, rows.column(place), title, "count", "header")
