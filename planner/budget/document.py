"""A budget as the plain document of the API, and its order-by dates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from planner.budget.budget import BudgetResult, Scene, WhatIfResult, peak
from planner.budget.calendar import month_start, order_by
from planner.budget.costs import Buying, LineCosts
from planner.budget.model import BudgetModel, FleetLine, GpuLine, WorkloadLine
from planner.budget.money import break_even_utilization, cents, cost_per_thousand, decimal
from planner.budget.months import Counts, LineMonths, PoolMonths

Row = dict[str, Any]


def document(result: BudgetResult, made_on: date) -> Row:
    """The contract's body without ``id``, ``created_at`` and ``request``.

    Parameters
    ----------
    made_on : date
        The day of the budget.
    """
    model, base = result.model, result.base
    return {
        "billing_currency": model.prices.currency,
        "totals": totals(base),
        "months": month_rows(model, base),
        "scenarios": [_scenario(s) for s in result.scenes],
        "workloads": [_workload(model, i, w, base)
                      for i, w in enumerate(model.workloads)],
        "fleets": [_fleet(model, f, p)
                   for f, p in zip(model.fleets, base.figures.pools, strict=True)],
        "gpu_lines": [_line(model, *row) for row in zip(
            model.lines, base.figures.lines, base.lines, result.staggered, strict=True)],
        "buy_or_rent": [_buying(line, b) for line, b in zip(
            model.lines, result.buying, strict=True) if b is not None],
        "orders": orders(result, made_on),
        "what_if": [_what_if(base, w) for w in result.what_if],
        "infeasible": [{"pointer": f"/workloads/{i}", "name": w.name, "reason": w.reason}
                       for i, w in enumerate(model.workloads) if w.reason],
        "assumptions": assumptions(model),
        "catalog_as_of": model.catalog_as_of,
    }


def totals(scene: Scene) -> Row:
    """Sums over all months, and the peak."""
    m = scene.months
    requests, cost = m.total("requests"), m.total("effective_cost")
    top, month = peak(scene.figures.gpus.tolist())
    per_thousand = cost_per_thousand(cost, requests)
    return {
        "list_cost": m.total("list_cost"), "contracted_cost": m.total("contracted_cost"),
        "effective_cost": cost, "billed_cost": m.total("billed_cost"),
        "on_demand_cost": m.total("on_demand"), "committed_cost": m.total("committed"),
        "owned_cost": m.total("owned"), "breakage_cost": m.total("breakage"),
        "savings": m.total("contracted_cost") + m.total("owned") - cost,
        "requests": int(requests),
        "cost_per_thousand_requests": None if per_thousand is None else round(per_thousand, 6),
        "energy_kwh": None if m.energy_kwh is None else m.total("energy_kwh"),
        "kg_co2e": None if m.kg_co2e is None else m.total("kg_co2e"),
        "peak_gpus": top, "peak_month": month,
    }


def month_rows(model: BudgetModel, scene: Scene) -> list[Row]:
    """The month-by-month table of a scenario, with what was planned against what happened."""
    f, m = scene.figures, scene.months
    rates = f.rates.sum(axis=0)
    sums = {name: _sum(model, [getattr(x, name) for x in f.lines])
            for name in ("owned", "committed", "burst", "unused")}
    rows = []
    for i in range(model.months):
        per_thousand = cost_per_thousand(m.effective_cost[i], m.requests[i])
        rows.append({
            "month": i + 1,
            "charge_period_start": _start(model, i + 1).isoformat(),
            "charge_period_end": _start(model, i + 2).isoformat(),
            "requests_per_second": float(rates[i]), "requests": int(m.requests[i]),
            "gpus": int(f.gpus[i]), "owned_gpus": int(sums["owned"][i]),
            "committed_gpus": int(sums["committed"][i]), "burst_gpus": int(sums["burst"][i]),
            "unused_gpus": int(sums["unused"][i]),
            "list_cost": m.list_cost[i], "contracted_cost": m.contracted_cost[i],
            "effective_cost": m.effective_cost[i], "billed_cost": m.billed_cost[i],
            "on_demand_cost": m.on_demand[i], "committed_cost": m.committed[i],
            "owned_cost": m.owned[i], "breakage_cost": m.breakage[i],
            "cost_per_thousand_requests":
                None if per_thousand is None else round(per_thousand, 6),
            "energy_kwh": None if m.energy_kwh is None else m.energy_kwh[i],
            "kg_co2e": None if m.kg_co2e is None else m.kg_co2e[i],
            **_actual(model, scene, i)})
    return rows


def _actual(model: BudgetModel, scene: Scene, place: int) -> Row:
    """What a month turned out to be, and its difference from the plan."""
    found = next((a for a in model.actuals if a.month == place + 1), None)
    cost = None if found is None or found.cost is None else cents(found.cost)
    gpus = None if found is None else found.gpus
    planned = scene.months.effective_cost[place]
    over = None if cost is None else cost - planned
    return {
        "actual_requests_per_second": None if found is None else found.requests_per_second,
        "actual_gpus": gpus, "actual_cost": cost,
        "variance_gpus": None if gpus is None else gpus - int(scene.figures.gpus[place]),
        "variance_cost": over,
        "variance_share": None if over is None or not planned else round(over / planned, 6),
    }


def _sum(model: BudgetModel, parts: Sequence[Counts]) -> list[int]:
    return [sum(int(p[i]) for p in parts) for i in range(model.months)]


def _start(model: BudgetModel, index: int) -> date:
    return month_start(model.start_year, model.start_month, index)


def _scenario(scene: Scene) -> Row:
    s = scene.figures.scenario
    return {"name": s.name, "growth_added_per_month": s.growth_added,
            "demand_multiplier": s.demand_multiplier, "price_multiplier": s.price_multiplier,
            "totals": totals(scene), "gpus": scene.figures.gpus.tolist(),
            "effective_cost": list(scene.months.effective_cost)}


def _workload(model: BudgetModel, place: int, w: WorkloadLine, scene: Scene) -> Row:
    return {"name": w.name, "model": w.model,
            "fleet": None if w.fleet is None else model.fleets[w.fleet].name,
            "served": w.fleet is not None, "reason": w.reason,
            "unserved_months": [{"month": u.month, "gpus": u.gpus, "gpus_short": u.short}
                                for u in w.unserved],
            "starts_month": w.starts_month,
            "ends_month": w.ends_month if w.fleet is not None else None,
            "requests_per_second": scene.figures.rates[place].tolist(),
            "tokens_factor": scene.figures.factors[place].tolist()}


def _fleet(model: BudgetModel, fleet: FleetLine, months: tuple[PoolMonths, ...]) -> Row:
    return {"name": fleet.name, "model": fleet.model, "setup": fleet.setup,
            "weights": fleet.weights, "kv": fleet.kv, "limited_by": fleet.limited_by or None,
            "sized_month": fleet.sized_month, "regions": fleet.regions,
            "spare_replicas": fleet.spare_replicas,
            "target_utilization": fleet.target_utilization,
            "workloads": [model.workloads[i].name for i in fleet.members],
            "gpus": _sum(model, [p.gpus for p in months]),
            "pools": [{"role": pool.role, "gpu": pool.gpu, "layout": pool.layout,
                       "gpus_per_replica": pool.gpus_per_replica,
                       "capacity": {"replicas": list(pool.capacity.replicas),
                                    "requests_per_second": list(pool.capacity.requests_per_s)},
                       "replicas": counted.replicas.tolist(), "gpus": counted.gpus.tolist()}
                      for pool, counted in zip(fleet.pools, months, strict=True)]}


def _line(model: BudgetModel, line: GpuLine, months: LineMonths, costs: LineCosts,
          staggered: Decimal) -> Row:
    price = line.usd_per_gpu_hour * (1 - decimal(model.prices.negotiated_discount))
    rented = sum(costs.on_demand) + sum(costs.committed)
    term = None if line.term is None else {
        "term_months": line.term.term_months, "usd_per_gpu_hour": line.term.usd_per_gpu_hour,
        "break_even_utilization": round(break_even_utilization(
            line.term.usd_per_gpu_hour, price), 6),
        "source": line.term.source}
    return {"name": line.name, "gpu": line.gpu, "usd_per_gpu_hour": line.usd_per_gpu_hour,
            "provider": line.provider, "region": line.region, "commitment": line.commitment,
            "source": line.source, "term": term,
            "offered": [{"term_months": t.term_months, "usd_per_gpu_hour": t.usd_per_gpu_hour,
                         "source": t.source} for t in line.offered],
            "gpus": months.gpus.tolist(), "committed_gpus": months.committed.tolist(),
            "burst_gpus": months.burst.tolist(), "unused_gpus": months.unused.tolist(),
            "effective_cost": [cents(x) for x in costs.effective_cost],
            "rental_cost": cents(Decimal(rented)), "staggered_cost": staggered}


def _buying(line: GpuLine, b: Buying) -> Row:
    return {"name": line.name, "gpu": line.gpu, "gpus_per_server": line.gpus_per_server,
            "servers": list(b.owning.servers), "servers_bought": list(b.owning.bought),
            "rent_cost": [cents(x) for x in b.rent], "buy_cash": [cents(x) for x in b.buy_cash],
            "buy_cost": [cents(x) for x in b.buy_cost],
            "book_value": [cents(x) for x in b.book_value],
            "rent_total": cents(sum(b.rent, Decimal(0))),
            "buy_total": cents(sum(b.buy_cash, Decimal(0)) - b.book_value[-1]),
            "break_even_month": b.break_even_month,
            "break_even_month_with_resale": b.break_even_month_with_resale}


def orders(result: BudgetResult, made_on: date) -> list[Row]:
    """What to order by when: new peaks of capacity, commitments, and servers if bought.

    Parameters
    ----------
    made_on : date
        The day of the budget: what should have been ordered before it is ``overdue``.
    """
    model = result.model
    found: list[Row] = []
    for line, counted, b in zip(model.lines, result.base.figures.lines, result.buying,
                                strict=True):
        found += [_order(model, line, "capacity", m, n, made_on)
                  for m, n in _rises(counted.rented.tolist())]
        if line.term is not None:
            term = line.term.term_months
            found += [_order(model, line, "commitment", m + 1, int(counted.committed[m]), made_on)
                      for m in range(0, model.months, term) if counted.committed[m]]
        if b is not None:
            found += [_order(model, line, "servers", m, n, made_on)
                      for m, n in enumerate(b.owning.bought, 1) if n]
    return sorted(found, key=lambda row: (row["order_by"], row["name"], row["kind"]))


def _rises(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Months, from 1, in which a value passes all before it, and by how much."""
    top = 0
    for month, value in enumerate(values, 1):
        if value > top:
            yield month, value - top
            top = value


def _order(model: BudgetModel, line: GpuLine, kind: str, month: int, count: int, made_on: date
           ) -> Row:
    needed = _start(model, month)
    by = order_by(needed, model.lead_time_days)
    return {"name": line.name, "gpu": line.gpu, "kind": kind, "count": count, "month": month,
            "needed_from": needed.isoformat(), "order_by": by.isoformat(),
            "before_start": by < _start(model, 1), "overdue": by < made_on}


def _what_if(base: Scene, w: WhatIfResult) -> Row:
    q = w.question
    cost = sum(w.effective_cost, Decimal(0)) if w.effective_cost else None
    return {"name": q.name, "from_month": q.from_month, "price_multiplier": q.price_multiplier,
            "gpu": q.gpu, "usd_per_gpu_hour": q.usd_per_gpu_hour, "gpus": list(w.gpus),
            "effective_cost": list(w.effective_cost), "total": cost,
            "difference": None if cost is None else cost - base.months.total("effective_cost"),
            "reason": w.reason or None}


def assumptions(model: BudgetModel) -> list[Row]:
    """Every factor behind the numbers, with its source."""
    p, e = model.prices, model.energy
    rows: list[Row] = [
        {"name": "hours_per_month", "value": p.hours_per_month, "unit": "h",
         "source": "request; 730 h = 365 days / 12"},
        {"name": "units_per_usd", "value": p.units_per_usd, "unit": f"{p.currency} per USD",
         "source": "request"},
        {"name": "headroom", "value": model.headroom, "unit": "share of the rate",
         "source": "request"},
        {"name": "power_utilization", "value": e.power_utilization,
         "unit": "share of board power", "source": "request; 1 is the upper bound"},
        {"name": "pue", "value": e.pue, "unit": "", "source": "request"},
        {"name": "kg_co2e_per_kwh", "value": e.kg_co2e_per_kwh, "unit": "kg/kWh",
         "source": "request, or by default the world average of 2024: IEA, Electricity 2025"},
    ]
    for line in model.lines:
        rows.append({"name": f"price.{line.name}", "value": line.usd_per_gpu_hour,
                     "unit": "USD per GPU-hour", "source": line.source})
        rows += [{"name": f"price.{line.name}.{t.term_months}_months",
                  "value": t.usd_per_gpu_hour, "unit": "USD per GPU-hour", "source": t.source}
                 for t in line.offered]
    return rows
