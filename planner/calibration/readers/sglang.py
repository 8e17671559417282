"""Results of SGLang ``bench_serving``: JSON lines, one run each, appended to one file.

Newer releases add ``server_info``, the arguments of the server: model, layout and precision come
from there. ``Infinity`` as the rate means that all requests were sent at once.

Source: ``benchmark`` in
https://github.com/sgl-project/sglang/blob/main/python/sglang/bench_serving.py, and ``ServerArgs``
in ``python/sglang/srt/server_args.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.calibration.points import MeasuredPoint
from planner.calibration.readers.entry import Entry
from planner.calibration.readers.names import engine_of, precision_of
from planner.calibration.readers.serving import (
    latency,
    mean_latency,
    offered_rate,
    tokens_per_request,
)


def matches(record: Mapping[str, Any]) -> bool:
    """Whether an object is such a result."""
    return ("request_throughput" in record and "model_id" not in record
            and ("total_output_tokens_retokenized" in record or "mean_e2e_latency_ms" in record))


def read(entry: Entry) -> list[MeasuredPoint]:
    """The point of one run."""
    ttft_s, ttft_statistic = latency(entry, "ttft")
    tpot_s, tpot_statistic = latency(entry, "tpot")
    accepted = entry.number("accept_length")
    point = MeasuredPoint(
        prompt_tokens=tokens_per_request(entry, "total_input_tokens"),
        output_tokens=tokens_per_request(entry, "total_output_tokens"),
        ttft_s=ttft_s, ttft_statistic=ttft_statistic,
        tpot_s=tpot_s, tpot_statistic=tpot_statistic, source=entry.where,
        engine=engine_of(entry.text("backend")),
        concurrency=entry.number("max_concurrency"), requests_per_second=offered_rate(entry),
        mean_running=entry.number("concurrency"),
        output_tokens_per_s=entry.number("output_throughput"),
        request_throughput=entry.number("request_throughput"),
        e2e_s=mean_latency(entry, "e2e_latency"), duration_s=entry.number("duration"),
        requests=entry.number("completed"), speculative=accepted is not None and accepted > 1.0)
    return [_described(point, entry.child("server_info"))]


def _described(point: MeasuredPoint, info: Entry) -> MeasuredPoint:
    """The point with what the server says of itself; a decode server describes a split one."""
    pools = info.values.get("decode")
    split = isinstance(pools, list) and bool(pools)
    server = _first_pool(info) if split else info
    tensor, attention, replicas = _layout(server)
    point = replace(
        point, model=server.first("model_path", "served_model_name"),
        engine_version=server.text("version"), setup="disaggregated" if split else None,
        weights=precision_of(server.text("quantization")) or precision_of(server.text("dtype")),
        kv=precision_of(server.text("kv_cache_dtype")),
        tensor_parallel=tensor, pipeline_parallel=server.whole("pp_size"),
        expert_parallel=server.whole("ep_size"), data_parallel=attention,
        speculative=point.speculative or server.text("speculative_algorithm") is not None)
    return _share(point, replicas)


def _first_pool(info: Entry) -> Entry:
    pool = info.values["decode"][0]
    if not isinstance(pool, Mapping):
        raise info.error("decode[0]", "must be an object")
    return Entry(info.where, pool, f"{info.path}decode[0].")


def _layout(server: Entry) -> tuple[int | None, int | None, int]:
    """Tensor ranks of the attention, data-parallel attention ranks, and whole replicas.

    With ``enable_dp_attention`` the ``tp_size`` GPUs are shared out over ``dp_size`` attention
    groups; without it ``dp_size`` counts independent replicas behind one router.
    """
    tensor, data = server.whole("tp_size"), server.whole("dp_size")
    if tensor is None or data is None or data == 1:
        return tensor, data, 1
    if server.values.get("enable_dp_attention") is not True:
        return tensor, 1, data
    if tensor % data:
        raise server.error("dp_size", f"must divide tp_size {tensor}, not {data}")
    return tensor // data, data, 1


def _share(point: MeasuredPoint, replicas: int) -> MeasuredPoint:
    """One replica's part of a load that a router spread over several."""
    if replicas == 1:
        return point
    return replace(point, **{
        name: value / replicas for name in (
            "concurrency", "requests_per_second", "mean_running", "output_tokens_per_s",
            "request_throughput", "requests")
        if (value := getattr(point, name)) is not None})
