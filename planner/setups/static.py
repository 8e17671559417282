"""Request-level (static) batching: a batch runs until its longest answer is done.

The baseline before iteration-level scheduling (Orca, OSDI 2022, section 3). When a replica is free
it takes what waits, at most ``M``; a cycle of ``b`` requests takes ``prefill(b) + o_max(b) D(b)``.
That is the queue with bulk service (Bailey 1954; Chaudhry & Templeton, *A First Course in Bulk
Queues*, 1983, chapter 4): the requests that wait when a cycle starts form a Markov chain, and a
request that comes in the middle of a cycle waits for the rest of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.arrivals import burst_ahead
from planner.loops.bulk import first_tokens_within, queue_shares, turns_ahead
from planner.loops.luck import mean_of_luck, shares_of_luck
from planner.loops.sums import points_of, points_of_sum
from planner.memory import sequence_bytes_per_gpu
from planner.percentiles import reaching
from planner.queueing import PERCENTILES, at_paces
from planner.setups.base import (
    Latencies,
    Table,
    Verdict,
    best_case_s,
    between_tokens,
    cap_sequence,
    depth_slope_s,
    e2e_figures,
    figures,
    highest_held,
    labelled,
    parts_of,
    shown,
    with_parts,
)
from planner.setups.continuous import Array
from planner.workload import SLACK, Lengths, Slo, with_tail

QUEUE, PARTS = 12, 3
"""Longest queue that is told apart, in batches, and groups of it a batch: each cycle takes a batch
off, which wide groups would not show."""
SMALL, FEW = 4, 24
"""Batch limit up to which each length of the queue is told apart, and how many requests more: the
queue of small batches grows longer in batches."""
DEPTHS = 4
"""Contexts at which the steps of a cycle are worked out; between them straight lines."""
ALIKE: Array = np.ones(1)
"""The pace of answers a token a step."""


class Static:
    """Request-level batching on one pool.

    Parameters
    ----------
    table : Table
    """

    setup = "static"

    def __init__(self, table: Table) -> None:
        self.table = table
        self.workload = table.workload
        self.caps = table.caps[table.caps <= self._reserved_cap()]
        self.n = n = table.n[: int(self.caps[-1])] if self.caps.size else table.n[:1]
        prompt = self.workload.new_prompt
        self.prefill_s = table.times.seconds(
            new_tokens=n * prompt.mean, prompts=n,
            cached=self.workload.prompt.mean - prompt.mean)
        self.prefill_s = self.prefill_s + n * _uneven_s(table)
        self.prefill_s[0] = float(table.prompt_weights @ table.prefill_s)
        self.prefill_s = np.maximum.accumulate(self.prefill_s)
        self.drafts = table.drafts
        self.answers = with_tail(self.drafts.work)
        longest = self.answers.tokens
        steps_s = self._steps_s(np.append(longest, self.answers.mean))
        self.decode_s, self.padded_s = steps_s[:, -1], longest * steps_s[:, :-1]
        own = np.ceil(n / table.deployment.layout.data).astype(np.intp) - 1
        self.longest = longest_shares(self.answers, int(own[-1]) + 1)
        self.cycle_s = self.prefill_s + (self.longest[own] * self.padded_s).sum(axis=1)

    def _steps_s(self, tokens: Array) -> Array:
        """[s] of each of the first ``tokens`` after the prompts in batches of ``n``, mean, shape
        (N, a): every sequence of a batch grows with each step, those that are done as well.

        Step times are straight lines over the context but for windows that fill.
        """
        table, before = self.table, self.workload.prompt.mean
        depth = before + np.linspace(0.0, tokens.max() / 2.0, DEPTHS)
        alike = table.times.seconds(self.n, self.workload.running_context)
        scale = np.stack([table.times.seconds(self.n, x) for x in depth], axis=1) / alike[:, None]
        near = np.stack([np.interp(before + tokens / 2.0, depth, row) for row in np.eye(DEPTHS)])
        return np.asarray(table.decode_s[: len(self.n), None] * (scale @ near))

    def _reserved_cap(self) -> int:
        """Batches whose cache fits with every sequence at its 99th percentile length."""
        longest = (self.workload.prompt.quantile(0.99) + self.workload.output.quantile(0.99))
        each = sequence_bytes_per_gpu(self.table.deployment, longest)
        pool = self.table.memory.kv_pool_bytes
        if each <= 0:
            return 10**6
        return math.floor(max(pool, 0.0) / each) * self.table.deployment.layout.data

    def highest(self, low: float, high: float, most: float, cv2: float) -> float:
        """See :func:`planner.setups.base.highest_held`."""
        return highest_held(self.check, low, high, most, cv2)

    @cached_property
    def ceiling(self) -> float:
        """Rate [1/s] that no replica exceeds: the highest batch over cycle."""
        return float((self.n / self.cycle_s).max())

    def least_s(self) -> float:
        """[s] that mean TTFT and TPOT together are never below: the token of one sequence."""
        return self.drafts.mean_pace * float(self.decode_s[0])

    def check(self, rate_per_s: float, cv2: float) -> Verdict:
        """Whether a rate [1/s] per replica holds, and under which batch limit."""
        if not self.caps.size:
            return Verdict(False, 0, "memory")
        if self._surely_late(rate_per_s, cv2):
            return Verdict(False, 0, "ttft")
        failed = "throughput"
        for cap in self.caps[::3][::-1]:
            law = self._law(rate_per_s, cv2, int(cap))
            if law is None:
                continue
            failed = self._late(law, rate_per_s, cv2, int(cap))
            if not failed:
                return Verdict(True, int(cap))
        return Verdict(False, 0, failed)

    def _surely_late(self, rate_per_s: float, cv2: float) -> bool:
        """Whether too many requests meet a cycle whose rest alone is longer than their TTFT.

        No cycle is shorter than that of one request, C, and a rank idles 1 / rate on average
        before the next, so it is busy at least C / (C + 1 / rate) of the time; arrivals at random
        times meet it so. False says nothing.
        """
        target = next((s for s in self.workload.slos if s.metric == "ttft"), None)
        if target is None or cv2 < 1.0:
            return False
        ranks, cycles = self.table.deployment.layout.data, self.cycles
        bursts = rate_per_s / ranks / (1.0 + burst_ahead(1.0 + (cv2 - 1.0) / ranks))
        left_s = max(target.limit_s - float(cycles.alone_s.min()), 0.0)
        lengths, shares = cycles.lengths_s[0], cycles.shares[0]
        beyond_s = float(np.maximum(lengths - left_s, 0.0) @ shares)
        late = bursts * beyond_s / (1.0 + bursts * float(lengths @ shares))
        return late > 1.0 - target.level

    def _late(self, law: Batches, rate_per_s: float, cv2: float, cap: int) -> str:
        """The first target that a batch limit misses."""
        for target in self.workload.targets:
            level, limit_s = target.percentile / 100.0, target.limit_s
            if target.metric == "e2e":
                tokens = max(self.workload.output.quantile(level) - 1.0, 0.0)
                paces = self.drafts.of_length(tokens + 1.0).paces
                part = self.workload.token_percentile(target.percentile) / 100.0
                limit_s -= law.tpot_percentiles([part], paces)[0] * tokens
                level = self.workload.first_percentile(target.percentile) / 100.0
            if target.metric == "tpot":
                share = law.tpot_within(limit_s, self.drafts.reference.paces)
            elif target.metric == "itl":
                share = law.tpot_within(limit_s, np.array([self.drafts.accepted]))
            else:
                share = float(law.ttft_within(np.array([limit_s]))[0])
            if share < level - SLACK:
                return target.metric
        return ""

    def means(self, rate_per_s: float, cv2: float, cap: int) -> tuple[float, float]:
        """Mean TTFT and TPOT [s] under a batch limit."""
        law = self._law(rate_per_s, cv2, cap)
        if law is None:
            return math.inf, math.inf
        return law.mean_ttft_s, law.mean_tpot_s(self.drafts.own.paces)

    def misses_tpot(self, rate_per_s: float, cv2: float, cap: int) -> bool:
        """Whether the luck of answers shorter than the reference misses the target on TPOT under a
        batch limit; without speculation a check asks it of the answers themselves."""
        target = self.workload.slo("tpot")
        if target is None or self.drafts.speculative is None:
            return False
        law = self._law(rate_per_s, cv2, cap)
        return law is not None and (
            law.tpot_within(target.limit_s, self.drafts.own.paces) < target.level)

    def best_case_s(self, target: Slo) -> float:
        """The percentile of a metric [s] with no other request on the replica."""
        q = target.percentile / 100.0
        table = self.table
        prompt = self.workload.new_prompt.quantile(self.workload.prompt_share(target))
        ttft = float(np.interp(prompt, table.prompt_tokens, table.first_token_s))
        tokens = max(self.workload.output.quantile(q) - 1.0, 0.0)
        return best_case_s(table, target, ttft, tokens)

    def latencies(self, rate_per_s: float, cv2: float, cap: int) -> Latencies | None:
        """What users see [s] under a batch limit; None when the replica cannot keep up."""
        law = self._law(rate_per_s, cv2, cap)
        if law is None:
            return None
        levels = tuple(sorted({*PERCENTILES, *(s.percentile for s in self.workload.slos)}))
        ttft = law.ttft_figures(with_parts(levels, self.workload))
        tpot = law.tpot_figures(levels, self.drafts.own.paces)
        e2e = e2e_figures(parts_of(ttft, levels, self.workload.first_percentile),
                          self._whole(law, levels), self.workload)
        load = rate_per_s * float(self.cycle_s[cap - 1]) / cap

        def gaps() -> dict[str, float]:
            found = law.tpot_figures(levels, np.array([self.drafts.accepted]))
            return between_tokens(found, self.workload)

        return Latencies(shown(ttft, levels), between_tokens(tpot, self.workload), gaps, e2e,
                         law.running, load)

    def _whole(self, law: Batches, levels: tuple[float, ...]) -> dict[str, float]:
        """TPOT [s] of answers as long as the mean, and as each percentile of their length; without
        drafts it is the same for every length."""
        parts = tuple(map(self.workload.token_percentile, levels))
        if self.drafts.speculative is None:
            own = self.drafts.own.paces
            return figures(law.mean_tpot_s(own), levels,
                           law.tpot_percentiles([p / 100.0 for p in parts], own))
        values = [law.tpot_percentiles([p / 100.0], paces)[0]
                  for p, paces in zip(parts, self.drafts.at(levels).paces, strict=True)]
        return labelled(law.mean_tpot_s(self.drafts.mean.paces), levels, values)

    def _law(self, rate_per_s: float, cv2: float, cap: int) -> Batches | None:
        """The batches of one data-parallel rank; None when it cannot keep up."""
        ranks = self.table.deployment.layout.data
        most = max(cap // ranks, 1)
        if not (self.n[:cap] / self.cycle_s[:cap])[-1] > rate_per_s:
            return None
        return Batches.of(self.cycles, rate_per_s / ranks, 1.0 + (cv2 - 1.0) / ranks, most)

    @cached_property
    def cycles(self) -> Cycles:
        """Cycles of a rank over its batches."""
        table, ranks = self.table, self.table.deployment.layout.data
        weights = table.prompt_weights
        places = np.arange(ranks - 1, len(self.n), ranks) if len(self.n) >= ranks else np.zeros(
            1, dtype=np.intp)
        lengths = self.prefill_s[places, None] + self.padded_s[places]
        return Cycles(self.prefill_s[places], *self._swings_s(), self.decode_s[places], lengths,
                      self.longest[: len(places)], table.first_token_s, weights,
                      float((table.first_token_s - table.prefill_s) @ weights))

    def _swings_s(self) -> tuple[Array, Array]:
        """[s] of prompts beyond their mean, and their shares; the longest in finer bins, as one
        of them holds up a batch."""
        table, workload = self.table, self.workload
        new, whole = with_tail(workload.new_prompt), with_tail(workload.prompt)
        own_s = table.times.seconds(new_tokens=new.tokens, prompts=1.0,
                                    cached=whole.tokens - new.tokens)
        own_s = own_s * float(table.prompt_weights @ table.prefill_s) / float(new.weights @ own_s)
        return own_s - float(new.weights @ own_s), new.weights


class Capped(NamedTuple):
    """The states of a rank under a batch limit, first a cycle that an arrival started, then groups
    of the queue when a cycle starts.

    Attributes
    ----------
    ends : ndarray, shape (G,)
        Longest queue of each group.
    queue, batch : ndarray, shape (G + 1,)
        Requests that wait, and that the cycle takes.
    place : ndarray, shape (G + 1,)
        Where that batch stands among all.
    whole_s, lengths : ndarray, shape (G + 1, k)
        [s] of the cycle, as points, and their shares.
    sizes, swing_s : ndarray, shape (U,), (2, U, k)
        The different batches, and :meth:`Cycles.swing_s` of each.
    """

    ends: Array
    queue: Array
    batch: Array
    place: NDArray[np.intp]
    whole_s: Array
    lengths: Array
    sizes: Array
    swing_s: Array


@dataclass(frozen=True)
class Cycles:
    """Cycles of a rank over its batch ``b = 1..N``.

    Attributes
    ----------
    prefill_s : ndarray, shape (N,)
        [s] of a batch, mean.
    own_s, own_shares : ndarray, shape (k,)
        [s] of prompts beyond their mean, and their shares.
    step_s : ndarray, shape (N,)
        [s] a token.
    lengths_s, shares : ndarray, shape (N, a)
        [s] of a cycle by its longest answer, and the shares of these.
    alone_s, weights : ndarray, shape (k,)
        [s] first token of a prompt alone, and shares of the prompts.
    beside_s : float
        [s] mean of what a first token takes beyond its prefill.
    swings, wholes, capped : dict
        What :meth:`swing_s`, :meth:`whole_s` and :meth:`under` have worked out, by the batch.
    """

    prefill_s: Array
    own_s: Array
    own_shares: Array
    step_s: Array
    lengths_s: Array
    shares: Array
    alone_s: Array
    weights: Array
    beside_s: float
    swings: dict[int, Array] = field(default_factory=dict, compare=False, repr=False)
    wholes: dict[int, Array] = field(default_factory=dict, compare=False, repr=False)
    capped: dict[int, Capped] = field(default_factory=dict, compare=False, repr=False)

    def swing_s(self, batch: int) -> Array:
        """[s] that the prompts of a batch take beyond their mean, as points
        (:mod:`planner.loops.sums`), shape (2, k): the sum of one half and the other."""
        if batch not in self.swings:
            half = batch // 2
            self.swings[batch] = points_of_sum(
                self.swing_s(half), self.swing_s(batch - half)) if half else points_of(
                self.own_s, self.own_shares)
        return self.swings[batch]

    def whole_s(self, batch: int) -> Array:
        """[s] of the cycles of a batch, as points."""
        if batch not in self.wholes:
            found = points_of_sum(np.stack([self.lengths_s[batch - 1], self.shares[batch - 1]]),
                                  self.swing_s(batch))
            self.wholes[batch] = np.maximum(found, 0.0)
        return self.wholes[batch]

    def under(self, cap: int) -> Capped:
        """What no arrival rate changes under a batch limit."""
        if cap not in self.capped:
            ends, queue = _queues(cap)
            # The first state is a cycle that an arrival started, the others are groups of queues.
            queue = np.concatenate([[1.0], queue])
            batch = np.minimum(queue, cap)
            place = np.rint(batch).astype(np.intp) - 1
            whole_s, lengths = np.stack([self.whole_s(int(b) + 1) for b in place], axis=1)
            sizes = np.unique(place).astype(np.float64) + 1.0
            self.capped[cap] = Capped(
                ends, queue, batch, place, whole_s, lengths, sizes,
                np.stack([self.swing_s(int(b)) for b in sizes], axis=1))
        return self.capped[cap]

    def first_s(self, batch: Array, capped: Capped) -> tuple[Array, Array]:
        """[s] to the first token in batches of some sizes, and the shares, shape (C, k); they
        differ as the nearest size under the limit does."""
        sizes = capped.sizes
        swings, shares = capped.swing_s.take(
            np.searchsorted((sizes[1:] + sizes[:-1]) / 2.0, batch), axis=1)
        mean = np.interp(batch, np.arange(1.0, len(self.prefill_s) + 1.0), self.prefill_s)
        return np.maximum(mean[:, None] + swings, 0.0) + self.beside_s, shares

    @cached_property
    def mean_alone_s(self) -> float:
        """First token on an idle rank [s], mean."""
        return float(self.alone_s @ self.weights)

    @cached_property
    def full_s(self) -> Array:
        """[s] of a cycle by its batch, of shape (N,), mean over its longest answer alone."""
        return np.asarray((self.lengths_s * self.shares).sum(axis=1))


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches of a rank at an arrival rate, and what a request meets.

    Attributes
    ----------
    idle : float
        Share of the requests that find the rank idle.
    met : ndarray, shape (C,)
        Shares of the requests that come during a cycle, by the queue when it started and its
        length.
    cycles : Cycles
    whole_s : ndarray, shape (C,)
        [s] of such a cycle.
    turns : ndarray, shape (C, T)
        Chance of each number of whole cycles to wait for besides.
    turn_s : float
        [s] of a full cycle.
    first_s, first_shares : ndarray, shape (C, k)
        [s] of the request's own batch to its first token, as points, and their shares.
    batches : ndarray, shape (G,)
        Shares of the requests by the queue when their own cycle started.
    step_s, ends : ndarray, shape (G,)
        [s] a token in it, and the largest batch counted there.
    steps_s : ndarray, shape (M,)
        [s] a token over all batches.
    running : float
        Sequences of a cycle, mean over cycles.
    """

    idle: float
    met: Array
    cycles: Cycles
    whole_s: Array
    turns: Array
    turn_s: float
    first_s: Array
    first_shares: Array
    batches: Array
    step_s: Array
    ends: Array
    steps_s: Array
    running: float

    @classmethod
    def of(cls, cycles: Cycles, rate_per_s: float, cv2: float, cap: int) -> Batches:
        """Solve the chain of the requests that wait when a cycle starts.

        Each cycle is one of the lengths of its batch: a long one is followed by a large batch, and
        meets more requests. Arrivals in it have the index of dispersion of the arrivals.
        """
        capped = cycles.under(cap)
        ends, queue, batch, place, whole_s, lengths, *_ = capped
        burst, uneven = burst_ahead(cv2), max(cv2, 1.0)
        come = rate_per_s * whole_s
        swing = uneven * come
        come[0], swing[0] = come[0] + burst, swing[0] + burst * (1.0 + burst)
        left = np.maximum(queue - cap, 0.0)
        share = queue_shares(ends, left, come, swing, lengths)
        met = share[:, None] * come * lengths
        requests = float(met.sum()) + share[0]
        passed = rate_per_s * whole_s.ravel() / 2.0
        before = np.repeat(left, whole_s.shape[1]) + burst
        turns = turns_ahead(cap, math.ceil(ends[-1] / cap + 1.0), before + passed, np.sqrt(
            uneven * passed + passed**2 / 3.0 + 1e-9))
        crowd = np.clip(1.0 + before + 2.0 * passed, 1.0, cap)
        served = share * batch
        return cls(float(share[0] / requests), met.ravel() / requests, cycles, whole_s.ravel(),
                   turns, float(cycles.full_s[cap - 1]), *cycles.first_s(crowd, capped),
                   served / served.sum(), cycles.step_s[place],
                   np.minimum(np.concatenate([[1.0], ends]), float(cap)), cycles.step_s[:cap],
                   float(share @ batch))

    @property
    def mean_ttft_s(self) -> float:
        """Mean time to first token [s]."""
        wait = self.whole_s / 2.0 + self.turn_s * (
            self.turns @ np.arange(float(self.turns.shape[1]))) + (
            self.first_s * self.first_shares).sum(axis=1)
        return float(self.idle * self.cycles.mean_alone_s + self.met @ wait)

    def ttft_within(self, limits_s: Array) -> Array:
        """P(TTFT <= limit) for ``limits_s`` [s]."""
        cycles = self.cycles
        busy = first_tokens_within(limits_s, self.met, self.whole_s, self.turns, self.turn_s,
                                   self.first_s, self.first_shares)
        alone = (cycles.alone_s <= limits_s[:, None]) @ cycles.weights
        return np.asarray(busy + self.idle * alone)

    def ttft_figures(self, levels: tuple[float, ...]) -> dict[str, float]:
        """TTFT [s]: its mean and percentiles."""
        return figures(self.mean_ttft_s, levels, self.ttft_percentiles([p / 100.0 for p in levels]))

    def tpot_figures(self, levels: tuple[float, ...], paces: Array) -> dict[str, float]:
        """TPOT [s] of answers with given paces, shape (k,): its mean and percentiles."""
        return figures(self.mean_tpot_s(paces), levels,
                       self.tpot_percentiles([p / 100.0 for p in levels], paces))

    def mean_tpot_s(self, paces: Array) -> float:
        """Mean TPOT [s] of answers with given paces."""
        return mean_of_luck(paces) * float(self.batches @ self.step_s)

    def ttft_percentiles(self, shares: list[float]) -> list[float]:
        """TTFT [s] that each share of the requests does not exceed."""
        wanted = np.asarray(shares) - SLACK
        return [float(x) for x in reaching(self.ttft_within, wanted, 0.0, self.mean_ttft_s)]

    def tpot_within(self, limit_s: float, paces: Array = ALIKE) -> float:
        """Share of the requests, with given paces, whose TPOT is within a limit [s]."""
        limits = limit_s / paces * (1 + 1e-12)
        largest = np.searchsorted(self.steps_s, limits, side="right")
        within = np.interp(largest, np.concatenate([[0.0], self.ends]),
                           np.concatenate([[0.0], np.cumsum(self.batches)]))
        within[largest >= len(self.steps_s)] = 1.0
        return float(shares_of_luck(len(paces)) @ within)

    def tpot_percentiles(self, shares: list[float], paces: Array = ALIKE) -> list[float]:
        """TPOT [s] that each share of the requests, with given paces, does not exceed."""
        reached = np.concatenate([[0.0], np.cumsum(self.batches)])
        ends, wanted = np.concatenate([[0.0], self.ends]), np.asarray(shares) - SLACK
        if len(paces) > 1:
            sizes = np.diff(np.interp(np.arange(len(self.steps_s) + 1.0), ends, reached))
            return at_paces(wanted, self.steps_s, sizes, paces)
        place = np.clip(np.ceil(np.interp(wanted, reached, ends) - 1e-6).astype(int), 1,
                        len(self.steps_s)) - 1
        return [float(x) for x in paces[0] * self.steps_s[place]]


def _uneven_s(table: Table) -> float:
    """What the attention of a prompt takes beyond that of the mean prompt [s], mean over unlike
    ones: a token costs more the deeper it stands."""
    weights, tokens = table.prompt_weights, table.prompt_tokens
    cached = table.workload.prompt.tokens - tokens
    mean, cached_mean = float(weights @ tokens), float(weights @ cached)
    depth = float(weights @ (tokens * (cached + tokens / 2.0)))
    return depth_slope_s(table) * max(depth - mean * (cached_mean + mean / 2.0), 0.0)


@lru_cache(maxsize=512)
def _queues(cap: int) -> tuple[Array, Array]:
    """Groups of waiting requests: the largest of each, and what it counts as."""
    longest = (QUEUE + (FEW // cap if cap <= SMALL else 0)) * cap
    short = range(1, cap) if cap <= SMALL else cap_sequence(cap)
    ends = np.unique([*short, *range(cap, longest, max(cap // PARTS, 1)), longest]).astype(float)
    return ends, (np.concatenate([[0.0], ends[:-1]]) + 1.0 + ends) / 2.0


def longest_shares(answers: Lengths, most: int) -> Array:
    """P(the longest of b answers is x) = F(x)^b - F(x-)^b for b = 1..most, shape (most, a)."""
    above = np.log(np.minimum(np.cumsum(answers.weights), 1.0))
    reached = np.exp(np.arange(1.0, most + 1.0)[:, None] * above)
    reached[:, -1] = 1.0
    return np.diff(reached, prepend=0.0, axis=1)
