"""From a prefill pool to a decode pool: waits for its cards and for a place in the batch."""

from __future__ import annotations

from dataclasses import dataclass

from planner.setups.continuous import RESIDUAL
from planner.workbook.live.asked import Asked, Scalars
from planner.workbook.live.board import Column
from planner.workbook.live.expr import (
    X,
    absolute,
    exp,
    gamma,
    least,
    ln,
    most,
    square,
    total,
    when,
    x,
)
from planner.workbook.live.pool_tables import PoolTables
from planner.workbook.live.prefill_wait import Wait, mg1
from planner.workbook.live.search import Chain
from planner.workbook.live.sizing import arrival_cv2

UNDERFLOW = 700.0
"""e to the power of this, negative, is about the smallest number."""


@dataclass(slots=True, eq=False)
class Admission:
    """Waits on the decode side as cells: for the network cards, and for a place in the batch."""

    cards: Wait
    place: Wait


def given_place(wait: Wait, place: Wait) -> Wait:
    """All waits of those who wait for a place after another wait."""
    chance = most(place.busy, 1e-15)
    mean = place.mean / chance
    return Wait(x(1.0), wait.mean + mean,
                wait.second + place.second / chance + 2.0 * wait.mean * mean)


class Handover(PoolTables):
    """The same with what a prompt waits for on the decode side."""

    def _planned(self, chain: Chain, column: int, replicas: X, limit: X) -> Admission:
        """Waits on the decode side at the peak with the target headroom."""
        load = self.decode_plan.load
        self.board.page.write(chain.rows.top - 1, column, "Planned", "count", "header")
        one = chain.ask(column, load.rate / load.utilization / replicas,
                        arrival_cv2(load, replicas), limit)
        return self._admission(chain, one, ", planned")

    def _admission(self, chain: Chain, one: Asked, of: str) -> Admission:
        """Waits on the decode side at the rate of a column (``DecodePool.admission``)."""
        put, c, output = Scalars(chain.rows, one.column), one.cells, self.sheet.output
        cards, _ = mg1(put, one.rate, self.wire[0], self.wire[1], self.wire[2], x(1.0))
        uneven = put("Uneven answers, factor", (output.second / square(output.mean) - 1.0 - 1.0)
                     / (2.0 * c["full_peak"]))
        burst = put("Share that waits for its own burst", self._behind_burst(chain, one))
        rest = self.rest
        ratio = c["ratio"]

        def squares(k: X) -> X:
            return k * (1.0 - ratio) + 2.0 * ratio

        mean, longer = c["waits_s"] * (1.0 + uneven), c["waits_s"] * (1.0 + most(uneven, 0.0))
        return Admission(cards, Wait(
            put("Share that waits for a place, bursts too", c["waits"] + burst),
            put("Wait for a place, mean [s]", c["waits"] * mean + burst * longer),
            put("Wait for a place, mean of squares [s²]", c["waits"] * square(mean)
                * squares(rest) + burst * square(longer) * squares(most(rest, 2.0)))))

    def _behind_burst(self, chain: Chain, one: Asked) -> X:
        """Share that waits for others of its own burst (``queueing.Chain.behind_burst``); within a
        row of batch sizes all weigh the same."""
        c, t, put = one.cells, self.decode, Scalars(chain.rows, one.column)
        load, ranks = self.decode_plan.load, float(self.decode_plan.deployment.layout.data)
        whole, own = most((square(load.cv) - 1.0) / 2.0, 0.0), c["full_peak"] - 1.0
        stay = put("An answer takes, full [s]", most(
            c["waits_s"] * (1.0 - c["ratio"]) * c["cap"] / ranks, 0.0))
        short = put("Share of gaps that are shorter", gamma(
            one.rate / ranks * whole / most(own, 1e-9) * stay, 1.0 / square(load.cv),
            square(load.cv)))
        ahead = put("Of its own burst ahead", own * least(
            1.0, short / most((1.0 - short) * whole, 1e-9)))
        chance, cap = most(ahead / (1.0 + ahead), 1e-9), c["cap"]
        slope = put("Logarithm of one more ahead", ln(chance))
        here = 1.0 * t.end.all.is_(cap)

        def on_end(count: X) -> X:  # what underflows is an error in some programs
            power = slope * count
            return exp((power > -UNDERFLOW) * (power + UNDERFLOW) - UNDERFLOW)

        states = (t.end.all <= cap) * chain.weights(one) / t.width.all * (
            on_end(absolute(cap - t.end.all) + here)
            * (1.0 - on_end(t.width.all - here)) / (1.0 - chance))
        return when(ahead > 1e-9, (exp(0.0 - c["top"]) * on_end(cap) + total(states))
                    / c["total"], 0.0)

    def _handover(self, chain: Chain, peak: Asked) -> Column:
        """Latency of each prompt up to its first token."""
        put = Scalars(chain.rows, peak.column)
        step = chain.at_running(put, peak, self.decode.seconds, "Step then [s]")
        layers = float(self.plan.deployment.llm.layers)
        hidden = self.packs.pass_s.each * (1.0 - 1.0 / layers)
        moved = most(self.whole.each - hidden, 0.0) + self.whole.each / layers
        latency = self.packs.first.each + moved + (1.0 + RESIDUAL) * step
        return self.prefill.packs(
            chain.rows.far + self.beside, "First token, by packing [s]", latency)
