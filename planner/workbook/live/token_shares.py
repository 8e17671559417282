"""Shares of the requests within a TPOT at a batch limit, and where they reach a level."""

from __future__ import annotations

from collections.abc import Callable

from planner.workbook.fast import letters
from planner.workbook.live.asked import Asked, Scalars
from planner.workbook.live.expr import (
    X,
    most,
    normal,
    pick,
    place_below,
    sqrt,
    total,
    x,
)
from planner.workbook.live.halving import TRIED, Reached, States
from planner.workbook.live.laws import FAR_OUT, TINY_S2, Law, share_within, single_cells
from planner.workbook.live.running import LEAST_WEIGHT
from planner.workbook.live.targets import SHORT_HALVINGS
from planner.workbook.live.token_laws import TokenLaws
from planner.workload import QUARTERS

Laws = tuple[tuple[Law, Law], ...]
"""Laws in equal parts of the answers, over the batch sizes and at the limit."""


class TokenShares(TokenLaws):
    """Distributions of TPOT over all states under a batch limit."""

    def output(self, one: Asked) -> X:
        """Output of each row of batch sizes under the limit, as ranges; the cells that sum it up
        are written when it is first asked for."""
        if "output" not in one.over_sizes:
            t, c = self.tables, one.cells
            inside = (t.end.all <= c["cap"]) * self.weights(one) * t.n.all / self.tpot(one)
            put = Scalars(self.rows, one.column)
            c["last"] = put("Output of those that wait", c["tail"] * c["cap"] / c["tpot"])
            c["tokens"] = put("Output of all states", most(total(inside) + c["last"],
                                                           LEAST_WEIGHT))
            self._last(put, one, inside)
            one.over_sizes["output"] = inside
        return one.over_sizes["output"]

    def reached(self, one: Asked, laws: Laws, inside: X | None = None) -> Reached:
        """Share of the requests with a TPOT of at most some time, of laws in equal parts.

        Parameters
        ----------
        laws : tuple of (Law, Law)
            Over the batch sizes and at the limit; none of a decode pool, whose TPOT is its step.
        inside : X, optional
            The output of each row of batch sizes, where a column holds it.
        """
        rows, c, t = self.output(one), one.cells, self.tables
        written, each = rows if inside is None else inside, laws or ((None, None),)

        tokens = float(len(each)) * c["tokens"]

        def share(time: X) -> X:
            parts = [total(written * self.good(time, law)) + c["last"] * self.last_good(
                one, time, last) for law, last in each]
            return sum(parts[1:], parts[0]) / tokens

        states = [state for law, last in each for state in (
            *States.of_law(rows / tokens, t.seconds.all, t.variance.all, law),
            *States.of_law(c["last"] / tokens, c["last_step"], None, last))]
        return Reached(share, states)

    def good(self, time: X, law: Law | None) -> X:
        """Share within ``time`` of each row of batch sizes, as ranges."""
        t = self.tables
        if law is None:
            return normal((time - t.seconds.all) / sqrt(t.variance.all + TINY_S2))
        return share_within(time, t.seconds.all, law, t.variance.all, "all")

    def last_good(self, one: Asked, time: X, last: Law | None) -> X:
        """The same of those that wait at the limit."""
        step = one.cells["last_step"]
        if last is None:
            return normal((time - step) / sqrt(x(TINY_S2)))
        return share_within(time, step, last, None, "each")

    def _last(self, put: Scalars, one: Asked, inside: X) -> None:
        """The step and the pace at the limit; of a decode pool the mean over all states."""
        t, c = self.tables, one.cells
        place = place_below(c["cap"], t.cap.all)
        c["last_step"] = put("Step at the limit [s]", pick(t.cap_step.all, place))
        if self.kind == "decode":
            c["reach"] = c["last_step"]
            c["mean_tpot"] = put("TPOT, mean [s]", (
                total(inside * t.seconds.all) + c["last"] * c["last_step"]) / c["tokens"])
            return
        if self.kind == "chunked":
            for name, text in (("per_token", "Extra a prompt token [s]"),
                               ("closed", "Full [s per token]"),
                               ("own", "Variance of a prompt [s²]"),
                               ("most", "Added to a token, most [s]")):
                c[f"last_{name}"] = put(f"{text} at the limit", pick(
                    t.extra[f"cap_{name}"].all, place))
        one.last = self._pace(one, single_cells(put, " at the limit"), "last")

    def own_tokens(self, one: Asked) -> None:
        """Of the answers at a rate whose limit was given: the laws of their quarters, the mean TPOT
        over all states, and a TPOT that hardly any exceeds."""
        inside, c, put = self.output(one), one.cells, self.put(one)
        if self.kind == "decode":
            return
        one.quarters = tuple(self._quarter(one, put, k) for k in range(1, QUARTERS + 1))
        means = [self._mean(one, *laws, inside) for laws in one.quarters]
        c["mean_tpot"] = put("TPOT, mean [s]", sum(means[1:], means[0]) / float(QUARTERS))
        c["reach"] = put("TPOT that hardly any request exceeds [s]",
                         self.hardly_exceeded(one, one.quarters[0][1]))

    def hardly_exceeded(self, one: Asked, last: Law) -> X:
        """A time [s] beyond which a law has hardly anything, at the limit."""
        mean, swing = last.mean.each, last.swing.each
        start = one.cells["last_step"] if last.least is None else (
            one.cells["last_step"] + last.least.each)
        return start + mean + FAR_OUT / 2.0 * (swing / mean + sqrt(swing))

    def _mean(self, one: Asked, law: Law, last: Law, inside: X) -> X:
        """Mean TPOT [s] of a law over the states, and at the limit."""
        t, c = self.tables, one.cells
        more = (1.0 - law.none.all) * law.all_of_it("all")
        tail = c["last_step"] + (1.0 - last.none.each) * last.all_of_it("each")
        return (total(inside * (t.seconds.all + more)) + c["last"] * tail) / c["tokens"]

    def whole(self, one: Asked, tokens: X, label: str, put: Callable[[str, X], X] | None = None
              ) -> Reached:
        """For answers of so many tokens: the share within a TPOT.

        Parameters
        ----------
        put : callable, optional
            Writes the single cells; below the others of the rate where not given.
        """
        self.output(one)
        if self.kind == "decode":
            return self.reached(one, ())
        return self.reached(one, (self._whole_laws(one, tokens, label, put or self.put(one)),))

    def whole_mean(self, one: Asked, tokens: X, label: str) -> X:
        """For answers of so many tokens: their mean TPOT [s]."""
        inside = self.output(one)
        if self.kind == "decode":
            return one.cells["mean_tpot"]
        return self._mean(one, *self._whole_laws(one, tokens, label, self.put(one)), inside)

    def _whole_laws(self, one: Asked, tokens: X, label: str, put: Callable[[str, X], X]
                    ) -> tuple[Law, Law]:
        """The laws of answers of so many tokens over the batch sizes, and at the limit."""
        law, gaps = one.laws.get(label) or self.whole_law(one, tokens, label, put)
        return law, self.at_last(put, one, gaps, f", {label}")

    def halved(self, put: Scalars, reached: Reached, span: X, level: X, label: str) -> X:
        """Where a distribution reaches a level [s], by halving a range."""
        start = put(f"Try 1 {label}", span / 2.0)
        top, above = put.rows.row(f"Try 1 {label}{put.suffix}"), f"{letters(put.column)}{{p}}"
        test = reached.below(level, start.value).replace(TRIED, above)
        return put.down([f"Try {i} {label}" for i in range(2, SHORT_HALVINGS + 1)], X(
            f"{above}+IF({test},1,-1)*{span.text}/2^(ROW()-{top})",
            reached.tries(span, level, SHORT_HALVINGS)[:, 1:]))
