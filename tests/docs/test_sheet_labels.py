"""Labels of the template, the portfolio and the comparison are in the nomenclature too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_nomenclature import label_of, labels

from planner.bridge import CATALOG, PARTS
from planner.spreadsheets.workload_columns import COLUMNS
from planner.workbook import compare, portfolio

SHEETS = (Path(__file__).resolve().parents[2] / "docs" / "spreadsheets.md").read_text("utf-8")


@pytest.mark.parametrize("found", [
    [c.title for c in COLUMNS], portfolio._LABELS, portfolio._FLEET_LABELS,
    [name for name, _, _ in compare.FIGURES], compare._Bridge.HEADER],
    ids=["template", "results", "fleet", "figures", "bridge"])
def test_every_label(found: list[str]) -> None:
    assert sorted({label_of(x) for x in found} - labels()) == []


def test_the_parts_of_a_bridge_are_documented_in_their_order() -> None:
    table = SHEETS.partition("| part | fields |")[2]
    documented = re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)[:len(PARTS) + 1]
    assert documented == [*(p.name for p in PARTS), CATALOG]
    assert set(compare.PART_WORDS) == set(documented)
