"""The rate that users make who wait for their answers: a closed loop, found by simulating."""

from __future__ import annotations

import math
from collections.abc import Callable

from planner.simulator import SimulationResult

TOLERANCE = 0.01
"""Share by which the rate may differ from the one that users of its own answers send."""
MOST_ROUNDS = 12
Play = Callable[[float, int], SimulationResult]
"""Simulates a rate [1/s], in a round counted from 0."""


def closed_loop(play: Play, users: float, think_s: float, start_per_s: float
                ) -> tuple[float, SimulationResult]:
    """The rate [1/s] that U users send who think Z seconds, and its simulation.

    ``rate = U / (Z + R(rate))`` with R the mean time of a whole request (Little's law). R grows
    with the rate, so users send less than too high a rate and more than too low a one: the rate
    sought lies between any rate and what is sent at it.

    Parameters
    ----------
    users, think_s : float
        U, and Z [s].
    start_per_s : float
        [1/s] the rate to begin with.

    Returns
    -------
    tuple
        Of the last rate that was simulated: within :data:`TOLERANCE`, unless no request was served,
        the run was cancelled, or :data:`MOST_ROUNDS` were not enough.
    """
    between = _Between()
    log_rate = math.log(start_per_s)
    for number in range(MOST_ROUNDS):
        rate = math.exp(log_rate)
        result = play(rate, number)
        answer_s = result.figure_s("e2e")["mean"]
        if answer_s is None or result.cancelled:
            break
        excess = math.log(users / (think_s + answer_s)) - log_rate
        if abs(excess) <= TOLERANCE:
            break
        log_rate = between.after(log_rate, excess)
    return rate, result


class _Between:
    """A root between two values of a falling function: false position (Illinois, Dowell and
    Jarratt 1971)."""

    def __init__(self) -> None:
        self.ends: dict[bool, tuple[float, float]] = {}
        self.last: bool | None = None

    def after(self, at: float, value: float) -> float:
        """Where to look next, given the value at a place; until both signs were seen, as far on as
        the value says."""
        above = value > 0.0
        self.ends[above] = (at, value)
        if len(self.ends) < 2:
            return at + value
        if above is self.last:
            place, other = self.ends[not above]
            self.ends[not above] = (place, other / 2.0)
        self.last = above
        (low, over), (high, under) = self.ends[True], self.ends[False]
        return low + (high - low) * over / (over - under)
