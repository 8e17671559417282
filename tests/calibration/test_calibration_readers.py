"""Each format by a sample of its shape; numbers are those of the sample, in SI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.calibration.points import MeasuredPoint, with_defaults
from planner.calibration.readers import FORMATS, detect, read
from planner.errors import InvalidValue

FIXTURES = Path(__file__).parent / "fixtures"
FORMAT_OF = {
    "vllm_bench_serve.json": "vllm", "vllm_appended.json": "vllm",
    "sglang_bench_serving.jsonl": "sglang", "guidellm_0.3.json": "guidellm",
    "guidellm_0.7.json": "guidellm", "profile_export_aiperf.json": "aiperf",
    "profile_export_aiperf.csv": "aiperf", "profile_export_genai_perf.json": "aiperf",
    "profile_export_llm_genai_perf.csv": "aiperf", "trtllm_report.json": "trtllm",
    "plain_rows.csv": "csv",
}


def points(name: str) -> list[MeasuredPoint]:
    return read(name, (FIXTURES / name).read_bytes())


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A JSON sample with its first object changed."""
    value = json.loads((FIXTURES / name).read_text().splitlines()[0]
                       if name.endswith("jsonl") else (FIXTURES / name).read_text())
    change(value)
    return json.dumps(value).encode()


def test_every_sample_is_listed_and_every_format_has_one() -> None:
    assert {p.name for p in FIXTURES.iterdir()} == set(FORMAT_OF)
    assert set(FORMAT_OF.values()) == set(FORMATS)


@pytest.mark.parametrize("name", FORMAT_OF)
def test_the_format_is_recognised_from_the_content(name: str) -> None:
    content = (FIXTURES / name).read_bytes()
    assert detect(name, content) == FORMAT_OF[name]
    assert detect("results.txt", content) == FORMAT_OF[name]
    assert detect("results.txt", b"\xef\xbb\xbf" + content) == FORMAT_OF[name]


@pytest.mark.parametrize("name", FORMAT_OF)
def test_every_sample_has_the_lengths_and_latencies(name: str) -> None:
    for point in points(name):
        assert (point.prompt_tokens, point.output_tokens) == (1024.0, 256.0)
        assert 0.02 < point.ttft_s < 0.2
        assert 0.006 < point.tpot_s < 0.014
        assert (point.ttft_statistic, point.tpot_statistic) == ("mean", "mean")
        assert point.source.startswith(name)


def test_vllm() -> None:
    point, = points("vllm_bench_serve.json")
    assert point.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert (point.concurrency, point.requests_per_second) == (16.0, None)
    assert point.closed_loop
    assert point.requests == 320.0
    assert point.request_throughput == pytest.approx(7.1297)
    assert point.ttft_s == pytest.approx(0.0627)
    assert point.date == "2026-02-12"
    # openai is a protocol, not an engine; the pairs of --metadata are read.
    assert (point.engine, point.gpu, point.tensor_parallel) == (None, "h100-sxm-80gb", 1)


def test_vllm_appended_results_of_an_open_loop() -> None:
    slow, fast = points("vllm_appended.json")
    assert (slow.requests_per_second, fast.requests_per_second) == (2.0, 8.0)
    assert slow.concurrency is None
    assert slow.engine == "vllm"
    assert [p.source for p in (slow, fast)] == ["vllm_appended.json:1", "vllm_appended.json:2"]


def test_vllm_list_of_a_sweep() -> None:
    one = json.loads((FIXTURES / "vllm_bench_serve.json").read_text())
    found = read("summary.json", json.dumps([[one, one], [one]]).encode())
    assert [p.source for p in found] == ["summary.json:1[0][0]", "summary.json:1[0][1]",
                                         "summary.json:1[1][0]"]


def test_vllm_ramp_has_no_load_and_drafts_are_flagged() -> None:
    ramp, = read("r.json", changed("vllm_bench_serve.json",
                                   lambda v: v.update(ramp_up_strategy="linear")))
    assert (ramp.concurrency, ramp.requests_per_second) == (None, None)
    draft, = read("r.json", changed("vllm_bench_serve.json",
                                    lambda v: v.update(spec_decode_acceptance_length=2.4)))
    assert draft.speculative


def test_vllm_median_where_there_is_no_mean() -> None:
    point, = read("r.json", changed("vllm_bench_serve.json", lambda v: v.pop("mean_ttft_ms")))
    assert (point.ttft_statistic, point.tpot_statistic) == ("median", "mean")


def test_vllm_metadata_prefers_the_quantization_to_the_data_type() -> None:
    point, = read("r.json", changed("vllm_bench_serve.json", lambda v: v.update(
        dtype="bfloat16", quantization="fp8", version="0.11.0", framework="vllm")))
    assert (point.weights, point.engine_version, point.engine) == ("fp8", "0.11.0", "vllm")


def test_sglang() -> None:
    described, bare = points("sglang_bench_serving.jsonl")
    assert described.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert (described.engine, described.engine_version) == ("sglang", "0.5.3")
    assert (described.tensor_parallel, described.data_parallel) == (1, 1)
    assert (described.weights, described.kv) == (None, None)
    assert (described.concurrency, described.requests_per_second) == (8.0, None)
    assert described.mean_running == pytest.approx(7.805)
    assert described.e2e_s == pytest.approx(1.98945)
    assert (bare.model, bare.tensor_parallel) == (None, None)
    assert bare.source == "sglang_bench_serving.jsonl:2"


def sglang_server(**info: Any) -> MeasuredPoint:
    point, = read("s.jsonl", changed("sglang_bench_serving.jsonl",
                                     lambda v: v["server_info"].update(info)))
    return point


def test_sglang_data_parallel_attention_shares_the_tensor_ranks() -> None:
    point = sglang_server(tp_size=8, dp_size=4, enable_dp_attention=True)
    assert (point.tensor_parallel, point.data_parallel, point.gpus) == (2, 4, 8)
    assert point.concurrency == 8.0
    with pytest.raises(InvalidValue, match="must divide tp_size 8"):
        sglang_server(tp_size=8, dp_size=3, enable_dp_attention=True)


def test_sglang_replicas_behind_one_router_share_the_load() -> None:
    point = sglang_server(dp_size=2)
    assert (point.tensor_parallel, point.data_parallel) == (1, 1)
    assert (point.concurrency, point.requests) == (4.0, 80.0)
    assert point.request_throughput == pytest.approx(3.9231 / 2)


def test_sglang_precision_drafts_and_pools() -> None:
    point = sglang_server(quantization="modelopt_fp4", kv_cache_dtype="fp8_e4m3",
                          speculative_algorithm="EAGLE3")
    assert (point.weights, point.kv, point.speculative) == ("fp4", "fp8", True)
    split, = read("s.jsonl", changed("sglang_bench_serving.jsonl", lambda v: v.update(
        server_info={"prefill": [{"tp_size": 4}], "decode": [{"tp_size": 2, "dp_size": 1}]})))
    assert (split.setup, split.tensor_parallel) == ("disaggregated", 2)


def test_sglang_trace_and_finite_rate() -> None:
    trace, = read("s", changed("sglang_bench_serving.jsonl",
                               lambda v: v.update(request_rate="trace")))
    assert trace.requests_per_second is None
    rated, = read("s", changed("sglang_bench_serving.jsonl", lambda v: v.update(request_rate=4.0)))
    assert rated.requests_per_second == 4.0


def test_guidellm_before_0_4() -> None:
    alone, burst, steady = points("guidellm_0.3.json")
    assert (alone.concurrency, alone.requests_per_second) == (1.0, None)
    assert (burst.concurrency, burst.requests_per_second) == (None, None)
    assert (steady.concurrency, steady.requests_per_second) == (None, 6.2)
    assert alone.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert alone.requests == 40.0
    # Inter-token latency, not the "time per output token" that counts the first token in.
    assert alone.tpot_s == pytest.approx(0.00702)
    assert alone.source == "guidellm_0.3.json:1:benchmarks[0]"
    assert alone.date == "2025-09-10"


def test_guidellm_from_0_4() -> None:
    sixteen, thirty_two = points("guidellm_0.7.json")
    assert (sixteen.concurrency, thirty_two.concurrency) == (16.0, 32.0)
    assert sixteen.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert sixteen.requests == 320.0
    assert sixteen.mean_running == pytest.approx(15.61)
    assert sixteen.e2e_s == pytest.approx(2.1894)


def test_guidellm_without_a_success_gives_zeros() -> None:
    def fail(value: dict[str, Any]) -> None:
        metrics = value["benchmarks"][0]["metrics"]
        metrics["time_to_first_token_ms"]["successful"] = None
    first = read("g.json", changed("guidellm_0.7.json", fail))[0]
    assert first.ttft_s == 0.0


@pytest.mark.parametrize("name", ["profile_export_aiperf.json", "profile_export_genai_perf.json"])
def test_aiperf_json(name: str) -> None:
    point, = points(name)
    assert point.concurrency == 16.0
    assert point.model is not None
    assert point.output_tokens_per_s == pytest.approx(1825.2)
    assert point.e2e_s == pytest.approx(2.1894)


@pytest.mark.parametrize("name", ["profile_export_aiperf.csv", "profile_export_llm_genai_perf.csv"])
def test_aiperf_csv_has_no_load(name: str) -> None:
    point, = points(name)
    assert (point.model, point.concurrency, point.requests_per_second) == (None, None, None)
    assert point.request_throughput == pytest.approx(7.13)
    assert point.e2e_s == pytest.approx(2.1894)


def test_aiperf_units_and_models() -> None:
    micro, = read("a.json", changed("profile_export_aiperf.json", lambda v: v.update(
        time_to_first_token={"unit": "us", "avg": 62_700.0})))
    assert micro.ttft_s == pytest.approx(0.0627)
    with pytest.raises(InvalidValue, match=r"time_to_first_token\.unit: must be one of"):
        read("a.json", changed("profile_export_aiperf.json", lambda v: v.update(
            time_to_first_token={"unit": "fortnight", "avg": 1.0})))
    with pytest.raises(InvalidValue, match="one model a run, not 2"):
        read("a.json", changed("profile_export_aiperf.json", lambda v: v["input_config"].update(
            endpoint={"model_names": ["a", "b"]})))
    with pytest.raises(InvalidValue, match="--streaming"):
        read("a.json", changed("profile_export_aiperf.json",
                               lambda v: v.pop("time_to_first_token")))


def test_trtllm() -> None:
    point, = points("trtllm_report.json")
    assert (point.gpu, point.engine, point.engine_version) == ("h100-sxm-80gb", "tensorrt-llm",
                                                               "1.1.0")
    assert (point.weights, point.kv) == ("fp8", "fp8")
    assert point.concurrency == point.mean_running == pytest.approx(31.219)
    with pytest.raises(InvalidValue, match="avg_ttft_ms: missing; only runs with --streaming"):
        read("t.json", changed("trtllm_report.json", lambda v: v.pop("streaming_metrics")))


def test_trtllm_unquantised_keeps_the_data_type_and_unset_experts() -> None:
    def plain(value: dict[str, Any]) -> None:
        value["engine"].update(quantization=None, kv_cache_dtype=None)
        value["world_info"]["ep_size"] = -1
    point, = read("t.json", changed("trtllm_report.json", plain))
    assert (point.weights, point.kv, point.expert_parallel) == ("bf16", "bf16", None)


def test_plain_rows() -> None:
    found = points("plain_rows.csv")
    assert [p.concurrency for p in found] == [1.0, 8.0, 16.0, 32.0, 64.0]
    assert found[0].source == "plain_rows.csv:2"
    assert (found[0].engine, found[0].weights, found[0].kv) == ("vllm", "bf16", None)
    assert found[0].ttft_s == pytest.approx(0.0314)


@pytest.mark.parametrize("header", [
    "concurrency;isl;osl;ttft_s;tpot_ms", "Concurrent requests\tInput length\tOSL\tTTFT [s]\tITL",
    "users,prompt_len,output_len,p50_ttft_s,Median TPOT (ms)"])
def test_header_spellings_and_separators(header: str) -> None:
    mark = max(",;\t", key=header.count)
    for end in ("\r\n", "\r", "\n"):
        text = f"{header}{end}{mark.join(['4', '100', '50', '0.03', '8'])}{end}"
        point, = read("x", text.encode())
        assert (point.concurrency, point.prompt_tokens, point.output_tokens) == (4.0, 100.0, 50.0)
        assert (point.ttft_s, point.tpot_s) == pytest.approx((0.03, 0.008))


def test_a_mean_wins_over_a_median_and_blank_rows_are_skipped() -> None:
    text = ("concurrency,isl,osl,median_ttft_ms,mean_ttft_ms,tpot_ms,speculative\n"
            "4,100,50,20,30,8,yes\n\n,,,,,,\n8,100,50,20,40,9,\n")
    first, second = read("x", text.encode())
    assert (first.ttft_s, first.ttft_statistic) == (pytest.approx(0.03), "mean")
    assert (first.speculative, second.speculative) == (True, False)
    assert second.source == "x:5"


def test_json_rows() -> None:
    row = {"model": "llama-3.1-8b", "concurrency": 4, "prompt_tokens": 100, "output_tokens": 50,
           "ttft_ms": 30, "tpot_ms": 8.0, "tensor_parallel": 2, "prefix_cache_hit_rate": 0.5}
    point, = read("body", json.dumps([row]).encode())
    assert (point.tensor_parallel, point.prefix_hit, point.model) == (2, 0.5, "llama-3.1-8b")


# -- defaults -----------------------------------------------------------------------------------

DEFAULTS = {"model": "llama-3.1-8b", "gpu": "l4", "engine": "vllm", "weights": "bf16",
            "kv": "bf16", "tensor_parallel": 2}


def test_defaults_fill_only_what_is_missing() -> None:
    point, = with_defaults(points("trtllm_report.json"), DEFAULTS)
    assert (point.gpu, point.weights, point.tensor_parallel) == ("h100-sxm-80gb", "fp8", 1)
    assert (point.data_parallel, point.setup) == (1, "chunked")


def test_a_load_is_given_only_to_points_without_one() -> None:
    table, = with_defaults(points("profile_export_aiperf.csv"), {**DEFAULTS, "concurrency": 16})
    assert table.concurrency == 16
    rated, _ = with_defaults(points("vllm_appended.json"), {**DEFAULTS, "concurrency": 16})
    assert (rated.concurrency, rated.requests_per_second) == (None, 2.0)


def test_what_is_still_missing_is_named() -> None:
    with pytest.raises(InvalidValue, match=r"vllm_appended.json:1 does not say gpu, weights;"):
        with_defaults(points("vllm_appended.json"), {"tensor_parallel": 1})


@pytest.mark.parametrize(("name", "value"), [
    ("tensor_parallel", 0), ("tensor_parallel", True), ("tensor_parallel", "2"), ("gpu", ""),
    ("gpu", 3), ("ttft_s", 1.0), ("concurrency", -1), ("concurrency", float("nan"))])
def test_bad_defaults_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        with_defaults([], {name: value})
    assert caught.value.pointer == f"/{name}"
