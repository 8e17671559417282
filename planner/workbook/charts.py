"""Charts in one look. Their data are cells of the workbook, cached for viewers."""

from __future__ import annotations

from typing import Any

from xlsxwriter.utility import quote_sheetname, xl_range_abs, xl_rowcol_to_cell

from planner.workbook.layout import clean, number
from planner.workbook.plan import Plan
from planner.workbook.styles import FONT, GREY, LINE, NAVY, SERIES

RANK, COST, GPUS = 0, 6, 4
"""Columns of the Summary's table that the cost chart takes."""
TEXT = {"name": FONT, "size": 10, "color": GREY}
TITLE = {"name": FONT, "size": 11, "bold": True, "color": NAVY}


def sheet_range(sheet: str, row: int, column: int, last_row: int | None = None,
                last_column: int | None = None) -> str:
    """A reference with its sheet: ``='Load curve'!$A$2:$A$9``."""
    if last_row is None:
        cell = xl_rowcol_to_cell(row, column, row_abs=True, col_abs=True)
    else:
        cell = xl_range_abs(row, column, last_row, column if last_column is None else last_column)
    return f"={quote_sheetname(sheet)}!{cell}"


def style_chart(chart: Any, title: str, x: str, y: str, y_format: str = "#,##0") -> None:
    """Title, axes and fonts that all charts share."""
    chart.set_title({"name": clean(title), "name_font": TITLE, "overlay": False})
    chart.set_x_axis({"name": x, "name_font": TEXT, "num_font": TEXT, "line": {"color": LINE}})
    chart.set_y_axis({"name": y, "name_font": TEXT, "num_font": TEXT, "num_format": y_format,
                      "line": {"none": True}, "major_gridlines": {
                          "visible": True, "line": {"color": LINE, "width": 0.5}}, "min": 0})
    chart.set_chartarea({"border": {"color": LINE}})


def cost_chart(book: Any, plan: Plan, sheet: str, table: tuple[int, int]) -> Any:
    """Cost per hour of each option, or its GPUs when prices are missing."""
    first, last = table
    shown = plan.options[:last - first + 1]
    priced = all(number(o.get("usd_per_hour")) is not None for o in shown)
    title, column, form = (("Cost per hour [USD/h]", COST, "#,##0.00") if priced
                           else ("GPUs", GPUS, "#,##0"))
    chart = book.add_chart({"type": "column"})
    chart.add_series({
        "name": title, "categories": sheet_range(sheet, first, RANK, last),
        "values": sheet_range(sheet, first, column, last), "gap": max(60, 300 // len(shown)),
        "fill": {"color": SERIES[1]},
        "points": [{"fill": {"color": NAVY}}],
        "data_labels": {"value": True, "num_format": form, "font": TEXT}})
    style_chart(chart, f"{title} by option", "Rank of the option", title, "#,##0")
    chart.set_legend({"none": True})
    return chart


def memory_chart(book: Any, sheet: str, columns: list[tuple[str, int]], label: int, last: int
                 ) -> Any:
    """Where the memory of one GPU goes, a stacked bar for each pool."""
    chart = book.add_chart({"type": "bar", "subtype": "stacked"})
    for place, (name, column) in enumerate(columns):
        chart.add_series({"name": name, "categories": sheet_range(sheet, 1, label, last),
                          "values": sheet_range(sheet, 1, column, last), "gap": 50,
                          "fill": {"color": SERIES[place % len(SERIES)]}})
    style_chart(chart, "Memory of one GPU [GiB]", "", "GiB")
    chart.set_x_axis({"num_font": TEXT, "name_font": TEXT, "line": {"none": True},
                      "major_gridlines": {"visible": True, "line": {"color": LINE, "width": 0.5}},
                      "num_format": "#,##0"})
    chart.set_y_axis({"reverse": True, "crossing": "max", "num_font": TEXT, "line": {"color": LINE},
                      "major_gridlines": {"visible": False}, "label_position": "low"})
    chart.set_legend({"position": "bottom", "font": TEXT})
    return chart
