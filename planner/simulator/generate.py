"""Synthetic requests: arrival processes and lengths, seeded.

Every generator draws arrivals and lengths from streams of its own, so that changing one leaves the
other as it was.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.errors import InvalidValue
from planner.simulator.table import Array, Counts, RequestTable, request_table
from planner.workload import Lengths, Workload

MOST_DRAWN = 1e12
"""Bursts between two requests from which their number is its mean: it is within a millionth."""


def poisson_arrivals(rate_per_s: float, count: int, seed: int = 0) -> Array:
    """Arrivals [s] with exponential gaps."""
    return gamma_arrivals(rate_per_s, 1.0, count, seed)


def gamma_arrivals(rate_per_s: float, cv: float, count: int, seed: int = 0) -> Array:
    """Arrivals [s] with gamma gaps of a coefficient of variation.

    Parameters
    ----------
    rate_per_s : float
        Mean rate [1/s].
    cv : float
        1 is Poisson, above 1 bursty, 0 a metronome.
    """
    _positive(rate_per_s, "rate_per_s")
    if not (math.isfinite(cv) and cv >= 0):
        raise InvalidValue(f"arrival_cv must be 0 or more, not {cv!r}", "/workload/arrival_cv")
    if cv < 1e-6:
        return np.arange(1.0, count + 1.0) / rate_per_s
    shape = 1.0 / cv**2
    gaps = _stream(seed, 0).gamma(shape, 1.0 / (shape * rate_per_s), count)
    return np.asarray(np.cumsum(gaps))


def on_off_arrivals(rate_per_s: float, on_s: float, off_s: float, count: int, seed: int = 0
                    ) -> Array:
    """Bursts: Poisson while on, silent while off, with exponential times of the given means.

    Parameters
    ----------
    rate_per_s : float
        Mean rate [1/s] over on and off; while on it is ``rate (on + off) / on``.
    on_s, off_s : float
        Mean length [s] of a burst and of a pause.

    Notes
    -----
    No burst is drawn by itself, so that memory and time go with ``count`` alone. Between two
    requests the clock of the bursts runs an exponential time of mean ``on / (rate (on + off))``; as
    bursts are exponential, a Poisson number of them ends in it, and so many exponential pauses
    together have a gamma law.
    """
    for name, value in (("rate_per_s", rate_per_s), ("on_s", on_s), ("off_s", off_s)):
        _positive(value, name)
    rng = _stream(seed, 0)
    cycle_s = on_s + off_s
    bursts = rng.exponential(1.0 / (rate_per_s * cycle_s), count)
    pauses = np.where(bursts < MOST_DRAWN, rng.poisson(np.minimum(bursts, MOST_DRAWN)), bursts)
    return np.asarray(np.cumsum(bursts * on_s + off_s * rng.gamma(pauses)))


def diurnal_arrivals(rate_per_s: float, profile: ArrayLike, count: int, seed: int = 0,
                     day_s: float = 86400.0) -> Array:
    """A Poisson process whose rate follows a daily profile (time change of a unit process).

    Parameters
    ----------
    rate_per_s : float
        Mean rate [1/s] over the day.
    profile : array_like, shape (k,)
        Relative rate in each of k equal parts of the day.
    day_s : float
        [s] of a day.
    """
    shape = np.asarray(profile, dtype=float)
    if shape.ndim != 1 or not shape.size or not np.isfinite(shape).all() or shape.min() < 0 \
            or shape.sum() <= 0:
        raise InvalidValue("a profile needs rates of 0 or more that are not all 0", "/profile")
    _positive(rate_per_s, "rate_per_s")
    _positive(day_s, "day_s")
    rates = rate_per_s * shape / shape.mean()
    part = day_s / len(rates)
    done = np.concatenate([[0.0], np.cumsum(rates * part)])
    unit = np.cumsum(_stream(seed, 0).exponential(1.0, count))
    days, within = np.divmod(unit, done[-1])
    return np.asarray(days * day_s + np.interp(within, done, np.arange(len(rates) + 1.0) * part))


# -- lengths --------------------------------------------------------------------------------------


def draw_lengths(lengths: Lengths, count: int, rng: np.random.Generator) -> Counts:
    """Token counts [token] of a distribution.

    A log-normal is drawn as such; other kinds by their points.
    """
    if lengths.log_law is not None:
        values = np.exp(rng.normal(*lengths.log_law, count))
    else:
        values = rng.choice(lengths.tokens, count, p=lengths.weights / lengths.weights.sum())
    return np.maximum(np.round(values), 1.0).astype(np.int64)


def synthetic(workload: Workload, count: int, seed: int = 0, arrivals: Array | None = None
              ) -> RequestTable:
    """Requests of a workload: gamma gaps with its CV, lengths from its distributions.

    Parameters
    ----------
    workload : Workload
    count : int
        Requests.
    seed : int
        Same seed, same requests.
    arrivals : ndarray, shape (count,), optional
        [s] another arrival process than the workload's.
    """
    if count < 1:
        raise InvalidValue(f"requests must be at least 1, not {count}", "/requests")
    when = arrivals if arrivals is not None else gamma_arrivals(
        workload.requests_per_s, workload.arrival_cv, count, seed)
    prompt = draw_lengths(workload.prompt, count, _stream(seed, 1))
    output = draw_lengths(workload.output, count, _stream(seed, 2))
    cached = np.floor(prompt * workload.prefix_hit)
    return request_table(when, prompt, output, cached)


def _stream(seed: int, which: int) -> np.random.Generator:
    return np.random.default_rng([seed, which])


def _positive(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidValue(f"{name} must be positive, not {value!r}", f"/{name}")


def rates_of(arrival_s: NDArray[np.float64], bin_s: float) -> Array:
    """Arrivals per second [1/s] in bins of ``bin_s``, from the first arrival on."""
    place = ((arrival_s - arrival_s[0]) // bin_s).astype(np.int64)
    return np.asarray(np.bincount(place) / bin_s)
