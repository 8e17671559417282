"""Static batching as a sheet: a batch runs until its longest answer is done.

The formulas of ``planner.setups.static``. A column of the search asks one arrival rate; the batch
limits that it tries stand in a block of rows of its own beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from planner.kv_cache import heads_per_rank
from planner.memory import stage_share
from planner.setups.base import cap_sequence
from planner.setups.static import CROWD
from planner.workbook.live.board import Column
from planner.workbook.live.expr import (
    X,
    absolute,
    both,
    exp,
    highest,
    least,
    ln,
    lowest,
    most,
    nearest,
    normal_inverse,
    round_up,
    sqrt,
    square,
    total,
    when,
    whole,
    x,
)
from planner.workbook.live.onepool import Tables
from planner.workbook.live.pools import OptionCells, PoolCells
from planner.workbook.live.search import Asked, Rows, Scalars
from planner.workbook.live.seen import LEVELS, Seen
from planner.workbook.live.sizing import size
from planner.workbook.live.step import StepSheet, kept_entries, prefill_pairs

if TYPE_CHECKING:
    from planner.workbook.live.option import OptionSheet

MOST_ROWS = 1024
"""Largest batch that has a row."""
STRIDE = 3
"""Of the batch limits every third is tried."""
BLOCK = 24
"""First column of the blocks of batch limits, counted from that of the search."""
NOTHING = 1e-300
"""Share that stands for none, so that it has a logarithm."""
FAR_OFF = 1e9
"""Stands for a batch size that no row reaches."""


@dataclass(slots=True, eq=False)
class Crowd:
    """The scalars of one rate: the batch it settles at, and how the batches spread."""

    rate: X
    cv2: X
    batch: X
    arriving: X
    spread: X
    busy: X
    levels: dict[str, X] = field(default_factory=dict)

    def size(self, z: X | float, cap: X) -> X:
        """Batch of a level (its z) under a limit."""
        found = round_up(self.arriving + most(z, 0.0) * self.spread)
        return least(cap, most(self.batch, found))


class StaticSheet:
    """Writes an option of static batching.

    Parameters
    ----------
    sheet : OptionSheet
        With its targets and lengths written.
    context, spread : X
        Of the running sequences [token].
    """

    def __init__(self, sheet: OptionSheet, context: X, spread: X) -> None:
        self.sheet, self.board = sheet, sheet.board
        [self.pool] = sheet.pools
        self.targets, self.output = sheet.demand.targets, sheet.output
        self.step: StepSheet = sheet.step(self.pool, context, spread)
        self.tables = Tables(self.board, self.step, sheet.prompt, sheet.output, sheet.demand.hit,
                             str(sheet.rank))
        self.n: Column
        self.decode: Column
        self.prefill: Column
        self.cycle: Column
        self.rate: Column
        self.reached: Column
        self.below: Column
        self.triangle: X
        self.lag: X
        self.limit: X
        self.caps: list[int] = []
        self.rows: Rows
        self.z: dict[str, X] = {}

    def write(self) -> OptionCells:
        """Fill the sheet."""
        b, rank = self.board, str(self.sheet.rank)
        self._limits()
        self._sizes()
        self.triangle = self._triangle()
        self.rows = Rows(self.tables, b.row + 3)
        self._levels()
        b.heading("Replicas", "The search stands to the right: each column asks one rate, and "
                  "each batch limit under it has a row of the block beside it.")
        ceiling = b.line("No replica carries more than", 1.02 * most(highest(
            (self.n.all <= self.limit) * self.rate.all), 1e-9), "1/s", "", "three")
        found = size(self.rows, self.pool.load, ceiling, self._ask, f"serve_{rank}")
        peak = found.peak
        seen = self._seen(peak)
        batch = peak.cells["batch"]
        b.heading("Time of a request")
        prefill = b.line("Prefill of a request", self.at(self.prefill, batch) / batch, "s", "",
                         "six", name=f"prefill_work_{rank}")
        decode = b.line("Decode of a request", self.output.mean * self.at(self.decode, batch)
                        / batch, "s", "", "six", name=f"decode_work_{rank}")
        b.row = max(b.row, self.rows.top + (len(self.caps) + 1) * 21 + 3)
        pool = PoolCells(self.pool, found, self.step, (prefill, decode))
        return OptionCells([pool], seen, peak.cells["limit"])

    # -- tables -----------------------------------------------------------------------------------

    def _limits(self) -> None:
        """Most sequences: each may need the cache of its 99th percentile."""
        b, d, s = self.board, self.pool.deployment, self.step
        prompt = self.sheet.prompt
        self.tables.new = self.tables.beside("New [tokens]", most(
            prompt.tokens.each * (1.0 - self.sheet.demand.hit), 1.0), "one")
        o = self.output
        self.reached = self.tables.beside("ln of the answers' share reached", ln(
            o.reached.each + NOTHING), "six")
        self.below = self.tables.beside("ln of the share below", ln(
            absolute(o.reached.each - o.share.each) + NOTHING), "six")
        b.heading("Static batching")
        self.new = b.line("New prompt tokens, mean", total(
            prompt.share.all * self.tables.new.all), "tokens", "", "one")
        self.cached = b.line("Cached prompt tokens, mean", prompt.mean - self.new, "tokens", "",
                             "one")
        engine = self.step.hardware.engine
        self.lag = b.line("Beside the prefill, mean", engine["request_ms"] * 0.001
                          + engine["first_steps"] * self.tables.alone()
                          + engine["prompt_token_us"] * 1e-6 * prompt.mean, "s", "", "six")
        longest = b.line("Context that is kept free for each", prompt.quantile(x(0.99))
                         + self.output.quantile(x(0.99)), "tokens", "prompt and output at their "
                         "99th percentiles", "one")
        size = x(d.llm.state_bytes_per_sequence / d.layout.tensor)
        for count, stream in d.llm.streams():
            share = heads_per_rank(stream.heads, d.layout.tensor) / stream.heads
            entry = stream.values_per_entry * stream.value_bytes(d.kv) * share
            size = size + kept_entries(stream, longest) * (count * entry)
        each = b.line("Cache kept for each", size * (
            stage_share(d.llm.layers, d.layout.pipeline) / 2.0**30), "GiB", "", "six")
        held = whole(most(s.pool_gib, 0.0) / most(each, 1e-12)) * float(d.layout.data)
        self.limit = b.line("Most sequences of a batch", least(
            s.memory_cap, when(each > 0.0, held, 1e6)), "", "", "count")

    def _sizes(self) -> None:
        """Prefill, decode step and cycle over the batch sizes."""
        b, s, t = self.board, self.step, self.tables
        top = min(self.pool.most_sequences, MOST_ROWS)
        self.caps = list(cap_sequence(top)[::STRIDE])
        values = np.arange(1.0, top + 1.0)
        attention = self._attention()
        b.unprinted.append((b.row + 1, b.row + 4 + len(values)))
        b.heading("Batch sizes", "Not printed.")
        b.columns(["Batch size"])
        b.row += 1
        row = b.row
        self.n = b.named(b.values_down(row, 0, values, "cell", "count"), f"n_{t.tag}")
        self.decode = b.named(t.steps(row, 1, self.n, None), f"step_{t.tag}")
        at = t.cap_free

        def put(label: str, e: X, style: str = "six") -> Column:
            nonlocal at
            b.page.write(row - 1, at, label, "count", "header")
            made = b.down(row, at, e, len(values), "cell", style)
            at += 1
            return made

        tokens = put("Prompt tokens of the batch", self.n.each * self.new, "one").each
        filled = put("Filled rows of the prefill", s.filled(tokens), "one").each
        seconds = s.weights_time(filled, s.filled(self.n.each))
        for one in s.experts:
            hit, _ = s.expert_seconds(one, tokens)
            hit_c = put("Experts touched", hit, "three").each
            every = tokens * float(s.deployment.layout.data)
            per = put("Rows of each", every * one.active / most(hit_c * float(one.experts), 1e-12),
                      "one").each
            seconds = seconds + s.expert_time(one, tokens, hit_c, per)
        if s.streams:
            seconds = seconds + self.n.each * attention
        if s.state_token is not None and s.state_prompt is not None:
            seconds = seconds + most(s.state_token * tokens, s.state_prompt * self.n.each)
        if s.comm.text != "0":
            seconds = seconds + s.comm * tokens
        self.prefill = b.named(put("Prefill of the batch [s]", seconds + s.sequence * self.n.each
                                   + s.fixed), f"prefill_{t.tag}")
        longest = put("Longest answer, mean [tokens]", self._longest(), "one")
        self.cycle = b.named(put("Cycle [s]", self.prefill.each + longest.each
                                 * self.decode.each), f"cycle_{t.tag}")
        self.rate = put("Requests per second [1/s]", self.n.each / self.cycle.each)
        b.row = row + len(values)

    def _attention(self) -> X:
        """Attention of the prefill of one prompt of mean length [s]."""
        b, s = self.board, self.step
        if not s.streams:
            return x(0.0)
        pairs = [b.line(f"Query-entry pairs of a prompt: {one.stream.name}", prefill_pairs(
            one.stream, self.new, self.cached), "", "", "count") for one in s.streams]
        kept: list[X | None] = [kept_entries(one.stream, self.cached) for one in s.streams]
        return b.line("Attention of a prompt", s.prefill_attention(pairs, kept, self.new), "s", "",
                      "science")

    def _longest(self) -> X:
        """E[longest of n answers] [token] = sum of x (F(x)^n - F(x-)^n)."""
        tokens, n = self.output.tokens.all, self.n.each
        power = n.value[:, None]
        value = (np.exp(power * self.reached.value) - np.exp(power * self.below.value)
                 ) @ tokens.value
        return X(f"SUMPRODUCT({tokens.text}*(EXP({n.text}*{self.reached.all.text})"
                 f"-EXP({n.text}*{self.below.all.text})))", value)

    def _triangle(self) -> X:
        """Ones below the diagonal: times a column it gives the sums above each row."""
        b, count = self.board, len(self.output.tokens.value)
        values = np.tril(np.ones((count, count)), -1)
        b.unprinted.append((b.row + 1, b.row + 3 + count))
        b.heading("Ones below the diagonal", "Not printed. Times a column of the output lengths "
                  "they sum up what stands above each row.")
        row = b.row
        first = last = ""
        for place in range(count):
            made = b.values_down(row, place, values[:, place], "count")
            first = first or f"${made.letter}${made.first}"
            last = f"${made.letter}${made.last}"
        b.row = row + count
        name = f"above_{self.tables.tag}"
        b.define(name, f"{first}:{last}")
        return X(name, values)

    @staticmethod
    def at(column: Column, size: X) -> X:
        """A column at a batch size, or at that of each row of a block."""
        places = np.clip(np.asarray(size.value), 1, len(column.value)).astype(int) - 1
        return X(f"INDEX({column.all.text},{size.text})", column.value[places])

    # -- one rate ---------------------------------------------------------------------------------

    def _levels(self) -> None:
        """z of each level that is asked."""
        b, t = self.board, self.targets
        b.heading("Levels")
        self.z["crowd"] = b.line("z of the batches waited for", normal_inverse(x(CROWD)), "",
                                 f"the {100 * CROWD:g}th percentile", "general")
        levels = {"tpot": t.tpot_level, "itl": t.itl_level, "e2e": t.e2e_level}
        for name, level in levels.items():
            if level is not None:
                self.z[name] = b.line(f"z of the level of {name}", normal_inverse(level), "", "",
                                      "general")

    def _ask(self, column: int, rate: X, cv2: X, limit: X | None) -> tuple[Asked, X]:
        put = Scalars(self.rows, column)
        one = Asked(column, put("Requests per second [1/s]", rate), put("Arrival CV²", cv2))
        crowd = self._crowd(put, one)
        one.cells.update(batch=crowd.batch)
        if limit is not None:
            one.cells["limit"] = put("Batch limit", most(limit, 1.0))
            one.cells["crowd"] = crowd.arriving
            self.peak = crowd
            return one, x(1.0)
        found = self._block(column, one, crowd)
        one.cells["limit"] = put("Batch limit", found)
        return one, put("Holds", when(found > 0.0, 1.0, 0.0))

    def _crowd(self, put: Scalars, one: Asked) -> Crowd:
        """The batch at a rate, and the requests that come in the cycle that one of them meets."""
        reached = lowest(self.n.all + FAR_OFF * (self.rate.all < one.rate))
        batch = put("First batch that keeps up", least(reached, float(self.n.value[-1])))
        share = self._share(batch)
        cycle = self.at(self.prefill, batch) + self.output.tokens.all * self.at(
            self.decode, batch)
        first_ = put("Cycle, mean [s]", total(share * cycle))
        met = put("Cycle that is met, mean [s]", total(share * square(cycle)) / first_)
        third = put("The same squared, mean [s²]", total(share * cycle ** 3) / first_)
        arriving = put("Requests that come in it", one.rate * met + most(one.cv2 - 1.0, 0.0) / 2.0)
        spread = put("Their spread", sqrt(arriving * most(one.cv2, 1.0) + square(one.rate) * most(
            third - square(met), 0.0)))
        busy = put("Share of time that a batch runs", least(
            one.rate * self.at(self.cycle, batch), 1.0))
        return Crowd(one.rate, one.cv2, batch, arriving, spread, busy)

    def _share(self, batch: X) -> X:
        """Share of the batches whose longest answer is that of each row, as a range."""
        return exp(batch * self.reached.all) - exp(batch * self.below.all)

    def _within(self, put: Scalars, crowd: Crowd, level: X, label: str) -> X:
        """The level of the rest of a cycle among those who meet one."""
        return put(f"Level among those who meet a batch{label}", most(
            (level - (1.0 - crowd.busy)) / most(crowd.busy, 1e-12), 0.0))

    def _rest(self, many: X, prefill: X, decode: X, cycle: X, within: X) -> X:
        """Rest of a running cycle at a level [s]: the inverse of E[min(C, t)] / E[C], which is
        the lowest of its lines, so the highest of theirs."""
        mass = self._share(many) * (prefill + self.output.tokens.all * decode)
        above = X(f"MMULT({self.triangle.text},{mass.text})", self.triangle.value @ mass.value)
        left = 1.0 - exp(many * self.below.all)
        return highest((left > 1e-9) * (within * cycle - above) / (left + (left <= 1e-9)))

    def _block(self, column: int, one: Asked, crowd: Crowd) -> X:
        """The batch limits at a rate, a row each; the largest that holds every target."""
        b, place = self.board, column - self.rows.far - 1
        top = self.rows.top + place * (len(self.caps) + 1)
        at = self.rows.far + BLOCK
        count = len(self.caps)
        caps = b.values_down(top, at, self.caps, "count")

        def put(label: str, e: X) -> Column:
            nonlocal at
            at += 1
            b.page.write(top - 1, at, label, "count", "header")
            return b.down(top, at, e, count, "general")

        b.page.write(top - 1, at, f"Limits of column {place + 1}", "count", "header")
        cap = caps.each
        cycle = put("Cycle [s]", self.at(self.cycle, cap))
        load = put("Load", one.rate * cycle.each / cap)
        queue = put("Wait beyond the cycle [s]", when(load.each < 1.0, cycle.each * load.each ** (
            sqrt(2.0 * (cap + 1.0)) - 1.0) / (cap * most(1.0 - load.each, 1e-12)) * (
            (most(one.cv2, 0.0) + 1.0) / 2.0), FAR_OFF))
        many = put("Batch waited for", crowd.size(self.z["crowd"], cap))
        prefill = put("Its prefill [s]", self.at(self.prefill, many.each))
        decode = put("Its step [s]", self.at(self.decode, many.each))
        mean = put("Its cycle [s]", self.at(self.cycle, many.each))
        t, scalars = self.targets, Scalars(self.rows, column)
        tests = [caps.each <= self.limit, load.each <= 1.0]

        def first(level: X, label: str) -> Column:
            within = self._within(scalars, crowd, level, label)
            cells = [[X(c.each.text, float(c.value[i])) for c in (many, prefill, decode, mean)]
                     for i in range(count)]
            rests = [self._rest(m, p, d, c, within) for m, p, d, c in cells]
            rest = put(f"Rest of a cycle{label} [s]", X(rests[0].text, np.array(
                [r.value for r in rests])))
            return put(f"First token{label} [s]", rest.each - queue.each * ln(1.0 - level)
                       + self._first(prefill.each))

        def token(name: str, label: str) -> Column:
            size = put(f"Batch{label}", crowd.size(self.z[name], cap))
            return put(f"Token{label} [s]", self.at(self.decode, size.each))

        tests.append(first(t.ttft_level, "").each <= t.ttft)
        tests.append(token("tpot", "").each <= t.tpot)
        if t.itl is not None:
            tests.append(token("itl", ", gap").each <= t.itl)
        if t.e2e is not None and t.e2e_level is not None:
            tokens = scalars("Tokens after the first, at the level of the request", most(
                self.output.quantile(t.e2e_level) - 1.0, 0.0))
            late = first(t.e2e_level, ", whole request").each
            tests.append(late + token("e2e", ", whole request").each * tokens <= t.e2e)
        holds = put("Holds", when(both(*tests), 1.0, 0.0))
        return highest(caps.all * holds.all)

    def _first(self, prefill: X) -> X:
        return prefill * self.step.hardware.engine["ttft_scale"] + self.lag

    def _each(self, column: Column, size: X) -> X:
        """A column at the batch size of each row of a block."""
        values = np.interp(size.value, self.n.value, column.value)
        return X(self.at(column, X(size.text, 1.0, size.binds)).text, values)

    # -- what users see -------------------------------------------------------------------------

    def _seen(self, peak: Asked) -> Seen:
        """Latencies at the peak under the planned limit."""
        b, t, c = self.board, self.targets, peak.cells
        crowd, rank = self.peak, self.sheet.rank
        b.heading("Latencies at the peak")
        cap = c["limit"]
        cycle = b.line("Cycle at the limit", self.at(self.cycle, cap), "s", "", "six")
        load = b.line("Load", least(peak.rate * cycle / cap, 1.0 - 1e-9), "", "", "six")
        queue = b.line("Wait beyond the cycle, mean", cycle * load ** (
            sqrt(2.0 * (cap + 1.0)) - 1.0) / (cap * (1.0 - load)) * (
            (most(peak.cv2, 0.0) + 1.0) / 2.0), "s", "", "six")
        many = b.line("Batch waited for", crowd.size(self.z["crowd"], cap), "", "", "count")
        prefill = b.line("Its prefill", self.at(self.prefill, many), "s", "", "six")
        decode = b.line("Its step", self.at(self.decode, many), "s", "", "six")
        whole_ = b.line("Its cycle", self.at(self.cycle, many), "s", "", "six")
        first = b.line("Its first tokens", self._first(prefill), "s", "", "six")
        times = prefill + self.output.tokens.all * decode
        rest = b.line("Rest of a running cycle, mean", total(
            self._share(many) * square(times)) / (2.0 * whole_), "s", "", "six")
        b.columns(["", "Mean", "Target", *(f"p{100 * p:g}" for p in LEVELS)])
        b.page.write(b.row, 0, "Latency", "text", "header")
        b.row += 1
        top = b.row
        for place, name in enumerate(("Time to first token [s]", "Time per output token [s]",
                                      "Whole request [s]")):
            b.page.write(top + place, 0, name, "cell", "text")
        b.row = top + 3

        def ttft(row: int, column: int, level: X) -> X:
            within = b.put(row, column, most((level - (1.0 - crowd.busy)) / most(
                crowd.busy, 1e-12), 0.0), "cell", "percent1")
            rest = b.put(row + 1, column, self._rest(many, prefill, decode, whole_, within),
                         "cell", "six")
            return rest - queue * ln(1.0 - level) + first

        def tpot(level: X) -> X:
            return self.at(self.decode, crowd.size(normal_inverse(level), cap))

        token = self.at(self.decode, crowd.size(x(0.0), cap))
        found: list[list[X]] = [
            [b.put(top, 1, crowd.busy * rest + queue + first, "cell", "six")],
            [b.put(top + 1, 1, token, "cell", "six")]]
        found.append([b.put(top + 2, 1, found[0][0] + found[1][0] * most(
            self.output.mean - 1.0, 0.0), "cell", "six")])
        whole_level = self.sheet.demand.whole_level
        for place, text in enumerate(("Level among those who meet a batch", "Rest of a cycle [s]",
                                      "The same for the whole request", "Rest of a cycle [s]",
                                      "First token at that level [s]")):
            b.page.write(top + 4 + place, 0, text, "cell", "text")
        for place, level in enumerate((None, *LEVELS), start=2):
            own = [(t.ttft_level, t.tpot_level, whole_level)[i] if level is None else x(level)
                   for i in range(3)]
            names = [f"{m}_s_{rank}" if level is None else "" for m in ("ttft", "tpot", "e2e")]
            late = b.put(top + 8, place, ttft(top + 6, place, own[2]), "cell", "six")
            e2e = late + tpot(own[2]) * most(self.output.quantile(own[2]) - 1.0, 0.0)
            for i, e in enumerate((ttft(top + 4, place, own[0]), tpot(own[1]), e2e)):
                found[i].append(b.put(top + i, place, e, "cell", "six", name=names[i]))
        b.row = top + 9
        itl = None if t.itl_level is None else b.line(
            "Gap between tokens at its level", tpot(t.itl_level), "s", "", "six",
            name=f"itl_s_{rank}")
        return Seen(found[0], found[1], found[2], nearest(crowd.batch), itl)
