"""The fit: constants of engines on GPU families from measured points.

Step constants from TPOT (:mod:`planner.calibration.pooled`), those of the first token from TTFT by
least squares on logarithms with a soft-L1 loss (a bad row counts little), then step constants from
both, and so on. Errors are reported on configurations left out of the fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.calibration.constants import (
    Bounds,
    first_token_bounds,
    first_token_constants,
    in_order,
    step_bounds,
)
from planner.calibration.features import Features, extract
from planner.calibration.points import MeasuredPoint
from planner.calibration.pooled import TTFT_SCALE, Effects, FirstTokens, StepTimes, fit_effects
from planner.catalog.book import Catalog
from planner.closed_loop import first_token_s, running_share
from planner.engine import EngineProfile

Array = NDArray[np.float64]
Keys = tuple[Hashable, ...]
PULLS = (0.3, 1.0, 1.0, 1.0)
"""Weight of staying at the level above, by level, for first-token constants: a factor e costs as
much as so many points that are off by the scale of the loss."""
ABOVE = (0, 0, 0, 1)
"""The level that each is drawn to: engine and family to all, both to the engine."""
UNIT_PULL = 1.0
"""The same for a GPU's own constants, drawn to those of the engine on its family."""
_NEAREST = (3, 1, 2, 0)
"""Levels from the nearest to the widest: both, engine, family, all."""
ROUNDS = 2
"""Times that step and first-token constants are fitted in turn after the first."""
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """Points of a fit with what does not change in it.

    As many sequences run as Little's law says from the measured times.

    Attributes
    ----------
    points : tuple of MeasuredPoint
        Closed loop, with a TPOT.
    keys : tuple of tuple
        The groups of each point; the last one is the narrowest with step constants of its own.
    units : tuple
        A part of the narrowest group with first-token constants of its own (one GPU of a family:
        runs on H100 and on H200 differ in how their clients start), or that group.
    prior : ndarray, shape (n, k)
        Logarithms of each point's prior constants.
    bounds : Bounds
    features : Features
    tpot, ttft : ndarray
        [s]; ``nan`` where TTFT is unknown.
    weight : ndarray
        What each point counts.
    """

    points: tuple[MeasuredPoint, ...]
    keys: tuple[Keys, ...]
    units: tuple[Hashable, ...]
    prior: Array
    bounds: Bounds
    features: Features
    tpot: Array
    ttft: Array
    weight: Array

    @classmethod
    def of(cls, points: Sequence[MeasuredPoint], catalog: Catalog, keys: Sequence[Keys],
           profiles: Mapping[Hashable, Mapping[str, EngineProfile]],
           units: Sequence[Hashable] | None = None) -> Sample:
        """A sample; ``profiles`` has the priors of each narrowest group, by weight precision.

        First tokens of runs in which the engine compiled say nothing about others.
        """
        bounds = {key: step_bounds(found) for key, found in profiles.items()}
        prior = np.array([bounds[k[-1]].prior for k in keys])
        tpot = np.array([p.tpot_s for p in points], dtype=float)
        ttft = np.array([np.nan if p.compiling else p.ttft_s for p in points], dtype=float)
        clients = np.array([p.concurrency for p in points], dtype=float)
        output = np.array([p.output_tokens for p in points], dtype=float)
        share = running_share(np.nan_to_num(ttft, nan=0.0), tpot, output)
        return cls(tuple(points), tuple(keys), tuple(units or [k[-1] for k in keys]), prior,
                   next(iter(bounds.values())),
                   extract(points, catalog, clients * share), tpot, ttft,
                   np.array([p.weight for p in points]))

    def running(self, catalog: Catalog, found: Fit) -> Sample:
        """The same at the batches that run under a fit, by fixed point from all clients."""
        clients = np.array([p.concurrency for p in self.points], dtype=float)
        sample = replace(self, features=extract(self.points, catalog, clients))
        for _ in range(2):
            share = running_share(found.ttft(sample), found.tpot(sample), self.features.output)
            sample = replace(self, features=extract(self.points, catalog, clients * share))
        return sample

    def at(self, places: NDArray[np.intp]) -> Sample:
        """Some of the points."""
        return Sample(tuple(self.points[i] for i in places), tuple(self.keys[i] for i in places),
                      tuple(self.units[i] for i in places), self.prior[places], self.bounds,
                      self.features.at(places), self.tpot[places], self.ttft[places],
                      self.weight[places])

    def constants(self, effects: Effects) -> Array:
        """Logarithms of the constants of every point under fitted effects."""
        total = self.prior + np.array([sum((found.get(k, 0.0) for found, k in
                                            zip(effects.levels, keys, strict=True)),
                                           start=np.zeros(self.prior.shape[1]))
                                       for keys in self.keys])
        return in_order(np.clip(total, self.bounds.low, self.bounds.high))


@dataclass(frozen=True, slots=True)
class Fit:
    """Effects of step constants, and first-token constants by group."""

    effects: Effects
    first: dict[Hashable, Array]

    def first_token(self, keys: Keys, unit: Hashable = None) -> Array:
        """First-token constants of a unit or group: its own, or of the nearest that has any."""
        if unit in self.first:
            return self.first[unit]
        for level in range(len(keys)):
            key = keys[_NEAREST[level] if len(keys) > 1 else 0]
            if key in self.first:
                return self.first[key]
        return np.asarray(np.exp(first_token_bounds().prior))

    def first_tokens(self, sample: Sample) -> Array:
        """First-token constants of every point, shape (7, n)."""
        vectors = np.array([self.first_token(keys, unit) for keys, unit in
                            zip(sample.keys, sample.units, strict=True)]).T
        return first_token_constants(vectors, sample.features.precision)

    def tpot(self, sample: Sample) -> Array:
        """TPOT [s] of the points of a sample."""
        return StepTimes.of(sample.constants(self.effects), sample.features).token

    def ttft(self, sample: Sample) -> Array:
        """TTFT [s] of the points of a sample."""
        times = StepTimes.of(sample.constants(self.effects), sample.features)
        return times.ttft(self.first_tokens(sample), sample.features)


@dataclass(frozen=True, slots=True)
class Errors:
    """Median absolute relative errors of some points of a fit."""

    tpot_train: float
    tpot_left_out: float
    ttft_left_out: float


def fit(sample: Sample, levels: Sequence[float]) -> Fit:
    """Fit a sample at the running batches that it has: step and first-token constants in turn."""
    found = _fit_once(sample, levels, None)
    for _ in range(ROUNDS):
        found = _fit_once(sample, levels, FirstTokens(sample.ttft, found.first_tokens(sample)))
    return found


def _fit_once(sample: Sample, levels: Sequence[float], first: FirstTokens | None) -> Fit:
    effects = fit_effects(sample.features, sample.tpot, sample.prior, sample.bounds, sample.keys,
                          levels, first, sample.weight)
    return Fit(effects, first_tokens(sample, effects))


def first_tokens(sample: Sample, effects: Effects) -> dict[Hashable, Array]:
    """First-token constants by group and unit: each with its own, drawn to those above."""
    times = StepTimes.of(sample.constants(effects), sample.features)
    known = np.isfinite(sample.ttft) & (sample.ttft > 0)
    found: dict[Hashable, Array] = {}
    for level in range(len(sample.keys[0])):
        for key in dict.fromkeys(k[level] for k in sample.keys):
            here = np.array([i for i, k in enumerate(sample.keys)
                             if k[level] == key and known[i]], dtype=np.intp)
            if here.size:
                above = found.get(sample.keys[here[0]][ABOVE[level]]) if level else None
                found[key] = _fit_first(times, sample, here, above, PULLS[level])
    for unit in dict.fromkeys(sample.units):
        here = np.array([i for i, u in enumerate(sample.units) if u == unit and known[i]],
                        dtype=np.intp)
        if here.size and unit not in found:
            found[unit] = _fit_first(times, sample, here, found[sample.keys[here[0]][-1]],
                                     UNIT_PULL)
    return found


def _fit_first(times: StepTimes, sample: Sample, here: NDArray[np.intp], above: Array | None,
               pull: float) -> Array:
    """Constants that minimise a soft-L1 loss of log TTFT with a pull to those above."""
    bounds, features = first_token_bounds(), sample.features.at(here)
    start = bounds.prior if above is None else np.log(above)
    start = np.clip(start, bounds.low + 1e-6, bounds.high - 1e-6)
    alone, prefill, token = times.alone[here], times.prefill[here], times.token[here]
    measured = sample.ttft[here]

    def residual(x: Array) -> Array:
        constants = first_token_constants(np.exp(x), features.precision)
        found = first_token_s(constants, alone, prefill, token, features.clients,
                              features.prompt, features.output)
        return np.concatenate([np.log(found / measured), TTFT_SCALE * pull * (x - start)])

    from scipy.optimize import least_squares  # late: it takes half a second to load

    found = least_squares(residual, start, bounds=(bounds.low, bounds.high), loss="soft_l1",
                          f_scale=TTFT_SCALE, max_nfev=100)
    return np.asarray(np.exp(found.x))


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


def left_out(sample: Sample, catalog: Catalog, levels: Sequence[float]) -> tuple[Array, Array]:
    """Signed TPOT and TTFT errors of every point when its configuration is left out."""
    fold = folds(sample.points)
    errors = np.full((2, len(fold)), np.nan)
    for k in range(FOLDS):
        inside, outside = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        if not outside.size or inside.size < FOLDS:
            continue
        found = fit(sample.at(inside), levels)
        rest = sample.at(outside).running(catalog, found)
        errors[0, outside] = found.tpot(rest) / rest.tpot - 1.0
        errors[1, outside] = found.ttft(rest) / rest.ttft - 1.0
    return errors[0], errors[1]


def median(errors: Array) -> float:
    """Median of absolute errors; ``nan`` where there are none."""
    known = np.abs(errors[np.isfinite(errors)])
    return float(np.median(known)) if known.size else float("nan")
