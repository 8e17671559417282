"""Text that users and catalogs control stays text, wherever it turns up."""

from __future__ import annotations

import copy
import io
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from typing import Any

import openpyxl
import pytest
from workbook_plans import PlanParts
from workbook_reading import read

from planner.workbook import write_plan
from planner.workbook.layout import clean

HOSTILE = ['=HYPERLINK("http://example.org","click")', "+1+1", "-2+3", "@SUM(A1)",
           'quotes "and" \'these\' & <b>tags</b>', "emoji 🚀🧪 and 中文", "x" * 300, "word " * 60,
           "control\x00\x07\x1b\x0bcharacters\x7f", "lone \ud800 surrogate \ufffe", "&P &D &[Tab]",
           "_x0041_", "{=1+1}", "http://example.org/" + "y" * 250, "line\nbreak\ttab"]


@pytest.fixture(scope="module", params=HOSTILE, ids=range(len(HOSTILE)))
def attack(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def attacked(made: dict[str, PlanParts], attack: str) -> bytes:
    document, points, snapshot = copy.deepcopy(made["plain"])
    document["request"]["name"] = attack
    document["reason"] = attack
    document["advice"] = [{"code": attack, "message": attack}]
    document["assumptions"] = [dict.fromkeys(("name", "value", "unit", "source"), attack)]
    document["infeasible"] = [{"setup": attack, "gpu": attack, "reason": attack, "detail": attack}]
    snapshot["model"]["name"] = snapshot["model"]["hf_id"] = attack
    for row in (*snapshot["gpus"], *snapshot["prices"], *snapshot["engines"]):
        row.update(dict.fromkeys(("name", "source", "provider", "source_url"), attack))
    for row in points["rows"]:
        row[points["columns"].index("bound")] = attack
    return write_plan(document, points, snapshot)


def _formulas(data: bytes) -> list[Any]:
    book = openpyxl.load_workbook(io.BytesIO(data))
    return [c.value for sheet in book for row in sheet.iter_rows() for c in row
            if c.data_type == "f"]


def test_no_text_becomes_a_formula_or_a_link(attacked: bytes) -> None:
    formulas = "\n".join(str(f) for f in _formulas(attacked))
    assert "example.org" not in re.sub(r'"[^"]*"', "", formulas)
    assert not re.search(r"(?m)^=(HYPERLINK|\+1|-2|@SUM|SUM\(A1)", formulas)
    with zipfile.ZipFile(io.BytesIO(attacked)) as parts:
        assert not any(b"hyperlink" in parts.read(n).lower() for n in parts.namelist()
                       if n.endswith(".rels"))


def test_every_part_is_valid_xml(attacked: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(attacked)) as parts:
        for name in parts.namelist():
            ElementTree.fromstring(parts.read(name))


def test_the_text_is_kept(attacked: bytes, attack: str) -> None:
    value = read(attacked)["Summary"]["A1"].value
    assert str(value).replace("_x005F_", "_").split() == clean(attack).split()


def test_page_headers_are_short_and_plain(attacked: bytes) -> None:
    header = read(attacked)["Summary"].oddHeader
    assert len(str(header.left.text)) <= 160
    assert "\n" not in str(header.left.text)
