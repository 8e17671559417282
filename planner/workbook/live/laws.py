"""TPOT of single requests as formulas: a step, and what prompts add to it.

The formulas of ``planner.stalls.Stalls`` and ``TokenTimes``, over the rows of a table or for one
batch size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from planner.loops.gaps import MOST_LEAST
from planner.workbook.live.board import Board, Column, spread
from planner.workbook.live.expr import X, exp, gamma, least, most, normal, sqrt, square, when, x

TINY_S2 = 1e-18
"""[s^2] added to a variance that may be 0."""
FAR_OUT = 50.0
"""Means and scales of a gamma beyond which nothing is left."""
BEYOND = 28
"""Blocks of ``Board.side`` columns that the search may take; several columns of one rate stand
beyond."""


@dataclass(frozen=True, slots=True, eq=False)
class Single:
    """One cell where a law over rows has a column."""

    all: X

    @property
    def each(self) -> X:
        """The cell."""
        return self.all


Cells = Column | Single
Write = Callable[[str, X], Cells]
"""Writes a formula under a label."""


def single_cells(put: Callable[[str, X], X], suffix: str) -> Write:
    """Writes single cells, their labels with an ending."""
    def write(label: str, e: X) -> Single:
        return Single(put(label + suffix, e))
    return write


@dataclass(slots=True, eq=False)
class Beside:
    """Writes columns beside a table, each ``Board.side`` columns further to the right.

    Where it writes for several rates, all its formulas are those of several columns. A formula of
    several columns for one rate stands beyond all others.

    Attributes
    ----------
    titled : set
        Labels by their row, shared by all rates, so that each is written once.
    rates : int
        How many rates it writes for at once.
    """

    board: Board
    table: Column
    column: int
    titled: set[tuple[int, str]] = field(default_factory=set)
    block: int = 1
    rates: int = 1

    def __call__(self, label: str, e: X) -> Cells:
        """Write a column, or several where the formula is that of several."""
        beyond = self.rates == 1 and np.ndim(e.value) == 2
        self.block = max(self.block, BEYOND if beyond else 0) + 1
        column, row = self.column + self.board.side * self.block, self.table.first - 1
        if (row, label) not in self.titled:
            self.titled.add((row, label))
            self.board.page.write(row - 1, column, label, "count", "header")
        if self.rates > 1:
            e = X(e.text, spread(e.value, (self.rates, len(self.table.value))))
        return self.board.down(row, column, e, len(self.table.value))

    def bare(self) -> int:
        """The next column, to be written without a label."""
        self.block += 1
        return self.column + self.board.side * self.block


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """What a law is made of, as cells of a row or single ones.

    Attributes
    ----------
    step : X
        [s] without prompts.
    left : X
        Share of time that prompts leave.
    mean, own : X
        [s] mean and [s²] variance of what a prompt takes.
    wait, before : X
        [s] mean wait for the prefill, and the same with the prefill.
    cost : X
        [s] ``mean`` over ``left``.
    most : X or None
        [s] most that prompts add, where a budget bounds each step.
    """

    step: X
    left: X
    mean: X
    own: X
    wait: X
    before: X
    cost: X
    most: X | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """TPOT of single requests (``stalls.TokenTimes``), row by row of a table or of one size.

    Attributes
    ----------
    none, mean, swing : Column or Single
        Share that meets no prompt; mean [s] and variance [s²] of what the others meet.
    most : Column, Single or None
        [s] most that prompts add, where a budget bounds each step.
    least : Column, Single or None
        [s] least that they add to those that meet one; ``mean`` is what comes beyond.
    """

    none: Cells
    mean: Cells
    swing: Cells
    most: Cells | None = None
    least: Cells | None = None

    def all_of_it(self, form: str) -> X:
        """Mean [s] of what those that meet a prompt do, in a ``form`` of :func:`share_within`."""
        mean: X = getattr(self.mean, form)
        return mean if self.least is None else mean + getattr(self.least, form)


def law_of(write: Write, cells: dict[str, X], cv2: X, pace: Pace, bound: Cells | None,
           gaps: tuple[X, X, X], label: str = "", ranges: bool = True,
           shortest: X | None = None) -> Law:
    """Write the law of answers with some gaps between tokens.

    Parameters
    ----------
    cells : dict
        ``stop`` [1/s], ``ahead`` and ``after`` of the rate.
    bound : Column or Single
        The cells of ``pace.most``.
    gaps : tuple of X
        Means of the gaps of an answer, of 1 over them, and of 1 over their squares.
    label : str
        Ending of the labels.
    ranges : bool
        Whether formulas over all rows at once read it too; else the share without a prompt has no
        cells of its own.
    shortest : X, optional
        What the shortest prompt takes over what prompts take, mean: who meets one holds it at
        least.
    """
    rate, after, ahead = cells["stop"], cells["after"], cells["ahead"]
    each, first, second = gaps
    step, before, cost = pace.step, pace.before, pace.cost
    none_e = exp(0.0 - rate / (1.0 + ahead) * (before + step * each)) / (1.0 + after)
    none = write(f"Meets no prompt{label}", none_e) if ranges else Single(none_e)
    come = (rate * (before * first + step) + after * first) * cost
    come = come if pace.most is None else least(come, pace.most)
    met = most(1.0 - none.each, 1e-12)
    mean = write(f"Added, mean [s]{label}", most(come / met, 1e-15))
    count = before * second + step * first
    whole = (square(rate) * (square(before) * second + 2.0 * before * step * first + square(step))
             + 2.0 * rate * after * count + square(after) * second)
    cycles = rate * count * (pace.own + most(cv2, 1.0) * square(pace.mean)) / pace.left ** 3
    spread = (square(rate * pace.wait * cost) + after * (
        pace.own / square(pace.left) + (1.0 + after) * square(cost))) * second
    squares = cycles + spread + whole * square(cost)
    squares = squares if pace.most is None else least(squares, pace.most * come)
    swing = write(f"Added, variance [s²]{label}", most(
        squares / met - square(mean.each), 1e-3 * square(mean.each)))
    if shortest is None:
        return Law(none, mean, swing, bound)
    lowest = write(f"Least of it [s]{label}", least(
        shortest * pace.mean * first, MOST_LEAST * mean.each))
    beyond = write(f"Beyond it [s]{label}", mean.each - lowest.each)
    return Law(none, beyond, swing, bound, lowest)


def share_within(limit: X, step: X, law: Law, variance: X | None, form: str) -> X:
    """Share of the requests with a TPOT of at most ``limit``: of a row, or as ranges.

    Parameters
    ----------
    variance : X or None
        [s²] of the step within a row of batch sizes.
    form : str
        ``each`` or ``all``.
    """
    parts: list[X] = [getattr(cells, form) for cells in (law.none, law.mean, law.swing)]
    none, mean, swing = parts
    spread = x(TINY_S2) if variance is None else variance + TINY_S2
    over = limit - step
    if law.least is not None:
        over = over - getattr(law.least, form)
    if form == "each":
        over = least(most(over, 0.0), FAR_OUT * (mean + swing / mean))
    else:
        over = over * (over > 0.0)
    late = gamma(over, square(mean) / swing, swing / mean)
    share = none * normal((limit - step) / sqrt(spread)) + (1.0 - none) * late
    if law.most is None:
        return share
    bound: X = getattr(law.most, form)
    past = limit - step >= bound
    return when(past, 1.0, share) if form == "each" else past + (1.0 - past) * share

