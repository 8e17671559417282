"""Commands of ``flask --app app``; they need no running server."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click
from flask import Flask, current_app
from flask.cli import AppGroup, with_appcontext
from sqlalchemy.exc import SQLAlchemyError

from planner.api.problems import Problem
from planner.api.validation import InvalidDocument, NotJson, json_of
from planner.errors import PlannerError

P = ParamSpec("P")
R = TypeVar("R")
catalog_cli = AppGroup("catalog", help="The stored catalog.")
_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))


CLOSED_PIPE = 141
"""Exit code after SIGPIPE, as of any command whose reader went away."""


def fail(message: str, code: int = 1) -> NoReturn:
    """End with one line on stderr."""
    click.echo(f"error: {message}", err=True)
    sys.exit(code)


def one_line_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn what input or the database can cause into one clear line and a non-zero exit."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except InvalidDocument as error:
            fail("; ".join(f"{p or 'the document'}: {m}" for p, m in error.errors), 2)
        except PlannerError as error:
            fail(f"{error.pointer or 'the document'}: {error.message}", 2)
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            fail(f"the database cannot be used ({reason}); run: flask db upgrade")
        except Problem as error:
            fail(error.detail, 2)
        except BrokenPipeError:  # the reader, `head` say, has had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(CLOSED_PIPE)
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}")
        except Exception as error:
            if current_app.config["PLANNER_LOG_LEVEL"] == "debug":
                raise
            fail(f"something broke here ({type(error).__name__}: {error}); "
                 "PLANNER_LOG_LEVEL=debug shows where", 70)

    return wrapper


def read_document(path: Path) -> Any:
    """A JSON file, or standard input for ``-``."""
    try:
        return json_of(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())
    except NotJson as error:
        fail(f"{path}: not JSON: {error}", 2)


@catalog_cli.command("load")
@click.option("--force", is_flag=True, help="Also overwrite rows that were edited.")
@one_line_errors
def load(force: bool) -> None:
    """Bring the database up to the shipped catalog; rows edited by hand are kept."""
    from planner.catalog.store import load_catalog
    from planner.extensions import db

    for table, report in load_catalog(db.session, force).items():
        click.echo(f"{table}: {report.added} added, {report.changed} changed, "
                   f"{report.unchanged} unchanged, {report.kept} edited and kept")


@click.command("import-model")
@_FILE
@click.option("--slug", help="Name in the catalog; default: from the Hugging Face id or file.")
@click.option("--hf-id", help="Hugging Face id.")
@with_appcontext
@one_line_errors
def import_model(file: Path, slug: str | None, hf_id: str | None) -> None:
    """Add a model from its config.json."""
    from planner.api.models import ModelInSchema, columns
    from planner.api.validation import load_document

    config = read_document(file)
    if not (isinstance(config, dict) and "hf_config" in config):
        config = {"slug": slug or _slug_of(hf_id, config, file), "hf_config": config}
    if hf_id:
        config["hf_id"] = hf_id
    row = columns(load_document(ModelInSchema(), config))
    _store_model(row)
    click.echo(f"{row['slug']}: {row['architecture']}")


def _slug_of(hf_id: str | None, config: Any, file: Path) -> str:
    from planner.architectures import slug_of

    named = config.get("_name_or_path") if isinstance(config, dict) else None
    # A config lies in a directory named after its model as often as it carries the name itself.
    stem = file.resolve().parent.name if file.stem == "config" else file.stem
    return slug_of(hf_id or (named if isinstance(named, str) else None) or stem.split("__")[-1])


def _store_model(row: dict[str, Any]) -> None:
    from models import LlmRow
    from planner.api.models import refuse_taken_names
    from planner.extensions import db

    refuse_taken_names(row, own="")
    db.session.add(LlmRow(**row))
    db.session.commit()


@click.command("plan")
@_FILE
@click.option("--workbook", type=click.Path(dir_okay=False, path_type=Path),
              help="Also write the plan as an xlsx file.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the options as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
@with_appcontext
@one_line_errors
def plan(file: Path, workbook: Path | None, as_csv: bool, as_json: bool) -> None:
    """Plan the fleet that FILE (the JSON of a plan request) asks for."""
    from planner.api.plan_schema import parse_plan
    from planner.api.plan_service import make
    from planner.report import option_rows, print_plan

    made = make(parse_plan(read_document(file), _saved_workload, _trace_workload), stored_catalog())
    if workbook is not None:
        from planner.workbook import write_plan

        workbook.write_bytes(write_plan(made.document, made.points, made.snapshot))
    if as_json:
        click.echo(json.dumps(made.document, indent=1))
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(option_rows(made.document))
    else:
        print_plan(made.document)


@click.command("estimate")
@_FILE
@click.option("--json", "as_json", is_flag=True, help="Print the whole estimate as JSON.")
@with_appcontext
@one_line_errors
def estimate(file: Path, as_json: bool) -> None:
    """Time and memory of the engine step that FILE (JSON) describes."""
    from planner.api.estimate_schema import parse_estimate
    from planner.api.plan_service import estimate as evaluate
    from planner.report import print_estimate

    document = evaluate(parse_estimate(read_document(file)), stored_catalog())
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        print_estimate(document)


def _saved_workload(slug: str) -> Any:
    from planner.api.workloads import saved_workload

    return saved_workload(slug)


def _trace_workload(slug: str) -> Any:
    from planner.api.traces import trace_workload

    return trace_workload(slug)


def stored_catalog() -> Any:
    """The stored catalog; the shipped one where nothing was loaded yet."""
    from planner.catalog.shipped import shipped_catalog
    from planner.catalog.store import catalog_from_db
    from planner.extensions import db

    try:
        stored = catalog_from_db(db.session)
    except SQLAlchemyError:
        stored = None
    if stored is not None and stored.gpus:
        return stored
    click.echo("note: no catalog is loaded; using the shipped one", err=True)
    return shipped_catalog()


def register_commands(app: Flask) -> None:
    """Give an app its commands."""
    from planner.cli_accuracy import accuracy, calibrate  # these need this module's helpers
    from planner.cli_budget import budget
    from planner.cli_catalog import export, import_file
    from planner.cli_jobs import simulate, sweep, work
    from planner.cli_spreadsheets import compare, plan_workbook, template

    for command in (export, import_file):
        catalog_cli.add_command(command)
    for command in (catalog_cli, import_model, plan, estimate, accuracy, calibrate, template,
                    plan_workbook, compare, budget, sweep, simulate, work):
        app.cli.add_command(command)
