"""What a simulation saw: per request, per pool, over time, against the targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.queueing import PERCENTILES
from planner.simulator.arrays import BIN_WIDTH, FIRST_GAP_S
from planner.simulator.fleet import SimulatedFleet
from planner.simulator.table import RequestTable
from planner.units import s_to_ms
from planner.workload import Slo

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class PoolSums:
    """One pool over the run.

    Attributes
    ----------
    role, gpu : str
    servers, gpus : int
        Data-parallel ranks of all replicas; GPUs.
    utilization : float
        Share of the time from the first arrival to the last answer that ranks ran steps.
    mean_running : float
        Sequences per rank, over the same time.
    kv_share : float
        Share of the KV memory in use, over the same time; 0 where memory is not simulated.
    iterations, passes : int
        Decode steps, and passes that held prompts.
    allocated_bytes, freed_bytes : float
        [B] of blocks; equal when all are given back.
    running_s : float
        [s] sum over requests of the time in service.
    """

    role: str
    gpu: str
    servers: int
    gpus: int
    utilization: float
    mean_running: float
    kv_share: float
    iterations: int
    passes: int
    allocated_bytes: float
    freed_bytes: float
    running_s: float


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Everything a run left behind; arrays have one row a request, in the order of arrival.

    Attributes
    ----------
    ttft_s, tpot_s, e2e_s : ndarray, shape (N,)
        [s] time to first token, time per output token ``(e2e - TTFT) / (n - 1)`` (NaN for answers
        of one token), whole request. NaN for refused requests.
    prefill_done_s : ndarray, shape (N,)
        [s] from arrival to the end of the prefill (two pools; else TTFT).
    worst_gap_s : ndarray, shape (N,)
        [s] longest time between two outputs.
    queued_s : ndarray, shape (N,)
        [s] waiting for a place, in all queues.
    transfer_s : ndarray, shape (N,)
        [s] that the KV transfer added after the prefill (two pools).
    gaps : ndarray of int
        Gaps between outputs: one less than the steps that wrote the answer. A step may write
        several tokens, so with speculation they are fewer than those between tokens.
    late_gaps : ndarray of int
        Those above the ITL target.
    preemptions, retries : ndarray of int
        Times a request was computed again for want of memory, and after a failure.
    finished : ndarray of bool
        False for requests that no replica could hold.
    counted : ndarray of bool
        After the warm-up.
    simulated_s : float
        [s] from the first arrival to the last answer.
    wall_s : float
        [s] that the run took.
    gap_counts : ndarray of int
        Histogram of the gaps between outputs in bins of 0.4 %.
    timeline : dict of lists
        Columns of the timeline (:meth:`document`).
    cancelled : bool
        The run was stopped by its caller; what is here covers the requests that had finished.
    """

    fleet: SimulatedFleet
    requests: RequestTable
    ttft_s: Array
    tpot_s: Array
    e2e_s: Array
    prefill_done_s: Array
    worst_gap_s: Array
    queued_s: Array
    transfer_s: Array
    gaps: Counts
    late_gaps: Counts
    preemptions: Counts
    retries: Counts
    finished: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    simulated_s: float
    wall_s: float
    gap_counts: Counts
    pools: tuple[PoolSums, ...]
    timeline: dict[str, Any] = field(default_factory=dict)
    cancelled: bool = False

    # -- figures ------------------------------------------------------------------------------

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Requests that count: served, and after the warm-up."""
        return np.asarray(self.finished & self.counted)

    def levels(self) -> tuple[float, ...]:
        """Percentiles to report: the usual ones and those of the targets."""
        return tuple(sorted({*PERCENTILES, *(s.percentile for s in self.fleet.slos)}))

    def figure_s(self, metric: str) -> Figures:
        """Mean and percentiles [s] of ``ttft tpot itl e2e worst_gap queue prefill_done transfer``.

        ``itl`` is over all gaps between outputs, the others over requests. None without a value.
        """
        if metric == "itl":
            return gap_figures(self.gap_counts, self.levels())
        column = {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s,
                  "worst_gap": np.where(self.requests.output_tokens > 1, self.worst_gap_s,
                                        math.nan),
                  "queue": self.queued_s, "prefill_done": self.prefill_done_s,
                  "transfer": self.transfer_s}[metric]
        return figures(column[self.seen], self.levels())

    def meets(self, slo: Slo) -> NDArray[np.bool_]:
        """Requests within a target, shape (N,).

        Answers of one token have no time per token. A request is within an ITL target when the
        target's share of its own gaps is.
        """
        if slo.metric == "itl":
            allowed = (1.0 - slo.percentile / 100.0) * self.gaps + 1e-9
            return np.asarray(self.finished & (self.late_gaps <= allowed))
        column = {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s}[slo.metric]
        none = np.isnan(column) if slo.metric == "tpot" else np.zeros(len(column), dtype=bool)
        with np.errstate(invalid="ignore"):
            return np.asarray(self.finished & ((column <= slo.limit_s) | none))

    def attainment(self) -> dict[str, float | None]:
        """Share of the counted requests within each target, and within all.

        Refused requests count as missed. For ``tpot`` of the requests with a second token, for
        ``itl`` the share of gaps.
        """
        counted, several = self.counted, self.counted & (self.requests.output_tokens > 1)
        total = int(counted.sum())
        shares: dict[str, float | None] = {}
        for slo in self.fleet.slos:
            if slo.metric == "itl":
                gaps = int(self.gaps[self.seen].sum())
                late = int(self.late_gaps[self.seen].sum())
                shares["itl"] = 1.0 - late / gaps if gaps else None
            else:
                among = several if slo.metric == "tpot" else counted
                shares[slo.metric] = float(self.meets(slo)[among].mean()) if among.any() else None
        shares["all"] = float(self.good()[counted].mean()) if total else None
        return shares

    def good(self) -> NDArray[np.bool_]:
        """Requests within every target, shape (N,)."""
        held = self.finished.copy()
        for slo in self.fleet.slos:
            held &= self.meets(slo)
        return held

    def missed_slos(self) -> list[str]:
        """Metrics whose target is not held at its percentile."""
        shares = self.attainment()
        return [s.metric for s in self.fleet.slos
                if (share := shares[s.metric]) is not None and share < s.percentile / 100.0 - 1e-9]

    @property
    def goodput_rps_per_gpu(self) -> float:
        """Requests/s and GPU [1/s] that meet every target, over the arrivals that count."""
        counted = np.flatnonzero(self.counted)
        if len(counted) < 2 or not self.fleet.gpus:
            return 0.0
        first, last = self.requests.arrival_s[counted[0]], self.requests.arrival_s[counted[-1]]
        if last <= first:
            return 0.0
        rate = (len(counted) - 1) / float(last - first)
        return rate * float(self.good()[counted].mean()) / self.fleet.gpus

    # -- documents ----------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The result in the words and units of ``GET /simulations/{id}`` (without ``promised``)."""
        return {
            "requests": len(self.requests), "counted": int(self.seen.sum()),
            "refused": int((~self.finished).sum()) if not self.cancelled else 0,
            "simulated_s": self.simulated_s, "wall_s": self.wall_s, "gpus": self.fleet.gpus,
            "setup": self.fleet.setup,
            "observed": {f"{m}_ms": in_ms(self.figure_s(m)) for m in (
                "ttft", "tpot", "itl", "e2e", "worst_gap", "queue", "prefill_done", "transfer")},
            "attainment": self.attainment(), "missed": self.missed_slos(),
            "goodput_rps_per_gpu": self.goodput_rps_per_gpu,
            "utilization": max(p.utilization for p in self.pools),
            "lost": int((self.retries > 0).sum()), "retries": int(self.retries.sum()),
            "preemptions": int(self.preemptions.sum()),
            "pools": [{"role": p.role, "gpu": p.gpu, "gpus": p.gpus, "servers": p.servers,
                       "utilization": p.utilization, "mean_running": p.mean_running,
                       "kv_share": p.kv_share, "decode_steps": p.iterations,
                       "prefill_passes": p.passes} for p in self.pools],
            "timeline": self.timeline,
        }

    def rows(self) -> Mapping[str, NDArray[Any]]:
        """Columns of ``/simulations/{id}/requests``, one row a request."""
        r = self.requests
        return {"arrival_s": r.arrival_s, "prompt_tokens": r.prompt_tokens,
                "output_tokens": r.output_tokens, "cached_tokens": r.cached_tokens,
                "ttft_ms": s_to_ms_array(self.ttft_s), "tpot_ms": s_to_ms_array(self.tpot_s),
                "worst_gap_ms": s_to_ms_array(self.worst_gap_s),
                "e2e_ms": s_to_ms_array(self.e2e_s), "queue_ms": s_to_ms_array(self.queued_s),
                "prefill_done_ms": s_to_ms_array(self.prefill_done_s),
                "transfer_ms": s_to_ms_array(self.transfer_s),
                "preemptions": self.preemptions, "retries": self.retries,
                "within_slo": self.good(), "counted": self.counted, "served": self.finished}


def s_to_ms_array(values: Array) -> Array:
    """Seconds as milliseconds."""
    return np.asarray(values * s_to_ms(1.0))


def figures(values: Array, levels: tuple[float, ...]) -> Figures:
    """Mean and percentiles of values, NaN left out; None without any."""
    kept = values[~np.isnan(values)]
    names = ["mean", *(f"p{level:g}" for level in levels)]
    if not kept.size:
        return dict.fromkeys(names)
    numbers = [float(kept.mean()), *(float(x) for x in np.percentile(kept, levels))]
    return dict(zip(names, numbers, strict=True))


def gap_figures(counts: Counts, levels: tuple[float, ...]) -> Figures:
    """Mean and percentiles of a histogram of gaps, to the middle of a bin (0.2 %)."""
    names = ["mean", *(f"p{level:g}" for level in levels)]
    total = int(counts.sum())
    if not total:
        return dict.fromkeys(names)
    middle = FIRST_GAP_S * np.exp((np.arange(len(counts)) + 0.5) * BIN_WIDTH)
    reached = np.cumsum(counts) / total
    at = [min(int(np.searchsorted(reached, p / 100.0 - 1e-12)), len(counts) - 1) for p in levels]
    return dict(zip(names, [float(counts @ middle) / total, *(float(middle[i]) for i in at)],
                    strict=True))


def in_ms(values: Figures) -> Figures:
    """A figure in milliseconds."""
    return {k: None if v is None else s_to_ms(v) for k, v in values.items()}
