"""What the setups share: the serving table of a deployment, verdicts and latency figures.

A setup turns a deployment and a workload into columns over the number of running sequences
``n = 1..N`` and answers three questions about an arrival rate: does it hold (:class:`Verdict`),
what would users see (:class:`Latencies`), and what are the rows (operating points).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.drafts import Drafts, pace_at
from planner.kv_cache import sequence_cache_bytes
from planner.memory import MemoryBudget, max_running_sequences, memory_budget, stage_share
from planner.queueing import Moments, Wait, mg1_wait_of
from planner.requests import Limits, Speculative
from planner.roofline import Deployment, StepModel
from planner.steps import StepTimes
from planner.workload import Slo, Workload

Array = NDArray[np.float64]


class Verdict(NamedTuple):
    """Whether a rate holds on one replica.

    Attributes
    ----------
    ok : bool
    cap : int
        Batch limit that serves it (0 when none does).
    failed : str
        First constraint in the way: ``ttft tpot itl e2e throughput memory``; ``""`` when ok.
    """

    ok: bool
    cap: int
    failed: str = ""


@dataclass(frozen=True)
class Latencies:
    """What users see [s]: each a mapping of ``mean p50 p90 p95 p99``.

    TPOT and the gap between outputs are over answers with a second token; NaN where none has one.
    Gaps, and what else is known of a setup, are worked out when they are asked for: a sweep shows
    neither.
    """

    ttft_s: dict[str, float]
    tpot_s: dict[str, float]
    gaps: Callable[[], dict[str, float]]
    e2e_s: dict[str, float]
    mean_running: float
    prefill_load: float = 0.0
    more: Callable[[], dict[str, float]] = dict

    @cached_property
    def itl_s(self) -> dict[str, float]:
        """The gap between outputs, which are single tokens but for speculation."""
        return self.gaps()

    @cached_property
    def extra(self) -> dict[str, float]:
        """What only this setup has, by names of its own."""
        return self.more()

    def of(self, metric: str) -> dict[str, float]:
        """The figure of a metric: ``ttft tpot itl e2e``."""
        found: dict[str, float] = getattr(self, f"{metric}_s")
        return found


@dataclass(frozen=True, slots=True)
class Table:
    """A deployment's columns over ``n = 1..N`` and over the points of the prompt lengths.

    Attributes
    ----------
    times : StepTimes
        Of the replica's steps, see :meth:`planner.steps.StepTimes.seconds`.
    n : ndarray, shape (N,)
    decode_s : ndarray, shape (N,)
        [s] per output token with n running and no prefill beside (speculation included).
    step_s : ndarray, shape (N,)
        [s] of the engine step itself.
    prefill_s : ndarray, shape (k,)
        [s] of GPU time to prefill a prompt alone, per point of the prompt lengths.
    lag_s : ndarray, shape (k,)
        [s] from request to first token in which the prefill does not run.
    first_token_s : ndarray, shape (k,)
        [s] from request to first token on an idle replica: the engine's scale on the prefill
        and the lag.
    prompt_cache_bytes : ndarray, shape (k,)
        [B] of the cache of a whole prompt.
    occupancy : float
        Share of a prefill that keeps the replica from the next one (pipeline, data parallel).
    caps : ndarray of int
        Batch limits to try: a fixed nested sequence, so that more memory never removes one.
    drafts : Drafts
        Tokens of a step, and how they differ among answers.
    """

    deployment: Deployment
    workload: Workload
    model: StepModel
    times: StepTimes
    memory: MemoryBudget
    n: Array
    decode_s: Array
    step_s: Array
    prefill_s: Array
    lag_s: Array
    first_token_s: Array
    prompt_cache_bytes: Array
    occupancy: float
    caps: NDArray[np.int64]
    drafts: Drafts
    tokens_per_decode: float = 1.0
    memory_cap: int = 0

    @property
    def prompt_tokens(self) -> Array:
        """[token] that a prefill computes, per point."""
        return self.workload.new_prompt.tokens

    @property
    def prompt_weights(self) -> Array:
        """Shares of the points."""
        return self.workload.prompt.weights

    def wait(self, rate_per_s: float, service: Moments, cv2: float, shared: float = 0.0,
             occupancy: float | None = None) -> Wait:
        """Wait for the prefills of a data-parallel rank; the ranks are dealt requests at random.

        Prompts that wait together may run in one pass, and the earlier ones then wait for the
        later. While a request waits for the rest of a pass, E[R] = W / (1 + rho), rho E[R] of work
        comes in after it: its wait is W (1 + (1 + s) rho) / (1 + rho).

        Parameters
        ----------
        service : Moments
            Of the time [s] of a prefill.
        shared : float
            s, the part of that work that the request waits for as well.
        occupancy : float, optional
            Share of the service that keeps the replica; that of whole prefills by default.
        """
        ranks = self.deployment.layout.data
        kept = (self.occupancy if occupancy is None else occupancy) * ranks
        return mg1_wait_of(rate_per_s / ranks, service, 1.0 + (cv2 - 1.0) / ranks, kept, shared)


@lru_cache(maxsize=64)
def cap_sequence(limit: int) -> tuple[int, ...]:
    """Batch limits up to ``limit``: all to 8, then four an octave; always the same sequence.

    A fixed sequence keeps answers monotone: a bigger pool only adds choices.
    """
    caps = []
    n = 1
    while n <= limit:
        caps.append(n)
        n += 1 if n < 8 else 2 ** (n.bit_length() - 3)
    return tuple(caps)


def build_table(deployment: Deployment, workload: Workload, limits: Limits,
                speculative: Speculative | None = None,
                fit: tuple[MemoryBudget, int] | None = None) -> Table:
    """Evaluate a deployment's decode and prefill columns once; ``fit`` is that of
    :func:`memory_fit`, where it is known."""
    profile = deployment.profile
    top = limits.max_sequences or profile.default_max_sequences
    memory, most = fit or memory_fit(deployment, workload, limits)
    cap = max(min(top * deployment.layout.data, most), 0)
    model = StepModel.of(deployment)
    n = np.arange(1.0, max(cap, 1) + 1.0)
    per_decode = speculative.draft_tokens + 1.0 if speculative else 1.0
    times = StepTimes.of(model, per_decode)
    drafts = workload.remembered(("drafts", speculative), lambda: Drafts(speculative, workload))
    step, decode, prefill = _columns(times, n, workload, drafts)
    alone = step[min(deployment.layout.data, len(step)) - 1]
    lag = profile.lag_s(float(alone), workload.prompt.tokens)
    first = prefill * profile.ttft_scale + lag
    share = 1.0 / deployment.layout.data
    if deployment.layout.pipeline > 1:
        share *= _stage_share(deployment, times, workload, prefill)
    cache = sequence_cache_bytes(deployment.llm, workload.prompt.tokens, deployment.kv)
    if deployment.draft is not None:
        cache = cache + sequence_cache_bytes(deployment.draft, workload.prompt.tokens,
                                             deployment.kv)
    return Table(deployment, workload, model, times, memory, n, decode, step, prefill, lag, first,
                 cache, share,
                 np.array(cap_sequence(cap), dtype=np.int64), drafts, per_decode, most)


def _stage_share(deployment: Deployment, times: StepTimes, workload: Workload, prefill_s: Array
                 ) -> float:
    """Share of a prefill in which it keeps the last stage: that of its layers, and all of the
    pass of a draft model, which is whole on that stage."""
    share = stage_share(deployment.llm.layers, deployment.layout.pipeline)
    if not times.passes:
        return share
    tokens = workload.new_prompt.tokens
    own_s = replace(times, draft=None, passes=0.0).seconds(
        new_tokens=tokens, prompts=1.0, cached=workload.prompt.tokens - tokens)
    whole_s, model_s = (float(x @ workload.prompt.weights) for x in (prefill_s, own_s))
    return (share * model_s + whole_s - model_s) / whole_s


def memory_fit(deployment: Deployment, workload: Workload, limits: Limits
               ) -> tuple[MemoryBudget, int]:
    """A GPU's memory, and how many sequences of the workload the replica holds."""
    memory = memory_budget(deployment, utilization=limits.memory_utilization,
                           max_sequences=limits.max_sequences)
    return memory, max_running_sequences(deployment, memory.kv_pool_bytes,
                                         *held_context(deployment, workload))


def held_context(deployment: Deployment, workload: Workload) -> tuple[float, float]:
    """Mean [token] and variance [token^2] of what a running sequence holds of the cache.

    Its context so far, or with the whole answer where the engine reserves that on admission.
    """
    if deployment.profile.reserves_answers:
        return workload.answered_context, workload.answered_context_variance
    return workload.running_context, workload.running_context_variance


def _columns(times: StepTimes, n: Array, workload: Workload, drafts: Drafts
             ) -> tuple[Array, Array, Array]:
    """Step time and time per output token over ``n``, and the prefill of a prompt alone per point
    of the lengths [s].

    With speculation a step verifies ``g + 1`` tokens and yields some of them
    (:mod:`planner.drafts`); a draft model runs g passes of its own and one over each prompt, which
    are in ``times``.
    """
    context, tokens = workload.running_context, workload.new_prompt.tokens
    step, prefill = times.columns(len(n), context, tokens, workload.prompt.tokens - tokens)
    if drafts.speculative is None:
        return step, step, prefill
    return step, step / drafts.accepted, prefill


CAPACITY_CLOSE = 0.005
"""Share of a capacity within which it is found."""


def highest_held(check: Callable[[float, float], Verdict], low: float, high: float, most: float,
                 cv2: float) -> float:
    """Highest rate [1/s] that holds, to :data:`CAPACITY_CLOSE`: doubles, then bisects.

    Parameters
    ----------
    check : callable
        ``check(rate_per_s, arrival_cv2) -> Verdict``.
    low, high : float
        [1/s] a rate that holds, and the first to ask.
    most : float
        [1/s] from which on none does: these are not asked.
    """
    while high < most and check(high, cv2).ok:
        low, high = high, high * 2.0
    while high - low > CAPACITY_CLOSE * low:
        middle = (low + high) / 2.0
        holds = middle < most and check(middle, cv2).ok
        low, high = (middle, high) if holds else (low, middle)
    return low


def figures(mean: float, levels: tuple[float, ...], values: list[float]) -> dict[str, float]:
    """A latency figure: ``mean`` and one ``p<level>`` for each level.

    Each is found to a share of itself alone, so none may be below the one of a lower level.
    """
    return labelled(mean, levels, list(accumulate(values, max)))


def labelled(mean: float, levels: tuple[float, ...], values: list[float]) -> dict[str, float]:
    """The same of values that need not rise, as TPOT of longer and longer answers."""
    return {"mean": mean, **{f"p{p:g}": v for p, v in zip(levels, values, strict=True)}}


def between_tokens(figure: dict[str, float], workload: Workload) -> dict[str, float]:
    """A TPOT or gap [s] as users see it: NaN where no answer has a second token."""
    return figure if workload.output.several else dict.fromkeys(figure, math.nan)


def with_parts(levels: tuple[float, ...], workload: Workload) -> tuple[float, ...]:
    """Percentiles with those at which the parts of a whole request count."""
    return tuple(sorted({*levels, *map(workload.first_percentile, levels),
                         *map(workload.token_percentile, levels)}))


def shown(figure: dict[str, float], levels: tuple[float, ...]) -> dict[str, float]:
    """A figure at some of its percentiles."""
    return {key: figure[key] for key in ("mean", *(f"p{p:g}" for p in levels))}


def parts_of(figure: dict[str, float], levels: tuple[float, ...],
             part: Callable[[float], float]) -> dict[str, float]:
    """For each percentile of a whole request what a part of it counts [s]: its own at ``part``."""
    return {"mean": figure["mean"], **{f"p{p:g}": figure[f"p{part(p):g}"] for p in levels}}


def levels_of(figure: dict[str, float]) -> list[str]:
    """The percentile keys of a figure."""
    return [key for key in figure if key != "mean"]


def depth_slope_s(table: Table) -> float:
    """What each token before a prompt token adds to its prefill [s], by attention.

    Taken from the prompt that a prompt token belongs to, with and without as many tokens before it.
    """
    longest = max(table.workload.prompt_of_token, 1.0)
    deeper = table.workload.cached_of_token + longest
    seconds = table.times.seconds(new_tokens=np.full(2, longest), prompts=1.0,
                                  cached=np.array([0.0, deeper]), logits=0.0)
    return float((seconds[1] - seconds[0]) / (longest * deeper))


def best_case_s(table: Table, target: Slo, ttft_s: float, tokens: float) -> float:
    """A target's metric [s] with no other request on the replica: where the first token takes
    ``ttft_s`` [s] and the answer has ``tokens`` more."""
    drafts, token_s = table.drafts, float(table.decode_s[0])
    if target.metric == "ttft":
        return ttft_s
    if target.metric == "itl":
        return float(table.step_s[0])
    if target.metric == "tpot":
        return token_s * pace_at(drafts.reference, target.level)
    level = table.workload.token_level(target)
    return ttft_s + token_s * tokens * pace_at(drafts.of_length(tokens + 1.0), level)


def e2e_figures(ttft: dict[str, float], tpot: dict[str, float], workload: Workload
                ) -> dict[str, float]:
    """End-to-end latency: TTFT + TPOT (n - 1); percentiles by the sum of percentiles, on the safe
    side.

    Parameters
    ----------
    ttft, tpot : dict
        [s] as of :func:`parts_of`; TPOT of answers of the mean length (``mean``) and of each
        percentile of the lengths.
    """
    output, levels = workload.output, tuple(float(key[1:]) for key in levels_of(ttft))
    gaps = [max(output.quantile(p / 100.0) - 1.0, 0.0) for p in levels]
    mean = ttft["mean"] + tpot["mean"] * max(output.mean - 1.0, 0.0)
    return figures(mean, levels, [ttft[key] + tpot[key] * count for key, count in zip(
        levels_of(ttft), gaps, strict=True)])
