"""What a worker process does for a sweep: plan the cells of one part."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from planner.api.plan_checks import check_plan
from planner.api.plan_schema import parse_plan
from planner.catalog.book import Catalog
from planner.collector import collector_paused
from planner.errors import PlannerError
from planner.jobs.sending import unpack_catalog
from planner.plain import plain
from planner.requests import PlanRequest
from planner.sweeps.grid import Grid, from_json
from planner.sweeps.lean import RESULTS, Row, cell_rows, refused_row


@collector_paused()
def plan_part(catalog: bytes, sweep: Mapping[str, Any], part: int) -> bytes:
    """The rows of a part of a sweep, see :func:`unpack_rows`."""
    grid, book = from_json(sweep), unpack_catalog(catalog)
    rows = [values for cell in grid.part(part) for values in _rows_of_cell(grid, cell, book)]
    return pack_rows(rows)


def _rows_of_cell(grid: Grid, cell: int, catalog: Catalog) -> list[list[Any]]:
    combination = grid.combination(cell)
    given = [cell, *combination.values()]
    return [given + [row.get(name) for name in RESULTS]
            for row in plan_cell(grid, combination, catalog)]


def plan_cell(grid: Grid, combination: Mapping[str, Any], catalog: Catalog) -> list[Row]:
    """The rows of one combination; what cannot be planned is a row that says why."""
    try:
        request = _parsed(grid, grid.document(combination))
        check_plan(request, catalog)
        return cell_rows(request, catalog)
    except PlannerError as error:
        where = f"{error.pointer}: " if error.pointer else ""
        return [refused_row(error.code, where + error.message)]
    except Exception as error:  # one cell that breaks the planner must not cost the others
        return [refused_row("internal-error", f"{type(error).__name__}: {error}")]


def _parsed(grid: Grid, document: dict[str, Any]) -> PlanRequest:
    """A plan request; of those that differ in model and GPUs alone one is parsed.

    Reading a request takes a tenth of planning it, and most cells of a large grid are other models
    on other GPUs.
    """
    model, gpus = document.get("model"), document.get("gpus")
    if not isinstance(model, str) or not isinstance(gpus, list):
        return parse_plan(document, grid.workloads.get, grid.traces.get)
    rest = {k: v for k, v in document.items() if k not in ("model", "gpus")}
    request = _parsed_rest(json.dumps([rest, grid.workloads, grid.traces]))
    return replace(request, model=model, gpus=tuple(gpus))


@lru_cache(maxsize=256)
def _parsed_rest(text: str) -> PlanRequest:
    rest, workloads, traces = json.loads(text)
    return parse_plan({**rest, "model": "any"}, workloads.get, traces.get)


def pack_rows(rows: list[list[Any]]) -> bytes:
    """Rows as compressed JSON."""
    return zlib.compress(json.dumps(plain(rows), separators=(",", ":")).encode())


def unpack_rows(data: bytes) -> list[list[Any]]:
    """Rows from compressed JSON."""
    rows: list[list[Any]] = json.loads(zlib.decompress(data))
    return rows


def column_names(grid: Grid) -> list[str]:
    """Names of a row's values: the cell, the fields of the grid, the results."""
    return ["cell", *(f"request.{name}" for name in grid.values), *RESULTS]
