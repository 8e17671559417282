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
from scipy.linalg import solve

from planner.calibration.constants import STEP_NAMES, Bounds, spreads, step_seconds
from planner.calibration.features import Features

Array = NDArray[np.float64]
SCALE = 0.1
"""Relative error of TPOT at which the loss turns from square to linear."""
LEVELS = (2.0, 1.0, 1.0, 1.0)
"""Spread of the effects of all, engine, family and both, in units of the usual one."""
_ROUNDS, _TRIES, _DONE = 60, 8, 1e-5


@dataclass(frozen=True, slots=True)
class Effects:
    """What a fit found: by level, a vector for each group."""

    levels: tuple[dict[Hashable, Array], ...]

    def constants(self, bounds: Bounds, keys: Sequence[Hashable]) -> Array:
        """Logarithms of the constants of one group; a key that was not seen has no effect."""
        total = bounds.prior.copy()
        for effects, key in zip(self.levels, keys, strict=True):
            total = total + effects.get(key, 0.0)
        return np.asarray(np.clip(total, bounds.low, bounds.high))


def levels_of(engine: str, family: str) -> tuple[Hashable, ...]:
    """The groups whose effects add up for an engine on a family."""
    return ("all", engine, family, (engine, family))


def token_and_slope(logs: Array, features: Features) -> tuple[Array, Array]:
    """TPOT [s] of every point, ``D + n S / o``, and its logarithm's derivatives."""
    decode, by_decode = step_seconds(logs, features.decode, features.precision)
    prefill, by_prefill = step_seconds(logs, features.prefill, features.precision)
    share = features.running / features.output
    token = decode + share * prefill
    return token, (by_decode + share[:, None] * by_prefill) / token[:, None]


def fit_effects(features: Features, tpot_s: Array, prior: Array, bounds: Bounds,
                keys: Sequence[Sequence[Hashable]], levels: Sequence[float] = LEVELS) -> Effects:
    """Effects that minimise a soft-L1 loss of log TPOT plus their squares over their spreads.

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
    """
    size = len(STEP_NAMES)
    names = [list(dict.fromkeys(column)) for column in zip(*keys, strict=True)]
    starts = np.cumsum([0, *(len(n) * size for n in names)])
    places = np.array([[starts[i] + names[i].index(key) * size for i, key in enumerate(row)]
                       for row in keys])
    pull = np.concatenate([np.tile(1.0 / (spreads() * level), len(n))
                           for level, n in zip(levels, names, strict=True)])
    at = places[:, :, None] + np.arange(size)
    logs_measured = np.log(tpot_s)

    def judged(effects: Array) -> tuple[float, Array, Array]:
        wanted = prior + effects[at].sum(axis=1)
        inside = np.clip(wanted, bounds.low, bounds.high)
        token, slope = token_and_slope(inside, features)
        error = (np.log(token) - logs_measured) / SCALE
        cost = 2.0 * np.sum(np.sqrt(1.0 + error ** 2) - 1.0) + np.sum((effects * pull) ** 2)
        return float(cost), error, np.where(wanted == inside, slope, 0.0) / SCALE

    effects, damping = np.zeros(starts[-1]), 1e-3
    cost, error, slope = judged(effects)
    for _ in range(_ROUNDS):
        full = np.zeros((len(error), len(effects)))
        rows = np.arange(len(error))[:, None]
        for level in range(len(names)):
            full[rows, at[:, level]] = slope
        weighted = full / np.sqrt(1.0 + error ** 2)[:, None]
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
