"""Where a distribution reaches a share, by halving: the values of all tries at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.loops.halving import halvings
from planner.workbook.live.expr import X
from planner.workbook.live.laws import TINY_S2, Law
from planner.workload import SLACK

ONE_TIME = 0.0
TRIED = "@"
"""Stands for a cell in a formula that is written for many."""
CLOSE = SLACK
"""Share by which a try may miss its level."""


def rows_of(value: Any) -> Any:
    """Values of single cells or of columns, cases first."""
    return np.atleast_2d(np.asarray(value, dtype=float))


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """A mixture of normally distributed starts, each with some chance of a gamma more.

    Attributes
    ----------
    weights, start_s, variance_s2 : ndarray, shape (cases or 1, N or 1)
        Weights of the states, mean [s] and variance [s²] of the start.
    none, shape, scale_s, most_s : ndarray, of such a shape
        Share without a gamma; the gamma; the most [s] that it adds.
    """

    weights: Any
    start_s: Any
    variance_s2: Any
    none: Any = 1.0
    shape: Any = 1.0
    scale_s: Any = 1.0
    most_s: Any = np.inf

    @classmethod
    def of_law(cls, weights: X, start: X, variance: X | None, law: Law | None) -> list[States]:
        """Of the states of a table, or of one, with what prompts add to a step."""
        spread = TINY_S2 + (0.0 if variance is None else rows_of(variance.value))
        if law is None:
            return [cls(weights.value, start.value, spread)]
        none, mean, swing = (rows_of(c.all.value) for c in (law.none, law.mean, law.swing))
        most = np.inf if law.most is None else law.most.all.value
        gamma = mean * mean / swing, swing / mean
        if law.least is None:
            return [cls(weights.value, start.value, spread, none, *gamma, most)]
        some, least = rows_of(weights.value), rows_of(law.least.all.value)
        return [cls(some * none, start.value, spread), cls(
            some * (1.0 - none), start.value + least, 0.0, 0.0, *gamma, most - least)]

    def beside(self, cases: int) -> list[Any]:
        """Each of the seven over as many cases, shape (cases, N)."""
        parts = [rows_of(p) for p in (self.weights, self.start_s, self.variance_s2, self.none,
                                      self.shape, self.scale_s, self.most_s)]
        return [np.broadcast_to(p, (cases, max(q.shape[1] for q in parts))) for p in parts]


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """The share of a distribution up to a time: as a formula, and as what halving needs.

    Attributes
    ----------
    share : callable
        From a time to the share, as expressions.
    parts : list of States
        Their weights add up to 1.
    """

    share: Callable[[X], X]
    parts: list[States]

    def __call__(self, time: X) -> X:
        """Share up to a time."""
        return self.share(time)

    def below(self, level: X, value: Any) -> str:
        """The test whether a level is not reached at :data:`TRIED`, a cell with a value."""
        return (self.share(X(TRIED, value)) < level - CLOSE).text

    def tries(self, span: X, level: X, count: int) -> Any:
        """Values of the tries in a range from 0 on [s], shape (cases, count)."""
        levels, spans = rows_of(level.value)[:, 0], rows_of(span.value)[:, 0]
        cases = max(len(levels), len(spans), *(
            len(rows_of(v)) for p in self.parts for v in (p.weights, p.none)))
        blocks = zip(*(p.beside(cases) for p in self.parts), strict=True)
        weights, start, variance, none, shape, scale, most = (
            np.concatenate(b, axis=1) for b in blocks)
        return halvings(np.array(np.broadcast_to(spans, (cases,))),
                        np.array(np.broadcast_to(levels - CLOSE, (cases,))), weights, start,
                        np.sqrt(variance), np.array([none, shape, scale]), most, count)
