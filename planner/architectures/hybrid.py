"""Hybrids: a few attention layers among recurrent ones; only the former keep a growing cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.architectures.config import Fields
from planner.architectures.decoder import (
    ACTIVE,
    CONTEXT,
    EXPERTS,
    VOCAB,
    Rules,
    Shape,
    experts,
    shape,
    sparse_layers,
)
from planner.architectures.mla import Latent
from planner.architectures.parts import (
    NO_FFN,
    NO_MIXER,
    Attention,
    Body,
    Moe,
    dense,
    layer,
    mtp_params,
    norm,
)
from planner.architectures.recurrent import (
    GatedDelta,
    KimiDelta,
    Mamba1,
    Mamba2,
    lightning,
    short_conv,
)
from planner.errors import IncompleteConfig, InvalidValue
from planner.llm import FeedForward, LayerGroup, Mixer

_NEXT: Final = Rules(source="Qwen3-Next model card", sparse=sparse_layers, shared_gate=True)


def _body(f: Fields, s: Shape, layers: list[LayerGroup], *, tied: bool = False,
          modules: int = 0) -> Body:
    return Body(s.hidden, f.count(*VOCAB), tuple(layers),
                f.flag("tie_word_embeddings", default=tied), f.optional(*CONTEXT),
                norm(s.hidden, "final_norm"), mtp_params(layers[-1], s.hidden, modules))


def qwen3_next(f: Fields) -> Body:
    """Qwen3-Next, Qwen3.5 and Qwen3.6: three gated DeltaNet layers to one gated attention.

    Source: transformers ``modeling_qwen3_next.py`` (the query projection is twice as wide: half
    of it gates the output), ``modeling_qwen3_5_moe.py``.
    """
    s = shape(f, 256)
    step = f.count("full_attention_interval", default=4, high=1_000)
    kinds = f.words("layer_types", length=s.layers) or [
        "linear_attention" if (i + 1) % step else "full_attention" for i in range(s.layers)]
    full = Attention(hidden=s.hidden, heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim,
                     query_gate=s.heads * s.head_dim, vectors=2 * s.head_dim).mixer()
    delta = GatedDelta(
        hidden=s.hidden, key_heads=f.count("linear_num_key_heads"),
        value_heads=f.count("linear_num_value_heads"), key_dim=f.count("linear_key_head_dim"),
        value_dim=f.count("linear_value_head_dim"),
        kernel=f.count("linear_conv_kernel_dim", default=4)).mixer()
    routed = sparse_layers(f, s.layers)
    layers = [
        layer(delta if kind.startswith("linear") else full,
              experts(f, _NEXT, s.hidden) if moe else
              dense(s.hidden, f.count("intermediate_size")), norm(2 * s.hidden))
        for kind, moe in zip(kinds, routed, strict=True)]
    last = layer(full, layers[-1].feed_forward, norm(2 * s.hidden))
    modules = f.count("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0, low=0,
                      high=64)
    return replace(_body(f, s, layers), extra=mtp_params(last, s.hidden, modules))


def nemotron_h(f: Fields) -> Body:
    """Nemotron-H and Nemotron 3: every layer is one half: mamba, attention, FFN or experts.

    Source: transformers ``modeling_nemotron_h.py``; ``hybrid_override_pattern`` (M, *, -, E).
    """
    kinds = _nemotron_kinds(f)
    s = shape(replace(f, data={**f.data, "num_hidden_layers": len(kinds)}), 128)
    layers = [_nemotron_layer(f, s, kind) for kind in kinds]
    return replace(_body(f, s, layers), extra=_nemotron_mtp(f, s))


_LETTERS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _nemotron_kinds(f: Fields) -> list[str]:
    word = f.text("hybrid_override_pattern")
    kinds = [_LETTERS.get(c, c) for c in word] if word else f.items("layers_block_type")
    name = "hybrid_override_pattern" if word else "layers_block_type"
    if not kinds:
        f.count(name)
    known = {*_LETTERS.values(), "linear_attention", "full_attention"}
    kinds = kinds or []
    if len(kinds) > 1_000 or any(not isinstance(k, str) or k not in known for k in kinds):
        raise InvalidValue(f"{name} must list mamba, attention, mlp and moe layers", f.at(name))
    return kinds


def _nemotron_layer(f: Fields, s: Shape, kind: str) -> LayerGroup:
    weights = norm(s.hidden)
    if kind == "moe":
        return layer(NO_MIXER, _nemotron_experts(f, s.hidden), weights)
    if kind == "mlp":
        return layer(NO_MIXER, dense(s.hidden, f.count("intermediate_size"), gated=False,
                                     bias=f.flag("mlp_bias")), weights)
    if kind in ("attention", "full_attention"):
        return layer(_plain(s).mixer(), NO_FFN, weights)
    return layer(_mamba2(f, s.hidden), NO_FFN, weights)


def _nemotron_mtp(f: Fields, s: Shape) -> tuple[tuple[str, int], ...]:
    modules = f.count("num_nextn_predict_layers", default=0, low=0, high=64)
    if not modules or not f.optional("n_routed_experts", low=0):
        return ()
    one = layer(_plain(s).mixer(), _nemotron_experts(f, s.hidden), norm(2 * s.hidden))
    return mtp_params(one, s.hidden, modules)


def _plain(s: Shape) -> Attention:
    return Attention(hidden=s.hidden, heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim)


def _mamba2(f: Fields, hidden: int) -> Mixer:
    return Mamba2(
        hidden=hidden, heads=f.count("mamba_num_heads", "mamba_n_heads"),
        head_dim=f.count("mamba_head_dim", "mamba_d_head"),
        state=f.count("ssm_state_size", "mamba_d_state"),
        groups=f.count("n_groups", "mamba_n_groups"),
        kernel=f.count("conv_kernel", "mamba_d_conv", default=4),
        conv_bias=f.flag("use_conv_bias", "mamba_conv_bias", default=True),
        proj_bias=f.flag("use_bias", "mamba_proj_bias")).mixer()


def _nemotron_experts(f: Fields, hidden: int) -> FeedForward:
    return Moe(
        hidden=hidden, experts=f.count("n_routed_experts"), active=f.count("num_experts_per_tok"),
        width=f.count("moe_intermediate_size"), gated=False, router_bias=True,
        shared=f.count("moe_shared_expert_intermediate_size", low=0),
        latent=f.optional("moe_latent_size")).feed_forward()


def granite_hybrid(f: Fields) -> Body:
    """Granite 4.0: mamba-2 or attention, then experts beside a shared FFN.

    Source: transformers ``modeling_granitemoehybrid.py``; Granite 4.0 model cards. Without
    experts the shared FFN is the only one.
    """
    s = shape(f)
    kinds = f.words("layer_types", "layers_block_type", length=s.layers) or ["mamba"] * s.layers
    width = f.count("shared_intermediate_size", default=1024)
    if f.optional("num_local_experts", low=0):
        ffn = Moe(hidden=s.hidden, experts=f.count("num_local_experts"),
                  active=f.count("num_experts_per_tok"), width=f.count("intermediate_size"),
                  shared=width).feed_forward()
    else:
        ffn = dense(s.hidden, width)
    layers = []
    for kind in kinds:
        attends = kind in ("attention", "full_attention")
        mixer = _plain(s).mixer() if attends else _mamba2(f, s.hidden)
        layers.append(layer(mixer, ffn, norm(2 * s.hidden)))
    return _body(f, s, layers)


def jamba(f: Fields) -> Body:
    """Jamba: one attention layer in eight, experts in every second layer.

    Source: Jamba, arXiv:2403.19887; transformers JambaConfig.
    """
    s = shape(f)
    period = f.count("attn_layer_period", default=8), f.count("attn_layer_offset", default=4,
                                                              low=0)
    routed = f.count("expert_layer_period", default=2), f.count("expert_layer_offset",
                                                                default=1, low=0)
    many = f.count("num_experts", default=16) > 1
    layers = []
    for i in range(s.layers):
        attends = i % period[0] == period[1]
        moe = many and i % routed[0] == routed[1]
        ffn = experts(f, Rules(source="JambaConfig"), s.hidden) if moe else dense(
            s.hidden, f.count("intermediate_size"))
        layers.append(layer(_plain(s).mixer() if attends else _mamba1(f, s.hidden), ffn,
                            norm(2 * s.hidden)))
    return _body(f, s, layers)


def _mamba1(f: Fields, hidden: int) -> Mixer:
    rank = f.find("mamba_dt_rank")[1]
    return Mamba1(
        hidden=hidden, inner=f.count("mamba_expand", default=2) * hidden,
        state=f.count("mamba_d_state", default=16),
        rank=-(-hidden // 16) if rank in (None, "auto") else f.count("mamba_dt_rank"),
        kernel=f.count("mamba_d_conv", default=4),
        conv_bias=f.flag("mamba_conv_bias", default=True),
        proj_bias=f.flag("mamba_proj_bias")).mixer()


def minimax(f: Fields) -> Body:
    """MiniMax-Text-01 and M1: seven lightning-attention layers to one softmax layer.

    Source: MiniMax-01, arXiv:2501.08313; transformers ``modeling_minimax.py``;
    ``attn_type_list`` of the published config (1 is softmax).
    """
    s = shape(f)
    kinds = f.words("layer_types", length=s.layers)
    listed = f.counts("attn_type_list", length=s.layers) or [
        int(kind == "full_attention") for kind in kinds or ()]
    ffn = experts(f, Rules(source="MiniMaxConfig", shared_width=("shared_intermediate_size",)),
                  s.hidden)
    linear = lightning(s.hidden, s.heads, s.head_dim)
    layers = [layer(_plain(s).mixer() if softmax else linear, ffn, norm(2 * s.hidden))
              for softmax in listed]
    return _body(f, s, layers)


def kimi_linear(f: Fields) -> Body:
    """Kimi Linear and Kimi K3: three Kimi Delta Attention layers to one MLA layer, and experts.

    Source: Kimi Linear, arXiv:2510.26692; transformers ``modeling_kimi_linear.py``. The layer
    lists of the published config count from one. K3 adds output gates of full rank, experts in
    a latent width and attention residuals (two gates and norms a layer); source: its model card
    and vLLM ``kimi_k3.py``.
    """
    hidden, count = f.count("hidden_size"), f.layers()
    base = Latent(hidden, f.count("num_attention_heads", high=100_000),
                  f.optional("q_lora_rank"), f.count("kv_lora_rank"),
                  f.count("qk_nope_head_dim"), f.count("qk_rope_head_dim"),
                  f.count("v_head_dim"), gated=f.flag("mla_use_output_gate")).mixer()
    conf = f.section("linear_attn_config") or f
    delta, full = _kimi_delta(f, conf, hidden), _kimi_full(f, conf, count)
    residual = f.optional("attn_res_block_size", low=0) or 0
    vectors = norm((6 if residual else 2) * hidden)
    layers = tuple(
        layer(base if i + 1 in full else delta,
              _kimi_experts(f, hidden) if moe else
              dense(hidden, f.count("intermediate_size")), vectors)
        for i, moe in enumerate(sparse_layers(f, count)))
    outer = norm((3 if residual else 1) * hidden, "final_norm")
    return Body(hidden, f.count(*VOCAB), layers, f.flag("tie_word_embeddings"),
                f.optional(*CONTEXT), outer)


def _kimi_delta(f: Fields, conf: Fields, hidden: int) -> Mixer:
    """transformers >= 5 flattens the section: linear_num_heads, layer_types."""
    return KimiDelta(
        hidden=hidden, heads=conf.count("num_heads", "linear_num_heads"),
        head_dim=f.optional("linear_head_dim") or conf.count("head_dim"),
        kernel=conf.count("short_conv_kernel_size", "linear_conv_kernel_dim", default=4),
        full_rank_gate=conf.flag("use_full_rank_gate")).mixer()


def _kimi_full(f: Fields, conf: Fields, count: int) -> set[int]:
    kinds = f.words("layer_types", length=count)
    if kinds is not None:
        return {i + 1 for i, kind in enumerate(kinds) if kind == "full_attention"}
    listed = conf.items("full_attn_layers")
    if listed is None:
        raise IncompleteConfig("the config lacks full_attn_layers: which layers keep a cache",
                               conf.at("full_attn_layers"))
    return {i for i in listed if isinstance(i, int)}


def _kimi_experts(f: Fields, hidden: int) -> FeedForward:
    width, latent = f.count("moe_intermediate_size"), f.optional("routed_expert_hidden_size")
    shared = f.count("num_shared_experts", "n_shared_experts", default=0, low=0, high=1_000)
    routed = Moe(hidden=hidden, experts=f.count(*EXPERTS, high=100_000),
                 active=f.count(*ACTIVE, high=100_000), width=width, shared=shared * width,
                 latent=latent, router_bias=True).feed_forward()
    if latent is None or not f.flag("latent_moe_use_norm"):
        return routed
    return replace(routed, weights=(*routed.weights, *norm(latent, "latent_norm")))


def lfm2(f: Fields) -> Body:
    """LFM2: gated short convolutions and a few attention layers; LFM2-MoE adds experts.

    Source: LFM2 model cards; transformers ``modeling_lfm2.py`` (FFN width two thirds, rounded
    up) and ``modeling_lfm2_moe.py`` (first ``num_dense_layers`` dense).
    """
    s = shape(f)
    kinds = f.words("layer_types", length=s.layers)
    if kinds is None:
        chosen = f.items("full_attn_idxs") or []
        kinds = ["full_attention" if i in chosen else "conv" for i in range(s.layers)]
    attn = replace(_plain(s), vectors=2 * s.head_dim).mixer()
    conv = short_conv(s.hidden, f.count("conv_L_cache", default=3), bias=f.flag("conv_bias"))
    first = f.count("num_dense_layers", default=2, low=0) if f.has("num_experts") else s.layers
    layers = [layer(attn if kind == "full_attention" else conv,
                    dense(s.hidden, _lfm2_width(f)) if i < first else
                    experts(f, Rules(source="Lfm2MoeConfig"), s.hidden), norm(2 * s.hidden))
              for i, kind in enumerate(kinds)]
    return _body(f, s, layers, tied=f.flag("tie_embedding", default=True))


def _lfm2_width(f: Fields) -> int:
    width = f.count("intermediate_size", "block_ff_dim")
    if f.has("num_experts") or not f.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(f.number("block_ffn_dim_multiplier", default=1.0) * (2 * width // 3))
    step = f.count("block_multiple_of", default=256)
    return step * -(-width // step)
