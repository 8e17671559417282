"""XlsxWriter for workbooks of many thousand formulas: the same files, in half the time."""

from __future__ import annotations

import functools
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from xlsxwriter import Workbook
from xlsxwriter.utility import xl_col_to_name
from xlsxwriter.worksheet import (
    CellBlankTuple,
    CellFormulaTuple,
    CellNumberTuple,
    CellStringTuple,
    Worksheet,
)

from planner.workbook.areas import Area, pieces
from planner.workbook.packing import FastPackager, escaped
from planner.workbook.styles import FONT, FONT_SIZE

LEVEL = 1
"""Of zlib: files of formulas are a seventh larger than at 6, and packed in a quarter of the time.
"""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of the parts of an xlsx file."""
letters = functools.lru_cache(maxsize=None)(xl_col_to_name)


def styled(style: int) -> str:
    """The format of a cell as an attribute; none for that which cells have anyway."""
    return f' s="{style}"' if style else ""


def valued(cell: Any) -> Any:
    """A cell that stands as its XML in the table of cells, as one that tells its value."""
    if cell.__class__ is not str:
        return cell
    start, found, rest = cell.partition("<v>")
    if not found:
        return CellBlankTuple(None)
    value = rest.partition("<")[0]
    if ' t="s"' in start:
        return CellStringTuple(int(value), None)
    return CellFormulaTuple("", None, float(value)) if "<f" in start else CellNumberTuple(
        float(value), None)


class FormulaSheet(Worksheet):  # type: ignore[misc]
    """A worksheet that writes thousands of formulas fast.

    XlsxWriter looks in each formula for 29 functions newer than 2010, in each of its parts for
    characters to escape, and in each row for cells of every column. No formula here has such
    functions, and rows know their cells.
    """

    table: dict[int, dict[int, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.areas: dict[tuple[int, int], Area] = {}
        """By row and column of the first cell."""

    def _prepare_formula(self, formula: str, expand_future_functions: bool = False) -> str:
        return formula.removeprefix("=")

    def put_number(self, row: int, column: int, value: float, form: Any) -> None:
        """Put a finite number in a cell."""
        self.reach(row, column)
        self.table[row][column] = (f'<c r="{letters(column)}{row + 1}" s="{form._get_xf_index()}">'
                                   f'<v>{value:.16G}</v></c>')

    def put_text(self, row: int, column: int, text: str, form: Any) -> None:
        """Put a text that is not empty in a cell."""
        self.reach(row, column)
        place = self.str_table._get_shared_string_index(text)
        self.table[row][column] = (f'<c r="{letters(column)}{row + 1}" s="{form._get_xf_index()}"'
                                   f' t="s"><v>{place}</v></c>')

    def put_blank(self, row: int, column: int, form: Any) -> None:
        """Give an empty cell a format."""
        self.reach(row, column)
        self.table[row][column] = f'<c r="{letters(column)}{row + 1}" s="{form._get_xf_index()}"/>'

    def add_formula(self, row: int, column: int, text: str, form: Any, value: Any) -> None:
        """Put a formula (without ``=``) in the table of cells."""
        if value.__class__ is not float:
            self.table[row][column] = CellFormulaTuple(text, form, value)
            return
        style = styled(form._get_xf_index() if form else 0)
        self.table[row][column] = (
            f'<c r="{letters(column)}{row + 1}"{style}><f>{escaped(text)}</f>'
            f'<v>{value:.14g}</v></c>')

    def add_area(self, row: int, column: int, text: str, form: Any, values: Any) -> None:
        """Put one formula in the cells of an area, in place of an earlier area at its first cell.

        Parameters
        ----------
        text : str
            Of the first cell.
        values : ndarray, shape (columns, rows)
        """
        style = form._get_xf_index() if form else 0
        self.areas[row, column] = Area(row, column, text, style, values)

    def drop_area(self, row: int, column: int) -> None:
        """Leave out the area that begins at a cell."""
        self.areas.pop((row, column), None)

    def reach(self, row: int, column: int) -> None:
        """Tell the worksheet that a cell is in use."""
        if (self.dim_rowmax is None or not self.dim_rowmin <= row <= self.dim_rowmax
                or not self.dim_colmin <= column <= self.dim_colmax):
            self._check_dimensions(row, column)

    def _get_range_data(self, row_start: int, col_start: int, row_end: int, col_end: int) -> Any:
        """The values of a range, for the caches of charts."""
        table = self.table
        found = {row: {column: valued(cell) for column, cell in table.get(row, {}).items()
                       if col_start <= column <= col_end}
                 for row in range(row_start, row_end + 1)}
        for area in self.areas.values():
            for place, values in enumerate(area.values.tolist(), start=area.column):
                if col_start <= place <= col_end:
                    for row, value in zip(area.rows, values, strict=True):
                        if row in found:
                            found[row][place] = CellFormulaTuple("", None, value)
        self.table = {row: cells for row, cells in found.items() if cells}
        data = super()._get_range_data(row_start, col_start, row_end, col_end)
        self.table = table
        return data

    def _calculate_spans(self) -> None:
        """Leave out the spans of rows, which no program needs."""
        self.row_spans: dict[int, str] = {}

    def _write_rows(self) -> None:
        """Every row that has cells or a height."""
        for row, column, xml in list(pieces(list(self.areas.values()), self.table)):
            self.table[row][column] = xml
        for row in sorted({*(r for r, cells in self.table.items() if cells), *self.row_info}):
            cells, info = self.table.get(row), self.row_info.get(row)
            if not cells:
                self._write_empty_row(row, None, info)
                continue
            if info is None:
                self.fh.write(f'<row r="{row + 1}">')
            else:
                self._write_row(row, None, info)
            write = self.fh.write
            for column, cell in sorted(cells.items()):
                if cell.__class__ is str or cell.__class__ is memoryview:
                    write(cell)
                else:
                    self._write_cell(row, column, cell)
            write("</row>")

    def _write_cell(self, row: int, col: int, cell: Any) -> None:
        """A formula with a number, a number, a text or a blank; else as XlsxWriter does."""
        kind = cell.__class__
        if not cell.format or (kind is CellFormulaTuple and cell.value.__class__ not in (
                float, int)):
            super()._write_cell(row, col, cell)
            return
        head = f'<c r="{letters(col)}{row + 1}" s="{cell.format._get_xf_index()}"'
        if kind is CellFormulaTuple:
            self.fh.write(f"{head}><f>{escaped(cell.formula)}</f><v>{cell.value!r}</v></c>")
        elif kind is CellNumberTuple:
            self.fh.write(f"{head}><v>{cell.number:.16G}</v></c>")
        elif kind is CellStringTuple:
            self.fh.write(f'{head} t="s"><v>{cell.string}</v></c>')
        elif kind is CellBlankTuple:
            self.fh.write(f"{head}/>")
        else:
            super()._write_cell(row, col, cell)


class FastBook(Workbook):  # type: ignore[misc]
    """A workbook of such sheets, made in memory and packed at a lower level.

    Parameters
    ----------
    target : BytesIO
    settings : dict
        Options of ``xlsxwriter.Workbook``; ``in_memory`` is set.
    """

    def __init__(self, target: BytesIO, settings: dict[str, Any]) -> None:
        super().__init__(target, {**settings, "in_memory": True})
        self.worksheet_class = FormulaSheet

    def _store_workbook(self) -> None:
        """As ``xlsxwriter.Workbook`` does for files in memory, at :data:`LEVEL`."""
        packager = FastPackager()
        if not self.worksheets():
            self.add_worksheet()
        if self.worksheet_meta.activesheet == 0:
            self.worksheets_objs[0].selected = 1
            self.worksheets_objs[0].hidden = 0
        for sheet in self.worksheets():
            if sheet.index == self.worksheet_meta.activesheet:
                sheet.active = 1
        for prepare in (self._prepare_sst_string_data, self._prepare_vml,
                        self._prepare_defined_names, self._prepare_drawings,
                        self._add_chart_data, self._prepare_tables, self._prepare_metadata):
            prepare()
        packager._add_workbook(self)
        packager._set_tmpdir(self.tmpdir)
        packager._set_in_memory(True)
        with ZipFile(self.filename, "w", ZIP_DEFLATED, compresslevel=LEVEL) as packed:
            for data, name, is_binary in packager._create_package():
                info = ZipInfo(name, EPOCH)
                info.compress_type = ZIP_DEFLATED
                packed.writestr(info, data.getvalue() if is_binary else data.coded(),
                                compresslevel=LEVEL)


def settings() -> dict[str, Any]:
    """Options of the writer, made anew for each workbook because it changes them."""
    return {"strings_to_formulas": False, "strings_to_urls": False,
            "strings_to_numbers": False,
            "default_format_properties": {"font_name": FONT, "font_size": FONT_SIZE,
                                          "font_family": 2, "font_scheme": False}}
