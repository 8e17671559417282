"""What users see at the peak: percentiles of first token and token time, by halving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.queueing import PERCENTILES
from planner.workbook.live.board import Board, Column
from planner.workbook.live.expr import (
    X,
    both,
    gamma,
    highest,
    least,
    lowest,
    most,
    sqrt,
    total,
    when,
    whole,
    x,
)
from planner.workbook.live.lengths import LengthRows
from planner.workbook.live.onepool import HALVINGS
from planner.workbook.live.search import Asked, Chain, by_row

LEVELS = tuple(p / 100.0 for p in PERCENTILES)


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


@dataclass(slots=True, eq=False)
class FirstToken:
    """The wait and latency of a first token: what a distribution function needs."""

    busy: X
    mean_wait: X
    second: X
    shape: X
    scale: X
    offset: X
    latency: Column | X
    share: Column
    mean: X

    @property
    def ranges(self) -> X:
        """Latencies of the prompts as a range [s]."""
        return self.latency.all if isinstance(self.latency, Column) else self.latency

    def within(self, limit: X) -> X:
        """Share of first tokens within a time [s]."""
        left = limit - self.offset - self.ranges
        late = gamma((left > 0.0) * left, self.shape, self.scale)
        return total(self.share.all * (left >= 0.0) * (1.0 - self.busy * (1.0 - late)))

    def longest(self) -> X:
        """A time [s] that hardly any first token exceeds."""
        return self.offset + X(f"MAX({self.ranges.text})", float(self.ranges.value.max())) + (
            30.0 * self.scale * most(self.shape, 1.0))


def token_columns(chain: Chain, one: Asked) -> Callable[[X], X]:
    """Columns of the batch sizes at the peak; the share of tokens within a TPOT by them."""
    t, c = chain.tables, one.cells
    per = t.extra["per_token"].each if chain.kind == "chunked" else None
    slow = c.get("slow") if per is None else chain.left(one, per)
    tpot = t.board.named(t._sized("TPOT at the peak [s]", t.seconds.each if slow is None
                                  else t.seconds.each / slow, "six"), f"tpot_{t.tag}")
    weight = chain.weights(one)
    rows = X(by_row(weight.text, chain, c), weight.value, weight.binds)
    t._sized("Share of time", (t.end.each <= c["cap"]) * rows / c["total"]
                    + (t.end.each.is_(c["cap"])) * c["tail"] / c["total"], "percent1")
    tokens = t.board.named(t._sized("Output at the peak", (t.end.each <= c["cap"]) * rows
                                    * t.n.each / tpot.each, "science"), f"output_{t.tag}")

    def reached(limit: X) -> X:
        return (total(tokens.all * chain.good(one, limit))
                + c["last"] * chain.last_good(one, limit)) / c["tokens"]
    return reached


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
    if "tokens" not in c:
        chain.reached(one, c["tpot"])
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
    span = board.line("Range of first tokens", first.longest(), "s", "", "six")
    wide = board.line("Range of token times", 1.01 * c["reach"], "s", "", "six")
    place = rows["Time to first token [s]"]
    ttft = [board.put(place, 1, first.mean, "cell", "six")]
    tpot_mean = board.put(rows["Time per output token [s]"], 1, c["mean_tpot"], "cell", "six")
    tpot = [tpot_mean]
    _, mean = chain.whole(one, output.mean, "answers of the mean length")
    e2e = [board.put(rows["Whole request [s]"], 1, ttft[0] + mean * most(
        output.mean - 1.0, 0.0), "cell", "six")]
    start = board.row
    reading = start + 4 * HALVINGS + 5
    board.unprinted.append((start, reading + len(READING)))
    for i, level in enumerate((None, *LEVELS)):
        column = 2 + i
        at = [lev if level is None else x(level) for lev in levels]
        cells = [board.put(rows[f"Level for {n}"], column, lev, "cell", "percent1")
                 for n, lev in zip(("TTFT", "TPOT", "whole request"), at, strict=True)]
        found = _halve(board, start, column, span, first.within, cells[0], HALVINGS)
        ttft.append(board.put(place, column, _read_off(
            board, reading, column, first, found, cells[0]), "cell", "six",
            name="" if level is not None else f"ttft_s_{t.tag}"))
        tpot.append(board.put(rows["Time per output token [s]"], column, _halve(
            board, start + HALVINGS + 1, column, wide, reached, cells[1], HALVINGS), "cell",
            "six", name="" if level is not None else f"tpot_s_{t.tag}"))
        tokens = output.quantile(cells[2])
        whole_, _ = chain.whole(one, tokens, f"whole request, column {i + 1}")
        first_token = ttft[-1] if level is not None else _halve(
            board, start + 2 * HALVINGS + 2, column, span, first.within, cells[2], HALVINGS)
        each = _halve(board, start + 3 * HALVINGS + 3, column, wide, whole_, cells[2], HALVINGS)
        e2e.append(board.put(rows["Whole request [s]"], column, first_token + each * most(
            tokens - 1.0, 0.0), "cell", "six", name="" if level is not None
            else f"e2e_s_{t.tag}"))
    for row, text in ((start, "Tries of TTFT [s]"), (start + HALVINGS + 1, "Tries of TPOT [s]")):
        board.page.write(row, 0, text, "cell", "text")
    for i, text in enumerate(READING):
        board.page.write(reading + i, 0, text, "cell", "text")
    board.row = reading + 1 + len(READING)
    itl = None if gap is None else _gap(board, chain, one, wide, reached, gap)
    return Seen(ttft, tpot, e2e, c["running"], itl)


def _gap(board: Board, chain: Chain, one: Asked, wide: X, reached: Callable[[X], X], level: X
         ) -> X:
    """The gap between tokens [s]: a decode pool's is its time per token."""
    if chain.kind != "decode":
        return board.line("Gap between tokens at its level", chain.gap(one, level), "s", "", "six",
                          name=f"itl_s_{chain.tables.tag}")
    board.page.write(board.row, 0, "Tries of the gap between tokens [s]", "cell", "text")
    board.unprinted.append((board.row, board.row + HALVINGS))
    found = _halve(board, board.row, 2, wide, reached, level, HALVINGS)
    board.row += HALVINGS + 1
    return board.line("Gap between tokens at its level", found, "s", "", "six",
                      name=f"itl_s_{chain.tables.tag}")


def _halve(board: Board, row: int, column: int, span: X, reached: Callable[[X], X], level: X,
           count: int) -> X:
    """The time at which a distribution reaches a level, tries down a column; the last try."""
    at = board.put(row, column, span / 2.0, "cell", "six")
    for i in range(2, count + 1):
        below = reached(at) < level - 1e-9
        at = board.put(row + i - 1, column, at + when(below, 1.0, -1.0) * span / float(2**i),
                       "cell", "six")
    return at


READING = ("Shortest latency [s]", "Longest latency [s]", "Range of waits [s]",
           "Grid point below, even", "Grid point above, even", "Grid point below, from shortest",
           "Grid point above, from shortest", "Grid point below, from longest",
           "Grid point above, from longest", "Latency below", "Latency above",
           "Grid point below", "Grid point above", "Share at it", "Share at the one above")
"""Rows of :func:`_read_off`."""
NOWHERE = 1e9
"""Stands for a batch size that is none."""
TIE_S = 1e-12
"""[s] so that a grid point at a latency counts it, however the last digit is rounded."""
GRID = 79.0
"""Steps of the grids of ``queueing.sum_percentiles``."""


def _read_off(board: Board, row: int, column: int, first: FirstToken, at: X, level: X) -> X:
    """The percentile as the planner reads it: linear between the grid points beside it."""
    rows = iter(range(row, row + len(READING)))

    def put(e: X) -> X:
        return board.put(next(rows), column, e, "cell", "six")

    low = put(first.offset + lowest(first.ranges))
    high = put(first.offset + highest(first.ranges))
    reach = put(12.0 * (first.mean_wait + sqrt(first.second)) / most(first.busy, 1e-9))
    width = (high - low) / GRID
    step = whole((at - low) / most(width, 1e-12))
    even = (put(when(high > low, least(low + step * width, high), low)),
            put(when(both(high > low, at < high), low + (step + 1.0) * width, 1e9)))
    points = [even]
    for start in (low, high):
        turn = whole(GRID * (most(at - start, 0.0) / most(reach, 1e-12)) ** (1.0 / 3.0))
        points.append((put(when(at >= start, start + reach * (turn / GRID) ** 3, 0.0)),
                       put(when(at >= start, start + reach * ((turn + 1.0) / GRID) ** 3, start))))
    here = first.offset + first.ranges
    points.append((put(highest((here <= at) * here)), put(lowest(
        here * (1.0 - 1e-9) + 1e9 * (here <= at)))))
    below = put(most(*(p[0] for p in points)))
    above = put(most(least(*(p[1] for p in points)), below))
    share = put(first.within(below + TIE_S))
    more = put(first.within(above + TIE_S))
    part = (level - 1e-9 - share) / most(more - share, 1e-12)
    return below + (above - below) * least(most(part, 0.0), 1.0)
