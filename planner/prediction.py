"""What a benchmark of a stated deployment would show: TTFT, TPOT and throughput, point by point.

Points of one deployment are evaluated together; a closed loop is the fixed point of Little's law
over the operating points that plans use (:mod:`planner.closed_loop`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.catalog.book import Catalog
from planner.closed_loop import CONSTANTS, first_token_s, running_share, token_s
from planner.collectives import kv_transfer_s
from planner.engine import EngineProfile
from planner.errors import InvalidValue
from planner.kv_cache import sequence_cache_bytes
from planner.llm import Llm
from planner.memory import memory_budget, sequence_bytes_per_gpu
from planner.profile_scope import confidence_of
from planner.requests import Layout
from planner.roofline import Deployment, StepBatch, StepModel
from planner.setups.continuous import RESIDUAL
from planner.units import s_to_ms
from planner.workload import SEVERAL_TOKENS

Array = NDArray[np.float64]
ONE_GPU = Layout()
ROUNDS = 4
"""Rounds of the fixed point between running sequences and latency; it contracts quickly."""
SATURATED_LOAD = 0.95
"""Prefill load, or share of clients that wait for a place, above which a point is saturated."""


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """A prefill or decode pool of a disaggregated point."""

    gpu: str
    layout: Layout = ONE_GPU
    replicas: int = 1
    batch_size: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One benchmark point to predict.

    Give ``concurrency`` (closed loop) or ``requests_per_s`` (open loop). A disaggregated point has
    both pools; any other has ``gpu`` and ``layout``.
    """

    model: str
    engine: str
    prompt_tokens: float
    output_tokens: float
    gpu: str | None = None
    layout: Layout = ONE_GPU
    setup: str = "colocated"
    weights: str | None = None
    kv: str | None = None
    concurrency: float | None = None
    requests_per_s: float | None = None
    replicas: int = 1
    prefill: WorkerPool | None = None
    decode: WorkerPool | None = None


@dataclass(slots=True)
class _Columns:
    """Inputs and results of the points of one group, as arrays."""

    prompt: Array
    output: Array
    clients: Array
    rate: Array
    ttft: Array
    tpot: Array
    saturated: NDArray[np.bool_]

    @classmethod
    def of(cls, points: Sequence[Point], replicas: float) -> _Columns:
        """Columns of points whose load is shared by ``replicas``."""
        size = len(points)
        return cls(np.array([p.prompt_tokens for p in points], dtype=float),
                   np.array([p.output_tokens for p in points], dtype=float),
                   np.array([(p.concurrency or 0.0) / replicas for p in points]),
                   np.array([(p.requests_per_s or 0.0) / replicas for p in points]),
                   np.zeros(size), np.zeros(size), np.zeros(size, dtype=bool))


def predict(points: Sequence[Point], catalog: Catalog) -> list[dict[str, Any]]:
    """Predict every point, in order.

    Returns
    -------
    list of dict
        ``ttft_ms tpot_ms output_tokens_per_s output_tokens_per_s_per_gpu saturated confidence``.

    Raises
    ------
    NotInCatalog
        When a model, GPU or engine is unknown (pointer ``/points/<i>/…``).
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for i, p in enumerate(points):
        groups[p.model, p.engine, p.gpu, p.layout, p.weights, p.kv, p.replicas, p.prefill,
               p.decode].append(i)
    answers: list[dict[str, Any]] = [{} for _ in points]
    for members in groups.values():
        chosen = [points[i] for i in members]
        solve = _disaggregated if chosen[0].decode else _aggregated
        for i, answer in zip(members, solve(chosen, catalog, members[0]), strict=True):
            answers[i] = answer
    return answers


def _deployment(point: Point, gpu: str | None, layout: Layout, catalog: Catalog, place: str
                ) -> Deployment:
    if gpu is None:
        raise InvalidValue("name the gpu", f"{place}/gpu")
    own = place.removesuffix("/prefill").removesuffix("/decode")
    llm = catalog.llm(point.model, f"{own}/model")
    found = catalog.gpu(gpu, f"{place}/gpu")
    weights = point.weights or llm.native_precision
    profile = catalog.engine(point.engine, found, weights, f"{own}/engine")
    return Deployment(llm, found, weights, point.kv or llm.native_kv, layout, profile)


def _aggregated(points: Sequence[Point], catalog: Catalog, first: int) -> list[dict[str, Any]]:
    deployment = _deployment(points[0], points[0].gpu, points[0].layout, catalog,
                             f"/points/{first}")
    replicas = points[0].replicas
    columns = _Columns.of(points, replicas)
    _closed(columns, deployment)
    _open(columns, deployment)
    gpus = deployment.layout.gpus * replicas
    confidence = confidence_of((deployment,))
    return [_answer(columns, i, replicas, gpus, confidence) for i in range(len(points))]


def _answer(columns: _Columns, i: int, replicas: float, gpus: int,
            confidence: Mapping[str, Any]) -> dict[str, Any]:
    """One point's document; throughput by Little's law, or the rate that is carried."""
    ttft, tpot, output = columns.ttft[i], columns.tpot[i], columns.output[i]
    if columns.clients[i]:
        cycle = ttft + tpot * max(output - 1.0, 0.0)
        rate = columns.clients[i] / cycle
    else:
        rate = columns.rate[i]
    tokens = float(rate * replicas * output)
    several = output >= SEVERAL_TOKENS
    return {"ttft_ms": _finite(s_to_ms(float(ttft))),
            "tpot_ms": _finite(s_to_ms(float(tpot))) if several else None,
            "output_tokens_per_s": tokens, "output_tokens_per_s_per_gpu": tokens / gpus,
            "saturated": bool(columns.saturated[i]), "confidence": dict(confidence)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def running_cap(deployment: Deployment, prompt: Array, output: Array) -> Array:
    """Sequences whose cache fits the pool; the engine's limit at most.

    At their mean context, or with their whole answers [token] where the engine reserves those. A
    benchmark ran, so where the stated layout cannot even hold the weights the statement is taken
    to be wrong and memory is not asked.
    """
    limit = deployment.profile.default_max_sequences
    context = prompt + output * (1.0 if deployment.profile.reserves_answers else 0.5)
    memory = memory_budget(deployment)
    if not memory.fits:
        return np.full(len(context), float(limit * deployment.layout.data))
    each = np.array([sequence_bytes_per_gpu(deployment, float(c)) for c in context])
    fit = np.floor(memory.kv_pool_bytes / np.maximum(each, 1e-9))
    return np.asarray(np.clip(fit, 1.0, limit) * deployment.layout.data)


def constants_of(profile: EngineProfile) -> Array:
    """The first-token constants of a profile, as :mod:`planner.closed_loop` takes them."""
    return np.array([getattr(profile, name) for name in CONSTANTS])


def _alone_s(model: StepModel, context: Array) -> Array:
    """A decode step [s] with one sequence a rank."""
    ranks = np.full_like(context, model.deployment.layout.data)
    return np.asarray(model.seconds(StepBatch(decodes=ranks, context=context)))


# -- one pool ---------------------------------------------------------------------------------


def _closed(columns: _Columns, deployment: Deployment) -> None:
    """Closed-loop points: running sequences, TPOT and TTFT by fixed point."""
    at = np.flatnonzero(columns.clients > 0)
    if not at.size:
        return
    model = StepModel.of(deployment)
    clients, prompt, output = columns.clients[at], columns.prompt[at], columns.output[at]
    ranks = deployment.layout.data
    context = prompt + output / 2.0
    cap = running_cap(deployment, prompt, output)
    prefill = model.seconds(StepBatch(prefill_tokens=prompt, prefill_sequences=1.0))
    alone = _alone_s(model, context)
    constants = constants_of(deployment.profile)
    running = np.minimum(clients, cap)
    for _ in range(ROUNDS):
        decode = model.seconds(StepBatch(decodes=running, context=context))
        token = token_s(decode, prefill, running / ranks, output)
        ttft = first_token_s(constants, alone, prefill, token, clients / ranks, prompt, output)
        share = running_share(ttft, token, output)
        running = np.minimum(clients * share, cap)
    waiting = np.maximum(clients * share - cap, 0.0)
    cycle = np.maximum(output - 1.0, 1.0) * token
    # Places limit the rate to cap / (cycle + S + D); Little's law says how long the rest waits.
    places_ttft = clients / cap * (cycle + prefill + decode) - cycle
    columns.ttft[at] = np.where(waiting > 0, np.maximum(places_ttft, prefill + decode), ttft)
    columns.tpot[at] = token
    load = running / ranks * prefill / (output * token)
    columns.saturated[at] = (waiting > 0) | (load > SATURATED_LOAD)
    _prompts_alone(columns, at, ranks / prefill)


def _prompts_alone(columns: _Columns, at: NDArray[np.int64], most_rps: Array) -> None:
    """Closed loops of answers of one token: clients only wait for prefills, of which so many
    [1/s] are carried; Little's law gives the wait where that binds."""
    least_s = columns.clients[at] / most_rps
    alone = (columns.output[at] < SEVERAL_TOKENS) & (columns.clients[at] > 0)
    columns.saturated[at] = np.where(alone, least_s > SATURATED_LOAD * columns.ttft[at],
                                     columns.saturated[at])
    columns.ttft[at] = np.where(alone, np.maximum(columns.ttft[at], least_s), columns.ttft[at])


def _open(columns: _Columns, deployment: Deployment) -> None:
    """Open-loop points: the mean field at the offered rate and an M/G/1 wait."""
    at = np.flatnonzero(columns.clients <= 0)
    if not at.size:
        return
    model = StepModel.of(deployment)
    rate, prompt, output = columns.rate[at], columns.prompt[at], columns.output[at]
    ranks, context = deployment.layout.data, prompt + output / 2.0
    cap = running_cap(deployment, prompt, output)
    prefill = model.seconds(StepBatch(prefill_tokens=prompt, prefill_sequences=1.0))
    load = rate * prefill / ranks
    spare = np.maximum(1.0 - load, 1e-3)
    running = np.ones_like(rate)
    for _ in range(40):
        decode = model.seconds(StepBatch(decodes=running, context=context))
        token = decode / spare
        running = np.clip(0.5 * running + 0.5 * rate * output * token, 1.0, cap)
    profile = deployment.profile
    wait = load * prefill / (2.0 * spare)
    full = (load >= 1.0) | (rate * output * token > cap * (1.0 + 1e-6))
    columns.ttft[at] = np.where(full, np.inf, profile.ttft_scale * prefill + RESIDUAL * decode
                                + profile.lag_s(_alone_s(model, context), prompt)
                                + wait)
    columns.tpot[at] = token
    columns.rate[at] = np.where(full, np.minimum(rate, 1.0 / (prefill / ranks
                                                              + output * decode / cap)), rate)
    columns.saturated[at] = full | (load > SATURATED_LOAD)


# -- two pools --------------------------------------------------------------------------------


def _disaggregated(points: Sequence[Point], catalog: Catalog, first: int) -> list[dict[str, Any]]:
    head = points[0]
    if head.prefill is None or head.decode is None:
        raise InvalidValue("a disaggregated point has both prefill and decode",
                           f"/points/{first}")
    prefill = _deployment(head, head.prefill.gpu, head.prefill.layout, catalog,
                          f"/points/{first}/prefill")
    decode = _deployment(head, head.decode.gpu, head.decode.layout, catalog,
                         f"/points/{first}/decode")
    columns = _Columns.of(points, 1.0)
    _two_pools(columns, prefill, decode, head.prefill, head.decode)
    gpus = (prefill.layout.gpus * head.prefill.replicas
            + decode.layout.gpus * head.decode.replicas)
    confidence = confidence_of((prefill, decode))
    return [_answer(columns, i, 1.0, gpus, confidence) for i in range(len(points))]


def _two_pools(columns: _Columns, prefill: Deployment, decode: Deployment,
               prefill_pool: WorkerPool, decode_pool: WorkerPool) -> None:
    """Fixed point of Little's law over a prefill station and a decode station."""
    prompt, output = columns.prompt, columns.output
    context = prompt + output / 2.0
    workers, ranks = prefill_pool.replicas, prefill.layout.data
    servers = float(workers * ranks)
    front = StepModel.of(prefill)
    service = front.seconds(StepBatch(prefill_tokens=prompt, prefill_sequences=1.0))
    idle = (prefill.profile.ttft_scale * service
            + prefill.profile.lag_s(_alone_s(front, context), prompt)
            + _handover_s(prefill, decode, prompt, service))
    model, scale = StepModel.of(decode), decode.profile.disaggregated_scale
    cap = running_cap(decode, prompt, output) * decode_pool.replicas
    if decode_pool.batch_size:
        cap = np.minimum(cap, decode_pool.batch_size * decode.layout.data * decode_pool.replicas)
    closed = columns.clients > 0
    rate = np.where(closed, columns.clients / (output * 0.01 + service), columns.rate)
    token = np.full_like(prompt, 0.01)
    for _ in range(40):
        running = np.clip(rate * output * token, 1.0, cap)
        token = scale * model.seconds(StepBatch(
            decodes=np.maximum(running / decode_pool.replicas, 1.0), context=context))
        load = np.minimum(rate * service / servers, 0.999)
        wait = _pool_wait_s(service, load, servers, columns.clients)
        ttft = idle + wait + (1.0 + RESIDUAL) * token + _burst_s(
            prefill.profile, service, columns.clients / servers)
        cycle = ttft + np.maximum(output - 1.0, 0.0) * token
        limit = np.minimum(servers / service, cap / (output * token))
        fresh = np.where(closed, np.minimum(columns.clients / cycle, limit), columns.rate)
        rate = 0.5 * rate + 0.5 * fresh
    columns.tpot[:] = token
    # More clients than places: what no station carries waits, by Little's law.
    waiting = columns.clients > cap * 1.001
    columns.ttft[:] = np.where(waiting, np.maximum(
        ttft, columns.clients / limit - np.maximum(output - 1.0, 0.0) * token), ttft)
    over = (columns.rate >= limit) & ~closed
    columns.ttft[over] = np.inf
    columns.rate[:] = np.where(over, np.minimum(columns.rate, limit), columns.rate)
    columns.saturated[:] = over | (load >= SATURATED_LOAD) | waiting
    _prompts_alone(columns, np.arange(len(prompt)), servers / service)


def _pool_wait_s(service: Array, load: Array, servers: float, clients: Array) -> Array:
    """Wait [s] before one of several prefill servers (Sakasegawa 1977), at most all clients'."""
    wait = service * load ** (math.sqrt(2.0 * (servers + 1.0)) - 1.0) / (servers * (1.0 - load))
    ahead = np.maximum(clients - 1.0, 0.0) / servers * service
    return np.asarray(np.where(clients > 0, np.minimum(wait, ahead), wait))


def _burst_s(profile: EngineProfile, service: Array, clients: Array) -> Array:
    """What ``clients`` per prefill server add [s]: the start-up burst, and the host."""
    burst = profile.burst_share * np.maximum(clients - 1.0, 0.0) / 2.0 * service
    return np.asarray(burst + profile.client_s * clients)


def _handover_s(prefill: Deployment, decode: Deployment, prompt: Array, service: Array) -> Array:
    """KV transfer [s] that layer-wise overlap does not hide, and the last layer."""
    llm: Llm = prefill.llm
    size = sequence_cache_bytes(llm, prompt, prefill.kv)
    whole = kv_transfer_s(size, prefill.gpu, decode.gpu, prefill.layout.tensor,
                          decode.layout.tensor, prefill.profile)
    hidden = service * (1.0 - 1.0 / llm.layers)
    return np.asarray(np.maximum(whole - hidden, 0.0) + whole / llm.layers)
