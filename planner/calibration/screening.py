"""Which measured points can be trusted: each that cannot is named with a code and the numbers.

Three kinds of checks. *Consistency*: a closed loop obeys Little's law (Little, Operations Research
9(3), 1961), and the token rate is the request rate times the length. *Physics*: no engine is
faster than the roofline of its GPUs (the ``ideal`` profile). *Steady state*: a server that
completes less than it is offered has queues that grow, so its latency depends on the length of
the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.calibration.points import REQUIRED, MeasuredPoint
from planner.catalog.book import Catalog
from planner.engine import IDEAL
from planner.errors import PlannerError
from planner.precision import kv_bytes_per_value, weight_format
from planner.requests import Layout
from planner.roofline import Deployment, Step, StepBatch, StepModel
from planner.units import s_to_ms

Array = NDArray[np.float64]
TOLERANCE = 0.20
"""Share by which two figures that should agree may differ."""
FLOOR_SLACK = 0.02
"""Share below the roofline that rounding in a file explains."""
MEDIAN_SLACK = 0.5
"""Either for a median: half the requests may be much shorter than the mean one."""
MIXED_SCALE = 2.0
"""Peak over the 16-bit one where 4- or 8-bit integer weights meet 8-bit activations; the formats
count as weight-only, which a floor must not assume."""
COMPLETED_SHARE = 0.95
"""Share of the offered rate that a server in steady state completes."""
QUEUED_PREFILLS = 20.0
QUEUED_S = 5.0
"""[s] A first token later than this and later than that many ideal prefills has queued."""

CODES: dict[str, str] = {
    "incomplete": "the row does not say what was measured",
    "unknown-model": "the catalog has no such model",
    "unknown-gpu": "the catalog has no such GPU",
    "unknown-precision": "the precision is unknown",
    "impossible-value": "a value that cannot occur, such as no tokens",
    "no-load": "neither a concurrency nor a rate, so no steady state",
    "littles-law": "requests in flight differ from throughput times latency",
    "throughput-mismatch": "the token rate differs from the request rate times the output length",
    "tpot-below-roofline": "tokens faster than memory and compute allow",
    "ttft-below-roofline": "the first token earlier than memory and compute allow",
    "saturated": "the server did not keep up with the offered load",
    "speculative": "a draft proposed tokens, so TPOT is not one step of the model",
}
"""Every code of a rejection with its meaning."""


class Rejection(NamedTuple):
    """A point that is not used, the code of the reason, and a sentence with the numbers."""

    point: MeasuredPoint
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Screened:
    """Points to use, and those not to use with reasons; both in the order given."""

    kept: list[MeasuredPoint] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)


class Floors(NamedTuple):
    """What the ideal engine would take [s]: per output token, and for the prefill alone."""

    tpot_s: float
    prefill_s: float


_Verdict = tuple[str, str] | None


def screen(points: Iterable[MeasuredPoint], catalog: Catalog, *, allow_speculative: bool = False
           ) -> Screened:
    """Sort points into those to use and those not to, with the first reason that applies.

    Parameters
    ----------
    points : iterable of MeasuredPoint
        With the defaults filled in; ``data_parallel`` and the like count as 1 where None.
    catalog : Catalog
        Knows the models and the GPUs.
    allow_speculative : bool
        Keep points that used speculative decoding; the decode roofline is not asked of them.

    Returns
    -------
    Screened
        Codes are those of :data:`CODES`.

    Notes
    -----
    The decode floor is the ideal step at the mean number of decoding sequences, ``X TPOT (o - 1)``
    by Little's law for the decode phase, and at the mean context ``p + o / 2``: the step time grows
    at most linearly in both, so mixed lengths only lift the mean above it.
    """
    rows = list(points)
    first = [_described(p, catalog, allow_speculative) or _plausible(p) for p in rows]
    sound = [i for i, verdict in enumerate(first) if verdict is None]
    floors = dict(zip(sound, _floors([rows[i] for i in sound], catalog), strict=True))
    result = Screened()
    for index, point in enumerate(rows):
        verdict = first[index] or _measured(point, floors[index])
        if verdict is None:
            result.kept.append(point)
        else:
            result.rejected.append(Rejection(point, *verdict))
    return result


# -- what was measured --------------------------------------------------------------------------


def _described(point: MeasuredPoint, catalog: Catalog, allow_speculative: bool) -> _Verdict:
    """Whether the row says what was measured, in names that are known."""
    lacking = [n for n in REQUIRED if n != "engine" and getattr(point, n) is None]
    if lacking:
        return "incomplete", f"the row does not say {', '.join(lacking)}"
    if point.speculative and not allow_speculative:
        return "speculative", ("the run used speculative decoding: a verified step yields several "
                               "tokens, so it says little about one step of the model")
    return (_known("unknown-model", lambda: catalog.llm(str(point.model)))
            or _known("unknown-gpu", lambda: catalog.gpu(str(point.gpu)))
            or _known("unknown-precision", lambda: weight_format(str(point.weights)))
            or _known("unknown-precision", lambda: kv_bytes_per_value(point.kv or "bf16")))


def _known(code: str, look_up: Callable[[], object]) -> _Verdict:
    try:
        look_up()
    except PlannerError as error:
        return code, error.message
    return None


def _plausible(point: MeasuredPoint) -> _Verdict:
    """Whether the values can occur at all, and state a load."""
    return _impossible(point) or _no_load(point)


def _impossible(point: MeasuredPoint) -> _Verdict:
    for name, least in (("prompt_tokens", 1.0), ("output_tokens", 1.0), ("concurrency", 1.0)):
        value = getattr(point, name)
        if value is not None and value < least:
            return "impossible-value", f"{name} is {value:g}; it is at least {least:g}"
    for name in ("ttft_s", "tpot_s", "requests_per_second", "request_throughput",
                 "output_tokens_per_s", "mean_running", "duration_s", "requests"):
        value = getattr(point, name)
        # One output token has no gap between tokens.
        if value == 0 and not (name == "tpot_s" and point.output_tokens <= 1):
            return "impossible-value", f"{name} is 0; a run that measured it has more"
    return _longer_than_whole(point)


def _longer_than_whole(point: MeasuredPoint) -> _Verdict:
    whole = point.e2e_s
    if whole is None:
        return None
    if point.ttft_s > whole * 1.001 and point.ttft_statistic == "mean":
        return "impossible-value", (f"the first token came after {point.ttft_s:.3g} s, later than "
                                    f"the end of the answer at {whole:.3g} s")
    parts = point.ttft_s + point.decode_s
    if abs(parts - whole) > _tolerance(point) * max(parts, whole):
        return "impossible-value", (
            f"TTFT + TPOT (o - 1) is {parts:.3g} s but the end-to-end latency is {whole:.3g} s")
    return None


def _no_load(point: MeasuredPoint) -> _Verdict:
    if point.concurrency is None and point.requests_per_second is None:
        return "no-load", ("the row has neither a concurrency nor a steady offered rate: all "
                           "requests at once, a ramp or a trace have no steady state")
    return None


# -- floors of the ideal engine -----------------------------------------------------------------


def _floors(points: list[MeasuredPoint], catalog: Catalog) -> list[Floors]:
    """Floors of each point; points of one deployment are evaluated together."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, p in enumerate(points):
        groups.setdefault((p.model, p.gpu, p.weights, p.kv, _layout(p)), []).append(index)
    found: dict[int, Floors] = {}
    for members in groups.values():
        decode, prefill = _ideal(_model(points[members[0]], catalog),
                                 [points[i] for i in members])
        for place, index in enumerate(members):
            found[index] = Floors(float(decode[place]), float(prefill[place]))
    return [found[i] for i in range(len(points))]


def _layout(point: MeasuredPoint) -> Layout:
    return Layout(point.tensor_parallel or 1, point.pipeline_parallel or 1,
                  point.expert_parallel or 1, point.data_parallel or 1)


def _model(point: MeasuredPoint, catalog: Catalog) -> StepModel:
    llm = catalog.llm(str(point.model))
    model = StepModel.of(Deployment(
        llm, catalog.gpu(str(point.gpu)), str(point.weights), point.kv or llm.native_kv,
        _layout(point), IDEAL))
    if point.weights in ("int8", "int4"):
        model.compute_scale *= MIXED_SCALE
    return model


def _ideal(model: StepModel, points: list[MeasuredPoint]) -> tuple[Array, Array]:
    """Ideal decode step and prefill [s] of points of one deployment."""
    prompt = np.array([p.prompt_tokens for p in points])
    output = np.array([p.output_tokens for p in points])
    hit = np.array([p.prefix_hit or 0.0 for p in points])
    decode = model.step(StepBatch(decodes=np.array([_decoding(p) for p in points]),
                                  context=prompt + output / 2.0))
    prefill = model.step(StepBatch(prefill_tokens=np.maximum(prompt * (1.0 - hit), 1.0),
                                   prefill_sequences=1.0, cached=prompt * hit))
    return _floor_s(decode), _floor_s(prefill)


def _floor_s(step: Step) -> Array:
    """Time [s] of a step whose links work beside the rest, as overlapping engines come close to."""
    links = sum(t.seconds for t in step.terms if t.kind == "communication")
    rest = sum(t.seconds for t in step.terms if t.kind != "communication")
    return np.maximum(rest, links)


def _decoding(point: MeasuredPoint) -> float:
    """Mean sequences that decode at once, at least 1 (a token is never made by less).

    A split set-up spreads them over an unknown number of decode replicas: 1 is the safe floor.
    """
    if point.setup == "disaggregated":
        return 1.0
    rate = point.completed_per_s
    if rate is None:
        rate = point.requests_per_second
    if rate is None:
        return max(_in_flight_by_share(point), 1.0)
    return max(rate * point.decode_s, 1.0)


def _in_flight_by_share(point: MeasuredPoint) -> float:
    """Decoding part of a closed loop whose throughput is not given."""
    whole = point.ttft_s + point.decode_s
    return (point.mean_running or point.concurrency or 1.0) * point.decode_s / whole


# -- what was seen ------------------------------------------------------------------------------


def _measured(point: MeasuredPoint, floors: Floors) -> _Verdict:
    return (_throughput(point) or _little(point) or _decode_floor(point, floors)
            or _prefill_floor(point, floors) or _behind(point) or _queued(point, floors))


def _throughput(point: MeasuredPoint) -> _Verdict:
    tokens, requests = point.output_tokens_per_s, point.request_throughput
    if tokens is None or requests is None:
        return None
    expected = requests * point.output_tokens
    if abs(tokens - expected) <= TOLERANCE * max(tokens, expected):
        return None
    return "throughput-mismatch", (
        f"{tokens:.4g} output tokens/s, but {requests:.4g} requests/s of {point.output_tokens:.4g} "
        f"tokens make {expected:.4g}")


def _little(point: MeasuredPoint) -> _Verdict:
    """Requests in flight against throughput times latency, in a closed loop.

    A concurrency is a cap: beside an offered rate it need not be reached, and a short run spends
    part of its time filling and draining (N requests at cap C average C N / (N + C)).
    """
    rate, cap = point.completed_per_s, point.concurrency
    if rate is None or cap is None:
        return None
    product = rate * (point.ttft_s + point.decode_s)
    least = 0.0 if point.requests_per_second is not None else _least_in_flight(point, cap)
    tolerance = _tolerance(point)
    if (1.0 - tolerance) * least <= product <= (1.0 + tolerance) * cap:
        return None
    return "littles-law", (
        f"{rate:.4g} requests/s x (TTFT {point.ttft_s:.3g} s + TPOT {s_to_ms(point.tpot_s):.3g} ms "
        f"x {max(point.output_tokens - 1.0, 0.0):.4g}) is {product:.4g} requests in flight, "
        f"but the concurrency is {cap:g}")


def _tolerance(point: MeasuredPoint) -> float:
    """How far sums of the latencies may be off: medians do not add up."""
    medians = "median" in (point.ttft_statistic, point.tpot_statistic)
    return MEDIAN_SLACK if medians else TOLERANCE


def _least_in_flight(point: MeasuredPoint, cap: float) -> float:
    if point.mean_running is not None:
        return min(point.mean_running, cap)
    return cap if not point.requests else cap * point.requests / (point.requests + cap)


def _decode_floor(point: MeasuredPoint, floors: Floors) -> _Verdict:
    if point.speculative or point.output_tokens <= 1:
        return None
    if point.tpot_s >= floors.tpot_s * (1.0 - _slack(point.tpot_statistic)):
        return None
    return "tpot-below-roofline", (
        f"TPOT {s_to_ms(point.tpot_s):.3g} ms is below the {s_to_ms(floors.tpot_s):.3g} ms that "
        f"{_decoding(point):.3g} sequences take at 100 % of the bandwidth and peak of "
        f"{point.gpus} x {point.gpu}")


def _prefill_floor(point: MeasuredPoint, floors: Floors) -> _Verdict:
    # The layout of a split set-up is that of its decode pool; its prefill pool may be larger.
    if point.setup == "disaggregated":
        return None
    if point.ttft_s >= floors.prefill_s * (1.0 - _slack(point.ttft_statistic)):
        return None
    return "ttft-below-roofline", (
        f"TTFT {s_to_ms(point.ttft_s):.3g} ms is below the {s_to_ms(floors.prefill_s):.3g} ms that "
        f"{point.prompt_tokens:.4g} prompt tokens take at 100 % of the peak of {point.gpus} x "
        f"{point.gpu}; if prompts were found in the prefix cache, state the hit rate")


def _slack(statistic: str) -> float:
    return FLOOR_SLACK if statistic == "mean" else MEDIAN_SLACK


def _behind(point: MeasuredPoint) -> _Verdict:
    """An open loop that completes less than it is offered.

    N requests at a rate take N / rate to send, and the last one still has to be answered: that
    tail is no sign of saturation.
    """
    offered, rate = point.requests_per_second, point.completed_per_s
    if offered is None or rate is None:
        return None
    expected = offered
    if point.requests:
        expected = point.requests / (point.requests / offered + point.decode_s)
    if rate >= COMPLETED_SHARE * expected:
        return None
    return "saturated", (f"{rate:.4g} requests/s completed of {offered:.4g} offered; a server that "
                         f"keeps up completes {COMPLETED_SHARE * expected:.4g} in such a run")


def _queued(point: MeasuredPoint, floors: Floors) -> _Verdict:
    if point.ttft_s <= QUEUED_S or point.ttft_s <= QUEUED_PREFILLS * floors.prefill_s:
        return None
    return "saturated", (
        f"TTFT {point.ttft_s:.3g} s is {point.ttft_s / floors.prefill_s:.0f} times the ideal "
        f"prefill of {s_to_ms(floors.prefill_s):.3g} ms: the requests waited in a queue")
