"""Cells of the arrival rates of a search, and the labelled rows on which they stand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from planner.workbook.fast import letters
from planner.workbook.live.expr import X, x
from planner.workbook.live.laws import Beside, Law, Pace
from planner.workbook.live.prefill_wait import Wait
from planner.workbook.live.tables import Tables
from planner.workload import SLACK

BARELY = SLACK
"""Share by which a level may be missed (``Slo.level``)."""
FAR = 30
"""First column of the search."""


@dataclass(slots=True, eq=False)
class Asked:
    """One column, or several alike: its rate, and the cells that later rows and columns use."""

    column: int
    rate: X
    cv2: X
    cells: dict[str, X] = field(default_factory=dict)
    law: Law | None = None
    """Of the answers, over the batch sizes."""
    write: Beside | None = None
    """Writes further columns beside the batch sizes."""
    limits: Beside | None = None
    """Writes further columns beside the batch limits."""
    pace: Pace | None = None
    """Of the batch sizes."""
    last: Pace | None = None
    """At the batch limit."""
    quarters: tuple[tuple[Law, Law], ...] = ()
    """Of each quarter of the answers, over the batch sizes and at the batch limit."""
    good: tuple[X, ...] = ()
    """Shares within the target of TPOT: the answers over sizes and limits, then the reference
    answers."""
    wait: Wait | None = None
    own_wait: X | None = None
    """Mean wait [s] for the prefill alone (prefill pools)."""
    shape: X = field(default_factory=lambda: x(1.0))
    scale: X = field(default_factory=lambda: x(1.0))
    offset: X = field(default_factory=lambda: x(0.0))
    latency: X = field(default_factory=lambda: x(0.0))
    over_sizes: dict[str, X] = field(default_factory=dict)
    """Expressions over the batch sizes that several cells use."""
    limits_pace: Pace | None = None
    """Of the batch limits."""
    laws: dict[str, tuple[Law, tuple[X, X, X]]] = field(default_factory=dict)
    """Laws of answers of some length, and their gaps, by their label."""
    suffix: str = ""
    """Ending of the labels of its cells."""
    aside: int = 0
    """Columns by which its columns over the prompts stand aside."""

    @property
    def rates(self) -> int:
        """How many rates it asks at once, one a column."""
        return len(self.rate.value) if np.ndim(self.rate.value) == 2 else 1


class Scalars:
    """Cells of one column, one under the other; a label is written when it first occurs."""

    def __init__(self, board_rows: Rows, column: int, suffix: str = "") -> None:
        self.rows, self.column, self.suffix = board_rows, column, suffix

    def __call__(self, label: str, e: X) -> X:
        """Write a cell on the row of its label."""
        return self.rows.board_put(label + self.suffix, self.column, e)

    def down(self, labels: list[str], e: X) -> X:
        """Write one formula on the rows of labels that stand one under the other; the last cell.
        """
        rows = [self.rows.row(label + self.suffix) for label in labels]
        self.rows.board.area(rows[0], self.column, e.text, e.value)
        return X(f"{letters(self.column)}${rows[-1] + 1}", e.value[:, -1:])


class Rows:
    """Rows of labelled scalars to the right of the tables.

    Parameters
    ----------
    far : int
        Column of the labels.
    several : int
        Columns that each rate takes, one beside the other.
    """

    def __init__(self, tables: Tables, top: int, far: int = FAR, several: int = 1) -> None:
        self.board, self.top, self.far, self.several = tables.board, top, far, several
        self.known: dict[str, int] = {}
        self.taken: dict[int, int] = {}
        """Columns that are written at once, by the first of them."""

    def column(self, place: int) -> int:
        """First column of a rate, counted from 1."""
        return self.far + 1 + (place - 1) * self.several

    def board_put(self, label: str, column: int, e: X) -> X:
        """Write one cell, or all of a rate where the formula is that of several columns."""
        row, count = self.row(label), self.taken.get(column, 1)
        if count > 1 or np.ndim(e.value) == 2:
            return self.board.across(row, column, e, max(count, self.several))
        return self.board.put(row, column, e)

    def row(self, label: str) -> int:
        """The row of a label, written when it first occurs."""
        if label not in self.known:
            self.known[label] = self.top + len(self.known)
            self.board.page.write(self.known[label], self.far, label, "short")
        return self.known[label]
