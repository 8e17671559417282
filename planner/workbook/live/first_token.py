"""The time to a first token as a distribution: a wait of some, and what each prompt takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.workbook.live.board import Column
from planner.workbook.live.expr import X, gamma, highest, least, most, total, when, x
from planner.workbook.live.halving import ONE_TIME, Reached, States


def share_within_both(share: X, left: X, both_: tuple[X, X, X], alone: tuple[X, X, X] | None
                      ) -> X:
    """Share in time with both waits, never above that with the first alone
    (``loops.starts_placed``); ``left`` is the time [s] that a prompt may wait."""
    def within(busy: X, shape: X, scale: X) -> X:
        late = gamma((left > 0.0) * left, shape, scale)
        return total(share * (left >= 0.0) * (1.0 - busy * (1.0 - late)))

    found = within(*both_)
    return found if alone is None else least(found, within(*alone))


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


@dataclass(slots=True, eq=False)
class PlacedToken(FirstToken):
    """The same where some wait for a place (``loops.placed_laws``, ``loops.waits.full_laws``).

    Attributes
    ----------
    placed, placed_shape, placed_scale : X
        Share of them; shape and scale [s] of the gamma of all their waits.
    """

    placed: X = field(default_factory=lambda: x(0.0))
    placed_shape: X = field(default_factory=lambda: x(1.0))
    placed_scale: X = field(default_factory=lambda: x(1.0))

    @property
    def reached(self) -> Reached:
        """The share of first tokens within a time."""
        start = (self.offset + self.ranges).value
        share, placed = self.share.value, self.placed.value
        return Reached(self.within, [
            States(share * (1.0 - placed), start, ONE_TIME, 1.0 - self.busy.value,
                   self.shape.value, self.scale.value),
            States(share * placed, start, ONE_TIME, 0.0, self.placed_shape.value,
                   self.placed_scale.value)])

    def within(self, limit: X) -> X:
        """Share of first tokens within a time [s]."""
        left, share = limit - self.offset - self.ranges, self.share.all
        return ((1.0 - self.placed) * share_within_both(
            share, left, (self.busy, self.shape, self.scale), None) + self.placed
            * share_within_both(share, left, (x(1.0), self.placed_shape, self.placed_scale), None))

    def longest(self) -> X:
        """A time [s] that hardly any first token exceeds."""
        return self.offset + highest(self.ranges) + 30.0 * (
            self.scale * most(self.shape, 1.0)
            + when(self.placed > 0.0, self.placed_scale * most(self.placed_shape, 1.0), 0.0))
