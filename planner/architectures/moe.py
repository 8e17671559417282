"""Mixture-of-experts decoders with grouped-query attention: one row of rules per class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from planner.architectures.config import Fields
from planner.architectures.decoder import (
    CONTEXT,
    VOCAB,
    Rules,
    attention,
    chunk_llama4,
    decode,
    every_layer,
    experts,
    shape,
    slide_all,
    slide_letters,
    slide_pattern,
    slide_qwen,
    sparse_layers,
    sparse_llama4,
    window_of,
)
from planner.architectures.parts import Attention, Body, Moe, dense, layer, mtp_params, norm
from planner.llm import FeedForward, KvStream, Mixer, Role, Weight

_QWEN3_MOE: Final = Rules(
    source="Qwen3, arXiv:2505.09388; transformers Qwen3MoeConfig",
    qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", windows=slide_qwen,
    sparse=sparse_layers)
_QWEN2_MOE: Final = Rules(
    source="Qwen2, arXiv:2407.10671; transformers Qwen2MoeSparseMoeBlock (gated shared expert)",
    qkv_bias=True, windows=slide_qwen, sparse=sparse_layers, shared_gate=True)
_GLM4_MOE: Final = Rules(
    source="GLM-4.5, arXiv:2508.06471; transformers Glm4MoeConfig",
    qkv_bias="attention_bias", qk_norm="head", qk_norm_key="use_qk_norm", sparse=sparse_layers,
    router_bias=True)
_LLAMA4: Final = Rules(
    source="Llama 4 model card; transformers Llama4TextConfig",
    qkv_bias="attention_bias", out_bias="attention_bias", windows=chunk_llama4, chunked=True,
    sparse=sparse_llama4, shared_always=True, dense_width=("intermediate_size_mlp",),
    defaults={"attention_chunk_size": 8192})
_GPT_OSS: Final = Rules(
    source="gpt-oss model card, arXiv:2508.10925; transformers GptOssConfig",
    qkv_bias=True, out_bias=True, sinks=True, windows=slide_pattern(2), sparse=every_layer,
    expert_bias=True, router_bias=True, head_dim=64, defaults={"sliding_window": 128})
_PHIMOE: Final = Rules(
    source="Phi-3.5-MoE, arXiv:2404.14219; transformers PhimoeConfig",
    qkv_bias="attention_bias", out_bias="attention_bias", norm_vectors=2,
    head_bias="lm_head_bias", windows=slide_all, sparse=every_layer)
_BAILING: Final = Rules(
    source="Ling, arXiv:2503.05139; modeling_bailing_moe.py",
    qkv_bias="use_qkv_bias", out_bias="use_bias", qk_norm="head", qk_norm_key="use_qk_norm",
    sparse=sparse_layers)
_ERNIE_MOE: Final = Rules(
    source="ERNIE 4.5 technical report; transformers Ernie4_5_MoeConfig", tied=True,
    qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", sparse=sparse_layers,
    router_bias=True)
_GRANITE_MOE: Final = Rules(
    source="Granite 3.0 report; transformers GraniteMoeConfig",
    qkv_bias="attention_bias", out_bias="attention_bias", sparse=every_layer,
    shared_width=("shared_intermediate_size",))
_HUNYUAN_MOE: Final = Rules(
    source="Hunyuan-A13B model card; transformers HunYuanMoEV1Attention",
    qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", sparse=every_layer,
    shared_always=True)
_DOTS1: Final = Rules(
    source="dots.llm1, arXiv:2506.05767; transformers Dots1Config",
    qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", sparse=sparse_layers)
_DEEPSEEK: Final = Rules(
    source="DeepSeekMoE, arXiv:2401.06066; modeling_deepseek.py",
    qkv_bias="attention_bias", out_bias="attention_bias", sparse=sparse_layers)
_MINIMAX_M2: Final = Rules(
    source="MiniMax-M2 model card; transformers MiniMaxM2Attention (q/k norm over all heads)",
    qk_norm="heads", qk_norm_key="use_qk_norm", sparse=every_layer, router_bias=True,
    defaults={"use_qk_norm": True})
_EXAONE_MOE: Final = Rules(
    source="K-EXAONE model card; transformers ExaoneMoeConfig",
    qk_norm="head", windows=slide_letters, sparse=sparse_layers, router_bias=True,
    defaults={"first_k_dense_replace": 1, "sliding_window": 4096})
_HY_V3: Final = Rules(
    source="Hunyuan 3 model card; transformers HYV3Config",
    qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias", qk_norm="head",
    sparse=sparse_layers, router_bias=True, defaults={"first_k_dense_replace": 1})

MOE: Final[dict[str, Rules]] = {
    "MixtralForCausalLM": Rules(
        source="Mixtral, arXiv:2401.04088; transformers MixtralConfig", windows=slide_all,
        sparse=every_layer),
    "Qwen2MoeForCausalLM": _QWEN2_MOE,
    "Qwen3MoeForCausalLM": _QWEN3_MOE, "qwen3_moe": _QWEN3_MOE,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3_MOE, "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_omni_moe_text": _QWEN3_MOE,
    "Glm4MoeForCausalLM": _GLM4_MOE, "glm4_moe": _GLM4_MOE, "glm4v_moe_text": _GLM4_MOE,
    "Glm4vMoeForConditionalGeneration": _GLM4_MOE,
    "Llama4ForConditionalGeneration": _LLAMA4, "Llama4ForCausalLM": _LLAMA4,
    "llama4_text": _LLAMA4,
    "GptOssForCausalLM": _GPT_OSS, "gpt_oss": _GPT_OSS,
    "PhiMoEForCausalLM": _PHIMOE, "PhimoeForCausalLM": _PHIMOE,
    "BailingMoeForCausalLM": _BAILING, "BailingMoeV2ForCausalLM": _BAILING,
    "Ernie4_5_MoeForCausalLM": _ERNIE_MOE, "Ernie4_5_MoEForCausalLM": _ERNIE_MOE,
    "GraniteMoeForCausalLM": _GRANITE_MOE, "GraniteMoeSharedForCausalLM": _GRANITE_MOE,
    "Dots1ForCausalLM": _DOTS1,
    "DeepseekForCausalLM": _DEEPSEEK,
    "MiniMaxM2ForCausalLM": _MINIMAX_M2,
    "OlmoeForCausalLM": Rules(
        source="OLMoE, arXiv:2409.02060; transformers OlmoeConfig",
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="heads",
        sparse=every_layer),
    "ExaoneMoeForCausalLM": _EXAONE_MOE, "HYV3ForCausalLM": _HY_V3,
    "AfmoeForCausalLM": Rules(
        source="Trinity model card; transformers AfmoeConfig (gated attention, four norms)",
        norms=4, qk_norm="head", output_gate=True, head_dim=128, windows=slide_pattern(4),
        sparse=sparse_layers, router_bias=True,
        defaults={"num_dense_layers": 1, "sliding_window": 1024}),
    "SolarOpenForCausalLM": Rules(
        source="Solar Open 100B model card; transformers SolarOpenConfig",
        qkv_bias="attention_bias", sparse=every_layer, router_bias=True, head_dim=128),
    "FlexOlmoForCausalLM": Rules(
        source="FlexOlmo, arXiv:2507.07024; transformers FlexOlmoConfig",
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="heads",
        sparse=every_layer),
    "Grok1ModelForCausalLM": Rules(
        source="xai-org/grok-1 model.py (four norms, tied table)", tied=True, norms=4,
        sparse=every_layer),
}
"""Rules by class name or model type."""


def hunyuan_moe(f: Fields) -> Body:
    """Hunyuan-A13B: sizes of the experts may be lists with one entry per layer.

    Source: transformers HunYuanMoEV1Config. Unequal entries are not described here.
    """
    flat: dict[str, Any] = dict(f.data)
    for key in ("num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size"):
        values = f.data.get(key)
        if isinstance(values, list):
            f.counts(key, length=f.layers())
            flat[key] = max(values)
    return decode(replace(f, data=flat), _HUNYUAN_MOE)


def dbrx(f: Fields) -> Body:
    """DBRX: attention and experts in sections of their own.

    Source: transformers DbrxConfig; DBRX model card (132B, 16 experts, 4 active).
    """
    attn = f.section("attn_config") or Fields({}, f.at("attn_config"))
    ffn = f.section("ffn_config") or Fields({}, f.at("ffn_config"))
    s = shape(replace(f, data={**f.data, "n_head_kv": attn.count("kv_n_heads")}))
    half = experts(Fields({**ffn.data, "moe_intermediate_size": ffn.count("ffn_hidden_size")},
                          ffn.pointer), Rules(source="DbrxConfig"), s.hidden)
    one = layer(attention(f, Rules(source="DbrxConfig"), s, None).mixer(), half,
                norm(2 * s.hidden))
    return Body(s.hidden, f.count(*VOCAB), (one,) * s.layers,
                f.flag("tie_word_embeddings"), f.optional(*CONTEXT), norm(s.hidden, "final_norm"))


def minimax_m3(f: Fields) -> Body:
    """MiniMax-M3: GQA whose later layers read 16 blocks of 128 keys, chosen by an indexer.

    Source: transformers MiniMaxM3VLIndexer, ``sparse_attention_config`` of the published config.
    """
    s = shape(f)
    rules = Rules(source="MiniMaxM3VLConfig", qk_norm="head", sparse=sparse_layers,
                  router_bias=f.flag("use_routing_bias", default=True),
                  dense_width=("dense_intermediate_size",),
                  shared_width=("shared_intermediate_size",))
    full = attention(f, rules, s, None).mixer()
    chosen = _block_sparse(f, full, s.hidden)
    routed = sparse_layers(f, s.layers)
    conf = f.section("sparse_attention_config")
    kinds = f.words("layer_types", length=s.layers) or [""] * s.layers
    listed = conf.counts("sparse_attention_freq", length=s.layers) if conf else None
    picks = listed or [int("sparse" in kind) for kind in kinds]
    layers = tuple(
        layer(chosen if pick else full,
              experts(f, rules, s.hidden) if moe else
              dense(s.hidden, f.count("dense_intermediate_size")), norm(2 * s.hidden))
        for moe, pick in zip(routed, picks, strict=True))
    modules = f.count("num_mtp_modules", default=0, low=0, high=64)
    return Body(s.hidden, f.count(*VOCAB), layers, f.flag("tie_word_embeddings"),
                f.optional(*CONTEXT), norm(s.hidden, "final_norm"),
                mtp_params(layers[-1], s.hidden, modules))


def _block_sparse(f: Fields, full: Mixer, hidden: int) -> Mixer:
    # transformers >= 5 flattens the section.
    conf = f.section("sparse_attention_config") or f
    if not any(conf.has(key) for key in ("sparse_index_dim", "index_head_dim")):
        return full
    width = conf.count("sparse_index_dim", "index_head_dim")
    heads = conf.count("sparse_num_index_heads", "index_n_heads")
    reach = (conf.count("sparse_topk_blocks", "index_topk_blocks")
             * conf.count("sparse_block_size", "index_block_size"))
    index = KvStream("index", width, prefill_flops_per_pair=2 * heads * width,
                     decode_flops_per_pair=2 * heads * width, bytes_per_value=2.0)
    weights = (Weight("indexer", Role.INDEXER, hidden * (heads + 1) * width, sharded=False),
               *norm(2 * width, "indexer_norms"))
    return replace(full, kind="sparse", weights=full.weights + weights,
                   streams=(replace(full.streams[0], attend=reach), index))


def mimo_v2(f: Fields) -> Body:
    """MiMo-V2: sliding layers have more key/value heads; values are narrower than keys.

    Source: transformers MiMoV2FlashAttention; ``hybrid_layer_pattern`` of the published config.
    """
    s = shape(f)
    pattern = f.counts("hybrid_layer_pattern", length=s.layers)
    kinds = f.words("layer_types", length=s.layers) or []
    local = [bool(v) for v in pattern] if pattern else [k.startswith("slid") for k in kinds]
    window = window_of(f, "sliding_window", "sliding_window_size")
    rules = Rules(source="MiMoV2FlashConfig", sparse=sparse_layers, router_bias=True)
    layers = tuple(
        layer(_mimo_attention(f, slides, window).mixer(),
              experts(f, rules, s.hidden) if moe else
              dense(s.hidden, f.count("intermediate_size")), norm(2 * s.hidden))
        for slides, moe in zip(local or [False] * s.layers, sparse_layers(f, s.layers),
                               strict=True))
    modules = f.count("num_nextn_predict_layers", default=0, low=0, high=64)
    return Body(s.hidden, f.count(*VOCAB), layers, f.flag("tie_word_embeddings"),
                f.optional(*CONTEXT), norm(s.hidden, "final_norm"),
                mtp_params(layers[-1], s.hidden, modules))


def _mimo_attention(f: Fields, slides: bool, window: int | None) -> Attention:
    prefix = "swa_" if slides else ""
    sizes = shape(f)
    heads = f.count(f"{prefix}num_attention_heads", default=sizes.heads)
    # transformers doubles the key/value heads of sliding layers; the config spells it out.
    kv = f.count(f"{prefix}num_key_value_heads", default=sizes.kv_heads * (2 if slides else 1))
    sinks = f.flag("add_swa_attention_sink_bias" if slides else "add_full_attention_sink_bias",
                   default=slides)
    return Attention(
        hidden=sizes.hidden, heads=heads, kv_heads=kv,
        head_dim=f.count(f"{prefix}head_dim", default=sizes.head_dim),
        v_dim=f.count(f"{prefix}v_head_dim", "v_head_dim", default=sizes.head_dim),
        qkv_bias=f.flag("attention_bias"), vectors=heads if sinks else 0,
        window=window if slides else None)


def step3(f: Fields) -> Body:
    """Step-3.5 and 3.7: one output gate per head; sliding layers may have more query heads.

    Source: transformers Step3p7Attention; ``attention_other_setting`` of the published config.
    """
    s = shape(f)
    kinds = f.words("layer_types", length=s.layers) or ["full_attention"] * s.layers
    window = window_of(f)
    other = f.section("attention_other_setting")
    local = other.count("num_attention_heads", default=s.heads) if other else s.heads
    per_layer = f.counts("num_attention_heads_per_layer", length=s.layers, low=1)
    routed = _step_sparse(f, s.layers)
    layers = []
    for i, kind in enumerate(kinds):
        slides = kind.startswith("slid")
        heads = per_layer[i] if per_layer else (local if slides else s.heads)
        attn = Attention(hidden=s.hidden, heads=heads, kv_heads=s.kv_heads, head_dim=s.head_dim,
                         query_gate=heads, vectors=2 * s.head_dim,
                         window=window if slides else None)
        ffn = _step_experts(f, s.hidden) if routed[i] else dense(
            s.hidden, f.count("intermediate_size"))
        layers.append(layer(attn.mixer(), ffn, norm(2 * s.hidden)))
    modules = f.count("num_nextn_predict_layers", default=0, low=0, high=64)
    return Body(s.hidden, f.count(*VOCAB), tuple(layers), f.flag("tie_word_embeddings"),
                f.optional(*CONTEXT), norm(s.hidden, "final_norm"),
                mtp_params(layers[-1], s.hidden, modules))


def _step_sparse(f: Fields, layers: int) -> list[bool]:
    listed = f.text("moe_layers_enum")
    if listed is None:
        return sparse_layers(f, layers)
    chosen = {int(v) for v in listed.split(",") if v.strip().isdecimal() and len(v) < 9}
    return [i in chosen for i in range(layers)]


def _step_experts(f: Fields, hidden: int) -> FeedForward:
    return Moe(hidden=hidden, experts=f.count("num_experts", "moe_num_experts"),
               active=f.count("num_experts_per_tok", "moe_top_k"),
               width=f.count("moe_intermediate_size"),
               router_bias=f.flag("use_moe_router_bias", default=True),
               shared=f.count("share_expert_dim", default=0, low=0)).feed_forward()
