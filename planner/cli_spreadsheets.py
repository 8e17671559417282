"""``flask template``, ``plan-workbook`` and ``compare``: spreadsheets in, plans side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from flask.cli import with_appcontext
from rich.console import Console
from rich.table import Table

from planner.cli import one_line_errors, read_document, stored_catalog
from planner.report import layout
from planner.wording import gpus as gpus_text

_OUT = click.argument("out", type=click.Path(dir_okay=False, path_type=Path))


@click.command("template")
@_OUT
@with_appcontext
@one_line_errors
def template(out: Path) -> None:
    """Write the workbook to fill in: one row a workload, drop-downs from the catalog."""
    from planner.workbook.template import write_template

    out.write_bytes(write_template(stored_catalog()))


@click.command("plan-workbook")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_OUT
@with_appcontext
@one_line_errors
def plan_workbook(file: Path, out: Path) -> None:
    """Plan every row of a filled template, FILE, and write the results to OUT.

    Nothing is stored. When a cell cannot be used nothing is written.
    """
    from planner.api.workbook_service import plan_workloads

    portfolio = plan_workloads(file.read_bytes(), stored_catalog())
    out.write_bytes(portfolio.workbook())
    document = portfolio.document()
    for note in document["notes"]:
        click.echo(f"note: {note}", err=True)
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("row", "name", "GPUs", "set-up", "USD/month", "limit"):
        table.add_column(name, justify="right" if name in ("row", "GPUs", "USD/month") else "left")
    for row in document["rows"]:
        table.add_row(str(row["row"]), row["name"][:40], _count(row["gpus"]),
                      row["setup"] or "none", _count(row["usd_per_month"]),
                      row["limited_by"] or "")
    console.print(table)
    sums = document["totals"]
    console.print(f"{sums['planned']} of {sums['workloads']} workloads planned: {sums['gpus']:,} "
                  f"GPUs on {sums['nodes']:,} nodes, {_count(sums['usd_per_month'])} USD/month",
                  highlight=False)


@click.command("compare")
@click.argument("plans", nargs=-1, required=True)
@click.option("--workbook", type=click.Path(dir_okay=False, path_type=Path),
              help="Also write the comparison as an xlsx file.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole comparison as JSON.")
@with_appcontext
@one_line_errors
def compare(plans: tuple[str, ...], workbook: Path | None, as_json: bool) -> None:
    """Compare PLANS side by side and say why the fleet moved.

    Each is the JSON file of a plan request, or the id of a stored plan. One file that holds
    "base" and "scenarios", or "plans", is taken as the whole comparison.
    """
    from planner.api.compare import find_stored
    from planner.api.compare_service import Sources, compare_plans
    from planner.api.traces import trace_workload
    from planner.api.workloads import saved_workload

    sources = Sources(stored_catalog(), find_stored, saved_workload, trace_workload)
    document, made = compare_plans(_request(plans), sources)
    if workbook is not None:
        from planner.workbook.compare import write_comparison

        workbook.write_bytes(write_comparison(document, [p.snapshot for p in made]))
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        _print(document, Console())


def _request(plans: tuple[str, ...]) -> dict[str, Any]:
    entries = [_entry(name) for name in plans]
    whole = len(entries) == 1 and isinstance(entries[0], dict)
    if whole and ("base" in entries[0] or "plans" in entries[0]):
        return dict(entries[0])
    return {"plans": entries}


def _entry(name: str) -> Any:
    """The document of a file, or the id of a stored plan."""
    path = Path(name)
    return read_document(path) if path.exists() or path.suffix == ".json" else name


def _print(document: dict[str, Any], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("#", "name", "GPUs", "layout", "USD/h", "USD/month"):
        table.add_column(name, justify="left" if name in ("name", "layout") else "right")
    for place, plan in enumerate(document["plans"], 1):
        best = plan["recommended"] or {}
        usd = best.get("usd_per_hour")
        table.add_row(str(place), plan["name"][:30], _count(best.get("gpus")),
                      "\n".join(map(layout, best.get("pools", []))) or "none",
                      "–" if usd is None else f"{usd:,.2f}", _count(best.get("usd_per_month")))
    console.print(table)
    for row in document["differences"]:
        values = " | ".join(_short(v) for v in row["values"])
        console.print(f"{row['field'].lstrip('/').replace('/', '.')}: {values}", highlight=False,
                      markup=False)
    for found in document["bridges"]:
        _print_bridge(found, console)


def _print_bridge(found: dict[str, Any], console: Console) -> None:
    head = f"plan 1 to plan {found['plan'] + 1}"
    if found["reason"]:
        console.print(f"{head}: {found['reason']}", highlight=False, markup=False)
        return
    console.print(f"{head}: {gpus_text(found['gpus_change'], '+,')}, "
                  f"{_signed(found['usd_per_month_change'])} USD/month", highlight=False)
    for step in found["steps"]:
        console.print(f"  {' and '.join(step['parts'])}: {gpus_text(step['gpus_change'], '+,')}, "
                      f"{_signed(step['usd_per_month_change'])} USD/month", highlight=False)


def _short(value: Any) -> str:
    text = "–" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _count(value: Any) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _signed(value: Any) -> str:
    return "–" if value is None else f"{value:+,.0f}"
