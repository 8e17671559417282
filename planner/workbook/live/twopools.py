"""Prefill and decode pools as a sheet: the decode pool first, then the prefill pool beside it.

A target on the whole request is shared out over the two as the planner does
(``planner.two_pools``): each of its splits is sized, and the cheapest pair is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from planner.collectives import NETWORK_EFFICIENCY
from planner.setups.continuous import RESIDUAL
from planner.setups.disaggregated import MAX_LINK_LOAD
from planner.two_pools import E2E_SPLITS
from planner.workbook.live.board import Column
from planner.workbook.live.expr import (
    X,
    both,
    highest,
    least,
    lowest,
    most,
    pick,
    square,
    total,
    when,
    x,
)
from planner.workbook.live.lengths import LengthRows
from planner.workbook.live.onepool import FAR, NEVER_S, Tables, Targets, Wait, mg1, rank_wait
from planner.workbook.live.pools import SCALAR_ROWS, OptionCells, PoolCells, PoolPlan
from planner.workbook.live.search import (
    BARELY,
    Asked,
    Chain,
    Rows,
    Scalars,
    share_within_both,
)
from planner.workbook.live.seen import FirstToken, latencies
from planner.workbook.live.sizing import Ask, Found, arrival_cv2, size
from planner.workbook.live.step import kept_entries

if TYPE_CHECKING:
    from planner.workbook.live.option import OptionSheet

WIDE = 60
"""Columns of one search with what stands beside it."""
BESIDE = 16
"""Column of a search's latencies of first tokens, counted from its first one."""
NO_PAIR = 1e15
"""Rank of a split that no pair of pools holds."""
FIRST_OF_ALL = 1e6
"""Weight of the value of the GPUs over the latencies (s) that order equal fleets."""


@dataclass(slots=True, eq=False)
class Pair:
    """Two pools sized for one set of targets, and the columns at the peak."""

    decode: Found
    prefill: Found
    first: FirstToken
    means: X
    """Mean TTFT without the wait on the decode side plus mean TPOT [s]."""


class TwoPools:
    """Writes the pools of a disaggregated option.

    Parameters
    ----------
    sheet : OptionSheet
        With its targets and lengths written.
    context, spread : X
        Of the running sequences [token].
    """

    def __init__(self, sheet: OptionSheet, context: X, spread: X) -> None:
        self.sheet, self.board, self.rank = sheet, sheet.board, sheet.rank
        self.prompt: LengthRows = sheet.prompt
        self.plan, self.decode_plan = sheet.pools
        self.context, self.spread = context, spread
        self.prefill: Tables
        self.decode: Tables
        self.chain: Chain
        self.wire: list[X]
        self.whole: Column
        self.sends: X
        self.top = 0

    def write(self) -> OptionCells:
        """Fill the sheet."""
        b, targets = self.board, self.sheet.demand.targets
        self._tables()
        b.heading("Replicas", "The search stands to the right: each column asks one rate.")
        ceiling = b.line("No decode replica carries more than", 1.02 * most(highest(
            (self.decode.cap.all <= self.decode.step.memory_cap) * self.chain.ceiling.all), 1e-9),
            "1/s", "", "three")
        if targets.e2e is None or targets.e2e_level is None:
            pair = self._pair(targets, ceiling, str(self.rank), FAR)
        else:
            pair = self._best_split(targets, ceiling)
        seen = latencies(b, self.chain, pair.decode.peak, pair.first, self.sheet.output,
                         (targets.ttft_level, targets.tpot_level, self.sheet.demand.whole_level),
                         targets.itl_level)
        b.row = max(b.row, self.top + 2 * SCALAR_ROWS)
        pools = [PoolCells(self.plan, pair.prefill, self.prefill.step),
                 PoolCells(self.decode_plan, pair.decode, self.decode.step)]
        return OptionCells(pools, seen, pair.decode.peak.cells["limit"])

    # -- tables -----------------------------------------------------------------------------------

    def _tables(self) -> None:
        b, sheet = self.board, self.sheet
        plan, decode = self.plan, self.decode_plan
        b.heading("Prefill pool")
        step = sheet.step(plan, self.context, self.spread)
        p = self.prefill = Tables(b, step, self.prompt, sheet.output, sheet.demand.hit,
                                  f"p{self.rank}")
        p.prompts(float(plan.batch))
        b.heading("Decode pool")
        step = sheet.step(decode, self.context, self.spread)
        t = self.decode = Tables(b, step, self.prompt, sheet.output, sheet.demand.hit,
                                 str(self.rank))
        t.new, t.prefill, t.first = p.new, p.prefill, p.first
        own, send, self.whole = self._caches(p, plan, decode)
        sheet.moments(p, sheet.occupancy(plan))
        self.wire = [b.line(f"Cache on the decode side's cards, {n}", total(
            self.prompt.share.all * own.all ** k), "s" + ("", "²", "³")[k - 1], "", "science")
            for k, n in ((1, "mean"), (2, "mean of squares"), (3, "mean of cubes"))]
        self.sends = b.line("Cache on the prefill side's cards, mean", total(
            self.prompt.share.all * send.all), "s", "", "science")
        t.sizes(decode.most_sequences, decode.hardware.engine["disaggregated_scale"])
        self.top = b.row + 3
        self.chain = Chain(t, sheet.demand.targets, "decode", Rows(t, self.top),
                           wire=self.wire[0])

    def _caches(self, p: Tables, prefill: PoolPlan, decode: PoolPlan
                ) -> tuple[Column, Column, Column]:
        """Seconds that a prompt's cache is on the wire, per prompt: decode's and prefill's own
        cards, and between the two."""
        d = prefill.deployment
        size = x(float(d.llm.state_bytes_per_sequence))
        for count, stream in d.llm.streams():
            entry = stream.values_per_entry * stream.value_bytes(d.kv)
            size = size + kept_entries(stream, self.prompt.tokens.each) * (count * entry)
        held = p.beside("Cache [MB]", size * 1e-6, "one")

        def nic(pool: PoolPlan) -> X:
            gpus = pool.deployment.layout.gpus
            return pool.hardware.gpu["nic_gb_s"] * (gpus * NETWORK_EFFICIENCY * 1e3)

        def late(pool: PoolPlan) -> X:
            return pool.hardware.engine["collective_latency_us"] * 1e-6

        own = p.beside("On decode's cards [s]", held.each / nic(decode) + late(decode), "six")
        send = p.beside("On prefill's cards [s]", held.each / nic(prefill) + late(prefill), "six")
        both_ = held.each / least(nic(prefill), nic(decode)) + late(prefill)
        return own, send, p.beside("On the wire [s]", both_, "six")

    # -- one set of targets -----------------------------------------------------------------------

    def _pair(self, targets: Targets, ceiling: X, tag: str, far: int) -> Pair:
        """Size both pools for some targets; their searches stand from column ``far`` on."""
        chain = self.chain.with_targets(targets, Rows(self.decode, self.top, far))

        def ask(column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
            one = chain.ask(column, rate, cv2, limit)
            return one, chain.holds(one)

        decode = size(chain.rows, self.decode_plan.load, ceiling, ask, f"decode_{tag}")
        admission, latency = self._handover(chain, decode.peak)
        rows = Rows(self.prefill, self.top + SCALAR_ROWS, far)
        ask_prefill, most_rate, mean = self._asker(rows, targets, admission, latency)
        prefill = size(rows, self.plan.load, most_rate, ask_prefill, f"prefill_{tag}",
                       limited=False)
        return self._paired(chain, decode, prefill, latency, mean)

    def _paired(self, chain: Chain, decode: Found, prefill: Found, latency: Column, mean: X
                ) -> Pair:
        """What users see of two sized pools."""
        peak = prefill.peak
        assert peak.wait is not None
        assert peak.own_wait is not None
        first = FirstToken(peak.wait.busy, peak.wait.mean, peak.wait.second, peak.shape,
                           peak.scale, x(0.0), latency, self.prompt.share, peak.wait.mean + mean)
        if "tokens" not in decode.peak.cells:
            chain.reached(decode.peak, decode.peak.cells["tpot"])
        return Pair(decode, prefill, first,
                    peak.own_wait + mean + decode.peak.cells["mean_tpot"])

    def _handover(self, chain: Chain, peak: Asked) -> tuple[Wait, Column]:
        """Wait on the decode side, and latency of each prompt up to its first token."""
        put = Scalars(chain.rows, peak.column)
        c, p = peak.cells, self.prefill
        on_wire, _ = mg1(put, peak.rate, self.wire[0], self.wire[1], self.wire[2], x(1.0))
        place = put("Wait for a place, mean [s]", c["waits"] * c["waits_s"])
        second = 2.0 * c["waits"] * square(c["waits_s"])
        admission = Wait(
            put("Share that waits", 1.0 - (1.0 - on_wire.busy) * (1.0 - c["waits"])),
            put("Wait, mean [s]", on_wire.mean + place),
            put("Wait, mean of squares [s²]", on_wire.second + second
                + 2.0 * on_wire.mean * place))
        step = chain.at_running(put, peak, self.decode.seconds, "Step then [s]")
        layers = float(self.plan.deployment.llm.layers)
        hidden = p.prefill.each * (1.0 - 1.0 / layers)
        moved = most(self.whole.each - hidden, 0.0) + self.whole.each / layers
        latency = p.first.each + moved + (1.0 + RESIDUAL) * step
        if chain.rows.far == FAR:
            return admission, p.beside("First token [s]", latency, "six")
        row, count = self.prompt.tokens.first - 1, len(self.prompt.tokens.value)
        self.board.page.write(row - 1, chain.rows.far + BESIDE, "First token [s]", "count",
                              "header")
        return admission, self.board.down(row, chain.rows.far + BESIDE, latency, count, "cell",
                                          "six")

    def _asker(self, rows: Rows, targets: Targets, admission: Wait, latency: Column
               ) -> tuple[Ask, X, X]:
        """What a prefill replica is asked; its highest rate, and the mean first token [s]."""
        b, batch, pool = self.board, float(self.plan.batch), self.plan
        m, share = self.prefill.moments, self.prompt.share
        service = [m["service1"] / batch, m["service2"] / batch**2, m["service3"] / batch**3]
        mean = b.line("First token without waits, mean", total(share.all * latency.all), "s", "",
                      "six")
        ceiling = b.line("No prefill replica carries more than", 1.0 / most(service[0], 1e-12),
                         "1/s", "", "three")

        def ask(column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
            put = Scalars(rows, column)
            one = Asked(column, put("Requests per second [1/s]", rate), put("Arrival CV²", cv2))
            wait, rho = rank_wait(put, pool.deployment.layout, one.rate, service[0], service[1],
                                  service[2], one.cv2)
            one.own_wait = wait.mean
            one.wait = Wait(
                put("Share that waits", 1.0 - (1.0 - wait.busy) * (1.0 - admission.busy)),
                put("Wait, mean [s]", wait.mean + admission.mean),
                put("Wait, mean of squares [s²]",
                    wait.second + admission.second + 2.0 * wait.mean * admission.mean))
            one.shape, one.scale = one.wait.shape_scale(put)
            one.latency = latency.all
            alone = (wait.busy, *wait.shape_scale(put, " for the prefill"))
            inside = put("Share within the target of TTFT", share_within_both(
                share.all, targets.ttft - latency.all,
                (one.wait.busy, one.shape, one.scale), alone))
            tests = both(self.prefill.step.memory_cap >= batch, rho < 1.0,
                         one.rate * self.sends < MAX_LINK_LOAD,
                         inside >= targets.ttft_level - BARELY)
            return one, put("Holds", when(tests, 1.0, 0.0))

        return ask, ceiling, mean

    # -- splits of a target on the whole request ------------------------------------------------

    def _best_split(self, targets: Targets, ceiling: X) -> Pair:
        """The cheapest pair over all ways to share out the target on the whole request."""
        b = self.board
        pairs = []
        for place, share in enumerate(E2E_SPLITS, start=1):
            b.heading(f"Target on the whole request: {100 * share:g} % to the decode pool")
            pairs.append(self._pair(self._split(targets, share), ceiling,
                                    f"{self.rank}_{place}", FAR + place * WIDE))
        table = self._ranked(pairs)
        score = table["Rank of the split, lowest first"]
        b.heading("The best split")
        best = b.line("Place of the best split", place_first(lowest(score.all), score.all), "",
                      "fewest GPUs by value, then lowest latency", "count")

        def of(label: str, name: str = "") -> X:
            return b.line(label, pick(table[label].all, best), "", "of the best split", "general",
                          name=f"{name}_{self.rank}" if name else "")

        decode, prefill = of("Decode replicas asked"), of("Prefill replicas asked")
        return self._chosen(targets, decode, of("Batch limit"), prefill, [
            of("Replicas of decode that carry the peak", "replicas_found_decode"),
            of("Highest rate of a decode replica", "highest_found_decode"),
            of("Replicas of prefill that carry the peak", "replicas_found_prefill"),
            of("Highest rate of a prefill replica", "highest_found_prefill")])

    def _split(self, targets: Targets, share: float) -> Targets:
        """The stricter of the own targets and those of a share of the whole request's."""
        b = self.board
        assert targets.e2e is not None
        assert targets.e2e_level is not None
        given = targets.e2e < NEVER_S
        tokens = most(self.sheet.output.quantile(targets.e2e_level) - 1.0, 1.0)
        part = when(highest(self.sheet.output.tokens.all) > 1.0, share * targets.e2e / tokens,
                    NEVER_S)

        def level(own: X, limit: X) -> X:
            assert targets.e2e_level is not None
            return when(given, when(limit < NEVER_S, most(own, targets.e2e_level),
                                    targets.e2e_level), own)

        return replace(
            targets,
            tpot=b.line("Token: limit", least(targets.tpot, part), "s", "", "general"),
            tpot_level=b.line("Token: share within it", level(targets.tpot_level, targets.tpot),
                              "share", "", "general"),
            ttft=b.line("First token: limit", least(targets.ttft, (1.0 - share) * targets.e2e),
                        "s", "", "general"),
            ttft_level=b.line("First token: share within it", level(
                targets.ttft_level, targets.ttft), "share", "", "general"))

    def _ranked(self, pairs: list[Pair]) -> dict[str, Column]:
        """A table of the splits: what they need, and their order."""
        b, demand = self.board, self.sheet.demand
        b.heading("Splits")
        rows = []
        for pair in pairs:
            sizes = [(pair.decode, self.decode_plan), (pair.prefill, self.plan)]
            gpus = [when(f.replicas > 0.0, f.replicas + demand.spares, 0.0)
                    * float(p.deployment.layout.gpus) for f, p in sizes]
            value = gpus[0] * self.decode_plan.worth + gpus[1] * self.plan.worth
            usd = gpus[0] * self.decode_plan.price + gpus[1] * self.plan.price
            holds = both(pair.decode.replicas > 0.0, pair.prefill.replicas > 0.0,
                         gpus[0] + gpus[1] <= demand.room)
            rows.append({
                "Decode replicas asked": pair.decode.asked,
                "Prefill replicas asked": pair.prefill.asked,
                "Batch limit": pair.decode.planned.cells["limit"],
                "Replicas of decode that carry the peak": pair.decode.replicas,
                "Highest rate of a decode replica": pair.decode.highest,
                "Replicas of prefill that carry the peak": pair.prefill.replicas,
                "Highest rate of a prefill replica": pair.prefill.highest,
                "Value of the GPUs": value, "Their cost per hour [USD/h]": usd,
                "Mean latencies [s]": pair.means,
                "Rank of the split, lowest first": when(
                    holds, FIRST_OF_ALL * value + 1e3 * usd + pair.means, NO_PAIR)})
        b.columns(["Share of decode", *rows[0]])
        b.row += 1
        top = b.row
        for place, row in enumerate(rows):
            b.page.write(top + place, 0, E2E_SPLITS[place], "cell", "percent")
            for column, e in enumerate(row.values(), start=1):
                b.put(top + place, column, e, "cell", "general")
        b.row = top + len(rows)
        return {label: Column("BCDEFGHIJKLMN"[i], top + 1, top + len(rows), np.array(
            [float(row[label].value) for row in rows])) for i, label in enumerate(rows[0])}

    def _chosen(self, targets: Targets, decode: X, limit: X, prefill: X, known: list[X]) -> Pair:
        """The columns at the peak of the pair of a split."""
        b, far = self.board, FAR
        chain = self.chain = self.chain.with_targets(targets, Rows(self.decode, self.top, far))
        load, own = self.decode_plan.load, self.plan.load
        b.page.write(self.top - 1, far + 1, "At the peak", "count", "header")
        peak = chain.ask(far + 1, load.rate / decode, arrival_cv2(load, decode), limit)
        admission, latency = self._handover(chain, peak)
        rows = Rows(self.prefill, self.top + SCALAR_ROWS, far)
        ask, _, mean = self._asker(rows, targets, admission, latency)
        at_prefill, _ = ask(far + 1, own.rate / prefill, arrival_cv2(own, prefill), None)
        return self._paired(chain, Found(known[0], known[1], peak, peak, decode),
                            Found(known[2], known[3], at_prefill, at_prefill, prefill), latency,
                            mean)


def place_first(value: X, column: X) -> X:
    """Place (from 1) of the first row that is equal to a value."""
    found = float(np.argmax(np.asarray(column.value) == value.value)) + 1.0
    return X(f"MATCH({value.text},{column.text},0)", found)
