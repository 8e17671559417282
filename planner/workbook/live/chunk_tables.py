"""Steps with a chunk of a prompt, beside batch limits and batch sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, least, most, x
from planner.workbook.live.prompt_moments import PromptMoments
from planner.workbook.live.step import kept_entries, prefill_pairs


class ChunkTables(PromptMoments):
    """The same with the columns of chunked prefill."""

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

    def _sized(self, label: str, e: X, style: str) -> Column:
        row = self.n.first - 1
        made = self.board.down(row, self.extra_free, e, len(self.n.value), "cell", style)
        self.board.page.write(row - 1, self.extra_free, label, "count", "header")
        self.extra_free += 1
        return made
