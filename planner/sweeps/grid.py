"""A grid over the fields of a plan request: which cells there are, and whether they make sense."""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.api.plan_checks import check_plan
from planner.api.plan_schema import PlanSchema, parse_plan
from planner.api.validation import InvalidDocument, escape, pointers, schema_of
from planner.catalog.book import Catalog
from planner.errors import ContextTooLong, DoNotGoTogether, InvalidValue, PlannerError

MAX_VALUES = 2000
"""Values of all fields together: each is checked before the sweep starts."""
MAX_ERRORS = 100
EVERYTHING = "*"
PARTS, MAX_PART_CELLS = 200, 50
"""A sweep is worked on in parts: small enough to lose little, large enough to be worth a task."""
MOST_TRIES, MOST_DRAWN = 3000, 200
"""Combinations that are tried at most, of all values and of one value beside its neighbours, to see
whether a value is at fault or only its combination; all of them in a grid of 200 cells."""
Lookup = Callable[[str], Mapping[str, Any] | None]
Problem = tuple[str, str]
"""A pointer into a plan request, and what is wrong there."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A sweep: cell number to plan request.

    Attributes
    ----------
    base : dict
        A plan request, without the fields that the grid gives.
    values : dict
        By dotted field; the last varies fastest.
    workloads, traces : dict
        The saved workloads and traces that are named anywhere, so that a sweep needs no database.
    """

    base: dict[str, Any]
    values: dict[str, list[Any]]
    workloads: dict[str, Any] = field(default_factory=dict)
    traces: dict[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """How many combinations there are."""
        return math.prod(map(len, self.values.values()))

    @property
    def part_cells(self) -> int:
        """Cells of one part."""
        return min(max(self.cells // PARTS, 1), MAX_PART_CELLS)

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return math.ceil(self.cells / self.part_cells)

    def part(self, number: int) -> range:
        """The cells of a part."""
        first = number * self.part_cells
        return range(first, min(first + self.part_cells, self.cells))

    def combination(self, cell: int) -> dict[str, Any]:
        """The value of every field in a cell."""
        chosen = {}
        for name, values in reversed(self.values.items()):
            cell, place = divmod(cell, len(values))
            chosen[name] = values[place]
        return {name: chosen[name] for name in self.values}

    def document(self, combination: Mapping[str, Any]) -> dict[str, Any]:
        """The plan request of a combination."""
        document = copy.deepcopy(self.base)
        # A whole workload before one of its fields, whatever the order of the grid.
        for name in sorted(combination, key=lambda n: n.count(".")):
            self._set(document, name, combination[name])
        return document

    def _set(self, document: dict[str, Any], name: str, value: Any) -> None:
        *path, last = name.split(".")
        place = document
        for step in path:
            if step == "workload" and isinstance(place.get(step), str):
                self._open_workload(place)
            inner = place.get(step)
            if not isinstance(inner, dict):
                inner = place[step] = {}
            place = inner
        place[last] = copy.deepcopy(value)

    def _open_workload(self, document: dict[str, Any]) -> None:
        """Put a saved workload in the place of its slug, so that one field of it can change."""
        saved = self.workloads.get(document["workload"])
        if saved is not None:
            document["workload"] = copy.deepcopy(saved["workload"])
            if saved.get("slo"):
                document.setdefault("slo", copy.deepcopy(saved["slo"]))

    def to_json(self) -> dict[str, Any]:
        """As stored with a job."""
        return {"base": self.base, "grid": self.values, "workloads": self.workloads,
                "traces": self.traces}


def from_json(document: Mapping[str, Any]) -> Grid:
    """The grid that :meth:`Grid.to_json` wrote."""
    return Grid(document["base"], document["grid"], document["workloads"], document["traces"])


def checked_grid(base: Any, values: Any, catalog: Catalog, most_cells: int,
                 saved: Lookup | None = None, traces: Lookup | None = None) -> Grid:
    """A grid whose fields and values can all be used.

    Every value is tried with the first values of the other fields, and where that fails with other
    values of them. What only a combination of values breaks is not an error: its row says so. A
    value that contradicts the base is one.

    Raises
    ------
    InvalidDocument
        With pointers like ``/grid/workload.requests_per_second/2``.
    """
    if isinstance(values, dict):
        values = {name: _named(name, entries, catalog) for name, entries in values.items()}
    _check_shape(base, values, most_cells)
    grid = Grid(base, values)
    lookups = _remember(grid.workloads, saved), _remember(grid.traces, traces)
    # Workloads first: opening one needs its document.
    for slug in [base.get("workload"), *values.get("workload", ())]:
        if isinstance(slug, str):
            lookups[0](slug)
    errors = list(itertools.islice(_errors(grid, catalog, *lookups), MAX_ERRORS))
    if errors:
        raise InvalidDocument(errors)
    return grid


def _named(name: str, entries: Any, catalog: Catalog) -> Any:
    """The values that ``"*"`` stands for: every model, or every GPU by itself."""
    if entries != EVERYTHING:
        return entries
    if name == "model":
        return sorted(catalog.llms)
    if name == "gpus":
        return [[slug] for slug in sorted(catalog.gpus)]
    raise InvalidValue(f"{EVERYTHING!r} stands for every model or every GPU; give a list",
                       f"/grid/{escape(name)}")


def _check_shape(base: Any, values: Any, most_cells: int) -> None:
    if not isinstance(base, dict):
        raise InvalidValue("must be a plan request", "/base")
    _check_replaced(base, values)
    if not isinstance(values, dict) or not values:
        raise InvalidValue("must name at least one field with a list of values", "/grid")
    for name, entries in values.items():
        _check_entries(name, entries, base, values)
    total = sum(map(len, values.values()))
    if total > MAX_VALUES:
        raise InvalidValue(f"has {total:,} values; allowed are {MAX_VALUES:,} in all", "/grid")
    cells = math.prod(map(len, values.values()))
    if cells > most_cells:
        raise InvalidValue(f"makes {cells:,} cells; allowed are {most_cells:,} (setting "
                           "PLANNER_MAX_SWEEP_CELLS)", "/grid")
    _check_repeats(values)


def _check_entries(name: str, entries: Any, base: Mapping[str, Any], names: Any) -> None:
    """Refuse a field of the grid whose values are no list, or that has no place of its own."""
    pointer = f"/grid/{escape(name)}"
    if not isinstance(entries, list) or not entries:
        raise InvalidValue("must be a list of at least one value", pointer)
    if any(part != name and name.startswith(f"{part}.") and part != "workload" for part in names):
        raise InvalidValue("lies inside another field of the grid", pointer)
    whole = ".".join(itertools.takewhile(lambda step: not step.isdecimal(), name.split(".")))
    if whole != name:
        raise InvalidValue("names an entry of a list; a grid gives whole fields, so give lists as "
                           f"the values of {whole or 'a field'}", pointer)


def _check_repeats(values: Mapping[str, list[Any]]) -> None:
    """Refuse values that a field of the grid has twice."""
    for name, entries in values.items():
        seen: dict[str, int] = {}
        for place, entry in enumerate(entries):
            first = seen.setdefault(json.dumps(entry, sort_keys=True), place)
            if first != place:
                raise InvalidValue(f"is the same as value {first}; leave one out",
                                   f"/grid/{escape(name)}/{place}")


def _check_replaced(base: Mapping[str, Any], values: Any) -> None:
    """Refuse what is malformed in the base where the grid gives the field: nobody reads it."""
    replaced = [_pointer_of(n) for n in (values if isinstance(values, dict) else ())
                if _is_in(base, n)]
    if not replaced:
        return
    found = [(f"/base{p}", m) for p, m in pointers(schema_of(PlanSchema).validate(base))
             if any(f"{p}/".startswith(f"{name}/") for name in replaced)]
    if found:
        raise InvalidDocument(found)


def _is_in(base: Any, name: str) -> bool:
    """Whether a plan request has a dotted field."""
    for step in name.split("."):
        if not isinstance(base, dict) or step not in base:
            return False
        base = base[step]
    return True


def _remember(found: dict[str, Any], lookup: Lookup | None) -> Lookup:
    def remembering(slug: str) -> Mapping[str, Any] | None:
        if slug not in found:
            document = lookup(slug) if lookup else None
            if document is None:
                return None
            found[slug] = document
        return dict(found[slug])
    return remembering


def _errors(grid: Grid, catalog: Catalog, saved: Lookup, traces: Lookup
            ) -> Iterator[tuple[str, str]]:
    """What is wrong with the base whatever the values, and with values by themselves or beside it.

    What is at fault only beside a value of another field is left to the rows.
    """
    tried = _Tried(grid, lambda document: _problems(document, catalog, saved, traces))
    own = {(name, place): tried.always(name, place)
           for name, values in grid.values.items() for place in range(len(values))}
    everywhere = _common(own.values())
    for pointer, message in everywhere:
        if _field_at(pointer, grid) is None:
            yield f"/base{pointer}", message
    for (name, place), errors in own.items():
        for pointer, message in errors:
            where, field_at = f"/grid/{escape(name)}/{place}", _field_at(pointer, grid)
            if field_at == name:
                yield where + _inside(pointer, name), message
            elif field_at is None and (pointer, message) not in everywhere:
                yield where, f"{message} (at /base{pointer})"


def _common(many: Iterable[list[Problem]]) -> list[Problem]:
    """The problems that all lists have, in the order of the first."""
    first, *others = many
    return [p for p in first if all(p in other for other in others)]


class _Tried:
    """Combinations of a grid that were tried, each once and no more than a check can wait for.

    Parameters
    ----------
    grid : Grid
    problems : callable
        What is wrong with a plan request.
    """

    def __init__(self, grid: Grid, problems: Callable[[Any], list[Problem]]) -> None:
        self.grid, self.problems, self.left = grid, problems, MOST_TRIES
        self._known: dict[tuple[int, ...], list[Problem]] = {}

    def always(self, name: str, place: int) -> list[Problem]:
        """What is wrong with every combination that has a value of a field."""
        chosen = [0] * len(self.grid.values)
        at = list(self.grid.values).index(name)
        chosen[at] = place
        found = self._of(tuple(chosen))
        for places in self._others(chosen, at):
            if not found or (self.left <= 0 and places not in self._known):
                break
            self.left -= places not in self._known
            found = _common((found, self._of(places)))
        return found

    def _of(self, places: tuple[int, ...]) -> list[Problem]:
        if places not in self._known:
            combination = {name: values[i] for (name, values), i in
                           zip(self.grid.values.items(), places, strict=True)}
            self._known[places] = self.problems(self.grid.document(combination))
        return self._known[places]

    def _others(self, chosen: list[int], at: int) -> Iterator[tuple[int, ...]]:
        """Other combinations with a value: one field changed at a time, then of all fields."""
        sizes = [len(values) for values in self.grid.values.values()]
        for field_at, size in enumerate(sizes):
            if field_at != at:
                for i in range(1, size):
                    yield (*chosen[:field_at], i, *chosen[field_at + 1:])
        draw = random.Random(0)
        for cell in draw.sample(range(self.grid.cells), min(self.grid.cells, MOST_DRAWN)):
            places = []
            for size in reversed(sizes):
                cell, i = divmod(cell, size)
                places.append(i)
            places.reverse()
            places[at] = chosen[at]
            yield tuple(places)


def _problems(document: Any, catalog: Catalog, saved: Lookup, traces: Lookup
              ) -> list[Problem]:
    """What is wrong with a plan request by itself."""
    try:
        request = parse_plan(document, saved, traces)
        if request.verify:
            raise InvalidValue("plans of a sweep are not verified; leave it out, and verify a "
                               "plan of its own", "/verify")
        check_plan(request, catalog)
    except InvalidDocument as error:
        return error.errors
    except (ContextTooLong, DoNotGoTogether):
        return []  # another model or GPU may take it
    except PlannerError as error:
        return [(error.pointer, error.message)]
    return []


def _pointer_of(name: str) -> str:
    return "/" + "/".join(escape(step) for step in name.split("."))


def _field_at(pointer: str, grid: Grid) -> str | None:
    """The field of the grid that a pointer leads into, the deepest."""
    inside = [n for n in grid.values if f"{pointer}/".startswith(f"{_pointer_of(n)}/")]
    return max(inside, key=len, default=None)


def _inside(pointer: str, name: str) -> str:
    return pointer[len(_pointer_of(name)):]
