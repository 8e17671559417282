"""Areas of a worksheet that one formula fills, and their cells as XML."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from xlsxwriter.utility import xl_col_to_name

from planner.workbook.cells import CELL_BYTES, fill
from planner.workbook.packing import escaped


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """One formula in the cells of an area, as filling does in Excel.

    Attributes
    ----------
    row, column : int
        Of the first cell, from 0.
    text : str
        Formula of the first cell, without ``=``.
    style : int
        Index of the cell format; 0 where it has none.
    values : ndarray, shape (columns, rows)
        What the cells hold.
    """

    row: int
    column: int
    text: str
    style: int
    values: Any

    @property
    def rows(self) -> range:
        """Its rows, from 0."""
        return range(self.row, self.row + self.values.shape[1])

    def texts(self, number: int) -> tuple[str, str]:
        """What stands between the place of a cell and its value: in its first cell, and in the
        others; ``number`` is that of the shared formula."""
        style = f' s="{self.style}"' if self.style else ""
        last = xl_col_to_name(self.column + len(self.values) - 1)
        ref = f"{xl_col_to_name(self.column)}{self.row + 1}:{last}{self.rows.stop}"
        shared = f'"{style}><f t="shared"'
        return (f'{shared} ref="{ref}" si="{number}">{escaped(self.text)}</f><v>',
                f'{shared} si="{number}"/><v>')


Numbered = tuple[int, Area]
"""An area with the number of its shared formula."""
Piece = tuple[int, int, memoryview]
"""Row and column (from 0) of some XML: cells of a row that no other cell stands between."""


def pieces(areas: Sequence[Area], table: Mapping[int, Mapping[int, Any]]) -> Iterator[Piece]:
    """The cells of all areas of a worksheet as XML.

    Parameters
    ----------
    table : mapping
        All other cells of the worksheet, by row and column.
    """
    def order(one: Numbered) -> tuple[int, int, int]:
        return one[1].values.shape[1], one[1].row, one[1].column

    for _, group in groupby(sorted(enumerate(areas), key=order), lambda one: order(one)[0]):
        alike = list(group)
        xml, ends = written(alike)
        start = 0
        for last in runs([area for _, area in alike], areas, table):
            first = alike[start][1]
            for row, here in zip(first.rows, ends, strict=True):
                yield row, first.column, xml[here[start]:here[last + 1]]
            start = last + 1


def runs(alike: list[Area], areas: Sequence[Area], table: Mapping[int, Mapping[int, Any]]
         ) -> Iterator[int]:
    """Of areas of equally many rows, in order: where those end that stand in the same rows with no
    other cell between them."""
    start = 0
    for _, group in groupby(alike, lambda area: area.row):
        same = list(group)
        start += len(same)
        if len(same) > 1:
            breaks = sorted(between(same[0].rows, areas, table))
            places = [bisect(breaks, area.column) for area in same]
            for i, (here, after) in enumerate(pairwise(places)):
                if here != after:
                    yield start - len(same) + i
        yield start - 1


def between(rows: range, areas: Sequence[Area], table: Mapping[int, Mapping[int, Any]]
            ) -> set[int]:
    """Columns of the cells in some rows and of the first cells of areas that have other rows."""
    found = {area.column for area in areas if area.row < rows.stop and rows.start < area.rows.stop
             and area.rows != rows}
    return found.union(*(table.get(row, ()) for row in rows))


def written(areas: list[Numbered]) -> tuple[memoryview, list[list[int]]]:
    """The cells of areas of equally many rows as XML, row by row; and for each row where in it
    each area begins, and where the last ends."""
    texts = [text.encode() for number, area in areas for text in area.texts(number)]
    sizes = np.array([len(text) for text in texts])
    values = np.ascontiguousarray(np.concatenate([area.values for _, area in areas]), dtype=float)
    counts = np.array([len(area.values) for _, area in areas])
    places = np.array([(area.row + 1, area.column) for _, area in areas])
    most = int(counts @ sizes[1::2]) * values.shape[1] + int(sizes[::2].sum())
    xml = np.empty(most + values.size * CELL_BYTES, dtype=np.uint8)
    ends = np.empty((values.shape[1], len(areas) + 1), dtype=np.int64)
    fill(xml, ends, places, counts, np.frombuffer(b"".join(texts), dtype=np.uint8),
         np.concatenate([[0], np.cumsum(sizes)]), values)
    return xml.data, ends.tolist()
