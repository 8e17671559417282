"""Rows of batch sizes: how many sizes each stands for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planner.roofline import Deployment, StepModel
from planner.setups.base import cap_sequence
from planner.steps import StepTimes

SINGLE = 64
"""Batch sizes up to this have a row of their own."""
JUMP = 1e-3
"""Share by which a step must jump for a row of batch sizes to end there."""


def bins(top: int, held: float, fine: bool = False, jumps: frozenset[int] = frozenset()
         ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Upper ends and widths of the rows of batch sizes: single ones, then some of the spread.

    A row is not wider than 0.75 of the square root of its batch size: the number of running
    sequences spreads by at least the square root of its mean. Where nothing but the batch size
    moves TPOT (``fine``), rows are half as wide. Beyond twice what the memory held when the
    workbook was written (``held``) they are twice as wide. A row ends where the step jumps
    (``jumps``).
    """
    share = 0.36 if fine else 0.75
    ends: list[int] = []
    n = 0
    caps = cap_sequence(top)
    for cap in (*caps, *((top,) if caps[-1] != top else ())):
        octave = 2 ** int(math.log2(max(cap - 1, 1)))
        width = max(1, 2 ** int(math.log2(max(share * math.sqrt(octave), 1.0))))
        width = width * 2 if octave > 2.0 * held else width
        if cap <= SINGLE:
            width = 1
        while n < cap:
            step = min(width, cap - n)
            ends += [size for size in range(n + 1, n + step) if size in jumps]
            n += step
            ends.append(n)
    found = np.array(ends, dtype=float)
    return found, np.diff(found, prepend=0.0)


def jumps_of(deployment: Deployment, context: float, top: int) -> frozenset[int]:
    """Batch sizes after which a decode step at a mean context [token] gets longer at once, by
    :data:`JUMP` of itself more than beside it: tiles of a product are full."""
    sizes = np.arange(1.0, top + 2.0)
    seconds = StepTimes.of(StepModel.of(deployment)).seconds(decodes=sizes, context=context)
    gain = np.diff(seconds) / seconds[:-1]
    usual = np.minimum(np.roll(gain, 1), np.roll(gain, -1))
    return frozenset(sizes[:-1][gain - usual > JUMP].astype(int).tolist())
