"""From the request of a simulation to a job that needs nothing but a catalog. No Flask."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from planner.api.echo import echo
from planner.api.lengths import lengths_of
from planner.api.plan_checks import (
    check_context,
    check_draft,
    check_engine,
    check_hardware,
    check_lengths,
)
from planner.api.plan_schema import SavedWorkloads, layout_of, parse_plan
from planner.api.simulation_schema import BESIDE_TRACE, FleetSchema
from planner.api.validation import InvalidDocument
from planner.api.workload_schema import TraceWorkloads
from planner.catalog.book import Catalog
from planner.errors import InvalidValue, NotInCatalog, PlannerError
from planner.layouts import check_layout
from planner.llm import Llm
from planner.plain import plain
from planner.requests import Layout, PlanRequest
from planner.simulations.fleets import Parts, fleet_from_option, promised, roles_of
from planner.simulations.requests import DEFAULT_REQUESTS, check_extent

Document = Mapping[str, Any]
_PLAIN = ("seed", "router", "warmup_share", "failures", "spares", "rate_scale", "start_s", "end_s",
          "arrivals")


def job_of_plan(data: Document, plan: Document, snapshot: Document, catalog: Catalog,
                traces: TraceWorkloads | None = None) -> dict[str, Any]:
    """The job that simulates an option of a plan.

    Parameters
    ----------
    data : mapping
        Loaded by ``SimulationSchema``.
    plan : mapping
        The body of ``GET /plans/{id}``.
    snapshot : mapping
        The catalog rows that the plan used.
    traces : callable, optional
        Looks the trace to replay up: slug to its workload.

    Raises
    ------
    PlannerError
        When the plan has no such option, the option cannot be simulated, or the trace has requests
        beyond the context of the model.
    """
    options, rank = plan["options"], data.get("rank", 1)
    if rank > len(options):
        raise InvalidValue(
            f"the plan has {len(options)} options" if options else
            "the plan has no option: nothing meets its targets", "/rank")
    option = options[rank - 1]
    job = {**_settings(data), "plan": plan["id"], "rank": rank, "request": plan["request"],
           "asked": {"plan": plan["id"], "rank": rank, **_asked(data)},
           "option": option, "snapshot": snapshot, "promised": promised(option)}
    try:
        _check(job, catalog)
        _check_trace(data, Parts(catalog, snapshot).llm(plan["request"]["model"]), traces)
    except NotInCatalog as error:  # what the plan kept no row of, and is there no more
        raise NotInCatalog(f"the plan cannot be simulated any more: {error.message}",
                           "/plan") from None
    return job


def job_of_fleet(data: Document, catalog: Catalog, saved: SavedWorkloads | None = None,
                 traces: TraceWorkloads | None = None) -> dict[str, Any]:
    """The job that simulates a fleet by hand.

    Raises
    ------
    PlannerError
        With pointers into the request.
    """
    fleet = data["fleet"]
    with _pointing_into_fleet():
        gpus = _check_fleet(fleet, catalog)
    request = {"model": fleet["model"], "gpus": gpus, "setups": [fleet["setup"]],
               "workload": data.get("workload", {"trace": data.get("trace")}), "slo": data["slo"],
               "engine": fleet["engine"], "fidelity": fleet["fidelity"],
               "limits": {"memory_utilization": fleet["memory_utilization"]},
               "speculative": fleet["speculative"], "power_cap_w": fleet["power_cap_w"]}
    parsed = parse_plan(plain(request), saved, traces)
    check_context(parsed, catalog.llm(fleet["model"]),
                  "/trace" if "trace" in data else "/workload/prompt_tokens")
    pools = [{**pool, "role": role, "engine": fleet["engine"], "spare_replicas": 0}
             for pool, role in zip(fleet["pools"], roles_of(fleet["setup"]), strict=True)]
    option = {"setup": fleet["setup"], "weights": fleet["weights"], "kv": fleet["kv"],
              "pools": pools}
    understood = plain(echo(parsed))
    asked = {**_fleet_asked(data, parsed, understood), **_asked(data)}
    job = {**_settings(data), "plan": None, "rank": None, "request": understood, "asked": asked,
           "option": option, "snapshot": None, "promised": None}
    with _pointing_into_fleet():
        _check(job, catalog)
    return job


@contextmanager
def _pointing_into_fleet() -> Iterator[None]:
    """Pointers of refusals as of a plan request, put where a fleet by hand has the field."""
    try:
        yield
    except PlannerError as error:
        if error.pointer.split("/")[1:2] in ([name] for name in FleetSchema().fields):
            error.pointer = f"/fleet{error.pointer}"
        raise


def _check_fleet(fleet: Document, catalog: Catalog) -> list[str]:
    """Refuse what a plan refuses of models, GPUs, layouts and engines; the GPUs by their slugs."""
    gpus = [catalog.gpu(pool["gpu"], f"/pools/{place}/gpu")
            for place, pool in enumerate(fleet["pools"])]
    llm = catalog.llm(fleet["model"])
    for place, pool in enumerate(fleet["pools"]):
        _check_layout(llm, layout_of(pool), f"/pools/{place}")
    check_engine(fleet["engine"], catalog)
    for place, gpu in enumerate(gpus):
        check_hardware(fleet["engine"], None, [gpu], catalog, f"/pools/{place}/gpu")
    check_hardware(fleet["engine"], fleet["power_cap_w"], gpus, catalog, "/pools/0/gpu")
    if (wish := fleet["speculative"]) and wish["draft_model"]:
        pointer = "/speculative/draft_model"
        check_draft(llm, catalog.llm(wish["draft_model"], pointer))
    return list(dict.fromkeys(gpu.slug for gpu in gpus))


def _check_trace(data: Document, llm: Llm, traces: TraceWorkloads | None) -> None:
    found = traces(data["trace"]) if traces and "trace" in data else None
    if found is not None:
        check_lengths(lengths_of(found["prompt_tokens"]), lengths_of(found["output_tokens"]), llm,
                      "/trace")


def _check_layout(llm: Llm, layout: Layout, pointer: str) -> None:
    """Refuse the layouts that a plan refuses, and experts that the model does not have."""
    check_layout(llm, layout, pointer)
    experts = max(g.feed_forward.experts for g in llm.groups)
    if layout.expert > max(experts, 1):
        has = f"has {experts} experts a layer" if experts else "is dense: it has no experts"
        raise InvalidValue(f"expert_parallel {layout.expert} is too many, as {llm.slug} {has}",
                           f"{pointer}/expert_parallel")


def _settings(data: Document) -> dict[str, Any]:
    count = None if "trace" in data else data.get("requests", DEFAULT_REQUESTS)
    return {**{name: data[name] for name in _PLAIN}, "trace": data.get("trace"),
            "requests": count}


def _fleet_asked(data: Document, parsed: PlanRequest, understood: Document) -> dict[str, Any]:
    """Fleet, workload and targets as they were understood, without what does not go together."""
    fleet = data["fleet"]
    pools = [{**pool, "role": role} for pool, role in
             zip(fleet["pools"], roles_of(fleet["setup"]), strict=True)]
    asked = {"fleet": plain({**fleet, "pools": pools}), "slo": understood["slo"]}
    if "workload" not in data:
        return asked
    if "trace" in data:
        return {**asked, "workload": {BESIDE_TRACE: parsed.workload.prefix_hit}}
    ignored = "arrival_cv" if data["arrivals"] else None
    return {**asked, "workload": {k: v for k, v in understood["workload"].items() if k != ignored}}


def _asked(data: Document) -> dict[str, Any]:
    """The settings of a simulation as they were understood; what does not go together left out, so
    that sent again they ask for the same."""
    beside = {"requests", "arrivals"} if "trace" in data else {"trace", "start_s", "end_s"}
    if "fleet" in data:
        beside.add("spares")
    return {name: plain(value) for name, value in _settings(data).items() if name not in beside}


def _check(job: Document, catalog: Catalog) -> None:
    """Refuse now what the job would fail at."""
    request = parse_plan(job["request"])
    if job["requests"]:
        rate = request.workload.requests_per_s * job["rate_scale"]
        check_extent(job["requests"], job["requests"] / rate if rate else math.inf,
                     job["warmup_share"],
                     "/rate_scale" if job["plan"] else "/workload/requests_per_second")
    fleet = fleet_from_option(request, job["option"],
                              Parts(catalog, job["snapshot"]), job["spares"])
    errors = []
    for place, failure in enumerate(job["failures"]):
        if failure["pool"] >= len(fleet.pools):
            errors.append((f"/failures/{place}/pool",
                           f"must be below {len(fleet.pools)}, the number of pools"))
        elif failure["replica"] >= (most := fleet.pools[failure["pool"]].replicas):
            errors.append((f"/failures/{place}/replica", f"must be below {most}, the replicas of "
                           "the pool"))
    if errors:
        raise InvalidDocument(errors)
