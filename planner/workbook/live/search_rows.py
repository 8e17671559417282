"""Formulas over the batch sizes, as those of a single row of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.workbook.live.chain_columns import ChainColumns

RANGE = re.compile(r"(\$?[A-Z]{1,3})\$(\d+):\1\$(\d+)")
"""A column of a sheet as a range."""


def by_row(text: str, chain: ChainColumns) -> str:
    """A formula over the batch sizes as one of a single row of them."""
    t = chain.tables
    columns = [t.width, t.n, t.end, t.seconds, t.extra.get("per_token"), chain.middles,
               chain.gains, chain.curve]
    for column in columns:
        if column is not None and column.name:
            text = re.sub(rf"\b{column.name}\b", column.each.text, text)
    rows = {(t.n.first, t.n.last): "{r}", (t.n.first - 1, t.n.last - 1): "{p}"}

    def one(found: re.Match[str]) -> str:
        row = rows.get((int(found[2]), int(found[3])))
        return found[0] if row is None else found[1] + row

    return RANGE.sub(one, text)
