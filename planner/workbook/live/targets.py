"""What a pool is asked for, and how closely it is searched."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.workbook.live.expr import X

STEPS = 12
"""Tries of the highest rate: to 0.1 % where it is in the first octaves below the ceiling, else to
0.3 %; the whole numbers of replicas beside it are asked exactly."""
EXACT, MORE_STEPS = 250.0, 8
"""Replicas of a plan up to which no more tries are made, and how many more at most."""
OCTAVES, FIRST_OCTAVES = 12, 3
"""Octaves below the ceiling in which it is sought, and of the first try."""
HALVINGS = 20
"""Bisections of a percentile."""
SHORT_HALVINGS = 17
"""Bisections of a percentile that a rate is asked for."""
NEVER_S = 1e9
"""[s] that stands for no target."""


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Limits [s] and levels of the latency targets, as cells.

    Attributes
    ----------
    e2e_first, e2e_token : X, optional
        Levels at which first token and time per token count in the whole request.
    """

    ttft: X
    ttft_level: X
    tpot: X
    tpot_level: X
    e2e: X | None = None
    e2e_level: X | None = None
    itl: X | None = None
    itl_level: X | None = None
    e2e_first: X | None = None
    e2e_token: X | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What a pool is asked for: the peak of a region, the target load, burstiness."""

    rate: X
    utilization: X
    cv: X
    limit: X
    """Most replicas that the GPUs of a region allow."""
    carried: float = 0.0
    """[1/s] what the planner found that a replica carries, where a search looks first; 0: unknown.
    """
    planned: float = 0.0
    """Replicas of the plan without spares; 0: unknown."""

    @property
    def steps(self) -> int:
        """Tries of the highest rate: more for a fleet of many replicas, so that their number is
        exact up to several times those of the plan."""
        more = math.ceil(math.log2(max(self.planned / EXACT, 1.0)))
        return STEPS + min(more, MORE_STEPS)
