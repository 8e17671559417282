"""One option as a sheet: its lengths, step times, search and latencies, all formulas."""

from __future__ import annotations

from dataclasses import replace

from planner.workbook.live.asked import Asked, Rows
from planner.workbook.live.board import Board
from planner.workbook.live.expr import (
    X,
    highest,
    least,
    most,
    nearest,
    pick,
    place_below,
    sqrt,
    square,
    total,
    x,
)
from planner.workbook.live.lengths import LengthRows
from planner.workbook.live.lengths import write as write_lengths
from planner.workbook.live.pools import Demand, OptionCells, PoolCells, PoolPlan
from planner.workbook.live.search import Chain
from planner.workbook.live.seen import latencies
from planner.workbook.live.sizing import size
from planner.workbook.live.step import StepSheet
from planner.workbook.live.tables import Tables
from planner.workbook.live.targets import Targets
from planner.workbook.live.twopools import TwoPools


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
        self.reserved: tuple[X, X] | None = None

    def write(self) -> OptionCells:
        """Fill the sheet below what is on it."""
        b = self.board
        self._targets()
        self.prompt, self.output = write_lengths(b, "Lengths", self.demand.prompt,
                                                 self.demand.output)
        self._parts()
        b.heading("Running sequences")
        growth = b.line("Output written so far, mean", self.output.second
                        / (2.0 * self.output.mean), "tokens", "E[o²] / (2 E[o])", "one")
        context = b.line("Context", self.prompt.mean + growth, "tokens", "", "one")
        own = most(self.prompt.second - square(self.prompt.mean), 0.0)
        more = most(self.output.third / (3.0 * self.output.mean) - square(growth), 0.0)
        spread = b.line("Spread of the context", sqrt(own + more), "tokens", "", "one")
        if any(p.deployment.profile.reserves_answers for p in self.pools):
            answer = b.line("Whole answer of a running sequence", 2.0 * growth, "tokens",
                            "E[o²] / E[o]", "one")
            over = most(self.output.third / self.output.mean - square(answer), 0.0)
            self.reserved = self.prompt.mean + answer, b.line(
                "Spread of what it reserves", sqrt(own + over), "tokens", "", "one")
        if self.setup == "disaggregated":
            return TwoPools(self, context, spread).write()
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

    def _parts(self) -> None:
        """Where the whole request has a target, the levels at which its parts count."""
        targets, b = self.demand.targets, self.board
        if targets.e2e_level is None:
            return
        b.heading("Parts of the whole request")
        first = b.line("First token: share that counts",
                       self.output.first_level(targets.e2e_level), "share", "", "general")
        token = b.line("Token: share that counts", self.output.token_level(targets.e2e_level),
                       "share", "less where lengths spread", "general")
        self.demand = replace(self.demand, targets=replace(
            targets, e2e_first=first, e2e_token=token))

    def step(self, pool: PoolPlan, context: X, spread: X) -> StepSheet:
        """Write the lines of a pool's engine step."""
        step = StepSheet(self.board, pool.deployment, pool.hardware, pool.budget,
                         f"{pool.role}_{self.rank}")
        held = self.reserved if pool.deployment.profile.reserves_answers else None
        step.write(context, held or (context, spread))
        return step

    def occupancy(self, pool: PoolPlan) -> float:
        """Share of a prefill that keeps a replica from the next (``setups.base.build_table``)."""
        layout, layers = pool.deployment.layout, pool.deployment.llm.layers
        share = 1.0 / layout.data
        if layout.pipeline > 1:
            share *= -(-layers // layout.pipeline) / layers
        return share

    # -- one pool ---------------------------------------------------------------------------------

    def _one(self, context: X, spread: X) -> OptionCells:
        b, [pool] = self.board, self.pools
        step = self.step(pool, context, spread)
        t = Tables(b, step, self.prompt, self.output, self.demand.hit, str(self.rank),
                   pool.token_budget)
        t.prompts()
        self.moments(t, self.occupancy(pool))
        t.write_gaps()
        t.sizes(pool.most_sequences)
        rows = Rows(t, b.row + 3)
        targets = self.demand.targets
        slow = targets.e2e is not None or targets.itl is not None
        chain = Chain(t, targets, self.setup, rows, slow)

        def ask(column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
            one = chain.ask(column, rate, cv2, limit)
            chain.first_token(one)
            return one, chain.holds(one) if limit is None else x(1.0)

        b.heading("Replicas", "The search stands to the right: each column asks one rate.")
        ceiling = b.line("No replica carries more than", 1.02 * most(highest(
            (t.cap.all <= step.memory_cap) * chain.ceiling.all), 1e-9), "1/s", "", "three")
        found = size(rows, pool.load, ceiling, ask, f"serve_{self.rank}")
        peak = found.peak
        work = self._work(t, peak)
        seen = latencies(b, chain, peak, chain.first(peak), self.output, (
            targets.ttft_level, targets.tpot_level, self.demand.whole_level), targets.itl_level)
        b.row = max(b.row, rows.top + len(rows.known))
        return OptionCells([PoolCells(pool, found, step, work)], seen, found.limit)

    def moments(self, t: Tables, occupancy: float) -> None:
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
