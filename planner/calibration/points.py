"""A measured benchmark result as one value, in SI units, whichever tool wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from planner.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """What a benchmark of one replica under one load showed.

    What the result file does not say is None; :func:`with_defaults` fills it in.

    Attributes
    ----------
    prompt_tokens, output_tokens : float
        [token] mean per completed request.
    ttft_s, tpot_s : float
        [s] time to the first token, and per output token after the first.
    ttft_statistic, tpot_statistic : str
        ``mean`` or ``median``: which one the file had.
    source : str
        ``file:line`` or ``file:entry``.
    model, gpu, engine, engine_version, setup : str or None
        Model slug or Hugging Face id, GPU slug, engine name, set-up.
    weights, kv : str or None
        Precision of the weights and of the KV cache.
    tensor_parallel, pipeline_parallel, expert_parallel, data_parallel : int or None
    concurrency : float or None
        Most requests in flight that the client allowed (closed loop).
    requests_per_second : float or None
        [1/s] offered rate (open loop). With ``concurrency`` beside it that one is a cap.
    mean_running : float or None
        Requests in flight as the client measured them, over the run.
    output_tokens_per_s, request_throughput : float or None
        [token/s] and [1/s] completed, over the run.
    e2e_s : float or None
        [s] end-to-end latency (mean).
    duration_s : float or None
        [s] of the run.
    requests : float or None
        Completed requests.
    prefix_hit : float or None
        Share of the prompt tokens found in the prefix cache.
    compiling : bool
        Whether the engine compiled kernels during the run: its first tokens wait for that.
    speculative : bool
        Whether a draft proposed tokens (then TPOT is not one step of the model).
    weight : float
        What the point counts in a fit beside the others.
    date : str
        ISO date of the run, ``""`` when unknown.
    """

    prompt_tokens: float
    output_tokens: float
    ttft_s: float
    tpot_s: float
    ttft_statistic: str = "mean"
    tpot_statistic: str = "mean"
    source: str = ""
    model: str | None = None
    gpu: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    setup: str | None = None
    weights: str | None = None
    kv: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    expert_parallel: int | None = None
    data_parallel: int | None = None
    concurrency: float | None = None
    requests_per_second: float | None = None
    mean_running: float | None = None
    output_tokens_per_s: float | None = None
    request_throughput: float | None = None
    e2e_s: float | None = None
    duration_s: float | None = None
    requests: float | None = None
    prefix_hit: float | None = None
    compiling: bool = False
    speculative: bool = False
    weight: float = 1.0
    date: str = ""

    @property
    def gpus(self) -> int:
        """GPUs of the replica; what is not stated counts as 1."""
        return ((self.tensor_parallel or 1) * (self.pipeline_parallel or 1)
                * (self.data_parallel or 1))

    @property
    def closed_loop(self) -> bool:
        """Whether the client held a number of requests in flight instead of a rate."""
        return self.concurrency is not None and self.requests_per_second is None

    @property
    def completed_per_s(self) -> float | None:
        """Completed requests [1/s], from the token rate where the request rate is missing."""
        if self.request_throughput is not None:
            return self.request_throughput
        if self.output_tokens_per_s is None or self.output_tokens <= 0:
            return None
        return self.output_tokens_per_s / self.output_tokens

    @property
    def decode_s(self) -> float:
        """Time [s] from the first to the last token of a mean request: TPOT (o - 1)."""
        return self.tpot_s * max(self.output_tokens - 1.0, 0.0)


DEPLOYMENT = ("model", "gpu", "engine", "engine_version", "setup", "weights", "kv",
              "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
"""Fields that describe what was measured; benchmark files often lack them."""
REQUIRED = ("model", "gpu", "engine", "weights", "tensor_parallel")
"""Those without which a point cannot be used; with no ``kv`` the cache is as the model ships."""
ASSUMED: dict[str, Any] = {"setup": "chunked", "pipeline_parallel": 1, "data_parallel": 1}
"""What holds when nobody says otherwise: one GPU in every other direction, and the chunked prefill
that current vLLM and SGLang servers start with. The spread of experts follows from the layout."""
LOADS = ("concurrency", "requests_per_second")
"""The load, for files that do not state it; it is given only to points without any."""
_WHOLE = {f.name for f in fields(MeasuredPoint) if f.name.endswith("_parallel")}


def with_defaults(points: Iterable[MeasuredPoint], defaults: Mapping[str, Any]
                  ) -> list[MeasuredPoint]:
    """Fill what the files did not say; what they said stays.

    Parameters
    ----------
    points : iterable of MeasuredPoint
    defaults : mapping
        Any of :data:`DEPLOYMENT` and :data:`LOADS`; values of None are ignored. Beyond them
        :data:`ASSUMED` holds.

    Raises
    ------
    InvalidValue
        For an unknown default, one of the wrong kind, and for a point that still lacks
        one of :data:`REQUIRED` (the message names all that are missing).

    Examples
    --------
    >>> point = MeasuredPoint(1024, 128, 0.1, 0.008, source="a.csv:2", gpu="h100-sxm-80gb")
    >>> filled, = with_defaults([point], {"model": "llama-3.1-8b", "gpu": "l4", "engine": "vllm",
    ...                                   "weights": "bf16", "tensor_parallel": 1})
    >>> filled.gpu, filled.weights, filled.pipeline_parallel
    ('h100-sxm-80gb', 'bf16', 1)
    """
    given = {**ASSUMED, **_checked(defaults)}
    filled = [replace(p, **{k: v for k, v in given.items() if _open(p, k)}) for p in points]
    for point in filled:
        lacking = [name for name in REQUIRED if getattr(point, name) is None]
        if lacking:
            raise InvalidValue(f"{point.source or 'the point'} does not say "
                               f"{', '.join(lacking)}; give a default for it")
    return filled


def _open(point: MeasuredPoint, name: str) -> bool:
    """Whether a default may fill a field: one side of a load never joins the other."""
    names = LOADS if name in LOADS else (name,)
    return all(getattr(point, n) is None for n in names)


def _checked(defaults: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in defaults.items():
        if name not in DEPLOYMENT + LOADS:
            raise InvalidValue(f"unknown default {name!r}; allowed: "
                               f"{', '.join(DEPLOYMENT + LOADS)}", f"/{name}")
        _check_kind(name, value)
    return {name: value for name, value in defaults.items() if value is not None}


def _check_kind(name: str, value: Any) -> None:
    if value is None:
        return
    if name in _WHOLE:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidValue(f"{name} must be a whole number from 1, not {value!r}", f"/{name}")
    elif name in LOADS:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
            raise InvalidValue(f"{name} must be a number above 0, not {value!r}", f"/{name}")
    elif not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} must be a non-empty text, not {value!r}", f"/{name}")
