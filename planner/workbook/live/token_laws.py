"""TPOT of single requests at an arrival rate: its laws over batch sizes and batch limits."""

from __future__ import annotations

from collections.abc import Callable

from planner.workbook.live.asked import Asked, Scalars
from planner.workbook.live.expr import X, absolute, highest, least, ln, most, square, x
from planner.workbook.live.laws import (
    Beside,
    Law,
    Pace,
    Single,
    Write,
    law_of,
    share_within,
    single_cells,
)
from planner.workbook.live.running import Running
from planner.workload import REFERENCE_TOKENS


class TokenLaws(Running):
    """Laws of the answers, of the reference answers and of answers of some length."""

    def _laws(self, put: Scalars, one: Asked, sizing: bool) -> None:
        """Columns of the TPOT of single requests over batch sizes; where a limit is sought, over
        the limits and of the reference answers too."""
        t, c, m = self.tables, one.cells, self.tables.moments
        c["ahead"] = put("Of a burst, ahead", most(one.cv2 - 1.0, 0.0) / 2.0)
        c["stop"] = put("Prompts that stop a sequence [1/s]", one.rate * (
            m["occupancy"] if self.kind == "colocated" else x(1.0)))
        c["shorter"] = put("ln of reference answers over the answers", ln(
            least(REFERENCE_TOKENS / t.output.mean, 1.0)))
        c["after"] = c["ahead"]
        if self.kind == "colocated":
            together = (float(t.step.deployment.profile.default_max_batched_tokens)
                        / m["longest"])
            c["after"] = put("Of a burst, prefilled after a request", most(
                c["ahead"] - most(together - 1.0, 0.0) / 2.0, c["ahead"] / (1.0 + c["ahead"])))
            others = one.rate * m["service2"] * self.ranks / 2.0
            c["behind"] = put("Wait for the prefill, as two moments say [s]", (
                others + c["ahead"] * m["service1"]) / c["slow"])
            scaled = t.n.all * (c["log"] + c["shorter"]) + self.middle_logs
            inside = t.end.all <= t.step.memory_cap
            scaled = scaled / c["peak"]
        else:
            scaled, inside = c["logs"] + c["inverse"] * c["shorter"], x(1.0)
        c["top_reference"] = put("Highest log weight, reference answers", most(highest(
            inside * scaled), 0.0))
        if self.kind == "colocated":
            c["cost"] = put("Prefill over the time left to decodes [s]", m["s1"] / c["slow"])
            c["until"] = put("Wait with the prefill [s]", c["behind"] + m["s1"])
        one.write = one.write or Beside(t.board, t.n, one.column, self.titled, rates=one.rates)
        one.pace = self._pace(one, one.write, "sizes")
        one.law = law_of(one.write, c, one.cv2, one.pace, t.extra.get("most"), self._gaps("own"),
                         ranges=not sizing)
        if sizing:
            self._good(one, one.write, one.pace, one.law)

    def _good(self, one: Asked, write: Beside, pace: Pace, own: Law) -> None:
        """Shares within the target of TPOT, over batch sizes and batch limits."""
        t, limit = self.tables, self.targets.tpot
        beside = one.limits = Beside(t.board, t.cap, one.column, self.titled, rates=one.rates)
        last = one.limits_pace = self._pace(one, beside, "limits")
        found = []
        for tag, text in (("own", ""), ("reference", ", reference answers")):
            for writer, at, bound, variance in ((write, pace, "most", t.variance.each),
                                                (beside, last, "cap_most", None)):
                law = own if writer is write and tag == "own" else law_of(
                    writer, one.cells, one.cv2, at, t.extra.get(bound), self._gaps(tag), text,
                    ranges=False)
                found.append(share_within(limit, at.step, law, variance, "each"))
        one.good = tuple(found)

    def _gaps(self, tag: str) -> tuple[X, X, X]:
        """Means over the gaps of the answers, or of the reference answers."""
        m = self.tables.moments
        return m[f"gaps_{tag}"], m[f"inverse1_{tag}"], m[f"inverse2_{tag}"]

    def _quarter(self, one: Asked, put: Callable[[str, X], X], place: int) -> tuple[Law, Law]:
        """The law of a quarter of the answers over the batch sizes, and at the limit; of answers
        that are not short that of all (``Drafts.quarters``)."""
        assert one.write is not None
        assert one.pace is not None
        gaps, label = self._gaps(f"quarter{place}"), f", quarter {place}"
        shortest = self.tables.moments["short"] * self.shortest
        law = law_of(one.write, one.cells, one.cv2, one.pace, self.tables.extra.get("most"), gaps,
                     label, shortest=shortest)
        return law, self.at_last(put, one, gaps, label, shortest)

    @property
    def shortest(self) -> X:
        """What the shortest prompt takes over what prompts take, mean."""
        t = self.tables
        if self.kind == "chunked":
            return t.new.row(0) / t.moments["new"]
        return t.prefill.row(0) / t.moments["s1"]

    def _pace(self, one: Asked, write: Write, where: str) -> Pace:
        """What the laws over the ``sizes``, the ``limits`` or at the ``last`` batch are made of."""
        t, c, m = self.tables, one.cells, self.tables.moments
        columns = {"sizes": t.seconds, "limits": t.cap_step}
        step = columns[where].each if where in columns else c["last_step"]
        if self.kind == "colocated":
            return Pace(step, c["slow"], m["s1"], c["own"], c["behind"], c["until"], c["cost"])

        def get(name: str) -> X:
            if where == "last":
                return c[f"last_{name}"]
            return t.extra[name if where == "sizes" else f"cap_{name}"].each

        per, closed, ranks = get("per_token"), get("closed"), self.ranks
        others = (m["new2"] * square(closed) + 2.0 * m["further_1"] * closed + m["further_2"])
        wait = write("Wait for the prefill [s]", (
            one.rate * others / 2.0 + c["ahead"] * m["new"] * closed) / (
            ranks * absolute(1.0 - c["demand"] * closed / ranks))).each
        left, mean = self.left(one, per), m["new"] * per
        cost = write("Prompt over the time left [s]", mean / left).each
        return Pace(step, left, mean, get("own"), wait, wait + m["new"] * closed + step, cost,
                    get("most"))

    def whole_law(self, one: Asked, tokens: X, label: str, put: Callable[[str, X], X]
                  ) -> tuple[Law, tuple[X, X, X]]:
        """The law of answers of so many tokens over the batch sizes, and their gaps."""
        assert one.write is not None
        assert one.pace is not None
        gap = put(f"Gaps, {label}", most(tokens - 1.0, 1.0))
        gaps = gap, 1.0 / gap, 1.0 / square(gap)
        return law_of(one.write, one.cells, one.cv2, one.pace, self.tables.extra.get("most"), gaps,
                      f", {label}"), gaps

    def at_last(self, put: Callable[[str, X], X], one: Asked, gaps: tuple[X, X, X], label: str,
                shortest: X | None = None) -> Law:
        """A law of those that wait at the limit of the column."""
        assert one.last is not None
        bound = None if one.last.most is None else Single(one.last.most)
        return law_of(single_cells(put, " at the limit"), one.cells, one.cv2, one.last, bound, gaps,
                      label, shortest=shortest)
