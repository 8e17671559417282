"""What users see at the peak: percentiles of first token and token time, by halving."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.queueing import PERCENTILES
from planner.workbook.fast import letters
from planner.workbook.live.asked import Asked
from planner.workbook.live.board import Board
from planner.workbook.live.expr import X, most, x
from planner.workbook.live.first_token import FirstToken
from planner.workbook.live.gaps import gaps_reached
from planner.workbook.live.halving import TRIED, Reached
from planner.workbook.live.lengths import LengthRows
from planner.workbook.live.search import Chain
from planner.workbook.live.search_rows import by_row
from planner.workbook.live.targets import HALVINGS
from planner.workload import SEVERAL_TOKENS

LEVELS = tuple(p / 100.0 for p in PERCENTILES)
COLUMN = 2
"""First column of the levels; the one before it is the mean's."""


@dataclass(slots=True, eq=False)
class Seen:
    """Latencies as cells [s]: the mean, at the target's level, and at fixed levels.

    Attributes
    ----------
    ttft, tpot, e2e : tuple of X
        Mean, at the level of the target, at each of :data:`LEVELS`.
    running : X
        Sequences that decode at once on a replica.
    itl : X, optional
        Gap between tokens at the level of its target.
    """

    ttft: list[X]
    tpot: list[X]
    e2e: list[X]
    running: X
    itl: X | None = None


def token_columns(chain: Chain, one: Asked) -> Reached:
    """Columns of the batch sizes at the peak; the share of tokens within a TPOT by them."""
    t, c = chain.tables, one.cells
    per = t.extra["per_token"].each if chain.kind == "chunked" else None
    slow = c.get("slow") if per is None else chain.left(one, per)
    tpot = t.board.named(t._sized("TPOT at the peak [s]", t.seconds.each if slow is None
                                  else t.seconds.each / slow, "six"), f"tpot_{t.tag}")
    weight = chain.weights(one)
    rows = X(by_row(weight.text, chain), weight.value, weight.binds)
    t._sized("Share of time", (t.end.each <= c["cap"]) * rows / c["total"]
                    + (t.end.each.is_(c["cap"])) * c["tail"] / c["total"], "percent1")
    tokens = t.board.named(t._sized("Output at the peak", (t.end.each <= c["cap"]) * rows
                                    * t.n.each / tpot.each, "science"), f"output_{t.tag}")
    return chain.reached(one, one.quarters, tokens.all)


def latencies(board: Board, chain: Chain, one: Asked, first: FirstToken, output: LengthRows,
              levels: tuple[X, X, X], gap: X | None = None) -> Seen:
    """Write the table of latencies at the peak.

    Parameters
    ----------
    levels : tuple of X
        Level of the target of TTFT, of TPOT, and of the whole request.
    gap : X, optional
        Level of the target of the gap between tokens.
    """
    c, t = one.cells, chain.tables
    chain.own_tokens(one)
    reached = token_columns(chain, one)
    board.heading("Latencies at the peak", "Percentiles by halving: each try goes half as far as "
                  "the one before.")
    labels = ["", "Mean", "Target", *(f"p{100 * p:g}" for p in LEVELS)]
    board.columns(labels)
    board.page.write(board.row, 0, "Latency", "text", "header")
    board.row += 1
    top = board.row
    rows = {name: top + i for i, name in enumerate(
        ("Level for TTFT", "Time to first token [s]", "Level for TPOT",
         "Time per output token [s]", "Level for whole request", "Whole request [s]"))}
    for name, row in rows.items():
        board.page.write(row, 0, name, "cell", "text")
    board.row = top + len(rows)
    at = [_levels(board, rows[f"Level for {name}"], level) for name, level in zip(
        ("TTFT", "TPOT", "whole request"), levels, strict=True)]
    span = board.line("Range of first tokens", first.longest(), "s", "", "six")
    wide = board.line("Range of token times", 1.01 * c["reach"], "s", "", "six")
    mean = chain.whole_mean(one, output.mean, "answers of the mean length")
    start = board.row
    put = Across(board)
    ttft = _tries(put, "TTFT [s]", span, first.reached, at[0])
    tpot = _tries(put, "TPOT [s]", wide, reached, at[1])
    tokens = put("Answer of that level [tokens]", output.quantile(at[2]))
    such = chain.whole(one, tokens, "answers of that level", put)
    parts = [put(f"Share of {name} that counts", level(at[2])) for name, level in (
        ("first tokens", output.first_level), ("answers", output.token_level))]
    each = _tries(put, "TPOT of such an answer [s]", wide, such, parts[1])
    first_token = _tries(put, "TTFT of that share [s]", span, first.reached, parts[0])
    e2e = first_token + each * most(tokens - 1.0, 0.0)
    board.unprinted.append((start, board.row))
    board.row += 1
    figures = (("Time to first token [s]", first.mean, ttft, "ttft_s"),
               ("Time per output token [s]", c["mean_tpot"], tpot, "tpot_s"),
               ("Whole request [s]", first.mean + mean * most(output.mean - 1.0, 0.0), e2e,
                "e2e_s"))
    made = [_row(board, rows[name], average, e, f"{cell}_{t.tag}")
            for name, average, e, cell in figures]
    board.page.sheet.conditional_format(
        rows["Time per output token [s]"], COLUMN - 1, rows["Time per output token [s]"],
        COLUMN + len(LEVELS), {
            "type": "formula", "format": board.page.mark({"num_format": '"n/a"'}),
            "criteria": f"=MAX({output.tokens.all.text})<{SEVERAL_TOKENS:g}"})
    itl = None if gap is None else _gap(board, chain, one, wide, reached, gap)
    return Seen(made[0], made[1], made[2], c["running"], itl)


def _levels(board: Board, row: int, level: X) -> X:
    """A row of levels: that of the target, then the fixed ones."""
    made = [board.put(row, COLUMN + i, e, "cell", "percent1")
            for i, e in enumerate((level, *(x(p) for p in LEVELS)))]
    return X(f"{letters(COLUMN)}${row + 1}", np.array([[float(e.value)] for e in made]))


def _row(board: Board, row: int, mean: X, e: X, name: str) -> list[X]:
    """A row of latencies: the mean, at the level of the target (named), at the fixed levels."""
    found = [board.put(row, COLUMN - 1, mean, "cell", "six")]
    values = board.across(row, COLUMN, e, len(e.value), "cell", "six").value.ravel()
    board.define(name, f"${letters(COLUMN)}${row + 1}")
    cells = [f"${letters(COLUMN + i)}${row + 1}" for i in range(len(values))]
    return [*found, *(X(cell, float(v)) for cell, v in zip([name, *cells[1:]], values,
                                                         strict=True))]


@dataclass(slots=True, eq=False)
class Across:
    """Writes rows of a label and one formula for all levels; its columns are those of the table."""

    board: Board

    def __call__(self, label: str, e: X) -> X:
        """Write a row; where ``e`` is one value, one cell."""
        row = self._label(label)
        if np.ndim(e.value) < 2:
            return self.board.put(row, COLUMN, e, "cell", "six")
        return self.board.across(row, COLUMN, e, len(e.value), "cell", "six")

    def _label(self, label: str) -> int:
        self.board.page.write(self.board.row, 0, label, "cell", "text")
        self.board.row += 1
        return self.board.row - 1


def _gap(board: Board, chain: Chain, one: Asked, wide: X, reached: Reached, level: X
         ) -> X:
    """The gap between tokens [s]: a decode pool's is its time per token (``reached``)."""
    start = board.row
    if chain.kind != "decode":
        reached, far = gaps_reached(chain, one)
        wide = board.line("Range of gaps", 1.01 * far, "s", "", "six")
    found = _tries(Across(board), "the gap between tokens [s]", wide, reached, X(
        level.text, np.array([[float(level.value)]])))
    board.unprinted.append((start, board.row - 1))
    return board.line("Gap between tokens at its level", X(found.text, float(found.value[0, 0])),
                      "s", "", "six", name=f"itl_s_{chain.tables.tag}")


def _tries(put: Across, label: str, span: X, reached: Reached, level: X) -> X:
    """Where a distribution reaches each level, by halving: tries from top to bottom beside the
    lengths of their steps; the last ones."""
    b, top, count = put.board, put.board.row, len(level.value)
    row, first = top + 1, letters(COLUMN)
    b.page.write(top, 0, f"Tries of {label}", "cell", "text")
    b.row += HALVINGS
    at = b.across(top, COLUMN, span / 2.0, count, "cell", "six")
    b.put(top, COLUMN - 1, span / 2.0, "cell", "science")
    steps = float(span.value) / 2.0 ** np.arange(2, HALVINGS + 1)
    b.down(row, COLUMN - 1, X(f"{letters(COLUMN - 1)}{{p}}/2", steps), HALVINGS - 1, "cell",
           "science")
    values = reached.tries(span, level, HALVINGS)
    above = f"{first}{{p}}"
    test = reached.below(level, at.value).replace(TRIED, above)
    b.area(row, COLUMN, f"{above}+IF({test},1,-1)*${letters(COLUMN - 1)}{{r}}", values[:, 1:],
           "cell", "six")
    return X(f"{first}${top + HALVINGS}", values[:, -1:])
