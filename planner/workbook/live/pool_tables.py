"""The tables of two pools: prompts, packings, the cache on the wire, batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.collectives import NETWORK_EFFICIENCY
from planner.two_pools import PACKED_TOKENS, PREFILL_BATCHES
from planner.workbook.live.asked import Rows
from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, both, least, most, square, total, x
from planner.workbook.live.lengths import LengthRows
from planner.workbook.live.packings import Packed, Packs
from planner.workbook.live.pools import PoolPlan
from planner.workbook.live.search import Chain
from planner.workbook.live.sizing import APART
from planner.workbook.live.step import kept_entries
from planner.workbook.live.tables import Tables

if TYPE_CHECKING:
    from planner.workbook.live.option import OptionSheet

REACH = 4.0
"""Packings are written that prompts of a quarter of the mean would allow."""


class PoolTables:
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
        self.packs: Packs
        self.decode: Tables
        self.chain: Chain
        self.wire: list[X]
        self.whole: Column
        self.rest: X
        self.sends: X
        self.top = 0
        tries = max(pool.load.steps for pool in sheet.pools) + 3
        self.beside = 2 * (tries + APART - 1)
        """Column of a search's latencies of first tokens, counted from its first one."""
        self.wide = len(PREFILL_BATCHES) * tries + 4
        """Columns of one search with what stands beside it."""

    def _tables(self) -> None:
        b, sheet = self.board, self.sheet
        plan, decode = self.plan, self.decode_plan
        b.heading("Prefill pool")
        step = sheet.step(plan, self.context, self.spread)
        p = self.prefill = Tables(b, step, self.prompt, sheet.output, sheet.demand.hit,
                                  f"p{self.rank}")
        p.prompts()
        b.heading("Decode pool")
        step = sheet.step(decode, self.context, self.spread)
        t = self.decode = Tables(b, step, self.prompt, sheet.output, sheet.demand.hit,
                                 str(self.rank))
        t.new, t.prefill, t.first = p.new, p.prefill, p.first
        own, send, self.whole = self._caches(p, plan, decode)
        sheet.moments(p, sheet.occupancy(plan))
        self.packs = self._packs(p, send)
        self.wire = [b.line(f"Cache on the decode side's cards, {n}", total(
            self.prompt.share.all * own.all ** k), "s" + ("", "²", "³")[k - 1], "", "science")
            for k, n in ((1, "mean"), (2, "mean of squares"), (3, "mean of cubes"))]
        answers = sheet.output
        self.rest = b.line("Rest of an answer, mean of squares over square of mean",
                           4.0 * answers.third * answers.mean / (3.0 * square(answers.second)),
                           "", "", "six")
        self.sends = b.line("Cache on the prefill side's cards, mean", total(
            self.prompt.share.all * send.all), "s", "", "science")
        t.sizes(decode.most_sequences, decode.hardware.engine["disaggregated_scale"])
        self.top = b.row + 3
        self.chain = Chain(t, sheet.demand.targets, "decode", Rows(t, self.top),
                           wire=self.wire[0])
        self.chain.admission_share = decode.admission_share

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

    def _packs(self, p: Tables, send: Column) -> Packs:
        """Passes of one prompt, of two, and so on (``two_pools.prefill_batches``)."""
        b, m, share = self.board, p.moments, self.prompt.share.all
        mean = float(m["new"].value)
        sizes = [n for n in PREFILL_BATCHES if n == 1 or n * mean <= REACH * PACKED_TOKENS]
        b.heading("Prompts of a prefill pass", "A column a packing; the fewest replicas are "
                  "taken, then the earliest first token.")
        b.page.write(b.row, 0, "Prompts of a pass", "cell", "text")
        for place, n in enumerate(sizes):
            b.page.write(b.row, 1 + place, n, "cell", "count", "engine")
        prompts = X(f"B${b.row + 1}", np.array(sizes, dtype=float)[:, None])
        b.row += 1
        put = Packed(b, len(sizes))
        allowed = put("Tried, and the memory holds it", both(
            (prompts > 1.0) * prompts * m["new"] <= PACKED_TOKENS,
            prompts <= p.step.memory_cap) * 1.0, "count")
        made = p.packed(prompts)
        first = p.aside("First token, idle [s]", made.each * p.step.hardware.engine["ttft_scale"]
                        + p.lag.each)
        each = p.aside("Keeps a replica [s]", most(
            made.each / prompts * m["occupancy"], send.each)).all
        service = [put(f"Service of a prompt, power {k}", total(
            share * (each if k == 1 else each ** k)), "science") for k in (1, 2, 3)]
        return Packs(prompts, allowed, made, first, (service[0], service[1], service[2]))
