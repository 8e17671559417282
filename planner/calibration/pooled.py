"""Constants of many engines and GPU families at once, each drawn to what it shares with others.

The logarithm of a constant of engine e on family f is ``prior(f) + all + engine(e) + family(f) +
both(e, f)``; every effect is drawn to 0 as strongly as its spread says (partial pooling, Gelman and
Hill 2007, chapter 12). A family or model that an engine has little of is so predicted from what the
engine does elsewhere and what the family does under others, instead of from noise.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.calibration.constants import (
    STEP_NAMES,
    Bounds,
    in_order,
    passed_on,
    spreads,
    step_seconds,
)
from planner.calibration.features import Features
from planner.closed_loop import CONSTANTS, first_token_s, token_s
from planner.setups.continuous import RESIDUAL

Array = NDArray[np.float64]
TPOT_SCALE, TTFT_SCALE = 0.04, 0.1
"""Relative errors of TPOT and TTFT at which the loss turns from square to linear: no more than
two runs of one configuration differ by, so that a fit is close to one of absolute errors."""
LEVELS = (2.0, 1.0, 1.0, 1.0)
"""Spread of the effects of all, engine, family and both, in units of the usual one."""
_ROUNDS, _TRIES, _DONE = 60, 8, 1e-5
_STEP = 1e-4
"""Relative difference for a slope."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What a fit found: by level, a vector for each group."""

    levels: tuple[dict[Hashable, Array], ...]

    def constants(self, bounds: Bounds, keys: Sequence[Hashable]) -> Array:
        """Logarithms of the constants of one group; a key that was not seen has no effect."""
        total = bounds.prior.copy()
        for effects, key in zip(self.levels, keys, strict=True):
            total = total + effects.get(key, 0.0)
        return in_order(np.clip(total, bounds.low, bounds.high))


def levels_of(engine: str, family: str) -> tuple[Hashable, ...]:
    """The groups whose effects add up for an engine on a family."""
    return ("all", engine, family, (engine, family))


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Measured first tokens, which say how long a prefill takes, for a fit of step constants.

    Attributes
    ----------
    ttft_s : ndarray, shape (n,)
        ``nan`` where unknown.
    constants : ndarray, shape (7, n)
        First-token constants of every point.
    """

    ttft_s: Array
    constants: Array

    @property
    def known(self) -> NDArray[np.intp]:
        """Points with a TTFT."""
        return np.flatnonzero(np.isfinite(self.ttft_s) & (self.ttft_s > 0))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Decode step, prefill, lone decode step and time per token [s] of every point.

    The slopes are derivatives by the logarithm of each constant, shape (n, k).
    """

    decode: Array
    prefill: Array
    alone: Array
    token: Array
    decode_slope: Array
    prefill_slope: Array
    alone_slope: Array

    @classmethod
    def of(cls, logs: Array, features: Features) -> StepTimes:
        """Times under logarithms of constants of every point, shape (n, k)."""
        (decode, by_decode), (prefill, by_prefill), (alone, by_alone) = (
            step_seconds(logs, f, features.precision)
            for f in (features.decode, features.prefill, features.alone))
        token = token_s(decode, prefill, features.running, features.output)
        return cls(decode, prefill, alone, token, by_decode, by_prefill, by_alone)

    def token_slope(self, features: Features) -> Array:
        """Derivatives of the logarithm of the time per token."""
        share = features.running / features.output
        return np.asarray((self.decode_slope + share[:, None] * self.prefill_slope)
                          / self.token[:, None])

    def ttft(self, constants: Array, features: Features, longer: float = 1.0) -> Array:
        """TTFT [s] of every point; ``longer`` times the prefill."""
        prefill = self.prefill * longer
        token = token_s(self.decode, prefill, features.running, features.output)
        return first_token_s(constants, self.alone, prefill, token, features.clients,
                             features.prompt, features.output)

    def ttft_slope(self, constants: Array, features: Features) -> Array:
        """Derivatives of the logarithm of TTFT; the load's part through decoding is left out."""
        ttft = self.ttft(constants, features)
        by_prefill = (self.ttft(constants, features, 1.0 + _STEP) - ttft) / (_STEP * self.prefill)
        by_alone = constants[CONSTANTS.index("first_steps")] + RESIDUAL
        return np.asarray((by_prefill[:, None] * self.prefill_slope
                           + by_alone[:, None] * self.alone_slope) / ttft[:, None])


def fit_effects(features: Features, tpot_s: Array, prior: Array, bounds: Bounds,
                keys: Sequence[Sequence[Hashable]], levels: Sequence[float] = LEVELS,
                first: FirstTokens | None = None, weight: Array | None = None) -> Effects:
    """Effects that minimise a soft-L1 loss of log TPOT plus their squares over their spreads.

    With ``first`` the loss of log TTFT joins in, its constants held: a prefill shows in both.
    Damped Gauss-Newton with weights of the loss (iteratively reweighted least squares).

    Parameters
    ----------
    features : Features
        Of n points.
    tpot_s : ndarray, shape (n,)
    prior : ndarray, shape (n, k)
        Logarithms of each point's prior constants.
    bounds : Bounds
        Their lowest and highest values.
    keys : sequence of n sequences
        The groups of each point, one per level.
    levels : sequence of float
        Spread of each level in units of :func:`planner.calibration.constants.spreads`.
    first : FirstTokens, optional
    weight : ndarray, shape (n,), optional
        What each point counts in the loss; 1 each without it.
    """
    from scipy.linalg import solve  # late: it takes a while to load, and only fits ask for it

    size = len(STEP_NAMES)
    names = [list(dict.fromkeys(column)) for column in zip(*keys, strict=True)]
    starts = np.cumsum([0, *(len(n) * size for n in names)])
    places = np.array([[starts[i] + names[i].index(key) * size for i, key in enumerate(row)]
                       for row in keys])
    pull = np.concatenate([np.tile(1.0 / (spreads() * level), len(n))
                           for level, n in zip(levels, names, strict=True)])
    at = places[:, :, None] + np.arange(size)
    known = np.empty(0, dtype=np.intp) if first is None else first.known
    rows_at = np.concatenate([at, at[known]])
    counts = np.ones(len(tpot_s)) if weight is None else weight
    counts = np.concatenate([counts, counts[known]])

    def judged(effects: Array) -> tuple[float, Array, Array]:
        wanted = prior + effects[at].sum(axis=1)
        inside = np.clip(wanted, bounds.low, bounds.high)
        ordered = in_order(inside)
        times = StepTimes.of(ordered, features)

        def free(slope: Array) -> Array:
            return np.where(wanted == inside, passed_on(slope, inside, ordered), 0.0)

        error = np.log(times.token / tpot_s) / TPOT_SCALE
        slope = free(times.token_slope(features)) / TPOT_SCALE
        if first is not None:
            ttft = times.ttft(first.constants, features)[known]
            late = np.log(ttft / first.ttft_s[known]) / TTFT_SCALE
            by = free(times.ttft_slope(first.constants, features))
            error = np.concatenate([error, late])
            slope = np.concatenate([slope, by[known] / TTFT_SCALE])
        cost = (2.0 * np.sum(counts * (np.sqrt(1.0 + error ** 2) - 1.0))
                + np.sum((effects * pull) ** 2))
        return float(cost), error, slope

    effects, damping = np.zeros(starts[-1]), 1e-3
    cost, error, slope = judged(effects)
    for _ in range(_ROUNDS):
        full = np.zeros((len(error), len(effects)))
        rows = np.arange(len(error))[:, None]
        for level in range(len(names)):
            full[rows, rows_at[:, level]] = slope
        weighted = full * (counts / np.sqrt(1.0 + error ** 2))[:, None]
        normal = weighted.T @ full + np.diag(pull ** 2)
        descent = weighted.T @ error + pull ** 2 * effects
        better = None
        for _ in range(_TRIES):
            step = solve(normal + damping * np.diag(np.diag(normal)), -descent, assume_a="pos")
            tried = judged(effects + step)
            if tried[0] < cost:
                better = tried
                break
            damping *= 5.0
        if better is None:
            break
        done = cost - better[0] < _DONE * cost
        effects, damping = effects + step, max(damping / 5.0, 1e-7)
        cost, error, slope = better
        if done:
            break
    return Effects(tuple({name: effects[start + i * size:start + (i + 1) * size]
                          for i, name in enumerate(group)}
                         for start, group in zip(starts, names, strict=False)))
