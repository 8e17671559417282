"""A config that leaves out what tells one architecture from another is refused, not guessed."""

from __future__ import annotations

from typing import Any

import pytest
from arch_configs import (
    DEEPSEEK_V3,
    GPT_OSS_120B,
    KIMI_K25,
    LLAMA_8B,
    MIXTRAL,
    QWEN3_06B,
    QWEN3_NEXT,
)

from planner.architectures import from_config, supported
from planner.architectures.build import _FAMILIES
from planner.architectures.moe import MOE
from planner.architectures.names import MODEL_TYPES
from planner.architectures.needs import (
    _MULTI_HEAD,
    _NO_KV_HEADS,
    DEFAULTS,
    KV_DEFAULTS,
    NEEDED,
    STATED,
)
from planner.errors import IncompleteConfig, UnknownArchitecture

QWEN3_235B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096,
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 94,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960}
QWEN15_MOE: dict[str, Any] = {
    "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632,
    "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
    "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
    "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936}
MINIMAX_M1: dict[str, Any] = {
    "architectures": ["MiniMaxM1ForCausalLM"], "hidden_size": 6144, "intermediate_size": 9216,
    "num_hidden_layers": 8, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "num_local_experts": 32, "num_experts_per_tok": 2, "vocab_size": 200064,
    "attn_type_list": [0] * 7 + [1]}
MISTRAL_7B: dict[str, Any] = {
    **LLAMA_8B, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
    "vocab_size": 32000, "sliding_window": None}


@pytest.mark.parametrize("how", ["absent", "null"])
@pytest.mark.parametrize(("config", "field"), [
    *((QWEN3_235B, f) for f in ("num_experts", "num_experts_per_tok", "moe_intermediate_size")),
    *((QWEN15_MOE, f) for f in ("num_experts", "moe_intermediate_size",
                                "shared_expert_intermediate_size")),
    *((QWEN3_NEXT, f) for f in ("num_experts", "num_experts_per_tok", "moe_intermediate_size",
                                "shared_expert_intermediate_size")),
    *((DEEPSEEK_V3, f) for f in ("n_routed_experts", "num_experts_per_tok",
                                 "moe_intermediate_size", "first_k_dense_replace",
                                 "kv_lora_rank")),
    *((MIXTRAL, f) for f in ("num_local_experts", "num_experts_per_tok",
                             "intermediate_size")),
    (GPT_OSS_120B, "num_local_experts"),
    *((MINIMAX_M1, f) for f in ("attn_type_list", "num_local_experts", "head_dim"))])
def test_missing_field_is_refused(config, field, how):
    changed = {k: v for k, v in config.items() if k != field}
    if how == "null":
        changed[field] = None
    from_config(config)
    with pytest.raises(IncompleteConfig) as caught:
        from_config(changed)
    assert caught.value.pointer == f"/hf_config/{field}"


def test_pointer_of_a_nested_field():
    text = {k: v for k, v in KIMI_K25["text_config"].items() if k != "n_routed_experts"}
    with pytest.raises(IncompleteConfig) as caught:
        from_config({**KIMI_K25, "text_config": text})
    assert caught.value.pointer == "/hf_config/text_config/n_routed_experts"


@pytest.mark.parametrize("field", ["q_lora_rank", "n_shared_experts"])
def test_null_is_an_answer_where_the_class_takes_it(field):
    assert from_config({**DEEPSEEK_V3, field: None}).total_params
    with pytest.raises(IncompleteConfig):
        from_config({k: v for k, v in DEEPSEEK_V3.items() if k != field})


def test_no_experts_at_all_stays_possible():
    assert not from_config({**QWEN3_235B, "num_experts": 0}).is_moe


@pytest.mark.parametrize(("config", "kv"), [
    (QWEN3_235B, 4), (MISTRAL_7B, 8), (MIXTRAL, 8), (GPT_OSS_120B, 8), (QWEN3_NEXT, 2),
    (LLAMA_8B, 32), ({**QWEN3_06B, "num_attention_heads": 64}, 32)])
def test_class_default_of_key_value_heads(config, kv):
    absent = {k: v for k, v in config.items() if k != "num_key_value_heads"}
    assert (from_config(absent).kv_bytes_per_token()
            == from_config({**config, "num_key_value_heads": kv}).kv_bytes_per_token())


def test_key_value_heads_without_a_certain_default():
    for name in ("Grok1ModelForCausalLM", "InternLM3ForCausalLM", "MiMoForCausalLM"):
        config = {k: v for k, v in {**MIXTRAL, "num_experts": 8}.items()
                  if k != "num_key_value_heads"}
        with pytest.raises(IncompleteConfig) as caught:
            from_config({**config, "architectures": [name], "model_type": "?"})
        assert caught.value.pointer == "/hf_config/num_key_value_heads"
    with pytest.raises(IncompleteConfig):
        from_config({**MISTRAL_7B, "num_key_value_heads": None})


def test_absent_window_is_the_class_default_and_null_is_none():
    absent = {k: v for k, v in MISTRAL_7B.items() if k != "sliding_window"}
    assert from_config(absent).kv_bytes_per_token_beyond_window() == 0
    assert from_config(MISTRAL_7B).kv_bytes_per_token_beyond_window() > 0


@pytest.mark.parametrize("dtype", ["float7", "", "int8", 5, {}])
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_unknown_dtype(key, dtype):
    config = {k: v for k, v in LLAMA_8B.items() if k != "torch_dtype"}
    with pytest.raises(IncompleteConfig) as caught:
        from_config({**config, key: dtype})
    assert caught.value.pointer == f"/hf_config/{key}"
    assert from_config({**config, key: "torch.float16"}).dtype == "fp16"


def test_empty_quantization_section():
    with pytest.raises(UnknownArchitecture):
        from_config({**LLAMA_8B, "quantization_config": {}})
    assert from_config({**LLAMA_8B, "quantization_config": None}).native is None


def test_gemma4_experts_need_their_switch():
    text = {"model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112,
            "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 8,
            "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
            "vocab_size": 262144}
    with pytest.raises(IncompleteConfig) as caught:
        from_config({"architectures": ["Gemma4ForConditionalGeneration"], "text_config": text})
    assert caught.value.pointer == "/hf_config/text_config/enable_moe_block"


def test_tables_name_known_classes_and_leave_no_expert_class_out():
    for table in (NEEDED, STATED, DEFAULTS, KV_DEFAULTS):
        assert set(table) <= set(_FAMILIES)
    assert set(MOE) <= set(NEEDED)
    moe = {n for n in supported() if "moe" in n.lower() and n not in MODEL_TYPES}
    assert moe <= set(NEEDED)
    assert not set(KV_DEFAULTS) & (_MULTI_HEAD | _NO_KV_HEADS)
