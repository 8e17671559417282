"""Workload and latency targets of a request. No Flask here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError, post_load, validates_schema

from planner.api.fields import Number, slug_field
from planner.api.lengths import LengthField, lengths_of
from planner.api.validation import InvalidDocument, StrictSchema
from planner.errors import NotInCatalog
from planner.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, ms_to_s
from planner.workload import Lengths, Slo, Workload

METRICS = ("ttft", "tpot", "itl", "e2e")
DEFAULT_PERCENTILE = 90.0
_RATES = {"requests_per_second": None, "requests_per_day": "peak_hour_share",
          "concurrent_users": "think_time_s"}
FROM_TRACE = ("requests_per_second", "requests_per_day", "peak_hour_share", "concurrent_users",
              "think_time_s", "prompt_tokens", "output_tokens", "arrival_cv")
"""Fields of a workload that a trace gives where they are missing."""
_HIGHEST = 1e9
TraceWorkloads = Callable[[str], Mapping[str, Any] | None]
"""Looks a trace up: slug to the workload at its peak, or None."""


def _limit() -> Number:
    return Number(above=0, highest=1e9, metadata={"description": "[ms]"})


def _percentile() -> Number:
    return Number(lowest=50, highest=99.9, metadata={
        "description": "Per cent of the requests that must be within the limit"})


class SloSchema(StrictSchema):
    """Latency targets: at least one; ``percentile`` holds for those without their own."""

    ttft_ms = _limit()
    tpot_ms = _limit()
    itl_ms = _limit()
    e2e_ms = _limit()
    percentile = _percentile()
    ttft_percentile = _percentile()
    tpot_percentile = _percentile()
    itl_percentile = _percentile()
    e2e_percentile = _percentile()

    @validates_schema
    def _at_least_one(self, data: dict[str, Any], **_: Any) -> None:
        if not any(f"{m}_ms" in data for m in METRICS):
            raise ValidationError("needs at least one of ttft_ms, tpot_ms, itl_ms, e2e_ms")
        for metric in METRICS:
            if f"{metric}_percentile" in data and f"{metric}_ms" not in data:
                raise ValidationError(f"needs {metric}_ms", f"{metric}_percentile")


class WorkloadSchema(StrictSchema):
    """What arrives in the peak hour; the rate in exactly one of three ways, or a trace.

    A trace gives the rate of its busiest minute, the lengths and the burstiness, each unless it
    is given.
    """

    requests_per_second = Number(above=0, highest=_HIGHEST)
    requests_per_day = Number(above=0, highest=_HIGHEST * 1e5)
    peak_hour_share = Number(above=0, highest=1, metadata={
        "description": "Share of the day's requests in its busiest hour"})
    concurrent_users = Number(above=0, highest=_HIGHEST)
    think_time_s = Number(lowest=0, highest=1e7, metadata={
        "description": "Mean pause [s] between an answer and the user's next request"})
    trace = slug_field(metadata={"description": "A stored trace: rate, lengths, burstiness"})
    prompt_tokens = LengthField()
    output_tokens = LengthField()
    arrival_cv = Number(lowest=0, highest=100, metadata={
        "default": 1.0,
        "description": "Coefficient of variation of the gaps between arrivals; 1 = Poisson"})
    prefix_cache_hit_rate = Number(lowest=0, below=1, load_default=0.0)

    @validates_schema(skip_on_field_errors=False)
    def _one_rate(self, data: dict[str, Any], **_: Any) -> None:
        given = [name for name in _RATES if name in data]
        if len(given) > 1:
            raise ValidationError(f"give only one of {', '.join(given)}", given[1])
        for name, partner in _RATES.items():
            if partner and name in data and partner not in data:
                raise ValidationError(f"is required with {name}", partner)
            if partner and partner in data and name not in data:
                raise ValidationError(f"only goes with {name}", partner)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _lengths(self, data: dict[str, Any], original: Any, **_: Any) -> None:
        missing = {n: ["is required"] for n in ("prompt_tokens", "output_tokens")
                   if n not in original and "trace" not in original}
        if missing:
            raise ValidationError(missing)

    @validates_schema
    def _some_rate(self, data: dict[str, Any], **_: Any) -> None:
        if "trace" not in data and not any(name in data for name in _RATES):
            raise ValidationError("is required (or requests_per_day with peak_hour_share, or "
                                  "concurrent_users with think_time_s, or a trace)",
                                  "requests_per_second")

    @post_load
    def _poisson(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Without a trace arrivals are Poisson unless said otherwise."""
        if "trace" not in data:
            data.setdefault("arrival_cv", 1.0)
        return data


@dataclass(frozen=True, slots=True)
class ReadWorkload:
    """A workload as read: the value, its own words, and what reading it assumed."""

    workload: Workload
    stated: dict[str, Any]
    assumptions: tuple[dict[str, Any], ...]


def with_trace(data: Mapping[str, Any], traces: TraceWorkloads | None
               ) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """A checked workload with what its trace says, and what that assumes.

    Fields that are given win, so a workload that was completed once needs its trace no more.

    Raises
    ------
    NotInCatalog
        When no trace of that slug is stored.
    """
    slug = data.get("trace")
    rates = [name for name in _RATES if name in data]
    wanted = ["prompt_tokens", "output_tokens", "arrival_cv"]
    wanted += [] if rates else ["requests_per_second"]
    missing = [name for name in wanted if name not in data]
    if slug is None or not missing:
        return dict(data), ()
    found = traces(slug) if traces else None
    if found is None:
        raise NotInCatalog(f"no trace {slug!r} is stored", "/workload/trace")
    assumed = tuple(_assumed(name, found[name], unit, f"{how} of trace {slug}") for name, unit, how
                    in (("requests_per_second", "1/s", "busiest minute"),
                        ("arrival_cv", "", "gaps in the busiest minute")) if name in missing)
    return {**data, **{name: found[name] for name in missing}}, assumed


def slos_of(slo: Mapping[str, Any]) -> tuple[Slo, ...]:
    """The latency targets of a checked document, in the order ttft, tpot, itl, e2e."""
    general = slo.get("percentile", DEFAULT_PERCENTILE)
    return tuple(Slo(m, ms_to_s(slo[f"{m}_ms"]), slo.get(f"{m}_percentile", general))
                 for m in METRICS if f"{m}_ms" in slo)


def workload_of(data: Mapping[str, Any], slo: Mapping[str, Any]) -> ReadWorkload:
    """The workload of checked documents.

    Raises
    ------
    InvalidDocument
        When users are given but no target bounds how long an answer takes.
    """
    prompt, output = lengths_of(data["prompt_tokens"]), lengths_of(data["output_tokens"])
    slos = slos_of(slo)
    rate, assumptions = _rate(data, slos, output)
    per_day = data.get("requests_per_day")
    workload = Workload(rate, prompt, output, data["arrival_cv"], data["prefix_cache_hit_rate"],
                        slos, None if per_day is None else per_day / SECONDS_PER_DAY,
                        data.get("concurrent_users"), data.get("think_time_s", 0.0))
    return ReadWorkload(workload, dict(data), assumptions)


def _rate(data: Mapping[str, Any], slos: tuple[Slo, ...], output: Lengths
          ) -> tuple[float, tuple[dict[str, Any], ...]]:
    """Requests per second at the peak, and what that assumes."""
    if "requests_per_second" in data:
        return data["requests_per_second"], ()
    if "requests_per_day" in data:
        rate = data["requests_per_day"] * data["peak_hour_share"] / SECONDS_PER_HOUR
        return rate, (_assumed("requests_per_second", rate, "1/s",
                               "requests_per_day x peak_hour_share / 3600 s"),)
    seconds, how = _answer_time(slos, output)
    rate = data["concurrent_users"] / (data["think_time_s"] + seconds)
    return rate, (_assumed("request_seconds", seconds, "s", how),
                  _assumed("requests_per_second", rate, "1/s",
                           "concurrent_users / (think_time_s + request_seconds), Little's law"))


def _answer_time(slos: tuple[Slo, ...], output: Lengths) -> tuple[float, str]:
    """How long [s] a user waits for an answer that just meets the targets."""
    limit = {s.metric: s.limit_s for s in slos}
    if "e2e" in limit:
        return limit["e2e"], "an answer takes the e2e target"
    if "ttft" in limit and not output.several:
        return limit["ttft"], "an answer of one token takes the ttft target"
    step = limit.get("tpot", limit.get("itl"))
    if "ttft" in limit and step is not None:
        return (limit["ttft"] + step * (output.mean - 1.0),
                "an answer takes the ttft target plus the tpot (or itl) target per output token")
    raise InvalidDocument([(
        "/workload/concurrent_users",
        "needs an answer time: give slo e2e_ms, or ttft_ms with tpot_ms (ttft_ms alone where "
        "answers have one token)")])


def _assumed(name: str, value: float, unit: str, source: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "source": source}
