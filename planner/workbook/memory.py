"""The Memory sheet: every line of each pool's memory budget, on the fullest GPU."""

from __future__ import annotations

from typing import Any

from planner.workbook import words
from planner.workbook.charts import memory_chart
from planner.workbook.layout import Column, Page, data_sheet, key, number, set_up
from planner.workbook.options import NOTHING, pools
from planner.workbook.plan import Plan, Row

NAME = "Memory"
LINES = (("weights_gib", "Weights [GiB]"), ("activation_gib", "Activations [GiB]"),
         ("runtime_gib", "Runtime [GiB]"), ("graphs_gib", "Graphs [GiB]"),
         ("draft_gib", "Draft model [GiB]"), ("kv_pool_gib", "KV pool [GiB]"))
"""What fills the usable memory; stacked in the chart."""
MOST_BARS = 12
MEASURED = "The workers' rates were measured, so their memory was not modelled."


def write(page: Page, plan: Plan, book: Any) -> None:
    """Fill the sheet: one row a pool, and a chart of where the memory goes."""
    set_up(page, plan.name, NAME)
    rows = [{**p, **p["memory"]} for p in pools(plan) if p.get("memory")]
    columns = _columns(plan)
    last = data_sheet(page, columns, rows, MEASURED if plan.options else NOTHING, frozen=2,
                      engine=True)
    if not rows:
        return
    first_line = next(i for i, c in enumerate(columns) if c.label == LINES[0][1])
    series = [(label.removesuffix(" [GiB]"), first_line + i)
              for i, (name, label) in enumerate(LINES) if any(number(r.get(name)) for r in rows)]
    bars = min(last, MOST_BARS)
    chart = memory_chart(book, NAME, series, 0, bars)
    chart.set_size({"width": 620, "height": max(240, 110 + 34 * bars)})
    top = last + 2
    page.sheet.insert_chart(top, 0, chart, {
        "x_offset": 4, "description": "Stacked bars of the memory lines of each pool; the figures "
        "are in the table above"})
    page.sheet.print_area(0, 0, top + max(240, 110 + 34 * bars) // 17 + 1, len(columns) - 1)


def _columns(plan: Plan) -> list[Column]:
    return [
        Column("Pool", _label, 24.5, "text"),
        Column("GPU", lambda p: plan.gpu_name(p.get("gpu")), 18, "text"),
        Column("Layout", words.degrees, 14.5, "text"),
        Column("Physical memory [GiB]", _live(plan, "physical_gib"), 10, "two"),
        Column("Usable by the engine [GiB]", _live(plan, "usable_gib"), 10, "two"),
        *(Column(label, _live(plan, name), 10, "two") for name, label in LINES),
        Column("KV cache per token [B]", key("kv_bytes_per_token"), 10),
        Column("KV tokens per replica", key("kv_tokens"), 10),
        Column("Most sequences", _live(plan, "max_sequences"), 10),
        Column("Headroom [%]", _live(plan, "headroom", _headroom), 10, "percent"),
        Column("Fits", key("fits"), 6, "text"),
    ]


def _live(plan: Plan, name: str, of: Any = None) -> Any:
    """A line of a pool: its formula where the option calculates, else the plan's value."""
    value = key(name) if of is None else of

    def found(pool: Row) -> Any:
        cell = plan.live.get((pool.get("rank"), pool.get("role")), {}).get(name)
        return value(pool) if cell is None else cell
    return found


def _label(pool: Row) -> str:
    return f"{pool.get('rank')} {words.setup(pool.get('setup'))}, {pool.get('role')}"


def _headroom(pool: Row) -> float | None:
    """Share of the usable memory that is left for the cache; negative: does not fit."""
    room, usable = number(pool.get("kv_pool_gib")), number(pool.get("usable_gib"))
    return room / usable if room is not None and usable else None
