"""Measured points reduced to the sums that an engine's constants multiply.

A step's time is a sum of ``max(compute / mfu, memory / mbu)`` over operator groups plus wire time
over link efficiency plus fixed times, so the groups are evaluated once with unit constants and
a fit needs only array arithmetic. The groups are those of :mod:`planner.roofline`: one model of
the truth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.calibration.points import MeasuredPoint
from planner.catalog.book import Catalog
from planner.engine import EngineProfile
from planner.requests import Layout
from planner.roofline import LATENT, RECURRENT, Deployment, Step, StepBatch, StepModel

Array = NDArray[np.float64]
PRECISIONS = ("bf16", "fp8", "fp4", "int4")
"""Weight precisions with shares of their own; int8 and fp16 run at the 16-bit rate. On a GPU
without FP4 units 4-bit weights of either kind are unpacked and multiplied in 16 bits."""
UNIT = EngineProfile(slug="unit", engine="unit", half_tokens=16.0, tile_tokens=64, expert_skew=1.0)
"""Every factor 1 and no overhead, with the tile fill and the routing of fitted profiles. These
three were chosen by cross-validation over a few values each."""
_GROUPS = {"routed_experts": "expert", "attention_prefill": "attention",
           "attention_decode": "attention", "recurrent_state": "attention"}


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """One kind of step of every point, at unit constants.

    Attributes
    ----------
    gemm, expert, attention : ndarray, shape (2, k, n)
        Compute and memory seconds of up to k groups of n points.
    wire_s, calls, layers, moe_layers, latent_layers, recurrent_layers, sequences : ndarray
        Of shape (n,); ``layers`` counts every layer, ``sequences`` those of the step.
    """

    gemm: Array
    expert: Array
    attention: Array
    wire_s: Array
    calls: Array
    layers: Array
    moe_layers: Array
    latent_layers: Array
    recurrent_layers: Array
    sequences: Array

    def at(self, places: NDArray[np.intp]) -> StepFeatures:
        """The same of some points."""
        return StepFeatures(self.gemm[:, :, places], self.expert[:, :, places],
                            self.attention[:, :, places], self.wire_s[places],
                            self.calls[places], self.layers[places], self.moe_layers[places],
                            self.latent_layers[places], self.recurrent_layers[places],
                            self.sequences[places])


@dataclass(frozen=True, slots=True)
class Features:
    """All points of a fit: a decode step at the batch that runs, and a prefill of one prompt.

    Attributes
    ----------
    decode, prefill, alone : StepFeatures
        ``alone``: a decode step of one sequence a rank.
    running : ndarray
        Sequences per data-parallel rank that decode at once.
    clients : ndarray
        Concurrent requests per data-parallel rank.
    prompt, output : ndarray
        [token] per request.
    precision : ndarray of int
        Index into :data:`PRECISIONS`.
    """

    decode: StepFeatures
    prefill: StepFeatures
    alone: StepFeatures
    running: Array
    clients: Array
    prompt: Array
    output: Array
    precision: NDArray[np.intp]

    def at(self, places: NDArray[np.intp]) -> Features:
        """The same of some points."""
        return Features(self.decode.at(places), self.prefill.at(places), self.alone.at(places),
                        self.running[places], self.clients[places], self.prompt[places],
                        self.output[places], self.precision[places])


def layout_of(point: MeasuredPoint) -> Layout:
    """The layout of a measured point; data-parallel attention spreads experts over all ranks."""
    data, tensor = point.data_parallel or 1, point.tensor_parallel or 1
    expert = point.expert_parallel or (tensor * data if data > 1 else 1)
    return Layout(tensor, point.pipeline_parallel or 1, expert, data)


def deployment_of(point: MeasuredPoint, catalog: Catalog, profile: EngineProfile) -> Deployment:
    """The deployment that a point measured, under a profile."""
    assert point.model is not None
    assert point.gpu is not None
    llm = catalog.llm(point.model)
    weights = point.weights or llm.native_precision
    return Deployment(llm, catalog.gpu(point.gpu), weights, point.kv or llm.native_kv,
                      layout_of(point), profile)


def extract(points: Sequence[MeasuredPoint], catalog: Catalog, running: Array) -> Features:
    """Features of points whose running batch [sequences per replica] is given."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for i, p in enumerate(points):
        groups[p.model, p.gpu, p.weights, p.kv, layout_of(p)].append(i)
    size = len(points)
    store = {kind: _empty(size) for kind in ("decode", "prefill", "alone")}
    prompt = np.array([p.prompt_tokens for p in points], dtype=float)
    output = np.array([p.output_tokens for p in points], dtype=float)
    for members in groups.values():
        at = np.array(members)
        deployment = deployment_of(points[members[0]], catalog, UNIT)
        context = prompt[at] + output[at] / 2
        ranks_here = np.full(len(at), float(deployment.layout.data))
        batches = {"decode": StepBatch(decodes=running[at], context=context),
                   "alone": StepBatch(decodes=ranks_here, context=context),
                   "prefill": StepBatch(prefill_tokens=prompt[at], prefill_sequences=1.0)}
        for kind, batch in batches.items():
            _fill(store[kind], at, deployment, batch)
    ranks = np.array([layout_of(p).data for p in points], dtype=float)
    clients = np.array([p.concurrency or 0.0 for p in points]) / ranks
    names = [_precision_of(p, catalog) for p in points]
    return Features(store["decode"], store["prefill"], store["alone"], running / ranks, clients,
                    prompt, output, np.array([PRECISIONS.index(n) for n in names]))


def _precision_of(point: MeasuredPoint, catalog: Catalog) -> str:
    assert point.model is not None
    assert point.gpu is not None
    name = point.weights or catalog.llm(point.model).native_precision
    return precision_key(name, "fp4" in catalog.gpu(point.gpu).peak_flop_per_s)


def precision_key(precision: str, fp4_units: bool) -> str:
    """The entry of :data:`PRECISIONS` whose constants a weight precision takes on a GPU."""
    if precision == "fp4" and not fp4_units:
        return "int4"
    return precision if precision in PRECISIONS else "bf16"


def _empty(size: int) -> StepFeatures:
    return StepFeatures(np.zeros((2, 3, size)), np.zeros((2, 2, size)), np.zeros((2, 3, size)),
                        *(np.zeros(size) for _ in range(7)))


def _fill(store: StepFeatures, at: NDArray[np.intp], deployment: Deployment, batch: StepBatch
          ) -> None:
    """Evaluate one deployment's step for its points and put the groups in their places."""
    step = StepModel.of(deployment).step(batch)
    used = {"gemm": 0, "expert": 0, "attention": 0}
    for term in step.terms:
        if term.kind != "roofline":
            continue
        group = _GROUPS.get(term.name, "gemm")
        place = used[group]
        used[group] += 1
        getattr(store, group)[0, place, at] = term.compute_s
        getattr(store, group)[1, place, at] = term.memory_s
    store.wire_s[at] = _communication(step)
    latent = replace(deployment, profile=replace(UNIT, collective_latency_s=1.0,
                                                 link_efficiency=1e12))
    store.calls[at] = _communication(StepModel.of(latent).step(batch))
    groups = deployment.llm.groups
    store.layers[at] = deployment.llm.layers
    store.moe_layers[at] = sum(g.count for g in groups if g.feed_forward.experts)
    store.latent_layers[at] = sum(g.count for g in groups if g.mixer.kind in LATENT)
    store.recurrent_layers[at] = sum(g.count for g in groups if g.mixer.kind in RECURRENT)
    each = replace(deployment, profile=replace(UNIT, sequence_s=1.0))
    store.sequences[at] = next(t.other_s for t in StepModel.of(each).step(batch).terms
                               if t.kind == "overhead")


def _communication(step: Step) -> Array:
    return next(t.other_s for t in step.terms if t.kind == "communication")
