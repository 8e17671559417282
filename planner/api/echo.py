"""A plan request as the JSON that would make it again, every default filled in."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.requests import Layout, Limits, MeasuredWorker, PlanRequest
from planner.units import s_to_ms
from planner.workload import Lengths, Workload


def echo(request: PlanRequest) -> dict[str, Any]:
    """The full request document; parsing it gives an equal request.

    Lengths and the rate come back in the words of the original where it is known.
    """
    return {
        "name": request.name,
        "model": request.model,
        "workload": request.stated or workload_document(request.workload),
        "slo": slo_document(request.workload),
        "gpus": list(request.gpus),
        "setups": list(request.setups),
        "precisions": [asdict(p) for p in request.precisions],
        "engine": request.engine,
        "fidelity": request.fidelity,
        "limits": _limits(request.limits),
        "pricing": asdict(request.pricing),
        "speculative": asdict(request.speculative) if request.speculative else None,
        "power_cap_w": request.power_cap_w,
        "objective": request.objective,
        "advice": request.advice,
        "verify": request.verify,
        "measured": {role: _measured(w) for role, w in request.measured.items()},
    }


def workload_document(workload: Workload) -> dict[str, Any]:
    """A workload from its value alone: a log-normal becomes the list of its bins."""
    return {
        "requests_per_second": workload.requests_per_s,
        "prompt_tokens": _length(workload.prompt),
        "output_tokens": _length(workload.output),
        "arrival_cv": workload.arrival_cv,
        "prefix_cache_hit_rate": workload.prefix_hit,
    }


def slo_document(workload: Workload) -> dict[str, Any]:
    """The latency targets, with one common percentile where they share it."""
    limits = {f"{s.metric}_ms": round(s_to_ms(s.limit_s), 9) for s in workload.slos}
    shared = {s.percentile for s in workload.slos}
    if len(shared) == 1:
        return {**limits, "percentile": shared.pop()}
    return {**limits, **{f"{s.metric}_percentile": s.percentile for s in workload.slos}}


def layout_document(layout: Layout) -> dict[str, int]:
    """A layout by its four degrees."""
    return {"tensor_parallel": layout.tensor, "pipeline_parallel": layout.pipeline,
            "expert_parallel": layout.expert, "data_parallel": layout.data}


def _length(lengths: Lengths) -> Any:
    if lengths.kind == "constant":
        return {"mean": lengths.mean}
    return [{"tokens": max(round(t), 1), "share": float(w)}
            for t, w in zip(lengths.tokens.tolist(), lengths.weights, strict=True)]


def _limits(limits: Limits) -> dict[str, Any]:
    document = asdict(limits)
    if limits.layouts is not None:
        document["layouts"] = [layout_document(layout) for layout in limits.layouts]
    if limits.token_budgets is not None:
        document["token_budgets"] = list(limits.token_budgets)
    return document


def _measured(worker: MeasuredWorker) -> dict[str, Any]:
    """A measured worker as it was stated."""
    rows = [{"concurrency" if p.closed_loop else "batch_size": p.batch,
             "tpot_ms": None if p.tpot_s is None else s_to_ms(p.tpot_s),
             "ttft_ms": None if p.ttft_s is None else s_to_ms(p.ttft_s)} for p in worker.curve]
    return {"requests_per_second": worker.requests_per_s, "gpus": worker.gpus, "points": rows}
