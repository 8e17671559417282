"""Two pools sized for one set of targets."""

from __future__ import annotations

from dataclasses import dataclass

from planner.setups.disaggregated import MAX_LINK_LOAD
from planner.workbook.fast import letters
from planner.workbook.live.asked import BARELY, Asked, Rows, Scalars
from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, both, lowest, most, total, when, x
from planner.workbook.live.first_token import FirstToken, PlacedToken, share_within_both
from planner.workbook.live.handover import Admission, Handover, given_place
from planner.workbook.live.packings import Packed, place_first
from planner.workbook.live.pools import SCALAR_ROWS
from planner.workbook.live.prefill_wait import Wait, rank_wait
from planner.workbook.live.search import Chain
from planner.workbook.live.sizing import Ask, Found, search, size
from planner.workbook.live.targets import Targets

NO_PAIR = 1e15
"""Rank of a split that no pair of pools holds."""
FIRST_OF_ALL = 1e6
"""Weight of the value of the GPUs over the latencies (s) that order equal fleets."""


@dataclass(slots=True, eq=False)
class Pair:
    """Two pools sized for one set of targets, and the columns at the peak.

    Attributes
    ----------
    packing : X
        Place of the packing of the prefill pool.
    means : X
        Mean TTFT without the wait on the decode side plus mean TPOT [s].
    """

    decode: Found
    prefill: Found
    packing: X
    first: FirstToken
    means: X


class Pairs(Handover):
    """The same with the searches of both pools."""

    def _pair(self, targets: Targets, ceiling: X, tag: str, far: int) -> Pair:
        """Size both pools for some targets; their searches stand from column ``far`` on."""
        chain = self.chain.with_targets(targets, Rows(self.decode, self.top, far))

        def ask(column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
            one = chain.ask(column, rate, cv2, limit)
            return one, chain.holds(one)

        decode = size(chain.rows, self.decode_plan.load, ceiling, ask, f"decode_{tag}")
        column = chain.rows.column(self.decode_plan.load.steps + 4)
        planned = self._planned(chain, column, decode.asked, decode.limit)
        latency = self._handover(chain, decode.peak)
        rows = Rows(self.prefill, self.top + SCALAR_ROWS, far, self.packs.count)
        ask_prefill, most_rate, mean = self._asker(rows, targets, planned, latency)
        sought = search(rows, self.plan.load, most_rate, ask_prefill)
        b, own = self.board, sought.peak.own_wait
        assert own is not None
        put = Packed(b, self.packs.count)
        holds = both(sought.holds > 0.0, sought.count <= self.plan.load.limit)
        rank = put("Rank of the packing, lowest first", when(
            holds, FIRST_OF_ALL * sought.count + own + mean, NO_PAIR), "science")
        counts = put("Prefill replicas that carry the peak", when(holds, sought.count, 0.0),
                     "count")
        asked = put("Prefill replicas asked", sought.count, "count")
        highest = put("Highest rate of one [1/s]", sought.highest, "three")
        place = b.line("Place of the packing", place_first(
            lowest(put.row(rank)), put.row(rank)), "", "", "count")
        b.line("Prompts of a pass", put.pick(self.packs.prompts, place), "", "", "count",
               name=f"packing_{tag}")
        chosen = Found(
            b.line("Prefill replicas that carry the peak", put.pick(counts, place), "",
                   "0: no number of replicas within the limits holds the targets", "count",
                   name=f"replicas_found_prefill_{tag}"),
            b.line("Highest rate of a prefill replica", put.pick(highest, place), "1/s",
                   "at which every target holds", "six", name=f"highest_found_prefill_{tag}"),
            x(0.0), sought.peak,
            b.line("Prefill replicas asked", put.pick(asked, place), "", "", "count"))
        return self._paired(chain, decode, chosen, place, latency, mean)

    def _paired(self, chain: Chain, decode: Found, prefill: Found, place: X, latency: Column,
                mean: X) -> Pair:
        """What users see of two sized pools, with the packing of a place."""
        b, peak, put = self.board, prefill.peak, Packed(self.board, self.packs.count)
        assert peak.wait is not None
        assert peak.own_wait is not None
        column, row = chain.rows.far + self.beside - 1, self.prompt.tokens.first - 1
        b.page.write(row - 1, column, "First token [s]", "count", "header")
        e = X(f"INDEX({latency.letter}{{r}}:{letters(column + self.packs.count)}{{r}},1,"
              f"{place.text})", latency.value[int(place.value) - 1])
        seen = b.down(row, column, e, len(self.prompt.tokens.value), "cell", "six")

        def of(label: str, e: X) -> X:
            return b.line(f"{label}, with that packing", put.pick(e, place), "", "", "six")

        def line(label: str, e: X) -> X:
            return b.line(label, e, "", "", "six")

        mean = of("First token without waits, mean [s]", mean)
        own = Wait(of("Share that waits", peak.wait.busy), of("Wait, mean [s]", peak.wait.mean),
                   of("Wait, mean of squares [s²]", peak.wait.second))
        waits = self._admission(chain, decode.peak, "")
        wait = own.plus(line, waits.cards, " for prefill and cards")
        late, place_s = given_place(wait, waits.place), waits.place.mean
        first = PlacedToken(
            wait.busy, *wait.shape_scale(line, " for prefill and cards"), x(0.0), seen,
            self.prompt.share, wait.mean + place_s + mean, waits.place.busy,
            *late.shape_scale(line, " and for a place"))
        chain.output(decode.peak)
        alone = of("Wait for the prefill, mean [s]", peak.own_wait)
        return Pair(decode, prefill, place, first, alone + mean + decode.peak.cells["mean_tpot"])

    def _asker(self, rows: Rows, targets: Targets, admission: Admission, latency: Column
               ) -> tuple[Ask, X, X]:
        """What a prefill replica is asked; its highest rate, and the mean first token [s]."""
        pool, share, packs = self.plan, self.prompt.share, self.packs
        service, put_row = packs.service, Packed(self.board, packs.count)
        mean = put_row("First token without waits, mean [s]", total(share.all * latency.all),
                       "six")
        ceiling = put_row("No prefill replica carries more than [1/s]",
                          1.0 / most(service[0], 1e-12), "three")

        place, left = admission.place, targets.ttft - latency.all
        shape, scale = place.shape_scale(
            lambda label, e: self.board.line(label, e, "", "", "six"), " for a place")
        placed = put_row("Share in time with the wait for a place alone", share_within_both(
            share.all, left, (place.busy, shape, scale), None))

        def ask(column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
            put = Scalars(rows, column)
            one = Asked(column, put("Requests per second [1/s]", rate), put("Arrival CV²", cv2))
            own, rho = rank_wait(put, pool.deployment.layout, one.rate, service[0], service[1],
                                 service[2], one.cv2)
            one.own_wait = own.mean
            one.wait = Wait(put("Share that waits", own.busy), own.mean, own.second)
            wait = one.wait.plus(put, admission.cards, " for prefill and cards")
            alone = (wait.busy, *wait.shape_scale(put, " for prefill and cards"))
            late = (x(1.0), *given_place(wait, place).shape_scale(put, " and for a place"))
            inside = put("Share within the target of TTFT",
                         (1.0 - place.busy) * share_within_both(share.all, left, alone, None)
                         + place.busy * share_within_both(share.all, left, late, alone))
            tests = both(packs.allowed > 0.0, rho < 1.0,
                         one.rate * self.sends < MAX_LINK_LOAD,
                         inside >= targets.ttft_level - BARELY,
                         placed >= targets.ttft_level - BARELY)
            return one, put("Holds", when(tests, 1.0, 0.0))

        return ask, ceiling, mean
