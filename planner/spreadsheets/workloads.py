"""Rows of the workload sheet as plan requests, or every cell at fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.api.plan_checks import check_plan
from planner.api.plan_schema import parse_plan
from planner.api.validation import InvalidDocument
from planner.catalog.book import Catalog
from planner.errors import PlannerError
from planner.pricing import Pricer
from planner.requests import PlanRequest
from planner.spreadsheets import quantities as q
from planner.spreadsheets.choices import Choices
from planner.spreadsheets.headers import Found, Header, find_header
from planner.spreadsheets.package import FileTooLarge
from planner.spreadsheets.quantities import BadCell
from planner.spreadsheets.sheets import Cell, Line, Sheet, place_of
from planner.spreadsheets.workload_columns import (
    BY_KEY,
    COLUMNS,
    MAX_WORKLOADS,
    SHEET,
    WorkloadColumn,
)

MAX_ERRORS = 200
"""Cells at fault that are listed."""
_RATE_KEYS = ("requests_per_second", "requests_per_day", "concurrent_users")
_TARGET_KEYS = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
_LABELS = {c.path.rpartition("/")[2]: c.heading.label for c in COLUMNS if c.path}
_BLANK = {"-", "–", "—", "n/a", "na", "none", "default"}
"""What people write into a cell that they leave open."""
_PATHS = {c.path: c.key for c in COLUMNS if c.path}
Errors = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload of a sheet.

    Attributes
    ----------
    number : int
        Row of the sheet, from 1.
    request : PlanRequest
    values : dict
        What the cells say, in the units of the API, by column.
    places : dict
        Pointer of the cell of each column in this row, by key.
    """

    number: int
    request: PlanRequest
    values: Mapping[str, Any]
    places: Mapping[str, str]


@dataclass(slots=True)
class ReadWorkloads:
    """A workload sheet.

    Attributes
    ----------
    sheet : str
    rows : list of WorkloadRow
    ignored : list of str
        Headers that were not read.
    example_left_out : bool
        Whether the template's example row was found unchanged, which is not planned.
    """

    sheet: str
    rows: list[WorkloadRow] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    example_left_out: bool = False


def read_workloads(sheets: list[Sheet], catalog: Catalog) -> ReadWorkloads:
    """Every workload of a file, checked against the catalog.

    Raises
    ------
    InvalidDocument
        With a pointer such as ``/Workloads/D7`` for every cell at fault.
    FileTooLarge
        With more than :data:`MAX_WORKLOADS` filled rows.
    """
    sheet, header = _workload_sheet(sheets)
    _check_header(sheet, header)
    lines = [line for line in sheet.lines if line.number > header.line.number
             and any(f.column in line.cells for f in header.columns.values())]
    if len(lines) > MAX_WORKLOADS + 1:
        raise FileTooLarge(f"sheet {sheet.name!r} has {len(lines)} workloads; at most "
                           f"{MAX_WORKLOADS} are planned at once", sheet.pointer())
    found = ReadWorkloads(sheet.name, ignored=header.ignored)
    errors: Errors = []
    choices = Choices(catalog)
    for line in lines:
        _read_line(sheet, header, line, choices, found, errors)
    if not errors and not found.rows:
        last = place_of(0, header.line.number + 1)
        errors.append((sheet.pointer(last), "no workload is filled in below the header"
                       + (" beside the example" if found.example_left_out else "")))
    if errors:
        raise InvalidDocument(errors[:MAX_ERRORS])
    return found


def _workload_sheet(sheets: list[Sheet]) -> tuple[Sheet, Header]:
    """The sheet named Workloads, or the only one that has such columns."""
    headings = [c.heading for c in COLUMNS]
    named = [s for s in sheets if s.name.strip().casefold() == SHEET.casefold()]
    found = [(s, h) for s in named or sheets if (h := find_header(s.lines, headings))]
    if len(found) == 1:
        return found[0]
    if not found:
        names = ", ".join(repr(s.name) for s in sheets[:10]) or "none"
        raise InvalidDocument([(
            f"/{SHEET}", f"no sheet has a header row with columns such as Model, Requests per "
            f"second and Prompt tokens, mean; the file's sheets: {names}")])
    names = ", ".join(repr(s.name) for s, _ in found)
    raise InvalidDocument([(f"/{SHEET}", f"several sheets hold workloads ({names}); name the one "
                            f"to plan {SHEET}")])


def _check_header(sheet: Sheet, header: Header) -> None:
    errors = [(sheet.pointer(place), message) for place, message in header.errors]
    for column in COLUMNS:
        if column.need == "required" and column.key not in header.columns:
            errors.append((sheet.pointer(), f"has no column {column.heading.label}"))
    for keys, what in ((_RATE_KEYS, "a rate: Requests per second, Requests per day or Users at "
                                    "the same time"),
                       (_TARGET_KEYS, "a target: Time to first token, Time per output token, Gap "
                                      "between tokens or Whole request")):
        if not any(k in header.columns for k in keys):
            errors.append((sheet.pointer(), f"has no column for {what}"))
    if errors:
        raise InvalidDocument(errors[:MAX_ERRORS])


def _read_line(sheet: Sheet, header: Header, line: Line, choices: Choices, found: ReadWorkloads,
               errors: Errors) -> None:
    places = {key: sheet.pointer(place_of(f.column, line.number))
              for key, f in header.columns.items()}
    values, wrong = _values(header, line, choices)
    if not wrong and is_example(values):
        found.example_left_out = True
        return
    errors += [(places[key], message) for key, message in wrong.items()]
    try:
        # Cells that could not be read would only cause a second complaint, so they are left out
        # and what the rest lacks is told of other cells only.
        request = parse_plan(document_of(values))
        check_plan(request, choices.catalog)
        _check_price(request, choices.catalog)
    except PlannerError as error:
        told = {places[key] for key in wrong}
        errors += [(p, m) for p, m in at_fault(places, error) if p not in told and not (
            wrong and "is required" in m)]
        return
    if not wrong:
        found.rows.append(WorkloadRow(line.number, request, values, places))


def at_fault(places: Mapping[str, str], error: PlannerError) -> Errors:
    """What was wrong with a row's request: the cells that said it, in the words of the sheet."""
    found = error.errors if isinstance(error, InvalidDocument) else [
        (error.pointer, error.message)]
    return [(_place_of(places, pointer), _in_labels(message)) for pointer, message in found]


def _in_labels(message: str) -> str:
    """A message of the API with the labels of the columns for the names of the fields."""
    return re.sub(r"[a-z]\w*_\w+", lambda m: _LABELS.get(m[0], m[0]), message)


def _check_price(request: PlanRequest, catalog: Catalog) -> None:
    Pricer(catalog, request.pricing).check()


def _values(header: Header, line: Line, choices: Choices
            ) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of a row by column, and the message of every cell at fault."""
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for key, found in header.columns.items():
        cell = line.cells.get(found.column)
        if cell is None or _left_open(BY_KEY[key], cell):
            continue
        try:
            values[key] = _read(BY_KEY[key], cell, found, choices)
        except BadCell as error:
            wrong[key] = str(error)
    _check_partners(values, wrong)
    return values, wrong


def _left_open(column: WorkloadColumn, cell: Cell) -> bool:
    return (column.need != "required" and column.kind != "text" and isinstance(cell.value, str)
            and cell.value.strip().lower() in _BLANK)


def _read(column: WorkloadColumn, cell: Cell, found: Found, choices: Choices) -> Any:
    readers: dict[str, Callable[[], Any]] = {
        "text": lambda: q.text_of(cell),
        "number": lambda: q.number_of(cell, column.heading.quantity or q.PLAIN, found.unit),
        "share": lambda: q.share_of(cell),
        "percentile": lambda: q.percentile_of(cell),
        "date": lambda: q.date_of(cell),
        "choice": lambda: choices.one(column.choices, cell, column.heading.label),
        "choices": lambda: choices.several(column.choices, cell, column.heading.label),
    }
    return readers[column.kind]()


def _check_partners(values: Mapping[str, Any], wrong: dict[str, str]) -> None:
    """What goes only together, where the request's own check would point elsewhere."""
    for kind, label in (("prompt", "Prompt tokens, mean"), ("output", "Output tokens, mean")):
        mean, p95 = f"{kind}_tokens_mean", f"{kind}_tokens_p95"
        if p95 in values and mean not in values and mean not in wrong:
            wrong[p95] = f"needs {label} beside it"
    if "usd_per_gpu_hour" in values and "gpus" not in wrong and len(values.get("gpus", ())) != 1:
        wrong["usd_per_gpu_hour"] = ("an own price needs exactly one GPU in the column GPUs, so "
                                     "that it is clear whose it is")


def document_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The plan request that a row's values stand for.

    Examples
    --------
    >>> document_of({"model": "llama-3.1-8b", "prompt_tokens_mean": 2000.0,
    ...              "prompt_tokens_p95": 6000.0})["workload"]
    {'prompt_tokens': {'mean': 2000.0, 'p95': 6000.0}}
    """
    document: dict[str, Any] = {"workload": {}, "slo": {}}
    for key, value in values.items():
        column = BY_KEY[key]
        if column.path and not key.endswith(("_mean", "_p95")) and key not in _OWN:
            _put(document, column.path, value)
    for kind in ("prompt", "output"):
        shape = {name: values[f"{kind}_tokens_{name}"] for name in ("mean", "p95")
                 if f"{kind}_tokens_{name}" in values}
        if "mean" in shape:
            document["workload"][f"{kind}_tokens"] = shape
    if "weights" in values or "kv" in values:
        document["precisions"] = [{k: values[k] for k in ("weights", "kv") if k in values}]
    if "usd_per_gpu_hour" in values and values.get("gpus"):
        _put(document, "/pricing/usd_per_gpu_hour",
             dict.fromkeys(values["gpus"], values["usd_per_gpu_hour"]))
    return document


_OWN = ("weights", "kv", "usd_per_gpu_hour")


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.lstrip("/").split("/")
    for name in parents:
        document = document.setdefault(name, {})
    document[last] = value


def _place_of(places: Mapping[str, str], pointer: str) -> str:
    """The cell behind a pointer into the plan request; the row's first cell where there is none."""
    wanted = _ALSO.get(pointer, pointer)
    while wanted:
        key = _PATHS.get(wanted)
        if key is not None and key in places:
            return places[key]
        if wanted in _GROUPS:
            for member in _GROUPS[wanted]:
                if member in places:
                    return places[member]
        wanted = wanted.rpartition("/")[0]
    return next(iter(places.values()))


_ALSO = {"/workload/prompt_tokens/mean": "/workload/prompt_tokens",
         "/workload/output_tokens/mean": "/workload/output_tokens"}
_GROUPS = {"/slo": _TARGET_KEYS, "/workload/requests_per_second": _RATE_KEYS,
           "/precisions": ("weights", "kv"), "/pricing": ("provider", "commitment")}


def example_values() -> dict[str, Any]:
    """What the template's example row says, as its cells are read."""
    found: dict[str, Any] = {}
    for column in COLUMNS:
        if column.example is None:
            continue
        several = column.kind == "choices"
        found[column.key] = [column.example] if several else column.example
    return found


def is_example(values: Mapping[str, Any]) -> bool:
    """Whether a row is the template's example, unchanged."""
    return dict(values) == example_values()


