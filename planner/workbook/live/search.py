"""The search for the fewest replicas, one column an arrival rate, and what users then see."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.queueing import BEHIND_CV2, WINDOW_TOKENS
from planner.setups.chunked import CHUNK_RESIDUAL, MIN_CHUNK_TOKENS
from planner.setups.continuous import RESIDUAL, SLOW_STRIDE
from planner.setups.disaggregated import ADMISSION_SHARE, MAX_LINK_LOAD
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
from planner.workbook.live.onepool import (
    FAR,
    NEVER_S,
    Tables,
    Targets,
    Wait,
    rank_wait,
)

SIDE = 24
"""Columns from those of a rate to its second and third ones."""
BARELY = 1e-6
"""Share by which a level may be missed (``continuous._level``)."""
LEAST_WEIGHT = 1e-300
"""A sum of weights that is 0 where a rate is far beyond what a limit carries."""
TINY_S2 = 1e-18
"""[s^2] added to a variance that may be 0."""


@dataclass(slots=True, eq=False)
class Asked:
    """One column: its rate, and the cells that later rows and columns use."""

    column: int
    rate: X
    cv2: X
    cells: dict[str, X] = field(default_factory=dict)
    wait: Wait | None = None
    own_wait: X | None = None
    """Mean wait [s] for the prefill alone (prefill pools)."""
    alone: tuple[X, X, X] | None = None
    """Chance, gamma shape and scale of the wait for the prefill alone."""
    shape: X = field(default_factory=lambda: x(1.0))
    scale: X = field(default_factory=lambda: x(1.0))
    offset: X = field(default_factory=lambda: x(0.0))
    latency: X = field(default_factory=lambda: x(0.0))


class Scalars:
    """Cells of one column, one under the other; a label is written when it first occurs."""

    def __init__(self, board_rows: Rows, column: int) -> None:
        self.rows, self.column = board_rows, column

    def __call__(self, label: str, e: X) -> X:
        """Write a cell on the row of its label."""
        return self.rows.board_put(label, self.column, e)


class Rows:
    """Rows of labelled scalars to the right of the tables."""

    def __init__(self, tables: Tables, top: int, far: int = FAR) -> None:
        self.board, self.top, self.far = tables.board, top, far
        self.known: dict[str, int] = {}

    def board_put(self, label: str, column: int, e: X) -> X:
        """Write one cell."""
        if label not in self.known:
            self.known[label] = self.top + len(self.known)
            self.board.page.write(self.known[label], self.far, label, "short")
        return self.board.put(self.known[label], column, e, "general")


def pick_each(column: Column | X, place: Column) -> X:
    """Rows of a range by the places in a column, row by row."""
    source = column if isinstance(column, X) else column.all
    index = place.value.astype(int) - 1
    return X(f"INDEX({source.text},{place.each.text})", np.asarray(source.value)[index])


def share_within_both(share: X, left: X, both_: tuple[X, X, X], alone: tuple[X, X, X] | None
                      ) -> X:
    """Share in time with both waits, never above that with the first alone
    (``queueing.share_within_both``); ``left`` is the time [s] that a prompt may wait."""
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
        Whether the request has an end-to-end or gap target, so that only every eighth limit counts.
    wire : X, optional
        [s] that a cache keeps the network cards of a decode replica busy, mean.
    """

    def __init__(self, tables: Tables, targets: Targets, kind: str, rows: Rows,
                 slow: bool = False, wire: X | None = None) -> None:
        self.tables, self.targets, self.kind, self.rows = tables, targets, kind, rows
        self.slow_targets, self.wire = slow, wire
        self.logs: Column | None = None
        self.middles: Column | None = None
        self.at_peak: dict[str, Any] = {}
        self._prepare()

    def with_targets(self, targets: Targets, rows: Rows) -> Chain:
        """The same chain asked for other targets, its columns elsewhere."""
        other = copy(self)
        other.targets, other.rows = targets, rows
        return other

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
            asked = np.arange(count) % SLOW_STRIDE == 0
            slow = least(*(limit for limit in (self.targets.e2e, self.targets.itl) if limit
                           is not None)) < NEVER_S
            self.asked = put("Asked with whole-request targets", X(
                f"IF({slow.text},1*(MOD(ROW()-{caps.first},{SLOW_STRIDE})=0),1)",
                np.where(slow.value > 0, asked, True) * 1.0), "count")
        if self.kind != "chunked":
            each = ln(t.seconds.each / t.n.each)
            gain = t.width.each * each
            ends = t._sized("Sum of ln(step / n)", X(
                f"N(${xl_col_to_name(t.extra_free)}{{p}})+{gain.text}", np.cumsum(gain.value)),
                "six")
            self.logs = ends
            self.middles = b.named(t._sized("The same in the middle", ends.each
                                            - (t.width.each - 1.0) / 2.0 * each, "six"),
                                   f"mid_{t.tag}")
            self.limit_logs = put("Sum of ln(step / n)", pick_each(ends, self.place), "six")
        self.below = (t.end.value[None, :] <= caps.value[:, None]) * 1.0

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
        """Everything about one rate; under a given batch limit, or the largest that will do."""
        put = Scalars(self.rows, column)
        one = Asked(column, put("Requests per second [1/s]", rate), put("Arrival CV²", cv2))
        c = one.cells
        c["peak"] = put("Peakedness", most(1.0 + (one.cv2 - 1.0) / 2.0, 1.0))
        self._open(put, one)
        c["limit"] = put("Batch limit", most(limit, 1.0) if limit is not None
                         else self._limit(put, one))
        self._at_limit(put, one)
        return one

    def _open(self, put: Scalars, one: Asked) -> None:
        """The chain at this rate, scaled so that no weight overflows."""
        t, c = self.tables, one.cells
        moment = {"colocated": "stall2", "chunked": "new2"}.get(self.kind)
        if moment:
            m = t.moments
            c["stall"] = put("Spread of TPOT by prefills", one.rate * most(one.cv2, 1.0)
                             * m[moment] / WINDOW_TOKENS)
            ranks = float(t.step.deployment.layout.data)
            kept, again = ((m["service1"], m["service2"]) if self.kind == "colocated" else
                           (m["occupancy"] * m["new"], square(m["occupancy"]) * m["new2"]))
            c["ahead"] = put("Of a burst, ahead", most(one.cv2 - 1.0, 0.0) / 2.0 * kept)
            c["others"] = put("Of others", one.rate * again * ranks / 2.0)
        if self.kind == "chunked":
            c["demand"] = put("Prompt tokens per second", one.rate * t.moments["new"])
            self._down(one)
            c["top"] = put("Highest log weight", most(highest(c["logs"]), 0.0))
            return
        inner = one.rate * t.output.mean
        if self.kind == "colocated":
            c["load"] = put("Share of time of prefills", one.rate * t.moments["held"])
            c["slow"] = put("Time left to decodes", most(1.0 - c["load"], 1e-6))
            c["late"] = put("TPOT by the prompts behind [s]", c["load"] / c["slow"] * (
                (c["others"] + c["ahead"]) / c["slow"] + t.moments["s1"]) / WINDOW_TOKENS)
            inner = inner / c["slow"]
        c["log"] = put("ln of output tokens per second", ln(most(inner, 1e-300)))
        assert self.middles is not None
        scaled = (t.n.all * c["log"] + self.middles.all) / c["peak"]
        c["top"] = put("Highest log weight", most(highest(
            (t.end.all <= t.step.memory_cap) * scaled), 0.0))

    def _down(self, one: Asked) -> None:
        """ln of the weight at the end of each row of batch sizes, on the rows themselves."""
        t, c = self.tables, one.cells
        slow = 1.0 - c["demand"] * t.extra["per_token"].each
        inside = both(c["demand"] * t.extra["closed"].each < 1.0,
                      t.end.each <= t.step.memory_cap)
        util = one.rate * t.output.mean * t.seconds.each / (t.n.each * slow)
        safe = np.where(inside.value > 0, util.value, 1.0)
        gain = t.width.value * np.log(np.maximum(safe, 1e-300)) / c["peak"].value
        letter = xl_col_to_name(one.column)
        e = X(f"N({letter}{{p}})+IF({inside.text},{t.width.each.text}*LN({util.text})"
              f"/{c['peak'].text},0)", np.cumsum(gain))
        made = t.board.down(t.n.first - 1, one.column, e, len(t.n.value), "general")
        c["logs"], c["before"] = made.all, made.shifted

    def weights(self, one: Asked) -> X:
        """Weight of each row of batch sizes, as ranges."""
        t, c = self.tables, one.cells
        if self.kind == "chunked":
            part = (t.width.all - 1.0) / (2.0 * t.width.all)
            return t.width.all * exp(c["logs"] - part * (c["logs"] - c["before"]) - c["top"])
        assert self.middles is not None
        scaled = (t.n.all * c["log"] + self.middles.all) / c["peak"] - c["top"]
        return t.width.all * exp((t.end.all <= t.step.memory_cap) * scaled)

    def tpot(self, one: Asked) -> X:
        """Time per output token of each row of batch sizes, as ranges."""
        t, c = self.tables, one.cells
        if self.kind == "chunked":
            return t.seconds.all / self.left(one, t.extra["per_token"].all)
        return t.seconds.all if self.kind == "decode" else t.seconds.all / c["slow"]

    def left(self, one: Asked, per_token: X) -> X:
        """Share of time that prompts leave; rows where it is negative are never counted."""
        return absolute(1.0 - one.cells["demand"] * per_token)

    def late(self, one: Asked, step: X, per_token: X | None, each: X | None) -> X:
        """TPOT that the prompts behind a request add to it [s] (``continuous.behind``)."""
        c, m = one.cells, self.tables.moments
        if per_token is None or each is None:
            return c.get("late", x(0.0))
        idle = absolute(1.0 - c["demand"] * m["occupancy"] * each)
        alone = m["new"] * each + step
        wait = (c["others"] * each + c["ahead"]) * each / idle
        share = c["demand"] * per_token / WINDOW_TOKENS / self.left(one, per_token)
        return share * (wait + alone)

    def sigma(self, one: Asked, tpot: X, per_token: X | None, variance: X | None, late: X) -> X:
        """Standard deviation of a request's TPOT around that of its batch size."""
        found = x(TINY_S2) if variance is None else variance + TINY_S2
        if self.kind == "colocated":
            found = one.cells["stall"] * tpot + found
        elif per_token is not None:
            found = one.cells["stall"] * tpot * square(per_token) + found
        if late.text != "0":
            found = BEHIND_CV2 * square(late) + found
        return sqrt(found)

    def _limit(self, put: Scalars, one: Asked) -> X:
        """Largest batch limit that keeps up and holds TPOT (and gaps, where they are TPOT)."""
        t, targets = self.tables, self.targets
        open_e = self._open_limits(one)
        share, ratio, mine, weight = self._tails(one, open_e)
        allowed = 1.0 * (self._held(one, one.column, open_e, (share, ratio, mine), targets.tpot,
                                    targets.tpot_level).all >= 0.0)
        if self.slow_targets:
            allowed = allowed * self.asked.all
        if self.kind == "decode":
            allowed = allowed * self._hardly_waits(one, weight, ratio, open_e)
            if targets.itl is not None and targets.itl_level is not None:
                allowed = allowed * (self._held(
                    one, one.column + 2 * SIDE, open_e, (share, ratio, mine), targets.itl,
                    targets.itl_level).all >= 0.0)
        return highest(t.cap.all * allowed)

    def _open_limits(self, one: Asked) -> X:
        """Limits that the memory holds and that keep up with the rate."""
        t, c, caps = self.tables, one.cells, self.tables.cap.each
        rate = X(f"${self.ceiling.letter}{{r}}", self.ceiling.value)
        tests = [caps <= self._most_sequences(), one.rate < rate]
        if self.kind == "chunked":
            tests.append(c["demand"] * t.extra["cap_closed"].each < 1.0)
        return both(*tests)

    def _tails(self, one: Asked, open_e: X) -> tuple[X, X, X, X]:
        """Of the state past each limit: tokens over its weight, ratio, TPOT [s], weight."""
        t, c, caps, step = self.tables, one.cells, self.tables.cap.each, self.tables.cap_step.each
        if self.kind == "chunked":
            mine = step / self.left(one, t.extra["cap_per_token"].each)
            weight = exp(pick_each(c["logs"], self.place) - c["top"])
        else:
            mine = step if self.kind == "decode" else step / c["slow"]
            weight = exp((caps * c["log"] + self.limit_logs.each) / c["peak"] - c["top"])
        util = (one.rate * t.output.mean * mine / caps) ** (1.0 / c["peak"])
        ratio = X(util.text, np.where(open_e.value > 0, util.value, 0.5), util.binds)
        return weight * caps / mine * ratio / (1.0 - ratio), ratio, mine, weight

    def _held(self, one: Asked, column: int, open_e: X, tail: tuple[X, X, X], limit: X, level: X
              ) -> Column:
        """For each limit, tokens within a time per token minus those that must be."""
        t, (waiting, _, mine) = self.tables, tail
        chunked = self.kind == "chunked"
        per = t.extra["per_token"].all if chunked else None
        every = t.extra["closed"].all if chunked else None
        tpot, late = self.tpot(one), self.late(one, t.seconds.all, per, every)
        least_share = level - BARELY
        good = normal((limit - tpot - late)
                      / self.sigma(one, tpot, per, t.variance.all, late))
        surplus = self.weights(one) * t.n.all / tpot * (good - least_share)
        per = t.extra["cap_per_token"].each if chunked else None
        late = self.late(one, t.cap_step.each, per, t.extra["cap_closed"].each if chunked else None)
        last = waiting * (normal((limit - mine - late)
                                 / self.sigma(one, mine, per, None, late)) - least_share)
        inside = X(f"SUMPRODUCT(({t.end.all.text}<={t.cap.each.text})*{surplus.at(3)})",
                   self.below @ np.nan_to_num(surplus.value))
        e = when(open_e, inside + last, -1.0)
        return t.board.down(t.cap.first - 1, column, e, len(t.cap.value), "general")

    def _most_sequences(self) -> X:
        t = self.tables
        if t.budget is None:
            return t.step.memory_cap
        return least(t.step.memory_cap, float(t.budget - MIN_CHUNK_TOKENS))

    def _hardly_waits(self, one: Asked, weight: X, ratio: X, open_e: X) -> X:
        """Whether at most 1 % wait for a place, for each limit."""
        t, c = self.tables, one.cells
        inside = X(f"SUMPRODUCT(({t.end.all.text}<={t.cap.each.text})*{self.weights(one).at(3)})",
                   self.below @ self.weights(one).value)
        share = weight / (1.0 - ratio) / most(
            exp(0.0 - c["top"]) + inside + weight * ratio / (1.0 - ratio), LEAST_WEIGHT)
        e = when(open_e, 1.0 * (share <= ADMISSION_SHARE), 0.0)
        made = t.board.down(t.cap.first - 1, one.column + SIDE, e, len(t.cap.value), "general")
        return made.all

    def _at_limit(self, put: Scalars, one: Asked) -> None:
        """The states under the batch limit: normaliser, running sequences, wait for a place."""
        t, c = self.tables, one.cells
        cap = c["cap"] = put("Limit, at least 1", most(c["limit"], 1.0))
        place = put("Row of the limit", place_below(cap, t.cap.all))
        step = pick(t.cap_step.all, place)
        if self.kind == "chunked":
            step = step / most(1.0 - c["demand"] * pick(t.extra["cap_per_token"].all, place), 1e-6)
        elif self.kind == "colocated":
            step = step / c["slow"]
        c["tpot"] = put("TPOT at the limit [s]", step)
        if self.kind == "chunked":
            per = pick(t.extra["cap_per_token"].all, place)
            c["last_late"] = put("Added by prompts behind [s]", self.late(
                one, pick(t.cap_step.all, place), per, pick(t.extra["cap_closed"].all, place)))
            log = pick(c["logs"], pick(self.place.all, place))
        else:
            log = (cap * c["log"] + pick(self.limit_logs.all, place)) / c["peak"]
        weight = c["weight"] = put("Weight of the limit", exp(log - c["top"]))
        ratio = c["ratio"] = put("Ratio past the limit", least((
            one.rate * t.output.mean * c["tpot"] / cap) ** (1.0 / c["peak"]), 1.0 - 1e-9))
        tail = c["tail"] = put("Weight of those that wait", weight * ratio / (1.0 - ratio))
        inside = (t.end.all <= cap) * self.weights(one)
        whole_ = c["total"] = put("All weights", most(
            exp(0.0 - c["top"]) + total(inside) + tail, LEAST_WEIGHT))
        c["running"] = put("Running sequences, mean", (
            total(inside * t.n.all) + tail * cap) / whole_)
        c["waits"] = put("Share that waits for a place", weight / (1.0 - ratio) / whole_)
        c["waits_s"] = put("Their mean wait [s]",
                           t.output.mean * c["tpot"] / cap / (1.0 - ratio))

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
        t, c = self.tables, one.cells
        put = Scalars(self.rows, one.column)
        step = c["step"] = self.at_running(put, one, t.seconds, "Step then [s]")
        if self.kind == "colocated":
            layout = t.step.deployment.layout
            wait, c["rho"] = rank_wait(put, layout, one.rate, t.moments["service1"],
                                       t.moments["service2"], t.moments["service3"], one.cv2,
                                       layout.pipeline - 1.0)
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
        engine = t.step.hardware.engine
        mixed = c["mixed"] = self.at_running(put, one, t.extra["mixed"],
                                             "Step with a chunk then [s]")
        running = least(most(c["running"], 1.0), float(t.top))
        space = put("Room then [tokens]", most(float(t.budget) - running, 1.0))
        chunk = least(space, most(t.moments["longest"], 1.0))
        per = put("Extra per prompt token then [s]", most(mixed - step, 0.0) / chunk)
        full = put("Full step then [s]", step + per * space)
        unit = put("Service per prompt token [s]", full / space * t.moments["occupancy"])
        layout = t.step.deployment.layout
        wait, c["rho"] = rank_wait(put, layout, one.rate, unit * t.moments["new"],
                                   square(unit) * t.moments["new2"],
                                   unit ** 3 * t.moments["new3"], one.cv2, float(layout.pipeline))
        load = least(c["demand"] * per, 0.95)
        one.offset = put("Rest of the step [s]", CHUNK_RESIDUAL * step / (1.0 - load))
        steps = whole(t.new.each / space)
        rest = t.new.each - steps * space
        latency = engine["ttft_scale"] * (steps * full + (rest > 0.0) * (step + per * rest)
                                          ) + t.lag.each
        made = t.board.down(t.prompt.tokens.first - 1, one.column, latency,
                            len(t.new.value), "general")
        one.latency = made.all
        c["mean_latency"] = put("Prefill, mean [s]", total(t.prompt.share.all * made.all))
        return wait

    def _with_place(self, put: Scalars, one: Asked, wait: Wait) -> None:
        """Add the wait for a place in the batch; both as one gamma."""
        c = one.cells
        place_mean = put("Wait for a place, mean [s]", c["waits"] * c["waits_s"])
        second = 2.0 * c["waits"] * square(c["waits_s"])
        both_ = Wait(put("Share that waits", 1.0 - (1.0 - wait.busy) * (1.0 - c["waits"])),
                     put("Wait, mean [s]", wait.mean + place_mean),
                     put("Wait, mean of squares [s²]",
                         wait.second + second + 2.0 * wait.mean * place_mean))
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
            late = self.percentile(one, targets.e2e_level, "of TPOT for the whole request")
            tokens = most(self.tables.output.quantile(targets.e2e_level) - 1.0, 0.0)
            left = put("Left for the first token [s]", targets.e2e - late * tokens)
            c["whole"] = put("Share within it", self.within(one, left))
            tests.append(c["whole"] >= targets.e2e_level - BARELY)
        if targets.itl is not None and targets.itl_level is not None:
            tests.append(self.gap(one, targets.itl_level) <= targets.itl)
        return put("Holds", when(both(*tests), 1.0, 0.0))

    def gap(self, one: Asked, level: X) -> X:
        """Gap between two tokens [s] at a level (``Continuous._gaps``): the step of the batch
        that so many tokens come from, and the stall of a prefill where one falls into it."""
        t, c = self.tables, one.cells
        put = Scalars(self.rows, one.column)
        self.reached(one, c["tpot"])
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
        share, stall = self._stall(put, one, level)
        return put("Gap between tokens [s]", step + when(level > 1.0 - share, stall, 0.0))

    def _tokens_so_far(self, one: Asked) -> Column:
        """Tokens generated up to the end of each row of batch sizes, waiting ones at the limit."""
        t, c = self.tables, one.cells
        weight = self.weights(one)
        per = t.extra["per_token"].each if self.kind == "chunked" else None
        slow = c.get("slow") if per is None else self.left(one, per)
        tpot = t.seconds.each if slow is None else t.seconds.each / slow
        each = (t.end.each <= c["cap"]) * X(by_row(weight.text, self, c), weight.value,
                                            weight.binds) * t.n.each / tpot
        each = each + (t.end.each.is_(c["cap"])) * c["last"]
        letter = xl_col_to_name(one.column + SIDE)
        e = X(f"N({letter}{{p}})+{each.text}", np.cumsum(each.value))
        return t.board.down(t.n.first - 1, one.column + SIDE, e, len(t.n.value), "general")

    def _stall(self, put: Scalars, one: Asked, level: X) -> tuple[X, X]:
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

    def reached(self, one: Asked, time: X) -> X:
        """Share of the tokens whose request has a TPOT of at most ``time``."""
        t, c = self.tables, one.cells
        chunked = self.kind == "chunked"
        per = t.extra["per_token"].all if chunked else None
        tpot, late = self.tpot(one), self.late(
            one, t.seconds.all, per, t.extra["closed"].all if chunked else None)
        last_late = c.get("last_late", late)
        inside = (t.end.all <= c["cap"]) * self.weights(one) * t.n.all / tpot
        last = c["tail"] * c["cap"] / c["tpot"]
        place = place_below(c["cap"], t.cap.all)
        per_c = pick(t.extra["cap_per_token"].all, place) if self.kind == "chunked" else None
        if "tokens" not in c:
            put = Scalars(self.rows, one.column)
            c["last"] = put("Output of those that wait", last)
            c["tokens"] = put("Output of all states", most(total(inside) + c["last"],
                                                           LEAST_WEIGHT))
            c["last_sigma"] = put("Spread of TPOT at the limit [s]",
                                  self.sigma(one, c["tpot"], per_c, None, last_late))
            c["last_seen"] = put("TPOT of requests at the limit [s]", c["tpot"] + last_late)
            c["added"] = put("Added by prompts behind, mean [s]", (
                total(inside * late) + c["last"] * last_late) / c["tokens"])
        good = normal((time - tpot - late) / self.sigma(one, tpot, per, t.variance.all, late))
        more = c["last"] * normal((time - c["last_seen"]) / c["last_sigma"])
        return (total(inside * good) + more) / c["tokens"]

    def percentile(self, one: Asked, level: X, label: str) -> X:
        """TPOT [s] of a level by halving, between 0 and twice the slowest state's."""
        put = Scalars(self.rows, one.column)
        c = one.cells
        self.reached(one, c["tpot"])
        span = put(f"Range {label} [s]", c["last_seen"] + 6.0 * c["last_sigma"])
        at = put(f"Try 1 {label}", span / 2.0)
        for i in range(2, 16):
            below = self.reached(one, at) < level - 1e-9
            at = put(f"Try {i} {label}", at + when(below, 1.0, -1.0) * span / float(2**i))
        return at


def by_row(text: str, chain: Chain, cells: dict[str, X]) -> str:
    """A formula over the batch sizes as one of a single row of them."""
    t = chain.tables
    pairs = [(c.all.text, c.each.text) for c in (t.width, t.n, t.end) if c.name]
    if chain.middles is not None:
        pairs.append((chain.middles.all.text, chain.middles.each.text))
    for name in ("logs", "before"):
        if name in cells:
            first = cells[name].text.replace("$", "").split(":")[0]
            letter = first.rstrip("0123456789")
            pairs.append((cells[name].text, f"${letter}{{{'r' if name == 'logs' else 'p'}}}"))
    for whole_, one in sorted(pairs, key=lambda p: -len(p[0])):
        text = text.replace(whole_, one)
    return text


def mean_tpot(chain: Chain, one: Asked) -> X:
    """E[n] over the throughput, over the states that generate [s]."""
    t, c = chain.tables, one.cells
    inside = (t.end.all <= c["cap"]) * chain.weights(one) * t.n.all
    return (total(inside) + c["tail"] * c["cap"]) / c["tokens"] + c["added"]
