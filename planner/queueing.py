"""Waiting and percentiles: M/G/1 prefill servers, gamma tails, the batch as a birth-death chain.

Sources: Pollaczek-Khinchine (M/G/1); Kingman 1961 and Allen & Cunneen 1978 (arrivals that are not
Poisson); Kelly 1979, *Reversibility and Stochastic Networks* (product form of processor sharing);
Kleinrock, *Queueing Systems* vol. 1 (E[W^2] of M/G/1); Sakasegawa 1977 (many servers).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from planner.arrivals import Influx, burst_ahead
from planner.percentiles import reaching
from planner.stalls import Added, TokenTimes
from planner.workload import Gaps, constant

Array = NDArray[np.float64]
PERCENTILES = (50.0, 90.0, 95.0, 99.0)
NO_WAIT_S = 1e-12
"""[s] mean below which a wait is none (its moments would underflow)."""
LIKELY = 1e-9
"""Weight of a state, relative to the heaviest, below which it changes no percentile."""
COARSE = 8
"""Of the times at which a distribution is evaluated, every eighth finds where to look closer."""
NOTICEABLE = 1e-6
"""Probability of a wait below which it changes nothing."""
UNSTABLE = 1e12
"""Weight of the waiting tail relative to the last state where the queue has no limit."""
POISSON = Influx()


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits that are 0 with probability ``1 - busy`` and else gamma distributed.

    The fields are arrays of one shape (one element a case), so that all caps of a table are
    judged at once.

    Attributes
    ----------
    busy : ndarray
        Probability of waiting at all.
    mean_s, second_s2 : ndarray
        E[W] [s] and E[W^2] [s^2] over all requests; infinite where the queue is unstable.
    """

    busy: Array
    mean_s: Array
    second_s2: Array

    def cdf(self, t: Array) -> Array:
        """P(W <= t) for ``t`` [s] of shape (..., k), the leading axes those of the wait.

        The wait of those who wait is a gamma with the matched two moments.
        """
        busy = self.busy[..., None]
        stable = np.isfinite(self.mean_s) & (self.mean_s > NO_WAIT_S) & (self.busy > 0)
        mean = np.where(stable, self.mean_s, 1.0) / np.where(stable, self.busy, 1.0)
        second = np.where(stable, self.second_s2, 2.0) / np.where(stable, self.busy, 1.0)
        variance = np.maximum(second - mean**2, 1e-6 * mean**2)
        shape, scale = (mean**2 / variance)[..., None], (variance / mean)[..., None]
        tail = gammainc(shape, np.maximum(t, 0.0) / scale)
        share = np.where(stable[..., None], 1.0 - busy + busy * tail, 1.0)
        share = np.where(np.isfinite(self.mean_s)[..., None], share, 0.0)
        return np.where(t >= 0, share, 0.0)

    def surely_within(self, limit_s: float, latency_s: Array, weights: Array) -> Array:
        """A share that P(W + S <= limit) is never below: P(W > t) <= E[W] / t (Markov).

        See :func:`surely_within`.
        """
        return surely_within(limit_s, self.mean_s[..., None], latency_s, weights)

    def at(self, places: NDArray[np.int64]) -> Wait:
        """The waits of some cases."""
        return Wait(self.busy[places], self.mean_s[places], self.second_s2[places])

    def repeated(self, times: int) -> Wait:
        """One case as so many alike."""
        return Wait(np.full(times, self.busy), np.full(times, self.mean_s),
                    np.full(times, self.second_s2))

    def __add__(self, other: Wait) -> Wait:
        """The sum of two independent waits, matched by two moments."""
        mean = self.mean_s + other.mean_s
        finite = np.isfinite(mean)
        cross = np.where(finite, self.mean_s, 0.0) * np.where(finite, other.mean_s, 0.0)
        second = self.second_s2 + other.second_s2 + 2.0 * cross
        return Wait(1.0 - (1.0 - self.busy) * (1.0 - other.busy), mean, second)


def surely_within(limit_s: float, wait_s: Array | float, latency_s: Array, weights: Array) -> Array:
    """A share that P(W + S <= limit) is never below, by the mean wait [s] alone.

    It takes a fraction of the time of :func:`share_within`, and where waits are short next to the
    limit it says enough.
    """
    left = np.maximum(limit_s - latency_s, 1e-300)
    return np.asarray((1.0 - np.minimum(wait_s / left, 1.0)) @ weights)


def no_wait(shape: tuple[int, ...] = ()) -> Wait:
    """Waits of exactly zero."""
    return Wait(np.zeros(shape), np.zeros(shape), np.zeros(shape))


@dataclass(frozen=True, slots=True)
class Moments:
    """Raw moments of a service time: E[S] [s], E[S^2] [s^2], E[S^3] [s^3]; arrays, one a case."""

    first: Array
    second: Array
    third: Array

    @classmethod
    def of(cls, service_s: Array, weights: Array) -> Moments:
        """Of service times [s] of shape (..., k) with weights of shape (k,)."""
        square_s2 = service_s * service_s
        return cls(service_s @ weights, square_s2 @ weights, (square_s2 * service_s) @ weights)

    def scaled(self, factor: Array | float) -> Moments:
        """Of the same service taking ``factor`` times as long."""
        square = factor * factor
        return Moments(self.first * factor, self.second * square, self.third * (square * factor))


def mg1_wait(rate_per_s: float, service_s: Array, weights: Array, arrival_cv2: float = 1.0) -> Wait:
    """Wait of first-come first-served servers with general service, see :func:`mg1_wait_of`.

    Parameters
    ----------
    service_s : ndarray, shape (..., k)
        [s] that a request keeps the server; one row a case.
    weights : ndarray, shape (k,)
        Shares of the k service times.
    """
    return mg1_wait_of(rate_per_s, Moments.of(service_s, weights), arrival_cv2)


def mg1_wait_of(rate_per_s: float, service: Moments, arrival_cv2: float = 1.0) -> Wait:
    """Wait of first-come first-served servers with general service.

    Wq = lambda E[S^2] / (2 (1 - rho)), E[W^2] = 2 Wq^2 + lambda E[S^3] / (3 (1 - rho)). Arrivals
    smoother than Poisson scale both by (ca^2 + cs^2) / (1 + cs^2) (Allen & Cunneen). Burstier ones
    are taken as geometric batches with the same index of dispersion: of mean 1 + e with
    e = (ca^2 - 1) / 2, so that a request waits for the batch as one job (M[X]/G/1) and then for
    the e requests of its own batch ahead of it. Only the first of a batch may find the server idle.

    Parameters
    ----------
    rate_per_s : float
        Arrivals [1/s].
    service : Moments
        Of the time that a request keeps the server.
    arrival_cv2 : float
        Squared coefficient of variation of the gaps between arrivals.

    Returns
    -------
    Wait
        Of the moments' shape; ``mean_s`` is infinite where the load is 1 or more.
    """
    first, second, third = service.first, service.second, service.third
    rho = rate_per_s * first
    stable = rho < 1.0
    idle = np.where(stable, 1.0 - rho, 1.0)
    smooth: Array | float = 1.0
    if arrival_cv2 < 1.0:
        service_cv2 = np.maximum(second / np.maximum(first**2, 1e-300) - 1.0, 0.0)
        smooth = (arrival_cv2 + service_cv2) / (1.0 + service_cv2)
    ahead = burst_ahead(arrival_cv2)
    of_batch = ahead * first
    jobs, job_squares = third, second
    if ahead:
        job_squares = second + 2.0 * of_batch * first
        jobs = third + 6.0 * of_batch * (second + of_batch * first)
    mean = rate_per_s * job_squares / (2.0 * idle) * smooth
    square = 2.0 * mean**2 + rate_per_s * jobs / (3.0 * idle) * smooth
    if ahead:
        square = square + 2.0 * mean * of_batch + ahead * second + 2.0 * of_batch**2
    busy = 1.0 - (1.0 - rho) / (1.0 + ahead)
    return Wait(np.where(stable, busy, 1.0), np.where(stable, mean + of_batch, np.inf),
                np.where(stable, square, np.inf))


def compound(count: Array, each: Moments) -> Wait:
    """The sum of a Poisson number of independent times, of mean ``count``, as a wait."""
    mean = count * each.first
    return Wait(-np.expm1(-count), mean, count * each.second + mean**2)


def share_within(limit_s: float, wait: Wait, latency_s: Array, weights: Array) -> Array:
    """P(W + S <= limit) for waits and independent discrete latencies of shape (..., k)."""
    return np.asarray(wait.cdf(limit_s - latency_s) @ weights)


def share_within_both(limit_s: float, first: Wait, second: Wait, latency_s: Array,
                      weights: Array) -> Array:
    """P(W1 + W2 + S <= limit), never above P(W1 + S <= limit).

    The sum is matched by two moments, which can give it more short waits than its first part has.
    """
    share = share_within(limit_s, first + second, latency_s, weights)
    if not (second.busy > NOTICEABLE).any():
        return share
    return np.minimum(share, share_within(limit_s, first, latency_s, weights))


def holds_within_both(level: float, limit_s: float, first: Wait, second: Wait, latency_s: Array,
                      weights: Array) -> NDArray[np.bool_]:
    """Whether P(W1 + W2 + S <= limit) reaches a level: by :meth:`Wait.surely_within` where that
    decides it, else by :func:`share_within_both`."""
    both = first + second
    held = np.asarray(both.surely_within(limit_s, latency_s, weights) >= level)
    if held.all():
        return held
    return np.asarray(share_within_both(limit_s, first, second, latency_s, weights) >= level)


def sum_percentiles(wait: Wait, latency_s: Array, weights: Array,
                    percentiles: tuple[float, ...] = PERCENTILES) -> list[float]:
    """Percentiles [s] of W + S of one case (all infinite when unstable).

    The distribution is inverted linearly on a grid of some 300 times, of which only those around
    the percentiles are evaluated.

    Parameters
    ----------
    wait : Wait
        With scalar fields.
    latency_s, weights : ndarray, shape (k,)
    """
    if not np.isfinite(wait.mean_s):
        return [math.inf] * len(percentiles)
    floor, top = float(latency_s.min()), float(latency_s.max())
    spread = float(wait.mean_s + np.sqrt(wait.second_s2)) / max(float(wait.busy), 1e-9)
    tail = spread * np.linspace(0.0, 1.0, 80) ** 3 * 12.0
    grid = np.unique(np.concatenate([np.linspace(floor, top, 80), floor + tail, top + tail,
                                     latency_s * (1 - 1e-9), latency_s,
                                     latency_s * (1 + 1e-9)]))
    shares = np.asarray(percentiles) / 100.0 - 1e-9

    def reached(times: Array) -> Array:
        return np.maximum.accumulate(wait.cdf(times[:, None] - latency_s) @ weights)

    return _inverted(reached, grid, shares)


def _inverted(reached: Callable[[Array], Array], grid: Array, shares: Array) -> list[float]:
    """Where a distribution reaches shares, linear between the points of a grid.

    Only points around the answers, and every eighth, are evaluated.
    """
    coarse = np.append(np.arange(0, len(grid) - 1, COARSE), len(grid) - 1)
    after = np.searchsorted(reached(grid[coarse]), shares).clip(1, len(coarse) - 1)
    near = np.unique(np.concatenate([np.arange(coarse[i - 1], coarse[i] + 1) for i in after]))
    return [float(x) for x in np.interp(shares, reached(grid[near]), grid[near])]


@dataclass(frozen=True, slots=True)
class AtCap:
    """A chain under one cap.

    Attributes
    ----------
    token_share : float
        See :meth:`Chain.token_share_within`; 1 without a limit.
    running : float
        E[n] over time.
    admission_s : float
        [s] mean wait for admission over all requests.
    """

    token_share: float
    running: float
    admission_s: float


@dataclass(frozen=True, slots=True)
class Chain:
    """Stationary law of the number of decoding sequences, for every cap at once.

    Decoding ``n`` sequences at once is processor sharing with a state-dependent rate, so
    pi(n) is proportional to the product over k <= n of ``load tpot(k) / k`` with
    ``load = rate x output tokens``; past the cap the queue for admission goes on geometrically.
    Uneven arrivals widen it: the log of each factor is divided by the peakedness, which multiplies
    the variance of a bell-shaped law by it (Hayward's idea, Fredericks 1980); see :class:`Influx`.

    Attributes
    ----------
    n : ndarray, shape (N,)
        1..N.
    tpot_s : ndarray, shape (N,)
        [s] time per output token with n running, over the tokens.
    log_weight : ndarray, shape (N,)
        ln of the product up to n.
    load : float
        [token/s] that must be generated.
    influx : Influx
        How requests come.
    served_s : ndarray, shape (N,)
        [s] from one answer's end to the next while requests wait past a cap of n.
    added : Added or None
        What prompts add to the time of an answer; None where none are prefilled.
    gaps : Gaps
        Between the tokens of an answer.
    weight : ndarray, shape (N,)
        The products, scaled so that none overflows.
    empty : float
        Weight of the empty system on the same scale.
    ratio : ndarray, shape (N,)
        Ratio of the geometric tail past a cap of n.
    known : dict
        Columns that several questions need, worked out once.
    """

    n: Array
    tpot_s: Array
    load: float
    influx: Influx
    served_s: Array
    added: Added | None
    gaps: Gaps
    weight: Array
    empty: float
    ratio: Array
    known: dict[object, Array] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, rate_per_s: float, output_tokens: float, tpot_s: Array, influx: Influx = POISSON,
           added: Added | None = None, gaps: Gaps | None = None) -> Chain:
        """Build the chain for an arrival rate and a TPOT column over n = 1..N.

        Parameters
        ----------
        influx : Influx, optional
            How requests come; one by one at random where not given.
        added : Added, optional
        gaps : Gaps, optional
            Of the answers; that of their mean where not given.
        """
        n = np.arange(1.0, len(tpot_s) + 1.0)
        load = max(rate_per_s * output_tokens, 1e-300)
        utilization = load * tpot_s / n
        logs = (np.log(utilization) / influx.peak).cumsum()
        top = max(float(logs.max()), 0.0)
        full = influx.load + (1.0 - influx.load) * utilization
        ratio = full if influx.full_peak == 1.0 else full ** (1.0 / influx.full_peak)
        return cls(n, tpot_s, load, influx, full * (influx.ranks * output_tokens / load), added,
                   gaps or constant(output_tokens).gaps, np.exp(logs - top), math.exp(-top),
                   ratio)

    def _once(self, key: object, work: Callable[[], Array]) -> Array:
        """A column that several questions need."""
        if key not in self.known:
            self.known[key] = work()
        return self.known[key]

    def tail(self) -> Array:
        """Weight of those that wait, relative to the last state's: r / (1 - r) for every cap."""
        return self._once("tail", self._tail)

    def _tail(self) -> Array:
        stable = self.ratio < 1.0
        gap = np.where(stable, 1.0 - self.ratio, 1.0)
        return np.where(stable, self.ratio / gap, UNSTABLE)

    def waiting(self) -> tuple[Array, Array]:
        """For every cap: probability of waiting for admission, and its mean wait [s] given that.

        Past the cap M the chain goes on with ratio r; an arrival waits when it finds M or more
        running: pi(M) / (1 - r). It then waits a geometric number of departures, ``1 / (1 - r)``
        on average. Where r >= 1 they are 1 and infinite.
        """
        stable = self.ratio < 1.0
        gap = np.where(stable, 1.0 - self.ratio, 1.0)
        total = self.empty + self._reached() + self.weight * self.ratio / gap
        probability = self.weight / gap / np.maximum(total, 1e-300)
        mean = self.served_s / gap
        return np.where(stable, probability, 1.0), np.where(stable, mean, np.inf)

    def token_share_within(self, tpot_limit_s: float) -> Array:
        """For every cap: share of requests whose TPOT is within the limit.

        A request counts in the state that it finds on arrival, itself included: the shares of the
        tokens that the states generate.
        """
        tokens, good = self._rate(), self._good(tpot_limit_s)
        waiting = tokens * self.tail()
        total = tokens.cumsum() + waiting
        held = (tokens * good).cumsum() + waiting * good
        return np.asarray(held / np.maximum(total, 1e-300))

    def _rate(self) -> Array:
        """Tokens that each state generates, on the scale of the weights."""
        return self._once("rate", lambda: self.weight * self.n / self.tpot_s)

    def _good(self, tpot_limit_s: float) -> Array:
        """P(request's TPOT <= limit) in each state."""
        return self._once(("good", tpot_limit_s), lambda: self._good_of(tpot_limit_s))

    def _good_of(self, tpot_limit_s: float) -> Array:
        limit = np.array([tpot_limit_s * (1 + 1e-12)])
        if self.added is None:
            return np.asarray(self.tpot_s <= limit, dtype=float)
        # Past this state the caps hold hardly any more; a cap may lie anywhere before it.
        tokens = self._rate()
        likely = tokens >= LIKELY * np.maximum.accumulate(tokens)
        states = slice(0, int(np.flatnonzero(likely)[-1]) + 1)
        good = np.zeros(len(tokens))
        times = TokenTimes.of(self.added.within(states), self.gaps)
        good[states] = times.share_within(limit)[0]
        return good

    def at_cap(self, cap: int, tpot_limit_s: float) -> AtCap:
        """The answers of one cap, which must be stable, without those of the others."""
        last, ratio = cap - 1, float(self.ratio[cap - 1])
        weight, share = self.weight[:cap], 1.0
        if tpot_limit_s < math.inf:
            tokens, good = self._rate()[:cap], self._good(tpot_limit_s)[:cap]
            waiting = float(tokens[last]) * ratio / (1.0 - ratio)
            total = float(tokens.sum()) + waiting
            share = (float(tokens @ good) + waiting * float(good[last])) / max(total, 1e-300)
        waiting = float(weight[last]) * ratio / (1.0 - ratio)
        total = max(self.empty + float(weight.sum()) + waiting, 1e-300)
        running = (float(weight @ self.n[:cap]) + waiting * cap) / total
        each_s = float(self.served_s[last]) / (1.0 - ratio)
        return AtCap(share, running, float(weight[last]) / (1.0 - ratio) / total * each_s)

    def mean_running_by_cap(self) -> Array:
        """For every cap: E[n] over time of the running sequences."""
        waiting = self.weight * self.tail()
        total = self.empty + self._reached() + waiting
        return np.asarray(((self.weight * self.n).cumsum() + waiting * self.n)
                          / np.maximum(total, 1e-300))

    def _reached(self) -> Array:
        """Weight of the states up to each."""
        return self._once("reached", self.weight.cumsum)

    def distribution(self, cap: int) -> Array:
        """pi(1..cap), time-weighted; the waiting tail sits in the last state."""
        kept = self.weight[:cap].copy()
        kept[-1] *= 1.0 + float(self.tail()[cap - 1])
        return np.asarray(kept / max(self.empty + float(kept.sum()), 1e-300))

    def _tokens(self, cap: int) -> Array:
        """Share of the tokens that each state generates."""
        return self._once(cap, lambda: self._tokens_of(cap))

    def _tokens_of(self, cap: int) -> Array:
        tokens = self.distribution(cap) * self.n[:cap] / self.tpot_s[:cap]
        return np.asarray(tokens / max(float(tokens.sum()), 1e-300))

    def token_percentile(self, values: Array, cap: int, share: float) -> float:
        """The value whose share of generated tokens reaches ``share`` (values ascend with n)."""
        reached = self._once((cap,), lambda: np.cumsum(self._tokens(cap)))
        index = int(np.searchsorted(reached, share - 1e-12))
        return float(values[min(index, cap - 1)])

    def mean_tpot(self, cap: int, gaps: Gaps | None = None) -> float:
        """Mean TPOT [s] of the requests, or of answers with given gaps."""
        if self.added is None:
            return float(np.dot(self._tokens(cap), self.tpot_s[:cap]))
        added = self.added.within(slice(0, cap))
        return float(np.dot(self._tokens(cap), added.step_s + added.mean(gaps or self.gaps)))

    def tpot_percentiles(self, cap: int, percentiles: tuple[float, ...],
                         gaps: Gaps | None = None) -> list[float]:
        """Percentiles [s] of the TPOT of requests, or of answers with given gaps: over states, and
        within them."""
        if self.added is None:
            return [self.token_percentile(self.tpot_s, cap, p / 100.0) for p in percentiles]
        times, share = self.tpot_law(cap, gaps)
        return [float(x) for x in reaching(
            lambda limits_s: times.share_within(limits_s) @ share,
            np.asarray(percentiles) / 100.0 - 1e-9,
            float(times.step_s[0]) * (1 - 1e-9), float(np.max(times.mean_s() @ share)))]

    def tpot_law(self, cap: int, gaps: Gaps | None = None) -> tuple[TokenTimes, Array]:
        """TPOT in the states that count, and the shares of the requests that find them."""
        if self.added is None:
            raise ValueError("no prompts are prefilled beside these answers")
        tokens = self._tokens(cap)
        likely = np.flatnonzero(tokens >= LIKELY * tokens.max())
        states = slice(int(likely[0]), int(likely[-1]) + 1)
        return (TokenTimes.of(self.added.within(states), gaps or self.gaps),
                tokens[states] / tokens[states].sum())

    def mean_running(self, cap: int) -> float:
        """E[n] over time, running sequences only."""
        return float(np.dot(self.distribution(cap), self.n[:cap]))


def admission_wait(probability: Array, mean_given_s: Array) -> Wait:
    """Exponential wait for a place in the batch (shapes broadcast)."""
    p, m = np.asarray(probability, dtype=float), np.asarray(mean_given_s, dtype=float)
    finite = np.isfinite(m)
    safe = np.where(finite, m, 0.0)
    mean = np.where(finite, p * safe, np.inf)
    return Wait(p, mean, np.where(finite, 2.0 * p * safe**2, np.inf))
