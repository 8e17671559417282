"""What one engine step costs on one replica: FLOPs, bytes and seconds per operator group.

Two fidelities. ``operator`` sums max(compute, memory) over operator groups with an engine's
factors; ``napkin`` is one ideal roofline over the whole model. Everything is vectorised: a batch
field may be an array, and every term is an array of the broadcast shape.

Sources: Williams et al., *Roofline*, CACM 2009; Kipply, *Transformer inference arithmetic*;
Narayanan et al. 2021 (Megatron-LM) for tensor and pipeline parallelism; Sarathi-Serve
(OSDI 2024) section 4.2 for tile quantisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.collectives import all_reduce_wire_bytes, all_to_all_wire_bytes, link_time_s
from planner.engine import EngineProfile
from planner.hardware import Gpu
from planner.kv_cache import (
    attended_entries,
    heads_per_rank,
    kept_entries,
    prefill_pairs,
    reading_streams,
    sequence_cache_bytes,
)
from planner.llm import GEMM_ROLES, KvStream, LayerGroup, Llm, Role
from planner.precision import FORMATS, Format
from planner.requests import Layout

Array = NDArray[np.float64]
ACTIVATION_BYTES = 2.0
"""[B] of one activation on the wire and in caches of the step: 16 bits."""
_NOTHING: Array = np.zeros(())
LATENT, RECURRENT = frozenset({"mla", "sparse", "compressed"}), frozenset({"mamba", "linear"})
"""Kinds of mixers whose layers cost a fixed time of their own."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The work of one step on one replica; fields broadcast against each other.

    Attributes
    ----------
    decodes : array_like
        Sequences that decode.
    context : array_like
        [token] mean context of a decoding sequence.
    tokens_per_decode : float
        [token] verified per decode (1, or draft + 1 with speculation).
    prefill_tokens : array_like
        [token] new prompt tokens, all prompts together.
    prefill_sequences : array_like
        Prompts (or chunks) they belong to.
    cached : array_like
        [token] of each prompt that is already in the cache.
    logits : array_like or None
        Prefill sequences that need logits; None = all of them.
    """

    decodes: ArrayLike = 0.0
    context: ArrayLike = 0.0
    tokens_per_decode: float = 1.0
    prefill_tokens: ArrayLike = 0.0
    prefill_sequences: ArrayLike = 0.0
    cached: ArrayLike = 0.0
    logits: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One operator group: work per GPU and the time it takes.

    ``compute_s`` and ``memory_s`` are the two sides of the roofline; ``seconds`` is the larger
    one, or the given time where neither applies (collectives, overhead).
    """

    name: str
    flops: Array
    bytes: Array
    compute_s: Array
    memory_s: Array
    other_s: Array
    kind: str = "roofline"

    @property
    def seconds(self) -> Array:
        """Time [s] of the group."""
        return np.maximum(self.compute_s, self.memory_s) + self.other_s

    @property
    def bound(self) -> Array | str:
        """``compute``, ``memory``, ``communication`` or ``overhead`` per element."""
        if self.kind != "roofline":
            return self.kind
        return np.where(self.compute_s > self.memory_s, "compute", "memory")


@dataclass(frozen=True, slots=True)
class Step:
    """All terms of a step (per GPU) and the GPUs of the replica."""

    terms: tuple[Term, ...]
    gpus: int
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float

    @property
    def seconds(self) -> Array:
        """Step time [s]."""
        return np.asarray(sum(t.seconds for t in self.terms))

    @property
    def flops(self) -> Array:
        """[FLOP] of all GPUs of the replica."""
        return np.asarray(sum(t.flops for t in self.terms)) * self.gpus

    @property
    def bytes(self) -> Array:
        """[B] moved in device memory by all GPUs of the replica."""
        return np.asarray(sum(t.bytes for t in self.terms)) * self.gpus

    @property
    def mfu(self) -> Array:
        """Model FLOP utilisation: FLOPs over what the peak could do in the step."""
        possible = self.seconds * self.peak_flop_per_s * self.gpus
        return np.asarray(self.flops / np.maximum(possible, 1e-300))

    @property
    def mbu(self) -> Array:
        """Memory bandwidth utilisation of the step."""
        possible = self.seconds * self.bandwidth_bytes_per_s * self.gpus
        return np.asarray(self.bytes / np.maximum(possible, 1e-300))

    @property
    def bound(self) -> NDArray[np.str_]:
        """What takes most of the step: ``compute memory communication overhead``."""
        names: NDArray[np.str_] = np.array(["compute", "memory", "communication", "overhead"])
        sides: dict[str, Array] = {n: np.zeros(np.shape(self.seconds)) for n in names}
        for term in self.terms:
            bound, seconds = term.bound, term.seconds
            for name in ("compute", "memory") if term.kind == "roofline" else (term.kind,):
                sides[name] = sides[name] + np.where(np.equal(bound, name), seconds, 0.0)
        return np.asarray(names[np.argmax(np.stack([sides[n] for n in names]), axis=0)])


@dataclass(frozen=True, slots=True)
class Deployment:
    """One replica: a model at a precision on a layout of GPUs under an engine profile.

    ``draft`` is the draft model of speculative decoding, held and run on the same GPUs.
    """

    llm: Llm
    gpu: Gpu
    weights: str
    kv: str
    layout: Layout
    profile: EngineProfile
    power_cap_w: float | None = None
    fidelity: str = "operator"
    draft: Llm | None = None

    @property
    def drafting(self) -> Deployment | None:
        """The draft model as the replica runs it: in its own precision, split over the tensor and
        data-parallel ranks of the model, and whole on the last stage of a pipeline."""
        if self.draft is None:
            return None
        return replace(self, llm=self.draft, weights=self.draft.native_precision,
                       layout=replace(self.layout, pipeline=1), draft=None)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """GEMM parameters of one format on one GPU (whole depth of the pipeline)."""

    fmt: Format
    params: float


@dataclass(slots=True)
class StepModel:
    """A deployment reduced to the sums that a step needs; built once, evaluated often."""

    deployment: Deployment
    compute_scale: float = 1.0
    dense: list[_Bucket] = field(default_factory=list)
    experts: list[tuple[LayerGroup, Format, float]] = field(default_factory=list)

    @classmethod
    def of(cls, deployment: Deployment) -> StepModel:
        """Sum the weights of a deployment by format."""
        scale = deployment.gpu.power_capped_scale(deployment.power_cap_w)
        llm, weights, tensor = deployment.llm, deployment.weights, deployment.layout.tensor
        dense, experts = llm.remembered(("gemms", weights, tensor),
                                        lambda: _gemms(llm, weights, tensor))
        return cls(deployment, scale, list(dense), list(experts))

    # -- public -------------------------------------------------------------------------------

    def step(self, batch: StepBatch) -> Step:
        """All terms of a step for a batch (fields may be arrays)."""
        work = _Work.of(batch, self.deployment.layout)
        if self.deployment.fidelity == "napkin":
            terms: tuple[Term, ...] = (self._napkin(work),)
        else:
            terms = tuple(self._terms(work))
        gpu = self.deployment.gpu
        peak = float(max(gpu.peak(f) for f in self._formats())) * self.compute_scale
        return Step(terms, self.deployment.layout.gpus, peak, gpu.bandwidth_bytes_per_s)

    def seconds(self, batch: StepBatch) -> Array:
        """Step time [s] for a batch: that of :meth:`step`, without what only its terms need."""
        if self.deployment.fidelity == "napkin":
            return self.step(batch).seconds
        work = _Work.of(batch, self.deployment.layout)
        return np.asarray(sum(t.seconds for t in self._terms(
            work, _is_some(batch.prefill_tokens), _is_some(batch.decodes))))

    # -- groups -------------------------------------------------------------------------------

    def _terms(self, work: _Work, prompts: bool = True, decodes: bool = True) -> Iterable[Term]:
        """The operator groups; attention of no prompts, or of no decodes, is left out."""
        yield from self._linears(work)
        yield from self._routed(work)
        yield self._lm_head(work)
        if prompts:
            yield self._attention_prefill(work)
        if decodes:
            yield self._attention_decode(work)
        yield from self._state(work)
        yield self._communication(work)
        yield self._overhead(work)

    def _formats(self) -> Iterable[Format]:
        yield FORMATS["bf16"]
        yield from (b.fmt for b in self.dense)
        yield from (fmt for _, fmt, _ in self.experts)

    def _gemm(self, name: str, params: float | Array, read_bytes: float | Array, tokens: Array,
              fmt: Format, rows: Array | None = None) -> Term:
        """A GEMM of ``params`` weights on ``tokens`` rows.

        Expert GEMMs give ``rows`` per expert, which fill the tiles (:func:`least_rows`), and have
        their own shares of peak and bandwidth.
        """
        gpu, profile = self.deployment.gpu, self.deployment.profile
        flops = 2.0 * params * tokens
        fill = tokens if rows is None else rows
        least = 0.0 if rows is None else least_rows(self.deployment, fmt)
        tiled = _tiles(np.maximum(fill, least), profile.tile_tokens)
        some = tokens > 0
        slow = np.where(some, (tiled + profile.half_tokens) / np.maximum(fill, 1e-12), 1.0)
        mfu = profile.mfu if rows is None else profile.expert_mfu
        compute = flops * slow / (gpu.peak(fmt) * self.compute_scale * mfu)
        loaded = np.where(some, read_bytes, 0.0)
        mbu = profile.mbu if rows is None else profile.expert_mbu
        memory = loaded / (gpu.bandwidth_bytes_per_s * mbu)
        return Term(name, flops, loaded, compute, memory, _NOTHING)

    def _linears(self, work: _Work) -> Iterable[Term]:
        for bucket in self.dense:
            read = bucket.params * bucket.fmt.bytes_per_value
            name = "linears" if len(self.dense) == 1 else f"linears_{bucket.fmt.name}"
            yield self._gemm(name, bucket.params, read, work.tokens, bucket.fmt)

    def _routed(self, work: _Work) -> Iterable[Term]:
        """Routed experts: FLOPs of the active ones, bytes of the distinct ones touched.

        Distinct experts come from :func:`experts_touched`.
        """
        layout, profile = self.deployment.layout, self.deployment.profile
        load = profile.expert_imbalance if layout.expert > 1 else 1.0
        for fmt_name in dict.fromkeys(fmt.name for _, fmt, _ in self.experts):
            fmt = FORMATS[fmt_name]
            active: Array = np.zeros_like(work.tokens)
            read: Array = np.zeros_like(work.tokens)
            rows: Array = np.zeros_like(work.tokens)
            for group, group_fmt, elements in self.experts:
                if group_fmt.name != fmt_name:
                    continue
                ff = group.feed_forward
                hit = experts_touched(ff.active / ff.experts, work.tokens * layout.data,
                                      profile.expert_skew)
                params = group.count * elements / layout.tensor
                active = active + params * ff.active / ff.experts * load
                read = read + params * hit * fmt.bytes_per_value / layout.data * load
                touched = np.maximum(hit * ff.experts, 1e-12)
                rows = np.maximum(rows, work.tokens * layout.data * ff.active / touched)
            yield self._gemm("routed_experts", active, read, work.tokens, fmt, rows)

    def _lm_head(self, work: _Work) -> Term:
        llm, layout = self.deployment.llm, self.deployment.layout
        params = llm.lm_head_params / layout.tensor
        fmt = llm.role_format(Role.LM_HEAD, self.deployment.weights)
        return self._gemm("lm_head", params, params * fmt.bytes_per_value, work.logits, fmt)

    def _attention(self, name: str, flops: Array, read: Array) -> Term:
        gpu, profile = self.deployment.gpu, self.deployment.profile
        peak = gpu.peak(FORMATS["bf16"]) * self.compute_scale * profile.attention_mfu
        bandwidth = gpu.bandwidth_bytes_per_s * profile.attention_mbu
        return Term(name, flops, read, flops / peak, read / bandwidth, _NOTHING)

    def _attention_prefill(self, work: _Work) -> Term:
        flops, read = np.zeros_like(work.tokens), np.zeros_like(work.tokens)
        tensor = self.deployment.layout.tensor
        for count, stream in reading_streams(self.deployment.llm):
            pairs = work.prompts * prefill_pairs(stream, work.prompt_tokens, work.cached)
            cached = work.prompts * kept_entries(stream, work.cached)
            flops = flops + count * (pairs * stream.prefill_flops_per_pair
                                     + cached * stream.expand_flops_per_entry) / tensor
            moved = cached + work.prompts * work.prompt_tokens / stream.stride
            read = read + count * moved * self._entry_bytes(stream)
        return self._attention("attention_prefill", flops, read)

    def _attention_decode(self, work: _Work) -> Term:
        flops, read = np.zeros_like(work.tokens), np.zeros_like(work.tokens)
        tensor = self.deployment.layout.tensor
        for count, stream in reading_streams(self.deployment.llm):
            entries = attended_entries(stream, work.context)
            queries = work.decodes * work.tokens_per_decode
            flops = flops + (count * queries * entries * stream.decode_flops_per_pair / tensor)
            read = read + count * work.decodes * entries * self._entry_bytes(stream)
        return self._attention("attention_decode", flops, read)

    def _state(self, work: _Work) -> Iterable[Term]:
        """Recurrent state: read and written once per sequence and step."""
        llm, tensor = self.deployment.llm, self.deployment.layout.tensor
        if not llm.state_bytes_per_sequence:
            return
        sequences = work.decodes + work.prompts
        yield self._attention("recurrent_state",
                              state_flops_per_token(llm) * work.tokens / tensor,
                              2.0 * llm.state_bytes_per_sequence * sequences / tensor)

    def _entry_bytes(self, stream: KvStream) -> float:
        """Bytes [B] of one cache entry of one layer on one GPU."""
        share = heads_per_rank(stream.heads, self.deployment.layout.tensor) / stream.heads
        return stream.values_per_entry * stream.value_bytes(self.deployment.kv) * share

    def _communication(self, work: _Work) -> Term:
        """All-reduces of tensor, all-to-alls of expert, sends of pipeline parallelism."""
        token_s, each_s = self.link_seconds()
        total = np.where(work.tokens > 0, token_s * work.tokens + each_s, 0.0)
        zero = np.zeros_like(total)
        return Term("communication", zero, zero, zero, zero, total, kind="communication")

    def link_seconds(self) -> tuple[float, float]:
        """[s] of all collectives per token, and per step whatever its tokens."""
        token_s = each_s = 0.0
        d = self.deployment
        for wire_bytes, group, calls in self._collectives():
            token_s += link_time_s(wire_bytes, d.gpu, group, d.profile, 0.0)
            each_s += link_time_s(0.0, d.gpu, group, d.profile, calls)
        return token_s, each_s

    def _collectives(self) -> Iterable[tuple[float, int, int]]:
        """Of each kind: bytes [B] per token on a GPU's link, GPUs of the group, calls a step."""
        llm, layout = self.deployment.llm, self.deployment.layout
        message = llm.hidden * ACTIVATION_BYTES
        if layout.tensor > 1:
            calls = llm.remembered(("all_reduces", layout.data > 1), lambda: sum(
                g.count * self._all_reduces(g) for g in llm.groups))
            yield calls * all_reduce_wire_bytes(message, layout.tensor), layout.tensor, calls
        if layout.data > 1:
            # Dispatch in 8 bits and combine in 16: 3 bytes per routed copy of a hidden value.
            copies, calls = llm.remembered(("all_to_all",), lambda: (
                sum(g.count * g.feed_forward.active for g in llm.groups),
                2 * sum(g.count for g in llm.groups if g.feed_forward.experts)))
            ranks = layout.tensor * layout.data
            sent = copies * llm.hidden * 3.0 / layout.tensor
            yield all_to_all_wire_bytes(sent, ranks), ranks, calls
        if layout.pipeline > 1:
            hops = layout.pipeline - 1
            yield hops * message / layout.tensor, layout.gpus, hops

    def _all_reduces(self, group: LayerGroup) -> int:
        """With data-parallel attention the experts exchange by all-to-all instead."""
        routed = self.deployment.layout.data > 1 and group.feed_forward.experts > 0
        return max(group.all_reduces - 1, 0) if routed else group.all_reduces

    def _overhead(self, work: _Work) -> Term:
        each = self.deployment.profile.sequence_s * (work.decodes + work.prompts)
        seconds = np.where(work.tokens > 0, self.fixed_seconds() + each, 0.0)
        zero = np.zeros_like(seconds)
        return Term("overhead", zero, zero, zero, zero, seconds, kind="overhead")

    def fixed_seconds(self) -> float:
        """[s] that a step loses besides, whatever is in it: of the engine and of each layer."""
        profile, llm = self.deployment.profile, self.deployment.llm
        moe, latent, recurrent = llm.remembered(("kinds_of_layers",), lambda: (
            sum(g.count for g in llm.groups if g.feed_forward.experts),
            sum(g.count for g in llm.groups if g.mixer.kind in LATENT),
            sum(g.count for g in llm.groups if g.mixer.kind in RECURRENT)))
        return (profile.step_s + moe * profile.moe_layer_s
                + (llm.layers - moe) * profile.layer_s + latent * profile.latent_layer_s
                + recurrent * profile.recurrent_layer_s)

    # -- napkin -------------------------------------------------------------------------------

    def _napkin(self, work: _Work) -> Term:
        """One ideal roofline over the whole model, as taught.

        prefill FLOPs = 2 P n + 2 L d n^2 (+ 4 L d n c for a cached prefix), decode 2 P + 4 L d c;
        bytes = W + cached KV. P is the active parameters, W the nominal bytes of what is touched.
        """
        d = self.deployment
        llm, shards = d.llm, d.layout.tensor
        pairs = (work.prompts * work.prompt_tokens * (work.cached + work.prompt_tokens / 2.0)
                 + work.decodes * work.tokens_per_decode * work.context)
        flops = (2.0 * llm.active_params * work.tokens
                 + 4.0 * llm.layers * llm.hidden * pairs) / shards
        read = (self._napkin_weights(work.tokens)
                + work.decodes * self._napkin_cache(work.context)
                + work.prompts * self._napkin_cache(work.cached)) / shards
        read = np.where(work.tokens > 0, read, 0.0)
        fmt = FORMATS[{"int4": "int4_g128", "fp4": "nvfp4"}.get(d.weights, d.weights)]
        compute = flops / (d.gpu.peak(fmt) * self.compute_scale)
        memory = read / d.gpu.bandwidth_bytes_per_s
        return Term("step", flops, read, compute, memory, _NOTHING)

    def _napkin_weights(self, tokens: Array) -> Array:
        llm = self.deployment.llm
        nominal = FORMATS[{"int4": "int4_g128", "fp4": "nvfp4"}.get(
            self.deployment.weights, self.deployment.weights)].nominal_bytes
        total: Array = np.full_like(tokens, float(llm.params() - llm.params(Role.ROUTED_EXPERT)))
        for group, _, elements in self.experts:
            ff = group.feed_forward
            total = total + group.count * elements * (1.0 - (1.0 - ff.active / ff.experts)
                                                      ** (tokens * self.deployment.layout.data))
        return total * nominal

    def _napkin_cache(self, context: Array) -> Array:
        return sequence_cache_bytes(self.deployment.llm, context, self.deployment.kv)


def state_flops_per_token(llm: Llm) -> int:
    """[FLOP] per token of recurrent layers, all of them."""
    return llm.remembered(("state_flops",), lambda: sum(
        g.count * g.mixer.state_flops_per_token for g in llm.groups))


def _gemms(llm: Llm, weights: str, tensor: int
           ) -> tuple[list[_Bucket], list[tuple[LayerGroup, Format, float]]]:
    """GEMM parameters of one rank by format, and the routed experts of each group of layers."""
    params: dict[str, float] = {}
    experts: list[tuple[LayerGroup, Format, float]] = []
    for group in llm.groups:
        for weight in group.all_weights():
            fmt = llm.role_format(weight.role, weights)
            if weight.role in GEMM_ROLES:
                size = group.count * weight.elements / (tensor if weight.sharded else 1)
                params[fmt.name] = params.get(fmt.name, 0.0) + size
            elif weight.role is Role.ROUTED_EXPERT:
                experts.append((group, fmt, float(weight.elements)))
    return [_Bucket(FORMATS[name], size) for name, size in params.items()], experts


@dataclass(frozen=True, slots=True)
class _Work:
    """A batch as float arrays of one shape, on one data-parallel rank and pipeline wave."""

    decodes: Array
    context: Array
    tokens_per_decode: float
    prompts: Array
    prompt_tokens: Array
    cached: Array
    tokens: Array
    logits: Array

    @classmethod
    def of(cls, batch: StepBatch, layout: Layout) -> _Work:
        """Split a replica's batch over data-parallel ranks and pipeline waves.

        Pipeline stages work on ``pipeline`` groups of sequences at once, so a token's step runs
        the whole depth with ``decodes / pipeline`` sequences (not below one).
        """
        decodes, context, prefill, prompts, cached = _alike(
            batch.decodes, batch.context, batch.prefill_tokens, batch.prefill_sequences,
            batch.cached)
        ways = layout.data * layout.pipeline
        if ways > 1:
            decodes = np.where(decodes > 0, np.maximum(decodes / ways, 1.0), 0.0)
        prompts = np.where(prefill > 0, np.maximum(prompts, 1e-9), 0.0)
        each = np.where(prefill > 0, prefill / np.maximum(prompts, 1e-9), 0.0)
        queries = decodes * batch.tokens_per_decode
        heads = prompts if batch.logits is None else np.broadcast_to(
            np.asarray(batch.logits, dtype=float), prompts.shape)
        return cls(decodes, context, batch.tokens_per_decode, prompts, each, cached,
                   queries + prefill, queries + heads)


def _alike(*fields: ArrayLike) -> list[Array]:
    """Fields as float arrays of one shape."""
    arrays = [np.asarray(x, dtype=float) for x in fields]
    shapes = {x.shape for x in arrays if x.ndim}
    if len(shapes) > 1:
        return list(np.broadcast_arrays(*arrays))
    return [x if x.ndim else np.full(shape, x) for shape in shapes for x in arrays] or arrays


def _is_some(field: ArrayLike) -> bool:
    """Whether a field of a batch is more than a plain zero."""
    return not isinstance(field, int | float) or field != 0


def experts_touched(share: float, tokens: Array, skew: float) -> Array:
    """Share of the experts that a batch touches when a token uses ``share`` of them.

    ``1 - (1 - share)^T`` under uniform routing. Popularities that vary like a gamma distribution
    with squared coefficient of variation ``skew`` touch ``1 - (1 + skew share T)^(-1 / skew)``:
    the mean of ``1 - exp(-p T)``.
    """
    if skew <= 0:
        return np.asarray(1.0 - (1.0 - share) ** tokens)
    return np.asarray(1.0 - (1.0 + skew * share * tokens) ** (-1.0 / skew))


def least_rows(deployment: Deployment, fmt: Format) -> float:
    """Fewest rows [token] that an expert's GEMM multiplies: a whole tile.

    A grouped GEMM pads the rows of every expert to whole tiles (``moe_align_block_size`` of vLLM
    and SGLang), and tensor cores multiply 64 rows at least (PTX ISA: ``wgmma`` is ``m64nNk16``).
    Kernels that unpack weights use narrow tiles instead (``m16n8k16``; Marlin from 8 rows on).
    """
    unpacked = deployment.gpu.unpacks(fmt)
    return 0.0 if unpacked else float(deployment.profile.tile_tokens)


def _tiles(tokens: Array, tile: int) -> Array:
    """Rows rounded up to whole tiles (fractions of a row count as they are below one tile)."""
    if tile <= 1:
        return tokens
    return np.where(tokens > tile, np.ceil(tokens / tile) * tile, tokens)
