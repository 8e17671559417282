"""A pool asked about arrival rates, one column each: its batch limit, and whether targets hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.setups.disaggregated import MAX_LINK_LOAD
from planner.workbook.live.asked import BARELY, Asked, Scalars
from planner.workbook.live.board import Column
from planner.workbook.live.expr import (
    X,
    both,
    highest,
    least,
    most,
    pick,
    place_below,
    round_up,
    total,
    when,
    x,
)
from planner.workbook.live.limits import TOKEN_BARELY, settled, whole_within
from planner.workbook.live.running import LEAST_WEIGHT
from planner.workbook.live.search_rows import by_row
from planner.workbook.live.token_limits import TokenLimits
from planner.workbook.live.waits import FirstWaits

__all__ = ["Asked", "Chain"]


class Chain(TokenLimits, FirstWaits):
    """A pool asked about arrival rates: the batch limit, and whether the targets hold there."""

    def ask(self, column: int, rate: X, cv2: X, limit: X | None = None) -> Asked:
        """Everything about one rate; under a given batch limit, or the largest that will do.

        Where the value of the rate is that of several, all of them in as many columns.
        """
        if np.ndim(rate.value) == 2:
            self.rows.taken[column] = len(rate.value)
        put = Scalars(self.rows, column)
        one = Asked(column, put("Requests per second [1/s]", rate), put("Arrival CV²", cv2))
        c = one.cells
        self._open(put, one)
        if self.kind != "decode":
            self._laws(put, one, limit is None)
        c["limit"] = put("Batch limit", most(limit, 1.0) if limit is not None
                         else self._limit(one))
        self.at_limit(one)
        return one

    def _limit(self, one: Asked) -> X:
        """Largest batch limit that keeps up and holds the targets, as far as limits are told
        apart by them."""
        t, targets = self.tables, self.targets
        open_e = self._open_limits(one)
        tail = self._tails(one, open_e)
        if self.kind != "decode":
            found = self._requests_within(one, tail, open_e)
            if self.slow_targets:
                return settled(self, one, replace(found, allowed=found.allowed * self.asked.all))
            return highest(t.cap.all * found.allowed)
        allowed = 1.0 * (self._held(one.column, open_e, self._steps_within(
            one, tail, targets.tpot, targets.tpot_level)).all >= 0.0)
        allowed = allowed * self._hardly_waits(one, tail[2], tail[0], open_e)
        if targets.itl is not None and targets.itl_level is not None:
            gaps = self._steps_within(one, tail, targets.itl, targets.itl_level)
            allowed = allowed * (self._held(
                one.column + 2 * t.board.side, open_e, gaps).all >= 0.0)
        return highest(t.cap.all * allowed)

    def holds(self, one: Asked) -> X:
        """Whether the rate holds under the limit of the column."""
        put = Scalars(self.rows, one.column)
        c, targets = one.cells, self.targets
        tests = [c["limit"] > 0.0]
        if self.kind == "decode":
            assert self.wire is not None
            tests.append(one.rate * self.wire < MAX_LINK_LOAD)
            return put("Holds", when(both(*tests), 1.0, 0.0))
        if self.kind == "colocated":
            tests.append(c["load"] < 1.0)
        rho = one.cells.get("rho")
        if rho is not None:
            tests.append(rho < 1.0)
        c["within"] = put("Share within the target of TTFT", self.within(one, targets.ttft))
        tests.append(c["within"] >= targets.ttft_level - BARELY)
        if targets.e2e is not None and targets.e2e_level is not None:
            c["whole"] = whole_within(self, one, targets.e2e, targets.e2e_level)
            tests.append(c["whole"] >= targets.e2e_level - TOKEN_BARELY)
        if targets.itl is not None and targets.itl_level is not None:
            tests.append(self.gap(one, targets.itl_level) <= targets.itl)
        return put("Holds", when(both(*tests), 1.0, 0.0))

    def gap(self, one: Asked, level: X) -> X:
        """Gap between two tokens [s] at a level (``Continuous._gaps``): the step of the batch
        that so many tokens come from, and the stall of a prefill where one falls into it."""
        t, c = self.tables, one.cells
        put = Scalars(self.rows, one.column)
        self.output(one)
        reached = self._tokens_so_far(one)
        wanted = put("Tokens up to the level", (level - 1e-12) * c["tokens"])
        rows = float(len(t.n.value))
        place = put("Row of that token", least(total(1.0 * (reached.all < wanted)) + 1.0, rows))
        before = put("Tokens of the rows below", when(
            place > 1.0, pick(reached.all, most(place - 1.0, 1.0)), 0.0))
        width = pick(t.width.all, place)
        part = (wanted - before) / most(pick(reached.all, place) - before, LEAST_WEIGHT)
        size = put("Batch size of that token", least(least(
            pick(t.end.all, place) - width + round_up(most(width * least(part, 1.0), 1e-9)),
            c["cap"]), float(t.top)))
        at = put("Row below that batch size", least(place_below(size, t.n.all), rows - 1.0)
                 if rows > 1 else x(1.0))
        low, first = pick(t.n.all, at), pick(t.seconds.all, at)
        if rows > 1:
            part = least(most((size - low) / (pick(t.n.all, at + 1.0) - low), 0.0), 1.0)
            first = first + part * (pick(t.seconds.all, at + 1.0) - first)
        step = put("Its step [s]", first)
        share, stall = self.stall(put, one, level)
        return put("Gap between tokens [s]", step + when(level > 1.0 - share, stall, 0.0))

    def _tokens_so_far(self, one: Asked) -> Column:
        """Tokens generated up to the end of each row of batch sizes, waiting ones at the limit."""
        t, c = self.tables, one.cells
        weight = self.weights(one)
        per = t.extra["per_token"].each if self.kind == "chunked" else None
        slow = c.get("slow") if per is None else self.left(one, per)
        tpot = t.seconds.each if slow is None else t.seconds.each / slow
        each = (t.end.each <= c["cap"]) * X(by_row(weight.text, self), weight.value,
                                            weight.binds) * t.n.each / tpot
        each = each + (t.end.each.is_(c["cap"])) * c["last"]
        letter = xl_col_to_name(one.column + t.board.side)
        e = X(f"N({letter}{{p}})+{each.text}", np.cumsum(each.value, axis=-1))
        return t.board.down(t.n.first - 1, one.column + t.board.side, e, len(t.n.value))

    def stall(self, put: Scalars, one: Asked, level: X) -> tuple[X, X]:
        """Share of the gaps that hold a prefill, and what it adds at a level [s]."""
        t, c = self.tables, one.cells
        if self.kind == "chunked":
            per = self.at_running(put, one, t.extra["per_token"], "Extra a prompt token then [s]")
            running = least(most(c["running"], 1.0), float(t.top))
            assert t.budget is not None
            chunk = least(most(float(t.budget) - running, 1.0), t.moments["new"])
            step = c["step"] / most(1.0 - c["demand"] * per, 1e-9)
            share = put("Share of gaps with a chunk", least(c["demand"] * step / chunk, 1.0))
            return share, put("What a chunk adds [s]", c["mixed"] - c["step"])
        share = put("Share of gaps with a prefill", least(
            one.rate * c["step"] / most(1.0 - c["load"], 1e-9), 1.0))
        inside = (level - (1.0 - share)) / most(share, 1e-12)
        below = total(1.0 * (t.prompt.reached.all < inside - 1e-12))
        return share, put("What a prefill adds [s]", pick(
            t.prefill.all, least(below + 1.0, float(len(t.prefill.value)))))
