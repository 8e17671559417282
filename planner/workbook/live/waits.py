"""Waits and first tokens of one pool at an arrival rate."""

from __future__ import annotations

from planner.setups.chunked import CHUNK_RESIDUAL
from planner.setups.continuous import RESIDUAL
from planner.workbook.live.asked import Asked, Scalars
from planner.workbook.live.expr import X, exp, least, most, square, total, whole, x
from planner.workbook.live.first_token import PlacedToken, share_within_both
from planner.workbook.live.prefill_wait import Wait, rank_wait
from planner.workbook.live.running import Running


class FirstWaits(Running):
    """The wait for the prefill and for a place in the batch, and what a first token takes."""

    def first_token(self, one: Asked) -> None:
        """Wait and latency of a first token at the limit of the column."""
        t, c, put = self.tables, one.cells, self.put(one)
        step = self.at_running(put, one, t.seconds, "Step then [s]")
        if self.kind == "colocated":
            layout = t.step.deployment.layout
            wait, c["rho"] = rank_wait(put, layout, one.rate, t.moments["service1"],
                                       t.moments["service2"], t.moments["service3"], one.cv2,
                                       layout.pipeline - 1.0)
            if layout.pipeline > 1:
                wait = self._together(put, one, wait, step)
            one.offset = put("Rest of the running step [s]", RESIDUAL * step)
            one.latency = t.first.all
            c["mean_latency"] = t.moments["first"]
        else:
            wait = self._chunked(put, one, step)
        one.wait, (one.shape, one.scale) = wait, wait.shape_scale(put)

    def _chunked(self, put: Scalars, one: Asked, step: X) -> Wait:
        """A prompt in chunks beside the running sequences (``Chunked.prefill``)."""
        t, c = self.tables, one.cells
        assert t.budget is not None
        mixed = self.at_running(put, one, t.extra["mixed"],
                                "Step with a chunk then [s]")
        running = least(most(c["running"], 1.0), float(t.top))
        space = put("Room then [tokens]", most(float(t.budget) - running, 1.0))
        chunk = least(space, t.chunk(running))
        per = put("Extra per prompt token then [s]", most(mixed - step, 0.0) / chunk)
        full = put("Full step then [s]", step + per * space)
        layout, m = t.step.deployment.layout, t.moments
        unit = put("Service per prompt token [s]", full / space)
        ranks = float(layout.data)
        wait, c["rho"] = rank_wait(
            put, layout, one.rate, unit * m["new"] / ranks,
            (square(unit) * m["new2"] + 2.0 * unit * m["further_1"] + m["further_2"]) / ranks**2,
            (unit ** 3 * m["new3"] + 3.0 * square(unit) * m["further_11"]
             + 3.0 * unit * m["further_12"] + m["further_3"]) / ranks**3, one.cv2, 1.0)
        load = least(c["demand"] * per, 0.95)
        one.offset = put("Rest of the step [s]", CHUNK_RESIDUAL * step / (1.0 - load))
        steps = whole(t.new.each / space)
        steps = steps + (t.new.each > steps * space)
        latency = (steps * step + per * t.new.each + t.extra["further"].each
                   + t.first.each - t.prefill.each)
        made = t.board.down(t.prompt.tokens.first - 1, one.column + one.aside, latency,
                            len(t.new.value))
        one.latency = made.all
        c["mean_latency"] = put("Prefill, mean [s]", total(t.prompt.share.all * made.all))
        return wait

    def _together(self, put: Scalars, one: Asked, wait: Wait, step: X) -> Wait:
        """Add what prompts of the same decode step add to a pass (``Colocated._together``)."""
        m, c = self.tables.moments, one.cells
        beyond = 1.0 - m["occupancy"] * self.ranks
        others = put("Prompts of the same step", one.rate / self.ranks * c["slow"] * step)
        mean = put("Their later stages, mean [s]", others * beyond * m["s1"])
        squares = others * square(beyond) * m["s2"] + square(mean)
        return wait.plus(put, Wait(1.0 - exp(0.0 - others), mean, squares), " in the same step")

    def first(self, one: Asked) -> PlacedToken:
        """The first token at the rate of a column: some wait for the prefill, and the others for a
        place in the batch instead (``loops.waits.full_laws``)."""
        assert one.wait is not None
        c = one.cells
        wait = (1.0 - c["waits"]) * one.wait.mean + c["waits"] * c["waits_s"]
        return PlacedToken(one.wait.busy, one.shape, one.scale, one.offset, one.latency,
                           self.tables.prompt.share, wait + one.offset + c["mean_latency"],
                           c["waits"], x(1.0), c["waits_s"])

    def in_time_first(self, one: Asked, limit: X) -> X:
        """Share of the requests whose first token comes within a limit [s], of those who wait for a
        place never more than of others (``loops.starts_in_time``)."""
        assert one.wait is not None
        c, here = one.cells, self.tables.prompt.share.all
        left, alone = limit - one.offset - one.latency, (one.wait.busy, one.shape, one.scale)
        late = share_within_both(here, left, (x(1.0), x(1.0), c["waits_s"]), alone)
        return (1.0 - c["waits"]) * share_within_both(here, left, alone, None) + c["waits"] * late
