"""Waiting and percentiles: M/G/1 prefill servers, gamma tails, the batch as a birth-death chain.

Sources: Pollaczek-Khinchine (M/G/1); Kingman 1961 and Allen & Cunneen 1978 (arrivals that are not
Poisson); Kelly 1979, *Reversibility and Stochastic Networks* (product form of processor sharing);
Kleinrock, *Queueing Systems* vol. 1 (E[W^2] of M/G/1); Sakasegawa 1977 (many servers).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.arrivals import Influx, burst_ahead
from planner.loops.chain import (
    chain_columns,
    running_at_cap,
    running_by_cap,
    share_at_cap,
    shares_by_cap,
    tail_columns,
    waiting_columns,
)
from planner.loops.gamma import LIKELY
from planner.loops.gaps import gaps_in_time
from planner.loops.luck import mean_of_luck, shares_of_luck
from planner.loops.percentiles import (
    answer_percentiles,
    mixture_percentiles,
    parted_percentiles,
)
from planner.loops.two_pools import placed_laws
from planner.loops.waits import full_laws, one_wait, sum_law
from planner.percentiles import CLOSE, SECANTS
from planner.stalls import Added, TokenTimes, column
from planner.workload import REFERENCE_TOKENS, SLACK, Gaps

Array = NDArray[np.float64]
PERCENTILES = (50.0, 90.0, 95.0, 99.0)
POISSON = Influx()


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits that are 0 with probability ``1 - busy`` and else gamma distributed, by the two moments
    of those who wait (:func:`planner.loops.waits.wait_law`).

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

    @property
    def given(self) -> tuple[float, float]:
        """Mean [s] and mean of squares [s^2] of those who wait, of one case; 0 where none does."""
        busy = float(self.busy)
        return (float(self.mean_s) / busy, float(self.second_s2) / busy) if busy > 0.0 else (
            0.0, 0.0)

    def __add__(self, other: Wait) -> Wait:
        """The sum of two independent waits, matched by two moments."""
        mean = self.mean_s + other.mean_s
        finite = np.isfinite(mean)
        cross = np.where(finite, self.mean_s, 0.0) * np.where(finite, other.mean_s, 0.0)
        second = self.second_s2 + other.second_s2 + 2.0 * cross
        return Wait(1.0 - (1.0 - self.busy) * (1.0 - other.busy), mean, second)


def no_wait(shape: tuple[int, ...] = ()) -> Wait:
    """Waits of exactly zero."""
    return Wait(np.zeros(shape), np.zeros(shape), np.zeros(shape))


def never() -> Wait:
    """The wait at a server that is never free."""
    return Wait(*np.array([1.0, np.inf, np.inf]))


class Moments(NamedTuple):
    """Raw moments of a service time: E[S] [s], E[S^2] [s^2], E[S^3] [s^3]."""

    first: float
    second: float
    third: float

    @classmethod
    def of(cls, service_s: Array, weights: Array) -> Moments:
        """Of service times [s] of shape (k,) with weights of the same shape."""
        square_s2 = service_s * service_s
        return cls(float(service_s @ weights), float(square_s2 @ weights),
                   float((square_s2 * service_s) @ weights))


def mg1_wait(rate_per_s: float, service_s: Array, weights: Array, arrival_cv2: float = 1.0) -> Wait:
    """Wait of first-come first-served servers with general service, see :func:`mg1_wait_of`.

    Parameters
    ----------
    service_s : ndarray, shape (k,)
        [s] that a request keeps the server.
    weights : ndarray, shape (k,)
        Shares of the k service times.
    """
    return mg1_wait_of(rate_per_s, Moments.of(service_s, weights), arrival_cv2)


def mg1_wait_of(rate_per_s: float, service: Moments, arrival_cv2: float = 1.0,
                kept: float = 1.0, shared: float = 0.0) -> Wait:
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
    kept : float
        Times the service that a request keeps the server.
    shared : float
        Part of the work that comes meanwhile which a request waits for as well, see
        :meth:`planner.setups.base.Table.wait`.

    Returns
    -------
    Wait
        Of one case; ``mean_s`` is infinite where the load is 1 or more.
    """
    return Wait(*one_wait(rate_per_s, *service, kept, arrival_cv2, burst_ahead(arrival_cv2),
                          shared))


def sum_percentiles(wait: Wait, latency_s: Array, weights: Array,
                    percentiles: tuple[float, ...] = PERCENTILES) -> list[float]:
    """Percentiles [s] of W + S of one case (all infinite when unstable).

    Parameters
    ----------
    wait : Wait
        With scalar fields.
    latency_s, weights : ndarray, shape (k,)
    """
    if not np.isfinite(wait.mean_s):
        return [math.inf] * len(percentiles)
    times = sum_law(float(wait.busy), float(wait.mean_s), float(wait.second_s2))
    return _percentiles(percentiles, float(wait.mean_s) + float(latency_s @ weights), latency_s,
                        times[:, None], np.full(len(latency_s), np.inf), weights)


def placed_percentiles(wait: Wait, place: Wait, latency_s: Array, weights: Array,
                       percentiles: tuple[float, ...] = PERCENTILES) -> list[float]:
    """Percentiles [s] of W + P + S of one case: those who wait for a place, P, are taken apart
    from those who do not.

    Parameters
    ----------
    wait, place : Wait
        With scalar fields.
    latency_s, weights : ndarray, shape (k,)
    """
    if not np.isfinite(wait.mean_s + place.mean_s):
        return [math.inf] * len(percentiles)
    busy, size = float(place.busy), len(latency_s)
    laws = placed_laws(float(wait.busy), float(wait.mean_s), float(wait.second_s2), *place.given)
    middle_s = float(wait.mean_s + place.mean_s) + float(latency_s @ weights)
    return _percentiles(percentiles, middle_s, np.tile(latency_s, 2),
                        np.repeat(laws, size, axis=2), np.full(2 * size, np.inf),
                        np.concatenate([(1.0 - busy) * weights, busy * weights]))


def full_percentiles(wait: Wait, places: float, given_s: float, latency_s: Array, weights: Array,
                     percentiles: tuple[float, ...] = PERCENTILES) -> tuple[float, list[float]]:
    """Mean and percentiles [s] of a latency after a wait, where a share ``places`` of the requests
    waits for a place in the batch instead, ``given_s`` [s] on average
    (:func:`planner.loops.waits.full_laws`).

    Parameters
    ----------
    wait : Wait
        Of one case, finite; fields of shape (1,).
    latency_s, weights : ndarray, shape (k,)
    """
    busy, mean_s, second_s2 = (float(x[0]) for x in (wait.busy, wait.mean_s, wait.second_s2))
    middle_s = (1.0 - places) * mean_s + places * given_s + float(latency_s @ weights)
    size = len(latency_s)
    return middle_s, _percentiles(
        percentiles, middle_s, np.tile(latency_s, 2),
        np.repeat(full_laws(busy, mean_s, second_s2, given_s), size, axis=2),
        np.full(2 * size, np.inf), np.concatenate([(1.0 - places) * weights, places * weights]))


def at_paces(shares: Array, token_s: Array, weights: Array, paces: Array) -> list[float]:
    """Where the times of a token [s], over states and over the paces of the answers, reach shares.

    Parameters
    ----------
    token_s, weights : ndarray, shape (N,)
        [s] of a token at the mean pace, and the weights of the states, which add up to 1.
    paces : ndarray, shape (k,)
        See :mod:`planner.loops.luck`.
    """
    times = np.outer(paces, token_s).ravel()
    order = times.argsort()
    reached = np.outer(shares_of_luck(len(paces)), weights).ravel()[order].cumsum()
    place = np.minimum(reached.searchsorted(shares), len(order) - 1)
    return [float(x) for x in times[order[place]]]


def _percentiles(percentiles: tuple[float, ...], middle_s: float, start_s: Array, times: Array,
                 most_s: Array, weights: Array) -> list[float]:
    """Of a mixture, see :func:`planner.loops.percentiles.mixture_percentiles`."""
    found = mixture_percentiles(_shares(percentiles), middle_s, start_s, times, most_s, weights,
                                CLOSE, SECANTS)
    return [float(x) for x in found]


def _without_and_with(shape: Array, scale_s: Array) -> Array:
    """Laws of states that nothing is added to, then of as many with a gamma, shape (3, 2 N)."""
    alone = np.ones(len(shape))
    return np.array([np.concatenate(pair) for pair in (
        (alone, 0.0 * alone), (alone, shape), (alone, scale_s))])


@lru_cache(maxsize=64)
def _shares(percentiles: tuple[float, ...]) -> Array:
    """Shares that percentiles stand for; a hair less, so that a sum of weights reaches them."""
    return np.asarray(percentiles) / 100.0 - SLACK


@lru_cache(maxsize=64)
def _counted(size: int) -> Array:
    """1..size."""
    n = np.arange(1.0, size + 1.0)
    n.flags.writeable = False
    return n


class Outputs(NamedTuple):
    """What an answer is sent in: a step's tokens at once.

    Attributes
    ----------
    accepted : float
        Tokens of a step, mean; 1 without speculation.
    gaps, reference : float
        Gaps between the outputs of an answer, mean; of an answer of the reference length.
    """

    accepted: float
    gaps: float
    reference: float = REFERENCE_TOKENS - 1.0


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
    outputs : Outputs
    weight : ndarray, shape (N,)
        The products, scaled so that none overflows.
    empty : float
        Weight of the empty system on the same scale.
    ratio : ndarray, shape (N,)
        Ratio of the geometric tail past a cap of n.
    stay : ndarray, shape (N,)
        Times longer than the last state alone that a batch stays full under a cap of n.
    left : ndarray, shape (N,)
        Prompts that wait when it fills up, mean.
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
    outputs: Outputs
    weight: Array
    empty: float
    ratio: Array
    stay: Array
    left: Array
    known: dict[object, Array] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, rate_per_s: float, output_tokens: float, tpot_s: Array, influx: Influx = POISSON,
           added: Added | None = None, gaps: Gaps | None = None, outputs: Outputs | None = None
           ) -> Chain:
        """Build the chain for an arrival rate and a TPOT column over n = 1..N.

        Parameters
        ----------
        influx : Influx, optional
            How requests come; one by one at random where not given.
        added : Added, optional
        gaps : Gaps, optional
            Of the answers; that of their mean where not given.
        outputs : Outputs, optional
            A token each where not given.
        """
        load = max(rate_per_s * output_tokens, 1e-300)
        size = len(tpot_s)
        left = column(influx.left, size)
        (ratio, full, weight, stay), empty = chain_columns(
            load, tpot_s, column(influx.peak, size), influx.full_peak, column(influx.load, size),
            left, influx.lanes)
        served_s = full * (influx.ranks * output_tokens / load)
        gaps = gaps or Gaps.of_length(output_tokens)
        return cls(_counted(size), tpot_s, load, influx, served_s, added, gaps,
                   outputs or Outputs(1.0, float(gaps.mean)), weight, empty, ratio, stay, left)

    def _once(self, key: object, work: Callable[[], Array]) -> Array:
        """A column that several questions need."""
        if key not in self.known:
            self.known[key] = work()
        return self.known[key]

    def tail(self) -> Array:
        """Weight of those that wait, relative to the last state's: r / (1 - r) for every cap."""
        return self._once("tail", lambda: tail_columns(self.ratio))

    def waiting(self) -> tuple[Array, Array]:
        """For every cap: probability of waiting for admission, and its mean wait [s] given that.

        Past the cap M the chain goes on with ratio r; an arrival waits when it finds the batch
        full: pi(M) / (1 - r), and ``stay`` times as often where prompts run beside, as h of them
        wait when it fills up (:class:`planner.arrivals.Influx`). It then waits a geometric number
        of departures and for those h, ``1 / (1 - r) + h`` on average (the mean of a delay cycle).
        Where r >= 1 they are 1 and infinite.
        """
        probability, given_s = self._once("waiting", lambda: waiting_columns(
            self.weight, self.empty, self.ratio, self.served_s, self.stay, self.left))
        return probability, given_s

    def behind_burst(self, cap: int, ahead: float) -> float:
        """Share of the requests that wait for a place only because of others of their own burst.

        Bursts are geometric, ``ahead`` of them before a request on average, so it finds j or more
        of them with chance (e / (1 + e))^j; it waits where that many places are left or fewer.
        """
        if ahead <= 0.0:
            return 0.0
        weight = np.concatenate([[self.empty], self.weight[:cap]])
        left = (ahead / (1.0 + ahead)) ** np.arange(cap, 0, -1.0)
        total = float(weight.sum()) + float(weight[-1] * self.tail()[cap - 1])
        return float(weight[:-1] @ left) / total

    def token_share_within(self, tpot_limit_s: float) -> Array:
        """For every cap: share of requests whose TPOT is within the limit.

        A request counts in the state that it finds on arrival, itself included: the shares of the
        tokens that the states generate.
        """
        return np.asarray(shares_by_cap(self.written(), self.tail(), self._good(tpot_limit_s)))

    def written(self) -> Array:
        """Tokens that each state generates, on the scale of the weights."""
        return self._once("rate", lambda: self.weight * self.n / self.tpot_s)

    def _good(self, tpot_limit_s: float) -> Array:
        """P(request's TPOT <= limit) in each state."""
        return self._once(("good", tpot_limit_s), lambda: self._good_of(tpot_limit_s))

    def _good_of(self, tpot_limit_s: float) -> Array:
        limit_s = tpot_limit_s * (1 + 1e-12)
        if self.added is None:
            within = self.tpot_s <= limit_s / self.gaps.paces[:, None]
            return np.asarray(shares_of_luck(len(within)) @ within)
        # Past the last likely state the caps hold hardly any more; one may lie anywhere before it.
        return self.added.good(limit_s, self.written(), LIKELY, self.gaps)

    def mean_running_by_cap(self) -> Array:
        """For every cap: E[n] over time of the running sequences."""
        return self._once("running", lambda: running_by_cap(self.weight, self.empty, self.tail()))

    def distribution(self, cap: int) -> Array:
        """pi(1..cap), time-weighted; the waiting tail sits in the last state."""
        kept = self.weight[:cap].copy()
        kept[-1] *= 1.0 + float(self.tail()[cap - 1])
        return np.asarray(kept / max(self.empty + float(kept.sum()), 1e-300))

    def _tokens(self, cap: int) -> Array:
        """Share of the tokens that each state generates."""
        return self._once(cap, lambda: self._tokens_of(cap))

    def _tokens_of(self, cap: int) -> Array:
        tokens = self.written()[:cap].copy()
        tokens[-1] *= 1.0 + self.tail()[cap - 1]
        return np.asarray(tokens / tokens.sum())

    def token_percentile(self, values: Array, cap: int, share: float) -> float:
        """The value whose share of generated tokens reaches ``share`` (values ascend with n)."""
        reached = self._once((cap,), lambda: self._tokens(cap).cumsum())
        return float(values[min(int(reached.searchsorted(share - SLACK)), cap - 1)])

    def mean_tpot(self, cap: int, gaps: Gaps | None = None) -> float:
        """Mean TPOT [s] of the requests, or of answers with given gaps."""
        gaps = gaps or self.gaps
        pace = mean_of_luck(gaps.paces)
        if self.added is None:
            return pace * float(np.dot(self._tokens(cap), self.tpot_s[:cap]))
        time_s = pace * self.added.step_s + self.added.mean(gaps)
        return float(share_at_cap(self.written()[:cap], float(self.ratio[cap - 1]), time_s[:cap]))

    def tpot_percentiles(self, cap: int, percentiles: tuple[float, ...],
                         gaps: Gaps | None = None) -> list[float]:
        """Percentiles [s] of the TPOT of requests, or of answers with given gaps: over states, and
        within them."""
        if self.added is None:
            return self._plain_percentiles(cap, percentiles, gaps or self.gaps)
        a = self.added
        found = answer_percentiles(_shares(percentiles), self._tokens(cap), a.step_s, a.columns,
                                   a.before_s, a.most_s, a.bursts_per_s, a.behind,
                                   (gaps or self.gaps).rows, CLOSE, SECANTS)
        return [float(x) for x in found]

    def parted_percentiles(self, cap: int, percentiles: tuple[float, ...], gaps: Gaps
                           ) -> list[float]:
        """The same of answers in equal parts, of which each has a law of ``gaps``; without luck."""
        a = self._added()
        found = parted_percentiles(
            _shares(percentiles), self._tokens(cap), a.step_s, a.columns, a.before_s, a.most_s,
            a.least_s * a.stages, a.bursts_per_s, a.behind, gaps.rows, CLOSE, SECANTS)
        return [float(x) for x in found]

    def _plain_percentiles(self, cap: int, percentiles: tuple[float, ...], gaps: Gaps
                           ) -> list[float]:
        """Of TPOT where no prompts are prefilled beside: over states, and the luck of drafts."""
        if gaps.paces.shape[-1] == 1:
            return [self.token_percentile(self.tpot_s, cap, p / 100.0) for p in percentiles]
        laws = np.broadcast_to(gaps.paces, (len(percentiles), gaps.paces.shape[-1]))
        return [at_paces(np.array([p / 100.0 - SLACK]), self.tpot_s[:cap], self._tokens(cap), paces
                         )[0] for p, paces in zip(percentiles, laws, strict=True)]

    def gaps_within(self, limit_s: float) -> Array:
        """For every cap: share of the gaps between outputs that are within a limit.

        Of answers longer than the reference at least as many gaps count as first ones as of the
        reference, so that longer answers never take fewer GPUs.
        """
        added, gaps = self._steps(), self.outputs.gaps
        states, times = added.gaps(self.written(), gaps, 1.0 / min(gaps, self.outputs.reference))
        good = np.zeros(len(self.n))
        good[states] = gaps_in_time(limit_s * (1 + 1e-12), added.step_s[states], times,
                                    added.most_s[states])
        return np.asarray(shares_by_cap(self.written(), self.tail(), good))

    def gap_figures(self, cap: int, percentiles: tuple[float, ...]) -> tuple[float, list[float]]:
        """Mean and percentiles [s] of the gaps between outputs: over states, and within them."""
        tokens, gaps, accepted = self._tokens(cap), self.outputs.gaps, self.outputs.accepted
        if self.added is None:
            return (accepted * float(np.dot(tokens, self.tpot_s[:cap])),
                    [accepted * self.token_percentile(self.tpot_s, cap, p / 100.0)
                     for p in percentiles])
        added = self._steps()
        states, times = added.gaps(tokens, gaps, 1.0 / gaps, float(tokens.max()))
        step_s, weights = added.step_s[states], tokens[states] / tokens[states].sum()
        none, least_s, *gamma = times
        start_s = np.concatenate([step_s, step_s + least_s])
        mean_s = float(weights @ (step_s + (1.0 - none) * (least_s + gamma[0] * gamma[1])))
        return mean_s, _percentiles(
            percentiles, mean_s, start_s, _without_and_with(*gamma)[:, None],
            np.tile(added.most_s[states], 2) - np.concatenate([0.0 * least_s, least_s]),
            np.concatenate([none * weights, (1.0 - none) * weights]))

    def _added(self) -> Added:
        if self.added is None:
            raise ValueError("no prompts are prefilled beside these answers")
        return self.added

    def _steps(self) -> Added:
        """What prompts add to whole steps."""
        return self._added().by_output(self.outputs.accepted)

    def times_of(self, gaps: Gaps) -> TokenTimes:
        """TPOT of answers with given gaps, in every state."""
        added = self._added()
        times = self._once(("times", gaps.rows.tobytes()),
                           lambda: TokenTimes.of(added, gaps).times)
        return TokenTimes(added.step_s, times, added.most_s, gaps.paces)

    def mean_running(self, cap: int) -> float:
        """E[n] over time, running sequences only."""
        return float(running_at_cap(self.weight[:cap], self.empty, float(self.ratio[cap - 1]))[0])
