"""Faults that published calculators had with models; the right values, exactly."""

from __future__ import annotations

import copy

import pytest
from arch_configs import (
    DEEPSEEK_V3,
    GEMMA3_27B,
    GEMMA4_E4B,
    GPT_OSS_120B,
    KIMI_K25,
    LLAMA4_SCOUT,
    LLAMA_8B,
    MIXTRAL,
    QWEN3_06B,
    QWEN3_NEXT,
)

from planner.architectures import from_config
from planner.llm import Llm, Role


def kv_at(llm: Llm, tokens: int) -> float:
    """Logical cache bytes of one sequence."""
    return sum(n * s.values_per_entry * 2.0 * min(tokens, s.window or tokens) / s.stride
               for n, s in llm.streams())


def test_head_dim_is_read_not_derived():
    # Qwen3-4B: 36 layers, hidden 2560, 32 heads, 8 key/value heads of width 128.
    qwen = from_config({**QWEN3_06B, "hidden_size": 2560, "num_hidden_layers": 36,
                        "num_attention_heads": 32, "intermediate_size": 9728})
    assert qwen.kv_bytes_per_token() == 147_456
    assert from_config(QWEN3_06B).kv_bytes_per_token() == 114_688


def test_mistral_nemo_head_dim():
    nemo = from_config({"architectures": ["MistralForCausalLM"], "hidden_size": 5120,
                        "intermediate_size": 14336, "num_hidden_layers": 40, "head_dim": 128,
                        "num_attention_heads": 32, "num_key_value_heads": 8,
                        "vocab_size": 131072, "max_position_embeddings": 131072})
    assert nemo.kv_bytes_per_token() == 163_840


def test_grouped_queries_and_full_heads():
    assert from_config(LLAMA_8B).kv_bytes_per_token() == 131_072
    llama2 = {**LLAMA_8B, "num_key_value_heads": None, "intermediate_size": 11008,
              "vocab_size": 32000}
    assert from_config(llama2).kv_bytes_per_token() == 2 * 32 * 4096 * 2


def test_llama_70b_does_not_divide_hidden_by_kv_heads():
    llama = from_config({**LLAMA_8B, "hidden_size": 8192, "intermediate_size": 28672,
                         "num_hidden_layers": 80, "num_attention_heads": 64})
    assert llama.kv_bytes_per_token() == 327_680
    assert llama.total_params == 70_553_706_496


def test_weight_precision_does_not_change_the_cache():
    packed = from_config({**LLAMA_8B, "quantization_config": {
        "quant_method": "awq", "bits": 4, "group_size": 128}})
    assert packed.native_precision == "int4"
    assert packed.native_kv == "bf16"
    assert packed.kv_bytes_per_token(packed.native_kv) == 131_072


def test_embedding_and_head_are_counted():
    llama = from_config(LLAMA_8B)
    assert llama.total_params == 8_030_261_248
    assert llama.weight_bytes("bf16") == 2 * 8_030_261_248
    assert llama.linear_params == 8_030_261_248 - 128256 * 4096


def test_tied_head_is_stored_once_and_still_read():
    qwen = from_config(QWEN3_06B)
    assert qwen.total_params == 596_049_920
    assert qwen.params(Role.LM_HEAD) == 0
    assert qwen.linear_params == qwen.total_params


def test_experts_are_all_stored_and_few_are_used():
    mixtral = from_config(MIXTRAL)
    assert mixtral.total_params == 46_702_792_704
    assert mixtral.active_params == pytest.approx(12.88e9, rel=1e-3)
    assert mixtral.weight_bytes("bf16") == pytest.approx(93.41e9, rel=1e-4)


def test_deepseek_experts_use_their_own_width():
    v3 = from_config(DEEPSEEK_V3)
    assert v3.total_params == 671_026_419_200
    assert v3.params(Role.ROUTED_EXPERT) == 653_908_770_816
    assert v3.active_params == pytest.approx(37.55e9, rel=1e-3)
    assert 671e9 < v3.weight_bytes("fp8") < 690e9


def test_latent_cache_is_one_head_for_all():
    v3 = from_config(DEEPSEEK_V3)
    assert v3.kv_bytes_per_token() == 70_272
    assert v3.kv_bytes_per_token("fp8") == 35_136
    assert sum(layers for layers, _ in v3.streams()) == 61
    (stream,) = {stream for _, stream in v3.streams()}
    assert (stream.heads, stream.values_per_entry) == (1, 576)
    assert stream.prefill_flops_per_pair == 81_920
    assert stream.decode_flops_per_pair == 278_528
    assert stream.expand_flops_per_entry == 2 * 512 * 128 * 256


def test_kimi_in_a_wrapper_is_latent_too():
    assert from_config(KIMI_K25).kv_bytes_per_token() == 70_272


def test_gemma2_gelu_ffn_has_three_matrices():
    gemma = from_config({
        "architectures": ["Gemma2ForCausalLM"], "hidden_size": 3584, "head_dim": 256,
        "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16,
        "num_key_value_heads": 8, "vocab_size": 256000, "sliding_window": 4096,
        "max_position_embeddings": 8192})
    assert gemma.total_params == 9_241_705_984
    assert gemma.tied_embeddings


def test_sliding_layers_stop_growing():
    gemma = from_config(GEMMA3_27B)
    assert gemma.kv_bytes_per_token() == 507_904
    assert gemma.kv_bytes_per_token_beyond_window() == 81_920
    oss = from_config(GPT_OSS_120B)
    assert oss.kv_bytes_per_token() == 73_728
    assert oss.kv_bytes_per_token_beyond_window() == 36_864
    assert oss.kv_window_cap_bytes() == 4_718_592


def test_chunked_layers_hold_one_chunk():
    scout = from_config(LLAMA4_SCOUT)
    assert scout.kv_bytes_per_token_beyond_window() == 49_152
    assert kv_at(scout, 32_768) / 32_768 == 86_016
    assert {s.chunked for _, s in scout.streams() if s.window} == {True}


def test_gemma4_moe_at_128k():
    # 25 of 30 layers keep 1,024 tokens: 3.0 GB, not 56 GB.
    gemma = from_config({
        "architectures": ["Gemma4ForConditionalGeneration"], "text_config": {
            "model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112,
            "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
            "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 2,
            "attention_k_eq_v": True, "enable_moe_block": True, "num_experts": 128,
            "top_k_experts": 8, "moe_intermediate_size": 704, "sliding_window": 1024,
                "hidden_size_per_layer_input": 0,
            "vocab_size": 262144, "max_position_embeddings": 262144}})
    assert gemma.total_params == 25_233_141_760
    assert kv_at(gemma, 131_072) == pytest.approx(2.9e9, rel=0.02)


def test_shared_layers_keep_nothing_but_read():
    gemma = from_config(GEMMA4_E4B)
    assert gemma.kv_bytes_per_token() == 57_344
    shared = [g for g in gemma.groups if g.mixer.shared_streams]
    assert sum(g.count for g in shared) == 18
    assert all(not g.mixer.streams for g in shared)


def test_per_layer_embeddings_are_a_lookup():
    gemma = from_config(GEMMA4_E4B)
    assert gemma.params(Role.LOOKUP) == 262_144 * 42 * 256
    assert gemma.total_params == 7_463_013_376
    assert gemma.linear_params == (
        gemma.total_params - gemma.params(Role.LOOKUP))


def test_only_attention_layers_cache():
    qwen = from_config(QWEN3_NEXT)
    assert qwen.kv_bytes_per_token() == 24_576
    assert qwen.state_bytes_per_sequence == 77_856_768
    assert qwen.total_params == 79_674_391_296


def test_block_configs_with_null_heads():
    block = {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 5.25}}
    empty = {"attention": {"no_op": True, "n_heads_in_group": None}, "ffn": {"ffn_mult": 2.625}}
    nas = from_config({
        "architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas",
        "hidden_size": 8192, "intermediate_size": None, "num_attention_heads": 64,
        "num_key_value_heads": None, "num_hidden_layers": 80, "vocab_size": 128256,
        "block_configs": [block] * 49 + [empty] * 31})
    assert nas.kv_bytes_per_token() == 200_704
    assert nas.layers == 80


def test_sparse_index_caps_what_a_query_reads():
    config = copy.deepcopy(DEEPSEEK_V3)
    config |= {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
               "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    v32 = from_config(config)
    assert v32.total_params == 671_877_944_064
    assert v32.kv_bytes_per_token() == 85_888
    latent, index = v32.groups[0].mixer.streams
    assert latent.attend == 2048
    assert (index.name, index.attend, index.decode_flops_per_pair) == ("index", None, 16_384)
    # The index keeps its own format whatever the cache precision.
    assert v32.kv_bytes_per_token("fp8") == 61 * (576 + 256)


def test_published_type_is_applied_once():
    llama = from_config({**LLAMA_8B, "torch_dtype": "float16"})
    assert llama.native_precision == "fp16"
    assert llama.weight_bytes("fp16") == 2 * llama.total_params


def test_nested_sections_leave_out_class_defaults():
    # LLaVA-1.5-7B stores only what differs from LlamaConfig.
    llava = from_config({
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
        "text_config": {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                        "max_position_embeddings": 4096, "vocab_size": 32064},
        "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "patch_size": 14,
                          "num_hidden_layers": 24, "model_type": "clip_vision_model"}})
    assert llava.total_params == 6_738_939_904
    assert llava.extra_params["vision_tower"] == pytest.approx(0.304e9, rel=0.02)


def test_one_wrapper_class_serves_several_families():
    latent = {**{k: v for k, v in DEEPSEEK_V3.items() if k not in (
        "architectures", "quantization_config")}, "model_type": "mistral4"}
    assert from_config({"architectures": ["Mistral3ForConditionalGeneration"],
                        "model_type": "mistral3", "text_config": latent},
                       ).groups[0].mixer.kind == "mla"


def test_keys_of_either_transformers_generation():
    new = {k: v for k, v in LLAMA_8B.items() if k != "torch_dtype"} | {
        "dtype": "float16", "rope_parameters": {"rope_theta": 5e5},
        "layer_types": ["full_attention"] * 32}
    assert from_config(new).dtype == "fp16"
    assert from_config({**new, "architectures": None}).total_params == 8_030_261_248


def test_prediction_layers_are_beside_the_model():
    v3 = from_config(DEEPSEEK_V3)
    assert v3.extra_params["multi_token_prediction"] == pytest.approx(11.6e9, rel=0.01)
    assert v3.total_params == 671_026_419_200


def test_kimi_k3_is_not_read_as_kimi_linear():
    # Its text class is the one of Kimi Linear; gates, latent experts and residuals differ.
    text = {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
        "hidden_size": 7168, "intermediate_size": 33792, "num_hidden_layers": 93,
        "num_attention_heads": 96, "num_key_value_heads": 96, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "mla_use_output_gate": True, "moe_intermediate_size": 3072, "num_experts": 896,
        "num_experts_per_token": 16, "num_shared_experts": 2, "first_k_dense_replace": 1,
        "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True,
        "attn_res_block_size": 12, "vocab_size": 163840, "linear_attn_config": {
            "full_attn_layers": [*range(4, 93, 4), 93], "num_heads": 96, "head_dim": 128,
            "short_conv_kernel_size": 4, "use_full_rank_gate": True}}
    k3 = from_config({"architectures": ["KimiK3ForConditionalGeneration"],
                      "model_type": "kimi_k3", "text_config": text})
    assert k3.total_params == pytest.approx(2.8e12, rel=0.01)
    assert k3.active_params - k3.params(Role.EMBEDDING) == pytest.approx(104e9, rel=0.01)
    assert k3.kv_bytes_per_token() == 24 * 1152
    assert k3.state_bytes_per_sequence == 454_459_392
