"""The search: every setup on every GPU, precision and layout, each at its fewest replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from planner.hardware import Gpu
from planner.layouts import layouts
from planner.llm import Llm
from planner.misses import memory_detail
from planner.one_pool import OnePool, best_pool
from planner.requests import Layout, PlanRequest
from planner.roofline import Deployment
from planner.setups.base import Table, build_table
from planner.sizing import Miss, Resources
from planner.two_pools import TwoPools, best_pairs


@dataclass(slots=True)
class Search:
    """Everything that was tried: what works and what does not."""

    choices: list[OnePool | TwoPools] = field(default_factory=list)
    missed: list[Miss] = field(default_factory=list)


def search(request: PlanRequest, resources: Resources) -> Search:
    """Size every setup of a request on every GPU, precision and layout.

    Returns
    -------
    Search
        The best layout of each setup, GPU (or pair) and precision, and every miss.
    """
    found = Search()
    for pair in precisions(request, resources.llm):
        tables = {gpu.slug: list(_tables(request, resources, gpu, pair, found))
                  for gpu in resources.gpus}
        for rows in tables.values():
            for setup in request.setups:
                if setup != "disaggregated":
                    best, missed = best_pool(request, setup, rows)
                    found.choices += [best] if best else []
                    found.missed += missed
        if "disaggregated" in request.setups:
            pairs, missed = best_pairs(request, resources, tables)
            found.choices += pairs
            found.missed += missed
    return found


def precisions(request: PlanRequest, llm: Llm) -> Iterator[tuple[str, str]]:
    """Weight and KV precision pairs to try; None means what the model ships in."""
    pairs = [(wish.weights or llm.native_precision, wish.kv or llm.native_kv)
             for wish in request.precisions]
    yield from dict.fromkeys(pairs)


def _tables(request: PlanRequest, resources: Resources, gpu: Gpu, pair: tuple[str, str],
            found: Search) -> Iterator[Table]:
    """Tables of the layouts that fit; layouts that do not become misses of every setup."""
    weights, kv = pair
    profile = resources.profiles[gpu.slug, weights]
    tried = layouts(resources.llm, gpu, request.limits)
    if not tried:
        found.missed += [Miss(setup, gpu.slug, Layout(), weights, "max_gpus",
                              "no layout stays within max_gpus") for setup in request.setups]
    for layout in tried:
        deployment = Deployment(resources.llm, gpu, weights, kv, layout, profile,
                                request.power_cap_w, request.fidelity)
        table = _table(deployment, request, resources)
        if table.memory_cap >= 1:
            yield table
        else:
            found.missed += [Miss(setup, gpu.slug, layout, weights, "memory",
                                  memory_detail(table)) for setup in request.setups]


def _table(deployment: Deployment, request: PlanRequest, resources: Resources) -> Table:
    """A deployment's table, built once for all requests of a plan that have the same lengths."""
    d, limits = deployment, request.limits
    key = (d.gpu.slug, d.weights, d.kv, d.layout, d.profile.slug, d.power_cap_w, d.fidelity,
           request.workload.lengths_key, limits.max_sequences, limits.memory_utilization,
           request.speculative)
    if key not in resources.tables:
        resources.tables[key] = build_table(d, request.workload, limits, request.speculative,
                                            resources.draft)
    return replace(resources.tables[key], workload=request.workload)
