"""Commands about accuracy: ``flask accuracy`` and ``flask calibrate``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from flask.cli import with_appcontext
from rich.console import Console
from rich.table import Table

from planner.cli import fail, one_line_errors, stored_catalog

_DEPLOYMENT = ("model", "gpu", "engine", "engine-version", "setup", "weights", "kv",
               "tensor-parallel", "pipeline-parallel", "expert-parallel", "data-parallel",
               "concurrency", "requests-per-second")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
Rows = Sequence[Sequence[Any]]


@click.command("accuracy")
@click.option("--by", help="Only this breakdown: gpu, engine, model, precision, setup, "
                           "concurrency or phase.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@with_appcontext
@one_line_errors
def accuracy(by: str | None, as_json: bool) -> None:
    """Predicted against measured on the published points that come with the project."""
    from planner.calibration.report import DIMENSIONS, accuracy_report

    if by is not None and by not in (*DIMENSIONS, "phase"):
        fail(f"--by must be one of {', '.join((*DIMENSIONS, 'phase'))}; not {by!r}", 2)
    report = accuracy_report(stored_catalog(), by)
    if as_json:
        click.echo(json.dumps(report, indent=1))
    else:
        print_report(report)


def print_report(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Print an accuracy report as tables."""
    console = console or Console()
    overall = [["all", metric, *_statistics(s)] for metric, s in report["overall"].items()]
    for name, found in report["by"].items():
        overall += [[f"{name} {row['name']}", row["metric"], *_statistics(row)] for row in found]
    _print(console, "Predicted against measured, published points",
           ("points of", "metric", "n", "coverage", "median", "mean", "p90", "bias"), overall)
    console.print(report["golden"]["note"], highlight=False)
    _print(console, "Output tokens/s per GPU, published throughput",
           ("points of", "n", "coverage", "median", "mean", "p90", "bias"),
           [[row["name"], *_statistics(row)] for row in report["throughput"]])
    _print(console, "Left out of the fit",
           ("kind", "name", "engine", "n", "TPOT median", "TPOT mean", "TTFT median"),
           [[r["kind"], r["name"], r["engine"], r["n"],
             *map(_percent, (r["tpot_median"], r["tpot_mean"], r["ttft_median"]))]
            for r in report["left_out"]])
    peer = report["peer"]
    console.print(
        f"{peer['name']} on {peer['points']} points: answers {_percent(peer['coverage'])}, "
        f"TPOT median {_percent(peer['tpot']['median_ape'])} "
        f"(mean {_percent(peer['tpot']['mean_ape'])}), "
        f"TTFT median {_percent(peer['ttft']['median_ape'])} "
        f"(mean {_percent(peer['ttft']['mean_ape'])}, bias {_percent(peer['ttft']['bias'])})",
        highlight=False)


def _statistics(row: Mapping[str, Any]) -> list[str]:
    shares = (row[n] for n in ("coverage", "median_ape", "mean_ape", "p90_ape", "bias"))
    return [str(row["points"]), *map(_percent, shares)]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _print(console: Console, title: str, names: Sequence[str], rows: Rows) -> None:
    if not rows:
        return
    table = Table(title=title, title_justify="left", box=None, pad_edge=False,
                  header_style="bold")
    words = ("points of", "metric", "kind", "name", "engine", "GPU", "profile", "code", "source",
             "reason")
    for name in names:
        table.add_column(name, justify="left" if name in words else "right", overflow="fold",
                         no_wrap=name in ("kind", "engine", "metric", "code"))
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def _deployment_options(command: Any) -> Any:
    for name in reversed(_DEPLOYMENT):
        command = click.option(f"--{name}", help="Where the results do not say it.")(command)
    return command


@click.command("calibrate")
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder of benchmark tables: fit all profiles.")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path),
              help="With --data: write the profiles as this CSV.")
@click.option("--results", type=_FILE, multiple=True,
              help="Result file of a benchmark (repeat for more): adjust a profile.")
@click.argument("files", type=_FILE, nargs=-1)
@_deployment_options
@click.option("--slug", help="Name of the new profile.")
@click.option("--save", "keep", is_flag=True, help="Store the profile in the catalog.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@with_appcontext
@one_line_errors
def calibrate(data: Path | None, write: Path | None, results: tuple[Path, ...],
              files: tuple[Path, ...], slug: str | None, keep: bool, as_json: bool,
              **deployment: str | None) -> None:
    """Fit all profiles to a data folder, or adjust one to result FILES of your own."""
    if (data is None) == (not results and not files):
        fail("give either --data DIR or --results FILE", 2)
    if data is not None:
        _from_folder(data, write)
        return
    options = {**deployment, "slug": slug, "save": "true" if keep else "false"}
    _from_results((*results, *files), options, as_json)


def _from_folder(data: Path, write: Path | None) -> None:
    from planner.calibration.run import calibrate as fit_folder
    from planner.calibration.run import write_profiles
    from planner.catalog.shipped import shipped_catalog

    found = fit_folder(data, shipped_catalog(), datetime.now(UTC).date())
    rows = [[f.engine, ", ".join(f.gpus), len(f.points), *map(_percent, (
        f.errors.tpot_train, f.errors.tpot_left_out, f.errors.ttft_left_out))]
        for f in found.fits]
    _print(Console(), "Fits", ("engine", "GPU", "points", "TPOT train", "TPOT left out",
                               "TTFT left out"), rows)
    if found.unknown:
        click.echo(f"{len(found.unknown)} points name a model or GPU that is not in the catalog")
    if write is not None:
        write_profiles(found.profiles.values(), write)
        click.echo(f"{write}: {len(found.profiles)} profiles")


def _from_results(files: Sequence[Path], options: Mapping[str, str | None], as_json: bool) -> None:
    from planner.api import calibrations
    from planner.api.calibrations_schema import file_points, form_defaults

    checked = form_defaults({name: text for name, text in options.items() if text})
    points = file_points((path.name, path.read_bytes()) for path in files)
    found = calibrations.calibrate(points, checked, stored_catalog())
    if checked["save"]:
        calibrations.save(found)
    document = calibrations.document(found, checked["save"])
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        _print_adjustment(document)


def _print_adjustment(document: Mapping[str, Any]) -> None:
    console = Console()
    _print(console, "Profiles", ("profile", "points", "TPOT train", "TPOT left out",
                                 "TTFT left out"),
           [[p["slug"], p["points"], *map(_percent, (
               p["train_error"], p["tpot_error"], p["ttft_error"]))]
            for p in document["profiles"]])
    before, after = document["before"], document["after"]
    for name in ("tpot", "ttft"):
        click.echo(f"{name.upper()} error on {document['kept']} results: "
                   f"{_percent(before[f'{name}_error'])} before, "
                   f"{_percent(after[f'{name}_error'])} after")
    _print(console, "Rejected", ("source", "code", "reason"),
           [[r["source"], r["code"], r["reason"]] for r in document["rejected"]])
    if document["saved"]:
        click.echo("saved; plans with this engine, GPU and precision use it from now on, also by "
                   "the engine's name; delete the profile to go back")
