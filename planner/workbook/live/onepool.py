"""Colocated and chunked batching, and decode pools, as a sheet: tables, search, percentiles.

The layout is that of ``planner.setups.continuous``: a chain over batch sizes beside a prefill
server. A column of the search asks one arrival rate; its cells stand on the rows of the tables
they belong to (prompts, batch limits, batch sizes), its scalars below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.requests import Layout
from planner.roofline import Deployment, StepModel
from planner.setups.base import cap_sequence
from planner.steps import StepTimes
from planner.workbook.fast import letters
from planner.workbook.live.board import Board, Column
from planner.workbook.live.expr import (
    X,
    least,
    most,
    square,
    total,
    when,
    x,
)
from planner.workbook.live.lengths import LISTED, LISTED_COLUMNS, LengthRows
from planner.workbook.live.step import StepSheet, kept_entries, prefill_pairs
from planner.workload import REFERENCE_TOKENS

STEPS = 12
"""Tries of the highest rate: to 0.1 % where it is in the first octaves below the ceiling, else to
0.3 %; the whole numbers of replicas beside it are asked exactly."""
EXACT, MORE_STEPS = 250.0, 8
"""Replicas of a plan up to which no more tries are made, and how many more at most."""
OCTAVES, FIRST_OCTAVES = 12, 3
"""Octaves below the ceiling in which it is sought, and of the first try."""
HALVINGS = 20
"""Bisections of a percentile."""
SHORT_HALVINGS = 17
"""Bisections of a percentile that a rate is asked for."""
SINGLE = 64
"""Batch sizes up to this have a row of their own."""
JUMP = 1e-3
"""Share by which a step must jump for a row of batch sizes to end there."""
FAR = 30
"""First column of the search."""
NEVER_S = 1e9
"""[s] that stands for no target."""


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Limits [s] and levels of the latency targets, as cells."""

    ttft: X
    ttft_level: X
    tpot: X
    tpot_level: X
    e2e: X | None = None
    e2e_level: X | None = None
    itl: X | None = None
    itl_level: X | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What a pool is asked for: the peak of a region, the target load, burstiness."""

    rate: X
    utilization: X
    cv: X
    limit: X
    """Most replicas that the GPUs of a region allow."""
    carried: float = 0.0
    """[1/s] what the planner found that a replica carries, where a search looks first; 0: unknown.
    """
    planned: float = 0.0
    """Replicas of the plan without spares; 0: unknown."""

    @property
    def steps(self) -> int:
        """Tries of the highest rate: more for a fleet of many replicas, so that their number is
        exact up to several times those of the plan."""
        more = math.ceil(math.log2(max(self.planned / EXACT, 1.0)))
        return STEPS + min(more, MORE_STEPS)


@dataclass(slots=True, eq=False)
class Wait:
    """A wait as cells: chance, mean and mean of squares."""

    busy: X
    mean: X
    second: X

    def plus(self, put: Any, other: Wait, of: str = "") -> Wait:
        """The sum of two independent waits (``queueing.Wait.__add__``)."""
        return Wait(put(f"Share that waits{of}", 1.0 - (1.0 - self.busy) * (1.0 - other.busy)),
                    put(f"Wait{of}, mean [s]", self.mean + other.mean),
                    put(f"Wait{of}, mean of squares [s²]",
                        self.second + other.second + 2.0 * self.mean * other.mean))

    def shape_scale(self, put: Any, of: str = "") -> tuple[X, X]:
        """Gamma shape and scale of the wait of those who wait, as two cells."""
        chance = most(self.busy, 1e-15)
        mean = put(f"Mean wait of those who wait{of} [s]", most(self.mean, 1e-12) / chance)
        swing = put(f"Its variance{of} [s²]", most(self.second / chance - square(mean),
                                                  1e-6 * square(mean)))
        return (put(f"Gamma shape{of}", square(mean) / swing),
                put(f"Gamma scale{of} [s]", swing / mean))


def mg1(put: Any, rate: X, first: X, second: X, third: X, cv2: X) -> tuple[Wait, X]:
    """M/G/1 wait (``planner.queueing.mg1_wait``) as cells, and the load."""
    rho = put("Prefill load", rate * first)
    idle = most(1.0 - rho, 1e-6)
    spread = most(second / square(first) - 1.0, 0.0)
    smooth = put("Smoothness factor", (least(cv2, 1.0) + spread) / (1.0 + spread))
    ahead = put("Ahead in a burst, mean", most(cv2 - 1.0, 0.0) / 2.0)
    of_batch = put("Wait for them [s]", ahead * first)
    mean = put("Wait for other bursts, mean [s]",
               rate * (second + 2.0 * of_batch * first) / (2.0 * idle) * smooth)
    jobs = put("Service of a burst, mean of cubes [s³]",
               third + 6.0 * of_batch * (second + of_batch * first))
    square_ = put("Wait for the prefill, mean of squares [s²]",
                  2.0 * square(mean) + rate * jobs / (3.0 * idle) * smooth
                  + 2.0 * mean * of_batch + ahead * second + 2.0 * square(of_batch))
    return Wait(1.0 - most(1.0 - rho, 0.0) / (1.0 + ahead),
                put("Wait for the prefill, mean [s]", mean + of_batch), square_), rho


def rank_wait(put: Any, layout: Layout, rate: X, first: X, second: X, third: X, cv2: X,
              shared: float = 0.0) -> tuple[Wait, X]:
    """Wait for the prefills of a data-parallel rank (``Table.wait``), and its load."""
    ranks = float(layout.data)
    if ranks > 1.0:
        rate, cv2 = rate / ranks, 1.0 + (cv2 - 1.0) / ranks
        first, second, third = first * ranks, second * ranks**2, third * ranks**3
    wait, rho = mg1(put, rate, first, second, third, cv2)
    if not shared:
        return wait, rho
    longer = put("Longer by prompts of the same pass",
                 1.0 + shared * least(rho, 1.0) / (1.0 + least(rho, 1.0)))
    return Wait(wait.busy, put("Wait with them, mean [s]", wait.mean * longer),
                put("Wait with them, mean of squares [s²]", wait.second * square(longer))), rho


def bins(top: int, held: float, fine: bool = False, jumps: frozenset[int] = frozenset()
         ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Upper ends and widths of the rows of batch sizes: single ones, then some of the spread.

    A row is not wider than 0.75 of the square root of its batch size: the number of running
    sequences spreads by at least the square root of its mean. Where nothing but the batch size
    moves TPOT (``fine``), rows are half as wide. Beyond twice what the memory held when the
    workbook was written (``held``) they are twice as wide. A row ends where the step jumps
    (``jumps``).
    """
    share = 0.36 if fine else 0.75
    ends: list[int] = []
    n = 0
    caps = cap_sequence(top)
    for cap in (*caps, *((top,) if caps[-1] != top else ())):
        octave = 2 ** int(math.log2(max(cap - 1, 1)))
        width = max(1, 2 ** int(math.log2(max(share * math.sqrt(octave), 1.0))))
        width = width * 2 if octave > 2.0 * held else width
        if cap <= SINGLE:
            width = 1
        while n < cap:
            step = min(width, cap - n)
            ends += [size for size in range(n + 1, n + step) if size in jumps]
            n += step
            ends.append(n)
    found = np.array(ends, dtype=float)
    return found, np.diff(found, prepend=0.0)


def jumps_of(deployment: Deployment, context: float, top: int) -> frozenset[int]:
    """Batch sizes after which a decode step at a mean context [token] gets longer at once, by
    :data:`JUMP` of itself more than beside it: tiles of a product are full."""
    sizes = np.arange(1.0, top + 2.0)
    seconds = StepTimes.of(StepModel.of(deployment)).seconds(decodes=sizes, context=context)
    gain = np.diff(seconds) / seconds[:-1]
    usual = np.minimum(np.roll(gain, 1), np.roll(gain, -1))
    return frozenset(sizes[:-1][gain - usual > JUMP].astype(int).tolist())


@dataclass(slots=True, eq=False)
class Tables:
    """Columns over the prompts, the batch limits and the batch sizes of one deployment."""

    board: Board
    step: StepSheet
    prompt: LengthRows
    output: LengthRows
    hit: X
    tag: str
    budget: int | None = None
    new: Column = field(init=False)
    prefill: Column = field(init=False)
    pairs: list[X] = field(init=False)
    kept: list[X] = field(init=False)
    lag: Column = field(init=False)
    first: Column = field(init=False)
    cap: Column = field(init=False)
    cap_step: Column = field(init=False)
    end: Column = field(init=False)
    width: Column = field(init=False)
    n: Column = field(init=False)
    seconds: Column = field(init=False)
    variance: Column = field(init=False)
    extra: dict[str, Column] = field(default_factory=dict)
    moments: dict[str, X] = field(default_factory=dict)
    top: int = 0
    free: int = 8
    cap_free: int = 4
    extra_free: int = 0

    # -- prompts --------------------------------------------------------------------------------

    def prompts(self) -> None:
        """Prefill of each row of the prompt lengths, beside them."""
        s = self.step
        self.new = self.beside("New [tokens]", most(self.prompt.tokens.each * (1.0 - self.hit),
                                                     1.0), "one")
        cached = self.beside("Cached [tokens]", self.prompt.tokens.each - self.new.each, "one")
        filled = self.beside("Filled rows", s.filled(self.new.each), "one")
        self.pairs = [self.beside("Query-entry pairs", prefill_pairs(
            one.stream, self.new.each, cached.each), "count").each for one in s.streams]
        self.kept = [kept_entries(one.stream, cached.each) for one in s.streams]
        self.prefill = self.beside("Prefill [s]", self._pass_s(
            self.new.each, filled, None, lambda label, e: self.beside(label, e, "three")), "six")
        engine = s.hardware.engine
        alone = self.alone()
        self.lag = self.beside(
            "Beside the prefill [s]", engine["request_ms"] * 0.001 + engine["first_steps"] * alone
            + engine["prompt_token_us"] * 1e-6 * self.prompt.tokens.each, "six")
        self.first = self.beside("First token, idle [s]", self.prefill.each
                                  * engine["ttft_scale"] + self.lag.each, "six")

    def alone(self) -> X:
        """A decode step with one sequence a rank."""
        b, s, one = self.board, self.step, x(1.0)
        seconds = s.weights_time(s.filled(one), s.filled(one))
        for experts in s.experts:
            hit, rows = s.expert_seconds(experts, one)
            hit = b.line("Share of experts that one sequence touches", hit, "share", "", "six")
            seconds = seconds + s.expert_time(experts, one, hit, rows)
        return b.line("Decode step of one sequence", seconds + s.per_decode() + s.fixed, "s", "",
                      "six")

    def beside(self, label: str, e: X, style: str) -> Column:
        """A column beside the rows of the prompts."""
        b, row = self.board, self.prompt.tokens.first - 1
        made = b.down(row, self.free, e, len(self.prompt.tokens.value), "cell", style)
        b.page.write(row - 1, self.free, label, "count", "header")
        self.free += 1
        return made

    def packed(self, prompts: X) -> Column:
        """Seconds of a pass of several prompts, several columns at once beside the prompts (and
        beside the lists of lengths, where there are any)."""
        self.free = max(self.free, LISTED + LISTED_COLUMNS)
        rows = self.new.each * prompts
        filled = self.aside("Filled rows of a pass", self.step.filled(rows))
        return self.aside("Pass [s]", self._pass_s(rows, filled, prompts, self.aside))

    def aside(self, label: str, e: X) -> Column:
        """The next several columns at once beside the prompts."""
        made = self.packs(self.free, label, e)
        self.free += len(made.value)
        return made

    def packs(self, column: int, label: str, e: X) -> Column:
        """Several columns at once over the prompts."""
        b, row, count = self.board, self.prompt.tokens.first - 1, len(self.prompt.tokens.value)
        b.page.write(row - 1, column, label, "count", "header")
        values = np.array(np.broadcast_to(e.value, (len(e.value), count)))
        b.area(row, column, e.text, values, "cell", "six")
        return Column(letters(column), row + 1, row + count, values, several=True)

    def _pass_s(self, rows: X, filled: Column, prompts: X | None, put: Callable[[str, X], Column]
                ) -> X:
        """Time [s] of the prefill of a prompt, or of several alike in one pass."""
        s, count = self.step, x(1.0) if prompts is None else prompts
        seconds = s.weights_time(filled.each, s.filled(count))
        for one in s.experts:
            hit, per = s.expert_seconds(one, rows)
            hit_c = put("Experts touched", hit)
            per_c = put("Rows of each", X(per.text.replace(hit.text, hit_c.each.text), per.value))
            seconds = seconds + s.expert_time(one, rows, hit_c.each, per_c.each)
        if s.streams:
            seconds = seconds + s.prefill_attention(self.pairs, self.kept, self.new.each, prompts)
        if s.state_token is not None and s.state_prompt is not None:
            seconds = seconds + most(s.state_token * rows, s.state_prompt * count)
        if s.comm.text != "0":
            seconds = seconds + s.comm * rows
        return seconds + s.sequence * count + s.fixed

    # -- batch sizes ----------------------------------------------------------------------------

    def sizes(self, top: int, scale: X | None = None) -> None:
        """Batch limits and batch sizes with their step times."""
        b = self.board
        self.top = top
        ends, widths = bins(top, float(self.step.memory_cap.value), scale is not None, jumps_of(
            self.step.deployment, float(self.step.context.value), top))
        caps = np.array(cap_sequence(top), dtype=float)
        b.unprinted.append((b.row, b.row))  # a new page, which holds the table with its header
        b.heading("Batch limits", "The limits that the planner tries.")
        b.columns(["Batch limit"])
        b.row += 1
        row = b.row
        self.cap = b.named(b.values_down(row, 0, caps, "cell", "count"), f"limit_{self.tag}")
        self.cap_step = self.steps(row, 1, self.cap, scale)
        if self.budget is not None:
            self._mixed(row, caps)
        b.row = row + len(caps)
        b.unprinted.append((b.row + 1, b.row + 4 + len(ends)))
        b.heading("Batch sizes", "A row is a batch size, or several with alike step times. "
                  "Not printed.")
        b.columns(["Up to batch size", "Sizes in the row", "Batch size"])
        b.row += 1
        row = b.row
        self.end = b.named(b.values_down(row, 0, ends, "cell", "count"), f"upto_{self.tag}")
        self.width = b.named(b.values_down(row, 1, widths, "cell", "count"), f"sizes_{self.tag}")
        self.n = b.named(b.down(row, 2, self.end.each - (self.width.each - 1.0) / 2.0, len(ends),
                                "cell", "fraction"), f"n_{self.tag}")
        caps_free = self.cap_free
        made = self.steps(row, 3, self.n, scale)
        self.seconds = b.named(made, f"step_{self.tag}")
        self.extra_free = self.cap_free
        self.cap_free = caps_free
        before = np.concatenate([[0.0], self.seconds.value[:-1]])
        swing = (square(self.seconds.each - X(f"N(${self.seconds.letter}{{p}})", before)) / 12.0
                 * (self.width.each > 1.0))
        self.variance = b.named(self._sized("Spread² in the row [s²]", swing, "science"),
                                f"var_{self.tag}")
        if self.budget is not None:
            self._mixed_sizes(caps, ends, widths)
        b.row = row + len(ends)

    def _sized(self, label: str, e: X, style: str) -> Column:
        row = self.n.first - 1
        made = self.board.down(row, self.extra_free, e, len(self.n.value), "cell", style)
        self.board.page.write(row - 1, self.extra_free, label, "count", "header")
        self.extra_free += 1
        return made

    def steps(self, row: int, first: int, n: Column, scale: X | None) -> Column:
        """Columns of a decode step over the rows of ``n``; the last is its time."""
        b, s, count = self.board, self.step, len(n.value)
        at = first

        def put(label: str, e: X, style: str) -> Column:
            nonlocal at
            b.page.write(row - 1, at, label, "count", "header")
            made = b.down(row, at, e, count, "cell", style)
            at += 1
            self.cap_free = at
            return made

        tokens = n.each
        if s.ways != 1:
            tokens = put("Sequences of a rank", s.decodes(n.each), "one").each
        filled = put("Filled rows", s.filled(tokens), "one").each
        seconds = s.weights_time(filled, filled)
        for one in s.experts:
            hit, _ = s.expert_seconds(one, tokens)
            hit_c = put("Experts touched", hit, "three").each
            every = tokens * float(s.deployment.layout.data)
            per = put("Rows of each", every * one.active / most(hit_c * float(one.experts), 1e-12),
                      "one").each
            seconds = seconds + s.expert_time(one, tokens, hit_c, per)
        seconds = seconds + tokens * s.per_decode() + s.fixed
        return put("Step [s]", seconds if scale is None else scale * seconds, "six")

    # -- chunks ---------------------------------------------------------------------------------

    def _mixed(self, row: int, caps: np.ndarray[Any, Any]) -> None:
        """Steps with a chunk beside the batch limits (``chunked.Chunked._mixed``)."""
        b, s, count = self.board, self.step, len(caps)
        assert self.budget is not None
        at = self.cap_free

        def put(label: str, e: X, style: str) -> Column:
            nonlocal at
            b.page.write(row - 1, at, label, "count", "header")
            made = b.down(row, at, e, count, "cell", style)
            at += 1
            self.cap_free = at
            return made

        n = self.cap.each
        space = put("Room [tokens]", most(float(self.budget) - n, 1.0), "count")
        chunk = put("Chunk [tokens]", least(space.each, self.chunk(n)), "one")
        prompts = put("Prompts of a chunk", most(
            chunk.each / self.moments["longest"], 1.0), "three").each
        before = self.moments["cached"] + most(self.moments["longest"] - chunk.each, 0.0) / 2.0
        cached = put("Before it [tokens]", before, "one")
        own = s.decodes(n)
        rows = put("Rows", own + chunk.each, "one")
        filled = put("Filled rows", s.filled(rows.each), "one")
        seconds = s.weights_time(filled.each, s.filled(own))
        for one in s.experts:
            hit, _ = s.expert_seconds(one, rows.each)
            hit_c = put("Experts touched", hit, "three").each
            every = rows.each * float(s.deployment.layout.data)
            more = put("Rows of each", every * one.active / most(hit_c * float(one.experts), 1e-12),
                      "one").each
            seconds = seconds + s.expert_time(one, rows.each, hit_c, more)
        part = put("Of each [tokens]", chunk.each / prompts, "one").each
        pairs = [put("Query-entry pairs", prefill_pairs(one.stream, part, cached.each),
                     "count").each for one in s.streams]
        kept: list[X | None] = [kept_entries(one.stream, cached.each) for one in s.streams]
        seconds = seconds + own * s.attention + s.sequence * (own + prompts) + s.fixed
        if s.streams:
            seconds = seconds + s.prefill_attention(pairs, kept, part, prompts)
        if s.state_token is not None and s.state_prompt is not None:
            seconds = seconds + most(s.state_token * rows.each, s.state_prompt * (own + prompts))
        if s.comm.text != "0":
            seconds = seconds + s.comm * rows.each
        mixed = put("Step with a chunk [s]", most(seconds, self.cap_step.each), "six")
        self.extra["cap_space"], self.extra["cap_chunk"] = space, chunk
        self.extra["cap_mixed"] = mixed
        per = self.extra["cap_per_token"] = put("Extra a prompt token [s]", (
            mixed.each - self.cap_step.each) / chunk.each, "science")
        self.extra["cap_closed"] = put("Full at [s per token]", per.each
                                       + self.cap_step.each / space.each, "science")

    def chunk(self, n: X) -> X:
        """Prompt tokens beside ``n`` decodes where the budget leaves room
        (``chunked.Columns.of_budgets``)."""
        m = self.moments
        return most(m["longest"], 1.0) + n * (m["new"] / self.output.mean)

    def _mixed_sizes(self, caps: np.ndarray[Any, Any], ends: np.ndarray[Any, Any],
                     widths: np.ndarray[Any, Any]) -> None:
        """The same over the batch sizes, linear between the limits."""
        assert self.budget is not None
        middle = ends - (widths - 1.0) / 2.0
        low = np.clip(np.searchsorted(caps, middle, side="right") - 1, 0, max(len(caps) - 2, 0))
        high = np.minimum(low + 1, len(caps) - 1)
        part = np.clip((middle - caps[low]) / np.maximum(caps[high] - caps[low], 1.0), 0.0, 1.0)
        b, source = self.board, self.extra["cap_mixed"]
        row = self.n.first - 1
        b.page.write(row - 1, self.extra_free, "Step with a chunk [s]", "count", "header")
        values = source.value[low] + part * (source.value[high] - source.value[low])
        for i, (lo, hi, share, value) in enumerate(zip(low, high, part, values, strict=True)):
            text = source.row(int(lo)).text
            if share > 0:
                other = source.row(int(hi)).text
                text = other if share == 1 else f"{text}+({other}-{text})*{x(share).text}"
            b.put(row + i, self.extra_free, X(text, float(value)), "cell", "six")
        mixed = Column(xl_col_to_name(self.extra_free), row + 1, row + len(ends), values)
        self.extra_free += 1
        self.extra["mixed"] = mixed
        space = most(float(self.budget) - self.n.each, 1.0)
        chunk = least(space, self.chunk(self.n.each))
        per = self._sized("Extra a prompt token [s]", most(
            mixed.each - self.seconds.each, 0.0) / chunk, "science")
        self.extra["per_token"] = self.board.named(per, f"extra_{self.tag}")
        closed = self._sized("Full at [s per token]", per.each + self.seconds.each / space,
                             "science")
        self.extra["closed"] = closed

    def write_moments(self) -> None:
        """Means over the prompts that the queue needs."""
        b, share = self.board, self.prompt.share.all
        new = self.new.all
        self.moments["new"] = b.line("New prompt tokens, mean", total(share * new), "tokens", "",
                                     "one")
        self.moments["new2"] = b.line("New prompt tokens, mean of squares",
                                      total(share * square(new)), "tokens²", "", "count")
        self.moments["new3"] = b.line("New prompt tokens, mean of cubes",
                                      total(share * new ** 3), "tokens³", "", "science")
        self.moments["longest"] = b.line("Prompt of a token at random",
                                         self.moments["new2"] / self.moments["new"], "tokens",
                                         "E[p²] / E[p]", "one")
        self.moments["cached"] = b.line("Cached tokens before it", total(
            share * new * (self.prompt.tokens.all - new)) / self.moments["new"], "tokens", "",
            "one")
        for power, label in ((1, "mean"), (2, "mean of squares"), (3, "mean of cubes")):
            seconds = self.prefill.all if power == 1 else self.prefill.all ** power
            self.moments[f"s{power}"] = b.line(f"Prefill alone, {label}", total(share * seconds),
                                               "s" + ("", "²", "³")[power - 1], "", "science")
        if self.budget is not None:
            self._further()

    def _further(self) -> None:
        """What a prompt takes beyond that of its tokens at their mean depth
        (``chunked.Columns``), and its moments."""
        b, m, share, new = self.board, self.moments, self.prompt.share.all, self.new
        longest = most(m["longest"], 1.0)
        before = m["cached"] + longest
        streams = [s.stream for s in self.step.streams]

        def attention(label: str, cached: X) -> X:
            return b.line(f"Attention of such a prompt, {label}", self.step.prefill_attention(
                [prefill_pairs(s, longest, cached) for s in streams],
                [kept_entries(s, cached) for s in streams], longest), "s", "", "six")

        with_ = attention("as many tokens before it", before)
        without = attention("none before it", x(0.0))
        each = b.line("Of each token before a token", (with_ - without) / (longest * before), "s",
                      "", "science")
        deeper = self.prompt.tokens.each - new.each / 2.0 - (m["cached"] + longest / 2.0)
        further = self.beside("Beyond the mean depth [s]", each * new.each * deeper, "six")
        self.extra["further"] = further
        for name, text, e in (
                ("further_1", "Beyond the mean depth, times tokens, mean", new.all * further.all),
                ("further_2", "Beyond the mean depth, mean of squares", square(further.all)),
                ("further_11", "Beyond the mean depth, times squares of tokens, mean",
                 square(new.all) * further.all),
                ("further_12", "Beyond the mean depth squared, times tokens, mean",
                 new.all * square(further.all)),
                ("further_3", "Beyond the mean depth, mean of cubes", further.all ** 3)):
            m[name] = b.line(text, total(share * e), "", "", "science")

    def write_gaps(self) -> None:
        """Gaps between the tokens of the answers, and of the reference answers
        (``workload.Gaps``)."""
        b, share = self.board, self.output.share.all
        self.moments["overlap"] = b.line(
            "Answers that run together", total(share * self.output.tokens.all * (
                2.0 - 2.0 * self.output.reached.all + share)) / self.output.mean, "",
            "E[min(o, o')] / E[o]")
        b.heading("Gaps between tokens", "Of the answers, and of answers of the same shape with a "
                  f"mean of {REFERENCE_TOKENS:g} tokens, which size a pool too.")
        factor = b.line("Reference answers over the answers", REFERENCE_TOKENS / self.output.mean)
        for tag, scale in (("own", x(1.0)), ("reference", factor)):
            tokens = self.output.tokens.all * scale
            several = b.line(f"Share with several tokens, {tag}", total(
                share * (tokens >= 1.5)), "", "", "percent1")
            kept = when(several > 0.0, x(1.5), x(0.0))
            kept = b.line(f"Tokens that count, {tag}, from", kept, "tokens", "", "one")
            gaps = tokens - 1.0 + (tokens < 2.0) * (2.0 - tokens)
            counted = share * (tokens >= kept) / when(several > 0.0, several, 1.0)
            self.moments[f"gaps_{tag}"] = b.line(f"Gaps, {tag}, mean", total(counted * gaps), "",
                                                 "", "one")
            for power in (1, 2):
                inverse = 1.0 / gaps if power == 1 else 1.0 / square(gaps)
                self.moments[f"inverse{power}_{tag}"] = b.line(
                    f"1 / gaps{'' if power == 1 else '²'}, {tag}, mean", total(counted * inverse),
                    "", "", "science")
