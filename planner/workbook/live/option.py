"""One option as a sheet: its lengths, step times, search and latencies, all formulas."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from planner.collectives import NETWORK_EFFICIENCY
from planner.memory import MemoryBudget
from planner.roofline import Deployment
from planner.setups.continuous import RESIDUAL
from planner.setups.disaggregated import MAX_LINK_LOAD
from planner.workbook.live.board import Board, Column
from planner.workbook.live.expr import (
    X,
    both,
    highest,
    least,
    most,
    nearest,
    pick,
    place_below,
    sqrt,
    square,
    total,
    when,
    x,
)
from planner.workbook.live.lengths import LengthInputs, LengthRows
from planner.workbook.live.lengths import write as write_lengths
from planner.workbook.live.onepool import Load, Tables, Targets, Wait, mg1, rank_wait
from planner.workbook.live.search import (
    BARELY,
    Asked,
    Chain,
    Rows,
    Scalars,
    share_within_both,
)
from planner.workbook.live.seen import FirstToken, Seen, latencies
from planner.workbook.live.sizing import Found, size
from planner.workbook.live.step import Hardware, StepSheet, kept_entries

SCALAR_ROWS = 110
"""Rows kept for the scalars of one search."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolPlan:
    """One pool of an option as the stored plan has it."""

    role: str
    deployment: Deployment
    hardware: Hardware
    budget: MemoryBudget
    most_sequences: int
    token_budget: int | None
    batch: int
    load: Load


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The workload and the targets as input cells."""

    prompt: LengthInputs
    output: LengthInputs
    hit: X
    targets: Targets
    whole_level: X


@dataclass(slots=True, eq=False)
class PoolCells:
    """What a pool came to."""

    plan: PoolPlan
    found: Found
    step: StepSheet | None
    work: tuple[X, X] = field(default_factory=lambda: (x(0.0), x(0.0)))
    """Replica seconds of a request in prefill and decode (one pool)."""


@dataclass(slots=True, eq=False)
class OptionCells:
    """What an option came to: its pools and its latencies."""

    pools: list[PoolCells]
    seen: Seen
    limit: X


class OptionSheet:
    """Writes one option.

    Parameters
    ----------
    board : Board
    setup : str
        ``colocated``, ``chunked`` or ``disaggregated``.
    rank : int
        1 or 2: part of the names on the sheet.
    """

    def __init__(self, board: Board, setup: str, rank: int, demand: Demand,
                 pools: list[PoolPlan]) -> None:
        self.board, self.setup, self.rank = board, setup, rank
        self.demand, self.pools = demand, pools
        self.prompt: LengthRows
        self.output: LengthRows

    def write(self) -> OptionCells:
        """Fill the sheet below what is on it."""
        b = self.board
        self._targets()
        self.prompt, self.output = write_lengths(b, "Lengths", self.demand.prompt,
                                                 self.demand.output)
        b.heading("Running sequences")
        growth = b.line("Output written so far, mean", self.output.second
                        / (2.0 * self.output.mean), "tokens", "E[o²] / (2 E[o])", "one")
        context = b.line("Context", self.prompt.mean + growth, "tokens", "", "one")
        own = most(self.prompt.second - square(self.prompt.mean), 0.0)
        more = most(self.output.third / (3.0 * self.output.mean) - square(growth), 0.0)
        spread = b.line("Spread of the context", sqrt(own + more), "tokens", "", "one")
        if self.setup == "disaggregated":
            return self._two(context, spread)
        return self._one(context, spread)

    def _targets(self) -> None:
        """The targets as cells of this sheet, in seconds and shares."""
        b, given = self.board, self.demand.targets
        b.heading("Targets", "Linked from the sheet Inputs; 1,000,000,000 s is no target.")

        def pair(name: str, limit: X | None, level: X | None) -> tuple[X | None, X | None]:
            if limit is None or level is None:
                return None, None
            return (b.line(f"{name}: limit", limit, "s", "", "figure", "link"),
                    b.line(f"{name}: share within it", level, "share", "", "figure", "link"))

        ttft, ttft_level = pair("First token", given.ttft, given.ttft_level)
        tpot, tpot_level = pair("Token", given.tpot, given.tpot_level)
        assert ttft is not None
        assert ttft_level is not None
        assert tpot is not None
        assert tpot_level is not None
        e2e = pair("Whole request", given.e2e, given.e2e_level)
        itl = pair("Gap", given.itl, given.itl_level)
        targets = Targets(ttft, ttft_level, tpot, tpot_level, *e2e, *itl)
        whole = e2e[1] if e2e[1] is not None else self.demand.whole_level
        self.demand = replace(self.demand, targets=targets, whole_level=whole)

    def _step(self, pool: PoolPlan, context: X, spread: X) -> StepSheet:
        step = StepSheet(self.board, pool.deployment, pool.hardware, pool.budget,
                         f"{pool.role}_{self.rank}")
        step.write(context, spread)
        return step

    def _occupancy(self, pool: PoolPlan) -> float:
        """Share of a prefill that keeps a replica from the next (``setups.base.build_table``)."""
        layout, layers = pool.deployment.layout, pool.deployment.llm.layers
        share = 1.0 / layout.data
        if layout.pipeline > 1:
            share *= -(-layers // layout.pipeline) / layers
        return share

    # -- one pool ---------------------------------------------------------------------------------

    def _one(self, context: X, spread: X) -> OptionCells:
        b, [pool] = self.board, self.pools
        step = self._step(pool, context, spread)
        t = Tables(b, step, self.prompt, self.output, self.demand.hit, str(self.rank),
                   pool.token_budget)
        t.prompts()
        self._moments(t, self._occupancy(pool))
        t.write_gaps()
        t.sizes(pool.most_sequences)
        rows = Rows(t, b.row + 3)
        targets = self.demand.targets
        slow = targets.e2e is not None or targets.itl is not None
        chain = Chain(t, targets, self.setup, rows, slow)

        def ask(column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
            one = chain.ask(column, rate, cv2, limit)
            chain.first_token(one)
            return one, chain.holds(one)

        b.heading("Replicas", "The search stands to the right: each column asks one rate.")
        ceiling = b.line("No replica carries more than", 1.02 * most(highest(
            (t.cap.all <= step.memory_cap) * chain.ceiling.all), 1e-9), "1/s", "", "three")
        found = size(rows, pool.load, ceiling, ask, f"serve_{self.rank}")
        peak = found.peak
        assert peak.wait is not None
        first = FirstToken(peak.wait.busy, peak.wait.mean, peak.wait.second, peak.shape,
                           peak.scale, peak.offset, peak.latency, self.prompt.share,
                           peak.wait.mean + peak.offset + peak.cells["mean_latency"])
        seen = latencies(b, chain, peak, first, self.output,
                         (targets.ttft_level, targets.tpot_level, self.demand.whole_level))
        work = self._work(t, peak)
        b.row = max(b.row, rows.top + SCALAR_ROWS)
        return OptionCells([PoolCells(pool, found, step, work)], seen, found.planned.cells["limit"])

    def _moments(self, t: Tables, occupancy: float) -> None:
        """Means over the prompts, and what a prefill keeps a replica busy."""
        b, m = self.board, t.moments
        b.heading("Means over the prompts")
        t.write_moments()
        m["occupancy"] = b.line("Share of a prefill that blocks the next", occupancy, "",
                                "pipeline and data parallel", "fraction", "engine")
        for power in (1, 2, 3):
            share = m["occupancy"] if power == 1 else m["occupancy"] ** power
            m[f"service{power}"] = b.line(f"Service of a prefill, power {power}",
                                          m[f"s{power}"] * share,
                                          "s" + ("", "²", "³")[power - 1], "", "science")
        m["held"] = m["service1"]
        m["first"] = b.line("First token on an idle replica, mean",
                            total(self.prompt.share.all * t.first.all), "s", "", "six")

    def _work(self, t: Tables, peak: Asked) -> tuple[X, X]:
        """Seconds of a replica per request in prefill and decode (``cost.request_work_s``)."""
        b, running = self.board, peak.cells["running"]
        b.heading("Time of a request")
        n = b.line("Running sequences, to the nearest", most(nearest(running), 1.0), "", "",
                   "count")
        rows = len(t.n.value)
        place = b.line("Row below it", least(place_below(n, t.n.all), max(rows - 1.0, 1.0)), "",
                       "", "count")
        low, high = pick(t.n.all, place), pick(t.n.all, place + 1.0)
        first, second = pick(t.seconds.all, place), pick(t.seconds.all, place + 1.0)
        step = b.line("Step then", first + (n - low) / (high - low) * (second - first)
                      if rows > 1 else first, "s", "", "six")
        prefill = b.line("Prefill of a request", t.moments["service1"], "s", "", "six",
                         name=f"prefill_work_{self.rank}")
        decode = b.line("Decode of a request", self.output.mean * step / n, "s", "", "six",
                        name=f"decode_work_{self.rank}")
        return prefill, decode

    # -- two pools --------------------------------------------------------------------------------

    def _two(self, context: X, spread: X) -> OptionCells:
        b = self.board
        prefill, decode = self.pools
        b.heading("Prefill pool")
        first_step = self._step(prefill, context, spread)
        p = Tables(b, first_step, self.prompt, self.output, self.demand.hit, f"p{self.rank}")
        p.prompts(float(prefill.batch))
        b.heading("Decode pool")
        step = self._step(decode, context, spread)
        t = Tables(b, step, self.prompt, self.output, self.demand.hit, str(self.rank))
        t.new, t.prefill, t.first = p.new, p.prefill, p.first
        own, send, whole_ = self._caches(p, prefill, decode)
        self._moments(p, self._occupancy(prefill))
        wire = [b.line(f"Cache on the decode side's cards, {n}", total(
            self.prompt.share.all * own.all ** k), "s" + ("", "²", "³")[k - 1], "", "science")
            for k, n in ((1, "mean"), (2, "mean of squares"), (3, "mean of cubes"))]
        sends = b.line("Cache on the prefill side's cards, mean", total(
            self.prompt.share.all * send.all), "s", "", "science")
        t.sizes(decode.most_sequences, decode.hardware.engine["disaggregated_scale"])
        rows = Rows(t, b.row + 3)
        chain = Chain(t, self.demand.targets, "decode", rows, wire=wire[0])

        def ask(column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
            one = chain.ask(column, rate, cv2, limit)
            return one, chain.holds(one)

        b.heading("Replicas", "The search stands to the right: each column asks one rate.")
        ceiling = b.line("No decode replica carries more than", 1.02 * most(highest(
            (t.cap.all <= step.memory_cap) * chain.ceiling.all), 1e-9), "1/s", "", "three")
        found = size(rows, decode.load, ceiling, ask, f"decode_{self.rank}")
        admission, handover, share = self._handover(t, chain, found.peak, wire, p, whole_, prefill)
        first, sized = self._prefill(p, prefill, admission, handover, share, sends, rows)
        levels = (self.demand.targets.ttft_level, self.demand.targets.tpot_level,
                  self.demand.whole_level)
        seen = latencies(b, chain, found.peak, first, self.output, levels)
        b.row = max(b.row, rows.top + 2 * SCALAR_ROWS)
        return OptionCells([PoolCells(prefill, sized, first_step), PoolCells(decode, found, step)],
                           seen, found.planned.cells["limit"])

    def _caches(self, p: Tables, prefill: PoolPlan, decode: PoolPlan
                ) -> tuple[Column, Column, Column]:
        """Seconds that a prompt's cache is on the wire, per prompt: decode's and prefill's own
        cards, and between the two."""
        d = prefill.deployment
        size = x(float(d.llm.state_bytes_per_sequence))
        for count, stream in d.llm.streams():
            entry = stream.values_per_entry * stream.value_bytes(d.kv)
            size = size + kept_entries(stream, self.prompt.tokens.each) * (count * entry)
        held = p._beside("Cache [MB]", size * 1e-6, "one")

        def nic(pool: PoolPlan) -> X:
            gpus = pool.deployment.layout.gpus
            return pool.hardware.gpu["nic_gb_s"] * (gpus * NETWORK_EFFICIENCY * 1e3)

        def late(pool: PoolPlan) -> X:
            return pool.hardware.engine["collective_latency_us"] * 1e-6

        own = p._beside("On decode's cards [s]", held.each / nic(decode) + late(decode), "six")
        send = p._beside("On prefill's cards [s]", held.each / nic(prefill) + late(prefill), "six")
        both_ = held.each / least(nic(prefill), nic(decode)) + late(prefill)
        return own, send, p._beside("On the wire [s]", both_, "six")

    def _handover(self, t: Tables, chain: Chain, peak: Asked, wire: list[X], p: Tables,
                  whole_: Column, prefill: PoolPlan) -> tuple[Wait, Column, Column]:
        """Wait on the decode side, and latency of each prompt up to its first token."""
        put = Scalars(chain.rows, peak.column)
        c = peak.cells
        on_wire, _ = mg1(put, peak.rate, wire[0], wire[1], wire[2], x(1.0))
        place = put("Wait for a place, mean [s]", c["waits"] * c["waits_s"])
        second = 2.0 * c["waits"] * square(c["waits_s"])
        admission = Wait(
            put("Share that waits", 1.0 - (1.0 - on_wire.busy) * (1.0 - c["waits"])),
            put("Wait, mean [s]", on_wire.mean + place),
            put("Wait, mean of squares [s²]", on_wire.second + second
                + 2.0 * on_wire.mean * place))
        step = chain.at_running(put, peak, t.seconds, "Step then [s]")
        layers = float(prefill.deployment.llm.layers)
        hidden = p.prefill.each * (1.0 - 1.0 / layers)
        moved = most(whole_.each - hidden, 0.0) + whole_.each / layers
        latency = p._beside("First token [s]", p.first.each + moved + (1.0 + RESIDUAL) * step,
                            "six")
        return admission, latency, self.prompt.share

    def _prefill(self, p: Tables, pool: PoolPlan, admission: Wait, latency: Column, share: Column,
                 sends: X, above: Rows) -> tuple[FirstToken, Found]:
        """Size the prefill pool next to the decode pool."""
        b, batch = self.board, float(pool.batch)
        rows = Rows(p, above.top + SCALAR_ROWS)
        m = p.moments
        service = [m["service1"] / batch, m["service2"] / batch**2, m["service3"] / batch**3]
        mean = b.line("First token without waits, mean", total(share.all * latency.all), "s", "",
                      "six")
        ceiling = b.line("No prefill replica carries more than", 1.0 / most(service[0], 1e-12),
                         "1/s", "", "three")
        targets = self.demand.targets

        def ask(column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
            put = Scalars(rows, column)
            one = Asked(column, put("Requests per second [1/s]", rate), put("Arrival CV²", cv2))
            wait, rho = rank_wait(put, pool.deployment.layout, one.rate, service[0], service[1],
                                  service[2], one.cv2)
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
            tests = both(p.step.memory_cap >= batch, rho < 1.0, one.rate * sends < MAX_LINK_LOAD,
                         inside >= targets.ttft_level - BARELY)
            return one, put("Holds", when(tests, 1.0, 0.0))

        found = size(rows, pool.load, ceiling, ask, f"prefill_{self.rank}", limited=False)
        peak = found.peak
        assert peak.wait is not None
        first = FirstToken(peak.wait.busy, peak.wait.mean, peak.wait.second, peak.shape,
                           peak.scale, x(0.0), latency, share, peak.wait.mean + mean)
        return first, found

