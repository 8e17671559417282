"""The requests of a simulation: generated from a workload, or those of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.errors import InvalidValue
from planner.simulator import (
    RequestTable,
    diurnal_arrivals,
    on_off_arrivals,
    request_table,
    synthetic,
)
from planner.traces.trace import Trace
from planner.units import SECONDS_PER_DAY
from planner.wording import in_full
from planner.workload import Workload

DEFAULT_REQUESTS = 20_000
"""Requests to generate: the p99 then rests on 180 of those after the warm-up."""


MAX_SPAN_S = 1e10
"""[s] that requests may arrive over: beyond it a clock in double precision has no microseconds
left, and in the end none of a step."""
LEAST_COUNTED = 2
"""Requests that must be left after the warm-up: one has no percentiles and no rate."""


def check_extent(count: int, span_s: float, warmup_share: float, pointer: str) -> None:
    """Refuse a simulation that could not tell anything.

    Parameters
    ----------
    count : int
        Requests.
    span_s : float
        [s] over which they arrive.
    warmup_share : float
        Share of them that does not count.
    pointer : str
        Of what makes the span.

    Raises
    ------
    InvalidValue
    """
    counted = count - int(warmup_share * count)
    if counted < LEAST_COUNTED:
        raise InvalidValue(f"of {count:,} requests {counted} would count after the warm-up; at "
                           f"least {LEAST_COUNTED} must", "/warmup_share")
    if not span_s <= MAX_SPAN_S:
        raise InvalidValue(f"{count:,} requests would arrive over {span_s:.3g} s; simulated are at "
                           f"most {in_full(MAX_SPAN_S)} s, so take a higher rate or fewer requests",
                           pointer)


def generated(workload: Workload, count: int, seed: int, arrivals: Mapping[str, Any] | None = None
              ) -> RequestTable:
    """Requests of a workload.

    Parameters
    ----------
    workload : Workload
    count : int
    seed : int
    arrivals : mapping, optional
        ``{"pattern": "on_off", "on_s", "off_s"}`` or ``{"pattern": "diurnal", "profile",
        "day_s"}``; gamma gaps with the workload's CV when None.
    """
    times, rate = None, workload.requests_per_s
    if arrivals and arrivals["pattern"] == "on_off":
        times = on_off_arrivals(rate, arrivals["on_s"], arrivals["off_s"], count, seed)
    elif arrivals and arrivals["pattern"] == "diurnal":
        times = diurnal_arrivals(rate, arrivals["profile"], count, seed,
                                 arrivals.get("day_s", SECONDS_PER_DAY))
    return synthetic(workload, count, seed, times)


def sliced(trace: Trace, start_s: float = 0.0, end_s: float | None = None) -> Trace:
    """The part of a trace that a simulation asks for.

    Raises
    ------
    InvalidValue
        At ``/start_s`` when fewer than three requests are left.
    """
    if not start_s and end_s is None:
        return trace
    return trace.between(start_s, trace.span_s + 1.0 if end_s is None else end_s)


def replayed(trace: Trace, prefix_hit: float, rate_scale: float = 1.0, start_s: float = 0.0,
             end_s: float | None = None) -> RequestTable:
    """The requests of a trace, or of a slice of it, at a multiple of its rate.

    Raises
    ------
    InvalidValue
        When fewer than three requests are left.
    """
    trace = sliced(trace, start_s, end_s).faster(rate_scale)
    return request_table(trace.arrived_at_s, trace.prompt_tokens, trace.output_tokens,
                         np.floor(trace.prompt_tokens * prefix_hit))
