"""Which batch limits keep a target on the gap between two tokens, of one pool.

A gap is a step, or a step and the stall of a prefill (``continuous._gaps``). A larger limit has
longer steps, and more gaps that hold a prefill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.workbook.live.board import Column
from planner.workbook.live.expr import (
    X,
    exp,
    least,
    most,
    pick,
    place_below,
    when,
    whole,
)
from planner.workbook.live.search_rows import by_row

if TYPE_CHECKING:
    from planner.workbook.live.search import Asked, Chain

BARELY = 1e-9
"""Share by which the level of a gap may be missed."""


@dataclass(frozen=True, slots=True, eq=False)
class Open:
    """Batch limits that hold the targets on tokens, over the limits.

    Attributes
    ----------
    allowed : X
        1 where the limit is asked and holds them.
    test : X
        Whether it keeps up with the rate and fits.
    waiting, past : X
        Output of those that wait past it, and the ratio of the tail there.
    """

    allowed: X
    test: X
    waiting: X
    past: X


def gaps_in_time(chain: Chain, trial: Asked, found: Open, limit: X, level: X) -> Column:
    """For each limit, 1 where the gap of a level is short enough, else 0."""
    write, t, caps = trial.limits, chain.tables, chain.tables.cap.each
    assert write is not None
    assert trial.write is not None
    left = write("Left for a step", _left(chain, trial, _stalled(chain, trial, found), limit,
                                          level)).each
    output = chain.weights(trial) * t.n.all / chain.tpot(trial)
    so_far, _ = chain.summed(trial.write.bare(), X(
        by_row(output.text, chain), np.nan_to_num(output.value), output.binds))
    size = write("Batch size with that step", least(_size_of(chain, left), caps)).each
    written = write("Output up to it", _up_to(chain, so_far, size)).each
    whole_ = write("Output of all", pick(so_far, chain.place.each) + found.waiting).each
    written = written + (t.cap_step.each <= left) * found.waiting
    made = write("Gaps in time", when(
        found.test, 1.0 * (written >= (level - BARELY) * whole_), 0.0))
    assert isinstance(made, Column)
    return made


def _left(chain: Chain, trial: Asked, share: X, limit: X, level: X) -> X:
    """Time [s] that a stall leaves to a step; all of it where few enough gaps hold one."""
    t = chain.tables
    if chain.kind == "chunked":
        _, stall = chain.stall(chain.put(trial), trial, level)
    else:
        inside = (level - (1.0 - share)) / most(share, 1e-12) - 1e-12
        below = place_below(most(inside, t.prompt.reached.row(0)), t.prompt.reached.all)
        rows = float(len(t.prompt.reached.value))
        stall = pick(t.prefill.all, when(
            inside <= t.prompt.reached.row(0), 1.0, least(below + 1.0, rows)))
    return limit - when(level > 1.0 - share, stall, 0.0)


def _size_of(chain: Chain, seconds: X) -> X:
    """Largest batch size with a step of at most a time, on a straight line between rows; 0 where
    not even one sequence has it."""
    t, rows = chain.tables, float(len(chain.tables.n.value))
    first = t.seconds.row(0)
    place = place_below(most(seconds, first), t.seconds.all)
    after = least(place + 1.0, rows)
    low, step = pick(t.n.all, place), pick(t.seconds.all, place)
    part = (seconds - step) / most(pick(t.seconds.all, after) - step, 1e-15)
    size = whole(low + least(part, 1.0) * (pick(t.n.all, after) - low) + 1e-9)
    return when(seconds < first, 0.0, when(place < rows, size, float(t.top)))


def _up_to(chain: Chain, so_far: X, size: X) -> X:
    """A running sum over the rows of batch sizes up to a size."""
    t, rows = chain.tables, float(len(chain.tables.n.value))
    place = place_below(most(size, 1.0), t.end.all)
    after = least(place + 1.0, rows)
    low = pick(so_far, place)
    more = (size - pick(t.end.all, place)) / pick(t.width.all, after) * (pick(so_far, after) - low)
    return when(size >= 1.0, low + more, 0.0)


def _stalled(chain: Chain, trial: Asked, found: Open) -> X:
    """Share of the gaps that hold a prefill, for each limit (``gap_stalls``)."""
    write, c, t = trial.limits, trial.cells, chain.tables
    assert write is not None
    running = _running(chain, trial, found)
    place = write("Row below the running", place_below(running, t.n.all)).each
    rows = float(len(t.n.value))
    low, high = pick(t.n.all, place), pick(t.n.all, least(place + 1.0, rows))
    part = write("Part of the way", least(most(
        (running - low) / most(high - low, 1e-9), 0.0), 1.0)).each

    def at(column: Column) -> X:
        first = pick(column.all, place)
        return first + part * (pick(column.all, least(place + 1.0, rows)) - first)

    step = write("Step then", at(t.seconds)).each
    if chain.kind == "colocated":
        share = trial.rate * step / most(1.0 - c["load"], 1e-9)
    else:
        assert t.budget is not None
        per = write("Extra a prompt token then", at(t.extra["per_token"])).each
        chunk = least(most(float(t.budget) - running, 1.0), t.moments["new"])
        share = c["demand"] * step / most(1.0 - c["demand"] * per, 1e-9) / chunk
    return write("Share of gaps with a prefill", least(share, 1.0)).each


def _running(chain: Chain, trial: Asked, found: Open) -> X:
    """Mean of the running sequences under each limit, at least 1."""
    write, limits, t = trial.write, trial.limits, chain.tables
    assert write is not None
    assert limits is not None
    weights = chain.weights(trial)
    column = write("Weight", X(by_row(weights.text, chain), weights.value, weights.binds))
    below = f"({t.end.all.text}<={t.cap.each.text})*{column.all.text}"
    values = np.nan_to_num(column.all.value)
    number = X(f"SUMPRODUCT({below})", values @ chain.below.T)
    sequences = X(f"SUMPRODUCT({below}*{t.n.all.text})", (values * t.n.value) @ chain.below.T)
    tail = limits("Weight of those that wait", when(
        found.test, chain.limit_weight(trial) * found.past / (1.0 - found.past), 0.0)).each
    mean = (sequences + tail * t.cap.each) / most(
        exp(0.0 - trial.cells["top"]) + number + tail, 1e-300)
    return limits("Running sequences", least(most(mean, 1.0), float(t.top))).each
