"""Dense decoders with grouped-query attention: one row of rules per class.

Class names are those of transformers (``modeling_<family>.py``) unless a row says otherwise.
Biases, norms and tied-embedding defaults are the ones of these classes.
"""

from __future__ import annotations

from typing import Final

from planner.architectures.decoder import (
    Rules,
    slide_all,
    slide_letters,
    slide_pattern,
    slide_qwen,
)

_LLAMA: Final = Rules(
    source="Llama 2, arXiv:2307.09288; transformers LlamaConfig",
    qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias")
_MISTRAL: Final = Rules(
    source="Mistral 7B, arXiv:2310.06825; transformers MistralConfig", windows=slide_all)
_QWEN2: Final = Rules(
    source="Qwen2, arXiv:2407.10671; transformers Qwen2Attention (bias on q, k, v only)",
    qkv_bias=True, windows=slide_qwen)
_QWEN3: Final = Rules(
    source="Qwen3, arXiv:2505.09388; transformers Qwen3Attention (q/k norm of head width)",
    qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", windows=slide_qwen,
    head_dim=128)
_GEMMA2: Final = Rules(
    source="Gemma 2, arXiv:2408.00118; transformers Gemma2Config",
    tied=True, qkv_bias="attention_bias", out_bias="attention_bias", norms=4, head_dim=256,
    windows=slide_pattern(2))
_GEMMA3: Final = Rules(
    source="Gemma 3, arXiv:2503.19786; transformers Gemma3TextConfig",
    tied=True, qkv_bias="attention_bias", out_bias="attention_bias", norms=4, qk_norm="head",
    head_dim=256, windows=slide_pattern(6),
    # The published 4B and larger configs leave these out (Gemma3TextConfig fills them in).
    defaults={"vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4,
              "sliding_window": 4096, "max_position_embeddings": 131_072})
_COHERE: Final = Rules(
    source="Command R model card; transformers CohereConfig (one norm, parallel block)",
    tied=True, qkv_bias="attention_bias", out_bias="attention_bias", norms=1, parallel=True,
    qk_norm="heads", qk_norm_key="use_qk_norm")
_OLMO2: Final = Rules(
    source="OLMo 2, arXiv:2501.00656; transformers Olmo2Attention (q/k norm over all heads)",
    qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="heads")
_EXAONE4: Final = Rules(
    source="EXAONE 4.0, arXiv:2507.11407; transformers Exaone4Config",
    qk_norm="head", windows=slide_letters, defaults={"sliding_window": 4096})
_STARCODER2: Final = Rules(
    source="StarCoder 2, arXiv:2402.19173; transformers Starcoder2Config",
    tied=True, gated=False, qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias",
    default_bias=True, norm_vectors=2, windows=slide_all)
_SEED_OSS: Final = Rules(
    source="Seed-OSS model card; transformers SeedOssConfig",
    qkv_bias="attention_bias", default_bias=True, out_bias="attention_out_bias",
    head_dim=128)
_GLM: Final = Rules(
    source="GLM-4-9B; transformers GlmConfig", qkv_bias="attention_bias", head_dim=128)
_GLM4: Final = Rules(
    source="GLM-4-0414; transformers Glm4Config (four norms)", qkv_bias="attention_bias",
    norms=4, head_dim=128)
_CHATGLM: Final = Rules(
    source="THUDM modeling_chatglm.py of ChatGLM2/3 and glm-4-9b-chat",
    qkv_bias="add_qkv_bias", out_bias="add_bias_linear", mlp_bias="add_bias_linear")
_STABLELM: Final = Rules(
    source="StableLM 2, arXiv:2402.17834; transformers StableLmConfig",
    qkv_bias="use_qkv_bias", norm_vectors=2)
_PHI3: Final = Rules(
    source="Phi-3, arXiv:2404.14219; transformers Phi3Config", windows=slide_all)
_NEMOTRON: Final = Rules(
    source="Nemotron-4, arXiv:2402.16819; transformers NemotronConfig (squared ReLU, LayerNorm1P)",
    gated=False, qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias",
    norm_vectors=2)
_HUNYUAN: Final = Rules(
    source="Hunyuan dense model card; transformers HunYuanDenseV1Attention",
    qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head")
_INTERNLM2: Final = Rules(
    source="InternLM2, arXiv:2403.17297; modeling_internlm2.py", qkv_bias="bias",
    out_bias="bias", default_bias=True)
_INTERNLM3: Final = Rules(
    source="InternLM3 model card; transformers InternLM3Config", qkv_bias="qkv_bias",
    out_bias="bias", mlp_bias="bias")
_ERNIE: Final = Rules(
    source="ERNIE 4.5 technical report; transformers Ernie4_5Config", tied=True,
    qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias")
_QWEN1: Final = Rules(
    source="Qwen, arXiv:2309.16609; modeling_qwen.py (each FFN matrix has half the width)",
    qkv_bias=True, width_divisor=2)
_BAICHUAN: Final = Rules(
    source="Baichuan 2, arXiv:2309.10305; modeling_baichuan.py (multi-head, no bias)")
_SMOLLM3: Final = Rules(
    source="SmolLM3 model card; transformers SmolLM3Config", tied=True,
    qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias",
    windows=slide_qwen)
_APERTUS: Final = Rules(
    source="Apertus, arXiv:2509.14233; transformers ApertusConfig (xIELU: two scalars)",
    gated=False, qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias",
    qk_norm="head", layer_vectors=2)
_ARCEE: Final = Rules(
    source="AFM-4.5B model card; transformers ArceeConfig (squared ReLU)", gated=False,
    qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias")

DENSE: Final[dict[str, Rules]] = {
    "LlamaForCausalLM": _LLAMA, "LLaMAForCausalLM": _LLAMA, "llama": _LLAMA,
    "HeliumForCausalLM": _LLAMA, "YiForCausalLM": _LLAMA, "AquilaForCausalLM": _LLAMA,
    "CwmForCausalLM": _LLAMA,
    "MistralForCausalLM": _MISTRAL, "mistral": _MISTRAL,
    "MinistralForCausalLM": _MISTRAL, "ministral": _MISTRAL,
    "Ministral3ForCausalLM": _MISTRAL, "ministral3": _MISTRAL,
    "Mistral3ForConditionalGeneration": _MISTRAL,
    "Qwen2ForCausalLM": _QWEN2, "qwen2": _QWEN2,
    "Qwen2VLForConditionalGeneration": _QWEN2, "qwen2_vl": _QWEN2, "qwen2_vl_text": _QWEN2,
    "Qwen2_5_VLForConditionalGeneration": _QWEN2, "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2, "qwen2_5_omni_text": _QWEN2,
    "MiMoForCausalLM": _QWEN2, "mimo": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3, "qwen3": _QWEN3,
    "Qwen3VLForConditionalGeneration": _QWEN3, "qwen3_vl_text": _QWEN3,
    "QWenLMHeadModel": _QWEN1,
    "BaichuanForCausalLM": _BAICHUAN, "BaiChuanForCausalLM": _BAICHUAN,
    "GemmaForCausalLM": Rules(
        source="Gemma, arXiv:2403.08295; transformers GemmaConfig", tied=True, head_dim=256,
        qkv_bias="attention_bias", out_bias="attention_bias"),
    "Gemma2ForCausalLM": _GEMMA2, "gemma2": _GEMMA2,
    "Gemma3ForCausalLM": _GEMMA3, "gemma3_text": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "CohereForCausalLM": _COHERE, "cohere": _COHERE,
    "Cohere2ForCausalLM": Rules(
        source="Command A, arXiv:2504.00698; transformers Cohere2Config", tied=True,
        qkv_bias="attention_bias", out_bias="attention_bias", norms=1, parallel=True,
        windows=slide_pattern(4), defaults={"sliding_window": 4096}),
    "OlmoForCausalLM": Rules(
        source="OLMo, arXiv:2402.00838; transformers OlmoConfig (norms without weights)",
        qkv_bias="attention_bias", out_bias="attention_bias", norm_vectors=0),
    "Olmo2ForCausalLM": _OLMO2,
    "Olmo3ForCausalLM": Rules(
        source="OLMo 3 technical report; transformers Olmo3Config (every fourth layer full)",
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="heads",
        windows=slide_pattern(4), defaults={"sliding_window": 4096}),
    "Phi3ForCausalLM": _PHI3, "phi3": _PHI3, "Phi4MMForCausalLM": _PHI3,
    "Starcoder2ForCausalLM": _STARCODER2,
    "GraniteForCausalLM": _LLAMA, "granite": _LLAMA,
    "SeedOssForCausalLM": _SEED_OSS,
    "GlmForCausalLM": _GLM, "glm": _GLM,
    "Glm4ForCausalLM": _GLM4, "glm4": _GLM4, "glm4v_text": _GLM4,
    "Glm4vForConditionalGeneration": _GLM4,
    "ChatGLMModel": _CHATGLM, "ChatGLMForConditionalGeneration": _CHATGLM, "chatglm": _CHATGLM,
    "StableLmForCausalLM": _STABLELM, "StableLMEpochForCausalLM": _STABLELM,
    "NemotronForCausalLM": _NEMOTRON,
    "HunYuanDenseV1ForCausalLM": _HUNYUAN,
    "InternLM2ForCausalLM": _INTERNLM2, "internlm2": _INTERNLM2,
    "InternLMForCausalLM": _INTERNLM2,
    "InternLM3ForCausalLM": _INTERNLM3, "internlm3": _INTERNLM3,
    "Ernie4_5ForCausalLM": _ERNIE,
    "ExaoneForCausalLM": Rules(
        source="EXAONE 3.5, arXiv:2412.04862; modeling_exaone.py (keys num_layers, n_inner)"),
    "Exaone4ForCausalLM": _EXAONE4, "exaone4": _EXAONE4,
    "SmolLM3ForCausalLM": _SMOLLM3, "smollm3": _SMOLLM3,
    "ApertusForCausalLM": _APERTUS,
    "ArceeForCausalLM": _ARCEE,
    "MiniCPMForCausalLM": Rules(
        source="MiniCPM, arXiv:2404.06395; modeling_minicpm.py (llama-like)", tied=True,
        qkv_bias="attention_bias", out_bias="attention_bias"),
    "Jais2ForCausalLM": Rules(
        source="Jais 2 model card; transformers Jais2Config (squared ReLU, LayerNorm)",
        gated=False, qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias",
        default_bias=True, norm_vectors=2),
    "VaultGemmaForCausalLM": Rules(
        source="VaultGemma, arXiv:2510.15001; transformers VaultGemmaConfig", tied=True,
        qkv_bias="attention_bias", out_bias="attention_bias", head_dim=256,
        windows=slide_pattern(2)),
}
"""Rules by class name or model type."""
