"""The fit: constants of engines on GPU families from measured points.

Step constants from TPOT (:mod:`planner.calibration.pooled`), then those of the first token from
TTFT by least squares on logarithms with a soft-L1 loss (a bad row counts little). Errors are
reported on configurations left out of the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from planner.calibration.constants import Bounds, first_token_bounds, step_bounds, step_seconds
from planner.calibration.features import Features, extract
from planner.calibration.points import MeasuredPoint
from planner.calibration.pooled import Effects, fit_effects, token_and_slope
from planner.catalog.book import Catalog
from planner.closed_loop import first_token_s, running_share, token_s
from planner.engine import EngineProfile

Array = NDArray[np.float64]
Keys = tuple[Hashable, ...]
PULL = 0.017
"""Weight of the prior of first-token constants per square root of the number of points."""
TPOT_SCALE, TTFT_SCALE = 0.1, 0.3
"""Relative error at which the loss turns from square to linear."""
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """Points of a fit with what does not change in it.

    Attributes
    ----------
    points : tuple of MeasuredPoint
        Closed loop, with a TPOT.
    keys : tuple of tuple
        The groups of each point; the last one is the narrowest.
    prior : ndarray, shape (n, k)
        Logarithms of each point's prior constants.
    bounds : Bounds
    features : Features
    tpot, ttft : ndarray
        [s]; ``nan`` where TTFT is unknown.
    """

    points: tuple[MeasuredPoint, ...]
    keys: tuple[Keys, ...]
    prior: Array
    bounds: Bounds
    features: Features
    tpot: Array
    ttft: Array

    @classmethod
    def of(cls, points: Sequence[MeasuredPoint], catalog: Catalog, keys: Sequence[Keys],
           profiles: Mapping[Hashable, Mapping[str, EngineProfile]]) -> Sample:
        """A sample; ``profiles`` has the priors of each narrowest group, by weight precision."""
        bounds = {key: step_bounds(found) for key, found in profiles.items()}
        prior = np.array([bounds[k[-1]].prior for k in keys])
        tpot = np.array([p.tpot_s for p in points], dtype=float)
        ttft = np.array([np.nan if p.ttft_s is None else p.ttft_s for p in points], dtype=float)
        clients = np.array([p.concurrency for p in points], dtype=float)
        found = cls(tuple(points), tuple(keys), prior, next(iter(bounds.values())),
                    extract(points, catalog, clients), tpot, ttft)
        return found.running(catalog, prior)

    def running(self, catalog: Catalog, logs: Array) -> Sample:
        """The same at the batch that runs under some constants (Little's law)."""
        share = running_share(*_step_times(logs, self.features), self.features.output)
        clients = np.array([p.concurrency for p in self.points], dtype=float)
        return replace(self, features=extract(self.points, catalog, clients * share))

    def at(self, places: NDArray[np.intp]) -> Sample:
        """Some of the points."""
        return Sample(tuple(self.points[i] for i in places), tuple(self.keys[i] for i in places),
                      self.prior[places], self.bounds, self.features.at(places),
                      self.tpot[places], self.ttft[places])

    def constants(self, effects: Effects) -> Array:
        """Logarithms of the constants of every point under fitted effects."""
        total = self.prior + np.array([sum((found.get(k, 0.0) for found, k in
                                            zip(effects.levels, keys, strict=True)),
                                           start=np.zeros(self.prior.shape[1]))
                                       for keys in self.keys])
        return np.asarray(np.clip(total, self.bounds.low, self.bounds.high))


@dataclass(frozen=True, slots=True)
class Fit:
    """Effects of step constants, and first-token constants by group."""

    effects: Effects
    first: dict[Hashable, Array]

    def first_token(self, keys: Keys) -> Array:
        """First-token constants of a group: its own, or those of the widest one that has any."""
        for key in reversed(keys):
            if key in self.first:
                return self.first[key]
        return np.asarray(np.exp(first_token_bounds().prior))

    def tpot(self, sample: Sample) -> Array:
        """TPOT [s] of the points of a sample."""
        return token_and_slope(sample.constants(self.effects), sample.features)[0]

    def ttft(self, sample: Sample) -> Array:
        """TTFT [s] of the points of a sample."""
        logs = sample.constants(self.effects)
        first = np.array([self.first_token(keys) for keys in sample.keys]).T
        return first_token_s(first, *_step_times(logs, sample.features), sample.features.clients,
                             sample.features.output)


@dataclass(frozen=True, slots=True)
class Errors:
    """Median absolute relative errors of some points of a fit."""

    tpot_train: float
    tpot_left_out: float
    ttft_left_out: float


def fit(sample: Sample, catalog: Catalog, levels: Sequence[float]) -> tuple[Fit, Sample]:
    """Fit a sample twice: at the batches that the prior's times imply, then at its own.

    Returns the sample at the batches of the fit beside what was found.
    """
    sample = sample.running(catalog, sample.constants(_effects(sample, levels)))
    return refit(sample, levels), sample


def refit(sample: Sample, levels: Sequence[float]) -> Fit:
    """Fit a sample at the running batches that it has."""
    effects = _effects(sample, levels)
    return Fit(effects, first_tokens(sample, effects))


def _effects(sample: Sample, levels: Sequence[float]) -> Effects:
    return fit_effects(sample.features, sample.tpot, sample.prior, sample.bounds, sample.keys,
                       levels)


def first_tokens(sample: Sample, effects: Effects) -> dict[Hashable, Array]:
    """First-token constants by group: of each level with its own, drawn to the level above."""
    logs = sample.constants(effects)
    known = np.isfinite(sample.ttft) & (sample.ttft > 0)
    found: dict[Hashable, Array] = {}
    for level in range(len(sample.keys[0])):
        for key in dict.fromkeys(k[level] for k in sample.keys):
            here = [i for i, k in enumerate(sample.keys) if k[level] == key and known[i]]
            if here:
                above = next((found[k] for k in reversed(sample.keys[here[0]][:level])
                              if k in found), None)
                found[key] = _fit_first(logs[here], sample.features.at(np.array(here)),
                                        sample.ttft[here], above)
    return found


def _fit_first(logs: Array, features: Features, ttft_s: Array, above: Array | None) -> Array:
    bounds = first_token_bounds()
    if above is not None:
        bounds = replace(bounds, prior=np.clip(np.log(above), bounds.low + 1e-6,
                                               bounds.high - 1e-6))
    times = _step_times(logs, features)

    def residual(constants: Array) -> Array:
        found = first_token_s(constants[:, None], *times, features.clients, features.output)
        return np.asarray(np.log(found / ttft_s))

    return solve(residual, bounds, len(ttft_s), TTFT_SCALE)


def solve(residual: Callable[[Array], Array], bounds: Bounds, points: int, scale: float) -> Array:
    """Constants that minimise a soft-L1 loss of log residuals with a pull to the prior."""
    pull = PULL * np.sqrt(points)

    def total(x: Array) -> Array:
        return np.concatenate([residual(np.exp(x)), pull * (x - bounds.prior)])

    found = least_squares(total, bounds.prior, bounds=(bounds.low, bounds.high), loss="soft_l1",
                          f_scale=scale, max_nfev=200)
    return np.asarray(np.exp(found.x))


def _step_times(logs: Array, features: Features) -> tuple[Array, Array, Array]:
    """Decode step, prefill and time per token [s] of every point."""
    decode = step_seconds(logs, features.decode, features.precision)[0]
    prefill = step_seconds(logs, features.prefill, features.precision)[0]
    return decode, prefill, token_s(decode, prefill, features.running, features.output)


def configurations(points: Sequence[MeasuredPoint]) -> NDArray[np.intp]:
    """A number per point, equal where only the concurrency differs."""
    keys = [(p.engine, p.gpu, p.model, p.weights, p.tensor_parallel, p.data_parallel,
             p.expert_parallel, round(p.prompt_tokens, -1), round(p.output_tokens, -1))
            for p in points]
    order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([order[k] for k in keys])


def folds(points: Sequence[MeasuredPoint]) -> NDArray[np.intp]:
    """A fold per point; all points of a configuration are in one."""
    groups = configurations(points)
    return np.asarray(np.random.default_rng(0).permutation(groups.max() + 1)[groups] % FOLDS)


def left_out(sample: Sample, levels: Sequence[float]) -> tuple[Array, Array]:
    """Signed TPOT and TTFT errors of every point when its configuration is left out."""
    fold = folds(sample.points)
    errors = np.full((2, len(fold)), np.nan)
    for k in range(FOLDS):
        inside, outside = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        if not outside.size or inside.size < FOLDS:
            continue
        found = refit(sample.at(inside), levels)
        rest = sample.at(outside)
        errors[0, outside] = found.tpot(rest) / rest.tpot - 1.0
        errors[1, outside] = found.ttft(rest) / rest.ttft - 1.0
    return errors[0], errors[1]


def median(errors: Array) -> float:
    """Median of absolute errors; ``nan`` where there are none."""
    known = np.abs(errors[np.isfinite(errors)])
    return float(np.median(known)) if known.size else float("nan")
