"""Writing cells safely, tables with typed columns, and the page set-up that all sheets share.

Text always goes in as text: a name that begins with ``=`` stays a name. A number that is missing
or not finite leaves its cell blank.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.workbook.live.expr import X
from planner.workbook.styles import Styles

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
MAX_CELL_CHARACTERS = 32_767
MAX_HEADER_NAME = 60
LINE_POINTS = 13.0
"""Height of a line of 10-point text."""
PIXELS_PER_CHARACTER = 7
A4 = 9
PAGE_POINTS = (297.0 / 25.4 - 2 * 0.4) * 72.0
"""Width that A4 landscape leaves between its margins."""
LEAST_SCALE = 0.72
"""Smallest scale in print: 10-point text stays above 7 points."""
INDENT = 0.8
"""What the indent of a text cell takes [characters]."""
SAFE = 1.04
"""Programs set the same text in columns that differ by some per cent."""
_WIDTHS = {letter: width for letters, width in (
    ("ijl|'", 0.4), (" ft.,;:/!I[]\\·", 0.5), ("()-r`*\"°²³", 0.61), ("ckJsvxyz^", 0.9),
    ("0123456789abdeghnopqu_?$#L–{}", 1.0), ("+=<>×≤≥÷~", 1.06), ("FTZ", 1.1),
    ("ABEKPSVXY&", 1.2), ("CDHNRUw", 1.3), ("GOQ", 1.4), ("mM", 1.5), ("%", 1.6), ("W", 1.7),
    ("@—…", 1.83)) for letter in letters}
"""Widths of letters in Arial over that of a digit."""
BOLD = 1.08
"""Width of bold text over plain text."""


def clean(value: Any) -> str:
    """A value as text that a workbook can hold: no control characters, not too long.

    Examples
    --------
    >>> clean("a\\x07b")
    'a b'
    """
    text = str(value)
    if not text.isprintable():
        text = _UNPRINTABLE.sub(" ", text)
    return text[:MAX_CELL_CHARACTERS]


def number(value: Any) -> float | int | None:
    """A finite number, or None for anything else (true and false are not numbers).

    Examples
    --------
    >>> number(2.5), number(float("nan")), number(None), number(True)
    (2.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def or_na(value: Any) -> Any:
    """A value, or ``n/a`` where it is missing or not finite."""
    lacking = value is None or (isinstance(value, float) and not math.isfinite(value))
    return "n/a" if lacking else value


def text_width(text: str) -> float:
    """Width of a text in Arial [characters of a column], on the safe side.

    Examples
    --------
    >>> text_width("ab") < text_width("AB")
    True
    """
    known = _WIDTHS.get
    return SAFE * sum(known(letter) or (2.0 if letter > "\u2fff" else 1.3) for letter in text)


@functools.lru_cache(maxsize=4096)
def lines(text: str, width: float, scale: float = 1.0) -> int:
    """Lines that a text needs in a column of a width [characters].

    Breaks between words, and inside words that are longer than a line.

    Parameters
    ----------
    scale : float
        Size of the text over that of plain 10-point text.
    """
    room, gap = max(width - 1.2, 1.0) / scale, text_width(" ")
    if len(text) * 0.55 < room and text_width(text) <= room:
        return 1
    count, used = 1, 0.0
    for word in text.split():
        size = text_width(word)
        if used and used + gap + size > room:
            count, used = count + 1, 0.0
        used += size + (gap if used else 0.0)
        over = int(used // room) if size > room else 0
        count, used = count + over, used - over * room
    return count


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    label : str
        Header, with the unit in brackets.
    value : callable
        From a row to the cell's value.
    width : float
        [characters]
    style : str
        A name of :data:`planner.workbook.styles.PIECES`.
    title : X, optional
        The header as a formula; ``label`` is its value then.
    """

    label: str
    value: Callable[[Any], Any]
    width: float = 11.0
    style: str = "count"
    title: X | None = None


def key(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """A function that takes a field of a row."""
    return lambda row: row.get(name)


class Page:
    """A worksheet and the styles it is written with.

    Parameters
    ----------
    sheet : FormulaSheet
    styles : Styles
    """

    def __init__(self, sheet: Any, styles: Styles) -> None:
        self.sheet = sheet
        self.styles = styles

    def write(self, row: int, column: int, value: Any, *style: str) -> None:
        """Write one cell: text as text, finite numbers as numbers, nothing as a blank.

        An expression goes in as its formula with its value.
        """
        if isinstance(value, X):
            cached = value.value
            self.formula(row, column, f"={value.text}",
                         cached.item() if hasattr(cached, "item") else cached, *style)
            return
        if value.__class__ is str and value:
            self._text(row, column, clean(value), style)
            return
        found = number(value)
        if found is not None:
            if "figure" in style and found != int(found):
                style = tuple("fraction" if s == "figure" else s for s in style)
            self.sheet.put_number(row, column, found, self.styles.get(*style))
        elif value is None or isinstance(value, float) or value == "":
            self.sheet.put_blank(row, column, self.styles.get(*style))
        elif isinstance(value, bool):
            self.sheet.put_text(row, column, "yes" if value else "no", self.styles.get(*style))
        else:
            self._text(row, column, clean(value), style)

    def _text(self, row: int, column: int, text: str, style: tuple[str, ...]) -> None:
        if text.startswith(("=", "+", "-", "@")):
            style = (*style, "quoted")
        self.sheet.put_text(row, column, text, self.styles.get(*style))

    def merge(self, row: int, first: int, last: int, value: Any, *style: str) -> None:
        """Write one value over the columns ``first`` to ``last`` of a row."""
        if last > first:
            self.sheet.merge_range(row, first, row, last, "", self.styles.get(*style))
        self.write(row, first, value, *style)

    def formula(self, row: int, column: int, text: str, value: Any, *style: str) -> None:
        """Write a formula with its value, for readers that do not calculate."""
        self.sheet.reach(row, column)
        self.sheet.add_formula(row, column, text.removeprefix("="), self.styles.get(*style), value)

    def mark(self, properties: Mapping[str, Any]) -> Any:
        """A format for conditional formatting, of which only what is given applies."""
        return self.styles.mark(properties)

    def widths(self, widths: Sequence[float]) -> None:
        """Set the widths of the first columns [characters]."""
        for column, width in enumerate(widths):
            self.sheet.set_column(column, column, width)

    def height(self, row: int, count: float) -> None:
        """Make a row as high as ``count`` lines of text."""
        self.sheet.set_row(row, LINE_POINTS * count + 3.0)


def write_table(page: Page, row: int, columns: Sequence[Column], rows: Iterable[Any],
                *extra: str, engine: bool = False) -> int:
    """Write a header and one line a row.

    Parameters
    ----------
    engine : bool
        Mark what is not a formula as a result of the engine.

    Returns
    -------
    int
        The row after the last one.
    """
    for place, column in enumerate(columns):
        page.write(row, place, column.title or column.label, column.style, "header")
    page.sheet.set_row(row, _header_height(columns))
    for record in rows:
        row += 1
        values = [column.value(record) for column in columns]
        for place, column in enumerate(columns):
            kept = engine and not isinstance(values[place], X)
            page.write(row, place, values[place], "cell", column.style, *extra,
                       *(("engine",) if kept else ()))
        count = text_lines(columns, values)
        if count > 1:
            page.height(row, count)
    return row + 1


def text_lines(columns: Sequence[Column], values: Sequence[Any], scale: float = 1.0) -> int:
    """Lines that the wrapped texts of a table row need."""
    return max((lines(clean(value), column.width - INDENT, scale)
                for column, value in zip(columns, values, strict=True)
                if column.style == "text" and isinstance(value, str)), default=1)


def width_points(widths: Sequence[float]) -> float:
    """Width of columns on paper at full size [point], in the program that makes them widest."""
    return sum(5.6 * w + 4.0 for w in widths)


def print_bands(page: Page, widths: Sequence[float], repeated: int) -> None:
    """Print columns one page wide, or over several pages where they would become too small.

    Parameters
    ----------
    repeated : int
        Leading columns that every page repeats.
    """
    if width_points(widths) * LEAST_SCALE <= PAGE_POINTS:
        return
    starts, scale = _bands(tuple(widths), repeated)
    page.sheet.set_print_scale(scale)
    page.sheet.set_v_pagebreaks(list(starts))
    page.sheet.repeat_columns(0, repeated - 1)


@functools.lru_cache(maxsize=1024)
def _bands(widths: tuple[float, ...], repeated: int) -> tuple[tuple[int, ...], int]:
    """Columns that begin a new page, the pages alike in width, and their scale [%]."""
    room = PAGE_POINTS / LEAST_SCALE
    fewest = len(_breaks(widths, repeated, room))
    share = next(s / 100 for s in range(40, 101) if len(
        _breaks(widths, repeated, room * s / 100)) == fewest)
    starts = _breaks(widths, repeated, room * share)
    widest = max(_band_points(widths, repeated, first, after) for first, after in zip(
        [0, *starts], [*starts, len(widths)], strict=True))
    return tuple(starts), min(100, int(98.0 * PAGE_POINTS / widest))


def _breaks(widths: Sequence[float], repeated: int, room: float) -> list[int]:
    """Columns that begin a new page when pages are ``room`` points wide."""
    found, first = [], 0
    for column in range(repeated, len(widths)):
        if (_band_points(widths, repeated, first, column + 1) > room
                and column > max(first, repeated)):
            found.append(column)
            first = column
    return found


def _band_points(widths: Sequence[float], repeated: int, first: int, after: int) -> float:
    return width_points([*widths[:repeated], *widths[max(first, repeated):after]])


def _header_height(columns: Sequence[Column]) -> float:
    return LINE_POINTS * max(lines(c.label, c.width, BOLD) for c in columns) + 4.0


def data_sheet(page: Page, columns: Sequence[Column], rows: Sequence[Any], nothing: str,
               frozen: int = 1, printed: int | None = None, engine: bool = False) -> int:
    """Fill a sheet that is one table: header in row 1, filter, frozen header and first columns.

    Parameters
    ----------
    nothing : str
        What to say when there are no rows.
    frozen : int
        Columns that stay in view.
    printed : int, optional
        Leading columns that are printed; all unless given.

    Returns
    -------
    int
        Index of the last row written.
    """
    page.widths([c.width for c in columns])
    end = write_table(page, 0, columns, rows, engine=engine)
    if not rows:
        page.write(1, 0, nothing, "label")
    page.sheet.autofilter(0, 0, max(end - 1, 1), len(columns) - 1)
    page.sheet.freeze_panes(1, frozen)
    page.sheet.repeat_rows(0)
    last = max(end - 1, 1)
    shown = columns[:printed]
    page.sheet.print_area(0, 0, last, len(shown) - 1)
    print_bands(page, [c.width for c in shown], frozen)
    return last


def set_up(page: Page, name: str, sheet: str, pages_high: int = 0) -> None:
    """A4 landscape, one page wide, with the plan's name and page numbers around it."""
    page.sheet.set_landscape()
    page.sheet.set_paper(A4)
    page.sheet.set_margins(left=0.4, right=0.4, top=0.65, bottom=0.6)
    page.sheet.fit_to_pages(1, pages_high)
    page.sheet.hide_gridlines(2)
    safe = _header_text(name)
    page.sheet.set_header(f'&L&"Arial,Regular"{safe}&R&"Arial,Regular"'
                          f'{sheet.replace("&", "&&")}')
    page.sheet.set_footer('&L&"Arial,Regular"LLM inference capacity plan'
                          '&R&"Arial,Regular"Page &P of &N')


def _header_text(name: str) -> str:
    """A name for a page header: on one line, short, with ``&`` doubled."""
    text = " ".join(clean(name).split())
    if len(text) > MAX_HEADER_NAME:
        text = text[:MAX_HEADER_NAME - 1] + "…"
    return text.replace("&", "&&")
