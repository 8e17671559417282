"""Request-level (static) batching: a batch runs until its longest answer is done.

The baseline before iteration-level scheduling (Orca, OSDI 2022, section 3). When the replica is
free it takes what waits, at most ``M``; a cycle of ``b`` requests takes
``prefill(b) + o_max(b) D(b)``, so at rate ``lambda`` the batch settles at ``b = lambda cycle(b)``.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from planner.memory import sequence_bytes_per_gpu
from planner.queueing import PERCENTILES
from planner.roofline import StepBatch
from planner.setups.base import Latencies, Table, Verdict, e2e_figures, figures
from planner.setups.continuous import Array
from planner.workload import Slo

_NORMAL = NormalDist()
CROWD = 0.7
"""Percentile of the batches whose cycle a request is taken to wait for."""


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
        n = table.n[: int(self.caps[-1])] if self.caps.size else table.n[:1]
        prompt = self.workload.new_prompt
        self.prefill_s = np.asarray(table.model.seconds(StepBatch(
            prefill_tokens=n * prompt.mean, prefill_sequences=n,
            cached=self.workload.prompt.mean - prompt.mean)))
        self.decode_s = table.decode_s[: len(n)]
        self.cycle_s = self.prefill_s + longest_of(self.workload.output.tokens,
                                                   self.workload.output.weights, n) * self.decode_s
        self.n = n

    def _reserved_cap(self) -> int:
        """Batches whose cache fits with every sequence at its 99th percentile length."""
        longest = (self.workload.prompt.quantile(0.99) + self.workload.output.quantile(0.99))
        each = sequence_bytes_per_gpu(self.table.deployment, longest)
        pool = self.table.memory.kv_pool_bytes
        if each <= 0:
            return 10**6
        return math.floor(max(pool, 0.0) / each) * self.table.deployment.layout.data

    def ceiling_rps(self) -> float:
        """Highest batch over cycle."""
        return float((self.n / self.cycle_s).max())

    def check(self, rate_per_s: float, cv2: float) -> Verdict:
        """Whether a rate [1/s] per replica holds, and under which batch limit."""
        if not self.caps.size:
            return Verdict(False, 0, "memory")
        failed = "throughput"
        for cap in self.caps[::3][::-1]:
            seen = self.latencies(rate_per_s, cv2, int(cap))
            if seen is None:
                continue
            failed = self._late(seen)
            if not failed:
                return Verdict(True, int(cap))
        return Verdict(False, 0, failed)

    def _late(self, seen: Latencies) -> str:
        values = {"ttft": seen.ttft_s, "tpot": seen.tpot_s, "itl": seen.itl_s, "e2e": seen.e2e_s}
        for target in self.workload.slos:
            if values[target.metric][f"p{target.percentile:g}"] > target.limit_s:
                return target.metric
        return ""

    def means(self, rate_per_s: float, cv2: float, cap: int) -> tuple[float, float]:
        """Mean TTFT and TPOT [s] under a batch limit."""
        seen = self.latencies(rate_per_s, cv2, cap)
        return (math.inf, math.inf) if seen is None else (seen.ttft_s["mean"], seen.tpot_s["mean"])

    def best_case_s(self, target: Slo) -> float:
        """The percentile of a metric [s] with no other request on the replica."""
        q = target.percentile / 100.0
        table = self.table
        prompt = self.workload.new_prompt.quantile(q)
        ttft = float(np.interp(prompt, table.prompt_tokens, table.first_token_s))
        tpot = float(table.decode_s[0])
        tokens = max(self.workload.output.quantile(q) - 1.0, 0.0)
        return {"ttft": ttft, "tpot": tpot, "itl": tpot, "e2e": ttft + tpot * tokens}[target.metric]

    def latencies(self, rate_per_s: float, cv2: float, cap: int) -> Latencies | None:
        """What users see [s] under a batch limit; None when the replica cannot keep up."""
        cycle = self.cycle_s[:cap]
        keeps_up = self.n[:cap] / cycle >= rate_per_s
        if not keeps_up[-1]:
            return None
        batch = int(np.argmax(keeps_up)) + 1
        arriving, variance = self._met(rate_per_s, cv2, batch)
        levels = tuple(sorted({*PERCENTILES, *(s.percentile for s in self.workload.slos)}))

        def crowd(level: float) -> int:
            size = arriving + max(_NORMAL.inv_cdf(level), 0.0) * math.sqrt(variance)
            return min(cap, max(batch, math.ceil(size)))

        load = rate_per_s * float(cycle[cap - 1]) / cap
        queue = self._queue_s(float(cycle[cap - 1]), cap, load, cv2)
        busy = min(1.0, rate_per_s * float(cycle[batch - 1]))
        profile = self.table.deployment.profile
        many = crowd(CROWD)
        lag = float(self.table.lag_s @ self.table.prompt_weights)
        prefill = float(self.prefill_s[many - 1]) * profile.ttft_scale + lag
        rest_s, share, mean_rest = self._rest(many)
        ends = np.interp([max(0.0, (p / 100.0 - (1.0 - busy)) / busy) if busy > 0 else 0.0
                          for p in levels], share, rest_s)
        waits = [float(w) - queue * math.log(1.0 - p / 100.0)
                 for p, w in zip(levels, ends, strict=True)]
        ttft = figures(busy * mean_rest + queue + prefill, levels, [w + prefill for w in waits])
        tpot = figures(float(self.decode_s[crowd(0.5) - 1]), levels,
                       [float(self.decode_s[crowd(p / 100.0) - 1]) for p in levels])
        e2e = e2e_figures(ttft, tpot, self.workload)
        return Latencies(ttft, tpot, dict(tpot), e2e, float(batch), load)

    def _cycles(self, batch: int) -> tuple[Array, Array]:
        """Length of a cycle of ``batch`` requests [s], by its longest answer, with weights."""
        output = self.workload.output
        reached = np.minimum(np.cumsum(output.weights), 1.0) ** batch
        weights = np.diff(reached, prepend=0.0)
        return self.prefill_s[batch - 1] + output.tokens * self.decode_s[batch - 1], weights

    def _met(self, rate_per_s: float, cv2: float, batch: int) -> tuple[float, float]:
        """Mean and variance of the requests that come in the cycle which one of them meets.

        Long cycles are met more often: their mean as met is E[C^2] / E[C] (inspection paradox).
        """
        cycle, weights = self._cycles(batch)
        first, second, third = (float(weights @ cycle**k) for k in (1, 2, 3))
        met = second / first
        mean = rate_per_s * met + max(cv2 - 1.0, 0.0) / 2.0
        return mean, mean * max(cv2, 1.0) + rate_per_s**2 * max(third / first - met**2, 0.0)

    def _rest(self, batch: int) -> tuple[Array, Array, float]:
        """Rest of a running cycle: times [s], the share of rests up to each, and the mean [s].

        P(rest <= t) = E[min(C, t)] / E[C], linear between the points of C.
        """
        cycle, weights = self._cycles(batch)
        times = np.concatenate([[0.0], cycle])
        share = np.minimum(times[:, None], cycle) @ weights / float(weights @ cycle)
        return times, share, float(weights @ cycle**2 / (2.0 * weights @ cycle))

    @staticmethod
    def _queue_s(cycle_s: float, cap: int, load: float, cv2: float) -> float:
        """Mean wait beyond the running cycle, as of ``cap`` servers (Sakasegawa 1977)."""
        if load >= 1.0:
            return math.inf
        bulk = load ** (math.sqrt(2.0 * (cap + 1.0)) - 1.0) / (cap * (1.0 - load))
        return float(cycle_s * bulk * (max(cv2, 0.0) + 1.0) / 2.0)


def longest_of(tokens: Array, weights: Array, n: Array) -> Array:
    """E[longest of n answers] [token] = sum of x (F(x)^n - F(x-)^n)."""
    above = np.minimum(np.cumsum(weights), 1.0)
    below = np.concatenate([[0.0], above[:-1]])
    return np.asarray((above[None, :] ** n[:, None] - below[None, :] ** n[:, None]) @ tokens)
