"""Single gaps between tokens as formulas, of one pool (``loops.gap_time``).

A gap is a step, and what prompts add to it: those that come in it, and in the first gap of an
answer those that came before it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.loops.gaps import MOST_LEAST
from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, exp, least, most, square
from planner.workbook.live.laws import Cells, Law, Pace, Write, share_within, single_cells
from planner.workload import REFERENCE_TOKENS, SLACK

if TYPE_CHECKING:
    from planner.workbook.live.halving import Reached
    from planner.workbook.live.search import Asked, Chain

BARELY = SLACK
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
    """For each limit, output of gaps that are short enough less what must be.

    At least as many gaps count as the first of an answer as of the reference answers
    (``queueing.Chain.gaps_within``).
    """
    t, text = chain.tables, ", gaps"
    write, limits, pace, last = trial.write, trial.limits, trial.pace, trial.limits_pace
    assert write is not None
    assert limits is not None
    assert pace is not None
    assert last is not None
    first = 1.0 / least(_gaps_of(chain), REFERENCE_TOKENS - 1.0)
    first = chain.put(trial)("Share of gaps that are the first, as sized", first)
    law = _law(chain, trial, write, pace, t.extra.get("most"), first)
    last_law = _law(chain, trial, limits, last, t.extra.get("cap_most"), first)
    good = share_within(limit, pace.step, law, t.variance.each, "each")
    good_last = share_within(limit, last.step, last_law, None, "each")
    return chain.in_time(trial, found.test, found.waiting, good, good_last, level - BARELY, text)


def gaps_reached(chain: Chain, one: Asked) -> tuple[Reached, X]:
    """Share of the gaps up to a time under the limit of the rate, and a time [s] that hardly any
    exceeds."""
    assert one.write is not None
    assert one.pace is not None
    assert one.last is not None
    put, t = chain.put(one), chain.tables
    first = put("Share of gaps that are the first", 1.0 / _gaps_of(chain))
    law = _law(chain, one, one.write, one.pace, t.extra.get("most"), first)
    write, bound = single_cells(put, " at the limit"), one.last.most
    last = _law(chain, one, write, one.last, None if bound is None else write(
        "Added to a gap, most [s]", bound), first)
    return chain.reached(one, ((law, last),)), chain.hardly_exceeded(one, last)


def _gaps_of(chain: Chain) -> X:
    """Gaps of an answer, mean."""
    return chain.tables.moments["gaps_own"]


def _law(chain: Chain, one: Asked, write: Write, pace: Pace, bound: Cells | None, first: X) -> Law:
    """Write the law of gaps of which a share ``first`` are the first of an answer."""
    rate, after = one.cells["stop"], one.cells["after"]
    chunked, stages = chain.kind == "chunked", float(chain.tables.step.deployment.layout.pipeline)
    step, before, cost, cv2 = pace.step, pace.before, pace.cost, most(one.cv2, 1.0)
    once = write("Added to the first gap [s]", (rate * before + after) * cost).each
    gap = write("Added to any gap [s]", rate * cost * step).each
    bursts = rate / (1.0 + one.cells["ahead"])
    bursts, stages = (bursts, 1.0) if chunked else (bursts * stages, stages)
    long = step + gap if chunked else step
    added, met = gap + first * once, _met(first, bursts, long, before, after)
    if pace.most is not None:
        ever = write("Ever meets a prompt", 1.0 - exp(
            0.0 - bursts * (before + step * _gaps_of(chain))) / (1.0 + after)).each
        added = write("Added to a gap [s]", least(added, pace.most * ever)).each
        met = least(most(met, added / pace.most), ever)
    none = write("Gap meets no prompt", 1.0 - most(met, 1e-12))
    mean = write("Added to a gap that does [s]", most(added / (1.0 - none.each), 1e-15))
    least_s = chain.shortest * pace.mean / stages
    least_s = least_s if pace.most is None else least(least_s, pace.most)
    lowest = write("Least of it [s]", least(least_s, MOST_LEAST * mean.each))
    beyond = write("Beyond it [s]", mean.each - lowest.each)
    cycles = rate * (pace.own + cv2 * square(pace.mean)) / pace.left ** 3
    swing = square(rate * pace.wait * cost) + after * (
        pace.own / square(pace.left) + (1.0 + after) * square(cost))
    thin = square(step / long) if chunked else 1.0
    squares = cycles * step * thin / stages + square(gap) + first * (
        (square(once) + cycles * before + swing) * thin + 2.0 * once * gap)
    squares = squares if pace.most is None else least(squares, pace.most * added)
    variance = write("Its variance [s²]", most(
        squares / (1.0 - none.each) - square(mean.each), 1e-3 * square(mean.each)))
    return Law(none, beyond, variance, bound, lowest)


def _met(first: X, bursts: X, long: X, before: X, after: X) -> X:
    """Share of the gaps that meet a prompt: of those after the first, and of the first."""
    return (1.0 - first) * (1.0 - exp(0.0 - bursts * long)) + first * (
        1.0 - exp(0.0 - bursts * (before + long)) / (1.0 + after))
