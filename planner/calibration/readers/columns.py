"""Spellings of column names: a header, a metadata pair or a JSON row key to a field and a unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.calibration.points import DEPLOYMENT
from planner.calibration.readers.entry import Entry
from planner.calibration.readers.names import engine_of, gpu_of, precision_of
from planner.precision import WEIGHT_PRECISIONS

_SPELLINGS: Mapping[str, str] = {
    "model": "model model_name model_id hf_id",
    "gpu": "gpu gpu_slug gpu_type gpu_name accelerator hardware",
    "engine": "engine framework server backend",
    "engine_version": "engine_version version vllm_version sglang_version",
    "setup": "setup",
    "weights": "weights weight weight_precision weights_precision precision quantization "
               "weight_dtype dtype",
    "kv": "kv kv_precision kv_dtype kv_cache kv_cache_dtype kv_cache_precision",
    "tensor_parallel": "tensor_parallel tensor_parallel_size tp tp_size",
    "pipeline_parallel": "pipeline_parallel pipeline_parallel_size pp pp_size",
    "expert_parallel": "expert_parallel expert_parallel_size ep ep_size",
    "data_parallel": "data_parallel data_parallel_size dp dp_size",
    "concurrency": "concurrency max_concurrency concurrent_requests users num_concurrent",
    "requests_per_second": "requests_per_second request_rate offered_rate offered_rps rps qps "
                           "rate",
    "prompt_tokens": "prompt_tokens prompt_tokens_mean input_tokens input_length input_len isl "
                     "mean_input_tokens prompt_length prompt_len",
    "output_tokens": "output_tokens output_tokens_mean output_length output_len osl "
                     "mean_output_tokens generated_tokens",
    "ttft": "ttft time_to_first_token",
    "tpot": "tpot time_per_output_token itl inter_token_latency",
    "e2e": "e2e e2el e2e_latency request_latency latency end_to_end_latency",
    "output_tokens_per_s": "output_tokens_per_s output_tokens_per_second output_throughput "
                           "output_token_throughput tokens_per_s",
    "request_throughput": "request_throughput completed_per_s completed_rate",
    "duration_s": "duration_s duration benchmark_duration",
    "requests": "requests num_requests num_prompts completed request_count",
    "mean_running": "mean_running",
    "prefix_hit": "prefix_hit prefix_cache_hit_rate",
    "speculative": "speculative spec_decode",
    "date": "date measured_at as_of",
}
_PLACE = {spelling: (name, rank) for name, text in _SPELLINGS.items()
          for rank, spelling in enumerate(text.split())}
_TIMES = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}
_UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_STATISTICS = {"mean": "mean", "avg": "mean", "average": "mean", "median": "median",
               "p50": "median"}


@dataclass(frozen=True, slots=True)
class Column:
    """A recognised column.

    Attributes
    ----------
    header : str
        As the file spells it.
    name : str
        Field of :class:`~planner.calibration.points.MeasuredPoint`.
    rank : int
        The lowest wins where several columns name one field.
    factor : float
        To SI.
    statistic : str
        Of a latency.
    """

    header: str
    name: str
    rank: int
    factor: float = 1.0
    statistic: str = "mean"


def column_of(header: str) -> Column | None:
    """The column that a header names, None for one that is not used.

    A latency takes a unit and a statistic as words at either end; without a unit it is in ms.

    Examples
    --------
    >>> column_of("TTFT (ms)").name, column_of("median_tpot_s").statistic, column_of("TP").name
    ('ttft_s', 'median', 'tensor_parallel')
    >>> column_of("comment") is None and column_of("p99_ttft_ms") is None
    True
    """
    words = [w for w in re.split(r"[^a-z0-9]+", header.lower()) if w]
    name, rank = _PLACE.get("_".join(words), ("", 0))
    return _latency(header, words) if name in _TIMES or not name else Column(header, name, rank)


def columns_of(headers: Iterable[str]) -> list[Column]:
    """The columns to read, one for each field that the headers name."""
    found: dict[str, Column] = {}
    for header in headers:
        column = column_of(header)
        if column is not None and column.rank < found.get(column.name, _NONE).rank:
            found[column.name] = column
    return list(found.values())


_NONE = Column("", "", 1000)


def _latency(header: str, words: list[str]) -> Column | None:
    factor, statistic, rest = 1e-3, "mean", []
    for place, word in enumerate(words):
        if word in _UNITS and place > 0:
            factor = _UNITS[word]
        elif word in _STATISTICS:
            statistic = _STATISTICS[word]
        else:
            rest.append(word)
    name, rank = _PLACE.get("_".join(rest), ("", 0))
    if name not in _TIMES:
        return None
    # A mean is better than a median, whichever spelling it has.
    return Column(header, _TIMES[name], rank + 10 * (statistic == "median"), factor, statistic)


def deployment_of(entry: Entry) -> dict[str, Any]:
    """What was measured, from whichever spellings an entry has; empty values are left out."""
    columns = [c for c in columns_of(k for k, v in entry.values.items()
                                     if isinstance(v, str | int | float) and v != "")
               if c.name in DEPLOYMENT]
    values = {c.name: described(entry, c) for c in columns}
    return {name: value for name, value in values.items() if value is not None}


def described(entry: Entry, column: Column) -> Any:
    """One field of the deployment in the planner's words."""
    key, name = column.header, column.name
    if name.endswith("_parallel"):
        return entry.whole(key)
    text = entry.text(key)
    if name in ("weights", "kv"):
        return _precision(entry, key, text)
    if name == "engine":
        return engine_of(text) or (None if key.strip().lower() == "backend" else text)
    return gpu_of(text) if name == "gpu" else text


def _precision(entry: Entry, key: str, text: str | None) -> str | None:
    if text is None or text.lower() in ("auto", "none", "default"):
        return None
    precision = precision_of(text)
    if precision is None:
        raise entry.error(key, f"unknown precision {text!a}; allowed: "
                               f"{', '.join(WEIGHT_PRECISIONS)}, auto")
    return precision
