"""The gamma law, and what no longer counts in a sum of probabilities."""

from __future__ import annotations

import math

from planner.compiled import compiled
from planner.loops.stored import entry

DIGITS = 1e-14
"""Part of a probability that no longer counts."""
TINY = 1e-300
LIKELY = 1e-9
"""Weight of a state, relative to the heaviest, below which it changes no percentile."""
NOTICEABLE = 1e-6
"""Probability of a wait below which it changes nothing."""


@compiled
def gamma_within(shape: float, x: float) -> float:
    """P(X <= x) of a gamma with scale 1."""
    return gamma_law(shape, math.lgamma(shape), x)[0]


@entry
def gamma_share(shape: float, x: float) -> float:
    """:func:`gamma_within` for one value."""
    return gamma_within(shape, x)


@compiled
def gamma_law(shape: float, log_gamma: float, x: float) -> tuple[float, float]:
    """P(X <= x) of a gamma with scale 1, the regularised lower incomplete gamma function, and its
    density; ``log_gamma`` is ln Gamma(shape), which many x have in common.

    Its series below the mean, the continued fraction of the rest above (Press et al., *Numerical
    Recipes*, 3rd ed., section 6.2), from one convergent to the next; each ends where it adds
    less than :data:`DIGITS`. Within 1e-12 of SciPy's for shapes up to 1,000.
    """
    if x <= 0.0:
        return 0.0, 0.0
    lead = math.exp(shape * math.log(x) - x - log_gamma)
    if x < shape + 1.0:
        term = total = lead / shape
        step = shape
        while term > DIGITS:
            step += 1.0
            term *= x / step
            total += term
        return min(total, 1.0), lead / x
    if lead < DIGITS:
        return 1.0, 0.0
    b, i = x + 1.0 - shape, 0.0
    above, above_last, below, below_last = 1.0, 0.0, b, 1.0
    fraction, last = 1.0 / b, 2.0
    while abs(fraction - last) * lead > DIGITS:
        for _ in range(2):
            i += 1.0
            a = i * (shape - i)
            b += 2.0
            above, above_last = b * above + a * above_last, above
            below, below_last = b * below + a * below_last, below
        above, above_last, below_last = above / below, above_last / below, below_last / below
        below, last, fraction = 1.0, fraction, above
    return max(1.0 - lead * fraction, 0.0), lead / x
