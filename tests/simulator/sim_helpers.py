"""Short ways to make fleets and requests, shared by the tests of this folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.catalog.shipped import shipped_catalog
from planner.requests import Layout
from planner.roofline import Deployment
from planner.simulator import (
    KvMemory,
    KvTransfer,
    RequestTable,
    SimulatedFleet,
    SimulatedPool,
    affine_steps,
    request_table,
)

AFFINE = (0.011, 3e-5, 1e-5, 2e-8)
"""[s] of a step, per prompt token, per sequence, per token of context: a small model."""


def deployment(model: str = "llama-3.1-8b", gpu: str = "h100-sxm-80gb", weights: str = "",
               engine: str = "vllm", fidelity: str = "operator", plain: bool = True,
               draft: str | None = None, **layout: int) -> Deployment:
    """One replica; ``plain`` takes away the engine's output path, which no simulation has."""
    catalog = shipped_catalog()
    llm, chip = catalog.llm(model), catalog.gpu(gpu)
    weights = weights or llm.native_precision
    profile = catalog.engine(engine, chip, weights)
    if plain:
        profile = replace(profile, ttft_scale=1.0, request_s=0.0, first_steps=0.0,
                          prompt_token_s=0.0)
    return Deployment(llm, chip, weights, llm.native_kv, Layout(**layout), profile,
                      fidelity=fidelity, draft=catalog.llm(draft) if draft else None)


def pool(role: str = "serve", scheduler: str = "prefill_first", **changes: Any) -> SimulatedPool:
    """Two small replicas with affine steps."""
    base: dict[str, Any] = {"replicas": 2, "max_sequences": 24, "token_budget": 1500}
    steps = changes.pop("steps", affine_steps(*AFFINE))
    return SimulatedPool(role, scheduler, steps, **{**base, **changes})


def memory(capacity: float, windows: tuple[float, ...] = (1e18,),
           sizes: tuple[float, ...] = (100.0,), state: float = 0.0) -> KvMemory:
    """Blocks of 16 tokens."""
    return KvMemory(capacity, 16, state, np.array(windows), np.array(sizes))


def transfer(bytes_per_s: float = 2e6, layers: int = 8) -> KvTransfer:
    """Caches of 100 B a token, from the slower side to cards of four times its speed."""
    return KvTransfer(bytes_per_s, 1e-4, np.array([1e18]), np.array([100.0]), 0.0, layers, 1.0,
                      0.25)


def one_pool(setup: str = "colocated", scheduler: str = "prefill_first", slos: Any = (),
             **changes: Any) -> SimulatedFleet:
    """A fleet that serves from one pool."""
    return SimulatedFleet(setup, (pool("serve", scheduler, **changes),), slos=slos)


def two_pools(decode: dict[str, Any] | None = None, **prefill: Any) -> SimulatedFleet:
    """A disaggregated fleet."""
    pools = (pool("prefill", "prefill", **prefill), pool("decode", "decode", **(decode or {})))
    return SimulatedFleet("disaggregated", pools, transfer())


def table(count: int = 120, rate: float = 9.0, seed: int = 0, prompt: int = 900,
          output: float = 40.0) -> RequestTable:
    """Poisson arrivals, uniform prompts, geometric answers, half of them with cached prefixes."""
    rng = np.random.default_rng(seed)
    return request_table(np.cumsum(rng.exponential(1.0 / rate, count)),
                         rng.integers(1, prompt, count),
                         np.maximum(1, rng.geometric(1.0 / output, count)),
                         rng.integers(0, 200, count) * rng.integers(0, 2, count))


def jobs_of(arrival_s: Any, seconds: Any, per_token_s: float = 1e-6) -> RequestTable:
    """Jobs of given service times [s]: prompts of a server that takes ``per_token_s`` a token."""
    tokens = np.maximum(np.round(np.asarray(seconds) / per_token_s), 1)
    return request_table(arrival_s, tokens, np.ones(len(tokens)))
