"""The fit: constants of one engine on one GPU from its measured points.

Least squares on logarithms of TPOT, then of TTFT, with a soft-L1 loss (a bad row counts little)
and a pull towards the prior that a few dozen informative points outweigh. Errors are reported on
configurations left out of the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from planner.calibration.constants import (
    Bounds,
    first_token_bounds,
    step_bounds,
    step_seconds,
)
from planner.calibration.features import Features, extract
from planner.calibration.points import MeasuredPoint
from planner.catalog.book import Catalog
from planner.closed_loop import first_token_s, running_share, token_s
from planner.engine import EngineProfile

Array = NDArray[np.float64]
PULL = 0.017
"""Weight of the prior per square root of the number of points."""
TPOT_SCALE, TTFT_SCALE = 0.1, 0.3
"""Relative error at which the loss turns from square to linear."""
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants and how well they do.

    Attributes
    ----------
    step, first_token : ndarray
        In the orders of :mod:`planner.calibration.constants`.
    determined : ndarray of bool
        Which step constants the data moved away from their prior.
    tpot_train, tpot_left_out, ttft_left_out : float
        Median absolute relative errors; left out = configurations not in the fit.
    """

    step: Array
    first_token: Array
    determined: NDArray[np.bool_]
    tpot_train: float
    tpot_left_out: float
    ttft_left_out: float
    points: int


def solve(residual: Callable[[Array], Array], bounds: Bounds, points: int, scale: float) -> Array:
    """Constants that minimise a soft-L1 loss of log residuals with a pull to the prior."""
    pull = PULL * np.sqrt(points)

    def total(x: Array) -> Array:
        return np.concatenate([residual(np.exp(x)), pull * (x - bounds.prior)])

    found = least_squares(total, bounds.prior, bounds=(bounds.low, bounds.high), loss="soft_l1",
                          f_scale=scale, max_nfev=200)
    return np.asarray(np.exp(found.x))


def predict_tpot(constants: Array, features: Features) -> Array:
    """TPOT [s] of every point: the mean-field row of its running batch."""
    decode = step_seconds(constants, features.decode, features.precision)
    prefill = step_seconds(constants, features.prefill, features.precision)
    return token_s(decode, prefill, features.running, features.output)


def predict_ttft(step: Array, first: Array, features: Features) -> Array:
    """TTFT [s] of every point of a closed loop."""
    decode = step_seconds(step, features.decode, features.precision)
    prefill = step_seconds(step, features.prefill, features.precision)
    token = token_s(decode, prefill, features.running, features.output)
    return first_token_s(first, decode, prefill, token, features.clients, features.output)


def fit_constants(features: Features, tpot_s: Array, ttft_s: Array, bounds: Bounds
                  ) -> tuple[Array, Array]:
    """Step constants from TPOT, then first-token constants from TTFT."""
    step = solve(lambda c: np.log(predict_tpot(c, features) / tpot_s), bounds, len(tpot_s),
                 TPOT_SCALE)
    known = np.isfinite(ttft_s) & (ttft_s > 0)
    part = features.at(np.flatnonzero(known))
    if not known.any():
        return step, np.exp(first_token_bounds().prior)
    first = solve(lambda c: np.log(predict_ttft(step, c, part) / ttft_s[known]),
                  first_token_bounds(), int(known.sum()), TTFT_SCALE)
    return step, first


def fit(points: Sequence[MeasuredPoint], catalog: Catalog,
        profiles: Mapping[str, EngineProfile]) -> Fitted:
    """Fit one engine on one GPU.

    Parameters
    ----------
    points : sequence of MeasuredPoint
        Of one GPU and engine, closed loop, with a TPOT.
    profiles : dict
        Profiles in force by weight precision: the prior.
    """
    tpot = np.array([p.tpot_s for p in points], dtype=float)
    ttft = np.array([np.nan if p.ttft_s is None else p.ttft_s for p in points], dtype=float)
    clients = np.array([p.concurrency for p in points], dtype=float)
    assert points[0].gpu is not None
    bounds = step_bounds(profiles, "fp4" in catalog.gpu(points[0].gpu).peak_flop_per_s)
    features = extract(points, catalog, clients * _running_share(points, catalog, bounds))
    step, first = fit_constants(features, tpot, ttft, bounds)
    train = np.abs(predict_tpot(step, features) / tpot - 1.0)
    out_tpot, out_ttft = _left_out(points, features, tpot, ttft, bounds)
    moved = np.abs(np.log(step) - bounds.prior) > 0.02
    return Fitted(step, first, moved, float(np.median(train)), out_tpot, out_ttft, len(points))


def _running_share(points: Sequence[MeasuredPoint], catalog: Catalog, bounds: Bounds) -> Array:
    """Share of the clients that decode at once, by the prior's times."""
    clients = np.array([p.concurrency for p in points], dtype=float)
    features = extract(points, catalog, clients)
    constants = np.exp(bounds.prior)
    decode = step_seconds(constants, features.decode, features.precision)
    prefill = step_seconds(constants, features.prefill, features.precision)
    token = token_s(decode, prefill, features.running, features.output)
    return running_share(decode, prefill, token, features.output)


def configurations(points: Sequence[MeasuredPoint]) -> NDArray[np.intp]:
    """A number per point, equal where only the concurrency differs."""
    keys = [(p.model, p.weights, p.tensor_parallel, p.data_parallel, p.expert_parallel,
             round(p.prompt_tokens, -1), round(p.output_tokens, -1)) for p in points]
    order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([order[k] for k in keys])


def _left_out(points: Sequence[MeasuredPoint], features: Features, tpot: Array, ttft: Array,
              bounds: Bounds) -> tuple[float, float]:
    """Median errors on configurations left out, in :data:`FOLDS` folds."""
    groups = configurations(points)
    fold = np.random.default_rng(0).permutation(groups.max() + 1)[groups] % FOLDS
    errors = np.full((2, len(points)), np.nan)
    for k in range(FOLDS):
        inside, outside = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        if not outside.size or inside.size < FOLDS:
            continue
        step, first = fit_constants(features.at(inside), tpot[inside], ttft[inside], bounds)
        rest = features.at(outside)
        errors[0, outside] = predict_tpot(step, rest) / tpot[outside] - 1.0
        errors[1, outside] = predict_ttft(step, first, rest) / ttft[outside] - 1.0
    return _median(errors[0]), _median(errors[1])


def _median(errors: Array) -> float:
    known = np.abs(errors[np.isfinite(errors)])
    return float(np.median(known)) if known.size else float("nan")
