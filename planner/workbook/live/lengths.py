"""Token lengths as rows of the sheet: log-normal bins from mean and p95, or a list, scaled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.workbook.live.board import Board, Column
from planner.workbook.live.expr import (
    X,
    exp,
    highest,
    least,
    ln,
    most,
    normal,
    normal_inverse,
    pick,
    sqrt,
    square,
    total,
    when,
    x,
)
from planner.workload import (
    EDGES,
    LEAST_PART,
    LUMP,
    MOST_OF_LUMP,
    NEAR_JUMP,
    SEVERAL_TOKENS,
    TOKEN_SPREAD,
    Z95,
    Lengths,
)

EDGES = EDGES
BINS = len(EDGES) - 1
LISTED, LISTED_COLUMNS = 24, 4
"""First column of the lists of lengths as they were given, and how many they take."""


@dataclass(frozen=True, slots=True, eq=False)
class LengthInputs:
    """What the Inputs sheet says of one length.

    Attributes
    ----------
    mean, p95 : X
        [token]
    given : Lengths
        The distribution that was asked for.
    given_p95 : float
        [token] the value of ``p95`` when the workbook was written.
    wide : bool
        Whether the larger of the two spreads with this mean and p95 is meant.
    """

    mean: X
    p95: X
    given: Lengths
    given_p95: float
    wide: bool = False

    @property
    def listed(self) -> bool:
        """Whether a list of lengths was given."""
        return self.given.kind == "empirical"

    @property
    def longest(self) -> X:
        """Longest length of a list [token]; else the larger of mean and 95th percentile."""
        usual = most(self.mean, self.p95)
        if not self.listed:
            return usual
        return when(self.p95.is_(self.given_p95),
                    self.mean * (self.given.max / self.given.mean), usual)

    @property
    def rows(self) -> int:
        """Rows that the distribution takes."""
        return max(BINS, len(self.given.tokens)) if self.listed else BINS


@dataclass(frozen=True, slots=True, eq=False)
class LengthRows:
    """A distribution on a sheet: its columns, and its moments as cells."""

    tokens: Column
    share: Column
    reached: Column
    mean: X
    second: X
    third: X
    law_mean: X
    sigma: X
    keeps: X | None

    def quantile(self, level: X) -> X:
        """Length that a share of the requests do not exceed (``Lengths.quantile``)."""
        law = most(self.law_mean * exp(self.sigma * (normal_inverse(level) - self.sigma / 2.0)),
                   1.0)
        if self.keeps is None:
            return law
        return when(self.keeps, pick(self.tokens.all, self._place(level)), law)

    def first_level(self, level: X) -> X:
        """Share at which the first token counts (``Workload.first_percentile``)."""
        return self._least(level, level if self.keeps is None else self._of_lump(level))

    def token_level(self, level: X) -> X:
        """Share at which the time per token counts (``Workload.token_percentile``)."""
        part = TOKEN_SPREAD / sqrt(x(TOKEN_SPREAD**2) + square(self.sigma))
        own = normal(part * normal_inverse(level))
        if self.keeps is not None:
            own = when(self.keeps, self._of_lump(level), own)
        return self._least(level, own)

    def _least(self, level: X, own: X) -> X:
        several = highest(self.tokens.all) >= SEVERAL_TOKENS
        return when(several, most(own, LEAST_PART / 100.0), level)

    def _place(self, level: X) -> X:
        """Place of the first listed length whose cumulated share is more than a level."""
        below = total(1.0 * (self.reached.all < level + NEAR_JUMP))
        return least(below + 1.0, x(len(self.tokens.value)))

    def _of_lump(self, level: X) -> X:
        """The level, or what it asks of a lump of listed answers (``Lengths.share_of_lump``)."""
        place = self._place(level)
        weight, reached = pick(self.share.all, place), pick(self.reached.all, place)
        asked = (level - reached + weight) / most(weight, LUMP)
        return when(weight >= LUMP, most(level, least(asked, MOST_OF_LUMP)), level)


def spread(board: Board, which: str, source: LengthInputs) -> X:
    """The log-normal's sigma as a line; 0 is a constant length."""
    ratio = ln(most(source.p95 / source.mean, 1.0))
    root = sqrt(most(x(Z95 ** 2) - 2.0 * ratio, 0.0))
    return board.line(f"{which}: spread of ln(tokens)",
                      x(Z95) + root if source.wide else x(Z95) - root, "",
                      "p95 / mean = exp(1.645 s - s²/2)")


def write(board: Board, title: str, prompt: LengthInputs, output: LengthInputs
          ) -> tuple[LengthRows, LengthRows]:
    """Both distributions side by side, with their moments above."""
    board.heading(title, "Each row is a share of the requests at its mean length.")
    sigmas = [spread(board, n, s) for n, s in (("Prompt", prompt), ("Output", output))]
    head = board.row
    board.row += 6
    top = board.row + 1
    count = max(prompt.rows, output.rows)
    labels = ["Up to share", "z", "Prompt [tokens]", "Share", "Reached", "Output [tokens]",
              "Share", "Reached"]
    board.columns(labels, top - 1)
    edges = np.concatenate([EDGES[1:], np.full(count - BINS, 1.0)])
    upto = board.values_down(top, 0, edges, "cell", "fraction")
    z = board.down(top, 1, normal_inverse(least(upto.each, 1.0 - 1e-15)), count, "cell", "three")
    found = []
    for place, (source, sigma) in enumerate(zip((prompt, output), sigmas, strict=True)):
        found.append(_columns(board, top, 2 + 3 * place, source, sigma, upto, z))
    board.row = top + count
    made = []
    for place, (name, one, source, sigma) in enumerate(zip(
            ("Prompt", "Output"), found, (prompt, output), sigmas, strict=True)):
        board.row, keep = head + 3 * place, board.row
        tokens, share, reached = one
        mean = board.line(f"{name}: mean", total(share.all * tokens.all), "tokens")
        second = board.line(f"{name}: mean of squares",
                            total(share.all * square(tokens.all)), "tokens²", "", "count")
        third = board.line(f"{name}: mean of cubes", total(share.all * tokens.all ** 3),
                           "tokens³", "", "science")
        keeps = source.p95.is_(source.given_p95) if source.listed else None
        made.append(LengthRows(tokens, share, reached, mean, second, third, source.mean, sigma,
                               keeps))
        board.row = keep
    return made[0], made[1]


def _columns(board: Board, top: int, first: int, source: LengthInputs, sigma: X, upto: Column,
             z: Column) -> tuple[Column, Column, Column]:
    """Tokens, share and cumulated share of one distribution."""
    count = len(upto.value)
    before = X(f"N(${upto.letter}{{p}})", np.concatenate([[0.0], upto.value[:-1]]))
    share_e = upto.each - before
    below = X(f"IF(ISNUMBER(${z.letter}{{p}}),NORMSDIST(${z.letter}{{p}}-{sigma.text}),0)",
              np.concatenate([[0.0], normal(X("", z.value[:-1]) - sigma).value]))
    above = X(f"IF(${upto.letter}{{r}}<1,NORMSDIST(${z.letter}{{r}}-{sigma.text}),1)",
              np.where(upto.value < 1, normal(X("", z.value) - sigma).value, 1.0))
    bins = source.mean * (above - below)
    bins = bins / share_e if count == BINS else bins / when(share_e > 0.0, share_e, 1.0)
    if not source.listed:
        tokens_e, shares = most(when(sigma < 1e-9, source.mean, bins), 1.0), share_e
    else:
        given = source.given
        pad = count - len(given.tokens)
        size = np.concatenate([given.tokens, np.full(pad, given.tokens[-1])])
        part = np.concatenate([given.weights, np.zeros(pad)])
        far = LISTED + (first - 2) // 3 * 2
        listed = board.values_down(top, far, size, "cell", "figure")
        listed_share = board.values_down(top, far + 1, part, "cell", "small")
        board.columns(["Listed [tokens]", "Listed share"], top - 1, far)
        keeps = source.p95.is_(source.given_p95)
        scaled = listed.each * (source.mean / given.mean)
        smooth = when(share_e > 0.0, bins, source.mean)
        tokens_e = most(when(keeps, scaled, smooth), 1.0)
        shares = when(keeps, listed_share.each, share_e)
    tokens = board.down(top, first, tokens_e, count, "cell", "one")
    share = board.down(top, first + 1, shares, count, "cell", "small")
    above_it = f"${xl_col_to_name(first + 2)}{{p}}"
    reached = board.down(top, first + 2, X(f"N({above_it})+${share.letter}{{r}}",
                                           np.cumsum(share.value)), count, "cell", "small")
    return tokens, share, reached
