"""Published benchmark tables in a data folder as measured points.

Two layouts are read: ``serving_curves.csv`` (closed-loop points of vLLM, SGLang and TensorRT-LLM
as AIConfigurator ships them) and ``published_benchmarks.csv`` (rows gathered from MLPerf,
InferenceMAX, ML.ENERGY and others). A user's own result files are read by
:mod:`planner.calibration.readers`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace
from pathlib import Path

from planner.calibration.points import MeasuredPoint
from planner.calibration.throughput import ThroughputRow
from planner.prediction import Point, WorkerPool
from planner.requests import Layout
from planner.units import ms_to_s

LENGTH_RATIO = 0.9
"""InferenceMAX draws lengths uniformly from 0.8 to 1.0 of the nominal ones."""
MOST_TENSOR = 8
"""Rows beyond are totals of a cluster, not one engine."""
_GPUS = {"h100_sxm": "h100-sxm-80gb", "h200_sxm": "h200-sxm-141gb", "b200_sxm": "b200-sxm-180gb",
         "H100-SXM": "h100-sxm-80gb", "H200-SXM": "h200-sxm-141gb", "B200": "b200-sxm-180gb",
         "A100-40GB-SXM": "a100-sxm-40gb", "A100-80GB-SXM": "a100-sxm-80gb", "L40S": "l40s",
         "MI300X": "mi300x", "MI325X": "mi325x", "MI355X": "mi355x"}
_ENGINES = {"trtllm": "tensorrt-llm", "vllm": "vllm", "sglang": "sglang",
            "tensorrt-llm": "tensorrt-llm"}
_WEIGHTS = {"fp8": "fp8", "fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "bf16": "bf16",
            "fp16": "fp16", "int4": "int4", "int8": "int8"}
_ALIASES = {"deepseek-r1-0528": "deepseek-v3", "deepseek-v3.1": "deepseek-v3",
            "deepseek-ai/deepseek-v3": "deepseek-v3", "deepseek-ai/deepseek-r1": "deepseek-v3",
            "nvidia/deepseek-r1-nvfp4": "deepseek-v3", "nvidia/deepseek-v3.1-nvfp4": "deepseek-v3",
            "nvidia/llama-3.1-8b-instruct-fp8": "llama-3.1-8b",
            "nvidia/qwen3-32b-nvfp4": "qwen3-32b", "llama-2-70b-chat": "llama-2-70b",
            "llama-3.1-405b-instruct": "llama-3.1-405b", "llama-3.1-8b-instruct": "llama-3.1-8b",
            "llama-3.3-70b": "llama-3.1-70b", "deepseek-r1": "deepseek-v3"}
"""Names of checkpoints whose architecture the catalog has under another one."""
_SUITES = {"MLPerf": "MLPerf", "TensorRT-LLM-docs": "TensorRT-LLM", "InferenceMAX": "InferenceMAX"}
_LIMITS = re.compile(r"TTFT p99<=(\d+)ms TPOT p99<=(\d+)ms")
_THROUGHPUT_COLUMNS = {"output_tok_s_per_gpu", "kv_precision", "n_gpus", "notes", "id"}
_CONCURRENCY = re.compile(r"silicon_concurrency=(\d+)")
_MEASURED = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
_NOMINAL = re.compile(r"db-dump|source_file=\d{4}-\d\d-\d\d")
_DATA_PARALLEL = re.compile(r"config_id=707\b")

Row = Mapping[str, str]


def load(folder: Path) -> list[MeasuredPoint]:
    """Every aggregated closed-loop point of a data folder (or of its ``measured/``)."""
    points: list[MeasuredPoint] = []
    for path in sorted({*folder.glob("*.csv"), *folder.glob("measured/*.csv")}):
        if path.name == "serving_curves.csv":
            points += _curves(path)
        elif path.name == "published_benchmarks.csv":
            points += _published(path)
    return list({_figures(p): p for p in points}.values())


def _figures(point: MeasuredPoint) -> tuple[object, ...]:
    """What makes a point a copy of another: the tables list many runs two or three times."""
    return (point.model, point.gpu, point.engine, point.weights, point.tensor_parallel,
            point.data_parallel, point.concurrency, round(point.prompt_tokens, -1),
            float(f"{point.tpot_s:.6g}"), float(f"{point.ttft_s:.6g}"))


def _curves(path: Path) -> Iterator[MeasuredPoint]:
    with path.open(newline="") as handle:
        rows = [(line, row) for line, row in enumerate(csv.DictReader(handle), start=2)
                if row["mode"] == "agg" and _usable_curve(row)]
    plain = {_latencies(row) for _, row in rows if row["silicon_data_source"].startswith("db-dump")}
    for line, row in rows:
        point = _curve(row, f"{path.name}:{line}")
        drafted = _in_mixed_run(row) and _latencies(row) not in plain
        yield replace(point, speculative=True) if drafted else point


def _latencies(row: Row) -> tuple[str, str]:
    return row["silicon_ttft_ms"], row["silicon_tpot_ms"]


def _in_mixed_run(row: Row) -> bool:
    """Whether a row is of the day on which SGLang ran DeepSeek-R1 with and without a draft.

    On 25 March 2026 eight B200 in FP8 were measured twice at each load with the same statement:
    one set takes 0.67 to 0.9 of the other's time per token and has slower first tokens. The dump
    of the benchmark's data base lists the slower set alone.
    """
    return (row["backend"] == "sglang" and "measured=2026-03-25" in row["silicon_data_source"]
            and (row["system"], row["precision"], curve_layout(row)) ==
            ("b200_sxm", "fp8", Layout(8))
            and row["model_path"].startswith("deepseek-ai/DeepSeek"))


def load_disaggregated(folder: Path) -> list[tuple[Point, float]]:
    """Disaggregated closed-loop points that state their pools, with their TPOT [s]."""
    path = next((p for p in (folder / "serving_curves.csv", folder / "measured/serving_curves.csv")
                 if p.exists()), None)
    if path is None:
        return []
    with path.open(newline="") as handle:
        return [(_disaggregated(row), ms_to_s(float(row["silicon_tpot_ms"])))
                for row in csv.DictReader(handle)
                if row["mode"] == "disagg" and row["prefill_num_workers"]
                and _CONCURRENCY.search(row["silicon_data_source"]) and row["silicon_tpot_ms"]]


def _disaggregated(row: Row) -> Point:
    match = _CONCURRENCY.search(row["silicon_data_source"])
    assert match
    return Point(model_name(row["model_path"]), _ENGINES[row["backend"]],
                 float(row["isl"]) * LENGTH_RATIO, float(row["osl"]) * LENGTH_RATIO,
                 setup="disaggregated", weights=_curve_weights(row),
                 concurrency=float(match.group(1)), prefill=_worker_pool(row, "prefill"),
                 decode=_worker_pool(row, "decode"))


def _worker_pool(row: Row, role: str) -> WorkerPool:
    tensor, data = _whole(row[f"{role}_tp_size"]), _whole(row[f"{role}_attention_dp_size"])
    layout = Layout(tensor, 1, tensor * data if data > 1 else 1, data)
    return WorkerPool(_GPUS[row["system"]], layout, _whole(row[f"{role}_num_workers"]),
                      _whole(row[f"{role}_batch_size"]))


def load_throughput(folder: Path) -> list[ThroughputRow]:
    """Offline, server and closed-loop rows that state output tokens per second and GPU."""
    paths = [p for p in (folder / "published_benchmarks.csv",
                         folder / "measured/published_benchmarks.csv") if p.exists()]
    found: dict[tuple[object, ...], ThroughputRow] = {}
    for path in paths:
        with path.open(newline="") as handle:
            for row in csv.DictReader(handle):
                made = _throughput(row) if row.keys() >= _THROUGHPUT_COLUMNS else None
                if made is not None:
                    found[astuple(replace(made, source=""))] = made
    return list(found.values())


def _throughput(row: Row) -> ThroughputRow | None:
    suite = _SUITES.get(row["source"].partition("-Inference")[0])
    wanted = {"MLPerf": ("offline", "server"), "TensorRT-LLM": ("offline",),
              "InferenceMAX": ("colocated",)}.get(suite or "", ())
    needed = all(row[name] for name in ("output_tok_s_per_gpu", "isl", "osl"))
    if (suite is None or row["mode"] not in wanted or not needed or row["hardware"] not in _GPUS
            or row["engine"] not in _ENGINES or row["weight_precision"] not in _WEIGHTS
            or row["spec_decode"] not in ("", "none")):
        return None
    weights, limits = _WEIGHTS[row["weight_precision"]], _LIMITS.search(row["notes"])
    layout = _throughput_layout(row, suite)
    scenario = ("closed loop" if suite == "InferenceMAX" else
                "interactive" if "Interactive" in row["notes"] else row["mode"])
    small = suite == "MLPerf" and weights in ("fp8", "fp4")
    kv = row["kv_precision"] if row["kv_precision"] in ("fp8", "bf16") else "fp8" * small
    return ThroughputRow(
        suite, scenario, model_name(row["model"]), _GPUS[row["hardware"]],
        _ENGINES[row["engine"]], row["engine_version"] or row["date_or_version"], weights, kv,
        *layout, _whole(row["n_gpus"]), float(row["isl"]), float(row["osl"]),
        float(row["concurrency"]) if suite == "InferenceMAX" else 0.0,
        *((float(limits.group(1)), float(limits.group(2))) if limits else (0.0, 0.0)),
        float(row["output_tok_s_per_gpu"]), row["id"])


def _throughput_layout(row: Row, suite: str) -> tuple[int, int, int]:
    """Tensor, pipeline and data parallelism of a replica; MLPerf tables do not have them."""
    if suite == "MLPerf":
        return 0, 1, 1
    tensor, pipeline, data = (_whole(row[name]) for name in ("tp", "pp", "dp"))
    if suite == "InferenceMAX" and row["dp_attention"] == "True":
        return 1, pipeline, max(tensor, data)
    return tensor, pipeline, 1


def _usable_curve(row: Row) -> bool:
    return bool(_CONCURRENCY.search(row["silicon_data_source"]) and row["silicon_tpot_ms"]
                and float(row["silicon_tpot_ms"]) > 0
                and curve_layout(row).tensor <= MOST_TENSOR)


def curve_speculates(row: Row) -> bool:
    """Whether a row was in all likelihood taken with a draft (multi-token prediction) on.

    The sample does not say. TensorRT-LLM runs of DeepSeek-R1 and V3 come in two groups that differ
    in nothing stated: release 1.2.0rc6.post3, and 1.1.0rc2.post2 from January 2026 on, take 0.4 to
    0.6 of the time per token of the other group at 4 to 16 requests and 0.7 at 128, with a slower
    first token, which is what a draft does and an engine release a week later does not.
    """
    origin = row["silicon_data_source"]
    if row["backend"] != "trtllm" or not row["model_path"].startswith("deepseek-ai/DeepSeek"):
        return False
    date = _MEASURED.search(origin)
    since = date.group(1) if date else ""
    return "1.2.0rc6.post3" in origin or ("1.1.0rc2.post2" in origin and since >= "2026-01")


def curve_compiles(row: Row) -> bool:
    """Whether a row was taken while SGLang compiled kernels.

    Runs with DeepSeek of November 2025 have first tokens of 5 to 12 s where those of the same
    layouts from March 2026 on have 0.2 to 2.6 s, and 0.4 s below some load: batches of a size that
    was not met before.
    """
    date = _MEASURED.search(row["silicon_data_source"])
    return bool(row["backend"] == "sglang" and date and date.group(1).startswith("2025-11")
                and row["model_path"].startswith("deepseek-ai/DeepSeek"))


def curve_layout(row: Row) -> Layout:
    """The layout of an aggregated row.

    Rows of InferenceX multiply the tensor, data and expert sizes of a run once too often: the same
    measured figures appear as ``tp 64, moe 8 x 8`` and as ``tp 8, moe 1 x 8``, as attention data
    parallelism 64 and 8; the names of the runs (``tp8_ep8``) have the smaller ones. Rows of vendor
    runs may lack the attention data parallelism; it follows from the others, as the ranks of
    attention and of experts are the same GPUs.
    """
    tensor, data = _whole(row["tp_size"]), _whole(row["attention_dp_size"])
    shards, experts = _whole(row["moe_tp_size"]), _whole(row["moe_ep_size"])
    if _NOMINAL.search(row["silicon_data_source"]):
        tensor, data, experts = _once(row, tensor, data, shards, experts)
    elif shards * experts % tensor == 0 and not row["attention_dp_size"]:
        data = shards * experts // tensor
    return Layout(tensor, _whole(row["pp_size"]), min(experts, tensor * data), data)


def _once(row: Row, tensor: int, data: int, shards: int, experts: int) -> tuple[int, int, int]:
    """Tensor, data and expert parallelism of a row of InferenceX, multiplied once only.

    ``tp 4, dp 4, ep 16`` is the run ``tp4_ep4``: tensor parallelism and experts apart, without data
    parallelism, as its settings of vLLM have it (``nvidia-master.yaml``, April 2026), and runs
    listed as ``tp 4, dp 1, ep 4`` show the same latencies. One configuration had both.
    """
    if shards == experts > 1 and tensor * data == shards * experts:
        return (1, experts, experts) if data > 1 else (experts, 1, experts)
    if data > 1 and tensor == data and experts == tensor * data:
        return (1, data, data) if _DATA_PARALLEL.search(row["silicon_data_source"]) else (
            tensor, 1, tensor)
    return tensor, data, experts


def _curve(row: Row, source: str) -> MeasuredPoint:
    origin = row["silicon_data_source"]
    ratio = LENGTH_RATIO if _NOMINAL.search(origin) else 1.0
    match, date = _CONCURRENCY.search(origin), _MEASURED.search(origin)
    assert match
    layout = curve_layout(row)
    return MeasuredPoint(
        prompt_tokens=float(row["isl"]) * ratio, output_tokens=float(row["osl"]) * ratio,
        ttft_s=ms_to_s(float(row["silicon_ttft_ms"])),
        tpot_s=ms_to_s(float(row["silicon_tpot_ms"])), source=source,
        model=model_name(row["model_path"]), gpu=_GPUS[row["system"]],
        engine=_ENGINES[row["backend"]], engine_version=row["backend_version"],
        setup="colocated", weights=_curve_weights(row), tensor_parallel=layout.tensor,
        pipeline_parallel=layout.pipeline, expert_parallel=layout.expert,
        data_parallel=layout.data,
        concurrency=float(match.group(1)), speculative=curve_speculates(row),
        compiling=curve_compiles(row),
        date=date.group(1) if date else "")


def _curve_weights(row: Row) -> str:
    """gpt-oss is only published in MXFP4; a blank precision is 16 bits."""
    if row["model_path"].startswith("openai/gpt-oss"):
        return "fp4"
    return _WEIGHTS.get(row["precision"], "bf16")


def model_name(path: str) -> str:
    """The catalog's name of a checkpoint."""
    return _ALIASES.get(path.lower(), path)


def _whole(text: str) -> int:
    return max(int(float(text)), 1) if text else 1


def _published(path: Path) -> Iterator[MeasuredPoint]:
    with path.open(newline="") as handle:
        for line, row in enumerate(csv.DictReader(handle), start=2):
            if _usable_row(row):
                yield _row(row, f"{path.name}:{line}")


def _usable_row(row: Row) -> bool:
    """InferenceMAX rows of one engine with a TPOT and lengths; no speculation.

    Other sources state a limit of concurrency, not how many requests ran.
    """
    needed = all(row[name] for name in ("tpot_ms", "concurrency", "isl", "osl", "tp"))
    return bool(needed and row["source"] == "InferenceMAX"
                and row["mode"] in ("colocated", "chunked")
                and row["hardware"] in _GPUS and row["engine"] in _ENGINES
                and row["weight_precision"] in _WEIGHTS
                and row["spec_decode"] in ("", "none")
                and float(row["tp"]) <= MOST_TENSOR and float(row["tpot_ms"]) > 0)


def _row(row: Row, source: str) -> MeasuredPoint:
    dp_attention = row["dp_attention"] == "True"
    ranks = _whole(row["dp"])
    tensor, data = _whole(row["tp"]), 1
    if dp_attention:
        tensor, data = 1, max(ranks, tensor)
    return MeasuredPoint(
        prompt_tokens=float(row["isl"]), output_tokens=float(row["osl"]),
        ttft_s=ms_to_s(float(row["ttft_ms"])) if row["ttft_ms"] else float("nan"),
        tpot_s=ms_to_s(float(row["tpot_ms"])), source=source,
        ttft_statistic=row["ttft_stat"] or "mean", tpot_statistic=row["tpot_stat"] or "mean",
        model=model_name(row["model"]), gpu=_GPUS[row["hardware"]],
        engine=_ENGINES[row["engine"]], engine_version=row["engine_version"],
        setup="colocated", weights=_WEIGHTS[row["weight_precision"]], tensor_parallel=tensor,
        pipeline_parallel=_whole(row["pp"]), data_parallel=data,
        concurrency=float(row["concurrency"]), date=row["date_or_version"][:10])
