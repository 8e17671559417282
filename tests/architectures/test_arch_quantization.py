"""Quantization sections: which roles are packed, in which format, how many bytes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from arch_configs import DEEPSEEK_V3, GPT_OSS_120B, KIMI_K25, LLAMA_8B, MIXTRAL

from planner.architectures import from_config
from planner.errors import InvalidValue, UnknownArchitecture
from planner.llm import Role

EVERYTHING = {Role.ATTENTION, Role.DENSE_FFN}


def llama_with(section: dict[str, Any]):
    return from_config({**LLAMA_8B, "quantization_config": section})


def test_gpt_oss_packs_only_its_experts():
    oss = from_config(GPT_OSS_120B)
    assert oss.native.precision == "fp4"
    assert oss.native.formats == {Role.ROUTED_EXPERT: "mxfp4"}
    assert oss.weight_bytes("fp4") == pytest.approx(65.2e9, rel=0.002)


def test_kimi_k25_section_inside_the_text_config():
    kimi = from_config(KIMI_K25)
    assert kimi.native.formats == {Role.ROUTED_EXPERT: "int4_g32"}
    assert kimi.weight_bytes("int4") == pytest.approx(594e9, rel=0.002)


def test_deepseek_blocks():
    v3 = from_config(DEEPSEEK_V3)
    assert v3.native.precision == "fp8"
    assert set(v3.native.formats.values()) == {"fp8_block"}
    assert Role.ROUTER not in v3.native.formats
    assert 671e9 < v3.weight_bytes("fp8") < 690e9


def test_fp8_without_blocks():
    assert llama_with({"quant_method": "fp8"}).native.formats == dict.fromkeys(
        (Role.ATTENTION, Role.DENSE_FFN), "fp8")


@pytest.mark.parametrize(("section", "fmt", "precision"), [
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4_g128", "int4"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4_g128", "int4"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4_g32", "int4"),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4_g128", "int4"),
    ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8", "int8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4_g32", "int4"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", "int8"),
    ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "fp8", "fp8"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4", "fp4"),
    ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8", "fp8"),
    ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "fp8", "fp8"),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}},
     "mxfp4", "fp4"),
    ({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
      "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8,
                                                                 "type": "float"}}}},
     "fp8", "fp8"),
    ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
      "config_groups": {"g": {"targets": ["Linear"], "weights": {
          "num_bits": 4, "type": "float", "group_size": 16}}}}, "nvfp4", "fp4"),
    ({"quant_method": "compressed-tensors", "format": "int-quantized",
      "config_groups": {"g": {"targets": ["Linear"], "weights": {
          "num_bits": 8, "type": "int"}}}}, "int8", "int8"),
])
def test_methods(section, fmt, precision):
    native = llama_with(section).native
    assert native.precision == precision
    assert native.formats == dict.fromkeys((Role.ATTENTION, Role.DENSE_FFN), fmt)


@pytest.mark.parametrize("ignore", [
    ["model.layers.*.self_attn"], ["*self_attn*"], ["re:.*self_attn.*"], ["self_attn"],
    [f"model.layers.{i}.self_attn*" for i in range(32)],
    [f"model.layers.{i}.self_attn.{p}_proj" for i in range(32) for p in "qkvo"],
])
def test_ignored_attention(ignore):
    native = llama_with({"quant_method": "modelopt", "quant_algo": "NVFP4",
                         "ignore": ignore}).native
    assert native.formats == {Role.DENSE_FFN: "nvfp4"}


def test_majority_of_layers_decides():
    some = [f"model.layers.{i}.*" for i in range(10)]
    most = [f"model.layers.{i}.*" for i in range(20)]
    section = {"quant_method": "modelopt", "quant_algo": "FP8"}
    assert set(llama_with({**section, "ignore": some}).native.formats) == EVERYTHING
    assert llama_with({**section, "ignore": most}).native is None


def test_layer_ten_is_not_layer_one():
    native = llama_with({"quant_method": "modelopt", "quant_algo": "FP8",
                         "ignore": [f"model.layers.{i}.mlp.down_proj" for i in (1, 2, 3)]}).native
    assert set(native.formats) == EVERYTHING


def test_router_named_gate_does_not_hide_gate_proj():
    native = from_config({**MIXTRAL, "quantization_config": {
        "quant_method": "fp8", "weight_block_size": [128, 128],
        "modules_to_not_convert": ["gate", "lm_head"]}}).native
    assert native.formats[Role.ROUTED_EXPERT] == "fp8_block"


def test_mixed_precision_lists_every_module():
    prefix = "language_model.model.layers.0"
    listed = {f"{prefix}.self_attn.q_proj": {"quant_algo": "MXFP8"},
              f"{prefix}.block_sparse_moe.experts.0.w1": {"quant_algo": "NVFP4"}}
    native = from_config({**MIXTRAL, "quantization_config": {
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
        "quantized_layers": listed}}).native
    assert native.formats == {Role.ATTENTION: "mxfp8", Role.ROUTED_EXPERT: "nvfp4"}
    assert native.precision == "fp4"


def test_fp4_experts_beside_fp8_linears():
    config = copy.deepcopy(DEEPSEEK_V3) | {"expert_dtype": "fp4"}
    native = from_config(config).native
    assert native.precision == "fp4"
    assert native.formats[Role.ROUTED_EXPERT] == "mxfp4"
    assert native.formats[Role.ATTENTION] == "fp8_block"


@pytest.mark.parametrize(("scheme", "expected"), [
    (None, "bf16"), ("FP8", "fp8"), ({"num_bits": 8, "type": "float"}, "fp8"),
    ({"num_bits": 8, "type": "int"}, "int8"), ({"num_bits": 4, "type": "float"}, "fp4"),
])
def test_cache_scheme(scheme, expected):
    llm = llama_with({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": scheme})
    assert llm.native_kv == expected


def test_cache_scheme_of_a_quant_config_file():
    llm = llama_with({"producer": {"name": "modelopt"},
                      "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}})
    assert llm.native_kv == "fp8"


@pytest.mark.parametrize("section", [
    {"quant_method": "hqq", "bits": 4}, {"quant_method": "aqlm"}, {"quant_method": 3},
    {"bits": 4}, {"quant_method": "gptq", "bits": 3},
    {"quant_method": "modelopt", "quant_algo": "W2A2"},
    {"quant_method": "quark"},
])
def test_unknown_methods_are_refused_by_name(section):
    with pytest.raises(UnknownArchitecture) as caught:
        llama_with(section)
    assert caught.value.pointer.startswith("/hf_config/quantization_config")


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:.*.*.*.*.*.*x", "re:(", r"re:(.)\1", 7])
def test_patterns_that_cannot_be_applied(pattern):
    with pytest.raises(InvalidValue) as caught:
        llama_with({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": [pattern]})
    assert caught.value.pointer.endswith("/ignore/0")


def test_serving_another_precision_converts_the_layers():
    oss = from_config(GPT_OSS_120B)
    assert oss.role_format(Role.ATTENTION, "fp8").name == "fp8_block"
    assert oss.role_format(Role.LM_HEAD, "fp8").name == "bf16"
