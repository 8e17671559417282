"""What a config must say, by class, before it is read.

A field whose absence would turn one architecture into another (experts into a dense model, a
hybrid into full attention) is either given, or has the certain default of its transformers
configuration class, or the config is refused. Class defaults are those of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from planner.architectures.config import Fields
from planner.architectures.decoder import ACTIVE, EXPERT_WIDTH, EXPERTS, KV_HEADS, SHARED
from planner.architectures.names import MODEL_TYPES
from planner.errors import IncompleteConfig

Need = tuple[str, ...]
"""Names of one field; any of them will do."""

_COUNT: Final[Need] = ("num_experts", *EXPERTS)
_COUNT_DEEPSEEK: Final[Need] = ("n_routed_experts", *EXPERTS)
_COUNT_LOCAL: Final[Need] = EXPERTS
_COUNT_MOE: Final[Need] = ("moe_num_experts", *EXPERTS)
_WIDTH: Final[Need] = EXPERT_WIDTH
_SPARSE: Final[Need] = ("first_k_dense_replace", "mlp_layer_types")
_QWEN: Final = (_COUNT, ACTIVE, _WIDTH)
_QWEN_SHARED: Final = (*_QWEN, ("shared_expert_intermediate_size",))
_DEEPSEEK: Final = (_COUNT_DEEPSEEK, ACTIVE, _WIDTH, _SPARSE)
_SHARED_COUNT: Final[Need] = SHARED
_INDEX: Final[Need] = ("index_topk",)
_STEP: Final = (("num_experts", "moe_num_experts"), ("num_experts_per_tok", "moe_top_k"), _WIDTH,
                ("share_expert_dim",), ("layer_types",), ("head_dim",), ("sliding_window",),
                ("moe_layers_enum", *_SPARSE))
_M3: Final = (_COUNT_LOCAL, ACTIVE, ("moe_layer_freq", "mlp_layer_types"), ("head_dim",),
              ("shared_intermediate_size",), ("sparse_attention_config", "layer_types"))
_MINIMAX: Final = (("attn_type_list", "layer_types"), _COUNT_LOCAL, ACTIVE, ("head_dim",))
_NATIVE: Final[Need] = ("intermediate_size", *EXPERT_WIDTH)
_SIMPLE: Final = (_COUNT_LOCAL, ACTIVE, _NATIVE)
_PLAIN: Final = (_COUNT, ACTIVE, _NATIVE)

NEEDED: Final[Mapping[str, tuple[Need, ...]]] = {
    "Qwen3MoeForCausalLM": _QWEN, "qwen3_moe": _QWEN, "qwen3_vl_moe_text": _QWEN,
    "Qwen3VLMoeForConditionalGeneration": _QWEN, "qwen3_omni_moe_text": _QWEN,
    "Qwen2MoeForCausalLM": _QWEN_SHARED, "Qwen3NextForCausalLM": _QWEN_SHARED,
    "Qwen3_5MoeForConditionalGeneration": _QWEN_SHARED, "Qwen3_5MoeForCausalLM": _QWEN_SHARED,
    "qwen3_5_moe_text": _QWEN_SHARED,
    "DeepseekForCausalLM": _DEEPSEEK, "Dots1ForCausalLM": _DEEPSEEK,
    "DeepseekV2ForCausalLM": _DEEPSEEK, "deepseek_v2": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK, "deepseek_v3": _DEEPSEEK, "kimi_k2": _DEEPSEEK,
    "KimiK25ForConditionalGeneration": _DEEPSEEK, "KimiVLForConditionalGeneration": _DEEPSEEK,
    "DeepseekV32ForCausalLM": (*_DEEPSEEK, _INDEX), "deepseek_v32": (*_DEEPSEEK, _INDEX),
    "GlmMoeDsaForCausalLM": (*_DEEPSEEK, _INDEX), "Glm4MoeLiteForCausalLM": _DEEPSEEK,
    "MistralLarge3ForCausalLM": _DEEPSEEK,
    # Mistral4Config: no dense layer unless it says so.
    "Mistral4ForCausalLM": _DEEPSEEK[:3], "mistral4": _DEEPSEEK[:3],
    "DeepseekV4ForCausalLM": (*_DEEPSEEK[:3], ("compress_ratios", "layer_types"),
                              ("num_hash_layers", "mlp_layer_types")),
    "Glm4MoeForCausalLM": _DEEPSEEK, "glm4_moe": _DEEPSEEK, "glm4v_moe_text": _DEEPSEEK,
    "Glm4vMoeForConditionalGeneration": _DEEPSEEK,
    "MixtralForCausalLM": _SIMPLE, "PhiMoEForCausalLM": _SIMPLE, "PhimoeForCausalLM": _SIMPLE,
    "GptOssForCausalLM": _SIMPLE, "gpt_oss": _SIMPLE,
    "Llama4ForConditionalGeneration": _SIMPLE, "Llama4ForCausalLM": _SIMPLE,
    "llama4_text": _SIMPLE,
    "OlmoeForCausalLM": _PLAIN, "FlexOlmoForCausalLM": _PLAIN,
    "Grok1ModelForCausalLM": _PLAIN, "HunYuanMoEV1ForCausalLM": _PLAIN,
    "GraniteMoeForCausalLM": _SIMPLE,
    "GraniteMoeSharedForCausalLM": (*_SIMPLE, ("shared_intermediate_size",)),
    "GraniteMoeHybridForCausalLM": (_COUNT_LOCAL, ("layer_types", "layers_block_type"),
                                    ("shared_intermediate_size",)),
    "BailingMoeForCausalLM": (*_QWEN, _SPARSE), "BailingMoeV2ForCausalLM": (*_QWEN, _SPARSE),
    "Ernie4_5_MoeForCausalLM": (_COUNT_MOE, ACTIVE, _WIDTH,
                                ("moe_layer_start_index", "mlp_layer_types")),
    "Ernie4_5_MoEForCausalLM": (_COUNT_MOE, ACTIVE, _WIDTH,
                                ("moe_layer_start_index", "mlp_layer_types")),
    "MiniMaxM2ForCausalLM": (*_SIMPLE, ("head_dim",)),
    "MiniMaxM3SparseForConditionalGeneration": _M3, "MiniMaxM3SparseForCausalLM": _M3,
    "MiniMaxM3VLForCausalLM": _M3,
    "MiniMaxM1ForCausalLM": _MINIMAX, "MiniMaxText01ForCausalLM": _MINIMAX,
    "MiniMaxForCausalLM": _MINIMAX,
    "ExaoneMoeForCausalLM": _QWEN, "HYV3ForCausalLM": _QWEN,
    "AfmoeForCausalLM": (*_QWEN, ("num_dense_layers", "mlp_layer_types")),
    "SolarOpenForCausalLM": _DEEPSEEK[:3],
    "MiMoV2FlashForCausalLM": (*_DEEPSEEK[:3], ("hybrid_layer_pattern", "layer_types"),
                               ("moe_layer_freq", "mlp_layer_types"), ("head_dim",),
                               ("v_head_dim",)),
    "Step3p5ForCausalLM": _STEP, "Step3p7FlashForCausalLM": _STEP, "step3p5": _STEP,
    "Step3p7ForConditionalGeneration": _STEP, "step3p7": _STEP,
    "KimiLinearForCausalLM": (*_QWEN, _SPARSE), "KimiK3ForConditionalGeneration": (
        *_QWEN, _SPARSE, ("routed_expert_hidden_size",)),
    "Lfm2ForCausalLM": (("layer_types", "full_attn_idxs"),),
    "lfm2": (("layer_types", "full_attn_idxs"),),
    "Lfm2MoeForCausalLM": (*_QWEN, ("layer_types", "full_attn_idxs")),
    "BambaForCausalLM": (("attn_layer_indices", "layers_block_type", "layer_types"),),
}
"""Fields that must be there and not null, the class's own name first."""

_LATENT: Final[tuple[Need, ...]] = (("q_lora_rank",), _SHARED_COUNT)
STATED: Final[Mapping[str, tuple[Need, ...]]] = {
    **dict.fromkeys((
        "DeepseekV2ForCausalLM", "deepseek_v2", "DeepseekV3ForCausalLM", "deepseek_v3", "kimi_k2",
        "KimiK25ForConditionalGeneration", "KimiVLForConditionalGeneration",
        "DeepseekV32ForCausalLM", "deepseek_v32", "GlmMoeDsaForCausalLM",
        "Glm4MoeLiteForCausalLM", "MistralLarge3ForCausalLM", "Mistral4ForCausalLM", "mistral4"),
        _LATENT),
    **dict.fromkeys((
        "DeepseekForCausalLM", "Dots1ForCausalLM", "Glm4MoeForCausalLM", "glm4_moe",
        "glm4v_moe_text", "Glm4vMoeForConditionalGeneration", "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM", "Ernie4_5_MoeForCausalLM", "Ernie4_5_MoEForCausalLM",
        "ExaoneMoeForCausalLM", "HYV3ForCausalLM", "AfmoeForCausalLM", "SolarOpenForCausalLM",
        "KimiLinearForCausalLM"), (_SHARED_COUNT,)),
    "KimiK3ForConditionalGeneration": (*_LATENT, ("attn_res_block_size",),
                                       ("mla_use_output_gate",)),
}
"""Fields that must be there; null is an answer (DeepSeek-V2-Lite has no query latent)."""

_MULTI_HEAD: Final = frozenset((
    "LlamaForCausalLM", "LLaMAForCausalLM", "llama", "YiForCausalLM", "AquilaForCausalLM",
    "ApertusForCausalLM", "ArceeForCausalLM", "CohereForCausalLM", "cohere",
    "Cohere2ForCausalLM", "GraniteForCausalLM", "granite", "GraniteMoeForCausalLM",
    "GraniteMoeSharedForCausalLM", "GraniteMoeHybridForCausalLM", "HunYuanDenseV1ForCausalLM",
    "HunYuanMoEV1ForCausalLM", "OlmoForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM",
    "OlmoeForCausalLM", "FlexOlmoForCausalLM", "PhiForCausalLM", "Phi3ForCausalLM", "phi3",
    "Phi4MMForCausalLM", "AfmoeForCausalLM", "DeepseekForCausalLM", "Dots1ForCausalLM",
    "BaichuanForCausalLM", "BaiChuanForCausalLM", "QWenLMHeadModel", "InternLMForCausalLM",
    "InternLM2ForCausalLM", "internlm2", "MiniCPMForCausalLM", "GPT2LMHeadModel",
    "GPTNeoXForCausalLM", "GPTJForCausalLM", "CodeGenForCausalLM", "BloomForCausalLM",
    "OPTForCausalLM", "FalconForCausalLM", "RWForCausalLM", "GPTBigCodeForCausalLM",
    "MPTForCausalLM", "MptForCausalLM", "NemotronForCausalLM"))
"""Classes whose ``num_key_value_heads`` defaults to the number of heads."""

_NO_KV_HEADS: Final = frozenset((
    "DeepseekV2ForCausalLM", "deepseek_v2", "DeepseekV3ForCausalLM", "deepseek_v3", "kimi_k2",
    "KimiK25ForConditionalGeneration", "KimiVLForConditionalGeneration",
    "DeepseekV32ForCausalLM", "deepseek_v32", "GlmMoeDsaForCausalLM", "Glm4MoeLiteForCausalLM",
    "MistralLarge3ForCausalLM", "Mistral4ForCausalLM", "mistral4", "DeepseekV4ForCausalLM",
    "YoutuForCausalLM", "MiniCPM3ForCausalLM", "KimiLinearForCausalLM",
    "KimiK3ForConditionalGeneration", "MambaForCausalLM", "FalconMambaForCausalLM",
    "Mamba2ForCausalLM", "DeciLMForCausalLM", "DbrxForCausalLM"))
"""Classes that read no such field, or read it from a section of their own."""

_KV: Final[Mapping[int, Iterable[str]]] = {
    2: ("GlmForCausalLM", "glm", "Glm4ForCausalLM", "glm4", "glm4v_text",
        "Starcoder2ForCausalLM", "Qwen3NextForCausalLM", "qwen3_5_moe_text",
        "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM",
        "Ernie4_5ForCausalLM", "Gemma3nForConditionalGeneration", "Gemma3nForCausalLM",
        "gemma3n_text"),
    4: ("Qwen3MoeForCausalLM", "qwen3_moe", "qwen3_omni_moe_text", "qwen3_5_text",
        "Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM", "qwen2_5_omni_text",
        "Gemma2ForCausalLM", "gemma2", "VaultGemmaForCausalLM", "Gemma3ForCausalLM",
        "gemma3_text", "Gemma3ForConditionalGeneration", "Gemma4ForConditionalGeneration",
        "Gemma4ForCausalLM", "gemma4_text", "gemma4_unified_text", "Gemma4UnifiedForCausalLM",
        "Gemma4UnifiedForConditionalGeneration", "SmolLM3ForCausalLM", "smollm3",
        "Ernie4_5_MoeForCausalLM", "Ernie4_5_MoEForCausalLM", "sarvam_moe"),
    8: ("MistralForCausalLM", "mistral", "MinistralForCausalLM", "ministral",
        "Ministral3ForCausalLM", "ministral3", "Mistral3ForConditionalGeneration",
        "MixtralForCausalLM", "PhiMoEForCausalLM", "PhimoeForCausalLM", "GptOssForCausalLM",
        "gpt_oss", "Llama4ForConditionalGeneration", "Llama4ForCausalLM", "llama4_text",
        "SeedOssForCausalLM", "Glm4MoeForCausalLM", "glm4_moe", "glm4v_moe_text",
        "JambaForCausalLM", "BambaForCausalLM", "CwmForCausalLM", "FalconH1ForCausalLM",
        "Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "lfm2", "NemotronHForCausalLM",
        "MiniMaxM2ForCausalLM", "SolarOpenForCausalLM"),
    16: ("GemmaForCausalLM", "Qwen2MoeForCausalLM", "qwen3_vl_moe_text"),
    32: ("Qwen2ForCausalLM", "qwen2", "Qwen3ForCausalLM", "qwen3", "qwen3_vl_text",
         "StableLmForCausalLM", "StableLMEpochForCausalLM", "Exaone4ForCausalLM", "exaone4",
         "ExaoneMoeForCausalLM"),
}
KV_DEFAULTS: Final[Mapping[str, int]] = {n: kv for kv, names in _KV.items() for n in names}
"""Class default of ``num_key_value_heads``; classes in no table here must be told."""

_PATTERN: Final = {"sliding_window_pattern": 4}
_GEMMA4: Final = {"hidden_size_per_layer_input": 256}
_UNIFIED: Final = {"sliding_window": 1024}
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "MistralForCausalLM": {"sliding_window": 4096}, "mistral": {"sliding_window": 4096},
    "MinistralForCausalLM": {"sliding_window": 4096}, "ministral": {"sliding_window": 4096},
    "Ministral3ForCausalLM": {"head_dim": 128}, "ministral3": {"head_dim": 128},
    "Exaone4ForCausalLM": _PATTERN, "exaone4": _PATTERN, "ExaoneMoeForCausalLM": _PATTERN,
    "FalconH1ForCausalLM": {"mamba_d_ssm": 1024},
    "SeedOssForCausalLM": {"attention_out_bias": False},
    "Gemma4ForConditionalGeneration": _GEMMA4, "Gemma4ForCausalLM": _GEMMA4,
    "gemma4_text": _GEMMA4, "gemma4_unified_text": _UNIFIED,
    "Gemma4UnifiedForCausalLM": _UNIFIED, "Gemma4UnifiedForConditionalGeneration": _UNIFIED,
    "Llama4ForConditionalGeneration": {"head_dim": 128}, "Llama4ForCausalLM": {"head_dim": 128},
    "llama4_text": {"head_dim": 128}, "HYV3ForCausalLM": {"head_dim": 128},
    "NemotronHForCausalLM": {"head_dim": 128},
}
"""Other class defaults, for keys that are absent (a null is the config's own answer)."""


def checked(f: Fields, found: str, wrapper: str) -> Fields:
    """The config with its class's certain defaults.

    Parameters
    ----------
    f : Fields
        The section of the language model.
    found : str
        Class or model type whose rules read it.
    wrapper : str
        Class of the whole config, which may need more (Kimi K3 around ``kimi_linear``).

    Raises
    ------
    IncompleteConfig
        When it lacks what tells one architecture from another.
    """
    name = MODEL_TYPES.get(found, found)
    for names in (*NEEDED.get(name, ()), *NEEDED.get(wrapper, ())):
        if f.find(*names)[1] is None and not _nested(f, names):
            raise _lacks(f, names)
    for names in (*STATED.get(name, ()), *STATED.get(wrapper, ())):
        if not any(n in f.data or n in f.defaults for n in names):
            raise _lacks(f, names)
    given = {k: v for k, v in {**DEFAULTS.get(name, {}), **_kv_heads(f, found, name)}.items()
             if k not in f.data}
    return replace(f, defaults={**given, **f.defaults}) if given else f


def _nested(f: Fields, names: Need) -> bool:
    """Whether a section that transformers >= 5 flattens holds the field."""
    return "layer_types" in names and f.has("linear_attn_config")


def _kv_heads(f: Fields, found: str, name: str) -> dict[str, int]:
    name = found if found in KV_DEFAULTS else name
    if name in _MULTI_HEAD or name in _NO_KV_HEADS or f.find(*KV_HEADS)[1] is not None:
        return {}
    if name not in KV_DEFAULTS or any(key in f.data for key in KV_HEADS):
        raise _lacks(f, KV_HEADS[:1])
    return {"num_key_value_heads": KV_DEFAULTS[name]}


def _lacks(f: Fields, names: Need) -> IncompleteConfig:
    distinct = list(dict.fromkeys(names))
    return IncompleteConfig(
        f"the config lacks {' or '.join(distinct)}; without it the architecture is a guess",
        f.at(distinct[0]))
