"""A new workbook with the settings and properties that all have in common."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from io import BytesIO
from typing import Any

from planner import __version__
from planner.workbook.fast import FastBook, settings
from planner.workbook.styles import Styles

AUTHOR = "LLM inference capacity planner"
UNDATED = datetime(2000, 1, 1)
"""Creation time of every such workbook, so that the same content gives the same bytes."""


def written(title: str, fill: Callable[[Any, Styles], None]) -> bytes:
    """A workbook as bytes.

    Text is never taken for a formula, a number or a link.

    Parameters
    ----------
    title : str
    fill : callable
        Gets the XlsxWriter workbook and its styles.
    """
    target = BytesIO()
    with FastBook(target, settings()) as book:
        book.set_properties({"title": title, "author": AUTHOR, "created": UNDATED,
                             "comments": f"planner {__version__}"})
        fill(book, Styles(book))
    return target.getvalue()
