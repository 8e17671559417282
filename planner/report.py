"""Plans and estimates as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.wording import gpus as gpus_text

Document = Mapping[str, Any]
_CSV_FIELDS = ("rank", "setup", "weights", "kv", "gpus", "nodes", "usd_per_hour", "usd_per_month",
               "usd_per_million_tokens", "power_kw", "limited_by")
_LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


def layout(pool: Document) -> str:
    """A pool in short: replicas, GPU and the degrees of parallelism above one."""
    names = {"tensor_parallel": "tp", "pipeline_parallel": "pp", "expert_parallel": "ep",
             "data_parallel": "dp"}
    degrees = [f"{short}{pool[name]}" for name, short in names.items() if (pool.get(name) or 1) > 1]
    return " ".join([f"{pool.get('replicas', '?')}x {pool.get('gpu', '?')}", *degrees])


def option_rows(plan: Document) -> list[list[Any]]:
    """The options of a plan as rows under a header, for CSV."""
    quantiles = [(m, q) for m in _LATENCIES for q in ("p50", "p90", "p99")]
    header = [*_CSV_FIELDS, "layout", *(f"{m.removesuffix('_ms')}_{q}_ms" for m, q in quantiles)]
    rows = [[*(option.get(f) for f in _CSV_FIELDS),
             " + ".join(map(layout, option.get("pools", []))),
             *((option.get(m) or {}).get(q) for m, q in quantiles)]
            for option in plan["options"]]
    return [header, *rows]


def print_plan(plan: Document, console: Console | None = None, most: int = 10) -> None:
    """Print a plan: its best options, why the first wins, and what cannot work.

    Parameters
    ----------
    plan : mapping
        The body that ``POST /plans`` answers.
    console : Console, optional
    most : int
        Options to show.
    """
    console = console or Console()
    if plan["options"]:
        console.print(_options_table(plan["options"][:most], _levels(plan)))
        for line in summary_lines(plan):
            console.print(line, highlight=False)
    else:
        console.print("Nothing meets the targets.", style="bold")
    if plan.get("reason"):
        console.print(plan["reason"], highlight=False)
    for reason, count in _reasons(plan["infeasible"]):
        console.print(f"not possible: {reason} ({count} combinations)", highlight=False)
    for advice in plan["advice"]:
        console.print(f"advice: {advice.get('message', '')}", highlight=False)


def _levels(plan: Document) -> dict[str, str]:
    """The percentile of each latency target, the 90th where there is none."""
    slo = (plan.get("request") or {}).get("slo") or {}
    common = slo.get("percentile", 90)
    return {m: f"p{slo.get(f'{m}_percentile', common):g}" for m in ("ttft", "tpot")}


def _options_table(options: Sequence[Document], levels: Mapping[str, str]) -> Table:
    several = len({(o.get("weights"), o.get("kv")) for o in options}) > 1
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold",
                  caption=f"TTFT: {levels['ttft']}, TPOT: {levels['tpot']}, in ms",
                  caption_justify="left")
    left = ("setup", "wt/kv", "layout", "limit")
    for name in ("#", "setup", "wt/kv", "GPUs", "layout", "USD/h", "TTFT", "TPOT", "limit"):
        if several or name != "wt/kv":
            table.add_column(name, justify="left" if name in left else "right", overflow="fold",
                             no_wrap=name == "layout")
    for option in options:
        precision = [_precision(option)] if several else []
        table.add_row(
            str(option.get("rank", "")), str(option.get("setup", "")), *precision,
            str(option.get("gpus", "")), "\n".join(map(layout, option.get("pools", []))),
            _money(option.get("usd_per_hour")), _ms(option, "ttft", levels),
            _ms(option, "tpot", levels), str(option.get("limited_by") or ""))
    return table


def _precision(option: Document) -> str:
    weights, kv = str(option.get("weights")), str(option.get("kv"))
    return weights if weights == kv else f"{weights}/{kv}"


def summary_lines(plan: Document) -> list[str]:
    """The recommended option decomposed, its money, and how sure it is: one line each."""
    best = plan["options"][0]
    lines = []
    for pool in best.get("pools", []):
        spare = f", {pool['spare_replicas']} of them spare" if pool.get("spare_replicas") else ""
        running = pool.get("concurrency_mean")
        busy = "" if running is None else f"; {running:,.0f} sequences at once on each"
        role = pool.get("role", "serve")
        lines.append(f"{role}: {gpus_text(pool['gpus'])} = {layout(pool)}{spare}{busy}")
    if best.get("usd_per_month") is not None:
        lines.append(f"cost: {_money(best['usd_per_hour'])} USD/h, {best['usd_per_month']:,.0f} "
                     f"USD/month; {_price_words(best.get('prices') or [])}")
    lines += [f"warning: {words}" for words in best.get("warnings") or []]
    sure = best.get("confidence") or {}
    if sure.get("gpus_low") is not None:
        lines.append(f"confidence: {sure['level']}, {sure['gpus_low']} to "
                     f"{gpus_text(sure['gpus_high'])} if step times were off by "
                     f"{sure['tpot_error']:.0%}")
    return lines


def _price_words(prices: Sequence[Document]) -> str:
    return ", ".join(f"{p['gpu']} at {p['usd_per_gpu_hour']:g} ({p['provider']}, {p['as_of']}; "
                     f"market {p['usd_per_gpu_hour_low']:g} to {p['usd_per_gpu_hour_high']:g})"
                     for p in prices)


def _reasons(infeasible: Iterable[Document]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for row in infeasible:
        counts[row["reason"]] = counts.get(row["reason"], 0) + 1
    return sorted(counts.items(), key=lambda pair: -pair[1])


def print_estimate(document: Document, console: Console | None = None) -> None:
    """Print an estimate: the step, what binds it, its terms and the memory of one GPU."""
    console = console or Console()
    for step in document.get("steps") or [document]:
        console.print(f"step {_number(step.get('step_ms'))} ms, bound by {step.get('bound')}",
                      highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("term", "ms", "bound"):
        table.add_column(name, justify="right" if name == "ms" else "left")
    for term in document.get("terms") or []:
        table.add_row(str(term.get("name")), _number(term.get("ms")), str(term.get("bound")))
    if table.row_count:
        console.print(table)
    for name, value in (document.get("memory") or {}).items():
        console.print(f"{name}: {value if isinstance(value, bool) else _number(value)}",
                      highlight=False)


def _ms(option: Document, metric: str, levels: Mapping[str, str]) -> str:
    return _number((option.get(f"{metric}_ms") or {}).get(levels[metric]))


def _money(value: Any) -> str:
    return "–" if value is None else f"{value:,.2f}"


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)
