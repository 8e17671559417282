"""A budget from end to end: the entry point of the library, the API and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from planner.budget import commit
from planner.budget.build import make_model
from planner.budget.costs import (
    Amounts,
    Buying,
    LineCosts,
    MonthCosts,
    added,
    buying,
    line_costs,
    month_costs,
)
from planner.budget.inputs import BudgetRequest, PriceStep, WhatIf
from planner.budget.model import BudgetModel, GpuLine
from planner.budget.money import cents
from planner.budget.months import Counts, Figures, LineMonths, figures, line_gpus, paid
from planner.catalog.book import Catalog
from planner.collector import collector_paused
from planner.errors import PlannerError


@dataclass(frozen=True, slots=True)
class Scene:
    """One scenario counted and paid."""

    figures: Figures
    lines: tuple[LineCosts, ...]
    months: MonthCosts


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """The answer to a question: the months with it, or why there is none."""

    question: WhatIf
    gpus: tuple[int, ...]
    effective_cost: Amounts
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """A finished budget with everything it was made of.

    Attributes
    ----------
    scenes : tuple of Scene
        In the order of the model's scenarios.
    buying : tuple of Buying or None
        By GPU line, base scenario.
    staggered : tuple of Decimal
        By GPU line: rental cost if contracts might start in any month (base scenario).
    """

    model: BudgetModel
    scenes: tuple[Scene, ...]
    buying: tuple[Buying | None, ...]
    staggered: tuple[Decimal, ...]
    what_if: tuple[WhatIfResult, ...]

    @property
    def base(self) -> Scene:
        """The base scenario."""
        return self.scenes[self.model.base]


@collector_paused()
def make_budget(request: BudgetRequest, catalog: Catalog) -> BudgetResult:
    """Size, count and pay a budget.

    Parameters
    ----------
    request : BudgetRequest
    catalog : Catalog

    Raises
    ------
    PlannerError
        When the request names what the catalog lacks, with the pointer of the field.
    """
    model = make_model(request, catalog)
    result = result_of(model)
    answers = tuple(_answer(q, request, catalog, model, result) for q in request.what_if)
    return replace(result, what_if=answers)


def result_of(model: BudgetModel) -> BudgetResult:
    """Months and money of a model; questions are not asked again."""
    scenes = tuple(_scene(model, place) for place in range(len(model.scenarios)))
    base = scenes[model.base]
    pairs = list(zip(model.lines, base.figures.lines, base.lines, strict=True))
    return BudgetResult(model, scenes, tuple(buying(model, *p) for p in pairs),
                        tuple(_staggered(model, line, counted) for line, counted, _ in pairs), ())


def _scene(model: BudgetModel, place: int) -> Scene:
    counted = figures(model, place)
    lines = tuple(line_costs(model, line, months)
                  for line, months in zip(model.lines, counted.lines, strict=True))
    return Scene(counted, lines, month_costs(model, counted, lines))


def _staggered(model: BudgetModel, line: GpuLine, counted: LineMonths) -> Decimal:
    """Rental cost of a line when contracts may start in any month [currency]."""
    if not counted.rented.any():
        return Decimal(0)
    path = counted.list_price / float(line.usd_per_gpu_hour)
    offers = [(t.term_months, float(t.usd_per_gpu_hour) * path) for t in line.offered]
    hourly = commit.staggered_cost(counted.rented.astype(float), counted.on_demand_price, offers)
    return cents(Decimal(str(hourly * model.prices.hours_per_month))
                 * model.prices.units_per_usd)


# -- what if ------------------------------------------------------------------------------------


def _answer(question: WhatIf, request: BudgetRequest, catalog: Catalog, model: BudgetModel,
            result: BudgetResult) -> WhatIfResult:
    """The base scenario with other prices, or on another GPU, from a month on."""
    if question.gpu is None:
        changed = _repriced(model, question)
        scene = _scene(changed, changed.base)
        return WhatIfResult(question, tuple(scene.figures.gpus.tolist()),
                            scene.months.effective_cost)
    try:
        other = make_model(_on_gpu(request, question.gpu, question), catalog)
    except PlannerError as error:
        return WhatIfResult(question, (), (), error.message)
    lost = [w.name for w, o in zip(model.workloads, other.workloads, strict=True)
            if w.fleet is not None and (o.ends_month < w.ends_month
                                         or len(o.unserved) > len(w.unserved))]
    if lost:
        return WhatIfResult(question, (), (), f"{question.gpu} cannot serve {', '.join(lost)}")
    other = _repriced(other, question)
    before = np.arange(1, model.months + 1) < question.from_month
    old = _masked(model, before)
    new = _masked(other, ~before)
    gpus = sum((g for g, _ in (*old, *new)), np.zeros(model.months, dtype=np.int64))
    nothing: Amounts = tuple(Decimal(0) for _ in range(model.months))
    cost = added([nothing, *(c.effective_cost for _, c in (*old, *new))])
    return WhatIfResult(question, tuple(gpus.tolist()), tuple(map(cents, cost)))


def _on_gpu(request: BudgetRequest, gpu: str, question: WhatIf) -> BudgetRequest:
    """The request with every workload on one GPU."""
    return replace(request, what_if=(), workloads=tuple(
        replace(w, request=replace(w.request, gpus=(gpu,), pricing=replace(
            w.request.pricing, usd_per_gpu_hour=_own_price(question))))
        for w in request.workloads))


def _own_price(question: WhatIf) -> dict[str, float]:
    if question.usd_per_gpu_hour is None or question.gpu is None:
        return {}
    return {question.gpu: float(question.usd_per_gpu_hour)}


def _repriced(model: BudgetModel, question: WhatIf) -> BudgetModel:
    step = PriceStep(question.from_month, question.price_multiplier)
    return replace(model, prices=replace(model.prices, steps=(*model.prices.steps, step)))


def _masked(model: BudgetModel, kept: Any) -> list[tuple[Counts, LineCosts]]:
    """GPUs and costs of every line when it is needed only in some months."""
    counted = figures(model, model.base)
    found = []
    for i, line in enumerate(model.lines):
        gpus = line_gpus(model, i, counted.pools) * kept
        months = paid(model, line, gpus, model.scenarios[model.base])
        found.append((gpus, line_costs(model, line, months)))
    return found


def peak(values: Sequence[int]) -> tuple[int, int]:
    """Largest value and its month, from 1; (0, 1) without values.

    Examples
    --------
    >>> peak([3, 9, 4])
    (9, 2)
    """
    top = max(values, default=0)
    return top, (list(values).index(top) + 1 if values else 1)
