"""The layouts of a model on a GPU that hold it; their tables are built when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from planner.hardware import Gpu
from planner.layouts import layouts
from planner.memory import MemoryBudget
from planner.misses import late_alone, memory_detail
from planner.requests import Layout, PlanRequest
from planner.roofline import Deployment
from planner.setups.base import Table, build_table, memory_fit
from planner.sizing import Miss, Resources
from planner.workload import Slo


@dataclass(frozen=True)
class Candidate:
    """A layout that holds the model."""

    deployment: Deployment
    request: PlanRequest
    resources: Resources
    fit: tuple[MemoryBudget, int]
    """See :func:`planner.setups.base.memory_fit`."""

    @property
    def fewest_gpus(self) -> int:
        """GPUs of one replica and the spares: no pool of this layout is smaller."""
        return self.deployment.layout.gpus * (1 + self.request.limits.spare_replicas)

    @cached_property
    def table(self) -> Table:
        """Its table, built once for all requests of a plan that have the same lengths."""
        d, request, known = self.deployment, self.request, self.resources.tables
        key = (d.gpu.slug, d.weights, d.kv, d.layout, d.profile.slug, d.power_cap_w, d.fidelity,
               request.workload.lengths_key, request.limits.max_sequences,
               request.limits.memory_utilization, request.speculative)
        if key not in known:
            known[key] = build_table(d, request.workload, request.limits, request.speculative,
                                     self.fit)
        table = known[key]
        if table.workload is request.workload:
            return table
        return replace(table, workload=request.workload)

    @cached_property
    def late_alone(self) -> Slo | None:
        """See :func:`planner.misses.late_alone`."""
        return late_alone(self.table)


def candidates(request: PlanRequest, resources: Resources, gpu: Gpu, pair: tuple[str, str]
               ) -> tuple[list[Candidate], list[Miss]]:
    """The layouts of a GPU at a (weights, KV) precision, and the misses of those too large."""
    weights, kv = pair
    if gpu.slug in resources.unfit:
        return [], list(_of_every_setup(request, gpu.slug, Layout(), weights, "engine",
                                        resources.unfit[gpu.slug]))
    profile = resources.profiles[gpu.slug, weights]
    tried = layouts(resources.llm, gpu, request.limits)
    draft = resources.draft if request.speculative and request.speculative.draft_model else None
    fitting: list[Candidate] = []
    missed: list[Miss] = []
    for layout in tried:
        deployment = Deployment(resources.llm, gpu, weights, kv, layout, profile,
                                request.power_cap_w, request.fidelity, draft)
        fit = memory_fit(deployment, request.workload, request.limits)
        if fit[1] >= 1:
            fitting.append(Candidate(deployment, request, resources, fit))
            continue
        detail = memory_detail(deployment, fit[0], request.workload)
        missed += _of_every_setup(request, gpu.slug, layout, weights, "memory", detail)
    if not tried:
        missed += _of_every_setup(request, gpu.slug, Layout(), weights, "max_gpus",
                                  "no layout stays within max_gpus")
    return fitting, missed


def _of_every_setup(request: PlanRequest, gpu: str, layout: Layout, weights: str, reason: str,
                    detail: str) -> Iterator[Miss]:
    return (Miss(setup, gpu, layout, weights, reason, detail) for setup in request.setups)
