"""Which rates a search comes to, guessed so that all its columns can be worked out at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from planner.workbook.live.targets import FIRST_OCTAVES, OCTAVES, STEPS

NARROW = 20
"""Smallest ranges that may be open for every search that ends in one of them to be asked."""
MOST = 8
"""Rounds after which no more rates are asked but those of such searches."""
FAR = (0.2, 0.6, 0.85, 0.93, 0.97, 1.04, 1.15)
"""Of the rates asked about a hint, how far from it those are that are not beside it."""
NEAR = 0.004
"""Share by which a capacity that the planner found is hardly ever further below the highest rate.
"""
BURSTS = 0.6
"""Power of the squared CV of arrivals by which it lowers the highest rate, at most."""


@dataclass(slots=True, eq=False)
class Guess:
    """Which rates hold, as far as known, and what follows for the rates that a search tries.

    A search halves a range of rates by trial and then asks two numbers of replicas
    (``live.sizing``). Each rate follows from whether the one before it holds. So all searches that
    end near a guess are asked at once: most of their rates are the same.

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
    rounds: int = 0

    @property
    def width(self) -> int:
        """Rates that a search asks."""
        return self.steps + 2

    def rates(self) -> list[float]:
        """The rates to ask next, each once: those of all searches that may be it, or some that
        tell more."""
        low, high = self._open()
        if not self.known and self._near <= 1.0 + NEAR and low < self.hint < high:
            first = self.hint / 2.0 ** (self._cell(self.hint) / 2.0)
            return self._of_all(first, min((1.0 + NEAR) * self.hint, high))
        wide = math.log2(high / low) > NARROW * self._cell(low)
        if not wide or self.rounds >= MOST:
            return self._of_all(low, high)
        if not self.known and low < self.hint < high:
            return self._about(low, high)
        inside: list[float] = np.geomspace(low, high, self.width + 2)[1:-1].tolist()
        return inside

    @property
    def _near(self) -> float:
        """Ratio of the hint to the least that the highest rate should be."""
        return float(self.burstier**BURSTS)

    def _about(self, low: float, high: float) -> list[float]:
        """Open rates beside the hint, close together where the highest that holds should be."""
        near = np.geomspace(self.hint / self._near, (1.0 + NEAR) * self.hint, self.width).tolist()
        return [r for r in (*near, *(f * self.hint for f in FAR)) if low < r < high]

    def _of_all(self, low: float, high: float) -> list[float]:
        """Rates of the searches whose highest rate lies in a range; later than in the first round
        of that in the middle of what is open too, so that each settles one."""
        cell = self._cell(low)
        count = min(math.ceil(math.log2(high / low) / cell), NARROW)
        hints = [min(low * 2.0 ** (cell * i), high) for i in range(count + 1)]
        hints += [self._middle()] if self.known else []
        return list(dict.fromkeys(rate for hint in hints for rate in self._path(hint)[0]))

    def learn(self, rates: list[float], holds: list[bool]) -> list[int] | None:
        """Learn which rates hold; the places in them of the rates of the search, None where not
        all of these are there."""
        self.rounds += 1
        self.known.update(zip(rates, holds, strict=True))
        places = {rate: place for place, rate in enumerate(rates)}
        found = [places.get(rate) for rate in self._path(self._middle())[0]]
        return [p for p in found if p is not None] if None not in found else None

    def bounds(self) -> tuple[list[float], list[float]]:
        """Lower and upper end of the range after each try."""
        return self._path(self._middle())[1:]

    def _cell(self, rate: float) -> float:
        """[octave] to which the search comes down about a rate."""
        below = rate < self.ceiling / 2.0**FIRST_OCTAVES
        return (OCTAVES - FIRST_OCTAVES if below else FIRST_OCTAVES) / 2.0 ** (self.steps - 1)

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
