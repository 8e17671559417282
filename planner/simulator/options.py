"""How a simulation runs: routing, failures, what is counted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.errors import InvalidValue

ROUTERS = ("random", "round_robin", "least_loaded", "power_of_two")


@dataclass(frozen=True, slots=True)
class Failure:
    """One replica of a pool that is down for a while.

    It takes effect at the end of the step that runs; what the replica held is lost and starts again
    elsewhere.

    Attributes
    ----------
    at_s : float
        [s] after the first arrival.
    duration_s : float
        [s] until it serves again.
    pool, replica : int
        Counted from 0.
    """

    at_s: float
    duration_s: float
    pool: int = 0
    replica: int = 0


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Settings of a run.

    Attributes
    ----------
    router : str
        ``random`` (what a plan assumes), ``round_robin``, ``least_loaded`` (fewest unfinished
        requests) or ``power_of_two`` (the less loaded of two at random).
    seed : int
        Of the router and of accepted draft tokens.
    warmup_share : float
        Share of the requests, the first ones, that serve but do not count.
    failures : tuple of Failure
    timeline_bins : int
        Points of the timeline over the arrivals.
    """

    router: str = "random"
    seed: int = 0
    warmup_share: float = 0.1
    failures: tuple[Failure, ...] = ()
    timeline_bins: int = 120

    def check(self, replicas: Iterable[int]) -> None:
        """Refuse settings that make no sense for a fleet with these replicas per pool.

        Raises
        ------
        InvalidValue
        """
        if self.router not in ROUTERS:
            raise InvalidValue(f"router must be one of {', '.join(ROUTERS)}, not {self.router!r}",
                               "/router")
        if not 0.0 <= self.warmup_share < 1.0:
            raise InvalidValue("warmup_share must be from 0 to below 1, not "
                               f"{self.warmup_share!r}", "/warmup_share")
        if not 1 <= self.timeline_bins <= 10_000:
            raise InvalidValue("timeline_bins must be from 1 to 10,000, not "
                               f"{self.timeline_bins!r}", "/timeline_bins")
        sizes = tuple(replicas)
        for i, failure in enumerate(self.failures):
            _check_failure(failure, sizes, f"/failures/{i}")


def _check_failure(failure: Failure, sizes: tuple[int, ...], pointer: str) -> None:
    if not 0 <= failure.pool < len(sizes):
        raise InvalidValue(f"pool must be from 0 to {len(sizes) - 1}, not {failure.pool}",
                           f"{pointer}/pool")
    if not 0 <= failure.replica < sizes[failure.pool]:
        raise InvalidValue(f"replica must be from 0 to {sizes[failure.pool] - 1}, not "
                           f"{failure.replica}", f"{pointer}/replica")
    if not (math.isfinite(failure.at_s) and failure.at_s >= 0):
        raise InvalidValue(f"at_s must be 0 or more, not {failure.at_s!r}", f"{pointer}/at_s")
    if not (math.isfinite(failure.duration_s) and failure.duration_s > 0):
        raise InvalidValue(f"duration_s must be positive, not {failure.duration_s!r}",
                           f"{pointer}/duration_s")


def random_failures(replicas: Iterable[int], span_s: float, between_s: float, repair_s: float,
                    seed: int = 0) -> tuple[Failure, ...]:
    """Failures of every replica with exponential times to failure and to repair.

    Parameters
    ----------
    replicas : iterable of int
        Replicas of each pool.
    span_s : float
        [s] over which failures are drawn.
    between_s, repair_s : float
        [s] mean time between failures of one replica, and until it serves again.
    """
    rng, drawn = np.random.default_rng([seed, 3]), []
    for pool, count in enumerate(replicas):
        for replica in range(count):
            at = float(rng.exponential(between_s))
            while at < span_s:
                down = float(rng.exponential(repair_s))
                drawn.append(Failure(at, down, pool, replica))
                at += down + float(rng.exponential(between_s))
    return tuple(sorted(drawn, key=lambda f: f.at_s))
