"""Continuous batching on one pool: what ``colocated`` and ``chunked`` have in common.

Both are a :class:`planner.queueing.Chain` over the running sequences beside a prefill server; they
differ in how a prefill slows the decodes and how long it takes. Orca (OSDI 2022) for
iteration-level scheduling, Sarathi-Serve (OSDI 2024) for chunks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.arrivals import Influx, burst_ahead
from planner.percentiles import CLOSE, some_value
from planner.queueing import (
    PERCENTILES,
    Chain,
    Wait,
    admission_wait,
    holds_within_both,
    share_within_both,
    sum_percentiles,
    surely_within,
)
from planner.setups.base import (
    Latencies,
    Table,
    Verdict,
    e2e_figures,
    figures,
    gap_percentiles,
)
from planner.stalls import Stalls
from planner.workload import REFERENCE_TOKENS, Gaps, Slo, constant

Array = NDArray[np.float64]
SLOW_STRIDE = 8
"""Of the batch limits every eighth is asked where full latency figures are needed."""
CLEARLY = 1e-9
"""Share by which a target is met beyond any rounding."""
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
        self.targets = {m: self.workload.slo(m) for m in ("ttft", "tpot", "itl", "e2e")}
        self.slow = [s for m in ("itl", "e2e") if (s := self.targets[m])]
        """Targets that are asked of one cap at a time."""

    # -- what differs -------------------------------------------------------------------------

    @abstractmethod
    def tpot(self, rate_per_s: float) -> Array | None:
        """Time per output token [s] over ``n`` at an arrival rate; None when prefills alone fill
        the replica."""

    @abstractmethod
    def prefill(self, rate_per_s: float, cv2: float, running: Array) -> tuple[Wait, Array]:
        """Wait for the prefill server and latency of a prefill [s] of shape (len(running), k),
        when an arrival meets ``running`` sequences."""

    @abstractmethod
    def gap_stalls(self, rate_per_s: float, running: float) -> tuple[float, Array, Array, float]:
        """Share of token gaps that a prefill lengthens, by how much [s], weights, prefill load."""

    @abstractmethod
    def mean_field(self, n: int) -> tuple[float, float, float, float]:
        """The rate [1/s] that keeps exactly ``n`` running, its TPOT [s], worst gap [s] and
        prefill load."""

    @abstractmethod
    def stalls(self, rate_per_s: float, cv2: float, size: int) -> Stalls:
        """What prompts add to the time of an answer, over ``n = 1..size``."""

    @abstractmethod
    def ceiling_rps(self) -> float:
        """Highest rate [1/s] of any mean-field row: what no latency target can exceed."""

    # -- questions ----------------------------------------------------------------------------

    def chain(self, rate_per_s: float, cv2: float) -> Chain | None:
        """The running sequences at an arrival rate; None when prefills alone fill the replica."""
        tpot = self.tpot(rate_per_s)
        if tpot is None:
            return None
        output, stalls = self.workload.output, self.stalls(rate_per_s, cv2, len(tpot))
        influx = Influx.beside(cv2, stalls.load, stalls.swing, output.overlap,
                               self.table.deployment.layout.data)
        return Chain.of(rate_per_s, output.mean, tpot, influx,
                        stalls.added(tpot * (1.0 - stalls.load)), output.gaps)

    def _sizing_chains(self, chain: Chain, rate_per_s: float) -> list[Chain]:
        """The chains that must all hold a target on TPOT.

        Prompts stall a short answer more than a long one, so a target on TPOT would get easier
        because answers grow. A pool is therefore sized for the reference answers too (of the same
        shape, with a mean of :data:`REFERENCE_TOKENS`), and for shorter ones as if they were those.
        """
        workload = self.workload
        if workload.output.mean <= REFERENCE_TOKENS:
            return [replace(chain, gaps=workload.reference_gaps, known={})]
        return [chain, Chain.of(rate_per_s, REFERENCE_TOKENS, chain.tpot_s, chain.influx,
                                chain.added, workload.reference_gaps)]

    def check(self, rate_per_s: float, cv2: float) -> Verdict:
        """Whether a rate [1/s] per replica holds, and under which batch limit."""
        if not self.caps.size:
            return Verdict(False, 0, "memory")
        chain = self.chain(rate_per_s, cv2)
        if chain is None:
            return Verdict(False, 0, "throughput")
        caps = self.caps
        if caps[-1] > len(chain.n):
            caps = caps[caps <= len(chain.n)]
        if not caps.size:
            return Verdict(False, 0, "throughput")
        target = self.targets["tpot"]
        sizing = self._sizing_chains(chain, rate_per_s) if target else []
        if self._surely_holds(chain, sizing, rate_per_s, cv2, int(caps[-1])):
            return Verdict(True, int(caps[-1]))
        index = caps - 1
        good = chain.ratio[index] < 1.0
        held = {"throughput": good}
        if target:
            held["tpot"] = np.logical_and.reduce([
                one.token_share_within(target.limit_s)[index] >= _level(target)
                for one in sizing])
            good = good & held["tpot"]
        target = self.targets["ttft"]
        places = np.flatnonzero(good)
        if target and places.size:
            held["ttft"] = self._in_time(target, chain, rate_per_s, cv2, caps, places)
            good = good & held["ttft"]
            places = np.flatnonzero(good)
        if not places.size:
            return Verdict(False, 0, _first_failure(held))
        return self._slowly(chain, rate_per_s, cv2, caps, places)

    def _surely_holds(self, chain: Chain, sizing: list[Chain], rate_per_s: float, cv2: float,
                      cap: int) -> bool:
        """Whether a cap clearly meets every target; False says nothing.

        A replica with room to spare holds at its largest batch limit, and this says so without
        the other limits and without the law of the wait.
        """
        if self.slow or chain.ratio[cap - 1] >= 1.0:
            return False
        tpot, ttft = self.targets["tpot"], self.targets["ttft"]
        if tpot and any(one.at_cap(cap, tpot.limit_s).token_share < _level(tpot) + CLEARLY
                        for one in sizing):
            return False
        if not ttft:
            return True
        seen = chain.at_cap(cap, math.inf)
        wait, latency = self.prefill(rate_per_s, cv2, np.array([seen.running]))
        mean_s = float(wait.mean_s[0]) + seen.admission_s
        sure = surely_within(ttft.limit_s, mean_s, latency[0], self.table.prompt_weights)
        return bool(sure >= _level(ttft) + CLEARLY)

    def _in_time(self, target: Slo, chain: Chain, rate_per_s: float, cv2: float,
                 caps: NDArray[np.int64], places: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether TTFT holds at each of the caps at ``places`` (False elsewhere).

        The largest cap is tried alone first: where it holds and nothing else is left to ask, no
        other is needed.
        """
        answer = np.zeros(len(caps), dtype=bool)
        level, weights = _level(target), self.table.prompt_weights
        for chosen in (places,) if self.slow else (places[-1:], places[:-1]):
            prefill, admission, latency = self._ttft(chain, rate_per_s, cv2, caps[chosen] - 1)
            open_ = np.flatnonzero((latency <= target.limit_s) @ weights >= level)
            if open_.size:
                answer[chosen[open_]] = holds_within_both(
                    level, target.limit_s, prefill.at(open_), admission.at(open_),
                    latency[open_], weights)
                if answer.any():
                    break
        return answer

    def _slowly(self, chain: Chain, rate_per_s: float, cv2: float, caps: NDArray[np.int64],
                places: NDArray[np.intp]) -> Verdict:
        """The largest cap of those at ``places`` that meets the slow targets as well."""
        if not self.slow:
            return Verdict(True, int(caps[places[-1]]))
        failed = ""
        places = places[places % SLOW_STRIDE == 0]
        for place in places[self._may_end(chain, caps[places] - 1)][::-1]:
            cap = int(caps[place])
            failed = next((t.metric for t in self.slow
                           if self._late(t, chain, rate_per_s, cv2, cap)), "")
            if not failed:
                return Verdict(True, cap)
        return Verdict(False, 0, failed or self.slow[0].metric)

    def _may_end(self, chain: Chain, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether whole requests may be in time under the caps ``index + 1``.

        False where their tokens alone, after the shortest prefill, take longer.
        """
        target = self.targets["e2e"]
        if not target or not index.size:
            return np.ones(len(index), dtype=bool)
        q = target.percentile / 100.0
        tokens = max(self.workload.output.quantile(q) - 1.0, 0.0)
        if not tokens:
            return np.ones(len(index), dtype=bool)
        alike = replace(chain, gaps=constant(tokens + 1.0).gaps, known={})
        limit_s = target.limit_s - float(self.table.first_token_s.min())
        within = alike.token_share_within(max(limit_s, 0.0) / tokens * (1.0 + CLOSE))
        return within[index] >= q - 1e-6

    def _late(self, target: Slo, chain: Chain, rate_per_s: float, cv2: float, cap: int) -> bool:
        """Whether a cap misses an end-to-end or gap target.

        TTFT + TPOT (o - 1) <= E at a percentile holds when TTFT <= E - TPOT (o - 1).
        """
        q = target.percentile / 100.0
        if target.metric == "itl":
            return self._gaps(chain, rate_per_s, cap, (target.percentile,))[
                f"p{target.percentile:g}"] > target.limit_s
        prefill, admission, latency = self._ttft(chain, rate_per_s, cv2, np.array([cap - 1]))

        def started(left_s: float) -> bool:
            within = share_within_both(left_s, prefill, admission, latency,
                                       self.table.prompt_weights)
            return float(within[0]) >= _level(target)

        tokens = self.workload.output.quantile(q) - 1.0
        if tokens <= 0.0:
            return not started(target.limit_s)
        times, shares = chain.tpot_law(cap, constant(tokens + 1.0).gaps)

        def written(tpot_s: float) -> bool:
            return float((times.share_within(np.array([tpot_s])) @ shares)[0]) >= q - 1e-9

        return not some_value(written, lambda tpot_s: started(target.limit_s - tpot_s * tokens),
                              float(times.step_s[0]), target.limit_s / tokens)

    def _gaps(self, chain: Chain, rate_per_s: float, cap: int, levels: tuple[float, ...]
              ) -> dict[str, float]:
        """Gap between two tokens [s]: that of a step, or longer when a prefill falls into it."""
        column = self.gap(chain.tpot_s)[:cap]
        base = figures(chain.mean_tpot(cap), levels,
                       [chain.token_percentile(column, cap, p / 100.0) for p in levels])
        share, stall, weights, _ = self.gap_stalls(rate_per_s, chain.mean_running(cap))
        return gap_percentiles(stall, weights, share, base)

    def _ttft(self, chain: Chain, rate_per_s: float, cv2: float, index: NDArray[np.int64]
              ) -> tuple[Wait, Wait, Array]:
        """Waits for the prefill server and for admission, and latencies of a new prompt, under
        the caps ``index + 1``."""
        probability, given = chain.waiting()
        wait, latency = self.prefill(rate_per_s, cv2, chain.mean_running_by_cap()[index])
        return wait, admission_wait(probability[index], given[index]), latency

    def slack(self, rate_per_s: float, cv2: float, cap: int) -> float | None:
        """By how much the shares within the targets of TTFT and TPOT exceed what they must reach
        under a batch limit: the least; it falls with the rate and is 0 at the highest that holds.

        None where another target or the room for sequences decides.
        """
        chain = self.chain(rate_per_s, cv2)
        if self.slow or chain is None or cap > len(chain.n) or chain.ratio[cap - 1] >= 1.0:
            return None
        least = math.inf
        if target := self.targets["tpot"]:
            for one in self._sizing_chains(chain, rate_per_s):
                share = one.at_cap(cap, target.limit_s).token_share
                least = min(least, share - _level(target))
        if target := self.targets["ttft"]:
            waits = self._ttft(chain, rate_per_s, cv2, np.array([cap - 1]))
            share = share_within_both(target.limit_s, *waits, self.table.prompt_weights)[0]
            least = min(least, float(share) - _level(target))
        return least if math.isfinite(least) else None

    def means(self, rate_per_s: float, cv2: float, cap: int) -> tuple[float, float]:
        """Mean TTFT and TPOT [s] under a batch limit: what orders equal fleets."""
        chain = self.chain(rate_per_s, cv2)
        if chain is None:
            return math.inf, math.inf
        running = chain.mean_running(cap)
        wait, latency = self.prefill(rate_per_s, cv2, np.array([running]))
        ttft = float(wait.mean_s[0]) + float(latency[0] @ self.table.prompt_weights)
        return ttft, chain.mean_tpot(cap)

    def best_case_s(self, target: Slo) -> float:
        """The percentile of a metric [s] with no other request on the replica."""
        q = target.percentile / 100.0
        _, latency = self.prefill(0.0, 1.0, np.array([1.0]))
        prompt = self.workload.new_prompt.quantile(q)
        ttft = float(np.interp(prompt, self.table.prompt_tokens, latency[0]))
        tpot = float(self.table.decode_s[0])
        tokens = max(self.workload.output.quantile(q) - 1.0, 0.0)
        return {"ttft": ttft, "tpot": tpot, "itl": tpot, "e2e": ttft + tpot * tokens}[target.metric]

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
        wait, latency = self.prefill(rate_per_s, cv2, np.array([running]))
        probability, given = chain.waiting()
        wait = wait + admission_wait(probability[cap - 1 : cap], given[cap - 1 : cap])
        weights = self.table.prompt_weights
        one = Wait(wait.busy[0], wait.mean_s[0], wait.second_s2[0])
        mean = float(one.mean_s) + float(latency[0] @ weights)
        ttft = figures(mean, levels, sum_percentiles(one, latency[0], weights, levels))
        tpot_values = chain.tpot_percentiles(cap, levels)
        tpot = figures(chain.mean_tpot(cap), levels, tpot_values)
        itl = self._gaps(chain, rate_per_s, cap, levels)
        load = self.gap_stalls(rate_per_s, running)[3]
        itl["mean"] = max(itl["mean"], tpot["mean"])
        return Latencies(ttft, tpot, itl, e2e_figures(
            ttft, self._whole(chain, cap, levels), self.workload), running, load,
                         {"admission_wait_share": float(probability[cap - 1])})

    def _whole(self, chain: Chain, cap: int, levels: tuple[float, ...]) -> dict[str, float]:
        """TPOT [s] of answers as long as the mean, and as each percentile of their length."""
        output = self.workload.output
        answers = [output.quantile(p / 100.0) for p in levels]
        values = chain.tpot_percentiles(cap, levels, Gaps.of_each(answers))
        return figures(chain.mean_tpot(cap, constant(output.mean).gaps), levels, values)

    def gap(self, tpot_s: Array) -> Array:
        """Gap between two tokens when no prefill falls into it [s] over ``n``."""
        return self.table.decode_s[: len(tpot_s)]


def mean_wait_s(rate_per_s: float, cv2: float, kept_s: Array | float, square_s2: Array | float
                ) -> Array | float:
    """Mean wait [s] of :func:`planner.queueing.mg1_wait` from two moments of the service.

    Parameters
    ----------
    kept_s, square_s2 : float or ndarray
        Mean [s] and mean of squares [s^2] of what a prompt keeps the prefill server; below full.
    """
    ahead = burst_ahead(cv2)
    return (rate_per_s * square_s2 / 2.0 + ahead * kept_s) / (1.0 - rate_per_s * kept_s)


def _level(target: Slo) -> float:
    return target.percentile / 100.0 - 1e-6


def _first_failure(held: dict[str, NDArray[np.bool_]]) -> str:
    """The constraint without which some cap would do, else the one that fails most."""
    for name in sorted(held, key=lambda n: n == "throughput"):
        others = [v for k, v in held.items() if k != name]
        if others and np.logical_and.reduce(others).any():
            return name
    return min(held, key=lambda name: int(held[name].sum()))
