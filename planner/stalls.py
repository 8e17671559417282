"""What prompts add to the time of an answer, as delay cycles (Conway et al. 1967, section 8-3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.arrivals import burst_ahead
from planner.loops.answers import added_columns, good_states, token_times
from planner.loops.gaps import gap_times
from planner.loops.luck import mean_of_luck
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
    least_s : float or ndarray
        [s] that the shortest prompt stops a sequence.
    stages : float
        Stages of a pipeline: each prompt stops so many gaps, each for that part of S.
    apart : bool
        Whether prompts that come in a step that holds a prompt lengthen the next one, not that.
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
    least_s: Array | float = 0.0
    stages: float = 1.0
    apart: bool = False

    @property
    def swing(self) -> Array:
        """``(r)^2 Var S``: see :class:`planner.arrivals.Influx`."""
        return np.asarray(self.rate_per_s**2 * (self.square_s2 - np.square(self.mean_s)))

    def added(self, step_s: Array) -> Added:
        """What they add to answers whose tokens take ``step_s`` [s], shape (N,), else."""
        size = len(step_s)
        before_s, most_s = column(self.before_s, size), column(self.most_s, size)
        least_s = column(self.least_s, size) / self.stages
        columns = added_columns(
            step_s, self.rate_per_s, column(self.load, size), column(self.mean_s, size),
            column(self.square_s2, size), column(self.wait_s, size), before_s,
            max(self.arrival_cv2, 1.0), self.behind)
        return Added(step_s, columns, before_s, most_s, least_s,
                     self.rate_per_s / (1.0 + burst_ahead(self.arrival_cv2)), self.behind,
                     self.stages, self.apart)


def column(value: Array | float, size: int) -> Array:
    """A value for each of ``size`` states."""
    return value if isinstance(value, np.ndarray) else np.full(size, float(value))


@dataclass(frozen=True, slots=True)
class Added:
    """Moments of what prompts add to the TPOT of an answer, over the running sequences.

    With ``g`` gaps between the tokens of the answer the mean is ``once / g + gap`` and the mean
    square ``square / g^2 + cross / g + gap^2``; see :class:`Stalls`.

    Attributes
    ----------
    step_s : ndarray, shape (N,)
        [s] a token without prompts.
    columns : ndarray, shape (4, N)
        once, gap: [s] that the prompts of the time before its first token and those of its own
        burst add to the answer, and those that come meanwhile to every gap; square, cross: [s^2]
        as above.
    before_s, most_s, least_s : ndarray, shape (N,)
        See :class:`Stalls`; the least that a prompt adds to a gap.
    bursts_per_s : float
        Bursts of prompts [1/s].
    behind, stages, apart
        See :class:`Stalls`.
    """

    step_s: Array
    columns: Array
    before_s: Array
    most_s: Array
    least_s: Array
    bursts_per_s: float
    behind: float
    stages: float = 1.0
    apart: bool = False

    def within(self, states: slice) -> Added:
        """Of some states."""
        return Added(self.step_s[states], np.ascontiguousarray(self.columns[:, states]),
                     self.before_s[states], self.most_s[states], self.least_s[states],
                     self.bursts_per_s, self.behind, self.stages, self.apart)

    def mean(self, gaps: Gaps) -> Array:
        """Mean [s] over answers, of several laws over those in equal parts."""
        once_s, gap_s, pace = self.columns[0], self.columns[1], mean_of_luck(gaps.paces)
        each_s = np.minimum(once_s * gaps.inverse + pace * gap_s, pace * self.most_s)
        return np.asarray(each_s.mean(axis=0) if np.ndim(gaps.inverse) else each_s)

    def by_output(self, accepted: float) -> Added:
        """What they add to steps that write ``accepted`` tokens, in place of tokens."""
        if accepted == 1.0:
            return self
        columns = self.columns * np.array([1.0, accepted, 1.0, accepted])[:, None]
        return replace(self, step_s=self.step_s * accepted, columns=columns,
                       most_s=self.most_s * accepted)

    def good(self, limit_s: float, tokens: Array, likely: float, gaps: Gaps) -> Array:
        """P(TPOT <= limit) in each state, 0 past the last likely one: :func:`good_states`."""
        return np.asarray(good_states(
            limit_s, tokens, 1, likely, self.columns, self.step_s, self.before_s, self.most_s,
            self.bursts_per_s, self.behind, gaps.rows))

    def gaps(self, tokens: Array, gaps: float, first: float, heaviest: float = 0.0
             ) -> tuple[slice, Array]:
        """Single gaps between outputs, over the likely states: which those are, and what prompts
        add to a step there (see :func:`planner.loops.gaps.gap_time`), shape (4, states). Outputs
        of several tokens ask this of :meth:`by_output`.

        The first gap of an answer holds the prompts of the time before it (see :class:`Stalls`);
        any gap those that come in its own step and, where prompts run first, in their stops.

        Parameters
        ----------
        tokens : ndarray, shape (N,)
            Weighs the states.
        gaps : float
            Of an answer, mean.
        first : float
            Share of the gaps that are the first of an answer.
        heaviest : float
            Weight of the heaviest state where no limit lies below it.
        """
        begin, times = gap_times(tokens, heaviest, self.columns, self.step_s, self.before_s,
                                 self.most_s, self.least_s, self.bursts_per_s, self.behind,
                                 gaps, first, self.stages, self.apart)
        return slice(begin, begin + times.shape[1]), times


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """TPOT of the requests of each state: a step for those that meet no prompt, else a gamma more.

    The gamma has the two moments of what prompts add to those that meet some.

    Attributes
    ----------
    step_s : ndarray, shape (N,)
        [s] without prompts.
    times : ndarray, shape (3, laws k, N)
        Share of the requests that meet none, and shape and scale [s] of the gamma of the others;
        at each of the k paces of a law.
    most_s : ndarray, shape (N,)
        [s] most that prompts add.
    paces : ndarray, shape (k,) or (laws, k)
        Times ``step_s`` and ``most_s``, see :class:`planner.workload.Gaps`.
    """

    step_s: Array
    times: Array
    most_s: Array
    paces: Array

    @classmethod
    def of(cls, added: Added, gaps: Gaps) -> TokenTimes:
        """TPOT of answers with ``gaps`` between tokens, over the states.

        X <= most, so the mean of what is added is at most that, and E[X^2] <= most E[X]. Answers
        of the mean length say how many meet no prompt.
        """
        return cls(added.step_s, token_times(
            added.columns, added.step_s, added.before_s, added.most_s, added.bursts_per_s,
            added.behind, gaps.rows), added.most_s, gaps.paces)
