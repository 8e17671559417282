"""Catalog tables as a workbook to edit and import again: one sheet a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.workbook.blank import written
from planner.workbook.layout import MAX_CELL_CHARACTERS, Page, clean, number, set_up
from planner.workbook.styles import Styles

TITLE = "Catalog"
_NOTES = {
    "derived": "Follows from the architecture; cannot be edited.",
    "list": "Several, separated by semicolons.",
    "json": "JSON, as the API shows it.",
    "notes": "Text, or a JSON object of texts.",
    "date": "YYYY-MM-DD, YYYY-MM, YYYY-H1, YYYY-H2 or YYYY.",
    "flag": "true or false.",
}
_OWN_NOTES = {
    "slug": "Key of the row. A new slug adds a row; rows that are not in the file stay.",
    "id": "Key of the row. Blank: made of provider, instance, GPU, region and commitment.",
    "record": "The architecture, as the planner keeps it. Blank: as stored.",
    "hf_config": "Only to import: a config.json that the model is derived from.",
    "usd_per_gpu_hour": "USD per GPU-hour.",
}
_WIDE = {"source", "notes", "source_url", "record", "hf_config", "published", "aliases"}
SHOWN_ROWS = 200
"""Rows that a column's width is chosen by."""


def write_tables(tables: Sequence[tuple[str, Mapping[str, str], Sequence[Sequence[Any]]]]
                 ) -> bytes:
    """Tables as an xlsx file.

    Parameters
    ----------
    tables : sequence of (name, kinds, rows)
        ``kinds`` names the columns in order and says how each is read.
    """
    def fill(book: Any, styles: Styles) -> None:
        for name, kinds, rows in tables:
            _write(Page(book.add_worksheet(name), styles), name, kinds, rows)

    return written(TITLE, fill)


def _write(page: Page, name: str, kinds: Mapping[str, str], rows: Sequence[Sequence[Any]]
           ) -> None:
    set_up(page, TITLE, name)
    sheet = page.sheet
    for column, (label, kind) in enumerate(kinds.items()):
        page.write(0, column, label, "text", "header")
        note = _OWN_NOTES.get(label) or _NOTES.get(kind)
        if note:
            sheet.write_comment(0, column, note, {"font_size": 9, "x_scale": 1.4})
        sheet.set_column(column, column, _width(label, column, rows))
    sheet.set_row(0, 44)
    for line, row in enumerate(rows, 1):
        for column, value in enumerate(row):
            _cell(page, line, column, value)
    sheet.freeze_panes(1, 1)
    sheet.autofilter(0, 0, max(len(rows), 1), len(kinds) - 1)
    sheet.repeat_rows(0)
    sheet.repeat_columns(0, 0)
    sheet.fit_to_pages(0, 0)
    sheet.set_print_scale(60)


def _cell(page: Page, line: int, column: int, value: Any) -> None:
    if number(value) is not None:
        # The general format shows a number with the digits it has.
        page.sheet.write_number(line, column, value, page.styles.get("cell"))
        return
    text = clean(value) if value not in (None, "") else None
    if text is not None and len(str(value)) > MAX_CELL_CHARACTERS:
        text = None  # half a record is worse than none: a blank one is left as it is stored
    page.write(line, column, text, "cell", "short")


def _width(label: str, column: int, rows: Sequence[Sequence[Any]]) -> float:
    if label in _WIDE:
        return 40.0
    longest = max((len(str(r[column])) for r in rows[:SHOWN_ROWS] if r[column] is not None),
                  default=0)
    words = max(len(w) for w in label.split("_"))
    return float(min(max(longest * 1.05, words * 1.2, 8.0) + 2.0, 44.0))
