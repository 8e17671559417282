"""Figures of the live options as other sheets show them: ``n/a`` where nothing holds."""

from __future__ import annotations

from typing import Any

from planner.workbook.live.expr import X, both, is_number, least, when
from planner.workbook.live.fleet import FleetCells
from planner.workbook.plan import Plan
from planner.workload import BETWEEN_TOKENS


def shown(found: FleetCells, e: X | None) -> X | None:
    """A figure, or ``n/a`` while no number of replicas holds the targets."""
    return None if e is None else when(found.holds > 0.0, e, "n/a")


def figures(plan: Plan, fleets: dict[int, FleetCells], ranks: dict[int, Any], several: X
            ) -> None:
    """Put the formulas of each live option where the tables look for them.

    Parameters
    ----------
    several : X
        Whether some answer has a second token; else there is no time between tokens.
    """
    for place, found in fleets.items():
        seen = found.option.seen
        figures_: dict[str, X | None] = {
            "gpus": found.gpus, "replicas": found.replicas, "nodes": found.nodes,
            "usd_per_hour": found.hourly, "usd_per_month": found.monthly,
            "usd_per_million_tokens": found.per_million,
            "usd_per_million_input_tokens": found.parts.get("input"),
            "usd_per_million_output_tokens": found.parts.get("output"),
            "usd_per_request": found.parts.get("request"), "power_kw": found.power,
            "ttft": 1000.0 * seen.ttft[1], "tpot": 1000.0 * seen.tpot[1],
            "itl": None if seen.itl is None else 1000.0 * seen.itl,
            "e2e": 1000.0 * seen.e2e[1]}
        cells = {name: e for name, e in figures_.items() if e is not None}
        room = []
        for target in plan.targets():
            value = cells.get(target.metric)
            if value is not None:
                limit = X(f"in_{target.metric}_ms", target.limit_ms)
                given, left = is_number(limit), 1.0 - value / limit
                if target.metric in BETWEEN_TOKENS:
                    given = both(given, several)
                cells[f"headroom_{target.metric}"] = when(given, left, "n/a")
                room.append(when(given, left, 1.0))
        if room and len(room) == len(plan.targets()):
            cells["tightest"] = least(*room)
        for metric in BETWEEN_TOKENS:
            if metric in cells:
                cells[metric] = when(several, cells[metric], "n/a")
        plan.live[ranks[place]] = {name: e for name, value in cells.items()
                                   if (e := shown(found, value)) is not None}
        for pool in found.option.pools:
            if pool.step is not None:
                gpu, usable = pool.step.hardware.gpu, pool.step.usable_gib
                plan.live[ranks[place], pool.plan.role] = {
                    "physical_gib": gpu["memory_gib"], "usable_gib": usable,
                    "kv_pool_gib": pool.step.pool_gib, "headroom": pool.step.pool_gib / usable,
                    "max_sequences": pool.step.memory_cap}
