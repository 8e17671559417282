"""The step time of an engine as numbers that a compiled loop can evaluate.

:class:`planner.roofline.StepModel` stays the one model of the truth. Its terms are few and simple
in what changes from step to step: sequences, their mean context, new tokens, prompts. This module
reduces a model to the coefficients of those terms; the compiled evaluation in
:mod:`planner.stepping` equals the model to 1e-12 (relative) for every kind of model, layout and
fidelity, which a test holds. Nothing is interpolated. Plans ask :class:`StepTimes`, simulations
the compiled functions themselves.

In one point a simulation is finer than the plan: prompts that share a pass each count with their
own length, where the plan takes them as equally long.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.kv_cache import heads_per_rank, reading_streams
from planner.llm import KvStream, Llm, Role
from planner.precision import FORMATS, Format
from planner.roofline import Deployment, StepModel, least_rows, state_flops_per_token
from planner.stepping import NO_LIMIT, SCALARS, PackedSteps, step_seconds, table_columns

Array = NDArray[np.float64]


class Steps(NamedTuple):
    """Coefficients of a step's terms on one data-parallel rank; all times in seconds.

    ``tokens`` below are the rows of a step's products, ``tiled`` those rounded up to whole tiles.

    Attributes
    ----------
    whole : int
        1: one roofline over the whole step (``napkin``); 0: a sum over operator groups.
    scale : float
        Factor on the whole step (decode pools of a disaggregated fleet).
    tokens_per_decode, pipeline, tile, half : float
    linear_s, linear_read_s : ndarray, shape (formats,)
        [s] per tiled row, and [s] to read the weights.
    head_s, head_read_s : float
        The same of the LM head, per row with logits.
    expert : ndarray, shape (groups, 7)
        Format index, [s] per row, [s] to read all experts, share k / E, k, E, fewest rows that an
        expert multiplies; times of this rank.
    ranks, skew : float
        Data-parallel ranks that share the experts, and how unevenly these are used
        (:func:`planner.roofline.experts_touched`).
    state_token_s, state_read_s : float
        Recurrent state: [s] per token and per sequence.
    token_s, sequence_s, fixed_s : float
        Links and overheads: [s] per token, per sequence and per step.
    line : ndarray, shape (segments, 5)
        Attention of one decoding sequence at mean context x up to ``line[:, 0]``: compute
        ``line[:, 1] + line[:, 2] x`` and memory ``line[:, 3] + line[:, 4] x`` [s].
    prompt : ndarray, shape (streams, 8)
        Per prompt: [s] per pair, [s] per cached entry, [s] to read an entry, stride, window, limit
        of keys a query, 1 when windows restart, memory [s] per prompt.
    """

    whole: int
    scale: float
    tokens_per_decode: float
    pipeline: float
    tile: float
    half: float
    linear_s: Array
    linear_read_s: Array
    head_s: float
    head_read_s: float
    expert: Array
    ranks: float
    skew: float
    state_token_s: float
    state_read_s: float
    token_s: float
    sequence_s: float
    fixed_s: float
    line: Array
    prompt: Array


def steps_of(model: StepModel, tokens_per_decode: float = 1.0, scale: float = 1.0) -> Steps:
    """Reduce a step model to its coefficients.

    Parameters
    ----------
    model : StepModel
    tokens_per_decode : float
        [token] verified per decode (1, or draft + 1 with speculation).
    scale : float
        Factor on every step.
    """
    d = model.deployment
    ways = float(d.layout.pipeline)
    if d.fidelity == "napkin":
        return _napkin(model, tokens_per_decode, scale)
    rates = _Rates.of(model)
    return Steps(
        0, scale, tokens_per_decode, ways, float(d.profile.tile_tokens), d.profile.half_tokens,
        np.array([2.0 * b.params / rates.products(b.fmt, d.profile.mfu) for b in model.dense]),
        np.array([b.params * b.fmt.bytes_per_value / (rates.bandwidth * d.profile.mbu)
                  for b in model.dense]),
        *_head(model, rates), _experts(model, rates), float(d.layout.data),
        d.profile.expert_skew, *_state(d, rates), *_links(model),
        _decode_lines(d, rates, tokens_per_decode), _prompt_streams(d, rates))


def draft_steps(deployment: Deployment, scale: float = 1.0) -> Steps:
    """A pass of the draft model of a deployment that has one, over one wave of its pipeline."""
    drafting = deployment.drafting
    assert drafting is not None
    steps = steps_of(StepModel.of(drafting), 1.0, scale)
    return steps._replace(pipeline=float(deployment.layout.pipeline))


def draft_passes(deployment: Deployment, drafted: float) -> float:
    """Passes of the draft model before ``drafted`` [token] are verified: one each, 0 without one.

    Each wave of a pipeline takes them in turn, as the draft model is on the last stage alone.
    """
    return drafted if deployment.draft is not None else 0.0


def affine_steps(step_s: float, prefill_token_s: float = 0.0, sequence_s: float = 0.0,
                 context_s: float = 0.0) -> Steps:
    """Steps that cost ``step_s + prefill_token_s T + sequence_s n + context_s sum(contexts)``.

    For workers whose step times were measured, and for tests against theory.

    Parameters
    ----------
    step_s : float
        [s] of any step.
    prefill_token_s : float
        [s] per new prompt token.
    sequence_s, context_s : float
        [s] per decoding sequence, and per token of context of each.
    """
    line = np.array([[NO_LIMIT, sequence_s - prefill_token_s, context_s, -1e300, 0.0]])
    none = np.zeros(0)
    return Steps(0, 1.0, 1.0, 1.0, 1.0, 0.0, none, none, 0.0, 0.0, np.zeros((0, 7)), 1.0, 0.0, 0.0,
                 0.0, prefill_token_s, 0.0, step_s, line, np.zeros((0, 8)))


_SCALARS_OF = itemgetter(*(Steps._fields.index(name) for name in SCALARS))


def packed_steps(steps: Steps) -> PackedSteps:
    """Coefficients of a step as few arrays."""
    one = np.array(_SCALARS_OF(steps), dtype=float)
    linear = np.array([steps.linear_s, steps.linear_read_s]).T.copy()
    return PackedSteps(one, linear, steps.expert, steps.line, steps.prompt)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Step times of a deployment's replica: :meth:`planner.roofline.StepModel.seconds`, compiled.

    Attributes
    ----------
    packed : PackedSteps
    data : int
        Data-parallel ranks that share the decodes; the prompts are those of one rank.
    draft : PackedSteps or None
        The draft model, whose time is a part of every step.
    passes : float
        Its passes over each wave of the decodes of a step; 0: no draft model.
    """

    packed: PackedSteps
    data: int
    draft: PackedSteps | None = None
    passes: float = 0.0

    @classmethod
    def of(cls, model: StepModel, tokens_per_decode: float = 1.0) -> StepTimes:
        """Of a step model, with [token] verified per decode; where they are drafted by a model,
        with its time."""
        d, own = model.deployment, packed_steps(steps_of(model, tokens_per_decode))
        passes = draft_passes(d, tokens_per_decode - 1.0)
        if not passes:
            return cls(own, d.layout.data)
        return cls(own, d.layout.data, packed_steps(draft_steps(d)), passes)

    @property
    def drafting(self) -> PackedSteps:
        """The draft model, or what stands in its place where there are no passes."""
        return self.packed if self.draft is None else self.draft

    def columns(self, size: int, context: float, new_tokens: Array, cached: Array
                ) -> tuple[Array, Array]:
        """See :func:`planner.stepping.table_columns`."""
        decode_s, prefill_s = table_columns(
            self.packed, self.drafting, self.passes, float(self.data), size, context, new_tokens,
            cached)
        return decode_s, prefill_s

    def seconds(self, decodes: ArrayLike = 0.0, context: ArrayLike = 0.0,
                new_tokens: ArrayLike = 0.0, prompts: ArrayLike = 0.0, cached: ArrayLike = 0.0,
                logits: ArrayLike | None = None) -> Array:
        """Step times [s] of batches, see :class:`planner.roofline.StepBatch`.

        Parameters
        ----------
        decodes, context, new_tokens, prompts, cached, logits : array_like, shape (N,) or ()
            Without ``logits`` every prompt needs them.

        Returns
        -------
        ndarray, shape (N,)
            (1,) where all are plain numbers.
        """
        running, parts = _column(decodes), _column(prompts)
        if self.data > 1:
            running = np.where(running > 0.0, np.maximum(running / self.data, 1.0), 0.0)
        found: Array = step_seconds(
            self.packed, self.drafting, self.passes, running, _column(context),
            _column(new_tokens), parts, _column(cached),
            parts if logits is None else _column(logits))
        return found


def _column(values: ArrayLike) -> Array:
    return np.ascontiguousarray(values, dtype=float).reshape(-1)


class _Rates(NamedTuple):
    """Peaks and bandwidths of one GPU under a profile."""

    model: StepModel
    bandwidth: float
    attention: float
    attention_bandwidth: float

    @classmethod
    def of(cls, model: StepModel) -> _Rates:
        d = model.deployment
        peak = d.gpu.peak(FORMATS["bf16"]) * model.compute_scale
        return cls(model, d.gpu.bandwidth_bytes_per_s, peak * d.profile.attention_mfu,
                   d.gpu.bandwidth_bytes_per_s * d.profile.attention_mbu)

    def products(self, fmt: Format, mfu: float) -> float:
        """[FLOP/s] that large products reach in a format at a share of the peak."""
        return self.model.deployment.gpu.peak(fmt) * self.model.compute_scale * mfu


def _head(model: StepModel, rates: _Rates) -> tuple[float, float]:
    d = model.deployment
    params = d.llm.lm_head_params / d.layout.tensor
    fmt = d.llm.role_format(Role.LM_HEAD, d.weights)
    return (2.0 * params / rates.products(fmt, d.profile.mfu),
            params * fmt.bytes_per_value / (rates.bandwidth * d.profile.mbu))


def _experts(model: StepModel, rates: _Rates) -> Array:
    d = model.deployment
    load = d.profile.expert_imbalance if d.layout.expert > 1 else 1.0
    names = list(dict.fromkeys(fmt.name for _, fmt, _ in model.experts))
    rows = []
    for name in names:
        for group, fmt, elements in model.experts:
            if fmt.name != name:
                continue
            ff = group.feed_forward
            params = group.count * elements / d.layout.tensor * load
            share = ff.active / ff.experts
            read = params * fmt.bytes_per_value / d.layout.data
            rows.append((float(names.index(name)),
                         2.0 * params * share / rates.products(fmt, d.profile.expert_mfu),
                         read / (rates.bandwidth * d.profile.expert_mbu), share,
                         float(ff.active), float(ff.experts), least_rows(d, fmt)))
    return np.array(rows).reshape(-1, 7)


def _state(d: Deployment, rates: _Rates) -> tuple[float, float]:
    if not d.llm.state_bytes_per_sequence:
        return 0.0, 0.0
    return (state_flops_per_token(d.llm) / d.layout.tensor / rates.attention,
            2.0 * d.llm.state_bytes_per_sequence / d.layout.tensor / rates.attention_bandwidth)


def _links(model: StepModel) -> tuple[float, float, float]:
    """[s] per token, per sequence and per step of links and overheads."""
    token_s, each_s = model.link_seconds()
    return token_s, model.deployment.profile.sequence_s, each_s + model.fixed_seconds()


def _entry_bytes(llm: Llm, kv: str, tensor: int, stream: KvStream) -> float:
    share = heads_per_rank(stream.heads, tensor) / stream.heads
    return stream.values_per_entry * stream.value_bytes(kv) * share


def _decode_lines(d: Deployment, rates: _Rates, tokens_per_decode: float) -> Array:
    """Segments of [FLOP] and [B] per decode, as [s]."""
    llm, kv, tensor = d.llm, d.kv, d.layout.tensor
    work = llm.remembered(("decode_lines", kv, tensor), lambda: _segments([
        (_most_read(s), count * s.decode_flops_per_pair / tensor / s.stride,
         count * _entry_bytes(llm, kv, tensor, s) / s.stride)
        for count, s in reading_streams(llm)]))
    compute, memory = tokens_per_decode / rates.attention, 1.0 / rates.attention_bandwidth
    return np.asarray(work * np.array([1.0, compute, compute, memory, memory]))


def _most_read(stream: KvStream) -> float:
    """[token] of context beyond which a query reads no more."""
    window = NO_LIMIT if stream.window is None else float(stream.window)
    return window if stream.attend is None else min(window, float(stream.attend * stream.stride))


def _segments(rows: list[tuple[float, float, float]], compute: float = 0.0, memory: float = 0.0
              ) -> Array:
    """Sum of ``slope * min(x, limit)`` as straight pieces, on top of constants."""
    ends = sorted({NO_LIMIT, *(limit for limit, _, _ in rows)})
    pieces, start = [], 0.0
    for end in ends:
        full = [r for r in rows if r[0] <= start]
        growing = [r for r in rows if r[0] > start]
        pieces.append((end, compute + sum(r[0] * r[1] for r in full), sum(r[1] for r in growing),
                       memory + sum(r[0] * r[2] for r in full), sum(r[2] for r in growing)))
        start = end
    return np.array(pieces)


def _prompt_streams(d: Deployment, rates: _Rates) -> Array:
    """[FLOP] per pair and per cached entry and [B] of an entry, as [s]; and how far each reads."""
    llm, kv, tensor = d.llm, d.kv, d.layout.tensor
    work = llm.remembered(("prompt_streams", kv, tensor), lambda: np.array([
        (count * s.prefill_flops_per_pair / tensor, count * s.expand_flops_per_entry / tensor,
         count * _entry_bytes(llm, kv, tensor, s), float(s.stride),
         NO_LIMIT if s.window is None else float(s.window), _most_keys(s),
         float(s.chunked and s.window is not None), 0.0)
        for count, s in reading_streams(llm)]).reshape(-1, 8))
    compute, memory = 1.0 / rates.attention, 1.0 / rates.attention_bandwidth
    return np.asarray(work * np.array([compute, compute, memory, 1.0, 1.0, 1.0, 1.0, 1.0]))


def _most_keys(stream: KvStream) -> float:
    """[token] that a query of a prompt reads at most."""
    limits = [x for x in (stream.window, stream.attend and stream.attend * stream.stride) if x]
    return float(min(limits)) if limits else NO_LIMIT


# -- napkin ---------------------------------------------------------------------------------------


def _napkin(model: StepModel, tokens_per_decode: float, scale: float) -> Steps:
    """One roofline over the whole step: compute is affine in tokens and pairs, memory in caches."""
    d = model.deployment
    shards = float(d.layout.tensor)
    fmt = FORMATS[{"int4": "int4_g128", "fp4": "nvfp4"}.get(d.weights, d.weights)]
    peak = d.gpu.peak(fmt) * model.compute_scale * shards
    bandwidth = d.gpu.bandwidth_bytes_per_s * shards
    pair_s = 4.0 * d.llm.layers * d.llm.hidden / peak
    caches = _napkin_caches(d.llm, d.kv, bandwidth)
    state_s = d.llm.state_bytes_per_sequence / bandwidth
    rows = [(limit, 0.0, per_token) for limit, per_token in caches]
    line = _segments([*rows, (NO_LIMIT, pair_s * tokens_per_decode, 0.0)], memory=state_s)
    dense = float(d.llm.params() - d.llm.params(Role.ROUTED_EXPERT)) * fmt.nominal_bytes
    experts = np.array([
        (0.0, 0.0, group.count * elements * fmt.nominal_bytes / bandwidth,
         group.feed_forward.active / group.feed_forward.experts, float(group.feed_forward.active),
         float(group.feed_forward.experts), 0.0)
        for group, _, elements in model.experts]).reshape(-1, 7)
    streams = np.array([(0.0, 0.0, per_token, 1.0, limit, NO_LIMIT, 0.0, 0.0)
                        for limit, per_token in caches]
                       + [(pair_s, 0.0, 0.0, 1.0, NO_LIMIT, NO_LIMIT, 0.0, state_s)])
    return Steps(1, scale, tokens_per_decode, float(d.layout.pipeline), 1.0, 0.0,
                 np.array([2.0 * d.llm.active_params / peak]), np.array([dense / bandwidth]),
                 0.0, 0.0, experts, float(d.layout.data), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, line,
                 streams)


def _napkin_caches(llm: Llm, kv: str, bandwidth: float) -> list[tuple[float, float]]:
    """Window [token] and [s] to read a token of context, per kind of layer."""
    return [(NO_LIMIT if s.window is None else float(s.window),
             count * s.values_per_entry * s.value_bytes(kv) / s.stride / bandwidth)
            for count, s in llm.streams()]
