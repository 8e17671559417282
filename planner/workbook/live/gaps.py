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
    sqrt,
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
    """For each limit, 1 where the gap of a level is short enough, else 0: without a stall where
    few enough gaps hold one, else with the stall at the limit of the trial."""
    assert trial.limits is not None
    put = chain.put(trial)
    _, stall = chain.stall(put, trial, level)
    left = put("Left for a step [s]", limit - stall)
    alone = _steps_in_time(chain, trial, found, limit, level, "")
    beside = _steps_in_time(chain, trial, found, left, level, " beside a stall")
    share = _stalled(chain, trial, found)
    made = trial.limits("Gaps in time", 1.0 * (when(
        level > 1.0 - share, beside.each, alone.each) >= 0.0))
    assert isinstance(made, Column)
    return made


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


def _steps_in_time(chain: Chain, trial: Asked, found: Open, left: X, level: X, text: str
                   ) -> Column:
    """For each limit, output with steps within a time less what must be. Of a row of several
    batch sizes those count whose step, on a straight line between rows, is within it."""
    assert trial.write is not None
    assert trial.limits is not None
    t = chain.tables
    width = t.width.each
    sizes = whole((left - t.seconds.each) * width / most(
        sqrt(12.0 * t.variance.each), 1e-15) + (width + 1.0) / 2.0)
    good = trial.write(f"Steps in time{text}", least(most(sizes, 0.0), width) / width)
    last = trial.limits(f"Step in time{text}", 1.0 * (t.cap_step.each <= left))
    return chain.in_time(trial, found.test, found.waiting, good, last, level - BARELY,
                         f", gaps{text}")
