"""Prefill and decode pools as a sheet: the decode pool first, then the prefill pool beside it.

A target on the whole request is shared out over the two as the planner does
(``planner.two_pools``): each of its splits is sized, and the cheapest pair is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from xlsxwriter.utility import xl_cell_to_rowcol

from planner.collectives import NETWORK_EFFICIENCY
from planner.setups.continuous import RESIDUAL
from planner.setups.disaggregated import MAX_LINK_LOAD
from planner.two_pools import E2E_SPLITS, PACKED_TOKENS, PREFILL_BATCHES
from planner.workbook.fast import letters
from planner.workbook.live.asked import BARELY, FAR, Asked, Rows, Scalars
from planner.workbook.live.board import Board, Column
from planner.workbook.live.expr import (
    X,
    absolute,
    both,
    exp,
    gamma,
    highest,
    least,
    ln,
    lowest,
    most,
    pick,
    square,
    total,
    when,
    x,
)
from planner.workbook.live.first_token import FirstToken
from planner.workbook.live.halving import ONE_TIME, Reached, States
from planner.workbook.live.lengths import LengthRows
from planner.workbook.live.pools import SCALAR_ROWS, OptionCells, PoolCells, PoolPlan
from planner.workbook.live.prefill_wait import Wait, mg1, rank_wait
from planner.workbook.live.search import Chain
from planner.workbook.live.seen import latencies
from planner.workbook.live.sizing import APART, Ask, Found, arrival_cv2, search, size
from planner.workbook.live.step import kept_entries
from planner.workbook.live.tables import Tables
from planner.workbook.live.targets import NEVER_S, Targets
from planner.workbook.live.waits import share_within_both

if TYPE_CHECKING:
    from planner.workbook.live.option import OptionSheet

REACH = 4.0
"""Packings are written that prompts of a quarter of the mean would allow."""
UNDERFLOW = 700.0
"""e to the power of this, negative, is about the smallest number."""
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


@dataclass(slots=True, eq=False)
class Admission:
    """Waits on the decode side as cells: for the network cards, and for a place in the batch."""

    cards: Wait
    place: Wait


@dataclass(slots=True, eq=False)
class PlacedToken(FirstToken):
    """The same where some wait for a place as well (``loops.placed_laws``).

    Attributes
    ----------
    placed, placed_shape, placed_scale : X
        Share of them; shape and scale [s] of the gamma of all their waits.
    """

    placed: X = field(default_factory=lambda: x(0.0))
    placed_shape: X = field(default_factory=lambda: x(1.0))
    placed_scale: X = field(default_factory=lambda: x(1.0))

    @property
    def reached(self) -> Reached:
        """The share of first tokens within a time."""
        start, share, placed = self.ranges.value, self.share.value, self.placed.value
        return Reached(self.within, [
            States(share * (1.0 - placed), start, ONE_TIME, 1.0 - self.busy.value,
                   self.shape.value, self.scale.value),
            States(share * placed, start, ONE_TIME, 0.0, self.placed_shape.value,
                   self.placed_scale.value)])

    def within(self, limit: X) -> X:
        """Share of first tokens within a time [s]."""
        left, share = limit - self.ranges, self.share.all
        return ((1.0 - self.placed) * share_within_both(
            share, left, (self.busy, self.shape, self.scale), None) + self.placed
            * share_within_both(share, left, (x(1.0), self.placed_shape, self.placed_scale), None))

    def longest(self) -> X:
        """A time [s] that hardly any first token exceeds."""
        return X(f"MAX({self.ranges.text})", float(self.ranges.value.max())) + 30.0 * (
            self.scale * most(self.shape, 1.0)
            + when(self.placed > 0.0, self.placed_scale * most(self.placed_shape, 1.0), 0.0))


@dataclass(slots=True, eq=False)
class Packs:
    """Packings of prompts into one pass, a column each.

    Attributes
    ----------
    prompts : X
        Prompts of a pass.
    allowed : X
        Whether it is worth trying and the memory holds it.
    pass_s, first : Column
        [s] of a pass and of a first token on an idle replica, a row a prompt length.
    service : tuple of X
        Means of a prompt's share of a pass, of its squares and of its cubes.
    """

    prompts: X
    allowed: X
    pass_s: Column
    first: Column
    service: tuple[X, X, X]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.prompts.value)


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
        p.prompts()
        b.heading("Decode pool")
        step = sheet.step(decode, self.context, self.spread)
        t = self.decode = Tables(b, step, self.prompt, sheet.output, sheet.demand.hit,
                                 str(self.rank))
        t.new, t.prefill, t.first = p.new, p.prefill, p.first
        own, send, self.whole = self._caches(p, plan, decode)
        sheet.moments(p, sheet.occupancy(plan))
        self.packs = self._packs(p)
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

    def _packs(self, p: Tables) -> Packs:
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
        each = made.all / prompts * m["occupancy"]
        service = [put(f"Service of a prompt, power {k}", total(
            share * (each if k == 1 else each ** k)), "science") for k in (1, 2, 3)]
        return Packs(prompts, allowed, made, first, (service[0], service[1], service[2]))

    # -- one set of targets -----------------------------------------------------------------------

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

    # -- splits of a target on the whole request ------------------------------------------------

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


class Packed:
    """Writes rows of a label and one formula for all packings; their columns begin at the second.

    Parameters
    ----------
    count : int
        How many packings there are.
    """

    def __init__(self, board: Board, count: int) -> None:
        self.board, self.count = board, count

    def __call__(self, label: str, e: X, style: str = "general") -> X:
        """Write a row."""
        b, row = self.board, self.board.row
        b.row += 1
        b.page.write(row, 0, label, "cell", "text")
        return b.across(row, 1, e, self.count, "cell", style)

    def row(self, cells: X) -> X:
        """The cells of all packings, given that of the first, as a range."""
        letter, _, row = cells.text.partition("$")
        last = letters(xl_cell_to_rowcol(f"{letter}{row}")[1] + self.count - 1)
        return X(f"${letter}${row}:${last}${row}", np.ravel(cells.value))

    def pick(self, cells: X, place: X) -> X:
        """The cell of the packing of a place."""
        found = self.row(cells)
        return X(f"INDEX({found.text},1,{place.text})", float(found.value[int(place.value) - 1]))


def given_place(wait: Wait, place: Wait) -> Wait:
    """All waits of those who wait for a place after another wait."""
    chance = most(place.busy, 1e-15)
    mean = place.mean / chance
    return Wait(x(1.0), wait.mean + mean,
                wait.second + place.second / chance + 2.0 * wait.mean * mean)


def place_first(value: X, column: X) -> X:
    """Place (from 1) of the first row that is equal to a value."""
    found = float(np.argmax(np.asarray(column.value) == value.value)) + 1.0
    return X(f"MATCH({value.text},{column.text},0)", found)
