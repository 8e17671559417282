"""Packings of prompts into one prefill pass, a column each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xlsxwriter.utility import xl_cell_to_rowcol

from planner.workbook.fast import letters
from planner.workbook.live.board import Board, Column
from planner.workbook.live.expr import X


@dataclass(slots=True, eq=False)
class Packs:
    """Packings of prompts into one pass, a column each.

    Attributes
    ----------
    prompts : X
        Prompts of a pass.
    allowed : X
        Whether it is worth trying and the memory holds it.
    pass_s, first : Column
        [s] of a pass and of a first token on an idle replica, a row a prompt length.
    service : tuple of X
        Means of a prompt's share of a pass, of its squares and of its cubes.
    """

    prompts: X
    allowed: X
    pass_s: Column
    first: Column
    service: tuple[X, X, X]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.prompts.value)


class Packed:
    """Writes rows of a label and one formula for all packings; their columns begin at the second.

    Parameters
    ----------
    count : int
        How many packings there are.
    """

    def __init__(self, board: Board, count: int) -> None:
        self.board, self.count = board, count

    def __call__(self, label: str, e: X, style: str = "general") -> X:
        """Write a row."""
        b, row = self.board, self.board.row
        b.row += 1
        b.page.write(row, 0, label, "cell", "text")
        return b.across(row, 1, e, self.count, "cell", style)

    def row(self, cells: X) -> X:
        """The cells of all packings, given that of the first, as a range."""
        letter, _, row = cells.text.partition("$")
        last = letters(xl_cell_to_rowcol(f"{letter}{row}")[1] + self.count - 1)
        return X(f"${letter}${row}:${last}${row}", np.ravel(cells.value))

    def pick(self, cells: X, place: X) -> X:
        """The cell of the packing of a place."""
        found = self.row(cells)
        return X(f"INDEX({found.text},1,{place.text})", float(found.value[int(place.value) - 1]))


def place_first(value: X, column: X) -> X:
    """Place (from 1) of the first row that is equal to a value."""
    found = float(np.argmax(np.asarray(column.value) == value.value)) + 1.0
    return X(f"MATCH({value.text},{column.text},0)", found)
