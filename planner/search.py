"""The search: every setup on every GPU, precision and layout, each at its fewest replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.candidates import candidates
from planner.llm import Llm
from planner.one_pool import OnePool, best_pool
from planner.requests import PlanRequest
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
        held = {}
        for gpu in resources.gpus:
            held[gpu.slug], missed = candidates(request, resources, gpu, pair)
            found.missed += missed
        for row in held.values():
            for setup in request.setups:
                if setup != "disaggregated":
                    best, missed = best_pool(request, setup, row)
                    found.choices += [best] if best else []
                    found.missed += missed
        if "disaggregated" in request.setups:
            pairs, missed = best_pairs(request, resources, held)
            found.choices += pairs
            found.missed += missed
    return found


def precisions(request: PlanRequest, llm: Llm) -> Iterator[tuple[str, str]]:
    """Weight and KV precision pairs to try; None means what the model ships in."""
    pairs = [(wish.weights or llm.native_precision, wish.kv or llm.native_kv)
             for wish in request.precisions]
    yield from dict.fromkeys(pairs)
