"""docs/nomenclature.md has a row for every API field, point column and workbook label."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from doc_names import code_names, resolves

from app import create_app
from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog
from planner.points import COLUMNS
from planner.workbook import write_plan
from planner.workbook.live.inputs import NAME as INPUTS
from planner.workbook.summary import NAME as SUMMARY

PAGE = Path(__file__).resolve().parents[2] / "docs" / "nomenclature.md"
BASE = {"model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"],
        "limits": {"layouts": [{"tensor_parallel": 1}], "token_budgets": [2048]},
        "workload": {"requests_per_second": 5, "prompt_tokens": {"mean": 1000, "p95": 3000},
                     "output_tokens": 200}, "slo": {"ttft_ms": 1000, "tpot_ms": 50}}
SLUGS = re.compile(r"[a-z0-9]+(-[a-z0-9.]+)+")


def cells(row: str) -> list[str]:
    return [c.strip() for c in row.strip().strip("|").split("|")]


@cache
def rows() -> list[list[str]]:
    """Rows of six cells: symbol, code, API name, label, unit, meaning."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [cells(line) for line in lines if line.startswith("|")]
    return [r for r in found if len(r) == 6 and not set(r[0]) <= set("- ") and r[0] != "symbol"]


@cache
def api_names() -> set[str]:
    return {name for row in rows() for name in re.findall(r"`([^`]+)`", row[2])}


@cache
def labels() -> set[str]:
    return {label.strip() for row in rows() for label in row[3].split(";")} - {"–"}


@cache
def plans() -> list[Any]:
    """A plan with one and two pools, one of measured workers, one without an answer."""
    catalog = shipped_catalog()
    asked = [
        {**BASE, "setups": ["chunked", "disaggregated"]},
        {**BASE, "setups": ["chunked"], "workload": {
            "concurrent_users": 50, "think_time_s": 10, "prompt_tokens": 500,
            "output_tokens": 100}},
        {**BASE, "setups": ["chunked"], "workload": {
            "requests_per_day": 10000, "peak_hour_share": 0.1, "prompt_tokens": 500,
            "output_tokens": 100}},
        {**BASE, "measured": {"prefill": {"requests_per_second": 5.6},
                              "decode": {"requests_per_second": 10}}},
        {**BASE, "setups": ["chunked"], "slo": {"ttft_ms": 1, "itl_ms": 40, "e2e_ms": 20000}}]
    return [make(parse_plan(document), catalog) for document in asked]


def fields(value: Any) -> set[str]:
    """Names of all fields of a document; keys that are slugs or percentiles are values."""
    if isinstance(value, list):
        return set().union(*map(fields, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    return {k for k in value if not SLUGS.fullmatch(k)}.union(*map(fields, value.values()))


def test_every_field_of_the_specification() -> None:
    schemas = create_app().test_client().get("/api/v1/openapi.json").json["components"]["schemas"]
    names = {n for s in schemas.values() for n in s.get("properties", {})}
    assert sorted(names - api_names()) == []


def test_every_field_of_an_answer() -> None:
    names = set().union(*(fields(p.document) for p in plans()))
    assert sorted(names - api_names()) == []


def test_every_column_of_the_points() -> None:
    assert sorted(set(COLUMNS) - api_names()) == []


def test_every_field_of_an_estimate_and_a_prediction() -> None:
    from planner.api.estimate_schema import parse_estimate
    from planner.api.plan_service import estimate
    from planner.api.predictions_schema import parse_predictions
    from planner.prediction import predict

    catalog = shipped_catalog()
    found = estimate(parse_estimate({
        "model": "llama-3.1-8b", "gpu": "l4", "batch": {"decodes": 8, "context_tokens": 100},
        "prompt_tokens": 100, "output_tokens": 10, "max_batched_tokens": 512}), catalog)
    point = {"model": "llama-3.1-8b", "gpu": "l4", "concurrency": 8, "prompt_tokens": 100,
             "output_tokens": 20}
    predicted = predict(parse_predictions({"points": [point]}), catalog)
    assert sorted((fields(found) | fields(predicted)) - api_names()) == []


def label_of(text: str) -> str:
    """A label without unit, percentile, count and metric."""
    text = re.sub(r" \[[^\]]*\]$", "", text)
    text = re.sub(r" p[\d.]+$", "", text)
    text = re.sub(r"^(Replicas|GPUs, range) \(.*\)$", r"\1", text)
    return re.sub(r"^Headroom .*", "Headroom", text)


WORKINGS = ("Operating points", "Fleet & cost", "Forecast", "Sensitivity", "Checks")
"""Sheets whose lines docs/workbook.md explains."""


def labels_of(book: openpyxl.Workbook) -> set[str]:
    """Texts of header cells and tile labels by their fill, and the lines of the Inputs sheet."""
    header = book[INPUTS]["A1"].fill.fgColor.rgb
    shown = [s for s in book if not s.title.startswith(WORKINGS)]
    found = {c.value for sheet in shown for row in sheet.iter_rows() for c in row
             if isinstance(c.value, str) and c.fill.fgColor.rgb == header and c.row > 0
             and c.fill.fill_type}
    tiles = [book[SUMMARY][f"A{row}"] for row in (5, 7)]
    fills = {t.fill.fgColor.rgb for t in tiles if t.fill.fill_type}
    found |= {c.value for row in book[SUMMARY].iter_rows(min_row=5, max_row=8) for c in row
              if isinstance(c.value, str) and c.row in (5, 7) and c.fill.fgColor.rgb in fills}
    found |= {row[0].value for row in book[INPUTS].iter_rows(min_row=2)
              if row[0].value and row[1].value is not None}
    return {label_of(x) for x in found
            if not x.startswith(("=", "Price of ")) and not x.endswith(" dense")}


@pytest.fixture(scope="module")
def books() -> list[openpyxl.Workbook]:
    return [openpyxl.load_workbook(io.BytesIO(write_plan(p.document, p.points, p.snapshot)))
            for p in plans()]


def test_every_label_of_the_workbook(books: list[openpyxl.Workbook]) -> None:
    found = set().union(*map(labels_of, books))
    assert len(found) > 80
    assert sorted(found - labels()) == []


def test_every_named_cell(books: list[openpyxl.Workbook]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = {n for book in books for n in book.defined_names if n.startswith(("in_", "out_"))}
    assert sorted(n for n in named if f"`{n}`" not in text) == []


def test_no_cell_name_that_no_workbook_has(books: list[openpyxl.Workbook]) -> None:
    named = {n for book in books for n in book.defined_names}
    two_gpus = {"in_prefill_usd_per_gpu_hour", "in_decode_usd_per_gpu_hour"}
    told = set(re.findall(r"`((?:in|out)_\w+)`", PAGE.read_text(encoding="utf-8")))
    assert sorted(told - named - two_gpus) == []


def test_code_names_exist() -> None:
    assert [n for n in code_names(PAGE.read_text(encoding="utf-8")) if not resolves(n)] == []
