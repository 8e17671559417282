"""Where a distribution reaches a share, by few evaluations of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CLOSE = 1e-6
"""Share of a value within which a percentile of it is found."""
SECANTS = 60
"""Most steps towards a percentile."""


def reaching(share_within: Callable[[Array], Array], wanted: Array, low: float,
             middle: float) -> Array:
    """Where a distribution reaches shares, within :data:`CLOSE` and on the safe side.

    False position on the logarithm of what lies beyond, which is nearly straight for a gamma; the
    side that stays is weighed down (Illinois; Dowell & Jarratt 1971), and every third step halves,
    as the distribution may jump.

    Parameters
    ----------
    share_within : callable
        P(X <= x) for x of shape (p,).
    wanted : ndarray, shape (p,)
        Shares, below 1.
    low : float
        Below the values.
    middle : float
        About their mean: where to look first.
    """
    goal = np.log1p(-wanted)

    def beyond(x: Array) -> Array:
        return goal - np.log(np.maximum(1.0 - share_within(x), 1e-300))

    below, above = np.full(len(wanted), low), np.full(len(wanted), max(middle, 2.0 * low))
    left, right = beyond(below), beyond(above)
    while (short := right < 0.0).any():
        below, left = np.where(short, above, below), np.where(short, right, left)
        above = np.where(short, 2.0 * above, above)
        right = beyond(above)
    kept = np.zeros(len(wanted), dtype=int)
    for step in range(SECANTS):
        if (above - below <= CLOSE * above).all():
            break
        part = left / np.minimum(left - right, -1e-300) if step % 4 < 3 else 0.5
        x = below + np.clip(part, 1e-3, 1.0 - 1e-3) * (above - below)
        y = beyond(x)
        reached = y >= 0.0
        left = np.where(reached, np.where(kept == 1, left / 2.0, left), y)
        right = np.where(reached, y, np.where(kept == -1, right / 2.0, right))
        kept = np.where(reached, 1, -1)
        below, above = np.where(reached, below, x), np.where(reached, x, above)
    return above
