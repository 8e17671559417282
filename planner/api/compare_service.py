"""Plans side by side: found or made, what differs, and why. No Flask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.api.compare_schema import CompareSchema
from planner.api.echo import echo
from planner.api.plan_checks import check_plan
from planner.api.plan_schema import SavedWorkloads, parse_plan
from planner.api.plan_service import MadePlan, make
from planner.api.validation import InvalidDocument, load_document
from planner.api.workload_schema import FROM_TRACE, TraceWorkloads
from planner.bridge import Figures, Step, bridge
from planner.catalog.book import Catalog
from planner.errors import NotInCatalog, PlannerError
from planner.plain import plain
from planner.requests import PlanRequest

FindPlan = Callable[[str], MadePlan | None]
MAX_DEPTH = 10
"""Levels that a change is merged at; a plan request has four, so deeper ones are refused by it."""
_UNCOMPARED = ("name", "advice")
"""Fields of a request that do not change its options."""
_CHANGES = ("gpus", "usd_per_hour", "usd_per_month")


@dataclass(frozen=True, slots=True)
class Compared:
    """One of the plans.

    Attributes
    ----------
    id : str or None
        None for a plan that is not stored.
    request : PlanRequest
    made : MadePlan
    """

    id: str | None
    request: PlanRequest
    made: MadePlan

    @property
    def figures(self) -> Figures | None:
        """What a bridge follows, None without an option."""
        return _figures(self.made.document["recommended"])


@dataclass(frozen=True, slots=True)
class Sources:
    """Where plans, workloads and traces are found, and what new plans are made from."""

    catalog: Catalog
    stored: FindPlan
    workloads: SavedWorkloads
    traces: TraceWorkloads | None = None


def compare_plans(document: Any, sources: Sources) -> tuple[dict[str, Any], list[MadePlan]]:
    """Compare what a request names.

    Parameters
    ----------
    document : dict
        The body of ``POST /plans/compare``.

    Returns
    -------
    dict, list of MadePlan
        The answer, and the plans for a workbook.

    Raises
    ------
    InvalidDocument, NotInCatalog
        With pointers into ``document``.
    """
    plans = _plans(load_document(CompareSchema(), document), sources)
    planner = _Planner(sources.catalog)
    for plan in plans:
        planner.know(plan)
    answer = {
        "plans": [_plan_document(place, plan) for place, plan in enumerate(plans, 1)],
        "differences": differences([plan.made.document["request"] for plan in plans]),
        "bridges": [_bridge(place, plans[0], plan, planner)
                    for place, plan in enumerate(plans[1:], 1)],
    }
    return answer, [plan.made for plan in plans]


# -- the plans ----------------------------------------------------------------------------------


def _plans(data: Mapping[str, Any], sources: Sources) -> list[Compared]:
    if "plans" in data:
        return [_plan(entry, f"/plans/{i}", sources) for i, entry in enumerate(data["plans"])]
    base = _plan(data["base"], "/base", sources)
    found = [base]
    for index, scenario in enumerate(data["scenarios"]):
        patched = merged(_without_trace(plain(echo(base.request)), scenario["changes"]),
                         scenario["changes"])
        patched["name"] = scenario["name"] or patched["name"]
        found.append(_made(patched, f"/scenarios/{index}/changes", sources))
    return found


def _without_trace(document: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A base request without the rate, lengths and burstiness that its completed form carries,
    where a change names another trace: that trace gives them, unless the change does."""
    workload, change = document["workload"], changes.get("workload")
    other = change.get("trace") if isinstance(change, Mapping) else None
    if other is None or other == workload.get("trace"):
        return document
    return {**document, "workload": {k: v for k, v in workload.items() if k not in FROM_TRACE}}


def _plan(entry: Any, pointer: str, sources: Sources) -> Compared:
    if not isinstance(entry, str):
        return _made(entry, pointer, sources)
    stored = sources.stored(entry)
    if stored is None:
        raise NotInCatalog(f"there is no plan {entry!r}", pointer)
    return Compared(entry, parse_plan(stored.document["request"]), stored)


def _made(document: Mapping[str, Any], pointer: str, sources: Sources) -> Compared:
    try:
        request = parse_plan(document, sources.workloads, sources.traces)
        made = make(replace(request, advice=False), sources.catalog)
        made.document["request"]["advice"] = request.advice
        return Compared(None, request, made)
    except InvalidDocument as error:
        raise InvalidDocument([(pointer + p, m) for p, m in error.errors]) from None
    except PlannerError as error:
        error.pointer = pointer + error.pointer
        raise


def merged(document: Any, changes: Any, depth: int = 0) -> Any:
    """A JSON merge patch (RFC 7396): objects merge, null removes, all else replaces.

    Examples
    --------
    >>> merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 5, "c": None}})
    {'a': {'b': 5}, 'd': 3}
    """
    if not isinstance(changes, Mapping) or depth > MAX_DEPTH:
        return changes
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value, depth + 1)
    return result


def _plan_document(place: int, plan: Compared) -> dict[str, Any]:
    document = plan.made.document
    return {"id": plan.id, "name": document["request"]["name"] or f"Plan {place}",
            "request": document["request"], "recommended": document["recommended"],
            "reason": document.get("reason") or ""}


# -- what differs -------------------------------------------------------------------------------


def differences(requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields in which requests differ, by JSON pointer, with the value of each.

    Examples
    --------
    >>> differences([{"name": "a", "slo": {"ttft_ms": 1}}, {"name": "b", "slo": {"ttft_ms": 2}}])
    [{'field': '/slo/ttft_ms', 'values': [1, 2]}]
    """
    flat = [dict(_flat({k: v for k, v in r.items() if k not in _UNCOMPARED})) for r in requests]
    names = dict.fromkeys(name for fields in flat for name in fields)
    rows = [{"field": name, "values": [fields.get(name) for fields in flat]} for name in names]
    return [row for row in rows if any(v != row["values"][0] for v in row["values"][1:])]


def _flat(value: Any, pointer: str = "") -> list[tuple[str, Any]]:
    if pointer.endswith("_tokens") and isinstance(value, int | float):
        value = {"mean": value}  # the two say the same
    if isinstance(value, Mapping) and value:
        return [pair for name, inner in value.items()
                for pair in _flat(inner, f"{pointer}/{name}")]
    return [] if value is None or value == {} else [(pointer, value)]


# -- why ----------------------------------------------------------------------------------------


class _Planner:
    """Plans requests with today's catalog, the same one once."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.known: dict[int, tuple[PlanRequest, Figures | None]] = {}

    def know(self, plan: Compared) -> None:
        """Keep the figures of a plan that was made just now."""
        if plan.id is None:
            self.known[id(plan.request)] = (plan.request, plan.figures)

    def __call__(self, request: PlanRequest) -> Figures | None:
        """The figures of a request, None when nothing can serve it."""
        from planner.planning import make_plan

        if id(request) not in self.known:
            try:
                check_plan(request, self.catalog)
                document = make_plan(replace(request, advice=False), self.catalog).document()
                found = _figures(document["recommended"])
            except PlannerError:
                found = None  # such as a context that only the later step's model has
            self.known[id(request)] = (request, found)
        return self.known[id(request)][1]


def _figures(best: Mapping[str, Any] | None) -> Figures | None:
    if best is None:
        return None
    return Figures(best["gpus"], best.get("usd_per_hour"), best.get("usd_per_month"))


def _bridge(place: int, base: Compared, other: Compared, planner: _Planner) -> dict[str, Any]:
    first, last = base.figures, other.figures
    head = {"plan": place, **_change(first, last)}
    if first is None or last is None:
        lacking = base if first is None else other
        said = lacking.made.document.get("reason") or "nothing meets its targets"
        which = "the first plan" if first is None else "this plan"
        return {**head, "steps": [], "reason": f"{which} has no option: {said}"}
    steps = bridge(base.request, other.request, planner, first, last)
    return {**head, "steps": [_step(step) for step in steps], "reason": None}


def _step(step: Step) -> dict[str, Any]:
    return {"parts": list(step.parts), **_change(step.before, step.after)}


def _change(before: Figures | None, after: Figures | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _CHANGES:
        old, new = getattr(before, name, None), getattr(after, name, None)
        found |= {f"{name}_before": old, f"{name}_after": new,
                  f"{name}_change": None if old is None or new is None else new - old}
    return found
