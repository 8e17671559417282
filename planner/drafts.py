"""Speculative decoding: the steps that answers take.

A step verifies ``g`` drafted tokens, each accepted with chance ``a`` while those before it are, and
writes K of ``1 .. g + 1``: P(K >= k) = a^(k-1). The steps N(t) until t tokens are written are a
renewal process (Feller 1971, *An Introduction to Probability Theory* vol. 2, chapter XI): what the
last step writes beyond t is lost, so an answer takes more than ``t / E[K]`` of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.loops.luck import (
    LUCK_EDGES,
    LUCK_SHARES,
    LUCK_SWINGS,
    mean_of_luck,
    shares_of_luck,
)
from planner.requests import Speculative
from planner.workload import EDGES, REFERENCE_TOKENS, SLACK, Gaps, Lengths, Workload

Array = NDArray[np.float64]
PERIODS, LEAST_KEPT = 32, 1024
"""Steps' worth of tokens, and tokens, whose moments are worked out; beyond they go on straight."""


def accepted_tokens(speculative: Speculative) -> float:
    """Tokens that one verification step yields: (1 - a^(g+1)) / (1 - a)."""
    a, g = speculative.acceptance, speculative.draft_tokens
    return g + 1.0 if a >= 1.0 else (1.0 - a ** (g + 1)) / (1.0 - a)


def step_moments(speculative: Speculative, tokens: Array) -> tuple[Array, Array]:
    """Mean and variance of the steps that write some tokens, none of 0; straight between whole
    numbers of tokens.

    Parameters
    ----------
    tokens : ndarray
        [token] written, of any shape.
    """
    mean, variance = _kept_moments(speculative.draft_tokens, speculative.acceptance)
    kept, period = len(mean) - 1, speculative.draft_tokens + 1
    beyond = np.ceil(np.maximum(tokens - kept, 0.0) / period)
    each = accepted_tokens(speculative)
    spread = _square_of_a_step(speculative) - each**2
    at, whole = tokens - beyond * period, np.arange(kept + 1.0)
    return (np.interp(at, whole, mean) + beyond * (period / each),
            np.interp(at, whole, variance) + beyond * (period * max(spread, 0.0) / each**3))


def _square_of_a_step(speculative: Speculative) -> float:
    """E[K^2] of the tokens that a step yields."""
    k = np.arange(1.0, speculative.draft_tokens + 2.0)
    return float((2.0 * k - 1.0) @ speculative.acceptance ** (k - 1.0))


@lru_cache(maxsize=64)
def _kept_moments(drafted: int, acceptance: float) -> tuple[Array, Array]:
    """Mean and variance of the steps that write 0, 1, 2, .. tokens.

    E[N(t)] = 1 + sum of P(K = k) E[N(t-k)], and so for the squares; the sums over the accepted are
    kept up to date, as P(K = k) falls by ``a`` from one to the next.
    """
    size, all_of_them = max(PERIODS * (drafted + 1), LEAST_KEPT), acceptance**drafted
    mean, square = [0.0], [0.0]
    once = twice = 0.0
    for t in range(1, size + 1):
        far = t - drafted - 1
        # Of K <= g; what came g + 1 ago leaves the sum.
        once = (1.0 - acceptance) * mean[t - 1] + acceptance * once
        twice = (1.0 - acceptance) * square[t - 1] + acceptance * twice
        if far >= 0:
            once -= (1.0 - acceptance) * all_of_them * mean[far]
            twice -= (1.0 - acceptance) * all_of_them * square[far]
        last, last_square = (mean[far], square[far]) if far > 0 else (0.0, 0.0)
        mean.append(1.0 + once + all_of_them * last)
        square.append(2.0 * mean[t] - 1.0 + twice + all_of_them * last_square)
    means = np.array(mean)
    return means, np.maximum(np.array(square) - means**2, 0.0)


@dataclass(frozen=True)
class Drafts:
    """How many tokens the steps of a workload's answers write, and how that differs among them.

    Without speculation it is one each, and all laws are those of the lengths.

    Attributes
    ----------
    speculative : Speculative or None
    workload : Workload
    """

    speculative: Speculative | None
    workload: Workload

    @cached_property
    def accepted(self) -> float:
        """Tokens of a step, mean over the steps that the answers take: E[o] / E[N(o)]."""
        output = self.workload.output
        if self.speculative is None:
            return 1.0
        steps, _ = step_moments(self.speculative, output.tokens)
        return output.mean / float(output.weights @ steps)

    @cached_property
    def own(self) -> Gaps:
        """Gaps between the tokens of the answers."""
        return self.of(self.workload.output)

    @cached_property
    def quarters(self) -> Gaps | None:
        """The same of each quarter of answers shorter than the reference; None where their TPOT is
        one law: of longer ones, which hold many stops each, and with luck, which has parts of its
        own."""
        output = self.workload.output
        short = output.mean < REFERENCE_TOKENS and self.speculative is None
        return output.quarters if short else None

    @cached_property
    def reference(self) -> Gaps:
        """The same of the reference answers."""
        return self.of(self.workload.reference)

    @cached_property
    def mean(self) -> Gaps:
        """The same of an answer of the mean length."""
        return self._each(self.workload.output.mean_gaps)

    def of(self, answers: Lengths) -> Gaps:
        """The same of some answers."""
        if self.speculative is None:
            return answers.gaps
        gaps, shares = answers.shared_gaps
        return replace(answers.gaps, paces=self._mixed(gaps, shares, LUCK_EDGES)[0])

    def of_length(self, answer: float) -> Gaps:
        """The same of an answer of one length [token]."""
        return self._each(Gaps.of_length(answer))

    def at(self, percentiles: tuple[float, ...]) -> Gaps:
        """The same of answers as long as each percentile, a law a percentile."""
        return self._each(self.workload.output.gaps_at(percentiles))

    def _each(self, gaps: Gaps) -> Gaps:
        """Laws of answers of one length each."""
        if self.speculative is None:
            return gaps
        paces = self._paces(np.ravel(gaps.mean))
        return replace(gaps, paces=paces if np.ndim(gaps.mean) else paces[0])

    def _paces(self, tokens: Array) -> Array:
        """Paces of the parts of answers of some lengths [token], shape (lengths, k): normal, within
        a step a token and one for all that is drafted."""
        assert self.speculative is not None
        least = 1.0 / (self.speculative.draft_tokens + 1.0)
        steps, variance = step_moments(self.speculative, tokens)
        each = (steps[:, None] + np.sqrt(variance)[:, None] * LUCK_SWINGS) / tokens[:, None]
        return np.asarray(np.clip(each, least, 1.0) * self.accepted)

    def _mixed(self, tokens: Array, weights: Array, edges: Array, power: float = 0.0
               ) -> tuple[Array, Array]:
        """Of answers of different lengths: means between the percentiles at ``edges`` of their
        paces times their tokens to some power, and the shares of these."""
        paces = self._paces(tokens)
        values = (paces * tokens[:, None] ** power).ravel()
        order = values.argsort()
        shares = np.outer(weights, LUCK_SHARES).ravel()[order]
        reached = np.concatenate([[0.0], shares.cumsum()])
        total = np.concatenate([[0.0], (shares * values[order]).cumsum()])
        parts = np.diff(edges)
        return np.diff(np.interp(edges * reached[-1], reached, total)) / parts, parts

    @cached_property
    def sizing(self) -> tuple[Array, Array]:
        """Mean tokens and gaps of the answers that must hold a target on TPOT, shape (laws,) and
        (3 + k, laws), as for :func:`planner.loops.batches.caps_held`.

        Prompts stall a short answer more than a long one, and the luck of drafts evens out, so a
        target on TPOT would get easier because answers grow. A pool is therefore sized for the
        reference answers too (of the same shape, with a mean of :data:`REFERENCE_TOKENS`), and for
        shorter ones as if they were those.
        """
        output, reference = self.workload.output, self.reference.rows
        if output.mean <= REFERENCE_TOKENS:
            return np.array([output.mean]), reference
        return (np.array([output.mean, REFERENCE_TOKENS]),
                np.concatenate((self.own.rows, reference), axis=1))

    @cached_property
    def work(self) -> Lengths:
        """The answers as the tokens that their steps write on average; in bins, as log-normal
        lengths are."""
        output = self.workload.output
        if self.speculative is None:
            return output
        return Lengths(*self._mixed(output.tokens, output.weights, EDGES, 1.0), "drafted")

    @cached_property
    def mean_pace(self) -> float:
        """Mean pace of the answers; 1 without speculation."""
        return mean_of_luck(self.own.paces)

    def reference_pace(self, share: float) -> float:
        """The pace that a share of the reference answers does not exceed; 1 without speculation."""
        return 1.0 if self.speculative is None else pace_at(self.reference, share)

    @cached_property
    def quickest(self) -> float:
        """The least pace of the answers that a pool is sized for; 1 without speculation."""
        return float(min(x.paces.min() for x in (self.own, self.reference)))

    @cached_property
    def outputs(self) -> float:
        """Gaps between the outputs of an answer, mean: a step each."""
        answers = self.workload.output
        if self.speculative is None:
            return float(answers.gaps.mean)
        gaps, shares = answers.shared_gaps
        return float(shares @ step_moments(self.speculative, gaps)[0])

    @cached_property
    def reference_outputs(self) -> float:
        """The same of reference answers, all of one length."""
        if self.speculative is None:
            return REFERENCE_TOKENS - 1.0
        return float(step_moments(self.speculative, np.array(REFERENCE_TOKENS - 1.0))[0])


def pace_at(gaps: Gaps, share: float) -> float:
    """The pace of one law that a share of the answers does not exceed."""
    reached = np.cumsum(shares_of_luck(len(gaps.paces))) >= share - SLACK
    return float(gaps.paces[int(np.argmax(reached))])
