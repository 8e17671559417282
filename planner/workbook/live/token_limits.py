"""Which batch limits keep up with an arrival rate and hold the target on TPOT."""

from __future__ import annotations

import numpy as np

from planner.setups.chunked import MIN_CHUNK_TOKENS
from planner.workbook.live.asked import BARELY, Asked
from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, both, exp, least, most, normal, sqrt, when, x
from planner.workbook.live.gaps import Open
from planner.workbook.live.laws import TINY_S2
from planner.workbook.live.running import LEAST_WEIGHT
from planner.workbook.live.search_rows import by_row
from planner.workbook.live.token_shares import TokenShares
from planner.workload import REFERENCE_TOKENS


class TokenLimits(TokenShares):
    """Tests of every batch limit at an arrival rate."""

    def _open_limits(self, one: Asked) -> X:
        """Limits that the memory holds and that keep up with the rate."""
        t, c, caps = self.tables, one.cells, self.tables.cap.each
        rate = X(f"${self.ceiling.letter}{{r}}", self.ceiling.value)
        tests = [caps <= self._most_sequences(), one.rate < rate]
        if self.kind == "chunked":
            tests.append(c["demand"] * t.extra["cap_closed"].each < 1.0)
        return both(*tests)

    def _tails(self, one: Asked, open_e: X) -> tuple[X, X, X]:
        """Of the state past each limit: ratio, TPOT [s], weight."""
        t, c, step = self.tables, one.cells, self.tables.cap_step.each
        if self.kind == "chunked":
            mine = step / self.left(one, t.extra["cap_per_token"].each)
        else:
            mine = step if self.kind == "decode" else step / c["slow"]
        return self._ratio(one, open_e, t.output.mean), mine, self.limit_weight(one)

    def _ratio(self, one: Asked, open_e: X, tokens: X) -> X:
        """Ratio of the tail past each limit, of answers of so many tokens on average."""
        t, c = self.tables, one.cells
        full = one.rate * tokens * t.cap_step.each / t.cap.each
        if self.kind == "colocated":
            full = full + c["load"]
        elif self.kind == "chunked":
            full = full + c["demand"] * t.extra["cap_per_token"].each
        ratio = full ** (1.0 / c["full_peak"])
        return X(ratio.text, np.where(open_e.value > 0, ratio.value, 0.5), ratio.binds)

    def _held(self, column: int, open_e: X, surplus: X) -> Column:
        """For each limit, output in time less what must be; -1 where the limit is not open."""
        t = self.tables
        return t.board.down(t.cap.first - 1, column, when(open_e, surplus, -1.0),
                            len(t.cap.value))

    def _steps_within(self, one: Asked, tail: tuple[X, X, X], limit: X, level: X) -> X:
        """For each limit of a decode pool, output with steps in time less what must be."""
        ratio, mine, weight = tail
        good = normal((limit - self.tpot(one)) / sqrt(self.tables.variance.all + TINY_S2))
        last = normal((limit - mine) / sqrt(x(TINY_S2)))
        return self._surplus(one, weight, mine, ratio, good, last, level - BARELY)

    def _requests_within(self, one: Asked, tail: tuple[X, X, X], open_e: X) -> Open:
        """Which limits hold the target on TPOT: output of requests in time less what must be, the
        least of that of the answers and of the reference answers. Each part is a column."""
        assert one.limits is not None
        ratio, mine, weight = tail
        own, own_last, short, short_last = one.good
        level = self.targets.tpot_level - BARELY
        is_open = one.limits("Open", open_e * 1.0).each > 0.0
        mine = one.limits("Its TPOT [s]", mine).each
        waiting, past = self._waiting(one, is_open, (ratio, mine, weight), "")
        answers = self.in_time(one, is_open, waiting, own, own_last, level, "").each
        text = ", reference answers"
        short_waiting, _ = self._waiting(one, is_open, (self._ratio(one, open_e, least(
            REFERENCE_TOKENS, self.tables.output.mean)), mine, self.limit_weight(one, True)), text)
        reference = self.in_time(one, is_open, short_waiting, short, short_last, level, text,
                                 True).each
        held = self._held(one.column, is_open, when(
            self.tables.output.mean > REFERENCE_TOKENS, least(answers, reference), reference))
        return Open(1.0 * (held.all >= 0.0), is_open, waiting, past)

    def _waiting(self, one: Asked, is_open: X, tail: tuple[X, X, X], text: str) -> tuple[X, X]:
        """Output of those that wait past each limit, and the ratio there, a column each."""
        assert one.limits is not None
        ratio, mine, weight = tail
        past = one.limits(f"Ratio past it{text}", when(is_open, ratio, 0.5)).each
        return one.limits(f"Output of those that wait{text}", when(
            is_open, weight * self.tables.cap.each / mine * past / (1.0 - past), 0.0)).each, past

    def in_time(self, one: Asked, is_open: X, waiting: X, good: X, last: X, level: X, text: str,
                reference: bool = False) -> Column:
        """For each limit, output in time less what must be, of one kind of answers, with a column
        of the batch sizes that limits sum up; -1 where the limit is not open."""
        t = self.tables
        assert one.limits is not None
        assert one.write is not None
        states = self.weights(one, reference) * t.n.all / self.tpot(one)
        column = one.write(f"Output in time less what must be{text}", X(
            by_row(states.text, self), states.value, states.binds) * (good - level)).all
        inside = X(f"SUMPRODUCT(({t.end.all.text}<={t.cap.each.text})*{column.text})",
                   np.nan_to_num(column.value) @ self.below.T)
        made = one.limits(f"In time less what must be{text}", when(
            is_open, inside + waiting * (last - level), -1.0))
        assert isinstance(made, Column)
        return made

    def _surplus(self, one: Asked, weight: X, mine: X, ratio: X, good: X, last: X, level: X
                 ) -> X:
        """For each limit: output in time less what must be, over the states and the waiting."""
        t, caps = self.tables, self.tables.cap.each
        states = self.weights(one) * t.n.all / self.tpot(one) * (good - level)
        inside = X(f"SUMPRODUCT(({t.end.all.text}<={caps.text})*{states.at(3)})",
                   np.nan_to_num(states.value) @ self.below.T)
        return inside + weight * caps / mine * ratio / (1.0 - ratio) * (last - level)

    def _most_sequences(self) -> X:
        t = self.tables
        if t.budget is None:
            return t.step.memory_cap
        return least(t.step.memory_cap, float(t.budget - MIN_CHUNK_TOKENS))

    def _hardly_waits(self, one: Asked, weight: X, ratio: X, open_e: X) -> X:
        """Whether few enough wait for a place, for each limit."""
        t, c = self.tables, one.cells
        inside = X(f"SUMPRODUCT(({t.end.all.text}<={t.cap.each.text})*{self.weights(one).at(3)})",
                   self.weights(one).value @ self.below.T)
        share = weight / (1.0 - ratio) / most(
            exp(0.0 - c["top"]) + inside + weight * ratio / (1.0 - ratio), LEAST_WEIGHT)
        e = when(open_e, 1.0 * (share <= self.admission_share), 0.0)
        made = t.board.down(t.cap.first - 1, one.column + t.board.side, e, len(t.cap.value))
        return made.all
