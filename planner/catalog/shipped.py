"""The seed tables that come with the project, as rows and as a catalog value."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog.book import Catalog
from planner.catalog.rows import engine_from_fields, gpu_from_fields, price_from_fields
from planner.engine import IDEAL, EngineProfile
from planner.llm import from_record

HERE = Path(__file__).parent
_TEXT = {"slug", "name", "vendor", "architecture", "interconnect", "compute_capability",
         "confidence", "source_url", "source", "source_date", "notes"}
_WHOLE = {"link_domain_gpus", "node_gpus", "release_year", "gpus_per_instance"}


def _read_csv(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _number(text: str, whole: bool) -> float | int | None:
    if text == "":
        return None
    return int(text) if whole else float(text)


def gpu_rows() -> list[dict[str, Any]]:
    """Rows of ``gpus.csv``, numbers as numbers and empty cells as None."""
    return [{k: v if k in _TEXT else _number(v, k in _WHOLE) for k, v in row.items()}
            for row in _read_csv(HERE / "gpus.csv")]


def price_rows() -> list[dict[str, Any]]:
    """Rows of ``prices.csv``; the price stays text, so that no cent is lost on the way."""
    return [{**row, "gpus_per_instance": _number(row["gpus_per_instance"], True)}
            for row in _read_csv(HERE / "prices.csv")]


def engine_rows(path: Path = HERE / "engines.csv") -> list[dict[str, Any]]:
    """Rows of an engine table by the types of :class:`EngineProfile`, and ``ideal``."""
    rows = [_engine_row(row) for row in _read_csv(path)]
    if all(row["slug"] != IDEAL.slug for row in rows):
        rows.insert(0, {f.name: getattr(IDEAL, f.name) for f in fields(EngineProfile)})
    return rows


def _engine_row(row: Mapping[str, str]) -> dict[str, Any]:
    kinds = {f.name: str(f.type) for f in fields(EngineProfile)}
    # An empty cell is the field's default, so a short table stays readable.
    return {k: _cell(v, kinds[k]) for k, v in row.items() if k in kinds and v != ""}


def _cell(text: str, kind: str) -> Any:
    convert: dict[str, Callable[[str], Any]] = {
        "float": float, "float | None": float, "int": int, "int | None": int, "bool": _truth,
        "str": str, "dict[str, str]": _notes}
    return convert[kind](text)


def _truth(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes")


def _notes(text: str) -> dict[str, str]:
    return dict(json.loads(text)) if text.lstrip().startswith("{") else {"note": text}


def model_rows() -> list[dict[str, Any]]:
    """Rows of ``models.jsonl``, one model a line."""
    path = HERE / "models.jsonl"
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def date_key(as_of: str) -> str:
    """A date that sorts: ``2026-H2`` and ``2026`` become their first day."""
    padded = as_of.replace("-H1", "-01").replace("-H2", "-07")
    return (padded + "-01-01")[:10]


def newest(dates: Iterable[str]) -> str:
    """The latest of several dates, as written; empty without any."""
    return max((d for d in dates if d), key=date_key, default="")


def build_catalog(gpus: Iterable[Mapping[str, Any]], models: Iterable[Mapping[str, Any]],
                  prices: Iterable[Mapping[str, Any]], engines: Iterable[Mapping[str, Any]]
                  ) -> Catalog:
    """A catalog value from rows of the four tables."""
    prices, models, gpus = list(prices), list(models), list(gpus)
    return Catalog(
        gpus={row["slug"]: gpu_from_fields(row) for row in gpus},
        llms={row["slug"]: from_record(row["record"]) for row in models},
        aliases=alias_table(models),
        prices=[price_from_fields(row) for row in prices],
        engines={"ideal": IDEAL, **{row["slug"]: engine_from_fields(row) for row in engines}},
        as_of=newest([row["as_of"] for row in prices] + [row["source_date"] for row in gpus]),
    )


def alias_table(models: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Every other name of a model, lower case, to its slug."""
    return {name.lower(): row["slug"] for row in models
            for name in (row["slug"], row.get("hf_id"), *(row.get("aliases") or ())) if name}


@cache
def shipped_catalog() -> Catalog:
    """The catalog of the seed tables; one shared value, not to be changed.

    Examples
    --------
    >>> shipped_catalog().gpu("h100-sxm-80gb").link_domain_gpus
    8
    """
    return build_catalog(gpu_rows(), model_rows(), price_rows(), engine_rows())
