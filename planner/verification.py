"""Plans put to the test: the best options simulated, and replicas added until the targets hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from planner.fleet import Fleet, build_fleet
from planner.llm import Llm
from planner.one_pool import OnePool
from planner.requests import PlanRequest
from planner.setups.disaggregated import DecodePool, Pair, PrefillPool
from planner.simulator import RequestTable, SimulationResult, fleet_of, simulate, synthetic
from planner.sizing import Sized
from planner.two_pools import TwoPools

VERIFIED_OPTIONS = 3
"""Options that are simulated: the best ones, again the best after replicas were added."""
REQUESTS = 20_000
"""Simulated requests; the first tenth does not count."""
MOST_ROUNDS = 8
GROWTH = 0.1
"""Share of a pool's replicas that a round adds, at least one."""
SEED = 0
_POOL_OF = {"ttft": "prefill", "tpot": "decode", "itl": "decode"}


@dataclass(frozen=True, slots=True)
class Verification:
    """What the simulation of an option found.

    Attributes
    ----------
    fleet : Fleet
        With the replicas that were added.
    gpus_before : int
    added : tuple of int
        Replicas added to each pool.
    missed : tuple of str
        Metrics that the option as planned missed.
    result : SimulationResult
        Of the fleet as it is now.
    held : bool
        Whether every target holds now.
    """

    fleet: Fleet
    gpus_before: int
    added: tuple[int, ...]
    missed: tuple[str, ...]
    result: SimulationResult
    held: bool

    def document(self) -> dict[str, Any]:
        """As an option shows it under ``verification``."""
        shown = self.result.document()
        return {"held": self.held, "missed_as_planned": list(self.missed),
                "added_replicas": sum(self.added), "gpus_before": self.gpus_before,
                "requests": shown["requests"], "seed": SEED,
                "attainment": shown["attainment"],
                "observed": {f"{m}_ms": shown["observed"][f"{m}_ms"]
                             for m in ("ttft", "tpot", "itl", "e2e")}}

    def advice(self, rank: int, setup: str, usd_per_hour: float | None) -> dict[str, Any] | None:
        """A line of advice where the simulation changed or doubts an option, else None."""
        if self.held and not self.missed:
            return None
        what = f"option {rank} ({setup})"
        targets = ", ".join(m.upper() for m in self.missed)
        if self.held:
            more = "one more replica" if sum(self.added) == 1 else (
                f"{sum(self.added)} more replicas")
            message = (f"The simulation of {what} missed its target of {targets} at "
                       f"{self.gpus_before} GPUs; with {more} ({self.fleet.gpus} GPUs) it holds.")
        else:
            message = (f"The simulation of {what} misses its target of {targets}, and adding "
                       "replicas did not mend it; do not count on this option.")
        return {"code": "verification", "message": message, "gpus_before": self.gpus_before,
                "gpus_after": self.fleet.gpus, "usd_per_hour_after": usd_per_hour}


def verify(fleet: Fleet, request: PlanRequest, draft: Llm | None,
           requests: RequestTable | None = None) -> Verification:
    """Simulate a fleet and add replicas until its targets hold.

    Parameters
    ----------
    fleet : Fleet
    request : PlanRequest
        As one region sees it.
    draft : Llm or None
        The draft model of speculative decoding.
    requests : RequestTable, optional
        Generated from the workload when None.

    Returns
    -------
    Verification
        With the fleet as it was when no number of replicas tried was enough.
    """
    table = requests or synthetic(request.workload, REQUESTS, SEED)
    result = first = _simulated(fleet, request, draft, table)
    grown, added = fleet, [0] * len(fleet.pools)
    for _ in range(MOST_ROUNDS):
        missed = result.missed_slos()
        if not missed:
            break
        more = _more(grown, missed)
        bigger = build_fleet(with_replicas(grown.sized, more, request), request)
        if bigger.gpus > request.limits.max_gpus:
            break
        grown, added = bigger, [a + b for a, b in zip(added, more, strict=True)]
        result = _simulated(grown, request, draft, table)
    missed_first = tuple(first.missed_slos())
    if result.missed_slos():
        return Verification(fleet, fleet.gpus, (0,) * len(added), missed_first, first, False)
    return Verification(grown, fleet.gpus, tuple(added), missed_first, result, True)


def _simulated(fleet: Fleet, request: PlanRequest, draft: Llm | None, table: RequestTable
               ) -> SimulationResult:
    simulated = fleet_of(fleet, request.workload.slos, speculative=request.speculative,
                         draft=draft)
    return simulate(simulated, table)


def _more(fleet: Fleet, missed: list[str]) -> list[int]:
    """Replicas to add to each pool: to those that the missed targets depend on.

    A whole request depends on both pools; the fuller one is made larger.
    """
    fullest = max(fleet.pools, key=lambda p: p.utilization).pool.role
    roles = {_POOL_OF.get(metric, fullest) for metric in missed}
    return [max(1, round(GROWTH * p.pool.replicas))
            if len(fleet.pools) == 1 or p.pool.role in roles else 0 for p in fleet.pools]


def with_replicas(sized: Sized, more: list[int], request: PlanRequest) -> Sized:
    """An option with more replicas, and what users then see."""
    pools = [replace(p, replicas=p.replicas + n) for p, n in zip(sized.pools, more, strict=True)]
    if len(pools) == 1:
        return OnePool(sized.setup, pools[0]).sized(request)
    prefill, decode = pools
    assert isinstance(prefill.source, PrefillPool)
    assert isinstance(decode.source, DecodePool)
    pair = Pair(prefill.source, decode.source)
    return TwoPools(pair, (prefill, decode), (0.0, 0.0, 0.0)).sized(request)


def verify_best(ranked: list[tuple[dict[str, Any], Fleet]], request: PlanRequest,
                draft: Llm | None, describe: Callable[[Fleet], dict[str, Any]],
                order: Callable[[dict[str, Any]], tuple[float, ...]]
                ) -> tuple[list[tuple[dict[str, Any], Fleet]], list[dict[str, Any]]]:
    """Simulate the best options, and again the best until those are all simulated ones.

    Parameters
    ----------
    ranked : list
        Documents of options with their fleets, best first.
    describe, order : callable
        A fleet as the document of an option; what documents are sorted by.

    Returns
    -------
    tuple
        The options, best first, those that the simulation refutes last; and advice.
    """
    table = synthetic(request.workload, REQUESTS, SEED)
    seen: dict[int, Verification] = {}
    rows = list(ranked)

    def place(row: tuple[dict[str, Any], Fleet]) -> tuple[float, ...]:
        found = seen.get(id(row[1]))
        return (1.0 if found is not None and not found.held else 0.0, *order(row[0]))

    while True:
        rows.sort(key=place)
        todo = next((i for i, row in enumerate(rows[:VERIFIED_OPTIONS])
                     if id(row[1]) not in seen), None)
        if todo is None:
            break
        found = verify(rows[todo][1], request, draft, table)
        seen[id(found.fleet)] = found
        rows[todo] = ({**describe(found.fleet), "verification": found.document()}, found.fleet)
    advice = []
    for rank, (document, fleet) in enumerate(rows, start=1):
        document["rank"] = rank
        if id(fleet) in seen:
            line = seen[id(fleet)].advice(rank, document["setup"], document["usd_per_hour"])
            advice += [line] if line else []
    return rows, advice
