"""The prompts of one deployment as columns: what a prefill and a first token take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from planner.workbook.fast import letters
from planner.workbook.live.board import Board, Column
from planner.workbook.live.expr import X, most, x
from planner.workbook.live.lengths import LISTED, LISTED_COLUMNS, LengthRows
from planner.workbook.live.step import StepSheet, kept_entries, prefill_pairs


@dataclass(slots=True, eq=False)
class PromptTables:
    """Columns over the prompts of one deployment; classes built on this one fill those over batch
    limits and batch sizes."""

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
