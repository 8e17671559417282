"""Files of catalog tables as sheets by table: xlsx, CSV, and the JSON of ``catalog export``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from planner.api.validation import json_of
from planner.errors import InvalidValue
from planner.spreadsheets.package import UnreadableFile
from planner.spreadsheets.quantities import spelled
from planner.spreadsheets.sheets import Sheet, read_csv, read_workbook, sheet_of


def sheets_of(data: bytes, names: Sequence[str]) -> tuple[dict[str, Sheet], list[str]]:
    """The sheets of a file that hold the named tables, and the names of the others.

    A workbook for one table may have that as its only sheet, under any name. A CSV file holds
    one table.

    Raises
    ------
    UnreadableFile, FileTooLarge
    """
    if len(names) == 1 and data and not data.startswith(b"PK"):
        return {names[0]: read_csv(data, names[0])}, []
    every = read_workbook(data, names)
    sheets = [s for s in every if s.lines]
    if len(names) == 1 and len(sheets) == 1:
        return {names[0]: sheets[0]}, []
    by_name = {spelled(name): name for name in names}
    found = {by_name[spelled(s.name)]: s for s in sheets if spelled(s.name) in by_name}
    if not found:
        listed = ", ".join(repr(s.name) for s in sheets[:10]) or "none that is filled"
        raise InvalidValue(f"has no sheet named {' or '.join(names)}; its sheets: {listed}")
    return found, [s.name for s in every if spelled(s.name) not in by_name]


def sheets_of_json(text: str, names: Sequence[str]) -> dict[str, Sheet]:
    """The tables of a catalog exported as JSON.

    Raises
    ------
    UnreadableFile
        When it is not such a document.
    """
    try:
        document = json_of(text.encode())
        return {name: sheet_of(name, [_flat(row) for row in document[name]])
                for name in names if name in document}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UnreadableFile("the file is no JSON of the catalog as the export writes it"
                             ) from None


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with lists and objects as the text that a cell would hold."""
    return {name: _text(name, value) for name, value in row.get("profile", row).items()}


def _text(name: str, value: Any) -> Any:
    if name == "aliases":
        return "; ".join(value) or None
    if isinstance(value, Mapping | list):
        return json.dumps(value) if value else None
    return value
