"""Continuous batching on one pool: what ``colocated`` and ``chunked`` have in common.

Both are a :class:`planner.queueing.Chain` over the running sequences beside a prefill server; they
differ in how a prefill slows the decodes and how long it takes. Orca (OSDI 2022) for
iteration-level scheduling, Sarathi-Serve (OSDI 2024) for chunks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.arrivals import Influx, burst_ahead
from planner.drafts import Drafts
from planner.loops.answers import prompt_columns
from planner.loops.batches import batch_limit, caps_held, ends_in_time, held_rate, mean_times
from planner.loops.gamma import TINY
from planner.loops.prompts import Prompts, prefills
from planner.percentiles import CLOSE
from planner.queueing import (
    PERCENTILES,
    Chain,
    Outputs,
    Wait,
    full_percentiles,
)
from planner.setups.base import (
    CAPACITY_CLOSE,
    Latencies,
    Table,
    Verdict,
    best_case_s,
    between_tokens,
    e2e_figures,
    figures,
    highest_held,
    labelled,
    parts_of,
    shown,
    with_parts,
)
from planner.stalls import Stalls
from planner.stepping import highest_rate
from planner.workload import REFERENCE_TOKENS, Slo

Array = NDArray[np.float64]
SLOW_FIRST, SLOW_STRIDE = 16, 4
"""Of the batch limits the first (those up to 32) and every fourth (each octave's first) are asked
where full latency figures are needed."""
ROWS = ("throughput", "tpot", "ttft")
"""What the rows of :func:`planner.loops.batches.caps_held` are about."""
RESIDUAL = 0.5
"""Share of a running step that a new prompt waits for: mean of the uniform residual."""


class Continuous(ABC):
    """A pool that prefills and decodes on the same GPUs.

    Parameters
    ----------
    table : Table
        Columns of the deployment; its ``caps`` are the batch limits to try.
    """

    setup = ""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.workload = table.workload
        self.caps: NDArray[np.int64] = table.caps
        self.size = len(table.n)
        self.drafts = table.drafts

    @cached_property
    def slow(self) -> list[Slo]:
        """Targets that are asked of one cap at a time."""
        return [s for m in ("itl", "e2e") if (s := self.workload.slo(m))]

    # -- what differs -------------------------------------------------------------------------

    @property
    def stops(self) -> float:
        """Share of the prompts that stop a sequence."""
        return 1.0

    stages, apart = 1.0, False
    """See :class:`planner.stalls.Stalls`."""

    @property
    @abstractmethod
    def shortest(self) -> float:
        """What the shortest prompt takes over what prompts take, mean."""

    @cached_property
    @abstractmethod
    def states(self) -> Array:
        """What a prompt does to ``n = 1..size`` running, shape (9, size); [s], squares in s^2.

        token: of a step, over the tokens that a sequence gets from it; busy: that a prompt takes
        from the decodes; fill: of a step, per prompt token that it has room for; kept and its
        square: that a prompt keeps the prefill server, mean and mean of squares; alone: from its
        first part to its first token; mean and square: that it stops a sequence, mean and mean of
        squares; most: that prompts add to a token at most.
        """

    @abstractmethod
    def behind(self, cv2: float) -> float:
        """Requests of its own burst that stop a request after its first token, mean."""

    @cached_property
    @abstractmethod
    def prompts(self) -> Prompts:
        """How prompts are prefilled."""

    @abstractmethod
    def prompt_load(self, rate_per_s: float, running: float) -> float:
        """Share of the time, or of the room of the steps, that prompts take."""

    @abstractmethod
    def mean_field(self, n: int) -> tuple[float, float, float, float]:
        """The rate [1/s] that keeps exactly ``n`` running, its TPOT [s], worst gap [s] and
        prefill load."""

    @property
    @abstractmethod
    def taken_s(self) -> Array:
        """[s] that a prompt takes from the decodes, over ``n``, shape (size,) or (1,)."""

    @abstractmethod
    def least_s(self) -> float:
        """[s] that mean TTFT and TPOT together are never below."""

    # -- questions ----------------------------------------------------------------------------

    def prefill(self, rate_per_s: float, cv2: float, running: Array) -> tuple[Wait, Array]:
        """Wait for the prefill server and latency of a prefill [s] of shape (len(running), k),
        when an arrival meets ``running`` sequences."""
        waits, latency = prefills(rate_per_s, cv2, running, float(self.states[1, 0]),
                                  rate_per_s * self.workload.new_prompt.mean, self.prompts)
        return Wait(*waits), latency

    @cached_property
    def ceiling(self) -> float:
        """Rate [1/s] that no replica exceeds: the highest of any mean-field row; with a target on
        TPOT, of what can hold it.

        Where even the steps of n sequences meet the target, they must write the share of the
        tokens that its percentile asks for. A higher rate keeps more running than any such n, on
        average, so that most tokens are late.
        """
        workload = self.workload
        return float(highest_rate(
            self.table.decode_s[: self.size], self.taken_s, workload.output.mean,
            *most_tokens(workload.slo("tpot"), self.drafts.quickest)))

    def chain(self, rate_per_s: float, cv2: float) -> Chain | None:
        """The running sequences at an arrival rate; None when prefills alone fill the replica."""
        states = self.states
        tpot, load, wait, before = prompt_columns(
            rate_per_s, rate_per_s * self.workload.new_prompt.mean, burst_ahead(cv2), states)
        size = len(tpot)
        if not size:
            return None
        token, *_, mean, square, most = states[:, :size]
        output = self.workload.output
        stalls = Stalls(rate_per_s * self.stops, load, mean, square, wait, before, cv2,
                        self.behind(cv2), most, self.shortest * mean,
                        self.stages, self.apart)
        influx = Influx.beside(cv2, load, stalls.swing, output.overlap,
                               self.table.deployment.layout.data)
        return Chain.of(rate_per_s, output.mean, tpot, influx, stalls.added(token), self.drafts.own,
                        outputs_of(self.drafts))

    @property
    def no_batch(self) -> str:
        """What is short where not even one sequence runs."""
        return "memory"

    @cached_property
    def _asked(self) -> tuple[Any, ...]:
        """What :func:`planner.loops.batches.batch_limit` asks that no rate changes."""
        workload = self.workload
        return (workload.output.overlap, workload.new_prompt.mean, self.table.prompt_weights,
                self.states, self.prompts, *self.drafts.sizing, *limit_of(workload.slo("tpot")),
                *limit_of(workload.slo("ttft")))

    def check(self, rate_per_s: float, cv2: float) -> Verdict:
        """Whether a rate [1/s] per replica holds, and under which batch limit."""
        if not self.caps.size:
            return Verdict(False, 0, self.no_batch)
        asked = (self.caps, max(rate_per_s, TINY), cv2, self.stops, self.behind(cv2), *self._asked)
        place, failed = batch_limit(*asked)
        if place < 0:
            return Verdict(False, 0, ROWS[failed])
        if not self.slow:
            return Verdict(True, int(self.caps[place]))
        return self._slowly(rate_per_s, cv2, np.flatnonzero(caps_held(*asked, True).all(axis=0)))

    def highest(self, low: float, high: float, most: float, cv2: float) -> float:
        """See :func:`planner.setups.base.highest_held`."""
        if self.slow or not self.caps.size:
            return highest_held(self.check, low, high, most, cv2)
        return float(held_rate(low, high, most, CAPACITY_CLOSE, self.caps, cv2,
                               (self.stops, self.behind(cv2), *self._asked)))

    def _slowly(self, rate_per_s: float, cv2: float, places: NDArray[np.intp]) -> Verdict:
        """The largest cap of those at ``places`` that meets the slow targets as well."""
        if not self.slow:
            return Verdict(True, int(self.caps[places[-1]]))
        chain, gap = self.chain(rate_per_s, cv2), self.workload.slo("itl")
        assert chain is not None
        places = places[(places < SLOW_FIRST) | (places % SLOW_STRIDE == 0)]
        if gap and places.size:
            within = chain.gaps_within(gap.limit_s)[self.caps[places] - 1]
            places = places[within >= gap.level]
        whole = self.workload.slo("e2e")
        if whole is None or not places.size:
            return Verdict(bool(places.size), int(self.caps[places].max(initial=0)),
                           "" if places.size else "itl")
        for place in places[self._may_end(whole, chain, self.caps[places] - 1)][::-1]:
            cap = int(self.caps[place])
            if not self._late(whole, chain, rate_per_s, cv2, cap):
                return Verdict(True, cap)
        return Verdict(False, 0, "e2e")

    def _may_end(self, target: Slo, chain: Chain, index: NDArray[np.int64]
                 ) -> NDArray[np.bool_]:
        """Whether whole requests may be in time under the caps ``index + 1``.

        False where their tokens alone, after the shortest prefill, take longer.
        """
        q = target.percentile / 100.0
        tokens = max(self.workload.output.quantile(q) - 1.0, 0.0)
        if not tokens:
            return np.ones(len(index), dtype=bool)
        alike = replace(chain, gaps=self.drafts.of_length(tokens + 1.0), known={})
        limit_s = target.limit_s - float(self.table.first_token_s.min())
        within = alike.token_share_within(max(limit_s, 0.0) / tokens * (1.0 + CLOSE))
        return within[index] >= self.workload.token_level(target)

    def gaps_late(self, target: Slo, rate_per_s: float, cv2: float, cap: int) -> bool:
        """Whether a batch limit misses a target on gaps at a rate [1/s]."""
        chain = self.chain(rate_per_s, cv2)
        if chain is None or cap > len(chain.n):
            return True
        return bool(chain.gaps_within(target.limit_s)[cap - 1] < target.level)

    def _late(self, target: Slo, chain: Chain, rate_per_s: float, cv2: float, cap: int) -> bool:
        """Whether a cap misses a target on whole requests."""
        q, at, workload = target.percentile / 100.0, cap - 1, self.workload
        tokens = max(workload.output.quantile(q) - 1.0, 0.0)
        times = chain.times_of(self.drafts.of_length(tokens + 1.0))
        wait, latency = self.prefill(rate_per_s, cv2, chain.mean_running_by_cap()[at:cap])
        places, given_s = chain.waiting()
        return not ends_in_time(
            target.limit_s, workload.first_level(target), tokens, workload.token_level(target),
            times.step_s, times.times, times.most_s, times.paces, chain.written()[:cap],
            float(chain.tail()[at]), float(wait.busy[0]), float(wait.mean_s[0]),
            float(wait.second_s2[0]), float(places[at]), float(given_s[at]), latency[0],
            self.table.prompt_weights, CLOSE)

    def means(self, rate_per_s: float, cv2: float, cap: int) -> tuple[float, float]:
        """Mean TTFT and TPOT [s] under a batch limit: what orders equal fleets."""
        output = self.workload.output
        overlap, prompt_tokens, weights, states, prompts = self._asked[:5]
        ttft_s, tpot_s = mean_times(
            cap, rate_per_s, cv2, self.stops, self.behind(cv2), overlap, prompt_tokens, weights,
            states, prompts, output.mean, self.drafts.own.rows)
        return float(ttft_s), float(tpot_s)

    def misses_tpot(self, rate_per_s: float, cv2: float, cap: int) -> bool:
        """Whether answers shorter than the reference miss the target on TPOT under a batch limit,
        which :meth:`check` asks of the reference answers in their place."""
        target, output = self.workload.slo("tpot"), self.workload.output
        if target is None or output.mean >= REFERENCE_TOKENS:
            return False
        chain, quarters = self.chain(rate_per_s, cv2), self.drafts.quarters
        if chain is None or quarters is None:
            return chain is None or bool(
                chain.token_share_within(target.limit_s)[cap - 1] < target.level)
        reached_s, = chain.parted_percentiles(cap, (100.0 * target.level,), quarters)
        return reached_s > target.limit_s * (1.0 + CLOSE)

    def best_case_s(self, target: Slo) -> float:
        """The percentile of a metric [s] with no other request on the replica."""
        q = target.percentile / 100.0
        _, latency = self.prefill(0.0, 1.0, np.array([1.0]))
        prompt = self.workload.new_prompt.quantile(self.workload.prompt_share(target))
        ttft = float(np.interp(prompt, self.table.prompt_tokens, latency[0]))
        tokens = max(self.workload.output.quantile(q) - 1.0, 0.0)
        return best_case_s(self.table, target, ttft, tokens)

    def latencies(self, rate_per_s: float, cv2: float, cap: int) -> Latencies | None:
        """What users see at a rate [1/s] per replica under a batch limit; None when unstable."""
        chain = self.chain(rate_per_s, cv2)
        if chain is None:
            return None
        if cap > len(chain.n) or chain.ratio[cap - 1] >= 1.0:
            return None
        return self._latencies(chain, rate_per_s, cv2, cap, list(self.workload.slos))

    def _latencies(self, chain: Chain, rate_per_s: float, cv2: float, cap: int,
                   slos: list[Slo]) -> Latencies:
        levels = tuple(sorted({*PERCENTILES, *(s.percentile for s in slos)}))
        running = chain.mean_running(cap)
        prefill, latency = self.prefill(rate_per_s, cv2, np.array([running]))
        places, given_s = (float(column[cap - 1]) for column in chain.waiting())
        asked = with_parts(levels, self.workload)
        mean, values = full_percentiles(prefill, places, given_s, latency[0],
                                        self.table.prompt_weights, asked)
        ttft = figures(mean, asked, values)
        tpot = self._own(chain, cap, levels)

        def gaps() -> dict[str, float]:
            mean_s, values = chain.gap_figures(cap, levels)
            return between_tokens(figures(mean_s, levels, values), self.workload)

        e2e = e2e_figures(parts_of(ttft, levels, self.workload.first_percentile),
                          self._whole(chain, cap, levels), self.workload)
        return Latencies(shown(ttft, levels), between_tokens(tpot, self.workload), gaps, e2e,
                         running, self.prompt_load(rate_per_s, running),
                         lambda: {"admission_wait_share": places})

    def _own(self, chain: Chain, cap: int, levels: tuple[float, ...]) -> dict[str, float]:
        """TPOT [s] of the answers; of short ones quarter by quarter."""
        quarters = self.drafts.quarters
        values = (chain.tpot_percentiles(cap, levels) if quarters is None
                  else chain.parted_percentiles(cap, levels, quarters))
        return figures(chain.mean_tpot(cap, quarters), levels, values)

    def _whole(self, chain: Chain, cap: int, levels: tuple[float, ...]) -> dict[str, float]:
        """TPOT [s] of answers as long as the mean, and as each percentile of their length."""
        parts = tuple(map(self.workload.token_percentile, levels))
        values = chain.tpot_percentiles(cap, parts, self.drafts.at(levels))
        return labelled(chain.mean_tpot(cap, self.drafts.mean), levels, values)


def outputs_of(drafts: Drafts) -> Outputs:
    """What the answers of a workload are sent in."""
    return Outputs(drafts.accepted, drafts.outputs, drafts.reference_outputs)



def limit_of(target: Slo | None) -> tuple[float, float]:
    """Limit [s] and level of a target; infinite where there is none."""
    return (target.limit_s, _level(target)) if target else (math.inf, 0.0)


def most_tokens(target: Slo | None, quickest: float = 1.0) -> tuple[float, float]:
    """Limit [s] and level of a target that most of the tokens must keep, as for
    :func:`planner.stepping.highest_rate`; ``quickest`` is the least pace of an answer."""
    if target is None or target.percentile < 50.0:
        return math.inf, 1.0
    return target.limit_s * (1.0 + CLOSE) / quickest, _level(target)


def _level(target: Slo) -> float:
    return target.level
