"""Prefill and decode on pools of their own, joined by a KV transfer.

The prefill pool is a set of M/G/1 servers; the decode pool a chain without interference. TTFT as
the client sees it (vLLM, Dynamo) is prefill queue + prefill + transfer + wait for a place + first
decode step; ``prefill_done`` (DistServe, Splitwise, Mooncake) stops after the prefill. DistServe
(OSDI 2024) section 4; Splitwise (ISCA 2024) section 4 on layer-wise transfer.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.arrivals import Influx, burst_ahead, burst_within
from planner.collectives import kv_transfer_s, network_bytes_per_s
from planner.loops.gamma import TINY
from planner.loops.two_pools import decode_limit, prompts_placed, starts_placed
from planner.queueing import (
    PERCENTILES,
    Chain,
    Moments,
    Wait,
    mg1_wait_of,
    never,
    no_wait,
    placed_percentiles,
    sum_percentiles,
)
from planner.roofline import Deployment
from planner.setups.base import (
    Latencies,
    Table,
    Verdict,
    between_tokens,
    e2e_figures,
    figures,
    labelled,
    levels_of,
    parts_of,
    shown,
    with_parts,
)
from planner.setups.continuous import RESIDUAL, Array, limit_of, most_tokens, outputs_of
from planner.stepping import highest_rate

MAX_LINK_LOAD = 0.8
"""Most of its network cards' time that a replica may spend on caches."""
KEPT_CHAINS = 4
"""Laws of a decode pool's batch that are kept."""
ADMISSION_SHARE = 0.01
"""Share of the requests that may wait for a place in a decode batch where fewer do anyway."""
ADMISSION_SHARES = tuple(ADMISSION_SHARE * 0.8**k for k in range(-20, 21))
"""Shares that may wait which are tried, from 87 % down to 0.01 %: they size a decode pool before
there is a prefill pool beside it. The wait itself is a part of TTFT; a strict percentile of that
may hold beside no pool but one where hardly any request waits."""


def wire_s(table: Table) -> Array:
    """Seconds [s] that a request's cache keeps a replica's own network cards busy, per point."""
    d = table.deployment
    return kv_transfer_s(table.prompt_cache_bytes, d.gpu, d.gpu, d.layout.gpus, d.layout.gpus,
                         d.profile)


@dataclass(frozen=True)
class Admission:
    """What a request waits for on the decode side.

    Attributes
    ----------
    cards : Wait
        For the network cards, where other caches arrive.
    place : Wait
        For a place in the batch.
    """

    cards: Wait
    place: Wait

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        """What :func:`planner.loops.two_pools.prompts_placed` asks of them."""
        cards, place = self.cards, self.place
        return (float(cards.busy), float(cards.mean_s), float(cards.second_s2), float(place.busy),
                *place.given)


NO_ADMISSION = Admission(no_wait(), no_wait())


class DecodePool:
    """Decode replicas: continuous batching without prefills.

    Parameters
    ----------
    table : Table
    admission_share : float
        Most requests that may wait for a place.
    """

    setup = "disaggregated"
    role = "decode"

    def __init__(self, table: Table, admission_share: float = ADMISSION_SHARE) -> None:
        self.table = table
        self.admission_share = admission_share
        self.workload = table.workload
        self.caps = table.caps
        scale = table.deployment.profile.disaggregated_scale
        self.targets = tuple((m, self.workload.slo(m)) for m in ("tpot", "itl"))
        self.token_s = table.decode_s * scale
        self.step_s = table.step_s * scale
        limits_s, levels = zip(*(limit_of(t) for _, t in self.targets), strict=True)
        self.drafts = drafts = table.drafts
        self._limits = np.array(limits_s), np.array(levels), np.stack(
            [drafts.reference.paces, np.full_like(drafts.reference.paces, drafts.accepted)])
        self._wire = Moments.of(wire_s(table), self.workload.prompt.weights)
        self._receive_s = self._wire.first
        self._chains: dict[tuple[float, float], Chain] = {}

    def check(self, rate_per_s: float, cv2: float) -> Verdict:
        """Whether a rate [1/s] per replica holds TPOT, and few enough wait for a place."""
        if not self.caps.size:
            return Verdict(False, 0, "memory")
        if self.receiving(rate_per_s) >= MAX_LINK_LOAD:
            return Verdict(False, 0, "kv_transfer")
        influx = Influx.of(cv2, self.table.deployment.layout.data)
        place, failed = decode_limit(
            self.caps, max(rate_per_s * self.workload.output.mean, TINY), self.token_s, influx.peak,
            influx.full_peak, self.admission_share, *self._limits)
        if place >= 0:
            return Verdict(True, int(self.caps[place]))
        return Verdict(False, 0, ("throughput", *(m for m, _ in self.targets))[failed])

    @cached_property
    def ceiling(self) -> float:
        """Rate [1/s] that no replica exceeds: the highest n / (o D); with a target on TPOT of the
        n whose tokens meet it, which must write the share that its percentile asks for (see
        :attr:`planner.setups.continuous.Continuous.ceiling`)."""
        return float(highest_rate(
            self.token_s, np.zeros(1), self.workload.output.mean,
            *most_tokens(dict(self.targets)["tpot"], self.drafts.quickest)))

    def allowing(self, admission_share: float) -> DecodePool:
        """The same replicas where another share may wait for a place."""
        other = copy(self)
        other.admission_share = admission_share
        return other

    def receiving(self, rate_per_s: float) -> float:
        """Share of the replica's network cards that arriving caches fill."""
        return rate_per_s * self._receive_s

    def chain(self, rate_per_s: float, cv2: float) -> Chain:
        """The running sequences at an arrival rate; the last few are kept, as a pool is asked about
        its own load again and again."""
        known, asked = self._chains, (rate_per_s, cv2)
        if asked not in known:
            if len(known) >= KEPT_CHAINS:
                known.clear()
            known[asked] = Chain.of(
                rate_per_s, self.workload.output.mean, self.token_s,
                Influx.of(cv2, self.table.deployment.layout.data), gaps=self.drafts.own,
                outputs=outputs_of(self.drafts))
        return known[asked]

    def first_step_s(self, chain: Chain, cap: int) -> float:
        """Rest of the running step plus the first step [s] at the mean batch."""
        running = chain.mean_running(cap)
        step = float(np.interp(running, self.table.n, self.step_s))
        return (1.0 + RESIDUAL) * step

    def admission(self, chain: Chain, cap: int) -> Admission:
        """The waits under a batch limit.

        The chain takes answers as exponential. By Allen & Cunneen's rule the mean wait for a place
        is (ca^2 + cs^2) / (ca^2 + 1) of its own, cs^2 the squared CV of the answers and
        ``full_peak = (1 + ca^2) / 2``. Its squares are those of M/G/1: a geometric number of rests
        of an answer, E[W^2 | W > 0] / E[W | W > 0]^2 = k (1 - r) + 2 r, with k that of a rest.
        Those who wait only for others of their own burst, of which those count that come one while
        the other is written, wait for whole answers.
        """
        output, influx = self.workload.output, chain.influx
        probability, given_s = (float(column[cap - 1]) for column in chain.waiting())
        cards = mg1_wait_of(chain.load / output.mean, self._wire)
        if not math.isfinite(given_s):
            return Admission(cards, never())
        ratio, uneven = float(chain.ratio[cap - 1]), (output.cv2 - 1.0) / (2.0 * influx.full_peak)
        burst = chain.behind_burst(
            cap, self._burst(chain, given_s * (1.0 - ratio) * cap / influx.ranks))
        parts = ((probability, given_s * (1.0 + uneven), output.rest),
                 (burst, given_s * (1.0 + max(uneven, 0.0)), max(output.rest, 2.0)))
        moments = [sum(p * g**k * (1.0 if k < 2 else rest * (1.0 - ratio) + 2.0 * ratio)
                       for p, g, rest in parts) for k in range(3)]
        return Admission(cards, Wait(*np.array(moments)))


    def _burst(self, chain: Chain, stay_s: float) -> float:
        """Requests of its own burst ahead of a request that came one while the other was written,
        ``stay_s`` [s], mean."""
        ahead, cv = chain.influx.full_peak - 1.0, self.workload.arrival_cv
        if ahead <= 0.0:
            return 0.0
        servers = burst_ahead(cv**2) / ahead  # data-parallel ranks of all replicas
        rate_per_s = chain.load / self.workload.output.mean / chain.influx.ranks * servers
        return ahead * burst_within(cv, rate_per_s, stay_s)


class PrefillPool:
    """Prefill replicas that pack ``batch`` prompts when they queue.

    A cache leaves layer by layer while its prompt runs, so a request keeps the pass or the network
    cards from the next, whichever it takes longer: of two equal queues in a row only the slower one
    is waited for (Friedman 1965, *Reduction methods for tandem queuing systems*).

    Parameters
    ----------
    table : Table
    batch : int
        Prompts packed into one pass.
    """

    setup = "disaggregated"
    role = "prefill"

    def __init__(self, table: Table, batch: int = 1) -> None:
        self.table = table
        self.workload = table.workload
        self.batch = batch
        tokens = table.prompt_tokens
        cached = self.workload.prompt.tokens - tokens
        self.pass_s = table.prefill_s if batch == 1 else table.times.seconds(
            new_tokens=tokens * batch, prompts=float(batch), cached=cached)
        profile = table.deployment.profile
        self.latency_s = self.pass_s * profile.ttft_scale + table.lag_s
        self.mean_s = float(self.latency_s @ table.prompt_weights)
        sends_s = wire_s(table)
        self.service_s = np.maximum(self.pass_s / batch * table.occupancy, sends_s)
        self._mean_service_s = float(self.service_s @ table.prompt_weights)
        self.service = Moments.of(self.service_s / table.occupancy, table.prompt_weights)
        self.target = self.workload.slo("ttft")
        self._send_s = float(sends_s @ table.prompt_weights)
        self._transfers: dict[float, tuple[Array, float]] = {}

    def transfer(self, target: Deployment) -> tuple[Array, float]:
        """Seconds [s] that the KV transfer to a replica adds after the prefill, per point of the
        prompts, and on average.

        The whole prompt's cache moves; layer by layer while the prefill still computes, so only
        the part that does not hide behind it, and the last layer, come on top.
        """
        source = self.table.deployment
        bandwidth = network_bytes_per_s(source.gpu, target.gpu, source.layout.gpus,
                                        target.layout.gpus)
        if bandwidth not in self._transfers:
            whole = self.table.prompt_cache_bytes / bandwidth + source.profile.collective_latency_s
            hidden = self.pass_s * (1.0 - 1.0 / source.llm.layers)
            added = np.maximum(whole - hidden, 0.0) + whole / source.llm.layers
            self._transfers[bandwidth] = added, float(added @ self.table.prompt_weights)
        return self._transfers[bandwidth]

    @property
    def fits(self) -> bool:
        """Whether the cache of the packed prompts fits."""
        return self.table.memory_cap >= self.batch

    def hopeless(self, handover_s: Array) -> str:
        """What fails with no other request (``""``: nothing), whatever the number of replicas."""
        if not self.fits:
            return "memory"
        target = self.workload.slo("ttft")
        if target is None:
            return ""
        alone = self.table.prompt_weights @ (self.latency_s + handover_s <= target.limit_s)
        return "" if float(alone) >= target.level else "ttft"

    def check(self, rate_per_s: float, cv2: float, handover_s: Array | float = 0.0,
              admission: Admission = NO_ADMISSION) -> Verdict:
        """Whether TTFT holds when hand-over and admission come on top.

        Parameters
        ----------
        handover_s : float or ndarray, shape (k,)
            [s] transfer and first decode step, per point of the prompt lengths.
        admission : Admission, optional
            Waits on the decode side.
        """
        if not self.fits:
            return Verdict(False, 0, "memory")
        if self.sending(rate_per_s) >= MAX_LINK_LOAD:
            return Verdict(False, 0, "kv_transfer")
        if not self.load(rate_per_s) < 1.0:
            return Verdict(False, 0, "throughput")
        target = self.target
        if target is None:
            return Verdict(True, self.batch)
        ranks = float(self.table.deployment.layout.data)
        held = prompts_placed(
            rate_per_s / ranks, *self.service, self.table.occupancy * ranks,
            1.0 + (cv2 - 1.0) / ranks, *admission.numbers, target.limit_s,
            target.level, self.latency_s + handover_s,
            self.table.prompt_weights) and self.placed(admission.place, handover_s)
        return Verdict(held, self.batch if held else 0, "" if held else "ttft")

    def placed(self, place: Wait, handover_s: Array | float) -> bool:
        """Whether the wait for a place alone would let enough requests start in time; with the
        others before it the tail is matched by two moments only."""
        target = self.target
        if target is None:
            return True
        if float(place.busy) <= 1.0 - target.level:
            return True
        alone = (float(x) for x in (place.busy, place.mean_s, place.second_s2))
        return bool(starts_placed(target.limit_s, target.level, *alone, 0.0, 0.0, 0.0,
                                  self.latency_s + handover_s, self.table.prompt_weights))

    @cached_property
    def ceiling(self) -> float:
        """Rate [1/s] of a replica that never idles."""
        return 1.0 / self._mean_service_s

    def sending(self, rate_per_s: float) -> float:
        """Share of the replica's network cards that leaving caches fill."""
        return rate_per_s * self._send_s

    def wait(self, rate_per_s: float, cv2: float) -> Wait:
        """Wait for the prefill server."""
        return self.table.wait(rate_per_s, self.service, cv2)

    def mean_ttft_s(self, rate_per_s: float, cv2: float, handover_s: Array) -> float:
        """Mean TTFT [s] with the hand-over to a decode pool; with its mean TPOT it orders pairs."""
        seen_s = self.latency_s + handover_s
        return float(self.wait(rate_per_s, cv2).mean_s) + float(seen_s @ self.table.prompt_weights)

    def load(self, rate_per_s: float) -> float:
        """Utilisation of a replica."""
        return rate_per_s * self._mean_service_s


@dataclass(frozen=True, slots=True)
class Pair:
    """A prefill and a decode pool that serve the same requests."""

    prefill: PrefillPool
    decode: DecodePool

    def transfer_s(self) -> Array:
        """See :meth:`PrefillPool.transfer`."""
        return self.prefill.transfer(self.decode.table.deployment)[0]

    def mean_transfer_s(self) -> float:
        """Mean of :meth:`transfer_s` over the prompts [s]."""
        return self.prefill.transfer(self.decode.table.deployment)[1]

    def handover_s(self, chain: Chain, cap: int) -> Array:
        """Transfer and first decode step [s], per point of the prompt lengths."""
        return self.transfer_s() + self.decode.first_step_s(chain, cap)

    def latencies(self, rates: tuple[float, float], cv2s: tuple[float, float], cap: int
                  ) -> Latencies | None:
        """What users see at the rates [1/s] of one prefill and one decode replica."""
        chain = self.decode.chain(rates[1], cv2s[1])
        wait = self.prefill.wait(rates[0], cv2s[0])
        if chain.ratio[cap - 1] >= 1.0 or not np.isfinite(wait.mean_s):
            return None
        slos = self.decode.workload.slos
        levels = tuple(sorted({*PERCENTILES, *(s.percentile for s in slos)}))
        weights = self.prefill.table.prompt_weights
        done = self.prefill.latency_s
        seen = done + self.handover_s(chain, cap)
        admission = self.decode.admission(chain, cap)
        first, place = wait + admission.cards, admission.place
        workload = self.decode.workload
        asked = with_parts(levels, workload)
        ttft = figures(float(first.mean_s + place.mean_s) + float(seen @ weights), asked,
                       placed_percentiles(first, place, seen, weights, asked))
        tpot = figures(chain.mean_tpot(cap), levels, chain.tpot_percentiles(cap, levels))
        running = chain.mean_running(cap)

        def gaps() -> dict[str, float]:
            mean_s, found = chain.gap_figures(cap, levels)
            return between_tokens(figures(mean_s, levels, found), workload)

        def more() -> dict[str, float]:
            early = figures(0.0, levels, sum_percentiles(wait, done, weights, levels))
            return {"prefill_done_mean_s": float(wait.mean_s) + float(done @ weights),
                    "transfer_mean_s": self.mean_transfer_s(),
                    **{f"prefill_done_{key}_s": early[key] for key in levels_of(early)}}

        e2e = e2e_figures(parts_of(ttft, levels, workload.first_percentile),
                          self._whole(chain, cap, levels), workload)
        return Latencies(shown(ttft, levels), between_tokens(tpot, workload), gaps, e2e, running,
                         self.prefill.load(rates[0]), more)

    def _whole(self, chain: Chain, cap: int, levels: tuple[float, ...]) -> dict[str, float]:
        """TPOT [s] of answers as long as the mean, and as each percentile of their length; without
        drafts it is the same for every length."""
        drafts = self.decode.drafts
        parts = tuple(map(drafts.workload.token_percentile, levels))
        if drafts.speculative is None:
            return figures(chain.mean_tpot(cap), levels, chain.tpot_percentiles(cap, parts))
        values = chain.tpot_percentiles(cap, parts, drafts.at(levels))
        return labelled(chain.mean_tpot(cap, drafts.mean), levels, values)
