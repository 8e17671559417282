"""What is refused, and how: by class, by field, with a pointer; never another exception."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from arch_configs import (
    DEEPSEEK_V3,
    GEMMA3_27B,
    GEMMA4_E4B,
    KIMI_K25,
    LLAMA_8B,
    MIXTRAL,
    QWEN3_NEXT,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.architectures import from_config, from_fields, supported
from planner.errors import (
    IncompleteConfig,
    InvalidValue,
    NoDecodePhase,
    PlannerError,
    UnknownArchitecture,
)
from planner.llm import Llm

FIELDS: dict[str, Any] = {"slug": "tiny", "hidden": 4096, "layers": 32, "heads": 32,
                          "kv_heads": 8, "intermediate": 14336, "vocab": 128256}


def test_unknown_class_is_named_with_the_fields_it_would_take():
    with pytest.raises(UnknownArchitecture) as caught:
        from_config({**LLAMA_8B, "architectures": ["BrandNewForCausalLM"],
                     "model_type": "brand_new"})
    message = caught.value.message
    for part in ("BrandNewForCausalLM", "brand_new", "hidden_size", "num_hidden_layers",
                 "fields"):
        assert part in message


@pytest.mark.parametrize("name", [
    "BertModel", "XLMRobertaModel", "XLMRobertaForSequenceClassification", "BertForMaskedLM",
    "Qwen2ForSequenceClassification", "Qwen2Model", "MistralModel", "ModernBertForMaskedLM",
    "T5EncoderModel", "CLIPModel", "NomicBertModel", "LlamaForTokenClassification",
    "ColQwen2ForRetrieval", "Qwen2ForRewardModel"])
def test_encoders_have_no_decode_phase(name):
    with pytest.raises(NoDecodePhase) as caught:
        from_config({**LLAMA_8B, "architectures": [name]})
    assert name in caught.value.message


def test_encoder_by_model_type_alone():
    with pytest.raises(NoDecodePhase):
        from_config({"model_type": "bert", "hidden_size": 768})


@pytest.mark.parametrize(("name", "kind"), [
    ("T5ForConditionalGeneration", "t5"), ("BartForConditionalGeneration", "bart"),
    ("WhisperForConditionalGeneration", "whisper"), ("MarianMTModel", "marian")])
def test_encoder_decoders_are_refused_in_plain_words(name, kind):
    with pytest.raises((UnknownArchitecture, NoDecodePhase)) as caught:
        from_config({"architectures": [name], "model_type": kind, "is_encoder_decoder": True})
    assert name in caught.value.message


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads",
                                   "intermediate_size", "vocab_size"])
@pytest.mark.parametrize("value", [None, -1, 0, "4096", math.nan, math.inf, 1.5, True, [1], {},
                                   10**12, pytest.param(10**5000, id="huge")])
def test_impossible_sizes_name_the_field(field, value):
    with pytest.raises((InvalidValue, IncompleteConfig)) as caught:
        from_config({**LLAMA_8B, field: value})
    assert caught.value.pointer == f"/hf_config/{field}"


def test_missing_field_is_incomplete():
    config = {k: v for k, v in LLAMA_8B.items() if k != "hidden_size"}
    with pytest.raises(IncompleteConfig) as caught:
        from_config(config)
    assert "hidden_size" in caught.value.message


def test_pointer_reaches_into_the_text_section():
    text = {**KIMI_K25["text_config"], "kv_lora_rank": "512"}
    with pytest.raises(InvalidValue) as caught:
        from_config({**KIMI_K25, "text_config": text})
    assert caught.value.pointer == "/hf_config/text_config/kv_lora_rank"


@pytest.mark.parametrize("change", [
    {"num_key_value_heads": 7}, {"num_attention_heads": 30, "num_key_value_heads": 10}])
def test_heads_must_divide(change):
    with pytest.raises(InvalidValue):
        from_config({**LLAMA_8B, **change})


def test_more_active_experts_than_experts():
    with pytest.raises(InvalidValue) as caught:
        from_config({**MIXTRAL, "num_experts_per_tok": 9})
    assert caught.value.pointer == "/hf_config/num_experts_per_tok"


def test_short_layer_list():
    with pytest.raises(InvalidValue) as caught:
        from_config({**QWEN3_NEXT, "layer_types": ["full_attention"]})
    assert caught.value.pointer == "/hf_config/layer_types"


@pytest.mark.parametrize("config", [None, [], "x", 3, {}, {"architectures": []},
                                    {"architectures": [None]}, {"architectures": "Llama"},
                                    {"model_type": {}}, {"text_config": {"a": {}}}])
def test_no_config_at_all(config):
    with pytest.raises(PlannerError):
        from_config(config)


def test_deep_nesting():
    deep: Any = {}
    for _ in range(5_000):
        deep = {"text_config": deep}
    with pytest.raises(PlannerError):
        from_config(deep)
    with pytest.raises(PlannerError):
        from_config({**LLAMA_8B, "hidden_size": deep})


def test_supported_lists_classes():
    names = supported()
    assert "LlamaForCausalLM" in names
    assert "llama" not in names
    assert len(names) > 100


# -- hand-made models -----------------------------------------------------------------------------


def test_fields_reproduce_llama():
    made, read = from_fields(FIELDS), from_config(LLAMA_8B)
    assert made.total_params == read.total_params
    assert made.kv_bytes_per_token() == read.kv_bytes_per_token()


def test_fields_with_experts_and_window():
    made = from_fields({**FIELDS, "experts": 8, "active_experts": 2, "moe_intermediate": 14336,
                        "shared_experts": 1, "dense_layers": 2, "sliding_window": 1024,
                        "full_every": 4, "tied_embeddings": True, "gated": False})
    assert made.is_moe
    assert made.kv_bytes_per_token_beyond_window() == made.kv_bytes_per_token() / 4
    assert made.active_params < made.total_params


@pytest.mark.parametrize(("change", "pointer"), [
    ({"hidden": 0}, "/model/hidden"), ({"layers": 10**12}, "/model/layers"),
    ({"kv_heads": 5}, "/model/kv_heads"), ({"heads": "32"}, "/model/heads"),
    ({"vocab": None}, "/model/vocab"), ({"slug": ""}, "/model/slug"),
    ({"experts": 4, "active_experts": 5}, "/model/active_experts"),
    ({"dtype": "int4"}, "/model/dtype"), ({"colour": 1}, "/model/colour")])
def test_fields_are_checked(change, pointer):
    with pytest.raises((InvalidValue, IncompleteConfig)) as caught:
        from_fields({**FIELDS, **change})
    assert caught.value.pointer == pointer


# -- anything at all ------------------------------------------------------------------------------

SEEDS = [LLAMA_8B, MIXTRAL, DEEPSEEK_V3, KIMI_K25, GEMMA3_27B, GEMMA4_E4B, QWEN3_NEXT]
SCALARS = (st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
           | st.sampled_from(["full_attention", "sliding_attention", "fp8", "modelopt", "auto"]))
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4)
                    | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=8)
KEYS = sorted({k for seed in SEEDS for part in (seed, seed.get("text_config", {})) for k in part}
              | {"quantization_config", "layer_types", "mlp_layer_types", "moe_layer_freq",
                 "block_configs", "attn_config", "ffn_config", "hybrid_override_pattern",
                 "layers_block_type", "sliding_window", "tie_word_embeddings", "torch_dtype",
                 "linear_attn_config", "sparse_attention_config", "compress_ratios",
                 "mlp_only_layers", "no_rope_layers", "expert_dtype", "kv_cache_scheme",
                 "moe_layers", "moe_layers_enum", "attn_type_list", "indexer_types"})


def reads_or_refuses(config: Any) -> None:
    try:
        llm = from_config(config)
    except PlannerError:
        return
    assert isinstance(llm, Llm)
    assert llm.total_params > 0
    json.dumps(llm.to_record())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), JSON, max_size=6))
def test_any_mapping(config):
    reads_or_refuses(config)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SEEDS), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3),
       st.booleans())
def test_any_change_of_a_good_config(seed, change, inside):
    if inside and "text_config" in seed:
        reads_or_refuses({**seed, "text_config": {**seed["text_config"], **change}})
    else:
        reads_or_refuses({**seed, **change})


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(supported()), st.sampled_from(SEEDS),
       st.dictionaries(st.sampled_from(KEYS), JSON, max_size=2))
def test_any_class_over_any_config(name, seed, change):
    text = seed.get("text_config", seed)
    reads_or_refuses({**text, **change, "architectures": [name]})


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_any_quantization_section(section):
    reads_or_refuses({**LLAMA_8B, "quantization_config": section})


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*FIELDS, "experts", "active_experts", "head_dim"]), JSON))
def test_any_fields(fields):
    with contextlib.suppress(PlannerError):
        from_fields({**FIELDS, **fields})
