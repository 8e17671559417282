"""Plans put to the test: the best options simulated, and replicas added until the targets hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from planner.fleet import Fleet, build_fleet
from planner.one_pool import OnePool
from planner.other_ways import kind_of
from planner.requests import PlanRequest
from planner.setups.disaggregated import DecodePool, Pair, PrefillPool
from planner.simulator import RequestTable, SimulationResult, fleet_of, simulate, synthetic
from planner.sizing import Sized
from planner.two_pools import TwoPools
from planner.wording import gpus as gpus_text
from planner.workload import Workload

VERIFIED_OPTIONS = 3
"""Options that are simulated: the best ones, again the best after replicas were added."""
REQUESTS = 20_000
"""Simulated requests; the first tenth does not count."""
MOST_OTHERS = 12
"""Fleets in other layouts that may come in."""
MOST_ROUNDS = 8
GROWTH = 0.1
"""Share of a pool's replicas that a round adds, at least one."""
SEED = 0
LEAST_RPS = 1e-5
"""[1/s] that is simulated at least: requests a day apart meet no other at any lower rate either,
and a clock that runs for ages loses the length of a step."""
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

    def warnings(self, promised: list[str]) -> list[str]:
        """What an option does not keep: nothing where the simulation holds."""
        if self.held:
            return []
        return [*promised, *(f"The simulation misses the target of {m.upper()}."
                             for m in self.missed)]


def requests_of(workload: Workload) -> RequestTable:
    """The requests that options are put to the test with."""
    rate = max(workload.requests_per_s, LEAST_RPS)
    return synthetic(replace(workload, requests_per_s=rate), REQUESTS, SEED)


def verify(fleet: Fleet, request: PlanRequest,
           requests: RequestTable | None = None) -> Verification:
    """Simulate a fleet and add replicas until its targets hold.

    Parameters
    ----------
    fleet : Fleet
    request : PlanRequest
        As one region sees it.
    requests : RequestTable, optional
        Generated from the workload when None.

    Returns
    -------
    Verification
        With the fleet as it was when no number of replicas tried was enough.
    """
    table = requests or requests_of(request.workload)
    result = first = _simulated(fleet, request, table)
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
        result = _simulated(grown, request, table)
    missed_first = tuple(first.missed_slos())
    if result.missed_slos():
        return Verification(fleet, fleet.gpus, (0,) * len(added), missed_first, first, False)
    return Verification(grown, fleet.gpus, tuple(added), missed_first, result, True)


def _simulated(fleet: Fleet, request: PlanRequest, table: RequestTable) -> SimulationResult:
    simulated = fleet_of(fleet, request.workload.slos, speculative=request.speculative)
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


@dataclass(slots=True)
class _Row:
    """An option, its simulation once there is one, and those that it takes the place of."""

    document: dict[str, Any]
    fleet: Fleet
    found: Verification | None = None
    before: tuple[Verification, ...] = ()
    planned: Fleet | None = None

    @property
    def standing(self) -> int:
        """0 where the simulation holds, 1 where there is none, 2 where it misses a target."""
        return 1 if self.found is None else 0 if self.found.held else 2


Others = Callable[[Fleet, frozenset[str]], list[Fleet]]


def verify_best(ranked: list[tuple[dict[str, Any], Fleet]], request: PlanRequest,
                describe: Callable[[Fleet], dict[str, Any]],
                order: Callable[[dict[str, Any]], tuple[float, ...]], others: Others
                ) -> tuple[list[tuple[dict[str, Any], Fleet]], list[dict[str, Any]]]:
    """Simulate the best options, and again the best until those are all simulated ones.

    Where an option as planned misses a target, its other layouts come in as well: they may hold
    where no number of replicas does, or with fewer GPUs. Of each kind the best stays.

    Parameters
    ----------
    ranked : list
        Documents of options with their fleets, best first.
    describe, order : callable
        A fleet as the document of an option; what documents are sorted by.
    others : callable
        Fleets of the same kind in layouts that were not tried yet, given the pools to change.

    Returns
    -------
    tuple
        The options, best first, those that the simulation refutes last; and advice.
    """
    table = requests_of(request.workload)
    rows = [_Row(document, fleet) for document, fleet in ranked]
    left = MOST_OTHERS
    while True:
        best = _best_of_kinds(rows, lambda r: (r.standing == 2, *order(r.document)))
        row = next((r for r in best[:VERIFIED_OPTIONS] if r.found is None), None)
        if row is None:
            break
        row.planned = row.fleet
        found = row.found = verify(row.fleet, request, table)
        row.fleet = found.fleet
        document = describe(row.fleet)
        row.document = {**document, "warnings": found.warnings(document["warnings"]),
                        "verification": found.document()}
        if found.missed and left > 0:
            more = others(row.planned, _roles(row.planned, found.missed))[:left]
            left -= len(more)
            rows += [_Row(describe(f), f, before=(*row.before, found)) for f in more]
    kept = _best_of_kinds(rows, lambda r: (r.standing, *order(r.document)))
    kept.sort(key=lambda r: (2 if r.standing == 2 else int(
        r.standing == 1 and bool(r.document["warnings"])), *order(r.document)))
    advice = []
    for rank, row in enumerate(kept, start=1):
        row.document["rank"] = rank
        tried = sum(kind_of(r.fleet) == kind_of(row.fleet) for r in rows) > 1
        line = _advice(row, rank, tried)
        advice += [line] if line else []
    return [(r.document, r.fleet) for r in kept], advice


def _best_of_kinds(rows: list[_Row], place: Callable[[_Row], tuple[float, ...]]) -> list[_Row]:
    """The first of each kind, in order."""
    best: dict[object, _Row] = {}
    for row in sorted(rows, key=place):
        best.setdefault(kind_of(row.fleet), row)
    return list(best.values())


def _roles(fleet: Fleet, missed: tuple[str, ...]) -> frozenset[str]:
    """Pools that the missed targets depend on."""
    more = _more(fleet, list(missed))
    return frozenset(p.pool.role for p, n in zip(fleet.pools, more, strict=True) if n)


def _advice(row: _Row, rank: int, tried: bool) -> dict[str, Any] | None:
    """A line of advice where the simulation changed or doubts an option, else None.

    Parameters
    ----------
    tried : bool
        Whether other layouts of this kind were at hand.
    """
    found, what = row.found, f"option {rank} ({row.fleet.sized.setup})"
    if not row.before and (found is None or (found.held and not found.missed)):
        return None
    first = row.before[0] if row.before else found
    assert first is not None
    targets = ", ".join(m.upper() for m in first.missed)
    missed = f"missed its target of {targets} at {gpus_text(first.gpus_before)}"
    if row.before:
        mended = (f"it would take {first.fleet.gpus}" if first.held
                  else "adding replicas did not mend it")
        message = (f"The simulation of {what} {missed} in its first layout "
                   f"({_way(first.fleet)}), where {mended}; in another one ({_way(row.fleet)}) "
                   f"{_now(row)}")
    elif first.held:
        message = (f"The simulation of {what} {missed}; with {_replicas(first)} "
                   f"({gpus_text(first.fleet.gpus)}) it holds.")
    else:
        neither = " and no other layout that was tried holds either" if tried else ""
        message = (f"The simulation of {what} misses its target of {targets}, and adding replicas "
                   f"did not mend it{neither}; do not count on this option.")
    return {"code": "verification", "message": message, "gpus_before": first.gpus_before,
            "gpus_after": row.fleet.gpus, "usd_per_hour_after": row.document["usd_per_hour"]}


def _now(row: _Row) -> str:
    """What is known of a fleet that took the place of another."""
    found, gpus = row.found, row.fleet.gpus
    if found is None:
        return f"the plan is {gpus_text(gpus)}, not simulated."
    if not found.held:
        return "it misses as well; do not count on this option."
    more = f" with {_replicas(found)}" if found.missed else ""
    return f"it holds at {gpus_text(gpus)}{more}."


def _replicas(found: Verification) -> str:
    count = sum(found.added)
    return "one more replica" if count == 1 else f"{count} more replicas"


def _way(fleet: Fleet) -> str:
    """The layouts of a fleet in words."""
    parts = []
    for pool in fleet.sized.pools:
        layout = pool.deployment.layout
        degrees = [f"{name} parallel {n}" for name, n in (
            ("tensor", layout.tensor), ("pipeline", layout.pipeline), ("data", layout.data))
            if n > 1 or name == "tensor"]
        degrees += [f"chunks of {pool.token_budget:,}"] if pool.token_budget else []
        parts.append(", ".join(degrees))
    return " + ".join(parts)
