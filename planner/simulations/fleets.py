"""From documents to simulated fleets: an option of a stored plan, or pools by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from planner.catalog.book import Catalog
from planner.engine import EngineProfile
from planner.errors import InvalidValue, NotInCatalog
from planner.hardware import Gpu
from planner.llm import Llm, from_record
from planner.requests import Layout, PlanRequest
from planner.roofline import Deployment
from planner.setups.base import build_table
from planner.simulator import SimulatedFleet, SimulatedPool, kv_transfer, pool_of
from planner.simulator.fleet import SCHEDULER_OF
from planner.workload import Workload

Document = Mapping[str, Any]
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


class Parts:
    """The values that deployments are made of: of a plan's snapshot, else of the catalog."""

    def __init__(self, catalog: Catalog, snapshot: Document | None = None) -> None:
        self._catalog, self._snapshot = catalog, snapshot or {}

    def llm(self, name: str) -> Llm:
        """The model."""
        model = self._snapshot.get("model")
        return from_record(model["record"]) if model else self._catalog.llm(name)

    def gpu(self, slug: str, pointer: str) -> Gpu:
        """A GPU."""
        rows = {row["slug"]: row for row in self._snapshot.get("gpus", ())}
        return Gpu(**rows[slug]) if slug in rows else self._catalog.gpu(slug, pointer)

    def profile(self, name: str, gpu: Gpu, weights: str) -> EngineProfile:
        """An engine profile, by its slug or its engine."""
        rows = {row["slug"]: row for row in self._snapshot.get("engines", ())}
        if name in rows:
            known = {f.name for f in fields(EngineProfile)}
            return EngineProfile(**{k: v for k, v in rows[name].items() if k in known})
        return self._catalog.engine(name, gpu, weights, "/engine")

    def draft(self, request: PlanRequest) -> Llm | None:
        """The draft model of speculative decoding. Plans of earlier versions keep none: then the
        catalog's.

        Raises
        ------
        NotInCatalog
            When neither the snapshot nor the catalog has it.
        """
        wish, row = request.speculative, self._snapshot.get("draft")
        if wish is None or wish.draft_model is None:
            return None
        if row:
            return from_record(row["record"])
        try:
            return self._catalog.llm(wish.draft_model, "/speculative/draft_model")
        except NotInCatalog as error:
            raise NotInCatalog(f"draft model: {error.message}", error.pointer) from None


def served_workload(request: PlanRequest, option: Document) -> Workload:
    """The workload of one region, at the rate that an option was sized for."""
    pool = option["pools"][0]
    rate = pool["requests_per_s_per_replica"] * (pool["replicas"] - pool["spare_replicas"])
    return replace(request.workload, requests_per_s=rate)


def fleet_from_option(request: PlanRequest, option: Document, parts: Parts,
                      spares: bool = False) -> SimulatedFleet:
    """The fleet of an option, of one region.

    Parameters
    ----------
    request : PlanRequest
        What was planned, for lengths, limits and targets; by hand: what to simulate.
    option : mapping
        ``setup``, ``weights``, ``kv`` and ``pools`` as in the answer of ``POST /plans``.
    parts : Parts
    spares : bool
        Whether spare replicas serve too; a plan's promises are made without them.

    Raises
    ------
    InvalidValue
        When a pool cannot be simulated: measured workers, or a model that does not fit.
    """
    if request.measured:
        raise InvalidValue("the plan was made of measured workers, whose step times are not known",
                           "/plan")
    llm = parts.llm(request.model)
    weights = option["weights"] or llm.native_precision
    kv = option["kv"] or llm.native_kv
    pools, deployments, draft = [], [], parts.draft(request)
    for place, row in enumerate(option["pools"]):
        gpu = parts.gpu(row["gpu"], f"/pools/{place}/gpu")
        layout = Layout(row["tensor_parallel"], row["pipeline_parallel"], row["expert_parallel"],
                        row["data_parallel"])
        profile = parts.profile(row["engine"], gpu, weights)
        deployment = Deployment(llm, gpu, weights, kv, layout, profile, request.power_cap_w,
                                request.fidelity, draft)
        deployments.append(deployment)
        pools.append(_pool(request, option["setup"], row, deployment, spares))
    transfer = kv_transfer(*deployments) if len(deployments) == 2 else None
    return SimulatedFleet(option["setup"], tuple(pools), transfer, request.workload.slos)


def _pool(request: PlanRequest, setup: str, row: Document, deployment: Deployment, spares: bool
          ) -> SimulatedPool:
    scheduler = SCHEDULER_OF.get(setup) or str(row["role"])
    table = build_table(deployment, request.workload, request.limits, request.speculative)
    if table.memory_cap < 1:
        raise InvalidValue(
            f"{deployment.llm.slug} in {deployment.weights} does not fit on this layout of "
            f"{deployment.gpu.slug}: not one sequence of this workload has room",
            "/pools")
    batch = row.get("batch_size") or None
    prefills = scheduler == "prefill"
    return pool_of(deployment, row["role"], scheduler,
                   row["replicas"] - (0 if spares else row.get("spare_replicas", 0)),
                   max_sequences=None if prefills else batch,
                   prompts_per_pass=batch if prefills else None,
                   token_budget=row.get("token_budget"), memory=table.memory,
                   speculative=request.speculative)


def promised(option: Document) -> dict[str, Any]:
    """What a plan promises of an option: the same percentiles that a simulation observes."""
    return {name: option[name] for name in LATENCIES if option.get(name)}


def roles_of(setup: str) -> Sequence[str]:
    """Roles that the pools of a setup have."""
    return ("prefill", "decode") if setup == "disaggregated" else ("serve",)
