"""Which column is which: headers by their names, their variants, and the unit they state."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.spreadsheets.quantities import Quantity, unit_named
from planner.spreadsheets.sheets import Cell, Line

NEAR = 0.84
"""Similarity above which an unknown header is taken for a misspelt one."""
SEARCHED_LINES = 20
"""Filled rows at the top of a sheet among which the header is looked for."""


@dataclass(frozen=True, slots=True)
class Heading:
    """How one column may be headed.

    Attributes
    ----------
    key : str
    label : str
        As written by the template, without the unit.
    variants : tuple of str
        Other names; compared without case, punctuation and spelling variants.
    quantity : Quantity, optional
        For numbers, so that a header may state another unit.
    unit : str or None
        Unit of a bare number under a header that states none: ``""`` the API's own, None unknown.
    needs_unit : tuple of str
        Variants that say nothing of the unit, such as ``TTFT``.
    """

    key: str
    label: str
    variants: tuple[str, ...] = ()
    quantity: Quantity | None = None
    unit: str | None = ""
    needs_unit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A column that was recognised: its place from 0, and the unit of its bare numbers."""

    heading: Heading
    column: int
    unit: str | None


@dataclass(slots=True)
class Header:
    """A header row.

    Attributes
    ----------
    line : Line
    columns : dict
        By key.
    ignored : list of str
        Headers that name nothing known.
    errors : list of (place, message)
        Misspelt and repeated headers.
    """

    line: Line
    columns: dict[str, Found] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)


def words_of(text: str) -> str:
    """A header in the form in which headers are compared.

    Examples
    --------
    >>> words_of("Set-ups_(to try)") == words_of("setups to try")
    True
    """
    plain = unicodedata.normalize("NFKC", text).casefold().replace("%", " percent ")
    plain = plain.replace("set-up", "setup").replace("set up", "setup")
    plain = plain.replace("utilization", "utilisation").replace("95th percentile", "p95")
    plain = plain.replace("½", " ").replace("gpu-hour", "gpu hour").replace("average", "mean")
    return " ".join(re.sub(r"[^a-z0-9µ$#]+", " ", plain).split())


def find_header(lines: Sequence[Line], headings: Sequence[Heading]) -> Header | None:
    """The header row of a sheet: of its first filled rows the one with most known headers.

    Returns
    -------
    Header or None
        None when no row has at least two known or misspelt headers.
    """
    known = _known(headings)
    best: Header | None = None
    for line in lines[:SEARCHED_LINES]:
        header = _header(line, known)
        if best is None or _known_in(header) > _known_in(best):
            best = header
    enough = min(2, len(headings))
    found = best is not None and bool(best.columns) and _known_in(best) >= enough
    return best if found else None


def _known_in(header: Header) -> int:
    """Headers that are known, misspelt ones included."""
    return len(header.columns) + len(header.errors)


def _known(headings: Sequence[Heading]) -> dict[str, tuple[Heading, bool]]:
    """Every spelling to its heading, and whether the unit is then open."""
    known: dict[str, tuple[Heading, bool]] = {}
    for heading in headings:
        for name in (heading.key, heading.label, *heading.variants):
            known.setdefault(words_of(name), (heading, False))
        for name in heading.needs_unit:
            known[words_of(name)] = (heading, True)
    return known


def _header(line: Line, known: Mapping[str, tuple[Heading, bool]]) -> Header:
    header = Header(line)
    for column, cell in sorted(line.cells.items()):
        text = str(cell.value or "").strip() if not cell.fault else ""
        if not text or text.startswith("#"):
            continue
        _place(header, column, cell, text, known)
    return header


def _place(header: Header, column: int, cell: Cell, text: str,
           known: Mapping[str, tuple[Heading, bool]]) -> None:
    found = _recognised(text, known)
    if isinstance(found, str):
        header.errors.append((cell.place, found))
    elif found is None:
        header.ignored.append(text)
    elif found[0].key in header.columns:
        other = header.columns[found[0].key].column
        first = header.line.cells[other].place
        header.errors.append((cell.place, f"names {found[0].label} again, as {first} does; "
                              "delete one of the two columns"))
    else:
        header.columns[found[0].key] = Found(found[0], column, found[1])


def _recognised(text: str, known: Mapping[str, tuple[Heading, bool]]
                ) -> tuple[Heading, str | None] | str | None:
    """A heading with the unit of bare numbers, a message for a misspelling, or None."""
    whole = words_of(text)
    bracket = re.search(r"[\[(]([^\])]*)[\])]\s*\*?\s*$", text)
    bare = words_of(text[:bracket.start()]) if bracket else whole
    unit = bracket[1] if bracket else ""
    if not bracket and whole not in known and " " in whole:
        name, _, last = whole.rpartition(" ")
        if name in known and _unit_of(known[name][0], last) is not None:
            bare, unit = name, last
    if bare in known:
        heading, open_unit = known[bare]
        if heading.quantity is None or not unit:
            return heading, None if open_unit else heading.unit
        stated = _unit_of(heading, unit)
        if stated is not None:
            return heading, stated
        if open_unit:
            return f"states the unknown unit {unit!r}; write {heading.label} with its unit"
        return heading, heading.unit
    if whole in known:
        heading, open_unit = known[whole]
        return heading, None if open_unit else heading.unit
    near = difflib.get_close_matches(bare, [k for k in known if len(k) > 3], n=1, cutoff=NEAR)
    if near:
        return (f"is no known column; did you mean {known[near[0]][0].label}? Rename it, or begin "
                "its name with # to have it left out")
    return None


def _unit_of(heading: Heading, word: str) -> str | None:
    return None if heading.quantity is None else unit_named(word, heading.quantity)
