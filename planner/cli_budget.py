"""The command ``flask budget``."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from flask.cli import with_appcontext
from rich.console import Console
from rich.table import Table

from planner.cli import one_line_errors, read_document, stored_catalog
from planner.wording import gpus as gpus_text

FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))

KINDS = {"capacity": "GPUs more", "commitment": "GPUs to commit", "servers": "servers, if bought"}


@click.command("budget")
@FILE
@click.option("--workbook", type=click.Path(dir_okay=False, path_type=Path),
              help="Also write the budget as an xlsx file that recalculates.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the charges in FOCUS columns as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole budget as JSON.")
@with_appcontext
@one_line_errors
def budget(file: Path, workbook: Path | None, as_csv: bool, as_json: bool) -> None:
    """Budget the fleets that FILE (the JSON of a budget request) asks for, month by month."""
    from planner.api.budget_schema import parse_budget
    from planner.api.budget_service import focus_table, make
    from planner.api.traces import trace_workload
    from planner.api.workloads import saved_workload

    request = parse_budget(read_document(file), saved_workload, trace_workload)
    made = make(request, stored_catalog())
    if workbook is not None:
        from planner.workbook.budget import write_budget

        workbook.write_bytes(write_budget(made.document, made.model))
    if as_json:
        click.echo(json.dumps(made.document, indent=1))
    elif as_csv:
        table = focus_table(made)
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(table["columns"])
        writer.writerows(table["rows"])
    else:
        print_budget(made.document)


def print_budget(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a budget: its months, totals, scenarios, and what cannot be served."""
    console = console or Console()
    currency = document["billing_currency"]
    _print(console, ("month", "from", "1/s", "GPUs", "committed", "burst", f"cost {currency}"),
           [(m["month"], m["charge_period_start"], f"{m['requests_per_second']:,.1f}",
             f"{m['gpus']:,}", f"{m['committed_gpus']:,}", f"{m['burst_gpus']:,}",
             f"{m['effective_cost']:,.0f}") for m in document["months"]])
    totals = document["totals"]
    per_thousand = totals["cost_per_thousand_requests"]
    told = "" if per_thousand is None else f", {per_thousand:.4g} per 1,000 requests"
    console.print(f"Total {totals['effective_cost']:,.2f} {currency}{told}; commitments save "
                  f"{totals['savings']:,.2f}; at most {gpus_text(totals['peak_gpus'], ',')} "
                  f"(month {totals['peak_month']}).", highlight=False)
    _print(console, ("scenario", "GPUs at most", f"cost {currency}"),
           [(s["name"], f"{s['totals']['peak_gpus']:,}",
             f"{s['totals']['effective_cost']:,.0f}") for s in document["scenarios"]])
    for row in document["buy_or_rent"]:
        when = row["break_even_month"]
        console.print(f"buying {row['name']}: " + (
            "no break-even within the budget" if when is None
            else f"pays from month {when}"), highlight=False)
    for row in document["orders"][:5]:
        late = " (overdue)" if row["overdue"] else ""
        console.print(f"order by {row['order_by']}{late}: {row['count']:,} {KINDS[row['kind']]} "
                      f"({row['name']}) for {row['needed_from']}", highlight=False)
    for row in document["infeasible"]:
        console.print(f"not served: {row['name']}: {row['reason']}", highlight=False)


def _print(console: Console, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, justify="left" if name in ("from", "scenario") else "right")
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)
