"""Cells of filled areas as XML, in machine code: a workbook has a hundred thousand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planner.compiled import compiled, entry

DIGITS = 10
"""Of the values of an area, which programs work out anew: more make the file larger."""
FULL, HALF = 10**DIGITS, 10 ** (DIGITS - 1)
FAR = 300
POWERS = np.array([float(f"1e{i}") for i in range(FAR + 1)])
WHOLE = 1e9
"""Whole numbers below this are written as they are."""
START = np.frombuffer(b'<c r="', dtype=np.uint8)
END = np.frombuffer(b"</v></c>", dtype=np.uint8)
CELL_BYTES = len(START) + len(END) + 3 + 7 + DIGITS + 8
"""Of a cell at most, without the text between its place and its value: column, row, number."""
PAIRS = np.array([list(b"%02d" % i) for i in range(100)], dtype=np.uint8)
"""Digits of the numbers below 100."""
ZERO, POINT, MINUS, PLUS, POWER, LETTER = b"0.-+eA"


@entry
def fill(xml: Any, ends: Any, places: Any, counts: Any, texts: Any, bounds: Any, values: Any
         ) -> None:
    """Write the cells of areas of equally many rows: the first row of all, then the second.

    Parameters
    ----------
    xml : ndarray of uint8
        Filled; takes :data:`CELL_BYTES` a cell and the texts of all cells.
    ends : ndarray of int64, shape (rows, areas + 1)
        Filled with where in ``xml`` each area begins, and where the last ends.
    places : ndarray of int64, shape (areas, 2)
        First row (from 1) and column (from 0) of each.
    counts : ndarray of int64, shape (areas,)
        How many columns each has.
    texts : ndarray of uint8
        What stands between the place of a cell and its value: for each area in its first cell,
        and in all others.
    bounds : ndarray of int64, shape (2 areas + 1,)
        Where these texts begin and end.
    values : ndarray, shape (columns of all areas, rows)
    """
    at = 0
    for row in range(values.shape[1]):
        cell = 0
        for area in range(len(counts)):
            ends[row, area] = at
            for column in range(counts[area]):
                at = put_bytes(xml, at, START)
                at = put_letters(xml, at, places[area, 1] + column)
                at = put_whole(xml, at, places[area, 0] + row)
                text = 2 * area + (row > 0 or column > 0)
                at = put_bytes(xml, at, texts[bounds[text]:bounds[text + 1]])
                at = put_number(xml, at, values[cell, row])
                at = put_bytes(xml, at, END)
                cell += 1
        ends[row, len(counts)] = at


@compiled
def put_bytes(xml: Any, at: int, source: Any) -> int:
    """Copy a piece of text."""
    size = len(source)
    place = xml[at:at + size]
    for i in range(size):
        place[i] = source[i]
    return at + size


@compiled
def put_letters(xml: Any, at: int, column: int) -> int:
    """The name of a column counted from 0."""
    left = column + 1
    size = 1 if column < 26 else 2 if column < 702 else 3
    for i in range(size - 1, -1, -1):
        left -= 1
        xml[at + i] = LETTER + left % 26
        left //= 26
    return at + size


@compiled
def put_whole(xml: Any, at: int, value: int) -> int:
    """A whole number of at least 0."""
    size, left = 1, value // 10
    while left:
        size += 1
        left //= 10
    left = value
    for i in range(size - 1, -1, -1):
        xml[at + i] = ZERO + left % 10
        left //= 10
    return at + size


@compiled
def put_number(xml: Any, at: int, value: float) -> int:
    """A number with :data:`DIGITS` digits as ``%g`` writes it; 0 where it is none."""
    if value < 0.0:
        xml[at] = MINUS
        return put_number_from_0(xml, at + 1, -value)
    return put_number_from_0(xml, at, value)


@compiled
def put_number_from_0(xml: Any, at: int, value: float) -> int:
    """The same of a number of at least 0."""
    if not math.isfinite(value):
        return put_whole(xml, at, 0)
    if value < WHOLE and value == math.floor(value):
        return put_whole(xml, at, int(value))
    digits, power = decimal(value)
    if -5 < power < DIGITS:
        return put_plain(xml, at, digits, power)
    at = put_plain(xml, at, digits, 0)
    xml[at], xml[at + 1] = POWER, MINUS if power < 0 else PLUS
    if abs(power) < 10:
        xml[at + 2] = ZERO
        return put_whole(xml, at + 3, abs(power))
    return put_whole(xml, at + 2, abs(power))


@compiled
def decimal(value: float) -> tuple[int, int]:
    """Of a positive number: its first :data:`DIGITS` digits, rounded, and the power of ten of the
    first of them."""
    power = math.floor(math.log10(value))
    digits = int(shifted(value, DIGITS - 1 - power) + 0.5)
    if digits < HALF:
        power -= 1
        digits = int(shifted(value, DIGITS - 1 - power) + 0.5)
    if digits >= FULL:
        return digits // 10, power + 1
    return digits, power


@compiled
def shifted(value: float, places: int) -> float:
    """A number times a power of ten."""
    if places < 0:
        return value / POWERS[-places]
    if places > FAR:
        return value * POWERS[FAR] * POWERS[places - FAR]
    return value * POWERS[places]


@compiled
def put_plain(xml: Any, at: int, digits: int, power: int) -> int:
    """Digits of which the first counts a power of ten, without zeros at the end."""
    if power < 0:
        for i in range(1 - power):
            xml[at + i] = ZERO
        xml[at + 1] = POINT
        start = at + 1 - power
        put_digits(xml, start, digits)
        return stripped(xml, start + DIGITS)
    put_digits(xml, at + 1, digits)
    for i in range(at, at + power + 1):
        xml[i] = xml[i + 1]
    xml[at + power + 1] = POINT
    end = stripped(xml, at + DIGITS + 1)
    return end - 1 if xml[end - 1] == POINT else end


@compiled
def put_digits(xml: Any, at: int, digits: int) -> None:
    """All digits, two at a time."""
    for i in range(at + DIGITS - 2, at - 1, -2):
        pair = PAIRS[digits % 100]
        xml[i], xml[i + 1] = pair[0], pair[1]
        digits //= 100


@compiled
def stripped(xml: Any, end: int) -> int:
    """The end without zeros before it."""
    while xml[end - 1] == ZERO:
        end -= 1
    return end
