"""Aggregates of NVIDIA AIPerf, and of GenAI-Perf before it: JSON and CSV, one point a file.

JSON: a metric is ``{"unit", "avg", "p50", ...}`` under its tag, the arguments are under
``input_config``. CSV: a table of metrics by statistic and below it a table of single values; it
names neither model nor load, so these come from the caller.

Source: ``aiperf/exporters/json_exporter.py``, ``csv_exporter.py`` and
``aiperf/common/models/export_models.py`` in https://github.com/ai-dynamo/aiperf;
``genai-perf/genai_perf/export_data`` in https://github.com/triton-inference-server/perf_analyzer
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.calibration.points import MeasuredPoint
from planner.calibration.readers.entry import Entry, iso_date
from planner.errors import InvalidValue
from planner.units import MS_PER_S, US_PER_S

SECONDS = {"ns": 1e-9, "us": 1.0 / US_PER_S, "ms": 1.0 / MS_PER_S, "s": 1.0, "sec": 1.0,
           "seconds": 1.0}
"""[s] of each unit that a time may be exported in."""
_TAGS = ("time_to_first_token", "inter_token_latency", "request_latency")
_HINT = "only runs with --streaming measure it"


def matches(record: Mapping[str, Any]) -> bool:
    """Whether an object is such an aggregate."""
    return any(isinstance(record.get(tag), Mapping) and "avg" in record[tag] for tag in _TAGS)


def matches_table(header: Sequence[str]) -> bool:
    """Whether the first row of a CSV file is that of such an aggregate."""
    cells = [cell.strip().lower() for cell in header[:2]]
    return cells in (["metric", "avg"], ["metric", "value"])


def read(entry: Entry) -> list[MeasuredPoint]:
    """The point of one JSON aggregate."""
    config = entry.child("input_config")
    concurrency, rate = _load(config)
    return [_point(entry, model=_model(config), concurrency=concurrency,
                   requests_per_second=rate, date=iso_date(entry.text("start_time")))]


def read_table(name: str, rows: Sequence[Sequence[str]]) -> list[MeasuredPoint]:
    """The point of one CSV aggregate."""
    metrics: dict[str, Any] = {}
    statistic = 1
    for cells in rows:
        if cells and cells[0].strip().lower() == "metric":
            statistic = _value_column([c.strip().lower() for c in cells])
        elif len(cells) > statistic > 0:
            tag, unit = _tag(cells[0])
            metrics.setdefault(tag, {"unit": unit, "avg": cells[statistic].replace(",", "")})
    return [_point(Entry(name, metrics))]


def _value_column(header: list[str]) -> int:
    """Column of the mean or single value; 0 for a table that is about something else."""
    return next((header.index(c) for c in ("avg", "value") if c in header and "gpu" not in header),
                0)


def _tag(label: str) -> tuple[str, str]:
    """Tag and unit of a label: ``Time to First Token (ms)``.

    Examples
    --------
    >>> _tag("Time to First Token (ms)"), _tag("Request Count")
    (('time_to_first_token', 'ms'), ('request_count', ''))
    """
    found = re.fullmatch(r"\s*([^()]*?)\s*(?:\(([^()]*)\))?\s*", label)
    name, unit = found.groups() if found else (label, None)
    return re.sub(r"\W+", "_", name.lower()), (unit or "").strip()


def _point(entry: Entry, **described: Any) -> MeasuredPoint:
    return MeasuredPoint(
        prompt_tokens=_needed(entry, "input_sequence_length"),
        output_tokens=_needed(entry, "output_sequence_length"),
        ttft_s=_seconds(entry, "time_to_first_token", _HINT),
        tpot_s=_seconds(entry, "inter_token_latency", _HINT), source=entry.where,
        output_tokens_per_s=entry.child("output_token_throughput").number("avg"),
        request_throughput=entry.child("request_throughput").number("avg"),
        e2e_s=_optional_seconds(entry, "request_latency"),
        duration_s=_optional_seconds(entry, "benchmark_duration"),
        requests=entry.child("request_count").number("avg"), **described)


def _needed(entry: Entry, tag: str, hint: str = "") -> float:
    metric = entry.child(tag)
    if not metric.values:
        raise entry.error(tag, "missing" + (f"; {hint}" if hint else ""))
    return metric.required("avg")


def _seconds(entry: Entry, tag: str, hint: str) -> float:
    return _needed(entry, tag, hint) * _unit(entry.child(tag))


def _optional_seconds(entry: Entry, tag: str) -> float | None:
    metric = entry.child(tag)
    return metric.scaled("avg", _unit(metric)) if metric.values else None


def _unit(metric: Entry) -> float:
    unit = (metric.text("unit") or "").lower()
    if unit not in SECONDS:
        raise metric.error("unit", f"must be one of {', '.join(SECONDS)}, not {unit!a}")
    return SECONDS[unit]


def _load(config: Entry) -> tuple[float | None, float | None]:
    """Concurrency and offered rate: AIPerf's, GenAI-Perf's, or those of its older releases."""
    places = (config.child("loadgen"), config.child("perf_analyzer", "stimulus"), config)
    concurrency = next((v for p in places if (v := p.number("concurrency")) is not None), None)
    rate = next((v for p in places if (v := p.number("request_rate")) is not None), None)
    return concurrency, rate


def _model(config: Entry) -> str | None:
    """The model, which is a list where several can be asked at once."""
    places = (config.child("endpoint"), config)
    for place, key in ((p, k) for p in places for k in ("model_names", "model")):
        value = place.values.get(key)
        names = value if isinstance(value, list) else [value]
        if len(names) > 1:
            raise InvalidValue(f"{place.where}, {place.path}{key}: one model a run, "
                               f"not {len(names)}")
        if names and names[0] is not None:
            return Entry(place.where, {key: names[0]}, place.path).text(key)
    return None
