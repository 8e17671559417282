"""Prefill and decode pools as a sheet: the decode pool first, then the prefill pool beside it.

A target on the whole request is shared out over the two as the planner does
(``planner.two_pools``): each of its splits is sized, and the cheapest pair is taken.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.two_pools import E2E_SPLITS
from planner.workbook.live.asked import FAR, Rows
from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, both, highest, least, lowest, most, pick, when, x
from planner.workbook.live.packings import place_first
from planner.workbook.live.pairs import FIRST_OF_ALL, NO_PAIR, Pair, Pairs
from planner.workbook.live.pools import SCALAR_ROWS, OptionCells, PoolCells
from planner.workbook.live.seen import latencies
from planner.workbook.live.sizing import Found, arrival_cv2
from planner.workbook.live.targets import NEVER_S, Targets


class TwoPools(Pairs):
    """Writes the pools of a disaggregated option."""

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

    def _best_split(self, targets: Targets, ceiling: X) -> Pair:
        """The cheapest pair over all ways to share out the target on the whole request."""
        b = self.board
        pairs = []
        for split, share in enumerate(E2E_SPLITS, start=1):
            b.heading(f"Target on the whole request: {100 * share:g} % to the decode pool")
            pairs.append(self._pair(self._split(targets, share), ceiling,
                                    f"{self.rank}_{split}", FAR + split * self.wide))
        table = self._ranked(pairs)
        score = table["Rank of the split, lowest first"]
        b.heading("The best split")
        best = b.line("Place of the best split", place_first(lowest(score.all), score.all), "",
                      "fewest GPUs by value, then lowest latency", "count")

        def of(label: str, name: str = "") -> X:
            return b.line(label, pick(table[label].all, best), "", "of the best split", "general",
                          name=f"{name}_{self.rank}" if name else "")

        decode, prefill = of("Decode replicas asked"), of("Prefill replicas asked")
        place = of("Place of the packing")
        return self._chosen(targets, decode, of("Batch limit"), prefill, place, [
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

        def level(own: X, limit: X, shared: X | None) -> X:
            assert shared is not None
            return when(given, when(limit < NEVER_S, most(own, shared), shared), own)

        return replace(
            targets,
            tpot=b.line("Token: limit", least(targets.tpot, part), "s", "", "general"),
            tpot_level=b.line("Token: share within it", level(
                targets.tpot_level, targets.tpot, targets.e2e_token), "share", "", "general"),
            ttft=b.line("First token: limit", least(targets.ttft, (1.0 - share) * targets.e2e),
                        "s", "", "general"),
            ttft_level=b.line("First token: share within it", level(
                targets.ttft_level, targets.ttft, targets.e2e_first), "share", "", "general"))

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
                "Batch limit": pair.decode.limit,
                "Replicas of decode that carry the peak": pair.decode.replicas,
                "Highest rate of a decode replica": pair.decode.highest,
                "Replicas of prefill that carry the peak": pair.prefill.replicas,
                "Highest rate of a prefill replica": pair.prefill.highest,
                "Value of the GPUs": value, "Their cost per hour [USD/h]": usd,
                "Place of the packing": pair.packing,
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

    def _chosen(self, targets: Targets, decode: X, limit: X, prefill: X, place: X, known: list[X]
                ) -> Pair:
        """The columns at the peak of the pair of a split."""
        b, far = self.board, FAR
        chain = self.chain = self.chain.with_targets(targets, Rows(self.decode, self.top, far))
        load, own = self.decode_plan.load, self.plan.load
        b.page.write(self.top - 1, far + 1, "At the peak", "count", "header")
        peak = chain.ask(far + 1, load.rate / decode, arrival_cv2(load, decode), limit)
        planned = self._planned(chain, far + 2, decode, limit)
        latency = self._handover(chain, peak)
        rows = Rows(self.prefill, self.top + SCALAR_ROWS, far, self.packs.count)
        ask, _, mean = self._asker(rows, targets, planned, latency)
        at_prefill, _ = ask(far + 1, own.rate / prefill, arrival_cv2(own, prefill), None)
        return self._paired(chain, Found(known[0], known[1], peak.cells["limit"], peak, decode),
                            Found(known[2], known[3], x(0.0), at_prefill, prefill), place,
                            latency, mean)
