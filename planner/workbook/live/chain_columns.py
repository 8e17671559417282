"""Columns over batch sizes and batch limits that every arrival rate shares."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Self

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.setups.continuous import SLOW_FIRST, SLOW_STRIDE
from planner.setups.disaggregated import ADMISSION_SHARE
from planner.workbook.live.asked import Asked, Rows, Scalars
from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, least, ln, most, square, x
from planner.workbook.live.tables import Tables
from planner.workbook.live.targets import NEVER_S, Targets


def pick_each(column: Column | X, place: Column) -> X:
    """Rows of a range by the places in a column, row by row."""
    source = column if isinstance(column, X) else column.all
    index = place.value.astype(int) - 1
    return X(f"INDEX({source.text},{place.each.text})", np.asarray(source.value)[..., index])


class ChainColumns:
    """The running sequences of one deployment at any arrival rate.

    Parameters
    ----------
    tables : Tables
    targets : Targets
    kind : str
        ``colocated``, ``chunked`` or ``decode``.
    rows : Rows
    slow : bool
        Whether the request has an end-to-end or gap target, so that only the
        first limits and every fourth count.
    wire : X, optional
        [s] that a cache keeps the network cards of a decode replica busy, mean.
    """

    def __init__(self, tables: Tables, targets: Targets, kind: str, rows: Rows,
                 slow: bool = False, wire: X | None = None) -> None:
        self.tables, self.targets, self.kind, self.rows = tables, targets, kind, rows
        self.slow_targets, self.wire = slow, wire
        self.admission_share = ADMISSION_SHARE
        self.titled: set[tuple[int, str]] = set()
        self.whole_label = "of TPOT for the whole request"
        self.logs: Column | None = None
        self.middles: Column | None = None
        self.gains: Column | None = None
        self._prepare()

    def with_targets(self, targets: Targets, rows: Rows) -> Self:
        """The same chain asked for other targets, its columns elsewhere."""
        other = copy(self)
        other.targets, other.rows = targets, rows
        return other

    def put(self, one: Asked) -> Scalars:
        """Writes the single cells of a rate."""
        return Scalars(self.rows, one.column, one.suffix)

    @property
    def ranks(self) -> float:
        """Data-parallel ranks."""
        return float(self.tables.step.deployment.layout.data)

    def _prepare(self) -> None:
        t, b = self.tables, self.tables.board
        caps, count = t.cap, len(t.cap.value)
        row, at = caps.first - 1, t.cap_free

        def put(label: str, e: X, style: str) -> Column:
            nonlocal at
            b.page.write(row - 1, at, label, "count", "header")
            made = b.down(row, at, e, count, "cell", style)
            at += 1
            return made

        places = np.searchsorted(t.end.value, caps.value) + 1.0
        self.place = put("Row of the limit", X(f"MATCH({caps.each.text},{t.end.all.text},0)",
                                               places), "count")
        request = caps.each / (t.output.mean * t.cap_step.each + caps.each * self._per_request())
        self.ceiling = b.named(put("Most requests per second [1/s]", request, "three"),
                               f"most_{t.tag}")
        if self.slow_targets:
            self.asked = put("Asked with whole-request targets", self._asked(), "count")
        if self.kind != "chunked":
            each = t._sized("ln(step / n)", ln(t.seconds.each / t.n.each), "six").each
            gain = t.width.each * each
            self.gains = b.named(t._sized("The same for all sizes", gain, "six"), f"ln_{t.tag}")
            ends = t._sized("Sum of ln(step / n)", X(
                f"N(${xl_col_to_name(t.extra_free)}{{p}})+{self.gains.each.text}",
                np.cumsum(gain.value)), "six")
            self.logs = ends
            self.middles = b.named(t._sized("The same in the middle", ends.each
                                            - (t.width.each - 1.0) / 2.0 * each, "six"),
                                   f"mid_{t.tag}")
            self.limit_logs = put("Sum of ln(step / n)", pick_each(ends, self.place), "six")
        else:
            self._bounds(put)
        self.curve = b.named(t._sized("Curvature of the row", (
            1.0 - 1.0 / square(t.width.each)) / 24.0, "six"), f"curve_{t.tag}")
        self.below = (t.end.value[None, :] <= caps.value[:, None]) * 1.0

    def _asked(self) -> X:
        """Which batch limits are asked while there is a target on whole requests or gaps: the
        first and every so many."""
        caps = self.tables.cap
        slow = least(*(limit for limit in (self.targets.e2e, self.targets.itl) if limit
                       is not None)) < NEVER_S
        place = np.arange(len(caps.value))
        asked = X(f"1*OR(ROW()-{caps.first}<{SLOW_FIRST},"
                  f"MOD(ROW()-{caps.first},{SLOW_STRIDE})=0)",
                  1.0 * ((place < SLOW_FIRST) | (place % SLOW_STRIDE == 0)))
        return X(f"IF({slow.text},{asked.text},1)", np.where(slow.value > 0, asked.value, 1.0))

    def _bounds(self, put: Callable[[str, X, str], Column]) -> None:
        """Beside batch sizes and limits: spread of what a prompt takes, and the most it adds."""
        t, m = self.tables, self.tables.moments
        assert t.budget is not None

        def own(per: X) -> X:
            return most(m["new2"] * square(per) + 2.0 * m["further_1"] * per + m["further_2"]
                        - square(m["new"] * per), 0.0)

        def added(per: X, n: X) -> X:
            return per * most(float(t.budget or 0) - n, 1.0)

        per, cap = t.extra["per_token"].each, t.extra["cap_per_token"].each
        for name, label, sizes, limits in (
                ("own", "Variance of a prompt [s²]", own(per), own(cap)),
                ("most", "Added to a token, most [s]", added(per, t.n.each),
                 added(cap, t.cap.each))):
            t.extra[name] = t._sized(label, sizes, "science")
            t.extra[f"cap_{name}"] = put(label, limits, "science")

    def _per_request(self) -> X:
        """Seconds of a replica that a request's prefill takes from the decodes."""
        t = self.tables
        if self.kind == "decode":
            return x(0.0)
        if self.kind == "colocated":
            return t.moments["held"]
        return t.moments["new"] * t.extra["cap_per_token"].each
