"""The batch limit of a rate where whole requests or gaps between tokens have a target.

Of several limits the planner takes the largest that holds everything (``continuous._slowly``). Of
whole requests, first tokens take their part at the largest limit that holds the rest; that leaves
a time for the tokens, which larger limits make longer. So the limit is the largest whose tokens
keep that time (and whose gaps are short enough), and is then asked exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, highest, least, most, when
from planner.workbook.live.gaps import Open, gaps_in_time
from planner.workbook.live.laws import law_of, share_within
from planner.workbook.live.targets import NEVER_S, SHORT_HALVINGS

if TYPE_CHECKING:
    from planner.workbook.live.asked import Asked
    from planner.workbook.live.search import Chain

TOKEN_BARELY = 1e-9
"""Share by which the level of the tokens of a whole request may be missed
(``continuous._late``)."""


def settled(chain: Chain, one: Asked, found: Open) -> X:
    """The largest limit that also holds the targets on whole requests and gaps."""
    caps, targets, put = chain.tables.cap, chain.targets, chain.put(one)
    limit = put("First limit, for tokens alone", highest(caps.all * found.allowed))
    trial = replace(one, cells={**one.cells, "limit": limit}, over_sizes=dict(one.over_sizes),
                    suffix=", first limit", aside=chain.tables.board.side)
    allowed = found.allowed
    if targets.e2e is not None and targets.e2e_level is not None:
        chain.at_limit(trial)
        chain.first_token(trial)
        _whole_columns(chain, one, targets.e2e_level)
        assert targets.e2e_first is not None
        late = _first_token(chain, trial, targets.e2e, targets.e2e_first)
        left = _left(chain, trial, targets.e2e, targets.e2e_level, late)
        allowed = allowed * (_whole_in_time(chain, trial, found, left).all >= 0.0)
    if targets.itl is not None and targets.itl_level is not None:
        gaps = gaps_in_time(chain, trial, found, targets.itl, targets.itl_level)
        allowed = allowed * (gaps.all >= 0.0)
    return highest(caps.all * allowed)


def _whole_columns(chain: Chain, one: Asked, level: X) -> None:
    """Columns of the law of answers as long as that level, over batch sizes and limits."""
    t = chain.tables
    assert one.limits is not None
    assert one.limits_pace is not None
    label = chain.whole_label
    law, gaps = chain.whole_law(one, t.output.quantile(level), label, chain.put(one))
    one.laws[f"{label}, limits"] = law_of(
        one.limits, one.cells, one.cv2, one.limits_pace, t.extra.get("cap_most"), gaps,
        f", {label}"), gaps
    one.laws[label] = law, gaps


def _first_token(chain: Chain, one: Asked, limit: X, level: X) -> X:
    """The first token [s] at a level; a little more than ``limit`` [s] where it is beyond that."""
    put, first, label = chain.put(one), chain.first(one), "first token"
    span = put(f"Range of {label} [s]", least(first.longest(), limit))
    late = chain.halved(put, first.reached, span, level, f"of {label}")
    return put(f"Level of {label} [s]", late + span / 2.0**SHORT_HALVINGS)


def _left(chain: Chain, one: Asked, limit: X, level: X, late: X) -> X:
    """Time per token [s] that a first token leaves to whole requests of a level."""
    tokens = chain.tables.output.quantile(level) - 1.0
    return chain.put(one)("Left for a token [s]", when(
        tokens > 0.0, (limit - late) / most(tokens, 1.0), NEVER_S * (late <= limit)))


def whole_within(chain: Chain, one: Asked, limit: X, level: X) -> X:
    """Share of the answers of a level whose tokens keep the time that first tokens leave them, at
    the limit of the rate: where it reaches the level of tokens, whole requests are in time
    (``loops.ends_in_time``)."""
    part = chain.targets.e2e_first
    assert part is not None
    left = _left(chain, one, limit, level, _first_token(chain, one, limit, part))
    reached = chain.whole(one, chain.tables.output.quantile(level), chain.whole_label)
    return chain.put(one)("Share of answers within it", reached(left))


def _whole_in_time(chain: Chain, trial: Asked, found: Open, left: X) -> Column:
    """For each limit, output of whole requests in time less what must be."""
    assert trial.pace is not None
    assert trial.limits_pace is not None
    assert trial.write is not None
    assert trial.limits is not None
    t, text = chain.tables, ", whole requests"
    law, last = trial.laws[chain.whole_label][0], trial.laws[f"{chain.whole_label}, limits"][0]
    good = share_within(left, trial.pace.step, law, t.variance.each, "each")
    good_last = share_within(left, trial.limits_pace.step, last, None, "each")
    level = chain.targets.e2e_token
    assert level is not None
    return chain.in_time(trial, found.test, found.waiting, good, good_last,
                         level - TOKEN_BARELY, text)
