"""The template, the portfolio and the comparison: what is in them, and that text stays text."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from typing import Any

import openpyxl
import pytest
from workbook_plans import CATALOG, REQUEST
from workbook_reading import errors, read, texts

from planner.api.compare_service import Sources, compare_plans
from planner.api.workbook_service import Portfolio, plan_workloads
from planner.spreadsheets.sheets import read_workbook
from planner.spreadsheets.workload_columns import BY_KEY, COLUMNS, MAX_WORKLOADS
from planner.spreadsheets.workloads import read_workloads
from planner.workbook.compare import PART_WORDS, plan_names, write_comparison
from planner.workbook.portfolio import _FLEET_LABELS, _LABELS
from planner.workbook.template import write_template

HOSTILE = '=HYPERLINK("http://example.org","x") & <b> 🚀'


@pytest.fixture(scope="module")
def template() -> bytes:
    return write_template(CATALOG)


def fill(template: bytes, *rows: dict[str, Any]) -> bytes:
    """The template with rows by column key from row 3 on."""
    book = openpyxl.load_workbook(io.BytesIO(template))
    page = book["Workloads"]
    place = {c.key: i for i, c in enumerate(COLUMNS, 1)}
    for number, row in enumerate(rows, 3):
        for key, value in row.items():
            cell = page.cell(number, place[key], value)
            if isinstance(value, str):
                cell.data_type = "s"
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


CHAT = {"name": HOSTILE, "model": "llama-3.1-8b", "requests_per_second": "12 /s",
        "prompt_tokens_mean": "2,000", "output_tokens_mean": 300, "ttft_ms": "1 s", "tpot_ms": 50,
        "gpus": "h100-sxm-80gb", "setups": "colocated", "notes": "+1", "start": "2027-01"}
NEVER = {**CHAT, "name": "-never", "ttft_ms": 1}
UNPRICED = {**CHAT, "name": "@unpriced", "commitment": "owned"}


@pytest.fixture(scope="module")
def portfolio(template: bytes) -> Portfolio:
    return plan_workloads(fill(template, CHAT, NEVER, {**CHAT, "name": "l40s", "gpus": "l40s"}),
                          CATALOG)


@pytest.fixture(scope="module")
def answer(portfolio: Portfolio) -> bytes:
    return portfolio.workbook()


# -- template -----------------------------------------------------------------------------------


def test_the_same_catalog_gives_the_same_template(template: bytes) -> None:
    assert write_template(CATALOG) == template


def test_drop_downs_cover_the_catalog(template: bytes) -> None:
    book = read(template)
    page = book["Workloads"]
    lists = {str(v.sqref): v.formula1 for v in page.data_validations.dataValidation}
    by_column = {re.match("[A-Z]+", k)[0]: v for k, v in lists.items()}  # type: ignore[index]
    for key, words in (("model", set(CATALOG.llms)), ("gpus", set(CATALOG.gpus)),
                       ("engine", {p.engine for p in CATALOG.engines.values()}),
                       ("commitment", {"on_demand", "spot"}), ("setups", {"chunked"})):
        letter = openpyxl.utils.get_column_letter(list(BY_KEY).index(key) + 1)
        sheet, _, area = by_column[letter].replace("$", "").partition("!")
        shown = {row[0].value for row in book[sheet][area]}
        assert shown >= words
        assert None not in shown
    assert all(f"2:{k[0]}" not in k or str(MAX_WORKLOADS + 2) in k for k in lists)


def test_every_header_has_a_note_and_every_column_a_name(template: bytes) -> None:
    book = read(template)
    header = next(book["Workloads"].iter_rows(max_row=1))
    assert [c.value for c in header] == [c.title for c in COLUMNS]
    assert all(c.comment and len(c.comment.text) > 10 for c in header)
    assert {f"col_{c.key}" for c in COLUMNS} == set(book.defined_names)
    assert all(c.heading.label in texts(book, "Help") for c in COLUMNS)


def test_no_sheet_is_hidden(template: bytes, answer: bytes) -> None:
    for data in (template, answer):
        assert all(s.sheet_state == "visible" for s in read(data))


# -- portfolio ----------------------------------------------------------------------------------


def rows_of(data: bytes, sheet: str) -> list[dict[str, Any]]:
    header, *rows = read(data)[sheet].iter_rows(values_only=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_one_line_a_row_with_its_plan(portfolio: Portfolio, answer: bytes) -> None:
    lines = rows_of(answer, "Results")
    assert [line["Row"] for line in lines] == [3, 4, 5]
    for line, plan in zip(lines, portfolio.plans, strict=True):
        best = plan.document["recommended"] or {}
        assert line["GPUs"] == best.get("gpus")
        assert line["Plan"] == plan.document["id"]
        assert line["Reason"] == plan.document["reason"]
        if best:
            assert line["Cost per month [USD]"] == pytest.approx(best["usd_per_month"])
            assert line["TTFT [ms]"] == pytest.approx(best["ttft_ms"]["p90"])
    assert [line["State"] for line in lines] == ["planned", "no plan", "planned"]
    assert (lines[0]["Start"], lines[0]["Notes"]) == ("2027-01", "+1")


def test_the_totals_are_sums_of_the_lines(portfolio: Portfolio, answer: bytes) -> None:
    totals = portfolio.document()["totals"]
    lines, pools = rows_of(answer, "Results"), rows_of(answer, "Fleet")
    assert totals["gpus"] == sum(line["GPUs"] or 0 for line in lines)
    assert totals["gpus"] == sum(p["GPUs"] for p in pools)
    assert totals["usd_per_month"] == pytest.approx(sum(p["Cost per month [USD]"] for p in pools))
    assert {e["gpu"]: e["gpus"] for e in totals["by_gpu"]} == {
        p["GPU"]: sum(q["GPUs"] for q in pools if q["GPU"] == p["GPU"]) for p in pools}
    shown = {row[0].value: row[1].value for row in read(answer)["Summary"].iter_rows()}
    assert shown["GPUs"] == totals["gpus"]
    assert shown["Cost per month [USD]"] == pytest.approx(totals["usd_per_month"])


def test_an_unpriced_workload_makes_the_total_unknown(template: bytes) -> None:
    found = plan_workloads(fill(template, UNPRICED), CATALOG)
    assert found.document()["totals"]["usd_per_month"] is None
    summary = {row[0].value: row[1].value for row in read(found.workbook())["Summary"].iter_rows()}
    assert summary["Cost per month [USD]"] == "n/a"
    assert errors(read(found.workbook())) == []


def test_only_infeasible_workloads(template: bytes) -> None:
    found = plan_workloads(fill(template, NEVER), CATALOG)
    assert found.document()["totals"]["gpus"] == 0
    assert errors(read(found.workbook())) == []
    assert "No workload has a plan." in texts(read(found.workbook()), "Summary")


def test_the_answer_can_be_sent_again(portfolio: Portfolio, answer: bytes) -> None:
    again = read_workloads(read_workbook(answer), CATALOG)
    assert [(r.request.name, r.request.gpus, r.request.limits) for r in again.rows] == [
        (r.request.name, r.request.gpus, r.request.limits) for r in portfolio.read.rows]
    assert [r.request.workload.slos for r in again.rows] == [
        r.request.workload.slos for r in portfolio.read.rows]


def test_text_stays_text(answer: bytes) -> None:
    book = openpyxl.load_workbook(io.BytesIO(answer))
    for sheet in book:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    assert "HYPERLINK" not in str(cell.value)
    assert book["Results"]["B2"].value == HOSTILE
    with zipfile.ZipFile(io.BytesIO(answer)) as parts:
        for name in parts.namelist():
            ElementTree.fromstring(parts.read(name))


def test_labels_are_unique() -> None:
    assert len(set(_LABELS)) == len(_LABELS)
    assert len(set(_FLEET_LABELS)) == len(_FLEET_LABELS)


# -- comparison ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def comparison() -> tuple[dict[str, Any], bytes]:
    base = {**REQUEST, "name": HOSTILE, "setups": ["colocated"]}
    body = {"base": base, "scenarios": [
        {"name": "@more", "changes": {"workload": {"requests_per_second": 30,
                                                   "prompt_tokens": 3000},
                                      "limits": {"spare_replicas": 0}}},
        {"name": "never", "changes": {"slo": {"ttft_ms": 1}}},
        {"name": "unpriced", "changes": {"pricing": {"commitment": "owned"}}}, {"changes": {}}]}
    document, made = compare_plans(body, Sources(CATALOG, lambda _: None, lambda _: None))
    return document, write_comparison(document, [m.snapshot for m in made])


def test_the_comparison_has_its_sheets_and_no_error(comparison: tuple[dict[str, Any], bytes]
                                                    ) -> None:
    book = read(comparison[1])
    assert book.sheetnames == ["Comparison", "Changes", *(f"Bridge to plan {i}" for i in
                                                          range(2, 6))]
    assert errors(book) == []
    with zipfile.ZipFile(io.BytesIO(comparison[1])) as parts:
        charts = [n for n in parts.namelist() if n.startswith("xl/charts/chart")]
        drawings = b"".join(parts.read(n) for n in parts.namelist() if "drawings/drawing" in n)
    assert len(charts) == 5  # two for each bridge, one for the unpriced, none without a plan
    assert drawings.count(b"descr=") == 5


def test_plans_of_one_name_are_told_apart() -> None:
    names = plan_names({"plans": [{"name": "Chat"}, {"name": "Chat"}, {"name": "Chat"}],
                        "differences": [{"field": "/slo/ttft_ms", "values": [500, 800, 500]}]})
    assert names == ["1: Chat", "2: Chat (ttft ms 800)", "3: Chat (the same request)"]


def test_the_bridge_sheet_sums(comparison: tuple[dict[str, Any], bytes]) -> None:
    document, data = comparison
    page = read(data)["Bridge to plan 2"]
    rows = [r for r in page.iter_rows(min_row=5, max_col=7, values_only=True) if r[0]]
    end = next(i for i, r in enumerate(rows) if r[0] == "2: @more")
    steps = rows[1:end]
    assert sum(r[2] for r in steps) == rows[end][2] == rows[end][3] - rows[0][3]
    assert sum(r[5] for r in steps) == pytest.approx(rows[end][6] - rows[0][6])
    assert [r[0] for r in steps] == [
        " and ".join(PART_WORDS[p] for p in s["parts"]) for s in document["bridges"][0]["steps"]]
    assert "OK" in [r[1] for r in rows]


def test_a_plan_without_an_option_has_a_reason_instead(comparison: tuple[dict[str, Any], bytes]
                                                       ) -> None:
    assert "has no option" in texts(read(comparison[1]), "Bridge to plan 3")


def test_the_changes_name_fields_as_the_request_does(comparison: tuple[dict[str, Any], bytes]
                                                     ) -> None:
    rows = rows_of(comparison[1], "Changes")
    fields = {r["Field of the request"] for r in rows}
    assert {"workload.requests_per_second", "slo.ttft_ms", "pricing.commitment",
            "limits.spare_replicas"} <= fields
