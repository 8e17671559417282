"""Estimates: one engine step, or many, with every term, and the memory of the replica."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planner.catalog.book import Catalog
from planner.describe import memory_document
from planner.drafts import accepted_tokens
from planner.engine import IDEAL
from planner.errors import ContextTooLong
from planner.hardware import Gpu
from planner.layouts import check_layout
from planner.llm import Llm
from planner.memory import memory_budget, sequence_bytes_per_gpu
from planner.precision import FORMATS, weight_format
from planner.requests import Batch, EstimateRequest
from planner.roofline import Deployment, Step, StepBatch, StepModel, Term
from planner.units import s_to_ms


def make_estimate(request: EstimateRequest, catalog: Catalog) -> dict[str, Any]:
    """Evaluate the steps of a request in one vectorised pass.

    Returns
    -------
    dict
        The contract's document: one step's fields at the top level when the request has one
        batch, and a list under ``steps`` when it has several; ``memory`` beside.

    Raises
    ------
    NotInCatalog
        When the model, GPU or engine is unknown.
    """
    llm, gpu = catalog.llm(request.model), catalog.gpu(request.gpu)
    check_layout(llm, request.layout, "")
    weights = request.weights or llm.native_precision
    engine = IDEAL if request.fidelity == "napkin" else catalog.engine(request.engine, gpu, weights)
    deployment = Deployment(llm, gpu, weights, request.kv or llm.native_kv, request.layout, engine,
                            request.power_cap_w, request.fidelity)
    model = StepModel.of(deployment)
    _check_contexts(llm, request)
    step = model.step(_batch(request))
    documents = _steps(step, request)
    pool = memory_budget(deployment, utilization=request.memory_utilization).kv_pool_bytes
    for document, batch in zip(documents, request.batches, strict=True):
        document["cache_fits"] = cache_fits(deployment, batch, pool)
    body: dict[str, Any] = documents[0] if len(documents) == 1 else {"steps": documents}
    draft = request.speculative and request.speculative.draft_model
    return {**body, **_common(deployment, request, catalog.llm(draft) if draft else None),
            **_request_latency(model, request)}


def _batch(request: EstimateRequest) -> StepBatch:
    def column(name: str) -> Any:
        return np.array([float(getattr(b, name)) for b in request.batches])

    draft = request.speculative.draft_tokens if request.speculative else 0
    return StepBatch(column("decodes"), column("context_tokens"), 1.0 + draft,
                     column("prefill_tokens"), column("prefill_sequences"),
                     column("cached_tokens"))


def _check_contexts(llm: Llm, request: EstimateRequest) -> None:
    """Refuse a batch whose sequences are longer than the model was built for."""
    for i, b in enumerate(request.batches):
        prompt = b.cached_tokens + b.prefill_tokens / max(b.prefill_sequences, 1)
        name = "context_tokens" if b.context_tokens >= prompt else "prefill_tokens"
        if llm.max_context and max(b.context_tokens, prompt) > llm.max_context:
            place = f"/batches/{i}/{name}" if request.many else f"/batch/{name}"
            raise ContextTooLong(f"{max(b.context_tokens, prompt):,.0f} tokens are more than the "
                                 f"{llm.max_context:,} of {llm.slug}", place)


def cache_fits(deployment: Deployment, batch: Batch, pool_bytes: float) -> bool:
    """Whether the caches of a batch fit the pool of one GPU [B]."""
    ranks = deployment.layout.data
    prompt = batch.cached_tokens + batch.prefill_tokens / max(batch.prefill_sequences, 1)
    prompts = batch.prefill_sequences if batch.prefill_tokens else 0
    need = (batch.decodes * sequence_bytes_per_gpu(deployment, batch.context_tokens)
            + prompts * sequence_bytes_per_gpu(deployment, prompt)) / ranks
    return need <= pool_bytes


def _steps(step: Step, request: EstimateRequest) -> list[dict[str, Any]]:
    """One document a batch, from the columns of a vectorised step."""
    seconds, flops, moved = step.seconds, step.flops, step.bytes
    ridge = step.peak_flop_per_s / step.bandwidth_bytes_per_s
    bound, mfu, mbu = step.bound, step.mfu, step.mbu
    columns = [_term_columns(t) for t in step.terms]
    rows = []
    for i, batch in enumerate(request.batches):
        rows.append({
            "step_ms": s_to_ms(float(seconds[i])), "bound": str(bound[i]),
            "flops": float(flops[i]), "bytes": float(moved[i]),
            "arithmetic_intensity": float(flops[i] / moved[i]) if moved[i] else None,
            "ridge_point": ridge, "mfu": float(mfu[i]), "mbu": float(mbu[i]),
            "tokens_per_s": _tokens_per_s(batch, float(seconds[i]), request),
            "terms": [_term(name, values, i, step.gpus) for name, values in columns],
        })
    return rows


def _tokens_per_s(batch: Batch, seconds: float, request: EstimateRequest) -> float | None:
    """Output tokens per second of the decodes of a step."""
    if seconds <= 0:
        return None
    each = accepted_tokens(request.speculative) if request.speculative else 1.0
    return batch.decodes * each / seconds


def _term_columns(term: Term) -> tuple[str, tuple[Any, ...]]:
    """A term's name and its columns over the batches, each computed once."""
    shape = np.shape(term.seconds)
    bound = np.broadcast_to(np.asarray(term.bound), shape)
    return term.name, (term.flops, term.bytes, term.seconds, term.compute_s, term.memory_s, bound)


def _term(name: str, columns: tuple[Any, ...], i: int, gpus: int) -> dict[str, Any]:
    """One operator group of one batch; FLOPs and bytes over all GPUs of the replica."""
    flops, moved, seconds, compute, memory, bound = (c[i] for c in columns)
    return {"name": name, "flops": float(flops) * gpus, "bytes": float(moved) * gpus,
            "ms": s_to_ms(float(seconds)), "compute_ms": s_to_ms(float(compute)),
            "memory_ms": s_to_ms(float(memory)), "bound": str(bound)}


def _common(deployment: Deployment, request: EstimateRequest, draft: Llm | None
            ) -> dict[str, Any]:
    """Memory, crossovers and the echo of what was used."""
    memory = memory_budget(deployment, utilization=request.memory_utilization,
                           max_sequences=request.max_sequences,
                           max_batched_tokens=request.max_batched_tokens, draft=draft)
    each = sequence_bytes_per_gpu(deployment, _longest(request))
    sequences = None
    if each > 0:
        sequences = max(math.floor(memory.kv_pool_bytes / each), 0) * deployment.layout.data
    layout = deployment.layout
    return {
        "memory": memory_document(memory, sequences),
        "crossovers": crossovers(deployment),
        "model": deployment.llm.slug, "gpu": deployment.gpu.slug, "weights": deployment.weights,
        "kv": deployment.kv, "engine": deployment.profile.slug, "fidelity": deployment.fidelity,
        "tensor_parallel": layout.tensor, "pipeline_parallel": layout.pipeline,
        "expert_parallel": layout.expert, "data_parallel": layout.data, "gpus": layout.gpus,
    }


def _longest(request: EstimateRequest) -> float:
    """Context [token] that ``max_sequences`` is counted at: the longest one asked about."""
    contexts = [b.context_tokens for b in request.batches]
    contexts += [b.prefill_tokens / max(b.prefill_sequences, 1) + b.cached_tokens
                 for b in request.batches]
    if request.prompt_tokens:
        contexts.append(request.prompt_tokens + (request.output_tokens or 0))
    return max([*contexts, 1.0])


def crossovers(deployment: Deployment) -> dict[str, Any]:
    """Where an ideal whole-model step turns compute-bound (weights only).

    ``decode_batch``: batch B with 2 P B / F = W / BW. ``prefill_tokens``: prompt n with
    2 P n + 2 L d n^2 = F W / BW.
    """
    llm, gpu = deployment.llm, deployment.gpu
    fmt = weight_format(deployment.weights)
    flop_per_byte = peak_of(gpu, deployment) / gpu.bandwidth_bytes_per_s
    weights = llm.total_params * fmt.nominal_bytes
    linear = 2.0 * llm.active_params
    square = 2.0 * llm.layers * llm.hidden
    budget = flop_per_byte * weights
    tokens = (-linear + math.sqrt(linear**2 + 4.0 * square * budget)) / (2.0 * square)
    return {"ridge_point": flop_per_byte, "decode_batch": budget / linear,
            "prefill_tokens": tokens}


def peak_of(gpu: Gpu, deployment: Deployment) -> float:
    """Peak [FLOP/s] at the deployment's weight precision, power cap included."""
    fmt = FORMATS[weight_format(deployment.weights).name]
    return gpu.peak(fmt) * gpu.power_capped_scale(deployment.power_cap_w)


def _request_latency(model: StepModel, request: EstimateRequest) -> dict[str, Any]:
    """One request alone: TTFT, TPOT and end-to-end; and its chunks under a token budget."""
    if not request.prompt_tokens:
        return {}
    output = request.output_tokens or 1
    prefill = float(model.seconds(StepBatch(prefill_tokens=request.prompt_tokens,
                                            prefill_sequences=1.0)))
    contexts = request.prompt_tokens + np.arange(1.0, max(output, 2))
    steps = np.asarray(model.seconds(StepBatch(decodes=1.0, context=contexts)))
    each = accepted_tokens(request.speculative) if request.speculative else 1.0
    tpot = float(steps.mean()) / each
    answer: dict[str, Any] = {"request": {
        "prompt_tokens": request.prompt_tokens, "output_tokens": output,
        "ttft_ms": s_to_ms(prefill), "tpot_ms": s_to_ms(tpot) if output > 1 else None,
        "e2e_ms": s_to_ms(prefill + tpot * (output - 1))}}
    if request.max_batched_tokens:
        room = request.max_batched_tokens - max(b.decodes for b in request.batches)
        answer["request"]["chunk_tokens"] = max(room, 0)
        answer["request"]["chunk_steps"] = (
            math.ceil(request.prompt_tokens / room) if room > 0 else None)
    return answer
