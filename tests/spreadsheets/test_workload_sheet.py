"""A filled workload sheet: what people do to one, and the cell that is at fault."""

from __future__ import annotations

import datetime
import io
import re
from typing import Any

import openpyxl
import pytest
import xlsxwriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openpyxl.utils.exceptions import IllegalCharacterError
from sheet_files import CATALOG, ROW, read, saved, table, workloads

from planner.api.echo import echo
from planner.api.validation import InvalidDocument
from planner.errors import PlannerError
from planner.spreadsheets.headers import words_of
from planner.spreadsheets.package import FileTooLarge
from planner.spreadsheets.workload_columns import COLUMNS, MAX_WORKLOADS
from planner.workbook.template import write_template

TEMPLATE = write_template(CATALOG)


def errors(data: bytes) -> dict[str, str]:
    with pytest.raises(InvalidDocument) as caught:
        read(data)
    return dict(caught.value.errors)


def request(**changes: Any) -> dict[str, Any]:
    return echo(read(workloads({**ROW, **changes})).rows[0].request)


def fill(**cells: Any) -> bytes:
    """The template with some cells set: ``B3="..."``."""
    book = openpyxl.load_workbook(io.BytesIO(TEMPLATE))
    for place, value in cells.items():
        book["Workloads"][place] = value
    return saved(book)


def test_a_plain_row() -> None:
    found = request()
    assert found["model"] == "llama-3.1-8b"
    assert found["workload"]["requests_per_second"] == 5
    assert found["workload"]["prompt_tokens"] == {"mean": 1000}
    assert found["slo"] == {"ttft_ms": 1000, "tpot_ms": 50, "percentile": 90}
    assert (found["gpus"], found["setups"]) == (["l40s"], ["chunked"])


def test_every_column() -> None:
    found = request(**{
        "Prompt tokens, 95th percentile [token]": "3,000", "Output tokens, 95th percentile": 400,
        "Arrival CV": 2, "Prefix-cache hit rate [%]": "25%", "Gap between tokens [ms]": "0.2 s",
        "Whole request [ms]": "60 s", "Percentile": "p95", "GPUs": "H100 SXM5 80GB",
        "Weights": "FP8", "KV cache": "fp8", "Engine": "vLLM", "Commitment": "1 year reserved",
        "Price per GPU-hour [USD]": "$1.90", "Target utilisation": 0.7, "Spare replicas": 1,
        "Regions": 2, "Most GPUs": 64, "Objective": "GPUs", "Start": datetime.date(2027, 1, 1),
        "Notes": "for the new site"})
    assert found["workload"]["prompt_tokens"] == {"mean": 1000, "p95": 3000}
    assert found["workload"]["output_tokens"] == {"mean": 200, "p95": 400}
    assert found["workload"]["arrival_cv"] == 2
    assert found["workload"]["prefix_cache_hit_rate"] == 0.25
    assert found["slo"] == {"ttft_ms": 1000, "tpot_ms": 50, "itl_ms": 200, "e2e_ms": 60000,
                            "percentile": 95}
    assert found["gpus"] == ["h100-sxm-80gb"]
    assert found["precisions"] == [{"weights": "fp8", "kv": "fp8"}]
    assert found["engine"] == "vllm"
    assert found["pricing"]["commitment"] == "reserved_1y"
    assert found["pricing"]["usd_per_gpu_hour"] == {"h100-sxm-80gb": 1.9}
    limits = found["limits"]
    assert (limits["target_utilization"], limits["spare_replicas"], limits["regions"],
            limits["max_gpus"]) == (0.7, 1, 2, 64)
    assert found["objective"] == "gpus"


def test_a_rate_per_day_and_users() -> None:
    day = {k: v for k, v in ROW.items() if not k.startswith("Requests")}
    found = echo(read(workloads({**day, "Requests per day": "200k", "Peak hour share": 0.1})
                      ).rows[0].request)["workload"]
    assert (found["requests_per_day"], found["peak_hour_share"]) == (200_000, 0.1)
    found = echo(read(workloads({**day, "Users": "1,500", "Think time": "1 min"})
                      ).rows[0].request)["workload"]
    assert (found["concurrent_users"], found["think_time_s"]) == (1500, 60)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "Llama 3.1 8B", "LLAMA_3.1_8B",
                                  "meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct"])
def test_names_of_a_model(name: str) -> None:
    assert request(Model=name)["model"] == "llama-3.1-8b"


def test_reordered_renamed_and_extra_columns() -> None:
    row = {"Team": "blue", "TPOT (ms)": 50, "output tokens": "200", "#Wall colour": 5,
           "TTFT [s]": 1, "INPUT TOKENS": "1,000", "rps": 5, "LLM": "llama-3.1-8b",
           "gpu_types": "L40S", "setups": "Chunked prefill", "Name": "chat"}
    found = read(workloads(row))
    assert echo(found.rows[0].request) == request()
    assert found.ignored == ["Team"]


def test_every_spelling_of_a_header_means_one_column() -> None:
    seen: dict[str, str] = {}
    for column in COLUMNS:
        h = column.heading
        for name in (h.key, h.label, *h.variants, *h.needs_unit):
            assert seen.setdefault(words_of(name), column.key) == column.key, name


def test_header_below_a_title_and_blank_rows() -> None:
    rows = [["Our workloads"], [], list(ROW), [], list(ROW.values()), [None], [""],
            ["b", *list(ROW.values())[1:]]]
    found = read(table(rows, at=2))
    assert [(r.number, r.request.name) for r in found.rows] == [(6, "chat"), (9, "b")]


def test_a_renamed_sheet_among_others() -> None:
    book = openpyxl.load_workbook(io.BytesIO(workloads(ROW)))
    book.active.title = "My ~ plans"
    book.create_sheet("Other").append(["hello"])
    found = read(saved(book))
    assert found.sheet == "My ~ plans"
    assert found.rows[0].places["model"] == "/My ~0 plans/B2"


def test_two_sheets_of_workloads() -> None:
    book = openpyxl.load_workbook(io.BytesIO(workloads(ROW)))
    book.active.title = "One"
    book.copy_worksheet(book.active).title = "Two"
    assert "'One', 'Two'" in errors(saved(book))["/Workloads"]


@pytest.mark.parametrize(("changes", "place", "words"), [
    ({"Model": "llama-9"}, "B2", "unknown model"), ({"Model": None}, "B2", "is required"),
    ({"Requests per second [1/s]": -1}, "C2", "above 0"),
    ({"Requests per second [1/s]": None}, "C2", "Requests per day"),
    ({"Requests per second [1/s]": "5 apples"}, "C2", "unknown unit"),
    ({"Prompt tokens, mean [token]": "1,5"}, "D2", "1.5"),
    ({"Prompt tokens, mean [token]": 0}, "D2", "at least 1"),
    ({"Prompt tokens, mean [token]": 500_000}, "D2", "exceed"),
    ({"Time to first token [ms]": 0}, "F2", "above 0"),
    ({"GPUs": "h100-sxm"}, "H2", "did you mean"),
    ({"GPUs": "l40s, banana"}, "H2", "banana"), ({"Set-ups": "magic"}, "I2", "allowed: static"),
    ({"Percentile": 20}, "J2", "at least 50"), ({"Target utilisation": 80}, "J2", "80%"),
    ({"Prompt tokens, 95th percentile [token]": 500}, "J2", "below the mean"),
    ({"Prompt tokens, 95th percentile [token]": 90_000}, "J2", "3.87"),
    ({"Spare replicas": 1.5}, "J2", "whole number"), ({"Weights": "fp3"}, "J2", "allowed"),
    ({"Provider": "Nobody"}, "J2", "allowed"), ({"Share of the day in its peak hour": 0.1}, "J2",
                                                "only goes with Requests per day"),
    ({"Requests per day": 5}, "J2", "give only one"), ({"Engine": "vllama"}, "J2", "allowed"),
    ({"Start": "03/11/2026"}, "J2", "date"), ({"Regions": 0}, "J2", "at least 1"),
    ({"Price per GPU-hour [USD]": 2, "GPUs": "l40s, l4"}, "J2", "exactly one GPU"),
    ({"Name": "x" * 300}, "A2", "characters"),
])
def test_the_cell_at_fault(changes: dict[str, Any], place: str, words: str) -> None:
    found = errors(workloads({**ROW, **changes}))
    assert words in found[f"/Workloads/{place}"], found
    assert len(found) == 1


def test_every_fault_at_once() -> None:
    found = errors(workloads({**ROW, "Model": "nope", "GPUs": "nope"},
                             {**ROW, "Output tokens, mean [token]": "x"}))
    assert sorted(found) == ["/Workloads/B2", "/Workloads/E3", "/Workloads/H2"]


def test_a_number_without_unit_where_it_matters() -> None:
    row = {k: v for k, v in ROW.items() if not k.startswith(("Time", "Requests"))}
    row |= {"TTFT": 1, "Rate": 5}
    found = errors(workloads(row))
    assert all("needs its unit" in m for m in found.values())
    assert len(found) == 2
    good = read(workloads({**row, "TTFT": "1 s", "Rate": "300 /min"})).rows[0].request
    assert (good.workload.slos[0].limit_s, good.workload.requests_per_s) == (1.0, 5.0)


@pytest.mark.parametrize(("header", "words"), [
    ("Modell", "did you mean Model"),
    ("Prefx-cache hit rate", "did you mean Prefix-cache hit rate"),
    ("Output token, mean", "names Output tokens, mean again|did you mean"),
    ("TTFT (parsec)", "unknown unit|again")])
def test_misspelt_and_repeated_headers(header: str, words: str) -> None:
    found = errors(workloads({**ROW, header: 1}))
    assert re.search(words, found["/Workloads/J1"])


def test_missing_columns() -> None:
    found = errors(workloads({"Name": "a", "Model": "llama-3.1-8b", "Output tokens": 5}))
    assert "/Workloads" in found
    with pytest.raises(InvalidDocument) as caught:
        read(workloads({"Name": "a", "Model": "llama-3.1-8b"}))
    said = " ".join(m for _, m in caught.value.errors)
    for words in ("Prompt tokens, mean", "Output tokens, mean", "a rate", "a target"):
        assert words in said


def test_no_workload_sheet() -> None:
    assert "the file's sheets: 'Sheet'" in errors(table([["hello"]], "Sheet"))["/Workloads"]


def test_too_many_workloads() -> None:
    with pytest.raises(FileTooLarge, match="at most 100"):
        read(workloads(*[ROW] * (MAX_WORKLOADS + 2)))


def test_formulas() -> None:
    book = openpyxl.load_workbook(io.BytesIO(workloads(ROW)))
    book.active["D2"] = "=500*2"
    assert "never calculated" in errors(saved(book))["/Workloads/D2"]


def calculated(**cells: tuple[str, Any]) -> bytes:
    """The plain row with formulas and the values that were saved with them."""
    target = io.BytesIO()
    with xlsxwriter.Workbook(target) as book:
        page = book.add_worksheet("Workloads")
        page.write_row(0, 0, list(ROW))
        page.write_row(1, 0, list(ROW.values()))
        for place, (formula, value) in cells.items():
            page.write_formula(place, formula, None, value)
    return target.getvalue()


def test_a_formula_gives_its_saved_value_and_is_not_evaluated() -> None:
    data = calculated(D2=('=WEBSERVICE("http://localhost/")', 750), E2=("=500*2", 300))
    workload = read(data).rows[0].request.workload
    assert (workload.prompt.mean, workload.output.mean) == (750, 300)


def test_a_formula_that_failed() -> None:
    assert "#DIV/0!" in errors(calculated(D2=("=1/0", "#DIV/0!")))["/Workloads/D2"]


def test_a_date_that_a_program_made_of_a_number() -> None:
    row = {**ROW, "Prompt tokens, mean [token]": datetime.datetime(2026, 3, 5)}
    assert "is a date" in errors(workloads(row))["/Workloads/D2"]


def test_the_template_as_it_is_has_nothing_to_plan() -> None:
    assert "beside the example" in errors(TEMPLATE)["/Workloads/A2"]


def test_the_example_row_is_left_out_only_while_unchanged() -> None:
    filled = {"A3": "b", "B3": "llama-3.1-8b", "C3": 5, "H3": 1000, "J3": 200, "O3": 50}
    found = read(fill(**filled))
    assert ([r.number for r in found.rows], found.example_left_out) == ([3], True)
    found = read(fill(**filled, C2=13))
    assert ([r.number for r in found.rows], found.example_left_out) == ([2, 3], False)


def test_left_open_cells() -> None:
    found = request(**{"Weights": "-", "Provider": "n/a", "Arrival CV": "–"})
    assert found["precisions"] == [{"weights": None, "kv": None}]
    assert found["pricing"]["provider"] is None


cells = (st.none() | st.text(max_size=12) | st.floats() | st.integers(-10, 10**7) | st.booleans()
         | st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(2090, 1, 1)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from([c.title for c in COLUMNS]), cells, max_size=12))
def test_any_cells_are_read_or_refused_by_cell(changes: dict[str, Any]) -> None:
    try:
        data = workloads({**ROW, **changes})
    except (IllegalCharacterError, ValueError):
        return  # openpyxl cannot write it
    try:
        read(data)
    except PlannerError as error:
        found = error.errors if isinstance(error, InvalidDocument) else [(error.pointer, "")]
        assert all(pointer.startswith("/Workloads") for pointer, _ in found)
