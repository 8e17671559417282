"""What is asked of the fleet: lengths, rate, burstiness, latency targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidValue
from planner.wording import in_full

T = TypeVar("T")
_NORMAL = NormalDist()
Z95 = _NORMAL.inv_cdf(0.95)
MAX_P95_OVER_MEAN = math.exp(Z95**2 / 2)
"""No log-normal has a 95th percentile above 3.87 times its mean."""
SLACK = 1e-9
"""Share that rounding may take from a percentile. Checks and figures allow the same: at the edge of
a bin of lengths one more would read a level on the other side."""
SEVERAL_TOKENS = 1.5
"""[token] length from which an answer has a second token; those between are means of a bin."""
REFERENCE_TOKENS = 96.0
"""[token] mean of the answers whose TPOT sizes a pool, whatever the answers are."""
QUARTERS = 4
"""Equal parts of short answers, from the shortest to the longest, each with a law of TPOT: what
stops an answer counts by its length."""
LEAST_PART = 65.0
"""Percentile of first token and token time that a percentile of the whole request counts at least:
about where a skewed time has its mean (an exponential one at 63.2). Sums of medians are too low."""
NEAR_JUMP = 1e-4
"""Share below a jump of a list from which a level counts as on it: shares of lists are rounded."""
LUMP, MOST_OF_LUMP = 0.2, 0.99
"""Share of the requests from which a listed length counts as a lump, of which a level asks a share
of its own; and the most that it asks, where the level asks no more."""
TOKEN_SPREAD = 0.3
"""Spread of ln(TPOT) allowed for, where spreads say how much of a percentile of the whole request
is length and how much token time."""
EDGES = np.concatenate([np.linspace(0, 0.9, 19), np.linspace(0.91, 0.99, 9),
                         np.array([0.995, 0.999, 1.0])])
_TAIL_EDGES = np.concatenate([EDGES[:-3], 1.0 - np.array(
    [7e-3, 5e-3, 3.5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 1e-5, 1e-6, 0.0])])


@dataclass(frozen=True)
class Gaps:
    """Gaps between the tokens of answers, at least one each; answers of one token have none.

    Attributes
    ----------
    mean, inverse, inverse_square : float
        Means of the number of gaps, of 1 over it, and of the square of that.
        Of several laws at once arrays of shape (laws, 1).
    paces : ndarray, shape (k,) or (laws, k)
        Steps of an answer over those of as many tokens at the mean of the workload, for each part
        of the answers (:mod:`planner.loops.luck`); 1 where a step writes one token.
    """

    mean: float | NDArray[np.float64]
    inverse: float | NDArray[np.float64]
    inverse_square: float | NDArray[np.float64]
    paces: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))

    @classmethod
    def of(cls, answers: Lengths) -> Gaps:
        """Of answers; where all are of one token, as of two."""
        gaps, shares = answers.shared_gaps
        return cls(float(shares @ gaps), float(shares @ (1.0 / gaps)),
                   float(shares @ (1.0 / gaps**2)))

    @classmethod
    def of_parts(cls, answers: Lengths, parts: int) -> Gaps:
        """Of answers from the shortest to the longest, a law for each of so many equal parts."""
        gaps, shares = answers.shared_gaps
        reached = np.concatenate([[0.0], shares.cumsum()])
        edges = np.linspace(0.0, reached[-1], parts + 1)

        def means(values: NDArray[np.float64]) -> NDArray[np.float64]:
            total = np.concatenate([[0.0], (shares * values).cumsum()])
            found = np.diff(np.interp(edges, reached, total)) * (parts / reached[-1])
            return np.asarray(found[:, None])

        return cls(means(gaps), means(1.0 / gaps), means(1.0 / gaps**2))

    @classmethod
    def of_length(cls, answer: float) -> Gaps:
        """Of answers of one length [token]."""
        gaps = max(answer - 1.0, 1.0)
        return cls(gaps, 1.0 / gaps, 1.0 / gaps**2)

    @classmethod
    def of_each(cls, answers: Sequence[float]) -> Gaps:
        """Of answers of one length [token] each, a law a length."""
        gaps = np.maximum(np.asarray(answers, dtype=float)[:, None] - 1.0, 1.0)
        return cls(gaps, 1.0 / gaps, 1.0 / gaps**2)

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """The three means of every law, then its paces, shape (3 + k, laws)."""
        means = np.array([np.ravel(x) for x in (self.mean, self.inverse, self.inverse_square)],
                         dtype=float)
        paces = np.broadcast_to(self.paces, (means.shape[1], np.shape(self.paces)[-1]))
        return np.concatenate([means, paces.T])


@dataclass(frozen=True)
class Lengths:
    """A distribution of token counts as points with weights.

    A constant has one point; a log-normal is cut into bins, each at its conditional mean; an
    empirical one is the list given.

    Attributes
    ----------
    tokens : ndarray, shape (k,)
        [token] ascending.
    weights : ndarray, shape (k,)
        Shares that sum to 1.
    kind : str
        ``constant``, ``lognormal`` or ``empirical``.
    log_law : tuple of float, optional
        Mean and standard deviation of ln(tokens) of a log-normal: the law that the bins stand for.
    parts : tuple of (float, Lengths), optional
        Of a mixture the shares and laws that it is made of.
    """

    tokens: NDArray[np.float64]
    weights: NDArray[np.float64]
    kind: str = "constant"
    log_law: tuple[float, float] | None = None
    parts: tuple[tuple[float, Lengths], ...] = ()

    def moment(self, order: int) -> float:
        """Raw moment E[X^order] [token^order]."""
        return float(np.dot(self.weights, self.tokens**order))

    @cached_property
    def mean(self) -> float:
        """E[X] [token]."""
        return self.moment(1)

    @cached_property
    def second_moment(self) -> float:
        """E[X^2] [token^2]."""
        return self.moment(2)

    @cached_property
    def cv2(self) -> float:
        """Squared coefficient of variation: 0 for a constant, 1 for an exponential law."""
        return max(self.second_moment / self.mean**2 - 1.0, 0.0)

    @cached_property
    def rest(self) -> float:
        """E[R^2] / E[R]^2 of what is left of a length at some moment: 2 for an exponential law, 4/3
        for a constant."""
        return 4.0 * self.moment(3) * self.mean / (3.0 * self.second_moment**2)

    @cached_property
    def overlap(self) -> float:
        """E[min(X, X')] / E[X]: 1 for a constant, 1/2 for an exponential law."""
        pairs = self.weights * (2.0 - 2.0 * self._reached + self.weights)
        return float(self.tokens @ pairs) / self.mean

    @cached_property
    def _reached(self) -> NDArray[np.float64]:
        """Cumulated weights."""
        return np.cumsum(self.weights)

    @cached_property
    def shared_gaps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gaps of the answers with a second token, at least one each, and their shares, shape (k,);
        where all are of one token, as of two."""
        several = self.tokens >= SEVERAL_TOKENS
        shares = self.weights * several if several.any() else self.weights
        return np.maximum(self.tokens - 1.0, 1.0), shares / shares.sum()

    @cached_property
    def gaps(self) -> Gaps:
        """Gaps between the tokens of answers of these lengths."""
        return Gaps.of(self)

    @cached_property
    def quarters(self) -> Gaps:
        """The same of each quarter of the answers, a law a quarter."""
        return Gaps.of_parts(self, QUARTERS)

    @property
    def max(self) -> float:
        """Largest point [token]."""
        return float(self.tokens[-1])

    @property
    def several(self) -> bool:
        """Whether some answer of these lengths has a second token, so a time between tokens."""
        return self.max >= SEVERAL_TOKENS

    @cached_property
    def _quantiles(self) -> dict[float, float]:
        """Those that were asked for."""
        return {}

    def quantile(self, share: float) -> float:
        """Length [token] that ``share`` of the requests do not exceed, not below one token.

        Of a log-normal that of the law, not of its bins, and so of a mixture. Of a list the
        smallest length whose cumulated share is more than ``share``: where a jump ends just there,
        the length after it.
        """
        if share not in self._quantiles:
            self._quantiles[share] = self._quantile(share)
        return self._quantiles[share]

    def _quantile(self, share: float) -> float:
        if self.log_law is not None and 0.0 < share < 1.0:
            mu, sigma = self.log_law
            return max(math.exp(mu + sigma * _NORMAL.inv_cdf(share)), 1.0)
        if self.parts:
            return self._mixed_quantile(share)
        return float(self.tokens[min(self._place(share), len(self.tokens) - 1)])

    def _place(self, share: float) -> int:
        """Place of the first point up to which clearly more than ``share`` lies."""
        return int(self._reached.searchsorted(share + NEAR_JUMP))

    def _mixed_quantile(self, share: float) -> float:
        """:meth:`quantile` of a mixture, between those of its parts, by halving."""
        each = [part.quantile(share) for _, part in self.parts]
        low, high = min(each) * (1.0 - SLACK), max(each)
        while high - low > SLACK * high:
            middle = (low + high) / 2.0
            if self.share_above(middle) > 1.0 - share - NEAR_JUMP:
                low = middle
            else:
                high = middle
        return high

    def share_of_lump(self, share: float) -> float:
        """Of the requests as long as :meth:`quantile` the share that ``share`` of all asks for,
        where they are a lump and it is more: of 60 % short answers 5 in 6 are half of all."""
        index = self._place(share)
        if self.log_law is not None or index >= len(self.weights):
            return share
        weight = float(self.weights[index])
        if weight < LUMP:
            return share
        below = float(self._reached[index]) - weight
        return max(share, min((share - below) / weight, MOST_OF_LUMP))

    def share_above(self, tokens: float) -> float:
        """Share of the requests that are longer than ``tokens``; of a log-normal that of the law.
        """
        if self.parts:
            return sum(s * part.share_above(tokens) for s, part in self.parts)
        if self.log_law is None:
            return float(self.weights[self.tokens > tokens].sum())
        mu, sigma = self.log_law
        return _NORMAL.cdf((mu - math.log(tokens)) / sigma) if tokens >= 1.0 else 1.0

    @cached_property
    def mean_gaps(self) -> Gaps:
        """Gaps between the tokens of an answer of the mean length."""
        return Gaps.of_length(self.mean)

    @cached_property
    def _gaps_at(self) -> dict[tuple[float, ...], Gaps]:
        """Those that were asked for."""
        return {}

    def gaps_at(self, percentiles: tuple[float, ...]) -> Gaps:
        """Gaps between the tokens of answers as long as each percentile, a law a percentile."""
        if percentiles not in self._gaps_at:
            self._gaps_at[percentiles] = Gaps.of_each(
                [self.quantile(p / 100.0) for p in percentiles])
        return self._gaps_at[percentiles]

    def scaled(self, factor: float) -> Lengths:
        """The same shape with every length multiplied by ``factor`` (not below one token)."""
        law = None if self.log_law is None else (self.log_law[0] + math.log(factor),
                                                 self.log_law[1])
        return Lengths(np.maximum(self.tokens * factor, 1.0), self.weights, self.kind, law,
                       tuple((share, part.scaled(factor)) for share, part in self.parts))


def constant(tokens: float) -> Lengths:
    """Every request has the same length [token]."""
    return Lengths(np.array([float(tokens)]), np.array([1.0]), "constant")


def empirical(tokens: NDArray[np.float64] | list[float],
              shares: NDArray[np.float64] | list[float]) -> Lengths:
    """A list of lengths with shares; shares are normalised, equal lengths merged.

    Raises
    ------
    InvalidValue
        Without rows, or when a length is below 1 or a share is negative or all are 0.
    """
    t, s = np.asarray(tokens, dtype=float), np.asarray(shares, dtype=float)
    if not t.size or t.size != s.size:
        raise InvalidValue("a list of lengths needs at least one row of tokens and share")
    if not (np.isfinite(t).all() and np.isfinite(s).all() and t.min() >= 1 and s.min() >= 0):
        raise InvalidValue("tokens must be at least 1 and shares at least 0, all finite")
    if s.sum() <= 0:
        raise InvalidValue("the shares must sum to more than 0")
    values, inverse = np.unique(t, return_inverse=True)
    weights = np.bincount(inverse, weights=s)
    return Lengths(values, weights / weights.sum(), "empirical")


@lru_cache(maxsize=1024)
def lognormal(mu: float, sigma: float) -> Lengths:
    """Log-normal lengths cut into bins at their conditional means.

    Parameters
    ----------
    mu, sigma : float
        Mean and standard deviation of ln(tokens).
    """
    if sigma < 1e-9:
        return constant(math.exp(mu))
    return _binned(mu, sigma, EDGES)


def _binned(mu: float, sigma: float, edges: NDArray[np.float64]) -> Lengths:
    """A log-normal in bins between shares that start at 0 and end at 1."""
    below = [_NORMAL.cdf(_NORMAL.inv_cdf(float(p)) - sigma) for p in edges[1:-1]]
    shares = np.diff(edges)
    means = math.exp(mu + sigma**2 / 2) * np.diff([0.0, *below, 1.0]) / shares
    return Lengths(np.maximum(means, 1.0), shares, "lognormal", (mu, sigma))


def with_tail(lengths: Lengths) -> Lengths:
    """The same lengths, those of a log-normal with its longest hundredth in finer bins: of
    many answers the longest is among these."""
    if lengths.log_law is None:
        return lengths
    return _binned(*lengths.log_law, _TAIL_EDGES)


def from_mean_p95(mean: float, p95: float) -> Lengths:
    """Log-normal with a given mean and 95th percentile [token].

    ``p95 / mean = exp(z s - s^2 / 2)`` with z = 1.645; of the two roots the smaller spread.

    Raises
    ------
    InvalidValue
        When p95 is below the mean, or above 3.87 times the mean (no log-normal reaches that).
    """
    if p95 < mean:
        raise InvalidValue(f"p95 ({in_full(p95)}) must not be below the mean ({in_full(mean)})")
    if p95 > mean * MAX_P95_OVER_MEAN:
        raise InvalidValue(
            f"p95 ({in_full(p95)}) is more than {MAX_P95_OVER_MEAN:.2f} times the mean "
            f"({in_full(mean)}); no log-normal has that, give a list of {{tokens, share}} instead")
    sigma = Z95 - math.sqrt(max(Z95**2 - 2 * math.log(p95 / mean), 0.0))
    return lognormal(math.log(mean) - sigma**2 / 2, sigma)


def from_p50_p95(p50: float, p95: float) -> Lengths:
    """Log-normal with a given median and 95th percentile [token].

    Raises
    ------
    InvalidValue
        When p95 is below the median.
    """
    if p95 < p50:
        raise InvalidValue(f"p95 ({in_full(p95)}) must not be below p50 ({in_full(p50)})")
    return lognormal(math.log(p50), math.log(p95 / p50) / Z95)


BETWEEN_TOKENS = ("tpot", "itl")
"""Metrics of the time between the tokens of an answer."""


@dataclass(frozen=True, slots=True)
class Slo:
    """A latency target: ``percentile`` per cent of requests within ``limit_s`` [s]."""

    metric: str
    limit_s: float
    percentile: float = 90.0

    @property
    def level(self) -> float:
        """Share of the requests that must keep the limit, less :data:`SLACK`."""
        return self.percentile / 100.0 - SLACK


@dataclass(frozen=True)
class Workload:
    """What arrives at the fleet in its peak hour.

    Attributes
    ----------
    requests_per_s : float
        [1/s] at the peak.
    prompt, output : Lengths
        [token] per request.
    arrival_cv : float
        Coefficient of variation of the gaps between arrivals (1 = Poisson).
    prefix_hit : float
        Share of prompt tokens found in the prefix cache, 0 to below 1.
    slos : tuple of Slo
        Metrics ``ttft``, ``tpot``, ``itl``, ``e2e``.
    mean_requests_per_s : float or None
        [1/s] over the day, for cost per request and token; None takes the peak.
    users, think_s : float or None, float
        Concurrent users and their pause [s] between requests, where they set the rate.
    """

    requests_per_s: float
    prompt: Lengths
    output: Lengths
    arrival_cv: float = 1.0
    prefix_hit: float = 0.0
    slos: tuple[Slo, ...] = field(default_factory=tuple)
    mean_requests_per_s: float | None = None
    users: float | None = None
    think_s: float = 0.0

    @cached_property
    def lengths_key(self) -> tuple[object, ...]:
        """What distinguishes the lengths of one workload from another's, hashable."""
        lengths = self.prompt, self.output
        return (*(part.tobytes() for x in lengths for part in (x.tokens, x.weights)),
                *(x.log_law for x in lengths), self.prefix_hit)

    @cached_property
    def _known(self) -> dict[tuple[object, ...], Any]:
        """What was worked out of it, by key."""
        return {}

    def remembered(self, key: tuple[object, ...], work: Callable[[], T]) -> T:
        """A value that depends on this workload and on ``key`` alone, worked out once."""
        if key not in self._known:
            self._known[key] = work()
        found: T = self._known[key]
        return found

    @cached_property
    def _at_rates(self) -> dict[tuple[float, float], Workload]:
        """Those that were asked for."""
        return {}

    def at_rates(self, peak_per_s: float, mean_per_s: float) -> Workload:
        """The same requests at other rates [1/s], in the peak hour and over the day; asked again it
        is the same value, with what was worked out from it."""
        rates = peak_per_s, mean_per_s
        if rates not in self._at_rates:
            self._at_rates[rates] = replace(self, requests_per_s=peak_per_s,
                                            mean_requests_per_s=mean_per_s)
        return self._at_rates[rates]

    @cached_property
    def prompt_of_token(self) -> float:
        """Mean prompt [token], but for its cached part, that a prompt token belongs to:
        E[p^2] / E[p]."""
        return self.new_prompt.second_moment / self.new_prompt.mean

    @cached_property
    def cached_of_token(self) -> float:
        """Mean cached tokens [token] before the prompt that a prompt token belongs to."""
        tokens, weights = self.new_prompt.tokens, self.prompt.weights
        return float((weights * tokens) @ (self.prompt.tokens - tokens) / (weights @ tokens))

    @cached_property
    def new_prompt(self) -> Lengths:
        """Prompt tokens that must be computed: those not in the prefix cache."""
        return self.prompt.scaled(1.0 - self.prefix_hit) if self.prefix_hit else self.prompt

    @cached_property
    def reference(self) -> Lengths:
        """Answers of the same shape and of the reference mean."""
        factor = REFERENCE_TOKENS / self.output.mean
        return replace(self.output, tokens=self.output.tokens * factor, log_law=None, parts=())

    @cached_property
    def running_context(self) -> float:
        """Mean context [token] of a running sequence: prompt + E[o^2] / (2 E[o]).

        Long answers stay longer, so it is more than prompt + o/2 (inspection paradox).
        """
        return self.prompt.mean + self.output.second_moment / (2.0 * self.output.mean)

    @cached_property
    def running_context_variance(self) -> float:
        """Variance [token^2] of the context of a running sequence."""
        prompt = self.prompt.second_moment - self.prompt.mean**2
        mean = self.output.second_moment / (2.0 * self.output.mean)
        second = self.output.moment(3) / (3.0 * self.output.mean)
        return max(prompt, 0.0) + max(second - mean**2, 0.0)

    @cached_property
    def answered_context(self) -> float:
        """Mean context [token] at which a running sequence will end: prompt + E[o^2] / E[o]."""
        return self.prompt.mean + self.output.second_moment / self.output.mean

    @cached_property
    def answered_context_variance(self) -> float:
        """Variance [token^2] of the context at which a running sequence will end."""
        prompt = self.prompt.second_moment - self.prompt.mean**2
        mean = self.output.second_moment / self.output.mean
        return max(prompt, 0.0) + max(self.output.moment(3) / self.output.mean - mean**2, 0.0)

    @cached_property
    def by_metric(self) -> dict[str, Slo]:
        """The targets that can be missed by their metric."""
        return {s.metric: s for s in reversed(self.targets)}

    @cached_property
    def targets(self) -> tuple[Slo, ...]:
        """Targets that can be missed: answers of one token have no TPOT and no gap between tokens,
        so where no answer has a second one, targets on those always hold."""
        if self.output.several:
            return self.slos
        return tuple(s for s in self.slos if s.metric not in BETWEEN_TOKENS)

    def first_percentile(self, percentile: float) -> float:
        """The percentile at which the first token counts in one of the whole request.

        At least :data:`LEAST_PART`, and what a lump of answers asks for; where answers are of one
        token, they are the whole request.
        """
        if not self.output.several:
            return percentile
        return self.remembered(("first", percentile), lambda: max(
            percentile, 100.0 * self.output.share_of_lump(percentile / 100.0), LEAST_PART))

    def token_percentile(self, percentile: float) -> float:
        """The percentile at which the time per token counts in one of the whole request.

        The time of an answer is a product, so squares of spreads of logarithms add up: beside
        log-normal lengths of spread s the token time counts at ``z b / sqrt(b^2 + s^2)``, with b
        :data:`TOKEN_SPREAD` (first-order reliability; Hasofer & Lind 1974). Beside constant and
        listed lengths it counts as the first token does; never below :data:`LEAST_PART`.
        """
        law = self.output.log_law
        if law is None:
            return self.first_percentile(percentile)
        part = TOKEN_SPREAD / math.hypot(TOKEN_SPREAD, law[1])
        return self.remembered(("token", percentile), lambda: max(
            100.0 * _NORMAL.cdf(part * _NORMAL.inv_cdf(percentile / 100.0)), LEAST_PART))

    def prompt_share(self, target: Slo) -> float:
        """Share of the prompts that a percentile of first tokens or whole requests counts."""
        return (self.first_percentile(target.percentile) if target.metric == "e2e"
                else target.percentile) / 100.0

    def first_level(self, target: Slo) -> float:
        """Share of first tokens that must keep their part of a target on the whole request, less
        :data:`SLACK`."""
        return self.first_percentile(target.percentile) / 100.0 - SLACK

    def token_level(self, target: Slo) -> float:
        """Share of the answers whose tokens must keep theirs, less :data:`SLACK`."""
        return self.token_percentile(target.percentile) / 100.0 - SLACK

    def slo(self, metric: str) -> Slo | None:
        """The target of a metric, None when there is none that can be missed."""
        return self.by_metric.get(metric)
