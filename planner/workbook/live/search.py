"""The search for the fewest replicas, one column an arrival rate, and what users then see."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.setups.chunked import CHUNK_RESIDUAL, MIN_CHUNK_TOKENS
from planner.setups.continuous import RESIDUAL, SLOW_FIRST, SLOW_STRIDE
from planner.setups.disaggregated import ADMISSION_SHARE, MAX_LINK_LOAD
from planner.workbook.fast import letters
from planner.workbook.live.board import Column
from planner.workbook.live.expr import (
    X,
    absolute,
    both,
    exp,
    gamma,
    highest,
    least,
    ln,
    most,
    normal,
    pick,
    place_below,
    round_up,
    sqrt,
    square,
    total,
    when,
    whole,
    x,
)
from planner.workbook.live.gaps import Open
from planner.workbook.live.halving import TRIED, Reached, States
from planner.workbook.live.laws import (
    FAR_OUT,
    TINY_S2,
    Beside,
    Law,
    Pace,
    Single,
    Write,
    law_of,
    share_within,
)
from planner.workbook.live.limits import TOKEN_BARELY, settled, whole_within
from planner.workbook.live.onepool import (
    FAR,
    NEVER_S,
    SHORT_HALVINGS,
    Tables,
    Targets,
    Wait,
    rank_wait,
)
from planner.workbook.live.search_rows import by_row
from planner.workload import REFERENCE_TOKENS, SLACK

BARELY = SLACK
"""Share by which a level may be missed (``Slo.level``)."""
LEAST_WEIGHT = 1e-300
"""A sum of weights that is 0 where a rate is far beyond what a limit carries."""


@dataclass(slots=True, eq=False)
class Asked:
    """One column, or several alike: its rate, and the cells that later rows and columns use."""

    column: int
    rate: X
    cv2: X
    cells: dict[str, X] = field(default_factory=dict)
    law: Law | None = None
    """Of the answers, over the batch sizes."""
    write: Beside | None = None
    """Writes further columns beside the batch sizes."""
    limits: Beside | None = None
    """Writes further columns beside the batch limits."""
    pace: Pace | None = None
    """Of the batch sizes."""
    last: Pace | None = None
    """At the batch limit."""
    last_law: Law | None = None
    """Of the answers at the batch limit."""
    good: tuple[X, ...] = ()
    """Shares within the target of TPOT: the answers over sizes and limits, then the reference
    answers."""
    wait: Wait | None = None
    own_wait: X | None = None
    """Mean wait [s] for the prefill alone (prefill pools)."""
    alone: tuple[X, X, X] | None = None
    """Chance, gamma shape and scale of the wait for the prefill alone."""
    shape: X = field(default_factory=lambda: x(1.0))
    scale: X = field(default_factory=lambda: x(1.0))
    offset: X = field(default_factory=lambda: x(0.0))
    latency: X = field(default_factory=lambda: x(0.0))
    over_sizes: dict[str, X] = field(default_factory=dict)
    """Expressions over the batch sizes that several cells use."""
    limits_pace: Pace | None = None
    """Of the batch limits."""
    laws: dict[str, tuple[Law, tuple[X, X, X]]] = field(default_factory=dict)
    """Laws of answers of some length, and their gaps, by their label."""
    suffix: str = ""
    """Ending of the labels of its cells."""
    aside: int = 0
    """Columns by which its columns over the prompts stand aside."""

    @property
    def rates(self) -> int:
        """How many rates it asks at once, one a column."""
        return len(self.rate.value) if np.ndim(self.rate.value) == 2 else 1


class Scalars:
    """Cells of one column, one under the other; a label is written when it first occurs."""

    def __init__(self, board_rows: Rows, column: int, suffix: str = "") -> None:
        self.rows, self.column, self.suffix = board_rows, column, suffix

    def __call__(self, label: str, e: X) -> X:
        """Write a cell on the row of its label."""
        return self.rows.board_put(label + self.suffix, self.column, e)

    def down(self, labels: list[str], e: X) -> X:
        """Write one formula on the rows of labels that stand one under the other; the last cell.
        """
        rows = [self.rows.row(label + self.suffix) for label in labels]
        self.rows.board.area(rows[0], self.column, e.text, e.value)
        return X(f"{letters(self.column)}${rows[-1] + 1}", e.value[:, -1:])


class Rows:
    """Rows of labelled scalars to the right of the tables.

    Parameters
    ----------
    far : int
        Column of the labels.
    several : int
        Columns that each rate takes, one beside the other.
    """

    def __init__(self, tables: Tables, top: int, far: int = FAR, several: int = 1) -> None:
        self.board, self.top, self.far, self.several = tables.board, top, far, several
        self.known: dict[str, int] = {}
        self.taken: dict[int, int] = {}
        """Columns that are written at once, by the first of them."""

    def column(self, place: int) -> int:
        """First column of a rate, counted from 1."""
        return self.far + 1 + (place - 1) * self.several

    def board_put(self, label: str, column: int, e: X) -> X:
        """Write one cell, or all of a rate where the formula is that of several columns."""
        row, count = self.row(label), self.taken.get(column, 1)
        if count > 1 or np.ndim(e.value) == 2:
            return self.board.across(row, column, e, max(count, self.several))
        return self.board.put(row, column, e)

    def row(self, label: str) -> int:
        """The row of a label, written when it first occurs."""
        if label not in self.known:
            self.known[label] = self.top + len(self.known)
            self.board.page.write(self.known[label], self.far, label, "short")
        return self.known[label]


def single(put: Callable[[str, X], X], suffix: str) -> Write:
    """Writes single cells, their labels with an ending."""
    def write(label: str, e: X) -> Single:
        return Single(put(label + suffix, e))
    return write


def pick_each(column: Column | X, place: Column) -> X:
    """Rows of a range by the places in a column, row by row."""
    source = column if isinstance(column, X) else column.all
    index = place.value.astype(int) - 1
    return X(f"INDEX({source.text},{place.each.text})", np.asarray(source.value)[..., index])


def share_within_both(share: X, left: X, both_: tuple[X, X, X], alone: tuple[X, X, X] | None
                      ) -> X:
    """Share in time with both waits, never above that with the first alone
    (``loops.starts_in_time``); ``left`` is the time [s] that a prompt may wait."""
    def within(busy: X, shape: X, scale: X) -> X:
        late = gamma((left > 0.0) * left, shape, scale)
        return total(share * (left >= 0.0) * (1.0 - busy * (1.0 - late)))

    found = within(*both_)
    return found if alone is None else least(found, within(*alone))


class Chain:
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

    def with_targets(self, targets: Targets, rows: Rows) -> Chain:
        """The same chain asked for other targets, its columns elsewhere."""
        other = copy(self)
        other.targets, other.rows = targets, rows
        return other

    def put(self, one: Asked) -> Scalars:
        """Writes the single cells of a rate."""
        return Scalars(self.rows, one.column, one.suffix)

    # -- columns that every rate shares -----------------------------------------------------------

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

    # -- one rate -------------------------------------------------------------------------------

    def ask(self, column: int, rate: X, cv2: X, limit: X | None = None) -> Asked:
        """Everything about one rate; under a given batch limit, or the largest that will do.

        Where the value of the rate is that of several, all of them in as many columns.
        """
        if np.ndim(rate.value) == 2:
            self.rows.taken[column] = len(rate.value)
        put = Scalars(self.rows, column)
        one = Asked(column, put("Requests per second [1/s]", rate), put("Arrival CV²", cv2))
        c = one.cells
        self._open(put, one)
        if self.kind != "decode":
            self._laws(put, one, limit is None)
        c["limit"] = put("Batch limit", most(limit, 1.0) if limit is not None
                         else self._limit(one))
        self.at_limit(one)
        return one

    def _open(self, put: Scalars, one: Asked) -> None:
        """The chain at this rate, scaled so that no weight overflows."""
        t, c, m = self.tables, one.cells, self.tables.moments
        own = one.cv2 if self.ranks == 1 else 1.0 + (one.cv2 - 1.0) / self.ranks
        own = put("Arrival CV² of a rank, at least 1", most(own, 1.0))
        c["full_peak"] = put("Peakedness of arrivals", 1.0 + (own - 1.0) / 2.0)
        if self.kind == "chunked":
            c["demand"] = put("Prompt tokens per second", one.rate * m["new"])
            self._down(one, own)
            c["top"] = put("Highest log weight", most(highest(c["logs"]), 0.0))
            return
        inner, c["peak"] = one.rate * t.output.mean, c["full_peak"]
        if self.kind == "colocated":
            c["load"] = put("Share of time of prefills", one.rate * m["held"])
            c["slow"] = put("Time left to decodes", most(1.0 - c["load"], 1e-6))
            c["own"] = put("Variance of a prefill [s²]", most(m["s2"] - square(m["s1"]), 0.0))
            c["peak"] = put("Peakedness", self._peak(
                own + square(one.rate * m["occupancy"]) * c["own"], c["slow"]))
            inner = inner / c["slow"]
        elif self.ranks > 1:
            c["peak"] = put("Peakedness", self.ranks * c["full_peak"])
        c["log"] = put("ln of output tokens per second", ln(most(inner, 1e-300)))
        assert self.middles is not None
        scaled = (t.n.all * c["log"] + self.middles.all) / c["peak"]
        c["top"] = put("Highest log weight", most(highest(
            (t.end.all <= t.step.memory_cap) * scaled), 0.0))

    @property
    def ranks(self) -> float:
        """Data-parallel ranks."""
        return float(self.tables.step.deployment.layout.data)

    def _peak(self, uneven: X, left: X) -> X:
        """Peakedness where prompts leave a share of the time (``arrivals.Influx``)."""
        found = 1.0 + self.tables.moments["overlap"] * (uneven / square(left) - 1.0)
        return found if self.ranks == 1 else self.ranks * found

    def _down(self, one: Asked, own: X) -> None:
        """ln of the weight at the end of each row of batch sizes, on the rows themselves, and the
        sum of what one more on each batch size's logarithm adds to it."""
        t, c = self.tables, one.cells
        one.write = Beside(t.board, t.n, one.column, self.titled, rates=one.rates)
        left = absolute(1.0 - c["demand"] * t.extra["per_token"].each)
        peak = one.write("Peakedness", self._peak(
            own + square(one.rate) * t.extra["own"].each, left)).each
        c["inverse"], c["inverse_before"] = self.summed(one.write.bare(), t.width.each / peak)
        slow = 1.0 - c["demand"] * t.extra["per_token"].each
        inside = both(c["demand"] * t.extra["closed"].each < 1.0,
                      t.end.each <= t.step.memory_cap)
        util = one.rate * t.output.mean * t.seconds.each / (t.n.each * slow)
        safe = np.where(inside.value > 0, util.value, 1.0)
        gain = t.width.value * np.log(np.maximum(safe, 1e-300)) / peak.value
        letter = xl_col_to_name(one.column)
        e = X(f"N({letter}{{p}})+IF({inside.text},{t.width.each.text}*LN({util.text})"
              f"/{peak.text},0)", np.cumsum(gain, axis=-1))
        made = t.board.down(t.n.first - 1, one.column, e, len(t.n.value))
        c["logs"], c["before"] = made.all, made.shifted

    def summed(self, column: int, e: X) -> tuple[X, X]:
        """Running sums of a column over the batch sizes: up to each row, and before it."""
        t, letter = self.tables, xl_col_to_name(column)
        made = t.board.down(t.n.first - 1, column, X(
            f"N({letter}{{p}})+{e.text}", np.cumsum(e.value, axis=-1)), len(t.n.value))
        return made.all, made.shifted

    def weights(self, one: Asked, reference: bool = False) -> X:
        """Weight of each row of batch sizes, as ranges; of the reference answers where asked."""
        name = "reference weights" if reference else "weights"
        if name not in one.over_sizes:
            one.over_sizes[name] = self._weights(one, reference)
        return one.over_sizes[name]

    def _weights(self, one: Asked, reference: bool) -> X:
        t, c = self.tables, one.cells
        top = c["top_reference"] if reference else c["top"]
        if self.kind == "chunked":
            part = (t.width.all - 1.0) / (2.0 * t.width.all)
            gain = c["logs"] - c["before"]
            log = c["logs"] - part * gain
            if reference:
                more = c["inverse"] - c["inverse_before"]
                log = log + c["shorter"] * (c["inverse"] - part * more)
                gain = gain + c["shorter"] * more
            return self._row(gain) * exp(log - top)
        assert self.middles is not None
        assert self.gains is not None
        each = c["log"] + c["shorter"] if reference else c["log"]
        scaled = (t.n.all * each + self.middles.all) / c["peak"] - top
        gain = (t.width.all * each + self.gains.all) / c["peak"]
        return self._row(gain) * exp((t.end.all <= t.step.memory_cap) * scaled)

    def _row(self, gain: X) -> X:
        """Sizes of each row, over the weight of the one in its middle: the weights in a row are
        nearly a geometric series of ``gain`` (the logarithm of its last over the last before it),
        to the second order."""
        return self.tables.width.all * (1.0 + self.curve.all * square(gain))

    def tpot(self, one: Asked) -> X:
        """Time per output token of each row of batch sizes, as ranges."""
        t, known = self.tables, one.over_sizes
        if "tpot" not in known:
            known["tpot"] = t.seconds.all if self.kind == "decode" else t.seconds.all / (
                self.left(one, t.extra["per_token"].all) if self.kind == "chunked"
                else one.cells["slow"])
        return known["tpot"]

    def left(self, one: Asked, per_token: X) -> X:
        """Share of time that prompts leave; rows where it is negative are never counted."""
        return absolute(1.0 - one.cells["demand"] * per_token)

    def _laws(self, put: Scalars, one: Asked, sizing: bool) -> None:
        """Columns of the TPOT of single requests over batch sizes; where a limit is sought, over
        the limits and of the reference answers too."""
        t, c, m = self.tables, one.cells, self.tables.moments
        c["ahead"] = put("Of a burst, ahead", most(one.cv2 - 1.0, 0.0) / 2.0)
        c["stop"] = put("Prompts that stop a sequence [1/s]", one.rate * (
            m["occupancy"] if self.kind == "colocated" else x(1.0)))
        c["shorter"] = put("ln of reference answers over the answers", ln(
            least(REFERENCE_TOKENS / t.output.mean, 1.0)))
        c["after"] = c["ahead"]
        if self.kind == "colocated":
            together = (float(t.step.deployment.profile.default_max_batched_tokens)
                        / m["longest"])
            c["after"] = put("Of a burst, prefilled after a request", most(
                c["ahead"] - most(together - 1.0, 0.0) / 2.0, c["ahead"] / (1.0 + c["ahead"])))
            others = one.rate * m["service2"] * self.ranks / 2.0
            c["behind"] = put("Wait for the prefill, as two moments say [s]", (
                others + c["ahead"] * m["service1"]) / c["slow"])
            scaled = t.n.all * (c["log"] + c["shorter"]) + self.middle_logs
            inside = t.end.all <= t.step.memory_cap
            scaled = scaled / c["peak"]
        else:
            scaled, inside = c["logs"] + c["inverse"] * c["shorter"], x(1.0)
        c["top_reference"] = put("Highest log weight, reference answers", most(highest(
            inside * scaled), 0.0))
        if self.kind == "colocated":
            c["cost"] = put("Prefill over the time left to decodes [s]", m["s1"] / c["slow"])
            c["until"] = put("Wait with the prefill [s]", c["behind"] + m["s1"])
        one.write = one.write or Beside(t.board, t.n, one.column, self.titled, rates=one.rates)
        one.pace = self._pace(one, one.write, "sizes")
        one.law = law_of(one.write, c, one.cv2, one.pace, t.extra.get("most"), self._gaps("own"),
                         ranges=not sizing)
        if sizing:
            self._good(one, one.write, one.pace, one.law)

    def _good(self, one: Asked, write: Beside, pace: Pace, own: Law) -> None:
        """Shares within the target of TPOT, over batch sizes and batch limits."""
        t, limit = self.tables, self.targets.tpot
        beside = one.limits = Beside(t.board, t.cap, one.column, self.titled, rates=one.rates)
        last = one.limits_pace = self._pace(one, beside, "limits")
        found = []
        for tag, text in (("own", ""), ("reference", ", reference answers")):
            for writer, at, bound, variance in ((write, pace, "most", t.variance.each),
                                                (beside, last, "cap_most", None)):
                law = own if writer is write and tag == "own" else law_of(
                    writer, one.cells, one.cv2, at, t.extra.get(bound), self._gaps(tag), text,
                    ranges=False)
                found.append(share_within(limit, at.step, law, variance, "each"))
        one.good = tuple(found)

    def _gaps(self, tag: str) -> tuple[X, X, X]:
        """Means over the gaps of the answers, or of the reference answers."""
        m = self.tables.moments
        return m[f"gaps_{tag}"], m[f"inverse1_{tag}"], m[f"inverse2_{tag}"]

    def _pace(self, one: Asked, write: Write, where: str) -> Pace:
        """What the laws over the ``sizes``, the ``limits`` or at the ``last`` batch are made of."""
        t, c, m = self.tables, one.cells, self.tables.moments
        columns = {"sizes": t.seconds, "limits": t.cap_step}
        step = columns[where].each if where in columns else c["last_step"]
        if self.kind == "colocated":
            return Pace(step, c["slow"], m["s1"], c["own"], c["behind"], c["until"], c["cost"])

        def get(name: str) -> X:
            if where == "last":
                return c[f"last_{name}"]
            return t.extra[name if where == "sizes" else f"cap_{name}"].each

        per, closed, ranks = get("per_token"), get("closed"), self.ranks
        others = (m["new2"] * square(closed) + 2.0 * m["further_1"] * closed + m["further_2"])
        wait = write("Wait for the prefill [s]", (
            one.rate * others / 2.0 + c["ahead"] * m["new"] * closed) / (
            ranks * absolute(1.0 - c["demand"] * closed / ranks))).each
        left, mean = self.left(one, per), m["new"] * per
        cost = write("Prompt over the time left [s]", mean / left).each
        return Pace(step, left, mean, get("own"), wait, wait + m["new"] * closed + step, cost,
                    get("most"))

    @property
    def middle_logs(self) -> X:
        """Sums of ln(step / n) in the middle of the rows."""
        assert self.middles is not None
        return self.middles.all

    def _limit(self, one: Asked) -> X:
        """Largest batch limit that keeps up and holds the targets, as far as limits are told
        apart by them."""
        t, targets = self.tables, self.targets
        open_e = self._open_limits(one)
        tail = self._tails(one, open_e)
        if self.kind != "decode":
            found = self._requests_within(one, tail, open_e)
            if self.slow_targets:
                return settled(self, one, replace(found, allowed=found.allowed * self.asked.all))
            return highest(t.cap.all * found.allowed)
        allowed = 1.0 * (self._held(one.column, open_e, self._steps_within(
            one, tail, targets.tpot, targets.tpot_level)).all >= 0.0)
        allowed = allowed * self._hardly_waits(one, tail[2], tail[0], open_e)
        if targets.itl is not None and targets.itl_level is not None:
            gaps = self._steps_within(one, tail, targets.itl, targets.itl_level)
            allowed = allowed * (self._held(
                one.column + 2 * t.board.side, open_e, gaps).all >= 0.0)
        return highest(t.cap.all * allowed)

    def _open_limits(self, one: Asked) -> X:
        """Limits that the memory holds and that keep up with the rate."""
        t, c, caps = self.tables, one.cells, self.tables.cap.each
        rate = X(f"${self.ceiling.letter}{{r}}", self.ceiling.value)
        tests = [caps <= self._most_sequences(), one.rate < rate]
        if self.kind == "chunked":
            tests.append(c["demand"] * t.extra["cap_closed"].each < 1.0)
        return both(*tests)

    def _tails(self, one: Asked, open_e: X) -> tuple[X, X, X]:
        """Of the state past each limit: ratio, TPOT [s], weight."""
        t, c, step = self.tables, one.cells, self.tables.cap_step.each
        if self.kind == "chunked":
            mine = step / self.left(one, t.extra["cap_per_token"].each)
        else:
            mine = step if self.kind == "decode" else step / c["slow"]
        return self._ratio(one, open_e, t.output.mean), mine, self.limit_weight(one)

    def _ratio(self, one: Asked, open_e: X, tokens: X) -> X:
        """Ratio of the tail past each limit, of answers of so many tokens on average."""
        t, c = self.tables, one.cells
        full = one.rate * tokens * t.cap_step.each / t.cap.each
        if self.kind == "colocated":
            full = full + c["load"]
        elif self.kind == "chunked":
            full = full + c["demand"] * t.extra["cap_per_token"].each
        ratio = full ** (1.0 / c["full_peak"])
        return X(ratio.text, np.where(open_e.value > 0, ratio.value, 0.5), ratio.binds)

    def _held(self, column: int, open_e: X, surplus: X) -> Column:
        """For each limit, output in time less what must be; -1 where the limit is not open."""
        t = self.tables
        return t.board.down(t.cap.first - 1, column, when(open_e, surplus, -1.0),
                            len(t.cap.value))

    def _steps_within(self, one: Asked, tail: tuple[X, X, X], limit: X, level: X) -> X:
        """For each limit of a decode pool, output with steps in time less what must be."""
        ratio, mine, weight = tail
        good = normal((limit - self.tpot(one)) / sqrt(self.tables.variance.all + TINY_S2))
        last = normal((limit - mine) / sqrt(x(TINY_S2)))
        return self._surplus(one, weight, mine, ratio, good, last, level - BARELY)

    def limit_weight(self, one: Asked, reference: bool = False) -> X:
        """Weight of each batch limit."""
        c, caps = one.cells, self.tables.cap.each
        top = c["top_reference"] if reference else c["top"]
        if self.kind == "chunked":
            log = pick_each(c["logs"], self.place)
            if reference:
                log = log + c["shorter"] * pick_each(c["inverse"], self.place)
            return exp(log - top)
        each = c["log"] + c["shorter"] if reference else c["log"]
        return exp((caps * each + self.limit_logs.each) / c["peak"] - top)

    def _requests_within(self, one: Asked, tail: tuple[X, X, X], open_e: X) -> Open:
        """Which limits hold the target on TPOT: output of requests in time less what must be, the
        least of that of the answers and of the reference answers. Each part is a column."""
        assert one.limits is not None
        ratio, mine, weight = tail
        own, own_last, short, short_last = one.good
        level = self.targets.tpot_level - BARELY
        is_open = one.limits("Open", open_e * 1.0).each > 0.0
        mine = one.limits("Its TPOT [s]", mine).each
        waiting, past = self._waiting(one, is_open, (ratio, mine, weight), "")
        answers = self.in_time(one, is_open, waiting, own, own_last, level, "").each
        text = ", reference answers"
        short_waiting, _ = self._waiting(one, is_open, (self._ratio(one, open_e, least(
            REFERENCE_TOKENS, self.tables.output.mean)), mine, self.limit_weight(one, True)), text)
        reference = self.in_time(one, is_open, short_waiting, short, short_last, level, text,
                                 True).each
        held = self._held(one.column, is_open, when(
            self.tables.output.mean > REFERENCE_TOKENS, least(answers, reference), reference))
        return Open(1.0 * (held.all >= 0.0), is_open, waiting, past)

    def _waiting(self, one: Asked, is_open: X, tail: tuple[X, X, X], text: str) -> tuple[X, X]:
        """Output of those that wait past each limit, and the ratio there, a column each."""
        assert one.limits is not None
        ratio, mine, weight = tail
        past = one.limits(f"Ratio past it{text}", when(is_open, ratio, 0.5)).each
        return one.limits(f"Output of those that wait{text}", when(
            is_open, weight * self.tables.cap.each / mine * past / (1.0 - past), 0.0)).each, past

    def in_time(self, one: Asked, is_open: X, waiting: X, good: X, last: X, level: X, text: str,
                reference: bool = False) -> Column:
        """For each limit, output in time less what must be, of one kind of answers, with a column
        of the batch sizes that limits sum up; -1 where the limit is not open."""
        t = self.tables
        assert one.limits is not None
        assert one.write is not None
        states = self.weights(one, reference) * t.n.all / self.tpot(one)
        column = one.write(f"Output in time less what must be{text}", X(
            by_row(states.text, self), states.value, states.binds) * (good - level)).all
        inside = X(f"SUMPRODUCT(({t.end.all.text}<={t.cap.each.text})*{column.text})",
                   np.nan_to_num(column.value) @ self.below.T)
        made = one.limits(f"In time less what must be{text}", when(
            is_open, inside + waiting * (last - level), -1.0))
        assert isinstance(made, Column)
        return made

    def _surplus(self, one: Asked, weight: X, mine: X, ratio: X, good: X, last: X, level: X
                 ) -> X:
        """For each limit: output in time less what must be, over the states and the waiting."""
        t, caps = self.tables, self.tables.cap.each
        states = self.weights(one) * t.n.all / self.tpot(one) * (good - level)
        inside = X(f"SUMPRODUCT(({t.end.all.text}<={caps.text})*{states.at(3)})",
                   np.nan_to_num(states.value) @ self.below.T)
        return inside + weight * caps / mine * ratio / (1.0 - ratio) * (last - level)

    def _most_sequences(self) -> X:
        t = self.tables
        if t.budget is None:
            return t.step.memory_cap
        return least(t.step.memory_cap, float(t.budget - MIN_CHUNK_TOKENS))

    def _hardly_waits(self, one: Asked, weight: X, ratio: X, open_e: X) -> X:
        """Whether few enough wait for a place, for each limit."""
        t, c = self.tables, one.cells
        inside = X(f"SUMPRODUCT(({t.end.all.text}<={t.cap.each.text})*{self.weights(one).at(3)})",
                   self.weights(one).value @ self.below.T)
        share = weight / (1.0 - ratio) / most(
            exp(0.0 - c["top"]) + inside + weight * ratio / (1.0 - ratio), LEAST_WEIGHT)
        e = when(open_e, 1.0 * (share <= self.admission_share), 0.0)
        made = t.board.down(t.cap.first - 1, one.column + t.board.side, e, len(t.cap.value))
        return made.all

    def at_limit(self, one: Asked) -> None:
        """The states under the batch limit: normaliser, running sequences, wait for a place."""
        t, c, put = self.tables, one.cells, self.put(one)
        cap = c["cap"] = put("Limit, at least 1", most(c["limit"], 1.0))
        place = put("Row of the limit", place_below(cap, t.cap.all))
        step = put("Step at the limit, alone [s]", pick(t.cap_step.all, place))
        full, left = one.rate * t.output.mean * step / cap, x(1.0)
        if self.kind == "chunked":
            load = put("Share of time of prompts at the limit", c["demand"] * pick(
                t.extra["cap_per_token"].all, place))
            full, left = full + load, most(1.0 - load, 1e-6)
        elif self.kind == "colocated":
            full, left = full + c["load"], c["slow"]
        c["tpot"] = put("TPOT at the limit [s]", step / left)
        full = put("Load of a full batch", full)
        if self.kind == "chunked":
            log = pick(c["logs"], pick(self.place.all, place))
        else:
            log = (cap * c["log"] + pick(self.limit_logs.all, place)) / c["peak"]
        weight = c["weight"] = put("Weight of the limit", exp(log - c["top"]))
        ratio = c["ratio"] = put("Ratio past the limit", least(
            full ** (1.0 / c["full_peak"]), 1.0 - 1e-9))
        tail = c["tail"] = put("Weight of those that wait", weight * ratio / (1.0 - ratio))
        inside = (t.end.all <= cap) * self.weights(one)
        whole_ = c["total"] = put("All weights", most(
            exp(0.0 - c["top"]) + total(inside) + tail, LEAST_WEIGHT))
        c["running"] = put("Running sequences, mean", (
            total(inside * t.n.all) + tail * cap) / whole_)
        c["waits"] = put("Share that waits for a place", weight / (1.0 - ratio) / whole_)
        each = full / one.rate if self.ranks == 1 else full * self.ranks / one.rate
        c["waits_s"] = put("Their mean wait [s]", each / (1.0 - ratio))

    def at_running(self, put: Scalars, one: Asked, column: Column, label: str) -> X:
        """A column of the batch sizes at the mean running sequences, linear between rows."""
        t, c = self.tables, one.cells
        if "low" not in c:
            rows = len(t.n.value)
            running = least(most(c["running"], 1.0), float(t.top))
            c["low"] = put("Row below it", least(place_below(running, t.n.all), rows - 1.0)
                           if rows > 1 else x(1.0))
            low, high = pick(t.n.all, c["low"]), pick(t.n.all, c["low"] + 1.0)
            c["part"] = put("Part of the way to the next", least(most(
                (running - low) / most(high - low, 1e-9), 0.0), 1.0))
        first = pick(column.all, c["low"])
        return put(label, first + c["part"] * (pick(column.all, c["low"] + 1.0) - first))

    # -- first token of one pool ------------------------------------------------------------------

    def first_token(self, one: Asked) -> None:
        """Wait and latency of a first token at the limit of the column."""
        t, c, put = self.tables, one.cells, self.put(one)
        step = c["step"] = self.at_running(put, one, t.seconds, "Step then [s]")
        if self.kind == "colocated":
            layout = t.step.deployment.layout
            wait, c["rho"] = rank_wait(put, layout, one.rate, t.moments["service1"],
                                       t.moments["service2"], t.moments["service3"], one.cv2,
                                       layout.pipeline - 1.0)
            if layout.pipeline > 1:
                wait = self._together(put, one, wait, step)
            one.offset = put("Rest of the running step [s]", RESIDUAL * step)
            one.latency = t.first.all
            c["mean_latency"] = t.moments["first"]
        else:
            wait = self._chunked(put, one, step)
        self._with_place(put, one, wait)

    def _chunked(self, put: Scalars, one: Asked, step: X) -> Wait:
        """A prompt in chunks beside the running sequences (``Chunked.prefill``)."""
        t, c = self.tables, one.cells
        assert t.budget is not None
        mixed = c["mixed"] = self.at_running(put, one, t.extra["mixed"],
                                             "Step with a chunk then [s]")
        running = least(most(c["running"], 1.0), float(t.top))
        space = put("Room then [tokens]", most(float(t.budget) - running, 1.0))
        chunk = least(space, t.chunk(running))
        per = put("Extra per prompt token then [s]", most(mixed - step, 0.0) / chunk)
        full = put("Full step then [s]", step + per * space)
        layout, m = t.step.deployment.layout, t.moments
        unit = put("Service per prompt token [s]", full / space)
        ranks = float(layout.data)
        wait, c["rho"] = rank_wait(
            put, layout, one.rate, unit * m["new"] / ranks,
            (square(unit) * m["new2"] + 2.0 * unit * m["further_1"] + m["further_2"]) / ranks**2,
            (unit ** 3 * m["new3"] + 3.0 * square(unit) * m["further_11"]
             + 3.0 * unit * m["further_12"] + m["further_3"]) / ranks**3, one.cv2, 1.0)
        load = least(c["demand"] * per, 0.95)
        one.offset = put("Rest of the step [s]", CHUNK_RESIDUAL * step / (1.0 - load))
        steps = whole(t.new.each / space)
        steps = steps + (t.new.each > steps * space)
        latency = (steps * step + per * t.new.each + t.extra["further"].each
                   + t.first.each - t.prefill.each)
        made = t.board.down(t.prompt.tokens.first - 1, one.column + one.aside, latency,
                            len(t.new.value))
        one.latency = made.all
        c["mean_latency"] = put("Prefill, mean [s]", total(t.prompt.share.all * made.all))
        return wait

    def _together(self, put: Scalars, one: Asked, wait: Wait, step: X) -> Wait:
        """Add what prompts of the same decode step add to a pass (``Colocated._together``)."""
        m, c = self.tables.moments, one.cells
        beyond = 1.0 - m["occupancy"] * self.ranks
        others = put("Prompts of the same step", one.rate / self.ranks * c["slow"] * step)
        mean = put("Their later stages, mean [s]", others * beyond * m["s1"])
        squares = others * square(beyond) * m["s2"] + square(mean)
        return wait.plus(put, Wait(1.0 - exp(0.0 - others), mean, squares), " in the same step")

    def _with_place(self, put: Scalars, one: Asked, wait: Wait) -> None:
        """Add the wait for a place in the batch; both as one gamma."""
        c = one.cells
        mean = put("Wait for a place, mean [s]", c["waits"] * c["waits_s"])
        both_ = wait.plus(put, Wait(c["waits"], mean, 2.0 * c["waits"] * square(c["waits_s"])))
        one.alone = (wait.busy, *wait.shape_scale(put, " for the prefill"))
        one.wait = both_
        one.shape, one.scale = both_.shape_scale(put)

    def within(self, one: Asked, limit: X, share: X | None = None) -> X:
        """Share of the requests whose first token comes within a limit [s]."""
        assert one.wait is not None
        left = limit - one.offset - one.latency
        here = share if share is not None else self.tables.prompt.share.all
        return share_within_both(here, left, (one.wait.busy, one.shape, one.scale), one.alone)

    def holds(self, one: Asked) -> X:
        """Whether the rate holds under the limit of the column."""
        put = Scalars(self.rows, one.column)
        c, targets = one.cells, self.targets
        tests = [c["limit"] > 0.0]
        if self.kind == "decode":
            assert self.wire is not None
            tests.append(one.rate * self.wire < MAX_LINK_LOAD)
            return put("Holds", when(both(*tests), 1.0, 0.0))
        if self.kind == "colocated":
            tests.append(c["load"] < 1.0)
        rho = one.cells.get("rho")
        if rho is not None:
            tests.append(rho < 1.0)
        c["within"] = put("Share within the target of TTFT", self.within(one, targets.ttft))
        tests.append(c["within"] >= targets.ttft_level - BARELY)
        if targets.e2e is not None and targets.e2e_level is not None:
            c["whole"] = whole_within(self, one, targets.e2e, targets.e2e_level)
            tests.append(c["whole"] >= targets.e2e_level - TOKEN_BARELY)
        if targets.itl is not None and targets.itl_level is not None:
            tests.append(self.gap(one, targets.itl_level) <= targets.itl)
        return put("Holds", when(both(*tests), 1.0, 0.0))

    def gap(self, one: Asked, level: X) -> X:
        """Gap between two tokens [s] at a level (``Continuous._gaps``): the step of the batch
        that so many tokens come from, and the stall of a prefill where one falls into it."""
        t, c = self.tables, one.cells
        put = Scalars(self.rows, one.column)
        self.output(one)
        reached = self._tokens_so_far(one)
        wanted = put("Tokens up to the level", (level - 1e-12) * c["tokens"])
        rows = float(len(t.n.value))
        place = put("Row of that token", least(total(1.0 * (reached.all < wanted)) + 1.0, rows))
        before = put("Tokens of the rows below", when(
            place > 1.0, pick(reached.all, most(place - 1.0, 1.0)), 0.0))
        width = pick(t.width.all, place)
        part = (wanted - before) / most(pick(reached.all, place) - before, LEAST_WEIGHT)
        size = put("Batch size of that token", least(least(
            pick(t.end.all, place) - width + round_up(most(width * least(part, 1.0), 1e-9)),
            c["cap"]), float(t.top)))
        at = put("Row below that batch size", least(place_below(size, t.n.all), rows - 1.0)
                 if rows > 1 else x(1.0))
        low, first = pick(t.n.all, at), pick(t.seconds.all, at)
        if rows > 1:
            part = least(most((size - low) / (pick(t.n.all, at + 1.0) - low), 0.0), 1.0)
            first = first + part * (pick(t.seconds.all, at + 1.0) - first)
        step = put("Its step [s]", first)
        share, stall = self.stall(put, one, level)
        return put("Gap between tokens [s]", step + when(level > 1.0 - share, stall, 0.0))

    def _tokens_so_far(self, one: Asked) -> Column:
        """Tokens generated up to the end of each row of batch sizes, waiting ones at the limit."""
        t, c = self.tables, one.cells
        weight = self.weights(one)
        per = t.extra["per_token"].each if self.kind == "chunked" else None
        slow = c.get("slow") if per is None else self.left(one, per)
        tpot = t.seconds.each if slow is None else t.seconds.each / slow
        each = (t.end.each <= c["cap"]) * X(by_row(weight.text, self), weight.value,
                                            weight.binds) * t.n.each / tpot
        each = each + (t.end.each.is_(c["cap"])) * c["last"]
        letter = xl_col_to_name(one.column + t.board.side)
        e = X(f"N({letter}{{p}})+{each.text}", np.cumsum(each.value, axis=-1))
        return t.board.down(t.n.first - 1, one.column + t.board.side, e, len(t.n.value))

    def stall(self, put: Scalars, one: Asked, level: X) -> tuple[X, X]:
        """Share of the gaps that hold a prefill, and what it adds at a level [s]."""
        t, c = self.tables, one.cells
        if self.kind == "chunked":
            per = self.at_running(put, one, t.extra["per_token"], "Extra a prompt token then [s]")
            running = least(most(c["running"], 1.0), float(t.top))
            assert t.budget is not None
            chunk = least(most(float(t.budget) - running, 1.0), t.moments["new"])
            step = c["step"] / most(1.0 - c["demand"] * per, 1e-9)
            share = put("Share of gaps with a chunk", least(c["demand"] * step / chunk, 1.0))
            return share, put("What a chunk adds [s]", c["mixed"] - c["step"])
        share = put("Share of gaps with a prefill", least(
            one.rate * c["step"] / most(1.0 - c["load"], 1e-9), 1.0))
        inside = (level - (1.0 - share)) / most(share, 1e-12)
        below = total(1.0 * (t.prompt.reached.all < inside - 1e-12))
        return share, put("What a prefill adds [s]", pick(
            t.prefill.all, least(below + 1.0, float(len(t.prefill.value)))))

    # -- percentiles ------------------------------------------------------------------------------

    def output(self, one: Asked) -> X:
        """Output of each row of batch sizes under the limit, as ranges; the cells that sum it up
        are written when it is first asked for."""
        if "output" not in one.over_sizes:
            t, c = self.tables, one.cells
            inside = (t.end.all <= c["cap"]) * self.weights(one) * t.n.all / self.tpot(one)
            put = Scalars(self.rows, one.column)
            c["last"] = put("Output of those that wait", c["tail"] * c["cap"] / c["tpot"])
            c["tokens"] = put("Output of all states", most(total(inside) + c["last"],
                                                           LEAST_WEIGHT))
            self._last(put, one, inside)
            one.over_sizes["output"] = inside
        return one.over_sizes["output"]

    def reached(self, one: Asked, law: Law | None = None, last: Law | None = None,
                inside: X | None = None) -> Reached:
        """Share of the requests with a TPOT of at most some time, of a law or of the answers.

        Parameters
        ----------
        inside : X, optional
            The output of each row of batch sizes, where a column holds it.
        """
        rows, c, t = self.output(one), one.cells, self.tables
        written = rows if inside is None else inside

        def share(time: X) -> X:
            return (total(written * self.good(one, time, law))
                    + c["last"] * self.last_good(one, time, last)) / c["tokens"]

        laws = (None, None) if self.kind == "decode" else (law or one.law, last or one.last_law)
        return Reached(share, [
            States.of_law(rows / c["tokens"], t.seconds.all, t.variance.all, laws[0]),
            States.of_law(c["last"] / c["tokens"], c["last_step"], None, laws[1])])

    def good(self, one: Asked, time: X, law: Law | None = None) -> X:
        """Share within ``time`` of each row of batch sizes, as ranges."""
        t = self.tables
        if self.kind == "decode":
            return normal((time - t.seconds.all) / sqrt(t.variance.all + TINY_S2))
        law = law or one.law
        assert law is not None
        return share_within(time, t.seconds.all, law, t.variance.all, "all")

    def last_good(self, one: Asked, time: X, last: Law | None = None) -> X:
        """The same of those that wait at the limit."""
        c = one.cells
        if self.kind == "decode":
            return normal((time - c["last_step"]) / sqrt(x(TINY_S2)))
        law = last or one.last_law
        assert law is not None
        return share_within(time, c["last_step"], law, None, "each")

    def at_last(self, put: Callable[[str, X], X], one: Asked, gaps: tuple[X, X, X], label: str
                ) -> Law:
        """A law of those that wait at the limit of the column."""
        assert one.last is not None
        bound = None if one.last.most is None else Single(one.last.most)
        return law_of(single(put, " at the limit"), one.cells, one.cv2, one.last, bound, gaps,
                      label)

    def _last(self, put: Scalars, one: Asked, inside: X) -> None:
        """The step and the pace at the limit; of a decode pool the mean over all states."""
        t, c = self.tables, one.cells
        place = place_below(c["cap"], t.cap.all)
        c["last_step"] = put("Step at the limit [s]", pick(t.cap_step.all, place))
        if self.kind == "decode":
            c["reach"] = c["last_step"]
            c["mean_tpot"] = put("TPOT, mean [s]", (
                total(inside * t.seconds.all) + c["last"] * c["last_step"]) / c["tokens"])
            return
        if self.kind == "chunked":
            for name, text in (("per_token", "Extra a prompt token [s]"),
                               ("closed", "Full [s per token]"),
                               ("own", "Variance of a prompt [s²]"),
                               ("most", "Added to a token, most [s]")):
                c[f"last_{name}"] = put(f"{text} at the limit", pick(
                    t.extra[f"cap_{name}"].all, place))
        one.last = self._pace(one, single(put, " at the limit"), "last")

    def own_tokens(self, one: Asked) -> None:
        """Of the answers at a rate whose limit was given: the law at the limit, the mean TPOT over
        all states, and a TPOT that hardly any exceeds."""
        inside, c, put = self.output(one), one.cells, self.put(one)
        if self.kind == "decode":
            return
        law, at = one.law, self.at_last(put, one, self._gaps("own"), "")
        assert law is not None
        one.last_law = at
        c["mean_tpot"] = put("TPOT, mean [s]", self._mean(one, law, at, inside))
        mean, swing = at.mean.each, at.swing.each
        c["reach"] = put("TPOT that hardly any request exceeds [s]", c["last_step"] + mean
                         + FAR_OUT / 2.0 * (swing / mean + sqrt(swing)))

    def _mean(self, one: Asked, law: Law, last: Law, inside: X) -> X:
        """Mean TPOT [s] of a law over the states, and at the limit."""
        t, c = self.tables, one.cells
        added = (1.0 - law.none.all) * law.mean.all
        tail = c["last_step"] + (1.0 - last.none.each) * last.mean.each
        return (total(inside * (t.seconds.all + added)) + c["last"] * tail) / c["tokens"]

    def whole(self, one: Asked, tokens: X, label: str, put: Callable[[str, X], X] | None = None
              ) -> Reached:
        """For answers of so many tokens: the share within a TPOT.

        Parameters
        ----------
        put : callable, optional
            Writes the single cells; below the others of the rate where not given.
        """
        self.output(one)
        if self.kind == "decode":
            return self.reached(one)
        return self.reached(one, *self._whole_laws(one, tokens, label, put or self.put(one)))

    def whole_mean(self, one: Asked, tokens: X, label: str) -> X:
        """For answers of so many tokens: their mean TPOT [s]."""
        inside = self.output(one)
        if self.kind == "decode":
            return one.cells["mean_tpot"]
        return self._mean(one, *self._whole_laws(one, tokens, label, self.put(one)), inside)

    def _whole_laws(self, one: Asked, tokens: X, label: str, put: Callable[[str, X], X]
                    ) -> tuple[Law, Law]:
        """The laws of answers of so many tokens over the batch sizes, and at the limit."""
        law, gaps = one.laws.get(label) or self.whole_law(one, tokens, label, put)
        return law, self.at_last(put, one, gaps, f", {label}")

    def whole_law(self, one: Asked, tokens: X, label: str, put: Callable[[str, X], X]
                  ) -> tuple[Law, tuple[X, X, X]]:
        """The law of answers of so many tokens over the batch sizes, and their gaps."""
        assert one.write is not None
        assert one.pace is not None
        gap = put(f"Gaps, {label}", most(tokens - 1.0, 1.0))
        gaps = gap, 1.0 / gap, 1.0 / square(gap)
        return law_of(one.write, one.cells, one.cv2, one.pace, self.tables.extra.get("most"), gaps,
                      f", {label}"), gaps

    def halved(self, put: Scalars, reached: Reached, span: X, level: X, label: str) -> X:
        """Where a distribution reaches a level [s], by halving a range."""
        start = put(f"Try 1 {label}", span / 2.0)
        top, above = put.rows.row(f"Try 1 {label}{put.suffix}"), f"{letters(put.column)}{{p}}"
        test = reached.below(level, start.value).replace(TRIED, above)
        return put.down([f"Try {i} {label}" for i in range(2, SHORT_HALVINGS + 1)], X(
            f"{above}+IF({test},1,-1)*{span.text}/2^(ROW()-{top})",
            reached.tries(span, level, SHORT_HALVINGS)[:, 1:]))
