"""Short ways to ask the calculation core, shared by the tests of this folder."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammainc

from planner.api.estimate_schema import parse_estimate
from planner.api.plan_schema import parse_plan
from planner.catalog.book import Catalog
from planner.catalog.shipped import shipped_catalog
from planner.estimate import make_estimate
from planner.hardware import Gpu
from planner.llm import Llm
from planner.loops.gamma import NOTICEABLE
from planner.loops.waits import NO_WAIT_S
from planner.planning import PlanResult, make_plan
from planner.queueing import Array, Wait
from planner.requests import Layout
from planner.roofline import Deployment, StepBatch, StepModel
from planner.stalls import TokenTimes

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
GIB = 2.0**30


def golden(name: str) -> list[dict[str, str]]:
    """Rows of a golden table."""
    with (GOLDEN / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def golden_by_id(name: str) -> dict[str, dict[str, str]]:
    """Rows of a golden table by their id."""
    return {row["id"]: row for row in golden(name)}


def close(value: float, row: dict[str, str]) -> bool:
    """Whether a value is within the tolerance of a golden row (relative, or ``+-n``)."""
    target, tolerance = float(row["value"]), row["tolerance"]
    if tolerance.startswith("+-"):
        return abs(value - target) <= float(tolerance[2:])
    return math.isclose(value, target, rel_tol=max(float(tolerance), 1e-12))


def catalog() -> Catalog:
    return shipped_catalog()


def gpu(slug: str = "h100-sxm-80gb", **changes: Any) -> Gpu:
    """A GPU of the catalog, with some fields changed."""
    return replace(catalog().gpu(slug), **changes)


def deployment(model: str | Llm = "llama-3.1-8b", gpu_slug: str | Gpu = "h100-sxm-80gb",
               weights: str | None = None, kv: str | None = None, engine: str = "vllm",
               fidelity: str = "operator", power_cap_w: float | None = None,
               **layout: int) -> Deployment:
    """One replica from names (or values)."""
    llm = catalog().llm(model) if isinstance(model, str) else model
    chip = catalog().gpu(gpu_slug) if isinstance(gpu_slug, str) else gpu_slug
    precision = weights or llm.native_precision
    return Deployment(llm, chip, precision, kv or llm.native_kv, Layout(**layout),
                      catalog().engine(engine, chip, precision), power_cap_w, fidelity)


def step_ms(d: Deployment, **batch: Any) -> float:
    """Step time [ms] of a batch on a deployment."""
    return float(StepModel.of(d).seconds(StepBatch(**batch))) * 1e3


def prefill_ms(d: Deployment, tokens: float, sequences: float = 1.0, cached: float = 0.0) -> float:
    """Time [ms] of one prefill pass."""
    return step_ms(d, prefill_tokens=tokens, prefill_sequences=sequences, cached=cached)


def estimate(**document: Any) -> dict[str, Any]:
    """``POST /estimates`` without the web around it."""
    return make_estimate(parse_estimate(document), catalog())


def napkin(**document: Any) -> dict[str, Any]:
    """An estimate at napkin fidelity; Llama 3.1 8B on H100 unless told."""
    base = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "weights": "bf16", "kv": "bf16",
            "fidelity": "napkin", "engine": "ideal"}
    return estimate(**{**base, **document})


def plan_request(rate: float = 4.0, prompt: Any = 1000, output: Any = 200, *,
                 model: str = "llama-3.1-8b", slo: dict[str, float] | None = None,
                 workload: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    """A plan document with short names for what changes most."""
    return {"model": model, "gpus": ["h100-sxm-80gb"],
            "workload": {"requests_per_second": rate, "prompt_tokens": prompt,
                         "output_tokens": output, **(workload or {})},
            "slo": slo or {"ttft_ms": 1500, "tpot_ms": 40}, **rest}


def plan(rate: float = 4.0, prompt: Any = 1000, output: Any = 200, **rest: Any) -> PlanResult:
    """A finished plan of :func:`plan_request`."""
    return make_plan(parse_plan(plan_request(rate, prompt, output, **rest)), catalog())


def fewest(result: PlanResult) -> float:
    """GPUs of the recommended option, infinity without one."""
    return float(result.options[0]["gpus"]) if result.options else math.inf


def numbers(node: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a document with its path."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from numbers(value, f"{path}/{key}")
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            yield from numbers(value, f"{path}/{i}")
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield path, float(node)


def admission_wait(probability: Array, mean_given_s: Array) -> Wait:
    """Exponential wait for a place in the batch (shapes broadcast)."""
    p, m = np.asarray(probability, dtype=float), np.asarray(mean_given_s, dtype=float)
    finite = np.isfinite(m)
    safe = np.where(finite, m, 0.0)
    mean = np.where(finite, p * safe, np.inf)
    return Wait(p, mean, np.where(finite, 2.0 * p * safe**2, np.inf))


def wait_cdf(wait: Wait, t: Array) -> Array:
    """P(W <= t) for ``t`` [s] of shape (..., k), the leading axes those of the wait, in SciPy: the
    wait of those who wait is a gamma with the matched two moments."""
    busy, mean_s, second_s2 = (np.asarray(x, dtype=float)[..., None]
                               for x in (wait.busy, wait.mean_s, wait.second_s2))
    with np.errstate(invalid="ignore", divide="ignore"):
        given_s = mean_s / busy
        variance = np.maximum(second_s2 / busy - given_s**2, 1e-6 * given_s**2)
        law = gammainc(given_s**2 / variance, np.maximum(t, 0.0) * given_s / variance)
    law = np.where(np.isfinite(mean_s), 1.0 - busy + busy * law, 0.0)
    law = np.where((mean_s <= NO_WAIT_S) | (busy <= 0.0), 1.0, law)
    return np.where(t >= 0.0, law, 0.0)


def share_within(limit_s: float, wait: Wait, latency_s: Array, weights: Array) -> Array:
    """P(W + S <= limit) for waits and independent discrete latencies of shape (..., k)."""
    return np.asarray(wait_cdf(wait, limit_s - latency_s) @ weights)


def tokens_within(times: TokenTimes, limits_s: Array) -> Array:
    """P(TPOT <= limit) of shape (limits, N) for ``limits_s`` [s] of shape (limits,), in SciPy."""
    none, shape, scale_s = times.times
    over = limits_s[:, None] - times.step_s
    law = none + (1.0 - none) * gammainc(shape, np.maximum(over, 0.0) / scale_s)
    return np.where(over >= times.most_s, 1.0, np.where(over < 0.0, 0.0, law))


def share_within_either(limit_s: float, prefill: Wait, places: Array, given_s: Array,
                        latency_s: Array, weights: Array) -> Array:
    """P(W + S <= limit) where a share waits for a place, exponentially, and the others for the
    prefill: what :func:`planner.loops.waits.starts_in_time` compares, in NumPy."""
    share = share_within(limit_s, prefill, latency_s, weights)
    late = share_within(limit_s, admission_wait(np.ones(len(given_s)), given_s), latency_s, weights)
    return np.where(places > NOTICEABLE, share + places * np.minimum(late - share, 0.0), share)
