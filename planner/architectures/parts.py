"""Building blocks that several families share: attention, feed-forward halves, cache streams.

Weights are fused as serving engines store them (vLLM ``QKVParallelLinear``,
``MergedColumnParallelLinear``, ``FusedMoE``), because memory rounds per tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.errors import InvalidValue
from planner.llm import FeedForward, KvStream, LayerGroup, Mixer, Role, Weight


@dataclass(frozen=True, slots=True)
class Body:
    """What a family's rules make of a config.

    Attributes
    ----------
    hidden, vocab : int
    layers : tuple of LayerGroup
        One entry per layer, in order (count 1).
    tied : bool
    max_context : int or None
    outer : tuple of Weight
        Final norm, position tables and the like; not the embedding and not the LM head.
    extra : mapping
        Published parameters outside the language model.
    embedding_width : int or None
        Width of the embedding when it differs from ``hidden`` (OPT-350M).
    """

    hidden: int
    vocab: int
    layers: tuple[LayerGroup, ...]
    tied: bool
    max_context: int | None
    outer: tuple[Weight, ...] = ()
    extra: tuple[tuple[str, int], ...] = ()
    embedding_width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query attention of one layer (GQA, Ainslie et al. 2023; MHA and MQA included).

    Attributes
    ----------
    hidden, heads, kv_heads, head_dim : int
    v_dim : int or None
        Width of a value head when it differs from a key head (MiMo-V2).
    qkv_bias, out_bias : bool
    query_gate : int
        Extra query-side outputs: ``heads * head_dim`` for an elementwise output gate
        (Qwen3-Next), ``heads`` for one gate a head (Step-3.5).
    own_v : bool
        False when keys serve as values (Gemma 4 full layers): no value projection.
    own_kv : bool
        False when the layer reads another layer's cache: no key and value projection.
    vectors : int
        Elements of q/k norms and sinks.
    window : int or None
    chunked : bool
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    v_dim: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    query_gate: int = 0
    own_v: bool = True
    own_kv: bool = True
    vectors: int = 0
    window: int | None = None
    chunked: bool = False

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.v_dim or self.head_dim

    def mixer(self) -> Mixer:
        """Weights and cache of the layer."""
        kind = "full" if self.window is None else ("chunked" if self.chunked else "sliding")
        streams = (self.stream(),)
        return Mixer(kind, self.weights(), self.heads,
                     streams=streams if self.own_kv else (),
                     shared_streams=() if self.own_kv else streams)

    def weights(self) -> tuple[Weight, ...]:
        """Fused projections, biases and small vectors."""
        keys = self.kv_heads * self.head_dim if self.own_kv else 0
        values = self.kv_heads * self.value_dim if self.own_kv and self.own_v else 0
        out = self.heads * self.head_dim + self.query_gate + keys + values
        context = self.heads * self.value_dim
        return present(
            Weight("qkv_proj", Role.ATTENTION, self.hidden * out),
            Weight("o_proj", Role.ATTENTION, context * self.hidden),
            Weight("qkv_bias", Role.NORM, out if self.qkv_bias else 0),
            Weight("o_bias", Role.NORM, self.hidden if self.out_bias else 0, sharded=False),
            Weight("attention_vectors", Role.NORM, self.vectors, sharded=False))

    def stream(self) -> KvStream:
        """The cache entry: 2 k d values, 2 a (d_qk + d_v) FLOP per query token and key."""
        flops = 2 * self.heads * (self.head_dim + self.value_dim)
        return KvStream("kv", self.kv_heads * (self.head_dim + self.value_dim), self.kv_heads,
                        window=self.window, chunked=self.chunked and self.window is not None,
                        prefill_flops_per_pair=flops, decode_flops_per_pair=flops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """A mixture-of-experts half (Shazeer et al. 2017; shared experts: DeepSeekMoE 2024).

    Attributes
    ----------
    hidden, experts, active, width : int
        ``width`` is the intermediate width of one expert.
    shared : int
        Intermediate width of all shared experts together.
    gated : bool
        Three matrices an expert (SwiGLU) or two.
    latent : int or None
        Width that experts work at when the input is projected first (Nemotron 3 Super).
    router_bias, expert_bias, shared_gate : bool
    dense : int
        Width of a dense FFN beside the experts (Gemma 4).
    """

    hidden: int
    experts: int
    active: int
    width: int
    shared: int = 0
    gated: bool = True
    latent: int | None = None
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    dense: int = 0

    def feed_forward(self) -> FeedForward:
        """Weights of the half, every expert counted."""
        return FeedForward("moe", present(*self._routed(), *self._beside()),
                           self.experts, self.active)

    def _routed(self) -> tuple[Weight, ...]:
        inner = self.latent or self.hidden
        up = self.width * (2 if self.gated else 1)
        w13 = inner * up + (up if self.expert_bias else 0)
        w2 = self.width * inner + (inner if self.expert_bias else 0)
        latent = 2 * self.hidden * self.latent if self.latent else 0
        router = self.experts * (self.hidden + (1 if self.router_bias else 0))
        return (Weight("experts_w13", Role.ROUTED_EXPERT, self.experts * w13),
                Weight("experts_w2", Role.ROUTED_EXPERT, self.experts * w2),
                Weight("latent_proj", Role.LATENT, latent, sharded=False),
                Weight("router", Role.ROUTER, router, sharded=False))

    def _beside(self) -> tuple[Weight, ...]:
        return (*mlp(self.hidden, self.shared, gated=self.gated, role=Role.SHARED_EXPERT,
                     name="shared"),
                Weight("shared_gate", Role.ROUTER, self.hidden if self.shared_gate else 0,
                       sharded=False),
                *mlp(self.hidden, self.dense, gated=self.gated, role=Role.DENSE_FFN))


def present(*weights: Weight) -> tuple[Weight, ...]:
    """The weights that have elements."""
    return tuple(w for w in weights if w.elements)


def mlp(hidden: int, width: int, *, gated: bool = True, role: Role = Role.DENSE_FFN,
        name: str = "mlp", bias: bool = False) -> tuple[Weight, ...]:
    """A dense FFN: gate and up fused (SwiGLU, Shazeer 2020) or up alone, and down."""
    up = width * (2 if gated else 1)
    first = "gate_up_proj" if gated else "up_proj"
    return present(Weight(f"{name}.{first}", role, hidden * up),
                   Weight(f"{name}.down_proj", role, width * hidden),
                   Weight(f"{name}.up_bias", Role.NORM, up if bias else 0),
                   Weight(f"{name}.down_bias", Role.NORM, hidden if bias else 0, sharded=False))


def dense(hidden: int, width: int, *, gated: bool = True, bias: bool = False) -> FeedForward:
    """The dense feed-forward half of a layer."""
    return FeedForward("dense", mlp(hidden, width, gated=gated, bias=bias))


def norm(elements: int, name: str = "norms") -> tuple[Weight, ...]:
    """Norm vectors, replicated on every rank."""
    return present(Weight(name, Role.NORM, elements, sharded=False))


NO_FFN = FeedForward("none")
NO_MIXER = Mixer("none")


def layer(mixer: Mixer, ffn: FeedForward, weights: tuple[Weight, ...] = (), *,
          parallel: bool = False) -> LayerGroup:
    """One layer; a parallel block or a single half needs one all-reduce."""
    halves = (mixer.kind != "none") + (ffn.kind != "none")
    return LayerGroup(1, mixer, ffn, weights, all_reduces=min(halves, 1 if parallel else 2))


def grouped(layers: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Layers that are alike as one group each, in order of first appearance."""
    counts: dict[LayerGroup, int] = {}
    for one in layers:
        counts[one] = counts.get(one, 0) + 1
    return tuple(replace(one, count=n) for one, n in counts.items())


def check_heads(heads: int, kv_heads: int, pointer: str) -> None:
    """Query heads must share key/value heads evenly.

    Raises
    ------
    InvalidValue
        When they do not.
    """
    if heads % kv_heads:
        raise InvalidValue(
            f"num_attention_heads ({heads}) is not a multiple of num_key_value_heads "
            f"({kv_heads})", pointer)


def mtp_params(one: LayerGroup, hidden: int, modules: int) -> tuple[tuple[str, int], ...]:
    """Prediction modules: a layer, a 2h to h projection and norms (DeepSeek-V3 section 2.2)."""
    if not modules:
        return ()
    each = sum(w.elements for w in one.all_weights()) + 2 * hidden * hidden + 3 * hidden
    return (("multi_token_prediction", modules * each),)
