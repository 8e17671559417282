"""How many sequences run at an arrival rate: the weight of each batch size."""

from __future__ import annotations

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.workbook.live.asked import Asked, Scalars
from planner.workbook.live.board import Column
from planner.workbook.live.chain_columns import ChainColumns, pick_each
from planner.workbook.live.expr import (
    X,
    absolute,
    both,
    exp,
    highest,
    least,
    ln,
    most,
    pick,
    place_below,
    square,
    total,
    x,
)
from planner.workbook.live.laws import Beside

LEAST_WEIGHT = 1e-300
"""A sum of weights that is 0 where a rate is far beyond what a limit carries."""


class Running(ChainColumns):
    """The chain over batch sizes at an arrival rate, and under a batch limit."""

    def _open(self, put: Scalars, one: Asked) -> None:
        """The chain at this rate, scaled so that no weight overflows."""
        t, c, m = self.tables, one.cells, self.tables.moments
        own = one.cv2 if self.ranks == 1 else 1.0 + (one.cv2 - 1.0) / self.ranks
        own = c["uneven"] = put("Arrival CV² of a rank, at least 1", most(own, 1.0))
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

    @property
    def middle_logs(self) -> X:
        """Sums of ln(step / n) in the middle of the rows."""
        assert self.middles is not None
        return self.middles.all

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

    def at_limit(self, one: Asked) -> None:
        """The states under the batch limit: normaliser, running sequences, wait for a place."""
        t, c, put = self.tables, one.cells, self.put(one)
        cap = c["cap"] = put("Limit, at least 1", most(c["limit"], 1.0))
        place = put("Row of the limit", place_below(cap, t.cap.all))
        step = put("Step at the limit, alone [s]", pick(t.cap_step.all, place))
        alone, left = one.rate * t.output.mean * step / cap, x(1.0)
        full = alone
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
        each = full / one.rate if self.ranks == 1 else full * self.ranks / one.rate
        past = weight / (1.0 - ratio)
        if self.kind == "decode":
            c["waits"] = put("Share that waits for a place", past / whole_)
            c["waits_s"] = put("Their mean wait [s]", each / (1.0 - ratio))
            return
        behind = put("Prompts that wait when it fills up", self._left(one, 1.0 - left, place))
        stay = put("Weight of a full batch", past * self.ranks * left * (
            1.0 + behind * full / alone))
        c["waits"] = put("Share that waits for a place", stay / (
            most(whole_ - past, 0.0) + stay))
        c["waits_s"] = put("Their mean wait [s]", each * (1.0 / (1.0 - ratio) + behind))

    def _left(self, one: Asked, load: X, place: X) -> X:
        """Prompts that a rank leaves behind when one is done, mean (``chain.prompts_left``), at
        the limit in a row."""
        t, c, m = self.tables, one.cells, self.tables.moments
        if self.kind == "chunked":
            swing = square(one.rate) * pick(t.extra["cap_own"].all, place)
        else:
            swing = square(one.rate * m["occupancy"]) * c["own"]
        return load * (1.0 + (c["uneven"] - 1.0) / 2.0) + (
            swing + c["uneven"] * square(load)) / (2.0 * (1.0 - load))

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
