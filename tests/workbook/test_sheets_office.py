"""A real spreadsheet program opens the template, the portfolio and the comparison without loss."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from test_office import INFO, SOFFICE, cells, convert
from test_sheets_out import CHAT, NEVER, fill
from workbook_plans import CATALOG, REQUEST
from workbook_reading import read

from planner.api.compare_service import Sources, compare_plans
from planner.api.workbook_service import plan_workloads
from planner.spreadsheets.sheets import read_workbook
from planner.spreadsheets.workload_columns import COLUMNS
from planner.spreadsheets.workloads import read_workloads
from planner.workbook.compare import write_comparison
from planner.workbook.template import write_template

pytestmark = [pytest.mark.office, pytest.mark.slow,
              pytest.mark.skipif(SOFFICE is None, reason="LibreOffice is not installed")]


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    template = write_template(CATALOG)
    filled = fill(template, CHAT, NEVER)
    base = {**REQUEST, "setups": ["colocated"]}
    body = {"base": base, "scenarios": [
        {"name": "more", "changes": {"workload": {"requests_per_second": 30}}},
        {"name": "never", "changes": {"slo": {"ttft_ms": 1}}}]}
    document, plans = compare_plans(body, Sources(CATALOG, lambda _: None, lambda _: None))
    return {"template": template, "filled": filled,
            "portfolio": plan_workloads(filled, CATALOG).workbook(),
            "comparison": write_comparison(document, [p.snapshot for p in plans])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, made: dict[str, bytes]) -> Path:
    folder = tmp_path_factory.mktemp("sheets")
    for name, data in made.items():
        (folder / f"{name}.xlsx").write_bytes(data)
    sources = sorted(folder.glob("*.xlsx"))
    convert(folder, sources, "xlsx")
    convert(folder, sources, "pdf")
    return folder


@pytest.mark.parametrize("name", ["template", "filled", "portfolio", "comparison"])
def test_nothing_changes_when_it_is_opened_and_saved(made: dict[str, bytes], folder: Path,
                                                     name: str) -> None:
    before = cells(read(made[name]))
    after = cells(read((folder / "xlsx" / f"{name}.xlsx").read_bytes()))
    assert before.keys() == after.keys()
    for place, value in before.items():
        expected: Any = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
        assert after[place] == expected, place


def test_a_template_saved_by_another_program_keeps_drop_downs_notes_and_names(folder: Path
                                                                              ) -> None:
    data = (folder / "xlsx" / "template.xlsx").read_bytes()
    book = read(data)
    page = book["Workloads"]
    assert len(page.data_validations.dataValidation) == sum(bool(c.choices) for c in COLUMNS)
    assert all(c.comment for c in next(page.iter_rows(max_row=1)))
    assert {f"col_{c.key}" for c in COLUMNS} <= set(book.defined_names)
    with zipfile.ZipFile(folder / "xlsx" / "template.xlsx") as parts:
        assert b"<dataValidation " in parts.read("xl/worksheets/sheet1.xml")


def test_a_template_filled_in_another_program_is_read_the_same(made: dict[str, bytes],
                                                               folder: Path) -> None:
    first = read_workloads(read_workbook(made["filled"]), CATALOG)
    again = read_workloads(read_workbook(
        (folder / "xlsx" / "filled.xlsx").read_bytes()), CATALOG)
    assert [r.values for r in again.rows] == [r.values for r in first.rows]
    assert again.example_left_out


@pytest.mark.skipif(INFO is None, reason="pdftotext is not installed")
@pytest.mark.parametrize(("name", "pages"), [("portfolio", "Summary"),
                                             ("comparison", "Comparison")])
def test_the_first_page_holds_the_answer_and_nothing_is_cut(folder: Path, name: str, pages: str
                                                            ) -> None:
    command = [str(INFO), "-layout", str(folder / "pdf" / f"{name}.pdf"), "-"]
    text = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout.decode()
    tops = [p.strip().splitlines()[0].split()[-1] for p in text.split("\f") if p.strip()]
    assert tops[0] == pages
    assert tops.count(pages) == 1
    assert "###" not in text
