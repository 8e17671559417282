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

from planner.workload import Gaps, constant

Array = NDArray[np.float64]
PERCENTILES = (50.0, 90.0, 95.0, 99.0)
NO_WAIT_S = 1e-12
"""[s] mean below which a wait is none (its moments would underflow)."""
LIKELY = 1e-9
"""Weight of a state, relative to the heaviest, below which it changes no percentile."""
CLOSE = 1e-6
"""Share of a value within which a percentile of it is found."""
SECANTS = 60
"""Most steps towards a percentile."""
COARSE = 8
"""Of the times at which a distribution is evaluated, every eighth finds where to look closer."""
NOTICEABLE = 1e-6
"""Probability of a wait below which it changes nothing."""
UNSTABLE = 1e12
"""Weight of the waiting tail relative to the last state where the queue has no limit."""


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


def reaching(share_within: Callable[[Array], Array], wanted: Array, low: float,
             middle: float) -> Array:
    """Where a distribution reaches shares, within :data:`CLOSE` and on the safe side.

    False position on the logarithm of what lies beyond, which is nearly straight for a gamma; the
    side that stays is weighed down (Illinois; Dowell & Jarratt 1971), and every third step halves,
    as the distribution may jump.

    Parameters
    ----------
    share_within : callable
        P(X <= x) for x of shape (p,).
    wanted : ndarray, shape (p,)
        Shares, below 1.
    low : float
        Below the values.
    middle : float
        About their mean: where to look first.
    """
    goal = np.log1p(-wanted)

    def beyond(x: Array) -> Array:
        return goal - np.log(np.maximum(1.0 - share_within(x), 1e-300))

    below, above = np.full(len(wanted), low), np.full(len(wanted), max(middle, 2.0 * low))
    left, right = beyond(below), beyond(above)
    while (short := right < 0.0).any():
        below, left = np.where(short, above, below), np.where(short, right, left)
        above = np.where(short, 2.0 * above, above)
        right = beyond(above)
    kept = np.zeros(len(wanted), dtype=int)
    for step in range(SECANTS):
        if (above - below <= CLOSE * above).all():
            break
        part = left / np.minimum(left - right, -1e-300) if step % 4 < 3 else 0.5
        x = below + np.clip(part, 1e-3, 1.0 - 1e-3) * (above - below)
        y = beyond(x)
        reached = y >= 0.0
        left = np.where(reached, np.where(kept == 1, left / 2.0, left), y)
        right = np.where(reached, y, np.where(kept == -1, right / 2.0, right))
        kept = np.where(reached, 1, -1)
        below, above = np.where(reached, below, x), np.where(reached, x, above)
    return above


def some_value(enough: Callable[[float], bool], few: Callable[[float], bool], low: float,
               high: float) -> bool:
    """Whether a value between two is enough for one thing and not too much for another.

    ``enough`` holds from some value on and ``few`` up to some value; each step halves.
    """
    while high - low > CLOSE * high:
        middle = (low + high) / 2.0
        above, below = enough(middle), few(middle)
        if above == below:
            return above
        low, high = (low, middle) if above else (middle, high)
    return False


def split_arrival_cv2(arrival_cv: float, replicas: int) -> float:
    """Squared CV of arrivals at one of ``replicas`` when requests are dealt at random.

    A random split of a renewal stream: ca_i^2 = 1 + (ca^2 - 1) / R (Whitt 1983, QNA eq. 36).
    """
    return 1.0 + (arrival_cv**2 - 1.0) / max(replicas, 1)


def peakedness(arrival_cv2: float) -> float:
    """Variance of the number in an infinite system over its mean, for bursty arrivals.

    z = 1 + (ca^2 - 1) / 2 for exponential holding times (Eckberg 1983); smoother arrivals than
    Poisson are taken as Poisson.
    """
    return max(1.0, 1.0 + (arrival_cv2 - 1.0) / 2.0)


def burst_ahead(arrival_cv2: float) -> float:
    """e = (ca^2 - 1) / 2: requests of its own burst ahead of a request, and behind it, mean."""
    return max(arrival_cv2 - 1.0, 0.0) / 2.0


def burst_behind(arrival_cv2: float, prompts_per_pass: float) -> float:
    """Requests of its own burst that are prefilled after a request, where passes hold several.

    The first of a burst starts alone, as the server is idle, and the others follow in passes; who
    shares a pass stops nobody in it. Without sharing e on average. With passes of k prompts
    (k - 1) / 2 fewer, but the first of a burst of 1 + e meets all others: e / (1 + e) a request.
    """
    ahead = burst_ahead(arrival_cv2)
    return max(ahead - max(prompts_per_pass - 1.0, 0.0) / 2.0, ahead / (1.0 + ahead))


@dataclass(frozen=True, slots=True)
class Stalls:
    """What prompts add to the time that one answer takes, over the running sequences.

    While an answer is written, prompts come at a rate ``r`` and each stops it by S; those that come
    during a stall prolong it, as in the delay cycle of a queue (Conway, Maxwell & Miller 1967,
    section 8-3; Kleinrock vol. 1, section 5.8): one arrival costs ``S / (1 - u)`` on average, with
    a variance of ``E[S^2] / (1 - u)^3 - (E[S] / (1 - u))^2``. Besides the prompts that come while
    it decodes, those that came while it waited and was prefilled itself, T, stop it right after its
    first token, and so do those of its own burst behind it. Bursts are the geometric batches of
    :func:`mg1_wait`, of mean ``1 + e``.

    Fields are numbers or arrays of shape (N,) over the running sequences.

    Attributes
    ----------
    rate_per_s : float
        r [1/s], prompts that stop a sequence.
    load : float or ndarray
        u, share of time that they take from the decodes; below 1.
    mean_s, square_s2 : float or ndarray
        E[S] [s] and E[S^2] [s^2].
    wait_s, before_s : float or ndarray
        [s] mean wait for the prefill, and T: the same with the prefill.
    arrival_cv2 : float
        Squared coefficient of variation of the gaps between arrivals.
    behind : float
        Requests of its own burst that are prefilled after a request, mean.
    most_s : float or ndarray
        [s] most that they add to a token's time, where a budget bounds each step.
    """

    rate_per_s: float
    load: Array | float
    mean_s: Array | float
    square_s2: Array | float
    wait_s: Array | float
    before_s: Array | float
    arrival_cv2: float
    behind: float
    most_s: Array | float = math.inf

    def added(self, step_s: Array) -> Added:
        """What they add to answers whose tokens take ``step_s`` [s], shape (N,), else."""
        left = 1.0 - self.load
        each_s = self.mean_s / left
        once_s = (self.rate_per_s * self.before_s + self.behind) * each_s
        gap_s = self.rate_per_s * each_s * step_s
        mean_square = np.square(self.mean_s)
        own = self.square_s2 - mean_square
        cycles = self.rate_per_s * (own + max(self.arrival_cv2, 1.0) * mean_square) / left**3
        swing = (np.square(self.rate_per_s * self.wait_s * each_s)
                 + self.behind * (own / np.square(left) + (1.0 + self.behind) * np.square(each_s)))
        once_square = np.square(once_s) + cycles * self.before_s + swing
        alike = np.ones(len(step_s))
        return Added(step_s, once_s * alike, gap_s, once_square * alike,
                     cycles * step_s + 2.0 * once_s * gap_s, self.before_s * alike,
                     self.most_s * alike,
                     self.rate_per_s / (1.0 + burst_ahead(self.arrival_cv2)), self.behind)


@dataclass(frozen=True, slots=True)
class Added:
    """Moments of what prompts add to the TPOT of an answer, over the running sequences.

    With ``g`` gaps between the tokens of the answer the mean is ``once / g + gap`` and the mean
    square ``square / g^2 + cross / g + gap^2``; see :class:`Stalls`.

    Attributes
    ----------
    step_s : ndarray, shape (N,)
        [s] a token without prompts.
    once_s, gap_s : ndarray, shape (N,)
        [s] that the prompts of the time before its first token and those of its own burst add to
        the answer, and those that come meanwhile to every gap.
    square_s2, cross_s2 : ndarray, shape (N,)
        [s^2] as above.
    before_s, most_s : ndarray, shape (N,)
        See :class:`Stalls`.
    bursts_per_s : float
        Bursts of prompts [1/s].
    behind : float
        See :class:`Stalls`.
    """

    step_s: Array
    once_s: Array
    gap_s: Array
    square_s2: Array
    cross_s2: Array
    before_s: Array
    most_s: Array
    bursts_per_s: float
    behind: float

    def within(self, states: slice) -> Added:
        """Of some states."""
        return Added(self.step_s[states], self.once_s[states], self.gap_s[states],
                     self.square_s2[states], self.cross_s2[states], self.before_s[states],
                     self.most_s[states], self.bursts_per_s, self.behind)

    def mean(self, gaps: Gaps) -> Array:
        """Mean [s] over answers."""
        return np.minimum(self.once_s * gaps.inverse + self.gap_s, self.most_s)

    def square(self, gaps: Gaps) -> Array:
        """Mean of the squares [s^2] over answers; X <= most, so E[X^2] <= most E[X]."""
        square = (self.square_s2 * gaps.inverse_square + self.cross_s2 * gaps.inverse
                  + np.square(self.gap_s))
        return np.minimum(square, self.most_s * self.mean(gaps))

    def none(self, gaps: Gaps) -> Array:
        """Share of the answers that meet no prompt, of answers of the mean length."""
        met = self.bursts_per_s * (self.before_s + self.step_s * gaps.mean)
        return np.asarray(np.exp(-met) / (1.0 + self.behind))


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """TPOT of the requests of each state: a step for those that meet no prompt, else a gamma more.

    The gamma has the two moments of what prompts add to those that meet some.

    Attributes
    ----------
    step_s : ndarray, shape (N,)
        [s] without prompts.
    none : ndarray, shape (N,)
        Share of the requests that meet none.
    shape, scale_s : ndarray, shape (N,)
        Of the gamma of the others; the scale is in s.
    most_s : ndarray, shape (N,)
        [s] most that prompts add.
    """

    step_s: Array
    none: Array
    shape: Array
    scale_s: Array
    most_s: Array

    @classmethod
    def of(cls, added: Added, gaps: Gaps) -> TokenTimes:
        """TPOT of answers with ``gaps`` between tokens, over the states."""
        none = added.none(gaps)
        met = np.maximum(1.0 - none, 1e-12)
        mean = np.maximum(added.mean(gaps) / met, 1e-15)
        swing = np.maximum(added.square(gaps) / met - mean**2, 1e-3 * mean**2)
        return cls(added.step_s, none, mean**2 / swing, swing / mean, added.most_s)

    def mean_s(self) -> Array:
        """Mean TPOT [s] of each state."""
        return self.step_s + (1.0 - self.none) * self.shape * self.scale_s

    def share_within(self, limits_s: Array) -> Array:
        """P(TPOT <= limit) of shape (limits, N) for ``limits_s`` [s] of shape (limits,)."""
        over = limits_s[:, None] - self.step_s
        late = gammainc(self.shape, np.maximum(over, 0.0) / self.scale_s)
        share = np.where(over >= 0.0, self.none + (1.0 - self.none) * late, 0.0)
        return np.where(over >= self.most_s, 1.0, share)


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
    Bursty arrivals widen it: the log weights are divided by the peakedness, which multiplies the
    variance of a bell-shaped law by it (Hayward's idea, Fredericks 1980).

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
    output_tokens : float
        [token] per request.
    added : Added or None
        What prompts add to the time of an answer; None where none are prefilled.
    gaps : Gaps
        Between the tokens of an answer.
    weight : ndarray, shape (N,)
        The products, scaled so that none overflows.
    empty : float
        Weight of the empty system on the same scale.
    utilization : ndarray, shape (N,)
        Load over the throughput of a state, ``load tpot(n) / n``.
    ratio : ndarray, shape (N,)
        Ratio of the geometric tail past a cap of n.
    known : dict
        Columns that several questions need, worked out once.
    """

    n: Array
    tpot_s: Array
    load: float
    output_tokens: float
    added: Added | None
    gaps: Gaps
    weight: Array
    empty: float
    utilization: Array
    ratio: Array
    known: dict[object, Array] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, rate_per_s: float, output_tokens: float, tpot_s: Array,
           arrival_cv2: float = 1.0, added: Added | None = None,
           gaps: Gaps | None = None) -> Chain:
        """Build the chain for an arrival rate and a TPOT column over n = 1..N.

        Parameters
        ----------
        added : Added, optional
        gaps : Gaps, optional
            Of the answers; that of their mean where not given.
        """
        n = np.arange(1.0, len(tpot_s) + 1.0)
        load = max(rate_per_s * output_tokens, 1e-300)
        peak = peakedness(arrival_cv2)
        utilization = load * tpot_s / n
        logs = np.log(utilization).cumsum()
        if peak != 1.0:
            logs /= peak
        top = max(float(logs.max()), 0.0)
        ratio = utilization if peak == 1.0 else utilization ** (1.0 / peak)
        return cls(n, tpot_s, load, output_tokens, added,
                   gaps or constant(output_tokens).gaps, np.exp(logs - top), math.exp(-top),
                   utilization, ratio)

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
        running: pi(M) / (1 - r). It then waits a geometric number of departures,
        ``o tpot(M) / M / (1 - r)`` on average. Where r >= 1 they are 1 and infinite.
        """
        stable = self.ratio < 1.0
        gap = np.where(stable, 1.0 - self.ratio, 1.0)
        total = self.empty + self._reached() + self.weight * self.ratio / gap
        probability = self.weight / gap / np.maximum(total, 1e-300)
        mean = self.output_tokens * self.tpot_s / self.n / gap
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
        each_s = self.output_tokens * float(self.tpot_s[last]) / cap / (1.0 - ratio)
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
