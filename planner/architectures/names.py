"""Other names of a family: model types, and what nested sections leave out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MODEL_TYPES: Final[Mapping[str, str]] = {
    "afmoe": "AfmoeForCausalLM", "apertus": "ApertusForCausalLM", "arcee": "ArceeForCausalLM",
    "baichuan": "BaichuanForCausalLM", "bailing_moe": "BailingMoeForCausalLM",
    "bamba": "BambaForCausalLM", "bloom": "BloomForCausalLM", "codegen": "CodeGenForCausalLM",
    "cohere2": "Cohere2ForCausalLM", "cwm": "CwmForCausalLM", "dbrx": "DbrxForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM", "dots1": "Dots1ForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM", "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "exaone": "ExaoneForCausalLM", "exaone_moe": "ExaoneMoeForCausalLM",
    "falcon": "FalconForCausalLM", "falcon_h1": "FalconH1ForCausalLM",
    "falcon_mamba": "FalconMambaForCausalLM", "flex_olmo": "FlexOlmoForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3n": "Gemma3nForConditionalGeneration", "gemma4": "Gemma4ForConditionalGeneration",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM", "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt2": "GPT2LMHeadModel", "gpt_bigcode": "GPTBigCodeForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM", "gptj": "GPTJForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM", "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoeshared": "GraniteMoeSharedForCausalLM", "helium": "HeliumForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM", "hunyuan_v1_moe": "HunYuanMoEV1ForCausalLM",
    "hy_v3": "HYV3ForCausalLM", "jais2": "Jais2ForCausalLM", "jamba": "JambaForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM", "lfm2_moe": "Lfm2MoeForCausalLM",
    "llama4": "Llama4ForConditionalGeneration", "mamba": "MambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM", "mimo_v2_flash": "MiMoV2FlashForCausalLM",
    "minicpm": "MiniCPMForCausalLM", "minicpm3": "MiniCPM3ForCausalLM",
    "minimax": "MiniMaxForCausalLM", "minimax_m1": "MiniMaxM1ForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "minimax_m3_vl": "MiniMaxM3SparseForConditionalGeneration",
    "minimax_m3_vl_text": "MiniMaxM3VLForCausalLM", "mixtral": "MixtralForCausalLM",
    "mpt": "MptForCausalLM", "nemotron": "NemotronForCausalLM",
    "nemotron-nas": "DeciLMForCausalLM", "nemotron_h": "NemotronHForCausalLM",
    "olmo": "OlmoForCausalLM", "olmo2": "Olmo2ForCausalLM", "olmo3": "Olmo3ForCausalLM",
    "olmoe": "OlmoeForCausalLM", "opt": "OPTForCausalLM", "phi": "PhiForCausalLM",
    "phimoe": "PhimoeForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration", "qwen3_next": "Qwen3NextForCausalLM",
    "sarvam_mla": "DeepseekV3ForCausalLM", "sarvam_moe": "Glm4MoeForCausalLM",
    "seed_oss": "SeedOssForCausalLM", "solar_open": "SolarOpenForCausalLM",
    "stablelm": "StableLmForCausalLM", "starcoder2": "Starcoder2ForCausalLM",
    "vaultgemma": "VaultGemmaForCausalLM", "youtu": "YoutuForCausalLM",
}
"""``model_type`` to class, as in transformers ``modeling_auto.py``."""

NESTED_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
              "num_hidden_layers": 32, "num_attention_heads": 32,
              "max_position_embeddings": 2048},
    "mistral": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                "max_position_embeddings": 131072},
    "qwen2": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
              "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
              "max_position_embeddings": 32768},
    "gemma": {"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
              "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
              "max_position_embeddings": 8192},
    "gemma2": {"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
               "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
               "sliding_window": 4096, "max_position_embeddings": 8192},
    "gemma3_text": {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
}
"""Class defaults of nested sections.

``save_pretrained`` writes only what differs from the class inside a section (transformers
``recursive_diff_dict``), so LLaVA, Pixtral and PaliGemma leave these out. A top-level config is
written in full; there an absent size is an error.
"""
