"""Which rates a search comes to, guessed so that all its columns can be worked out at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from planner.workbook.live.onepool import FIRST_OCTAVES, OCTAVES, STEPS

FEW = 2
"""Open rates of which the middle is guessed."""
MOST = 8
"""Rounds of rates after which no more are asked but those of the search."""
BELOW = 1
"""Of these, how many just below the hint: it is the lower end of a range."""
FAR = (0.2, 0.6, 0.85, 0.93, 0.97, 1.04, 1.15)
"""Of these, how far from the hint the others are."""

NEAR = 0.006
"""Share by which a capacity that the planner found may be below the highest rate."""
BURSTS = 0.6
"""Power of the squared CV of arrivals by which it lowers the highest rate, at most."""


@dataclass(slots=True, eq=False)
class Guess:
    """Which rates hold, as far as known, and what follows for the rates that a search tries.

    A search halves a range of rates by trial and then asks two numbers of replicas
    (``live.sizing``). Each rate follows from whether the one before it holds. Guessed rates up to
    the first wrong guess are right, so every round of them settles at least one more.

    Attributes
    ----------
    ceiling : float
        [1/s] no replica carries more.
    wanted : float
        [1/s] what all replicas shall carry.
    hint : float
        [1/s] about the highest rate that holds; 0 where it is not known.
    burstier : float
        Squared CV of the arrivals at a replica that carries the hint, over that for which the hint
        was found.
    steps : int
        Tries of the highest rate.
    known : dict
        From a rate to whether it holds.
    """

    ceiling: float
    wanted: float
    hint: float = 0.0
    burstier: float = 1.0
    steps: int = STEPS
    known: dict[float, bool] = field(default_factory=dict)
    exploring: bool = False

    @property
    def width(self) -> int:
        """Rates that are asked at once."""
        return self.steps + 2

    def rates(self) -> list[float]:
        """The rates to ask next: those of the search, or some that tell more."""
        low, high = self._open()
        wide = math.log2(high / low) > self.width * self._cell(low)
        inside = [] if wide else [r for r in self._ends(low, 0, self.width + 2) if low < r < high]
        if wide and low < self.hint < high:
            inside = self._about(low, high)
        elif wide:
            inside = np.geomspace(low, high, self.width + 2)[1:-1].tolist()
        self.exploring = len(inside) > FEW and len(self.known) < MOST * self.width
        return inside if self.exploring else self._path(self._middle())[0]

    def _about(self, low: float, high: float) -> list[float]:
        """Open rates beside the hint, close together where the highest that holds should be."""
        least = self.hint * self.burstier ** -BURSTS
        if self.hint / least > 1.0 + NEAR:
            count = self.width - len(FAR) // 2
            near = np.geomspace(least, (1.0 + NEAR) * self.hint, count).tolist()
        else:
            near = self._ends(self.hint, -BELOW, self.width - len(FAR))
        return [r for r in (*near, *(f * self.hint for f in FAR)) if low < r < high]

    def borne_out(self, rates: list[float], holds: list[bool]) -> bool:
        """Learn which rates hold; whether they were those of the search."""
        self.known.update(zip(rates, holds, strict=True))
        return not self.exploring and self._path(self._middle())[0] == rates

    def bounds(self) -> tuple[list[float], list[float]]:
        """Lower and upper end of the range after each try."""
        return self._path(self._middle())[1:]

    def _cell(self, rate: float) -> float:
        """[octave] to which the search comes down about a rate."""
        below = rate < self.ceiling / 2.0**FIRST_OCTAVES
        return (OCTAVES - FIRST_OCTAVES if below else FIRST_OCTAVES) / 2.0 ** (self.steps - 1)

    def _ends(self, rate: float, first: int, count: int) -> list[float]:
        """Rates that the search may try last, from the one below a rate on, moved by ``first``."""
        cell, below = self._cell(rate), math.log2(self.ceiling / rate)
        start = math.ceil(below / cell) - first
        return [self.ceiling / 2.0 ** (cell * (start - i)) for i in range(count) if start >= i]

    def _middle(self) -> float:
        """A rate in the middle of what is open."""
        return math.sqrt(math.prod(self._open()))

    def _open(self) -> tuple[float, float]:
        """Rates between which the highest that holds lies."""
        high = min((r for r, held in self.known.items() if not held), default=self.ceiling)
        start = min(self.ceiling / 2.0**OCTAVES, high)
        return max((r for r, held in self.known.items() if held and r < high), default=start), high

    def _holds(self, rate: float, hint: float) -> bool:
        return self.known.get(rate, rate <= hint)

    def _path(self, hint: float) -> tuple[list[float], list[float], list[float]]:
        """Rates of the search if those to ``hint`` hold, and the range that each try leaves."""
        low, high = self.ceiling / 2.0**OCTAVES, self.ceiling
        rates, lows, highs = [], [], []
        for i in range(self.steps):
            rate = math.sqrt(low * high) if i else self.ceiling / 2.0**FIRST_OCTAVES
            low, high = (rate, high) if self._holds(rate, hint) else (low, rate)
            rates.append(rate)
            lows.append(low)
            highs.append(high)
        first = max(math.ceil(self.wanted / low - 1e-9), 1)
        fewer = max(first - 1, 1)
        rates.append(self.wanted / fewer)
        count = fewer if first > 1 and self._holds(rates[-1], hint) else first
        return [*rates, self.wanted / count], lows, highs
