"""``flask catalog export`` and ``import``: the catalog as JSON, xlsx or CSV."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from flask.cli import with_appcontext

from planner.cli import fail, one_line_errors

NAMES = ("gpus", "models", "prices", "engines")
FORMS = ("json", "xlsx", "csv")
_TABLE = click.option("--table", type=click.Choice(NAMES), help="Only this table.")
SHOWN = 20
"""Changed rows of a table that are printed."""


@click.command("export")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path),
              help="File to write; its ending may give the form. Standard output otherwise.")
@click.option("--format", "form", type=click.Choice(FORMS), help="Default: json.")
@_TABLE
@with_appcontext
@one_line_errors
def export(output: Path | None, form: str | None, table: str | None) -> None:
    """Write the stored catalog as JSON or xlsx, or one table of it as CSV."""
    ending = output.suffix.lstrip(".").lower() if output else ""
    form = form or (ending if ending in FORMS else "json")
    if form == "csv" and table is None and output is not None and output.stem in NAMES:
        table = output.stem
    if form == "csv" and table is None:
        fail(f"CSV holds one table; name it with --table ({', '.join(NAMES)})", 2)
    names = NAMES if table is None else (table,)
    body = _written(form, names)
    if output is not None:
        output.write_bytes(body)
    elif form == "xlsx":
        fail("an xlsx needs a file: --output FILE.xlsx", 2)
    else:
        click.echo(body.decode(), nl=False)


def _written(form: str, names: Iterable[str]) -> bytes:
    from planner.api.catalog_exchange import as_csv, as_xlsx
    from planner.extensions import db

    if form == "xlsx":
        return as_xlsx(db.session, list(names))
    if form == "csv":
        return b"".join(as_csv(db.session, name) for name in names)
    return _as_json(set(names))


def _as_json(names: set[str]) -> bytes:
    from planner.catalog.store import TABLES, row_fields
    from planner.extensions import db
    from planner.plain import plain

    document = {t.__tablename__: [row_fields(r) for r in db.session.query(t)] for t in TABLES
                if t.__tablename__ in names}
    return (json.dumps(plain(document), indent=1) + "\n").encode()


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@_TABLE
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@with_appcontext
@one_line_errors
def import_file(file: Path, table: str | None, dry_run: bool) -> None:
    """Take an edited xlsx, CSV or JSON of the catalog: adds and changes rows, removes none."""
    from planner.api.catalog_exchange import apply, compare
    from planner.extensions import db

    sheets, ignored = _sheets(file, table)
    changes = compare(db.session, sheets)
    for name in ignored:
        click.echo(f"note: sheet {name!r} is no table of the catalog and was not read", err=True)
    for change in changes:
        _print(change.document())
    if dry_run:
        click.echo("dry run: nothing was written")
    else:
        apply(db.session, changes)


def _sheets(file: Path, table: str | None) -> tuple[dict[str, Any], list[str]]:
    from planner.api.catalog_files import sheets_of, sheets_of_json

    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    start = data[:3].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"{"):
        return sheets_of_json(data.decode("utf-8-sig", "replace"),
                              NAMES if table is None else (table,)), []
    if table is None and not data.startswith(b"PK"):
        if file.stem not in NAMES:
            fail(f"{file}: CSV holds one table; name it with --table ({', '.join(NAMES)})", 2)
        table = file.stem
    return sheets_of(data, NAMES if table is None else (table,))


def _print(change: dict[str, Any]) -> None:
    click.echo(f"{change['table']}: {len(change['added'])} added, {len(change['changed'])} "
               f"changed, {change['unchanged']} unchanged, {change['not_in_file']} not in the file "
               "and kept")
    for name in change["ignored_columns"]:
        click.echo(f"note: column {name!r} is none of {change['table']} and was not read", err=True)
    for key in change["added"][:SHOWN]:
        click.echo(f"  + {key}")
    for row in change["changed"][:SHOWN]:
        fields = ", ".join(f"{f['field']} {_short(f['old'])} -> {_short(f['new'])}"
                           for f in row["fields"])
        click.echo(f"  ~ {row['key']}: {fields}")
    more = max(len(change["added"]) - SHOWN, 0) + max(len(change["changed"]) - SHOWN, 0)
    if more:
        click.echo(f"  and {more} more")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"
