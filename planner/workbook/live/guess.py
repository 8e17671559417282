"""Which rates a search comes to, guessed so that all its columns can be worked out at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from planner.workbook.live.onepool import FIRST_OCTAVES, OCTAVES, STEPS

EXPLORED = 4
"""Most rounds in which rates are spread over what is open; 14 of them shrink it 15 times."""
FEW = 3
"""Steps that are guessed rather than explored."""


@dataclass(slots=True, eq=False)
class Guess:
    """Which rates hold, as far as known, and what follows for the rates that a search tries.

    A search halves a range of rates by trial and then asks two numbers of replicas
    (``live.sizing``). Each rate follows from whether the one before it holds. Guessed rates up to
    the first wrong guess are right, so every round settles at least one more.

    Attributes
    ----------
    ceiling : float
        [1/s] no replica carries more.
    wanted : float
        [1/s] what all replicas shall carry.
    hint : float
        [1/s] about the highest rate that holds; 0 where it is not known.
    known : dict
        From a rate to whether it holds.
    """

    ceiling: float
    wanted: float
    hint: float = 0.0
    known: dict[float, bool] = field(default_factory=dict)
    explored: int = 0
    exploring: bool = False

    def rates(self) -> list[float]:
        """The rates to ask next, always as many: those of the search, or some that tell more."""
        low, high = self._open()
        hint = self.hint if low < self.hint < high else math.sqrt(low * high)
        ends = [self._path(rate)[0] for rate in (low, math.nextafter(high, 0.0))]
        apart = sum(a != b for a, b in zip(*ends, strict=True))
        self.exploring = (apart > FEW and self.explored < EXPLORED
                          and not (self.hint and not self.known))
        if self.exploring:
            self.explored += 1
            return [float(r) for r in np.geomspace(low, high, STEPS + 4)[1:-1]]
        return self._path(hint)[0]

    def borne_out(self, rates: list[float], holds: list[bool]) -> bool:
        """Learn which rates hold; whether they were those of the search."""
        self.known.update(zip(rates, holds, strict=True))
        return not self.exploring and self._path(self.hint)[0] == rates

    def bounds(self) -> tuple[list[float], list[float]]:
        """Lower and upper end of the range after each try."""
        return self._path(self.hint)[1:]

    def _open(self) -> tuple[float, float]:
        """Rates between which the highest that holds lies."""
        high = min((r for r, held in self.known.items() if not held), default=self.ceiling)
        start = min(self.ceiling / 2.0**OCTAVES, high / 2.0)
        return max((r for r, held in self.known.items() if held and r < high), default=start), high

    def _holds(self, rate: float, hint: float) -> bool:
        return self.known.get(rate, rate <= hint)

    def _path(self, hint: float) -> tuple[list[float], list[float], list[float]]:
        """Rates of the search if those to ``hint`` hold, and the range that each try leaves."""
        low, high = self.ceiling / 2.0**OCTAVES, self.ceiling
        rates, lows, highs = [], [], []
        for i in range(STEPS):
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
