"""A pool asked about arrival rates, one column each: its batch limit, and whether targets hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.setups.disaggregated import MAX_LINK_LOAD
from planner.workbook.live.asked import BARELY, Asked, Scalars
from planner.workbook.live.expr import (
    X,
    both,
    highest,
    most,
    when,
)
from planner.workbook.live.limits import TOKEN_BARELY, settled, whole_within
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
        c["within"] = put("Share within the target of TTFT", self.in_time_first(
            one, targets.ttft))
        tests.append(c["within"] >= targets.ttft_level - BARELY)
        if targets.e2e is not None and targets.e2e_level is not None:
            c["whole"] = whole_within(self, one, targets.e2e, targets.e2e_level)
            assert targets.e2e_token is not None
            tests.append(c["whole"] >= targets.e2e_token - TOKEN_BARELY)
        return put("Holds", when(both(*tests), 1.0, 0.0))
