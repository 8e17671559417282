"""Batch limits and batch sizes of one deployment as columns: what a decode step takes."""

from __future__ import annotations

import numpy as np

from planner.setups.base import cap_sequence
from planner.workbook.live.bins import bins, jumps_of
from planner.workbook.live.board import Column
from planner.workbook.live.chunk_tables import ChunkTables
from planner.workbook.live.expr import X, most, square


class Tables(ChunkTables):
    """Columns over the prompts, the batch limits and the batch sizes of one deployment.

    The layout is that of ``planner.setups.continuous``: a chain over batch sizes beside a prefill
    server. A column of the search asks one arrival rate; its cells stand on the rows of the tables
    they belong to (prompts, batch limits, batch sizes), its scalars below.
    """

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
