"""The template to fill in: one row a workload, drop-downs from the catalog, an example, help."""

from __future__ import annotations

from typing import Any

from xlsxwriter.utility import xl_col_to_name

from planner.catalog.book import Catalog
from planner.spreadsheets.choices import Choices
from planner.spreadsheets.workload_columns import (
    COLUMNS,
    MAX_WORKLOADS,
    SHEET,
    WorkloadColumn,
)
from planner.workbook.blank import written
from planner.workbook.layout import LINE_POINTS, Page, lines, set_up
from planner.workbook.styles import FILL, Styles

LISTS = "Lists"
HELP = "Help"
NAME = "Workloads to plan"
ROWS = MAX_WORKLOADS + 1
"""Rows with drop-downs: the most that are planned, and the example."""
_FORMATS = {"share": "0.##%", "percentile": "0.###", "date": "yyyy-mm-dd"}
_COLOURS = {"required": "#1F3864", "rate": "#2F5597", "target": "#2F5597", "optional": "#7F7F7F"}
_NEEDS = {"required": "required", "rate": "one kind of rate is required",
          "target": "at least one target is required", "optional": "optional"}
HOW = (
    ("Fill in", f"One workload a row on the sheet {SHEET}, at most {MAX_WORKLOADS}. Overwrite or "
     "delete the example in row 2; unchanged it is not planned."),
    ("Send", "POST the file to /api/v1/workbooks, or: flask --app app plan-workbook FILE OUT.xlsx. "
     "The answer is a workbook with a plan per row, or the list of the cells to correct."),
    ("Headers", "Dark blue: required. Blue: one of several is required. Grey: optional. Columns "
     "may be moved, left out or added; a column whose name begins with # is not read."),
    ("Numbers", "1000, 1,000 and 1e3 are the same. Decimals have a point: 1.5. What can be read in "
     "two ways, such as 1,5 or the text 1.500, is refused."),
    ("Units", "A bare number has the unit in the header; a cell may name another: 0.05 s, 50 ms, "
     "720 /min, 50k /day, 2.49 USD."),
    ("Shares", "80% or 0.8. A bare 80 is refused."),
    ("Dates", "A date cell, 2026-11-03, 3 Nov 2026, 2026-11 or 2026. 03/11/2026 is refused."),
    ("Lists", f"Words come from the sheet {LISTS}; case, spaces and hyphens do not matter. GPUs "
     "and Set-ups may hold several, separated by commas."),
    ("Formulas", "Of a formula its last calculated value is read. Formulas, macros and links are "
     "never run."),
    ("Blank", "A blank cell takes the default. Blank rows are skipped."),
)


def write_template(catalog: Catalog) -> bytes:
    """The template as an xlsx file, its lists fed from a catalog.

    Parameters
    ----------
    catalog : Catalog

    Returns
    -------
    bytes
        The same catalog always gives the same bytes.
    """
    def fill(book: Any, styles: Styles) -> None:
        pages = {name: Page(book.add_worksheet(name), styles) for name in (SHEET, HELP, LISTS)}
        lists = _write_lists(pages[LISTS], Choices(catalog))
        _write_workloads(pages[SHEET], book, lists)
        _write_help(pages[HELP])
        pages[SHEET].sheet.activate()

    return written(NAME, fill)


def _write_lists(page: Page, choices: Choices) -> dict[str, str]:
    """One column a list; the range of each by name."""
    set_up(page, NAME, LISTS)
    names = list(dict.fromkeys(c.choices for c in COLUMNS if c.choices))
    labels = {c.choices: c.heading.label for c in COLUMNS if c.choices}
    ranges = {}
    for column, name in enumerate(names):
        words = choices.words(name)
        page.write(0, column, labels[name], "short", "header")
        page.sheet.set_column(column, column, max([len(w) for w in words] + [10]) * 1.05 + 2)
        for row, word in enumerate(words, 1):
            page.write(row, column, word, "cell", "short")
        letter = xl_col_to_name(column)
        ranges[name] = f"{LISTS}!${letter}$2:${letter}${max(len(words), 1) + 1}"
    page.sheet.freeze_panes(1, 0)
    page.sheet.repeat_rows(0)
    return ranges


def _write_workloads(page: Page, book: Any, lists: dict[str, str]) -> None:
    set_up(page, NAME, SHEET)
    sheet = page.sheet
    height = max(lines(c.title, c.width, 1.08) for c in COLUMNS)
    sheet.set_row(0, LINE_POINTS * height + 6.0)
    for place, column in enumerate(COLUMNS):
        _write_column(page, book, place, column, lists)
    sheet.freeze_panes(1, 2)
    sheet.repeat_rows(0)
    sheet.repeat_columns(0, 1)
    sheet.print_area(0, 0, 30, len(COLUMNS) - 1)
    sheet.fit_to_pages(3, 0)


def _write_column(page: Page, book: Any, place: int, column: WorkloadColumn,
                  lists: dict[str, str]) -> None:
    sheet = page.sheet
    look = {"valign": "vcenter", "text_wrap": column.key == "notes"}
    if column.kind in _FORMATS:
        look["num_format"] = _FORMATS[column.kind]
    elif column.kind in ("text", "choice", "choices"):
        look["num_format"] = "@"
    sheet.set_column(place, place, column.width, book.add_format(look))
    sheet.write_string(0, place, column.title, book.add_format({
        "bold": True, "font_color": "#FFFFFF", "bg_color": _COLOURS[column.need],
        "text_wrap": True, "valign": "vcenter", "border": 1, "border_color": "#FFFFFF"}))
    sheet.write_comment(0, place, f"{column.note} ({_NEEDS[column.need]})",
                        {"x_scale": 1.6, "y_scale": 1.0, "font_size": 9})
    example = book.add_format({**look, "italic": True, "font_color": "#595959",
                               "bg_color": FILL})
    if column.example is None:
        sheet.write_blank(1, place, None, example)
    elif isinstance(column.example, str):
        sheet.write_string(1, place, column.example, example)
    else:
        sheet.write_number(1, place, float(str(column.example)), example)
    _validate(sheet, place, column, lists)
    letters = xl_col_to_name(place)
    book.define_name(f"col_{column.key}", f"={SHEET}!${letters}$2:${letters}${ROWS + 1}")


def _validate(sheet: Any, place: int, column: WorkloadColumn, lists: dict[str, str]) -> None:
    """Drop-downs that also take what is not in the list: several words, units, own spellings."""
    common = {"error_type": "information", "ignore_blank": True, "show_error": False}
    if column.choices:
        sheet.data_validation(1, place, ROWS, place, {
            "validate": "list", "source": f"={lists[column.choices]}", **common})


def _write_help(page: Page) -> None:
    set_up(page, NAME, HELP)
    page.widths((30, 12, 28, 78))
    page.write(0, 0, "How to fill in this workbook", "heading")
    row = 2
    for title, text in HOW:
        page.write(row, 0, title, "cell", "short")
        page.merge(row, 1, 3, text, "cell", "text")
        page.height(row, lines(text, 116))
        row += 1
    row += 1
    for place, label in enumerate(("Column", "Unit", "Needed", "Meaning")):
        page.write(row, place, label, "short", "header")
    for column in COLUMNS:
        row += 1
        page.write(row, 0, column.heading.label, "cell", "text")
        page.write(row, 1, column.unit or None, "cell", "short")
        page.write(row, 2, _NEEDS[column.need], "cell", "short")
        page.write(row, 3, column.note, "cell", "text")
        page.height(row, max(lines(column.note, 77), lines(column.heading.label, 29)))
    page.sheet.fit_to_pages(1, 0)
