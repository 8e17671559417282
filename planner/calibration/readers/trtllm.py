"""Reports of ``trtllm-bench throughput --report_json`` and ``latency --report_json``.

One JSON object a run, with the model, the layout, the precisions and the name of the GPU. Latency
per token is there only with ``--streaming``. The report has no offered load: the client keeps a
number of requests in flight, of which the file gives the mean.

Source: ``ReportUtility.get_statistics_dict`` in
https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/bench/dataclasses/reporting.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.calibration.points import MeasuredPoint
from planner.calibration.readers.entry import Entry
from planner.calibration.readers.names import gpu_of, precision_of
from planner.units import ms_to_s

_HINT = "only runs with --streaming measure it"


def matches(record: Mapping[str, Any]) -> bool:
    """Whether an object is such a report."""
    return "world_info" in record and "performance" in record


def read(entry: Entry) -> list[MeasuredPoint]:
    """The point of one report."""
    performance, requests = entry.child("performance"), entry.child("request_info")
    streaming = entry.child("streaming_metrics")
    running = requests.number("avg_num_concurrent_requests")
    return [MeasuredPoint(
        prompt_tokens=requests.required("avg_input_length"),
        output_tokens=requests.required("avg_output_length"),
        ttft_s=ms_to_s(streaming.required("avg_ttft_ms", _HINT)),
        tpot_s=ms_to_s(streaming.required("avg_tpot_ms", _HINT)), source=entry.where,
        concurrency=running, mean_running=running,
        output_tokens_per_s=performance.number("system_output_throughput_tok_s"),
        request_throughput=performance.number("request_throughput_req_s"),
        e2e_s=performance.scaled("avg_request_latency_ms", ms_to_s(1.0)),
        duration_s=performance.scaled("total_latency_ms", ms_to_s(1.0)),
        requests=requests.number("num_requests"),
        speculative=entry.values.get("decoding_stats") is not None, **_deployment(entry))]


def _deployment(entry: Entry) -> dict[str, Any]:
    engine, world = entry.child("engine"), entry.child("world_info")
    stored = precision_of(engine.text("dtype"))
    return {
        "model": engine.text("model"), "gpu": gpu_of(entry.child("machine").text("name")),
        "engine": "tensorrt-llm", "engine_version": engine.text("version"),
        "weights": precision_of(engine.text("quantization")) or stored,
        "kv": precision_of(engine.text("kv_cache_dtype")) or stored,
        "tensor_parallel": world.whole("tp_size"), "pipeline_parallel": world.whole("pp_size"),
        # -1 stands for "not set" there.
        "expert_parallel": None if world.values.get("ep_size") == -1 else world.whole("ep_size")}
