"""What a fleet of a fixed layout carries: replicas against requests per second.

A plan asks "does this rate hold on so many replicas?" (:func:`planner.sizing.smallest`). Here the
same question gives the curve: ``holds(k)``, the highest rate of ``k`` replicas, and its inverse,
the replicas that a month's rate needs. With Poisson arrivals the curve is ``k`` times that of one
replica. Otherwise the arrivals at one of ``k`` replicas have ``ca^2(k) = 1 + (ca^2 - 1) / k``
(Whitt 1983, QNA eq. 36): capacity per replica is close to linear in ``1 / k``, so ``holds`` is
close to linear in ``k`` between the rows of the table.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.arrivals import split_arrival_cv2
from planner.requests import PlanRequest
from planner.setups.base import Table, build_table
from planner.setups.chunked import Chunked
from planner.setups.colocated import Colocated
from planner.setups.disaggregated import DecodePool, Pair, PrefillPool
from planner.setups.static import Static
from planner.sizing import IDLE_RATE_PER_S, Check, Pool, Resources, Serving, Sized
from planner.workload import Workload

Array = NDArray[np.float64]
PRECISION = 2e-6
"""Relative width at which the search for a rate ends."""
ROUGH = 2e-4
"""The same for members and mixes of a shared fleet, which enter as ratios."""
STEP = 1.04
"""First step out from a guess."""
KNOWN_STEP = 1.0051
"""How far above a capacity that sizing has found (:func:`planner.sizing.capacity_rps`) a rate does
not hold."""
SAMPLES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192,
           256, 512, 1024, 2048, 4096, 8192)
"""Replicas at which a curve that is not straight is evaluated."""
SLACK = 1e-9
"""Replicas by which a rate may exceed whole ones: rounding of floats."""


@dataclass(frozen=True)
class Capacity:
    """Highest rates of a pool at a fixed layout.

    Attributes
    ----------
    replicas : tuple of int
        Ascending.
    requests_per_s : tuple of float
        [1/s] that so many replicas hold, with the target utilisation counted.
    """

    replicas: tuple[int, ...]
    requests_per_s: tuple[float, ...]

    @cached_property
    def points(self) -> tuple[tuple[float, float], ...]:
        """Rate [1/s] and replicas where more replicas hold more, from nothing on.

        Under strong bursts a few replicas may hold no rate at all: the first point is the most
        that do not.
        """
        found = [(0.0, 0.0)]
        for rate, count in zip(self.requests_per_s, map(float, self.replicas), strict=True):
            if rate > found[-1][0]:
                found.append((rate, count))
            elif rate <= 0.0:
                found[0] = (0.0, count)
        return tuple(found)

    def needed(self, rate_per_s: float) -> int:
        """Replicas for a rate [1/s]: linear between the rows, the last slope beyond them.

        Examples
        --------
        >>> Capacity((1,), (2.0,)).needed(5.0)
        3
        """
        if rate_per_s <= 0.0:
            return 0
        at, base, slope = self.segment(rate_per_s)
        return math.ceil(base + (rate_per_s - at) * slope - SLACK)

    def segment(self, rate_per_s: float) -> tuple[float, float, float]:
        """Start [1/s], replicas there and replicas per rate of the stretch that holds a rate."""
        points = self.points
        after_it = bisect_left(points, rate_per_s, key=lambda p: p[0])
        place = min(max(after_it - 1, 0), len(points) - 2)
        (at, base), (after, top) = points[place], points[place + 1]
        return at, base, (top - base) / (after - at)

    def holds(self, replicas: float) -> float:
        """Rate [1/s] that so many replicas hold."""
        points = self.points
        after_it = bisect_left(points, replicas, key=lambda p: p[1])
        place = min(max(after_it - 1, 0), len(points) - 2)
        (at, base), (after, top) = points[place], points[place + 1]
        return max(at + (replicas - base) * (after - at) / (top - base), 0.0)


def highest_rate(check: Check, cv2: float, ceiling_rps: float, guess_rps: float,
                 precision: float = PRECISION) -> float:
    """Highest rate [1/s] of one replica that holds; 0 when none does.

    Steps out from a guess, then halves the gap.
    """
    if ceiling_rps <= 0.0:
        return 0.0
    step = STEP
    low, high = IDLE_RATE_PER_S, ceiling_rps
    rate = min(guess_rps, ceiling_rps * (1.0 - PRECISION))
    if check(rate, cv2).ok:
        low = rate
        while low * step < high:
            if not check(low * step, cv2).ok:
                high = low * step
                break
            low, step = low * step, step**2
    elif not check(IDLE_RATE_PER_S, 1.0).ok:
        return 0.0
    else:
        high = rate
        while high / step > low:
            if check(high / step, cv2).ok:
                low = high / step
                break
            high, step = high / step, step**2
    return _narrowed(check, cv2, low, high, precision)


def _narrowed(check: Check, cv2: float, low: float, high: float, precision: float) -> float:
    """Highest rate [1/s] that holds, between one that does and one that does not."""
    while high - low > precision * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if check(middle, cv2).ok else (low, middle)
    return low if low > IDLE_RATE_PER_S else 0.0


def samples(arrival_cv: float, most: int) -> tuple[int, ...]:
    """Replicas at which a curve must be evaluated up to ``most`` and some way beyond."""
    if arrival_cv == 1.0:
        return (1,)
    count = bisect_left(SAMPLES, most * 2) + 1
    return SAMPLES[:max(count, 4)]


class FixedLayout:
    """A sized option whose layout stays while rates, lengths and the mix change.

    Parameters
    ----------
    option : Sized
    request : PlanRequest
    resources : Resources
    """

    def __init__(self, option: Sized, request: PlanRequest, resources: Resources) -> None:
        self.option, self.request, self.resources = option, request, resources
        self.slos = option.pools[-1].table.workload.slos

    def capacity(self, workload: Workload, counts: Sequence[int] | None = None,
                 most: int = 1, guess: float = 1.0) -> tuple[Capacity, ...] | None:
        """The curve of each pool for a workload, None when it cannot be served at this layout.

        Parameters
        ----------
        counts : sequence of int, optional
            Replicas of each pool to evaluate at; the samples up to ``most`` unless given.
        guess : float
            Expected capacity over that of the sized option: where the search begins.
        """
        asked = replace(workload, slos=self.slos)
        tables = [self._table(p, asked) for p in self.option.pools]
        if any(t.memory_cap < 1 for t in tables):
            return None
        if len(tables) == 1:
            pool = self.option.pools[0]
            source = _serving(pool, tables[0])
            found = self._curve(source.check, source.ceiling, pool, workload,
                                counts[0] if counts else None, most, guess)
            return None if found is None else (found,)
        return self._pair(tables, workload, counts, most, guess)

    def _table(self, pool: Pool, workload: Workload) -> Table:
        """The table of a pool for a workload: that of its sizing where the lengths are the same."""
        if workload.lengths_key == pool.table.workload.lengths_key:
            return replace(pool.table, workload=workload)
        limits, request = self.request.limits, self.request
        return build_table(pool.deployment, workload, limits, request.speculative)

    def _curve(self, check: Check, ceiling_rps: float, pool: Pool, workload: Workload,
               count: int | None, most: int, guess: float) -> Capacity | None:
        """The curve of a pool at some replicas, or at one number of them.

        A single pool with Poisson arrivals and the lengths of its sizing has the capacity that it
        found, to 0.5 %.
        """
        sized = (len(self.option.pools) == 1 and bool(pool.capacity_rps)
                 and workload.arrival_cv == 1.0
                 and workload.lengths_key == pool.table.workload.lengths_key)
        utilization = self.request.limits.target_utilization
        known = pool.capacity_rps or pool.rate_per_s / utilization / pool.replicas
        rate = known * guess
        precision = PRECISION if count is None else ROUGH
        counts = samples(workload.arrival_cv, most) if count is None else (count,)
        rates: list[float] = []
        for k in counts:
            cv2 = split_arrival_cv2(workload.arrival_cv, k)
            rate = (_narrowed(check, cv2, known, min(known * KNOWN_STEP, ceiling_rps), precision)
                    if sized else highest_rate(check, cv2, ceiling_rps, rate, precision))
            rates.append(rate * k * utilization)
            rate = rate or known * guess
        if not any(rates):
            return None
        return Capacity(tuple(counts), tuple(np.maximum.accumulate(rates).tolist()))

    def _pair(self, tables: Sequence[Table], workload: Workload, counts: Sequence[int] | None,
              most: int, guess: float) -> tuple[Capacity, ...] | None:
        """Prefill beside a decode pool that is as full as it may be: never too few replicas."""
        prefill, decode = self.option.pools
        assert isinstance(decode.source, DecodePool)
        sink = DecodePool(tables[1], decode.source.admission_share)
        carried = self._curve(sink.check, sink.ceiling, decode, workload,
                              counts[1] if counts else None, most, guess)
        if carried is None:
            return None
        source = PrefillPool(tables[0], prefill.batch_size)
        k = counts[1] if counts else decode.replicas
        check = _prefill_check(source, sink, carried.holds(k) / k, workload, k,
                               self.request.limits.target_utilization)
        fed = None if check is None else self._curve(
            check, source.ceiling, prefill, workload, counts[0] if counts else None, most,
            guess)
        return None if fed is None else (fed, carried)


def _serving(pool: Pool, table: Table) -> Serving:
    """The setup of a pool on a table: that of its sizing where the table is the same."""
    if table.prefill_s is pool.table.prefill_s and isinstance(pool.source, Serving):
        return pool.source
    if isinstance(pool.source, Chunked):
        assert pool.token_budget is not None
        return Chunked(table, pool.token_budget)
    return Static(table) if isinstance(pool.source, Static) else Colocated(table)


def _prefill_check(source: PrefillPool, sink: DecodePool, rate_per_s: float, workload: Workload,
                   replicas: int, utilization: float) -> Check | None:
    """The TTFT check of a prefill pool beside a decode replica at a rate [1/s]."""
    cv2 = split_arrival_cv2(workload.arrival_cv, replicas)
    chain = sink.chain(rate_per_s, cv2)
    planned_rps = rate_per_s / utilization * (1.0 - 1e-5)
    cap = sink.check(planned_rps, cv2).cap
    if cap < 1:
        return None
    handover = Pair(source, sink).handover_s(chain, cap)
    admission = sink.admission(sink.chain(planned_rps, cv2), cap)
    return lambda rate, spread: source.check(rate, spread, handover, admission)
