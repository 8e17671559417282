"""Predicted memory against what engines print when they start (vLLM 0.11 and 0.19 on H100).

``python tests/core/test_memory_logs.py`` prints the whole table, line by line.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_helpers import GIB, catalog, golden, gpu

from planner.architectures import from_config
from planner.engine import EngineProfile
from planner.llm import Llm
from planner.memory import MemoryBudget, memory_budget
from planner.requests import Layout
from planner.roofline import Deployment

ROWS = golden("memory_logs.csv")
COUNTED = [r for r in ROWS if r["kv_tokens"]]
# B008 profiled fewer sequences (activation 2.12 GiB where its vocabulary asks for 4.9).
PROFILED = [r for r in ROWS if r["id"] != "B008"]

# Public configs of models that the catalog does not ship.
CONFIGS = {
    "granite-3.1-2b": {
        "architectures": ["GraniteForCausalLM"], "model_type": "granite", "hidden_size": 2048,
        "intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 49155, "tie_word_embeddings": True,
        "max_position_embeddings": 131072, "hidden_act": "silu", "torch_dtype": "bfloat16"},
    "kimi-vl-a3b": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "hidden_size": 2048, "intermediate_size": 11264, "moe_intermediate_size": 1408,
        "n_shared_experts": 2, "n_routed_experts": 64, "num_experts_per_tok": 6,
        "num_hidden_layers": 27, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 512,
        "q_lora_rank": None, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
        "vocab_size": 163840, "tie_word_embeddings": False, "max_position_embeddings": 131072,
        "hidden_act": "silu", "torch_dtype": "bfloat16"},
}
# Parameters of the vision tower where the logged checkpoint has one and the text model has not:
# Mistral-Small-3.1 24.011e9 against 23.572e9; SigLIP so400m; MoonViT (model cards).
TOWERS = {"A031": 439_000_000, "A054": 439_000_000, "B008": 439_000_000, "A015": 428_000_000,
          "A036": 413_000_000}


def model_of(row: dict[str, str]) -> Llm:
    name = row["model"]
    if name.startswith("config:"):
        slug = name.removeprefix("config:")
        llm = from_config(CONFIGS[slug], slug=slug)
    else:
        llm = catalog().llm(name)
    tower = TOWERS.get(row["id"])
    return replace(llm, extra_params={"vision_tower": tower}) if tower else llm


def profile_of(row: dict[str, str]) -> EngineProfile:
    """The catalog's profile of the version that wrote the log."""
    if row["vllm"] == "0.19.0":
        return catalog().engine("vllm", gpu(), row["weights"])
    return catalog().engine("vllm-0.11-hopper-any", gpu(), row["weights"])


def slack(row: dict[str, str]) -> float:
    """Gemma 3 adds rotary tables of a second base and an image profile that are not modelled."""
    return 4.5 if row["kind"] == "windowed+vision" else 1.0


def budget_of(row: dict[str, str]) -> MemoryBudget:
    chip = gpu(memory_bytes=float(row["physical_gib"]) * GIB)
    d = Deployment(model_of(row), chip, row["weights"], row["kv"],
                   Layout(tensor=int(row["tensor_parallel"])), profile_of(row))
    return memory_budget(d, utilization=float(row["utilization"]))


def ids(rows: list[dict[str, str]]) -> list[str]:
    return [f"{r['id']}-{r['logged_as'].split('/')[-1]}-tp{r['tensor_parallel']}" for r in rows]


@pytest.mark.parametrize("row", COUNTED, ids=ids(COUNTED))
def test_kv_tokens_within_two_per_cent(row):
    assert budget_of(row).kv_tokens == pytest.approx(
        float(row["kv_tokens"]), rel=0.02 * slack(row))


@pytest.mark.parametrize("row", PROFILED, ids=ids(PROFILED))
def test_kv_pool_within_two_per_cent(row):
    """Or a quarter of a GiB: pools of 3 GiB are what is left of 75."""
    predicted = budget_of(row).kv_pool_bytes / GIB
    assert predicted == pytest.approx(
        float(row["kv_pool_gib"]), rel=0.02 * slack(row), abs=0.25)


@pytest.mark.parametrize("row", ROWS, ids=ids(ROWS))
def test_weights_within_one_and_a_half_per_cent(row):
    assert budget_of(row).weights_bytes / GIB == pytest.approx(
        float(row["weights_gib"]), rel=0.015 * slack(row), abs=0.03)


@pytest.mark.parametrize("row", COUNTED, ids=ids(COUNTED))
def test_bytes_per_token(row):
    """The log's GiB and tokens are rounded, hence 0.2 %."""
    assert budget_of(row).reserved_bytes_per_token == pytest.approx(
        float(row["bytes_per_token"]), rel=0.002)


def test_catalog_gpu_has_the_memory_that_engines_see():
    """The logs say 79.19 GiB (CUDA's total), nvidia-smi's figure is half a GiB more."""
    assert gpu().memory_bytes / GIB == pytest.approx(79.19, abs=0.05)


def test_memory_lines_sum_to_the_usable_memory():
    for row in ROWS:
        m = budget_of(row)
        parts = (m.weights_bytes + m.activation_bytes + m.runtime_bytes + m.graph_bytes
                 + m.draft_bytes + m.kv_pool_bytes)
        assert parts == pytest.approx(m.usable_bytes, rel=1e-12)


def test_sglang_counts_weights_and_cache_of_what_is_free():
    """Qwen3-235B FP8 on four H100 at ``mem-fraction-static`` 0.93: 367,404 tokens, K and V 8.23 GiB
    each (vLLM issue 21348)."""
    d = Deployment(catalog().llm("qwen3-235b-a22b"), gpu(), "fp8", "bf16", Layout(tensor=4),
                   catalog().engine("sglang", gpu(), "fp8"))
    m = memory_budget(d, utilization=0.93)
    assert m.kv_tokens == pytest.approx(367_404, rel=0.02)
    assert m.kv_pool_bytes / GIB == pytest.approx(16.46, rel=0.02)


@pytest.mark.parametrize(("engine", "tensor"), [
    (engine, tensor) for engine in ("vllm", "sglang", "tensorrt-llm") for tensor in (1, 2)])
def test_share_of_the_memory_as_each_engine_counts_it(engine, tensor):
    """vLLM: of the whole; SGLang: weights and cache of what is free; TensorRT-LLM: of the rest."""
    d = Deployment(catalog().llm("llama-3.1-70b"), gpu(), "fp8", "fp8", Layout(tensor=tensor),
                   catalog().engine(engine, gpu(), "fp8"))
    m = memory_budget(d, utilization=0.9)
    free = m.physical_bytes - m.runtime_bytes
    pool = {"vllm": 0.9 * m.physical_bytes - m.weights_bytes - m.beside_bytes,
            "sglang": 0.9 * free - m.weights_bytes,
            "tensorrt-llm": 0.9 * (m.physical_bytes - m.weights_bytes - m.beside_bytes)}[engine]
    assert m.kv_pool_bytes == pytest.approx(pool, rel=1e-12)
    assert m.usable_bytes == pytest.approx(m.weights_bytes + m.beside_bytes + pool, rel=1e-12)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_what_does_not_fit_is_short_of_the_memory_there_is(engine):
    """405B on one H100: nothing is usable beyond the GPU, and the pool says all that is missing."""
    d = Deployment(catalog().llm("llama-3.1-405b"), gpu(), "fp8", "fp8", Layout(),
                   catalog().engine(engine, gpu(), "fp8"))
    m = memory_budget(d)
    assert m.usable_bytes <= m.physical_bytes
    assert m.kv_pool_bytes <= m.physical_bytes - m.weights_bytes - m.beside_bytes


def main() -> None:
    print(f"{'row':34s} {'weights':>15s} {'activation':>13s} {'runtime':>11s} {'pool GiB':>15s} "
          f"{'pool':>7s} {'tokens':>8s}")
    for row in ROWS:
        m = budget_of(row)
        pool = m.kv_pool_bytes / GIB
        tokens = f"{m.kv_tokens / float(row['kv_tokens']) - 1:+.2%}" if row["kv_tokens"] else "-"
        print(f"{ids([row])[0][:34]:34s} {m.weights_bytes / GIB:7.2f}/{row['weights_gib']:>6s} "
              f"{m.activation_bytes / GIB:6.2f}/{row['activation_gib']:>5s} "
              f"{m.runtime_bytes / GIB:5.2f}/{row['runtime_gib']:>5s} "
              f"{pool:7.2f}/{row['kv_pool_gib']:>6s} "
              f"{pool / float(row['kv_pool_gib']) - 1:+7.2%} {tokens:>8s}")


if __name__ == "__main__":
    main()
