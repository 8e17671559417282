"""Catalog tables to files and back: what a file would change, then all of it or nothing."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from planner.api.catalog_tables import (
    TABLES,
    Flat,
    Kind,
    Table,
    flat_of_columns,
    table_rows,
)
from planner.api.etags import encode, etag_of
from planner.api.price_ids import is_same, price_id
from planner.api.validation import InvalidDocument, NotJson, json_of
from planner.errors import PlannerError
from planner.plain import plain
from planner.spreadsheets import quantities as q
from planner.spreadsheets.headers import Header, Heading, find_header
from planner.spreadsheets.quantities import BadCell
from planner.spreadsheets.safe_text import for_csv
from planner.spreadsheets.sheets import Cell, Line, Sheet, place_of

MAX_ERRORS = 200
_KEPT_WHEN_BLANK = ("record", "published")
"""Columns that a blank cell leaves as they are: they may be too long for a cell."""
Errors = list[tuple[str, str]]


@dataclass(slots=True)
class TableChange:
    """What a file changes in one table.

    Attributes
    ----------
    added : list of str
        Keys of new rows.
    changed : list of dict
        ``key`` and ``fields``: rows of ``field``, ``old``, ``new``.
    unchanged : int
    not_in_file : int
        Stored rows that the file does not name; they stay.
    ignored_columns : list of str
        Headers of the file that name no column of the table.
    """

    table: str
    added: list[str] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    unchanged: int = 0
    not_in_file: int = 0
    ignored_columns: list[str] = field(default_factory=list)
    writes: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As the API shows it."""
        return {"table": self.table, "added": self.added, "changed": plain(self.changed),
                "unchanged": self.unchanged, "not_in_file": self.not_in_file,
                "ignored_columns": self.ignored_columns}


def stored(session: Session, table: Table) -> list[Any]:
    """The rows of a table, in the order of their keys."""
    column = getattr(table.row, table.key)
    return list(session.scalars(select(table.row).order_by(column)))


def catalog_tag(session: Session, names: Sequence[str]) -> str:
    """The entity tag of some tables: of what they hold, whatever the form."""
    return etag_of(encode({name: plain(table_rows(TABLES[name], stored(session, TABLES[name])))
                           for name in names}))


def as_csv(session: Session, name: str) -> bytes:
    """A table as CSV; text that a spreadsheet program would take for a formula is marked."""
    table = TABLES[name]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(table.kinds)
    for row in table_rows(table, stored(session, table)):
        writer.writerow([for_csv(v) if isinstance(v, str) else v for v in row])
    return text.getvalue().encode()


def as_xlsx(session: Session, names: Sequence[str]) -> bytes:
    """Tables as a workbook, one sheet each."""
    from planner.workbook.catalog_tables import write_tables

    return write_tables([(name, dict(TABLES[name].kinds),
                          table_rows(TABLES[name], stored(session, TABLES[name])))
                         for name in names])


# -- import -------------------------------------------------------------------------------------


def compare(session: Session, sheets: Mapping[str, Sheet]) -> list[TableChange]:
    """What sheets would change, by table.

    Raises
    ------
    InvalidDocument
        With the pointer of every cell at fault.
    """
    errors: Errors = []
    changes = []
    names = {name: {getattr(r, t.key) for r in stored(session, t)} for name, t in TABLES.items()}
    for name, table in TABLES.items():
        if name in sheets:
            found = _Import(session, table, sheets[name], names["gpus"], errors).read()
            names[name] |= set(found.added)
            changes.append(found)
    if errors:
        raise InvalidDocument(errors[:MAX_ERRORS])
    return changes


def apply(session: Session, changes: Sequence[TableChange]) -> None:
    """Write what :func:`compare` found; rows count as edited from now on."""
    for change in changes:
        table = TABLES[change.table]
        for row, columns in change.writes:
            if row is None:
                session.add(table.row(**columns, origin="user"))
                continue
            for key, value in columns.items():
                setattr(row, key, value)
            row.origin = "user"
        session.flush()  # prices refer to GPUs
    session.commit()


class _Import:
    """One sheet against one table."""

    def __init__(self, session: Session, table: Table, sheet: Sheet, gpus: set[str],
                 errors: Errors) -> None:
        self.table, self.sheet, self.gpus, self.errors = table, sheet, gpus, errors
        self.rows = {getattr(r, table.key): r for r in stored(session, table)}
        self.change = TableChange(table.name)
        self.seen: dict[str, str] = {}
        self.lacking: dict[str, None] = {}
        """Columns that the file lacks and some new row needs."""
        self.names = _model_names(self.rows.values()) if table.name == "models" else {}
        self.offers = ({k: table.flat(r) for k, r in self.rows.items()}
                       if table.name == "prices" else {})

    def read(self) -> TableChange:
        headings = [Heading(name, name) for name in self.table.kinds]
        header = find_header(self.sheet.lines, headings)
        if header is None:
            listed = ", ".join(list(self.table.kinds)[:6])
            self.errors.append((self.sheet.pointer(),
                                f"has no header row with the columns {listed}, …"))
            return self.change
        self.errors += [(self.sheet.pointer(p), m) for p, m in header.errors]
        self.change.ignored_columns = header.ignored
        needed = "gpu" if self.table.name == "prices" else self.table.key
        if needed not in header.columns:
            self.errors.append((self.sheet.pointer(), f"has no column {needed}"))
            return self.change
        for line in self.sheet.lines:
            if line.number > header.line.number and any(
                    f.column in line.cells for f in header.columns.values()):
                self._line(header, line)
        if self.lacking:
            place = header.line.cells[min(f.column for f in header.columns.values())].place
            self.errors.append((self.sheet.pointer(place), "the header has no column "
                                f"{', '.join(self.lacking)}, which new rows need"))
        self.change.not_in_file = len(set(self.rows) - set(self.seen))
        return self.change

    def _line(self, header: Header, line: Line) -> None:
        places = {k: self.sheet.pointer(place_of(f.column, line.number))
                  for k, f in header.columns.items()}
        given: Flat = {}
        before = len(self.errors)
        for name, found in header.columns.items():
            try:
                given[name] = _read(self.table.kinds[name], line.cells.get(found.column))
            except BadCell as error:
                self.errors.append((places[name], str(error)))
        if len(self.errors) > before:
            return
        first = next(iter(places.values()))
        at = places.get(self.table.key, first)
        key = given.get(self.table.key) or self._made_id(given)
        if key is None:
            self.errors.append((at, self._needs_key(given)))
        elif key in self.seen:
            self.errors.append((at, f"{key!r} is also in {self.seen[key]}"))
        else:
            self.seen[key] = at.rpartition("/")[2]
            self.offers[str(key)] = {**self.offers.get(str(key), {}), **given}
            self._row(str(key), given, places, first)

    def _made_id(self, given: Flat) -> str | None:
        """The id of a price without one; None where a row needs a key of its own."""
        if self.table.name != "prices":
            return None
        key = price_id(given, self.offers)
        return key if is_same(given, self.offers.get(key, given)) else None

    def _needs_key(self, given: Flat) -> str:
        if self.table.name != "prices":
            return "is required"
        return (f"is required: {price_id(given, self.offers)!r}, which would be made of provider, "
                "instance, GPU, region and commitment, is the id of another price")

    def _row(self, key: str, given: Flat, places: Mapping[str, str], first: str) -> None:
        row = self.rows.get(key)
        old = self.table.flat(row) if row is not None else {}
        if row is not None:
            given = {k: v for k, v in given.items() if v is not None or k not in _KEPT_WHEN_BLANK}
        derived = {k for k, kind in self.table.kinds.items() if kind == "derived"}
        flat = {k: v for k, v in old.items() if k not in derived and k != "hf_config"}
        flat |= given | {self.table.key: key}
        try:
            columns = self.table.checked(flat, row)
            self._references(columns)
        except PlannerError as error:
            found = error.errors if isinstance(error, InvalidDocument) else [
                (error.pointer, error.message)]
            for pointer, message in found:
                column = _column(pointer)
                if message == "is required" and column not in places:
                    self.lacking[column] = None
                else:
                    self.errors.append((places.get(column, first), message))
            return
        self._record(key, row, old, columns)

    def _references(self, columns: Mapping[str, Any]) -> None:
        if self.table.name == "prices" and columns["gpu"] not in self.gpus:
            raise InvalidDocument([("/gpu", f"unknown GPU {columns['gpu']!r}: neither in the "
                                            "catalog nor in the file")])
        if self.table.name == "models":
            for column, name in _names_of(columns):
                owner = self.names.setdefault(name.lower(), columns["slug"])
                if owner != columns["slug"]:
                    raise InvalidDocument([(f"/{column}", f"{name!r} is a name of model "
                                                          f"{owner!r}")])

    def _record(self, key: str, row: Any, old: Flat, columns: dict[str, Any]) -> None:
        if row is None:
            self.change.added.append(key)
            self.change.writes.append((None, columns))
            return
        new = flat_of_columns(self.table, columns)
        fields = [{"field": n, "old": old.get(n), "new": new[n]}
                  for n in self.table.kinds if n in new and not same(old.get(n), new[n])]
        if fields:
            self.change.changed.append({"key": key, "fields": fields})
            self.change.writes.append((row, columns))
        else:
            self.change.unchanged += 1


def _model_names(rows: Any) -> dict[str, str]:
    return {name.lower(): row.slug for row in rows
            for name in (row.slug, row.hf_id, *row.aliases) if name}


def _names_of(columns: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = [("slug", columns["slug"]), ("hf_id", columns.get("hf_id"))]
    return [(c, n) for c, n in [*pairs, *(("aliases", a) for a in columns["aliases"])] if n]


def _column(pointer: str) -> str:
    """The column behind a pointer into a document of the API."""
    parts = pointer.strip("/").split("/")
    return f"dense_{parts[-1]}_tflops" if parts[0] == "dense_tflops" else parts[0]


def _read(kind: Kind, cell: Cell | None) -> Any:
    if cell is None:
        return None
    if kind == "number":
        return q.number_of(cell, q.PLAIN)
    if kind == "date":
        return q.date_of(cell)
    if kind == "flag":
        return _flag(cell)
    text = _whole_text(cell)
    if kind == "list":
        return [part.strip() for part in text.split(";") if part.strip()]
    if kind == "notes" and not text.startswith("{"):
        return {"note": text}
    return _json(text) if kind in ("json", "notes") else text


def _whole_text(cell: Cell) -> str:
    """Text as it stands; in a CSV a number that is text keeps its digits."""
    if isinstance(cell.value, str) and not cell.fault:
        return cell.value.strip()
    return q.text_of(cell)


def _json(text: str) -> Any:
    try:
        return json_of(text.encode())
    except InvalidDocument as error:
        raise BadCell(f"{error.pointer}: {error.message}") from None
    except NotJson:
        raise BadCell("must be a JSON object as the export writes it") from None


def _flag(cell: Cell) -> bool:
    word = q.text_of(cell).lower()
    found = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if word not in found:
        raise BadCell(f"must be true or false, not {word[:40]!r}")
    return found[word]


def same(old: Any, new: Any) -> bool:
    """Whether a file's value is the stored one: numbers to 12 digits, text but for its ends.

    Examples
    --------
    >>> same(0.1 + 0.2, 0.3), same(None, ""), same("a ", "a"), same(1, 2)
    (True, True, True, False)
    """
    if old in (None, "") and new in (None, ""):
        return True
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, int | float | Decimal) and isinstance(new, int | float | Decimal):
        return math.isclose(float(old), float(new), rel_tol=1e-12)
    if isinstance(old, str) and isinstance(new, str):
        return _ends(old) == _ends(new)
    return bool(old == new)


def _ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()
