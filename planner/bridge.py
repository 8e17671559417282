"""Why two plans differ: from one request to the other in steps, each planned again.

The parts of a request are replaced one after another, always in the order of :data:`PARTS`, and
the request is planned after each. A step's change is the difference to the step before it, so
the steps sum exactly to the whole change. What a step shows depends on those before it: doubling
the rate costs more GPUs before a larger GPU is allowed than after. A fixed order makes two
bridges comparable; it does not make a step's share the only possible one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.requests import PlanRequest
from planner.workload import Lengths

CATALOG = "catalog"
"""The step for what changed in the catalog or the planner since a plan was stored."""


@dataclass(frozen=True, slots=True)
class Part:
    """Fields that change together.

    Attributes
    ----------
    name : str
    workload, request : tuple of str
        Fields of the workload and of the plan request.
    """

    name: str
    workload: tuple[str, ...] = ()
    request: tuple[str, ...] = ()


PARTS: tuple[Part, ...] = (
    Part("rate", workload=("requests_per_s", "mean_requests_per_s", "users", "think_s",
                           "arrival_cv")),
    Part("lengths", workload=("prompt", "output")),
    Part("prefix_cache", workload=("prefix_hit",)),
    Part("slo", workload=("slos",)),
    Part("pricing", request=("pricing",)),
    Part("model", request=("model",)),
    Part("gpus", request=("gpus",)),
    Part("efficiency", request=("engine", "fidelity", "precisions", "speculative",
                                "power_cap_w", "measured")),
    Part("setups", request=("setups",)),
    Part("limits", request=("limits", "verify")),
    Part("objective", request=("objective",)),
)
"""Every part of a request, in the order in which a bridge replaces them."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a bridge follows: GPUs, and cost [USD/h, USD] where a price is known."""

    gpus: int
    usd_per_hour: float | None
    usd_per_month: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the parts that it replaced, and the figures before and after.

    Several parts share a step when the request between them has no plan.
    """

    parts: tuple[str, ...]
    before: Figures
    after: Figures


Planner = Callable[[PlanRequest], Figures | None]


def differing(start: PlanRequest, end: PlanRequest) -> list[Part]:
    """The parts in which two requests differ, in order.

    Examples
    --------
    >>> from planner.workload import Slo, Workload, constant
    >>> asked = Workload(2.0, constant(1000), constant(200), slos=(Slo("tpot", 0.05),))
    >>> first = PlanRequest("llama-3.1-8b", asked, ("l4",))
    >>> second = replace(first, workload=replace(asked, requests_per_s=4.0), gpus=("l40s",))
    >>> [part.name for part in differing(first, second)]
    ['rate', 'gpus']
    """
    return [part for part in PARTS if not _same_part(start, end, part)]


def bridge(start: PlanRequest, end: PlanRequest, plan: Planner, first: Figures, last: Figures
           ) -> list[Step]:
    """The steps from one plan to another.

    Parameters
    ----------
    start, end : PlanRequest
    plan : callable
        Plans a request with today's catalog; None when nothing serves it.
    first, last : Figures
        What the two plans said when they were made. Where planning the same request today gives
        something else, a step named ``catalog`` says by how much, before or after the others.

    Returns
    -------
    list of Step
        Their changes sum to ``last - first`` exactly. Without a plan of ``start`` or ``end``
        today, all is one step.
    """
    priced = first.usd_per_hour is not None and last.usd_per_hour is not None

    def usable(found: Figures | None) -> bool:
        return found is not None and (found.usd_per_hour is not None or not priced)

    parts = differing(start, end)
    today = plan(start)
    goal = plan(end) if parts else today
    if today is None or goal is None or not usable(today) or not usable(goal):
        return [Step((*(p.name for p in parts), CATALOG), first, last)]
    steps = [] if today == first else [Step((CATALOG,), first, today)]
    request, before, waiting = start, today, list[str]()
    for place, part in enumerate(parts, 1):
        request = _with_part(request, end, part)
        waiting.append(part.name)
        after = goal if place == len(parts) else plan(request)
        if after is not None and usable(after):
            steps.append(Step(tuple(waiting), before, after))
            before, waiting = after, []
    if before != last:
        steps.append(Step((CATALOG,), before, last))
    return steps


def _same_part(start: PlanRequest, end: PlanRequest, part: Part) -> bool:
    return (_equal([getattr(start.workload, f) for f in part.workload],
                   [getattr(end.workload, f) for f in part.workload])
            and _equal([getattr(start, f) for f in part.request],
                       [getattr(end, f) for f in part.request]))


def _equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(_same_lengths(a, b) if isinstance(a, Lengths) else a == b
               for a, b in zip(first, second, strict=True))


def _same_lengths(first: Lengths, second: Lengths) -> bool:
    return (np.array_equal(first.tokens, second.tokens)
            and np.array_equal(first.weights, second.weights))


def _with_part(request: PlanRequest, source: PlanRequest, part: Part) -> PlanRequest:
    workload = replace(request.workload, **{
        f: getattr(source.workload, f) for f in part.workload})
    return replace(request, workload=workload, **{
        f: getattr(source, f) for f in part.request})
