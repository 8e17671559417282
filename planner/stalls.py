"""What prompts add to the time of an answer, as delay cycles (Conway et al. 1967, section 8-3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from planner.arrivals import burst_ahead
from planner.workload import Gaps

Array = NDArray[np.float64]


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

    @property
    def swing(self) -> Array | float:
        """``(r)^2 Var S``: see :class:`planner.arrivals.Influx`."""
        return self.rate_per_s**2 * (self.square_s2 - np.square(self.mean_s))

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
