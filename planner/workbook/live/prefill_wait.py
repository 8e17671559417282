"""The wait for the prefill as cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.requests import Layout
from planner.workbook.live.expr import X, least, most, square


@dataclass(slots=True, eq=False)
class Wait:
    """A wait as cells: chance, mean and mean of squares."""

    busy: X
    mean: X
    second: X

    def plus(self, put: Any, other: Wait, of: str = "") -> Wait:
        """The sum of two independent waits (``queueing.Wait.__add__``)."""
        return Wait(put(f"Share that waits{of}", 1.0 - (1.0 - self.busy) * (1.0 - other.busy)),
                    put(f"Wait{of}, mean [s]", self.mean + other.mean),
                    put(f"Wait{of}, mean of squares [s²]",
                        self.second + other.second + 2.0 * self.mean * other.mean))

    def shape_scale(self, put: Any, of: str = "") -> tuple[X, X]:
        """Gamma shape and scale of the wait of those who wait, as two cells."""
        chance = most(self.busy, 1e-15)
        mean = put(f"Mean wait of those who wait{of} [s]", most(self.mean, 1e-12) / chance)
        swing = put(f"Its variance{of} [s²]", most(self.second / chance - square(mean),
                                                  1e-6 * square(mean)))
        return (put(f"Gamma shape{of}", square(mean) / swing),
                put(f"Gamma scale{of} [s]", swing / mean))


def mg1(put: Any, rate: X, first: X, second: X, third: X, cv2: X) -> tuple[Wait, X]:
    """M/G/1 wait (``planner.queueing.mg1_wait``) as cells, and the load."""
    rho = put("Prefill load", rate * first)
    idle = most(1.0 - rho, 1e-6)
    spread = most(second / square(first) - 1.0, 0.0)
    smooth = put("Smoothness factor", (least(cv2, 1.0) + spread) / (1.0 + spread))
    ahead = put("Ahead in a burst, mean", most(cv2 - 1.0, 0.0) / 2.0)
    of_batch = put("Wait for them [s]", ahead * first)
    mean = put("Wait for other bursts, mean [s]",
               rate * (second + 2.0 * of_batch * first) / (2.0 * idle) * smooth)
    jobs = put("Service of a burst, mean of cubes [s³]",
               third + 6.0 * of_batch * (second + of_batch * first))
    square_ = put("Wait for the prefill, mean of squares [s²]",
                  2.0 * square(mean) + rate * jobs / (3.0 * idle) * smooth
                  + 2.0 * mean * of_batch + ahead * second + 2.0 * square(of_batch))
    return Wait(1.0 - most(1.0 - rho, 0.0) / (1.0 + ahead),
                put("Wait for the prefill, mean [s]", mean + of_batch), square_), rho


def rank_wait(put: Any, layout: Layout, rate: X, first: X, second: X, third: X, cv2: X,
              shared: float = 0.0) -> tuple[Wait, X]:
    """Wait for the prefills of a data-parallel rank (``Table.wait``), and its load."""
    ranks = float(layout.data)
    if ranks > 1.0:
        rate, cv2 = rate / ranks, 1.0 + (cv2 - 1.0) / ranks
        first, second, third = first * ranks, second * ranks**2, third * ranks**3
    wait, rho = mg1(put, rate, first, second, third, cv2)
    if not shared:
        return wait, rho
    longer = put("Longer by prompts of the same pass",
                 1.0 + shared * least(rho, 1.0) / (1.0 + least(rho, 1.0)))
    return Wait(wait.busy, put("Wait with them, mean [s]", wait.mean * longer),
                put("Wait with them, mean of squares [s²]", wait.second * square(longer))), rho
