"""The decoder that most families share, steered by a small table of rules per class.

Attention is grouped-query; the feed-forward half is dense or a mixture of experts; layers may
slide. What differs between families (biases, norms, gates, which keys say what) is data in
:class:`Rules`, next to the source it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.architectures.config import Fields
from planner.architectures.parts import (
    Attention,
    Body,
    Moe,
    check_heads,
    dense,
    layer,
    mtp_params,
    norm,
)
from planner.errors import InvalidValue
from planner.llm import FeedForward, LayerGroup, Role, Weight

Flag = bool | str
"""A fixed answer, or the config key that holds it."""

HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "model_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups",
            "multi_query_group_num")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
WIDTH = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
VOCAB = ("vocab_size", "padded_vocab_size")
CONTEXT = ("max_position_embeddings", "model_max_length", "n_positions", "max_sequence_length",
           "max_seq_len", "seq_length", "n_ctx")
EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k",
          "top_k_experts", "experts_per_token")
EXPERT_WIDTH = ("moe_intermediate_size", "moe_ffn_hidden_size", "expert_hidden_size")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts",
          "num_shared_expert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one class reads its config.

    Attributes
    ----------
    source : str
        Where the rule comes from.
    tied : bool
        Class default of ``tie_word_embeddings``.
    gated : bool
        Three FFN matrices instead of two.
    qkv_bias, out_bias, mlp_bias : bool or str
        A fixed answer or the key that says it; ``default_bias`` answers for an absent key.
    norm_vectors : int
        Vectors per norm: 1 for RMSNorm, 2 for LayerNorm with bias, 0 for none.
    norms : int
        Norms of hidden width per layer.
    final_norm : bool
    qk_norm : str
        ``""``, ``head`` (one vector of head width for q and for k), ``heads`` (one per head).
    qk_norm_key : str
        Key that switches the q/k norm on.
    windows : callable or None
        Window (or None) of every layer.
    sparse : callable or None
        Whether each layer is a mixture of experts; None for dense families.
    head_dim, width_factor : int or None
        Class defaults when the key is absent.
    """

    source: str
    tied: bool = False
    gated: bool = True
    qkv_bias: Flag = False
    out_bias: Flag = False
    mlp_bias: Flag = False
    default_bias: bool = False
    head_bias: Flag = False
    norm_vectors: int = 1
    norms: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    qk_norm: str = ""
    qk_norm_key: str = ""
    sinks: bool = False
    output_gate: bool = False
    parallel: bool = False
    windows: Callable[[Fields, int], list[int | None]] | None = None
    chunked: bool = False
    sparse: Callable[[Fields, int], list[bool]] | None = None
    expert_bias: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    shared_width: tuple[str, ...] = ("moe_shared_expert_intermediate_size",
                                     "shared_expert_intermediate_size")
    shared_always: bool = False
    dense_width: tuple[str, ...] = WIDTH
    width_factor: int | None = None
    width_divisor: int = 1
    head_dim: int | None = None
    positions: int | None = None
    layer_vectors: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def says(self, flag: Flag, f: Fields) -> bool:
        """A flag's answer for one config."""
        return f.flag(flag, default=self.default_bias) if isinstance(flag, str) else flag


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that every layer needs."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int


def shape(f: Fields, head_dim: int | None = None) -> Shape:
    """Read and check the sizes of a GQA decoder."""
    hidden, heads = f.count(*HIDDEN), f.count(*HEADS, high=100_000)
    kv_heads = f.count(*KV_HEADS, default=heads, high=100_000)
    check_heads(heads, kv_heads, f.at(f.find(*KV_HEADS)[0]))
    width = f.optional("head_dim", "attention_head_dim", "kv_channels", high=100_000) or head_dim
    if width is None and hidden % heads:
        raise InvalidValue(
            f"hidden_size ({hidden}) is not a multiple of num_attention_heads ({heads}) and "
            "head_dim is not given", f.at("num_attention_heads"))
    return Shape(hidden, f.layers(*LAYERS), heads, kv_heads, width or hidden // heads)


def decode(f: Fields, rules: Rules) -> Body:
    """Build a decoder from a config section and the rules of its class."""
    s = shape(f, rules.head_dim)
    windows = rules.windows(f, s.layers) if rules.windows else [None] * s.layers
    sparse = rules.sparse(f, s.layers) if rules.sparse else [False] * s.layers
    layers = tuple(
        _layer(f, rules, s, window, moe)
        for window, moe in zip(windows, sparse, strict=True))
    modules = f.optional("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers",
                         low=0, high=64) or 0
    return Body(s.hidden, f.count(*VOCAB), layers, f.flag("tie_word_embeddings",
                                                          default=rules.tied),
                f.optional(*CONTEXT), _outer(f, rules, s.hidden),
                mtp_params(layers[-1], s.hidden, modules))


def _outer(f: Fields, rules: Rules, hidden: int) -> tuple[Weight, ...]:
    final = hidden * rules.norm_vectors * (rules.final_norm + rules.embedding_norm)
    bias = f.count(*VOCAB) if rules.says(rules.head_bias, f) else 0
    table = 0
    if rules.positions is not None:
        table = (f.count(*CONTEXT) + rules.positions) * hidden
    tables = (Weight("positions", Role.LOOKUP, table, sharded=False),) if table else ()
    return (*norm(final, "final_norm"), *norm(bias, "lm_head_bias"), *tables)


def _layer(f: Fields, rules: Rules, s: Shape, window: int | None, moe: bool) -> LayerGroup:
    ffn = experts(f, rules, s.hidden) if moe else _dense(f, rules, s.hidden)
    vectors = rules.norms * rules.norm_vectors * s.hidden + rules.layer_vectors
    return layer(attention(f, rules, s, window).mixer(), ffn, norm(vectors),
                 parallel=rules.parallel)


def attention(f: Fields, rules: Rules, s: Shape, window: int | None) -> Attention:
    """The attention half by a class's rules."""
    on = not rules.qk_norm_key or f.flag(rules.qk_norm_key)
    vectors = qk_norm(rules.qk_norm, s) * rules.norm_vectors if on else 0
    return Attention(
        hidden=s.hidden, heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim,
        qkv_bias=rules.says(rules.qkv_bias, f), out_bias=rules.says(rules.out_bias, f),
        vectors=vectors + (s.heads if rules.sinks else 0),
        query_gate=s.heads * s.head_dim if rules.output_gate else 0,
        window=window, chunked=rules.chunked)


def qk_norm(kind: str, s: Shape) -> int:
    """Elements of the query and key norms."""
    if kind == "head":
        return 2 * s.head_dim
    return (s.heads + s.kv_heads) * s.head_dim if kind == "heads" else 0


def _dense(f: Fields, rules: Rules, hidden: int) -> FeedForward:
    factor = rules.width_factor
    width = f.count(*rules.dense_width, default=factor * hidden if factor else None)
    return dense(hidden, width // rules.width_divisor, gated=rules.gated,
                 bias=rules.says(rules.mlp_bias, f))


def experts(f: Fields, rules: Rules, hidden: int) -> FeedForward:
    """The mixture-of-experts half by a class's rules."""
    width = f.count(*EXPERT_WIDTH, *WIDTH)
    total = f.count(*EXPERTS, high=100_000)
    active = f.count(*ACTIVE, high=100_000)
    if active > total:
        raise InvalidValue(f"{active} active experts of {total}", f.at(f.find(*ACTIVE)[0]))
    return Moe(hidden=hidden, experts=total, active=active, width=width,
               shared=_shared_width(f, rules, width), gated=rules.gated,
               router_bias=rules.router_bias, expert_bias=rules.expert_bias,
               shared_gate=rules.shared_gate).feed_forward()


def _shared_width(f: Fields, rules: Rules, width: int) -> int:
    """Width of all shared experts: given outright, or a number of experts."""
    given = f.optional(*rules.shared_width, low=0)
    if given is not None:
        return given
    count = f.optional(*SHARED, low=0, high=1_000) or 0
    return width * (count or int(rules.shared_always))


# -- which layers slide ---------------------------------------------------------------------------


def listed_kinds(f: Fields, layers: int) -> list[str] | None:
    """``layer_types`` when the config lists them (transformers >= 4.53)."""
    return f.words("layer_types", length=layers)


def window_of(f: Fields, *names: str) -> int | None:
    """The window, or None when it is absent or no shorter than the context."""
    window = f.optional(*(names or ("sliding_window",)), low=0)
    context = f.optional(*CONTEXT)
    if not window or (context is not None and window >= context):
        return None
    return window


def _from_kinds(f: Fields, kinds: list[str], window: int | None) -> list[int | None]:
    local = ("sliding", "local", "chunked")
    return [window if kind.startswith(local) else None for kind in kinds]


def slide_all(f: Fields, layers: int) -> list[int | None]:
    """Every layer slides when a window is given (Mistral 7B v0.1, Phi-3, StarCoder2)."""
    kinds = listed_kinds(f, layers) or ["sliding"] * layers
    return _from_kinds(f, kinds, window_of(f))


def slide_qwen(f: Fields, layers: int) -> list[int | None]:
    """Qwen2: layers from ``max_window_layers`` on, only with ``use_sliding_window``."""
    if not f.flag("use_sliding_window"):
        return [None] * layers
    first = f.count("max_window_layers", low=0, default=28)
    kinds = listed_kinds(f, layers) or [
        "sliding" if i >= first else "full" for i in range(layers)]
    return _from_kinds(f, kinds, window_of(f))


def slide_pattern(default: int) -> Callable[[Fields, int], list[int | None]]:
    """Every ``n``-th layer is full, the others slide (Gemma 2: 2, Gemma 3: 6, Cohere 2: 4)."""

    def windows(f: Fields, layers: int) -> list[int | None]:
        n = f.count("sliding_window_pattern", "_sliding_window_pattern",
                    "global_attn_every_n_layers", default=default,
                    high=1_000)
        kinds = listed_kinds(f, layers) or [
            "sliding" if (i + 1) % n else "full" for i in range(layers)]
        return _from_kinds(f, kinds, window_of(f))

    return windows


def slide_letters(f: Fields, layers: int) -> list[int | None]:
    """EXAONE 4: a word such as ``LLLG`` repeats; the last layer is global."""
    word = f.text("sliding_window_pattern")
    kinds = listed_kinds(f, layers)
    if kinds is None and word is None and f.has("sliding_window_pattern"):
        return slide_pattern(4)(f, layers)
    if kinds is None:
        letters = word if word and set(word) <= {"L", "G"} else "G"
        kinds = ["sliding" if letters[i % len(letters)] == "L" and i + 1 < layers else "full"
                 for i in range(layers)]
    return _from_kinds(f, kinds, window_of(f))


def chunk_llama4(f: Fields, layers: int) -> list[int | None]:
    """Llama 4: layers with rotary positions attend within chunks, every fourth to everything."""
    ropes = f.counts("no_rope_layers", length=layers) if f.find("no_rope_layers")[1] else None
    step = f.count("no_rope_layer_interval", default=4)
    kinds = listed_kinds(f, layers) or [
        "chunked" if (ropes[i] if ropes else (i + 1) % step) else "full" for i in range(layers)]
    return _from_kinds(f, kinds, window_of(f, "attention_chunk_size"))


# -- which layers are sparse ----------------------------------------------------------------------


def every_layer(f: Fields, layers: int) -> list[bool]:
    """Every layer routes (Mixtral, gpt-oss)."""
    return [True] * layers


def sparse_layers(f: Fields, layers: int) -> list[bool]:
    """The ways in which configs say which layers route.

    ``mlp_layer_types`` (transformers >= 5); ``moe_layer_freq`` as a list (MiMo, MiniMax-M3) or
    a number with ``first_k_dense_replace`` (DeepSeek); ``decoder_sparse_step`` with
    ``mlp_only_layers`` (Qwen); a start, an end and an interval (ERNIE 4.5).
    """
    if not f.optional(*EXPERTS, low=0):
        return [False] * layers
    listed = f.words("mlp_layer_types", length=layers)
    if listed is not None:
        return [kind != "dense" for kind in listed]
    freq = f.find("moe_layer_freq")[1]
    if isinstance(freq, (list, tuple)):
        return [bool(v) for v in f.counts("moe_layer_freq", length=layers) or ()]
    return _sparse_by_step(f, layers)


def _sparse_by_step(f: Fields, layers: int) -> list[bool]:
    first = f.count("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers",
                    default=0, low=0)
    last = f.count("moe_layer_end_index", default=layers - 1, low=-1)
    last = layers - 1 if last == -1 else last
    step = f.count("moe_layer_freq", "decoder_sparse_step", "moe_layer_interval", default=1)
    # Qwen counts from one, DeepSeek from zero; both agree for a step of one.
    offset = 1 if f.has("decoder_sparse_step") or f.has("moe_layer_interval") else 0
    skipped = _only(f)
    return [first <= i <= last and (i + offset) % step == 0 and i not in skipped
            for i in range(layers)]


def _only(f: Fields) -> set[int]:
    listed = f.items("mlp_only_layers") or []
    return {i for i in listed if isinstance(i, int)}


def sparse_llama4(f: Fields, layers: int) -> list[bool]:
    """Llama 4: ``moe_layers``, or every ``interleave_moe_layer_step``-th layer."""
    step = f.count("interleave_moe_layer_step", default=1)
    listed = f.items("moe_layers")
    if listed is not None:
        return [i in listed for i in range(layers)]
    return [(i + 1) % step == 0 for i in range(layers)]
