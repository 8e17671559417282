"""The language model as a value: what it stores and what one forward pass must do.

A config.json is reduced to this record once (``planner.architectures``); everything else reads
only the record. Layers that are alike form one :class:`LayerGroup`.

A layer's cache is a tuple of :class:`KvStream`, one per kind of entry it keeps. Full attention
keeps one stream; MLA with a sparse index keeps a latent and an index stream; DeepSeek-V4 keeps a
window, a compressed and an index stream. All attention costs are sums over streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from planner.precision import FORMATS, Format, kv_bytes_per_value, weight_format

T = TypeVar("T")


class Role(StrEnum):
    """What a weight is for; decides its precision, its sharding and when it is read."""

    EMBEDDING = "embedding"
    """Input table: a lookup, never a GEMM."""
    LOOKUP = "lookup"
    """Other tables that are looked up (positions, per-layer embeddings)."""
    LM_HEAD = "lm_head"
    """Output projection stored on its own (absent when tied)."""
    ATTENTION = "attention"
    """Query, key, value, output and latent projections."""
    MIXER = "mixer"
    """Projections of recurrent layers (mamba, linear attention, gated delta)."""
    INDEXER = "indexer"
    """Projections of a sparse-attention indexer."""
    DENSE_FFN = "dense_ffn"
    SHARED_EXPERT = "shared_expert"
    ROUTED_EXPERT = "routed_expert"
    """All experts of the layer; a token uses ``active / experts`` of it."""
    LATENT = "latent"
    """Projections into and out of a latent MoE width."""
    ROUTER = "router"
    NORM = "norm"
    """Norms, biases and other small vectors."""


GEMM_ROLES = frozenset({Role.ATTENTION, Role.MIXER, Role.INDEXER, Role.DENSE_FFN,
                        Role.SHARED_EXPERT, Role.LATENT, Role.ROUTER, Role.NORM})
"""Roles read by every forward pass whatever the tokens (the LM head and experts apart)."""

QUANTIZED_ROLES = frozenset({Role.ATTENTION, Role.MIXER, Role.DENSE_FFN, Role.SHARED_EXPERT,
                             Role.ROUTED_EXPERT, Role.LATENT})
"""Roles that a precision asked for by name applies to; the rest stays 16-bit."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight tensor as an engine stores it (q, k and v fused; gate and up fused).

    Attributes
    ----------
    name : str
    role : Role
    elements : int
        Of one layer, over all tensor-parallel ranks; for routed experts, of all experts.
    sharded : bool
        False when every tensor-parallel rank holds a copy (latent projections, routers, norms).
    """

    name: str
    role: Role
    elements: int
    sharded: bool = True


@dataclass(frozen=True, slots=True)
class KvStream:
    """One kind of cache entry that an attention layer keeps and reads.

    Attributes
    ----------
    name : str
        ``kv``, ``latent``, ``index``, ``window`` or ``compressed``.
    values_per_entry : int
        Cached numbers per entry, keys and values of all heads together.
    heads : int
        Key/value heads that tensor parallelism can split; 1 means every rank keeps all of it.
    window : int or None
        Tokens kept (sliding or chunked attention); None keeps the whole context.
    chunked : bool
        The window restarts at its multiples (Llama 4), so a query sees half of it on average.
    stride : int
        Tokens per entry (compressed attention); 1 otherwise.
    attend : int or None
        Entries that one query reads at most (top-k); None reads all that are kept.
    prefill_flops_per_pair, decode_flops_per_pair : int
        [FLOP] per query token and entry read. MLA decodes absorbed, so they differ.
    expand_flops_per_entry : int
        [FLOP] to re-expand one cached latent when a later chunk or a prefix hit reads it.
    bytes_per_value : float or None
        [B] when the entry keeps its own format whatever the KV precision.
    """

    name: str
    values_per_entry: int
    heads: int = 1
    window: int | None = None
    chunked: bool = False
    stride: int = 1
    attend: int | None = None
    prefill_flops_per_pair: int = 0
    decode_flops_per_pair: int = 0
    expand_flops_per_entry: int = 0
    bytes_per_value: float | None = None

    def value_bytes(self, kv_precision: str) -> float:
        """Bytes [B] of one cached number at a KV precision."""
        return self.bytes_per_value or kv_bytes_per_value(kv_precision)


@dataclass(frozen=True, slots=True)
class Mixer:
    """The token-mixing half of a layer: attention, a recurrence, or nothing.

    Attributes
    ----------
    kind : str
        ``full sliding chunked mla sparse compressed mamba linear none``.
    weights : tuple of Weight
    heads : int
        Query heads (validity of a tensor-parallel degree).
    streams : tuple of KvStream
        Empty for recurrent layers and for layers that reuse another layer's cache.
    state_bytes : int
        [B] of recurrent state per sequence (fp32 state, 16-bit convolution window).
    state_flops_per_token : int
        [FLOP] of the recurrence per token.
    shared_streams : tuple of KvStream
        Entries of another layer that this one reads without keeping (shared KV layers).
    """

    kind: str
    weights: tuple[Weight, ...] = ()
    heads: int = 0
    streams: tuple[KvStream, ...] = ()
    state_bytes: int = 0
    state_flops_per_token: int = 0
    shared_streams: tuple[KvStream, ...] = ()


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The channel half of a layer.

    Attributes
    ----------
    kind : str
        ``dense``, ``moe`` or ``none``.
    weights : tuple of Weight
    experts, active : int
        Routed experts and how many of them a token uses; 0 without routing.
    """

    kind: str
    weights: tuple[Weight, ...] = ()
    experts: int = 0
    active: int = 0


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """``count`` layers that are alike."""

    count: int
    mixer: Mixer
    feed_forward: FeedForward
    weights: tuple[Weight, ...] = ()
    """Norms and what belongs to neither half."""
    all_reduces: int = 2
    """Tensor-parallel all-reduces per layer (1: halves in parallel, or one is absent)."""

    def all_weights(self) -> Iterator[Weight]:
        """Every weight of one layer of the group."""
        yield from self.mixer.weights
        yield from self.feed_forward.weights
        yield from self.weights


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a published checkpoint is stored.

    Attributes
    ----------
    precision : str
        The API's name of it (``fp8``, ``int4``, ``fp4``, …).
    formats : mapping of Role to str
        Format of every role that is not 16-bit.
    """

    precision: str
    formats: Mapping[Role, str]


@dataclass(frozen=True)
class Llm:
    """A language model: architecture, weights and cache.

    Attributes
    ----------
    slug, name, hf_id, architecture : str
        ``architecture`` is the class in ``architectures[0]`` of the config.
    hidden, vocab : int
    max_context : int or None
        Tokens of prompt plus output; None when the config does not say.
    groups : tuple of LayerGroup
    outer : tuple of Weight
        Embedding, LM head, final norm, position tables.
    tied_embeddings : bool
        The LM head is the embedding (read as a GEMM, stored once).
    native : Quantization or None
        How the checkpoint ships when not in 16 bits.
    native_kv : str
        KV precision that the checkpoint asks for (``bf16`` unless it carries a KV scheme).
    dtype : str
        16-bit type of what is not quantized: ``bf16`` or ``fp16``, or ``fp32``.
    extra_params : mapping of str to int
        Published parameters that serving text does not use: ``vision_tower``,
        ``multi_token_prediction``, … They are stored with the weights where an engine loads them.
    """

    slug: str
    name: str
    hf_id: str | None
    architecture: str
    hidden: int
    vocab: int
    max_context: int | None
    groups: tuple[LayerGroup, ...]
    outer: tuple[Weight, ...]
    tied_embeddings: bool
    native: Quantization | None = None
    native_kv: str = "bf16"
    dtype: str = "bf16"
    extra_params: Mapping[str, int] = field(default_factory=dict)

    # -- counts -------------------------------------------------------------------------------

    @cached_property
    def layers(self) -> int:
        """Number of layers."""
        return sum(g.count for g in self.groups)

    def params(self, *roles: Role) -> int:
        """Parameters of the given roles over all layers; of every role when none is given."""
        wanted = set(roles) if roles else set(Role)
        inner = sum(g.count * w.elements for g in self.groups for w in g.all_weights()
                    if w.role in wanted)
        return inner + sum(w.elements for w in self.outer if w.role in wanted)

    @cached_property
    def total_params(self) -> int:
        """Parameters of the language model (without vision tower and prediction layers)."""
        return self.params()

    @property
    def active_params(self) -> int:
        """Parameters one token uses, the embedding table included (the "all" convention)."""
        idle = sum(g.count * _idle_experts(g.feed_forward) for g in self.groups)
        return self.total_params - idle

    @property
    def lm_head_params(self) -> int:
        """Parameters of the output GEMM, stored or tied: hidden x vocab."""
        return self.hidden * self.vocab

    @property
    def linear_params(self) -> int:
        """What GEMMs read for one token: active, without lookups, with the LM head."""
        lookups = self.params(Role.EMBEDDING, Role.LOOKUP)
        return self.active_params - lookups + (self.lm_head_params if self.tied_embeddings else 0)

    @cached_property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(g.feed_forward.experts for g in self.groups)

    # -- cache --------------------------------------------------------------------------------

    def streams(self) -> Iterator[tuple[int, KvStream]]:
        """Pairs of layer count and cache stream."""
        for group in self.groups:
            for stream in group.mixer.streams:
                yield group.count, stream

    def kv_bytes_per_token(self, kv: str = "bf16") -> float:
        """Cache growth [B/token] while the context is inside every window (all layers)."""
        return sum(n * s.values_per_entry * s.value_bytes(kv) / s.stride
                   for n, s in self.streams())

    def kv_bytes_per_token_beyond_window(self, kv: str = "bf16") -> float:
        """Cache growth [B/token] once the context is past every window."""
        return sum(n * s.values_per_entry * s.value_bytes(kv) / s.stride
                   for n, s in self.streams() if s.window is None)

    def kv_window_cap_bytes(self, kv: str = "bf16") -> float:
        """Most that the windowed layers keep per sequence [B]."""
        return sum(n * s.values_per_entry * s.value_bytes(kv) * s.window / s.stride
                   for n, s in self.streams() if s.window is not None)

    @cached_property
    def state_bytes_per_sequence(self) -> int:
        """Recurrent state per sequence [B], independent of the context."""
        return sum(g.count * g.mixer.state_bytes for g in self.groups)

    # -- precision ----------------------------------------------------------------------------

    @property
    def native_precision(self) -> str:
        """Weight precision the checkpoint ships in."""
        return self.native.precision if self.native else self.dtype

    def role_format(self, role: Role, precision: str) -> Format:
        """Storage format of a role when the weights are served at ``precision``.

        What the checkpoint ships wins where it has that precision (gpt-oss packs only the routed
        experts); otherwise every GEMM of the layers is converted, the embedding, LM head, router,
        indexer and norms stay in 16 bits.
        """
        if self.native and precision == self.native.precision:
            return FORMATS[self.native.formats.get(role, self.dtype)]
        target = weight_format(precision)
        if target.nominal_bytes >= 2.0 or role in QUANTIZED_ROLES:
            return target
        return weight_format("fp16" if self.dtype == "fp16" else "bf16")

    def weight_bytes(self, precision: str) -> float:
        """Bytes [B] of all weights of the language model at a precision, scales included."""
        return sum(self.params(role) * self.role_format(role, precision).bytes_per_value
                   for role in Role)

    # -- sums that are asked for again ---------------------------------------------------------

    @cached_property
    def sums(self) -> dict[tuple[object, ...], Any]:
        """What others worked out from the layers, by their own names for it.

        A sum over hundreds of tensors is the same for every GPU and every request.
        """
        return {}

    def remembered(self, key: tuple[object, ...], work: Callable[[], T]) -> T:
        """A value that depends on this model and on ``key`` alone, worked out once."""
        if key not in self.sums:
            self.sums[key] = work()
        found: T = self.sums[key]
        return found

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what was worked out from them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    # -- storage ------------------------------------------------------------------------------

    def to_record(self) -> dict[str, Any]:
        """The architecture as plain JSON types (see :func:`from_record`)."""
        return asdict(self)


def _idle_experts(ff: FeedForward) -> int:
    routed = sum(w.elements for w in ff.weights if w.role is Role.ROUTED_EXPERT)
    return routed * (ff.experts - ff.active) // ff.experts if ff.experts else 0


def from_record(record: Mapping[str, Any]) -> Llm:
    """Rebuild an :class:`Llm` from :meth:`Llm.to_record`."""
    data = dict(record)
    data["groups"] = tuple(_group(g) for g in data["groups"])
    data["outer"] = _weights(data["outer"])
    if data.get("native"):
        native = data["native"]
        data["native"] = Quantization(
            native["precision"], {Role(k): v for k, v in native["formats"].items()})
    return Llm(**data)


def _weights(rows: Any) -> tuple[Weight, ...]:
    return tuple(Weight(**{**row, "role": Role(row["role"])}) for row in rows)


def _group(row: Mapping[str, Any]) -> LayerGroup:
    mixer = dict(row["mixer"])
    for key in ("streams", "shared_streams"):
        mixer[key] = tuple(KvStream(**s) for s in mixer[key])
    mixer["weights"] = _weights(mixer["weights"])
    ff = dict(row["feed_forward"])
    ff["weights"] = _weights(ff["weights"])
    return LayerGroup(count=row["count"], mixer=Mixer(**mixer), feed_forward=FeedForward(**ff),
                      weights=_weights(row["weights"]), all_reduces=row["all_reduces"])
