"""The time to a first token as a distribution: a wait of some, and what each prompt takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, gamma, highest, most, total, x
from planner.workbook.live.halving import ONE_TIME, Reached, States


@dataclass(slots=True, eq=False)
class FirstToken:
    """The wait and latency of a first token: what a distribution function needs."""

    busy: X
    shape: X
    scale: X
    offset: X
    latency: Column | X
    share: Column
    mean: X = field(default_factory=lambda: x(0.0))
    """[s] with the wait; where it is shown."""

    @property
    def ranges(self) -> X:
        """Latencies of the prompts as a range [s]."""
        return self.latency.all if isinstance(self.latency, Column) else self.latency

    @property
    def reached(self) -> Reached:
        """The share of first tokens within a time."""
        start = self.offset + self.ranges
        return Reached(self.within, [States(
            self.share.value, start.value, ONE_TIME, 1.0 - self.busy.value, self.shape.value,
            self.scale.value)])

    def within(self, limit: X) -> X:
        """Share of first tokens within a time [s]."""
        left = limit - self.offset - self.ranges
        late = gamma((left > 0.0) * left, self.shape, self.scale)
        return total(self.share.all * (left >= 0.0) * (1.0 - self.busy * (1.0 - late)))

    def longest(self) -> X:
        """A time [s] that hardly any first token exceeds."""
        return self.offset + highest(self.ranges) + (
            30.0 * self.scale * most(self.shape, 1.0))
