"""The Inputs sheet: what was asked, in named cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.workbook import words
from planner.workbook.charts import sheet_range
from planner.workbook.layout import Page, clean, lines, number, or_na, set_up
from planner.workbook.plan import Plan, Row

NAME = "Inputs"
WIDTHS = (34, 34, 20, 30, 70)
HEADER = ("Input", "Value", "Unit", "Cell name", "Meaning")
Line = tuple[str, Any, str, str, str, str]
"""Label, value, unit, cell name (or empty), style, meaning."""


def write(page: Page, plan: Plan, book: Any) -> None:
    """Fill the sheet and name its cells."""
    set_up(page, plan.name, NAME, pages_high=1)
    page.widths(WIDTHS)
    for place, label in enumerate(HEADER):
        page.write(0, place, label, "text" if place != 1 else "count", "header")
    row = 1
    for heading, found in _blocks(plan):
        page.write(row, 0, heading, "heading")
        page.height(row, 1.6)
        row += 1
        for line in found:
            _line(page, row, line, book)
            row += 1
    page.sheet.freeze_panes(1, 1)
    page.sheet.repeat_rows(0)
    page.sheet.print_area(0, 0, row - 1, len(WIDTHS) - 1)


def _line(page: Page, row: int, line: Line, book: Any) -> None:
    label, value, unit, name, style, meaning = line
    page.write(row, 0, label, "cell", "text")
    stated = or_na(value) if name else value
    page.write(row, 1, stated, "cell", style)
    for column, text in ((2, unit), (3, name), (4, meaning)):
        page.write(row, column, text, "cell", "text")
    page.height(row, max(lines(clean(text), WIDTHS[column])
                         for column, text in ((0, label), (1, value), (4, meaning))))
    if name:
        book.define_name(name, sheet_range(NAME, row, 1))


def _blocks(plan: Plan) -> Iterator[tuple[str, list[Line]]]:
    yield "Workload", list(_workload(plan))
    yield "Latency targets", list(_targets(plan))
    yield "Limits", list(_limits(plan.request.get("limits") or {}))
    yield "Price", list(_prices(plan))
    yield "What was tried", list(_tried(plan))


def _workload(plan: Plan) -> Iterator[Line]:
    prompt, output = plan.tokens("prompt"), plan.tokens("output")
    stated = plan.request.get("workload") or {}
    for field, label, unit in (("requests_per_day", "Requests per day", "1/day"),
                               ("peak_hour_share", "Share of the day in its peak hour", ""),
                               ("concurrent_users", "Users at the same time", ""),
                               ("think_time_s", "Pause between requests of a user", "s")):
        if number(stated.get(field)) is not None:
            yield label, stated[field], unit, "", "figure", ""
    yield ("Requests per second", plan.requests_per_second, "1/s", "in_requests_per_second",
           "figure", "arrivals at the peak")
    yield ("Prompt tokens, mean", prompt[0], "tokens", "in_prompt_tokens_mean", "figure",
           "length of a prompt, cached part included")
    yield ("Prompt tokens, 95th percentile", prompt[1], "tokens", "in_prompt_tokens_p95",
           "figure", "95 of 100 prompts are no longer than this")
    yield ("Output tokens, mean", output[0], "tokens", "in_output_tokens_mean", "figure",
           "length of an answer")
    yield ("Output tokens, 95th percentile", output[1], "tokens", "", "figure", "")
    yield ("Prefix-cache hit rate", stated.get("prefix_cache_hit_rate"), "share",
           "in_prefix_cache_hit_rate", "percent1", "share of prompt tokens found in the cache")
    yield ("Arrival CV", stated.get("arrival_cv"), "", "", "figure",
           "burstiness: 1 = arrivals at random, more = burstier")


def _targets(plan: Plan) -> Iterator[Line]:
    found = plan.targets()
    named = {"ttft": ("Time to first token", "in_ttft_ms"),
             "tpot": ("Time per output token", "in_tpot_ms"),
             "itl": ("Gap between tokens", ""), "e2e": ("Whole request", "")}
    for metric, (label, name) in named.items():
        target = plan.target(metric)
        if target or name:
            meaning = f"at the {target.percentile:g}th percentile" if target else "no target set"
            yield label, target.limit_ms if target else None, "ms", name, "figure", meaning
    level = found[0].percentile if found else None
    same = len({t.percentile for t in found}) < 2
    yield ("Percentile", level, "% of requests", "in_percentile", "figure",
           "share of requests that must hold the targets" if same
           else "of the first target; the others have their own, see above")


def _limits(limits: Row) -> Iterator[Line]:
    yield ("Target utilisation", limits.get("target_utilization"), "share",
           "in_target_utilization", "percent1", "share of the capacity that is planned on")
    yield ("Spare replicas", limits.get("spare_replicas"), "", "in_spare_replicas", "count",
           "for each pool, kept for failures")
    for field, label in (("regions", "Regions"), ("max_gpus", "Most GPUs"),
                         ("max_tensor_parallel", "Largest tensor parallel"),
                         ("max_pipeline_parallel", "Largest pipeline parallel"),
                         ("max_sequences", "Most sequences at once"),
                         ("memory_utilization", "Memory utilisation")):
        if number(limits.get(field)) is not None:
            yield label, limits[field], "", "", "figure", ""


def _prices(plan: Plan) -> Iterator[Line]:
    best = plan.best
    if best is None:
        rows = plan.prices()
        yield ("Price", rows[0].get("usd_per_gpu_hour") if len(rows) == 1 else None,
               "USD per GPU-hour", "in_usd_per_gpu_hour", "price",
               words.price(plan, rows[0]) if len(rows) == 1 else "no option is recommended")
        for row in rows if len(rows) > 1 else []:
            yield _price_line(plan, row, "Price", "")
        return
    rows = plan.prices(best)
    by_gpu = {r.get("gpu"): r for r in rows}
    pools = best.get("pools") or []
    if len({p.get("gpu") for p in pools}) < 2:
        yield (_price_line(plan, rows[0], "Price", "in_usd_per_gpu_hour") if rows else
               ("Price", None, "USD per GPU-hour", "in_usd_per_gpu_hour", "price",
                "no price is known"))
    else:
        yield from _two_prices(plan, best, by_gpu)
    pricing = plan.request.get("pricing") or {}
    yield ("Commitment", words.spaced(pricing.get("commitment")), "", "", "text",
           "how the GPU-hours are bought")


def _two_prices(plan: Plan, best: Row, by_gpu: dict[Any, Row]) -> Iterator[Line]:
    for pool in best.get("pools") or []:
        role, row = pool.get("role"), by_gpu.get(pool.get("gpu"))
        name = f"in_{role}_usd_per_gpu_hour"
        yield (_price_line(plan, row, f"Price, {role} pool", name) if row else
               (f"Price, {role} pool", None, "USD per GPU-hour", name, "price",
                "no price is known"))
    hourly, gpus = number(best.get("usd_per_hour")), number(best.get("gpus"))
    mean = hourly / gpus if hourly is not None and gpus else None
    yield ("Price, average", mean, "USD per GPU-hour", "in_usd_per_gpu_hour", "price",
           "over all GPUs of the recommended option")


def _price_line(plan: Plan, row: Row, label: str, name: str) -> Line:
    return (label, row.get("usd_per_gpu_hour"), "USD per GPU-hour", name, "price",
            words.price(plan, row))


def _tried(plan: Plan) -> Iterator[Line]:
    request = plan.request
    lists = (("Model", plan.model),
             ("GPUs", ", ".join(plan.gpu_name(g) for g in request.get("gpus") or [])),
             ("Set-ups", ", ".join(words.setup(s) for s in request.get("setups") or [])),
             ("Precisions", ", ".join(map(_precision, request.get("precisions") or []))),
             ("Engine", clean(request.get("engine") or "")),
             ("Objective", f"lowest {words.spaced(request.get('objective'))}"),
             ("Fidelity", words.spaced(request.get("fidelity"))))
    for label, text in lists:
        yield label, text, "", "", "text", ""


def _precision(pair: Row) -> str:
    return words.precision(pair) or "what the model ships in"
