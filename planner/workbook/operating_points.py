"""The sheets Operating points and Load curve: the rows behind every option, and their shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planner.workbook import words
from planner.workbook.charts import curve_chart, sheet_range
from planner.workbook.layout import Column, Page, data_sheet, number, set_up
from planner.workbook.plan import Plan, Target
from planner.workbook.styles import BAD_FILL, BAD_TEXT

NAME, CURVE = "Operating points", "Load curve"
NOTHING = "No operating points: nothing was sized, or the workers' rates were measured."
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
"""Columns that are the same in all rows of a pool: last on the sheet, and not printed."""
CURVE_WIDTHS = (26, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12)
CHART_SIZE = {"width": 512, "height": 380}


def write(page: Page, plan: Plan) -> None:
    """Fill the sheet Operating points: one row a batch size (or utilisation) of a pool."""
    set_up(page, plan.name, NAME)
    given, names = list(plan.points.get("columns") or []), shown_names(plan)
    columns = [_column(plan, given.index(name), name) for name in names]
    if not columns:
        page.write(0, 0, NOTHING, "label")
        return
    printed = [n for n in names if n not in SECONDARY]
    last = data_sheet(page, columns, plan.points.get("rows") or [], NOTHING, frozen=4,
                      printed=len(printed))
    _mark_infeasible(page, names, last)
    found = _best_run(plan)
    if found:
        page.sheet.print_area(found[0] + 1, 0, found[1] + 1, len(printed) - 1)


def shown_names(plan: Plan) -> list[str]:
    """The columns of the points as the sheet orders them: what changes with the load first."""
    names = [str(n) for n in plan.points.get("columns") or []]
    return sorted(names, key=lambda name: name in SECONDARY)


def _best_run(plan: Plan) -> tuple[int, int] | None:
    """First and last row of the recommended option."""
    names = list(plan.points.get("columns") or [])
    if plan.best is None or "option_rank" not in names:
        return None
    place, wanted = names.index("option_rank"), plan.best.get("rank")
    hits = [i for i, row in enumerate(plan.points.get("rows") or []) if row[place] == wanted]
    return _run(hits) if hits else None


def _column(plan: Plan, place: int, name: str) -> Column:
    label, width, style = LABELS.get(name, (words.spaced(name).capitalize(), 11, "figure"))
    shown: Callable[[Any], Any] = {"gpu": plan.gpu_name, "setup": words.setup}.get(
        name, lambda value: value)
    return Column(label, lambda row: shown(row[place]) if row[place] is not None else None,
                  width, style)


def _mark_infeasible(page: Page, names: list[str], last: int) -> None:
    """Grey-red rows that break a target or do not fit."""
    if "feasible" not in names:
        return
    letter = sheet_range(NAME, 1, names.index("feasible")).split("$")[1]
    page.sheet.conditional_format(1, 0, last, len(names) - 1, {
        "type": "formula", "criteria": f'=${letter}2="no"',
        "format": page.mark({"bg_color": BAD_FILL, "font_color": BAD_TEXT})})


# -- load curve -------------------------------------------------------------------------------


def write_curve(page: Page, plan: Plan, book: Any) -> None:
    """Fill the sheet Load curve: latency against load of the recommended option."""
    set_up(page, plan.name, CURVE, pages_high=1)
    page.widths(CURVE_WIDTHS)
    page.write(0, 0, "Latency against load, recommended option", "heading")
    page.write(1, 0, "Each point is one row of the sheet Operating points: a replica that runs "
               "at that batch size, or at that utilisation.", "label")
    page.sheet.freeze_panes(2, 0)
    placed = 0
    for metric, label in (("tpot", "Time per output token"), ("ttft", "Time to first token")):
        found = best_rows(plan, metric)
        if found:
            _one_curve(page, plan, book, metric, label, found, placed)
            placed += 1
    if not placed:
        page.write(3, 0, NOTHING, "label")
    page.sheet.print_area(0, 0, 32, len(CURVE_WIDTHS) - 1)


def best_rows(plan: Plan, metric: str) -> tuple[int, int] | None:
    """First and last row (from 0, without the header) of the pool that sets a latency.

    Only rows that have the latency, and only the run of the first such pool.
    """
    names = list(plan.points.get("columns") or [])
    needed = ("option_rank", "role", "requests_per_s", f"{metric}_ms")
    if plan.best is None or any(n not in names for n in needed):
        return None
    rank, role, rate, figure = (names.index(n) for n in needed)
    wanted = plan.best.get("rank")
    hits = [i for i, r in enumerate(plan.points["rows"]) if r[rank] == wanted
            and number(r[rate]) is not None and number(r[figure]) is not None]
    pool = [i for i in hits if plan.points["rows"][i][role] == plan.points["rows"][hits[0]][role]]
    return _run(pool) if len(pool) > 1 else None


def _run(places: Sequence[int]) -> tuple[int, int]:
    """The first stretch of consecutive numbers."""
    last = places[0]
    for place in places[1:]:
        if place != last + 1:
            break
        last = place
    return places[0], last


def _one_curve(page: Page, plan: Plan, book: Any, metric: str, label: str,
               found: tuple[int, int], place: int) -> None:
    names = list(plan.points["columns"])
    x = names.index("requests_per_s")
    first, last = found[0] + 1, found[1] + 1
    curve = (_points_range(plan, "requests_per_s", first, last),
             _points_range(plan, f"{metric}_ms", first, last))
    rates = [number(r[x]) or 0.0 for r in plan.points["rows"][found[0]:found[1] + 1]]
    target = plan.target(metric)
    line = _target_line(page, target, max(rates), place) if target else None
    role = plan.points["rows"][found[0]][names.index("role")]
    chart = curve_chart(book, f"{label} [ms], {role} pool", "ms", curve, line, label)
    chart.set_size(CHART_SIZE)
    page.sheet.insert_chart(7, 5 * place, chart, {
        "x_offset": 4, "description": f"{label} against requests per second of one replica, with "
        "its target; the figures are on the sheet Operating points"})


def _points_range(plan: Plan, name: str, first: int, last: int) -> str:
    return sheet_range(NAME, first, shown_names(plan).index(name), last)


def _target_line(page: Page, target: Target, rate: float, place: int) -> tuple[str, str]:
    """Two cells for each end of the target's line, shown above the charts."""
    row = 4 + place
    if not place:
        for column, label in enumerate(("Target line", "From [1/s]", "To [1/s]", "From [ms]",
                                        "To [ms]")):
            page.write(3, column, label, "header", "count" if column else "text")
    page.write(row, 0, words.target(target), "cell", "text")
    for column, value, style in ((1, 0.0, "two"), (2, rate, "two"), (3, target.limit_ms, "one"),
                                 (4, target.limit_ms, "one")):
        page.write(row, column, value, "cell", style)
    return (sheet_range(CURVE, row, 1, row, 2), sheet_range(CURVE, row, 3, row, 4))
