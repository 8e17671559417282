"""Operating points as the planner writes them: columns for options that do not calculate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.workbook import words
from planner.workbook.layout import Column
from planner.workbook.plan import Plan

LABELS: dict[str, tuple[str, float, str]] = {
    "option_rank": ("Rank", 6, "rank"),
    "setup": ("Set-up", 14, "short"),
    "role": ("Pool", 9, "short"),
    "gpu": ("GPU", 20, "short"),
    "weights": ("Weights", 9, "short"),
    "kv": ("KV cache", 8, "short"),
    "tensor_parallel": ("Tensor parallel", 9, "count"),
    "pipeline_parallel": ("Pipeline parallel", 9, "count"),
    "expert_parallel": ("Expert parallel", 9, "count"),
    "data_parallel": ("Data parallel", 9, "count"),
    "token_budget": ("Token budget [tokens]", 8, "count"),
    "batch_size": ("Batch size", 7, "count"),
    "utilization": ("Utilisation [%]", 10, "percent1"),
    "requests_per_s": ("Requests per second [1/s]", 10, "three"),
    "step_ms": ("Step time [ms]", 9, "one"),
    "tpot_ms": ("TPOT [ms]", 8, "one"),
    "itl_ms": ("Gap between tokens [ms]", 9, "one"),
    "ttft_ms": ("TTFT [ms]", 10, "one"),
    "kv_gib_per_gpu": ("KV cache per GPU [GiB]", 9, "two"),
    "kv_pool_share": ("Share of KV pool [%]", 9, "percent1"),
    "mfu": ("MFU [%]", 7, "percent1"),
    "mbu": ("MBU [%]", 7, "percent1"),
    "bound": ("Bound by", 15, "short"),
    "share_of_time": ("Share of time [%]", 9, "percent1"),
    "feasible": ("Holds targets", 9, "short"),
}
"""Label, width and style of the columns that the planner writes."""
SECONDARY = ("weights", "kv", "tensor_parallel", "pipeline_parallel", "expert_parallel",
             "data_parallel", "token_budget")
"""Columns that are the same in all rows of a pool: last on the sheet."""


def columns_of(plan: Plan) -> list[Column]:
    """The columns of the points: what changes with the load first."""
    given = [str(n) for n in plan.points.get("columns") or []]
    names = sorted(given, key=lambda name: name in SECONDARY)
    return [_column(plan, given.index(name), name) for name in names]


def _column(plan: Plan, place: int, name: str) -> Column:
    label, width, style = LABELS.get(name, (words.spaced(name).capitalize(), 11, "figure"))
    shown: Callable[[Any], Any] = {"gpu": plan.gpu_name, "setup": words.setup}.get(
        name, lambda value: value)
    return Column(label, lambda row: shown(row[place]) if row[place] is not None else None,
                  width, style)
