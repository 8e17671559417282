"""Sheets, names, page set-up, properties: what holds for the workbook of every kind of plan."""

from __future__ import annotations

import io
import math
import re
import zipfile
from typing import Any
from xml.etree import ElementTree

import openpyxl
import pandas as pd
import pytest
from workbook_plans import KINDS, REQUEST, PlanParts, parts, plain
from workbook_reading import errors, named, read, table, texts
from xlsxwriter.sharedstrings import SharedStringTable

from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog
from planner.workbook import write_plan
from planner.workbook.packing import FastStrings

BEFORE, AFTER = ["Summary", "Inputs", "Options"], [
    "Fleet & cost", "Forecast", "Sensitivity", "Memory", "Catalog", "Checks", "Advice", "Pools",
    "Latencies", "Infeasible", "Assumptions", "About"]
OWN: dict[str, list[str]] = {"impossible": [], "measured": []}
"""Sheets of options that calculate, where they are not two."""
TABLES = ["Options", "Advice", "Pools", "Latencies", "Memory", "Infeasible", "Assumptions"]
WIDE = ["Options", "Pools", "Catalog"]
"""Sheets that print over two pages side by side."""
INPUTS = {"in_requests_per_second", "in_prompt_tokens_mean", "in_prompt_tokens_p95",
          "in_output_tokens_mean", "in_prefix_cache_hit_rate", "in_ttft_ms", "in_tpot_ms",
          "in_percentile", "in_target_utilization", "in_spare_replicas", "in_growth_per_month"}
RESULTS = {"out_gpus", "out_replicas", "out_nodes", "out_ttft_ms", "out_tpot_ms",
           "out_usd_per_hour", "out_usd_per_month", "out_usd_per_million_tokens", "out_check"}
POOL_PRICES = {"in_prefill_usd_per_gpu_hour", "in_decode_usd_per_gpu_hour"}

every = pytest.mark.parametrize("kind", list(KINDS))
Books = dict[str, openpyxl.Workbook]


@every
def test_sheets_are_visible_and_in_order(books: Books, kind: str) -> None:
    own = OWN.get(kind, ["Operating points 1", "Operating points 2"])
    assert books[kind].sheetnames == [*BEFORE, *own, *AFTER]
    assert all(s.sheet_state == "visible" for s in books[kind])


@every
def test_names(books: Books, kind: str) -> None:
    expected = INPUTS | RESULTS
    expected |= POOL_PRICES if kind == "two kinds" else set()
    expected |= {"in_usd_per_gpu_hour"} if kind not in ("impossible", "measured") else set()
    assert set(books[kind].defined_names) >= expected
    assert all(named(books[kind], name) is not None for name in expected)


@every
def test_page_set_up(books: Books, kind: str) -> None:
    for sheet in books[kind]:
        assert sheet.page_setup.paperSize == 9
        assert sheet.page_setup.fitToWidth in (None, 1)
        assert sheet.print_area
        assert sheet.freeze_panes
        assert "Page &P of &N" in str(sheet.oddFooter.right.text)
    assert books[kind]["Summary"].page_setup.fitToHeight in (None, 1)
    assert books[kind]["Latencies"].page_setup.fitToHeight == 0


@every
def test_batch_limits_begin_a_page_and_no_page_is_blank(books: Books, kind: str) -> None:
    for sheet in books[kind]:
        if not sheet.title.startswith("Operating points"):
            continue
        areas = [openpyxl.utils.range_boundaries(area.replace("$", "").rpartition("!")[2])
                 for area in str(sheet.print_area).split(",")]
        labels = {row: cell.value for row, cell in enumerate(
            (c for (c,) in sheet.iter_rows(max_col=1)), start=1) if cell.value is not None}
        assert all(any(top <= row <= end for row in labels) for _, top, _, end in areas)
        begun = [top for _, top, _, _ in areas]
        assert all(row in begun for row, label in labels.items() if label == "Batch limits")


@every
def test_nothing_prints_below_seven_points(books: Books, kind: str) -> None:
    for sheet in books[kind]:
        area = str(sheet.print_area).replace("$", "").rpartition("!")[2]
        first, _, last, _ = openpyxl.utils.range_boundaries(area)
        widths = [d.width for d in sheet.column_dimensions.values()
                  for c in range(d.min, d.max + 1) if first <= c <= last]
        portrait = sheet.page_setup.orientation == "portrait"
        if sheet.title in WIDE:
            assert sheet.page_setup.scale >= 70
            assert sheet.col_breaks.count >= 1
            assert sheet.print_title_cols
        else:
            assert sheet.sheet_properties.pageSetUpPr.fitToPage
            assert (530 if portrait else 784) / sum(5.6 * w for w in widths) >= 0.7, sheet


@every
def test_tables_filter_and_repeat_their_header(books: Books, kind: str) -> None:
    for name in TABLES:
        sheet = books[kind][name]
        if sheet["A1"].value and kind != "measured":
            assert sheet.auto_filter.ref
            assert sheet.print_title_rows == "$1:$1"


NEW = re.compile(r"_xlfn|LET\(|LAMBDA\(|XLOOKUP|FILTER\(|SORT\(|UNIQUE\(|IFS\(|TEXTJOIN|CONCAT\(|"
                 r"SEQUENCE\(|INDIRECT|OFFSET|RAND|NOW\(|TODAY\(")
"""Functions that not every spreadsheet program has, and those that recalculate all the time."""
FORMULA = r"<f(?: [^>/]*)?(?:/>|>([^<]*)</f>)"
"""A formula of a cell; one filled from another has no text of its own."""


@every
def test_formulas_are_of_all_programs_and_no_cell_is_an_error(
        files: dict[str, bytes], books: Books, kind: str) -> None:
    with zipfile.ZipFile(io.BytesIO(files[kind])) as parts:
        xml = "".join(parts.read(n).decode() for n in parts.namelist() if "/sheet" in n)
    found = re.findall(FORMULA, xml)
    assert len(found) > (3000 if kind not in ("impossible", "measured") else 10)
    assert not [f for f in found if NEW.search(f)]
    assert not re.search(r"<f[ >]", re.sub(FORMULA + "<v>[^<]+</v>", "", xml))
    assert errors(books[kind]) == []


def test_a_column_is_one_formula_that_every_reader_fills_down(files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(files["plain"])) as parts:
        xml = parts.read("xl/worksheets/sheet7.xml").decode()
    first, last = re.findall(r'ref="B(\d+):B(\d+)" si="0">', xml)[0]
    sheet = openpyxl.load_workbook(io.BytesIO(files["plain"]))["Forecast"]
    for row in range(int(first), int(last) + 1):
        assert sheet[f"B{row}"].value == (
            f"=use_requests_per_second*(1+use_growth_per_month)^$A{row}")


def test_headers_follow_the_percentile(files: dict[str, bytes]) -> None:
    book = openpyxl.load_workbook(io.BytesIO(files["plain"]))
    for sheet in ("Summary", "Options"):
        cells = [c.value for row in book[sheet].iter_rows() for c in row]
        assert '="TTFT p"&in_ttft_percentile&" [ms]"' in cells
        assert not [c for c in cells if str(c).startswith("TTFT p9")]


@every
def test_same_plan_same_bytes(made: dict[str, PlanParts], files: dict[str, bytes], kind: str
                              ) -> None:
    assert write_plan(*made[kind]) == files[kind]


@every
def test_fonts_are_arial_without_theme(files: dict[str, bytes], kind: str) -> None:
    with zipfile.ZipFile(io.BytesIO(files[kind])) as parts:
        styles = parts.read("xl/styles.xml").decode()
        charts = [parts.read(n).decode() for n in parts.namelist() if "/charts/chart" in n]
    assert set(re.findall(r'<name val="([^"]+)"', styles)) == {"Arial"}
    assert "scheme" not in styles
    assert {f for c in charts for f in re.findall(r'<a:latin typeface="([^"]+)"', c)} <= {"Arial"}


@every
def test_charts_have_cached_data_and_alternative_text(files: dict[str, bytes], kind: str) -> None:
    with zipfile.ZipFile(io.BytesIO(files[kind])) as parts:
        charts = [parts.read(n).decode() for n in parts.namelist() if "/charts/chart" in n]
        drawings = [parts.read(n).decode() for n in parts.namelist() if "/drawings/drawing" in n]
        assert not any("vba" in n.lower() for n in parts.namelist())
    for chart in charts:
        for cache in re.findall(r"<c:numCache>(.*?)</c:numCache>", chart):
            assert "<c:v>" in cache
    count = {"impossible": 0, "measured": 1}.get(kind, 4)
    assert len(charts) == count
    assert sum(d.count("descr=") for d in drawings) == count


def test_results_are_the_recommended_option(made: dict[str, PlanParts], books: Books) -> None:
    best, book = made["plain"][0]["recommended"], books["plain"]
    assert named(book, "out_gpus") == best["gpus"]
    assert named(book, "out_replicas") == sum(p["replicas"] for p in best["pools"])
    assert named(book, "out_ttft_ms") == pytest.approx(best["ttft_ms"]["p90"], rel=1e-3)
    assert named(book, "out_tpot_ms") == pytest.approx(best["tpot_ms"]["p90"], rel=1e-3)
    assert named(book, "out_check") == "OK"
    for name in ("usd_per_hour", "usd_per_month", "usd_per_million_tokens"):
        assert named(book, f"out_{name}") == pytest.approx(best[name])


def test_replicas_count_every_region() -> None:
    document, points, snapshot = parts(setups=["colocated"],
                                       limits={"regions": 3, "max_tensor_parallel": 1})
    best = document["recommended"]
    book = read(write_plan(document, points, snapshot))
    assert best["regions"] == 3
    assert named(book, "out_replicas") == 3 * sum(p["replicas"] for p in best["pools"])
    assert named(book, "out_gpus") == best["gpus"]


def test_inputs_are_the_request(books: Books) -> None:
    values = {name: named(books["plain"], name) for name in INPUTS}
    assert values["in_requests_per_second"] == 12
    assert (values["in_prompt_tokens_mean"], values["in_prompt_tokens_p95"]) == (2000, 6000)
    assert (values["in_ttft_ms"], values["in_tpot_ms"], values["in_percentile"]) == (1000, 50, 90)
    assert values["in_spare_replicas"] == 1
    assert named(books["plain"], "in_usd_per_gpu_hour") > 0


def test_inputs_that_are_derived(books: Books) -> None:
    book = books["own words"]
    assert named(book, "in_requests_per_second") == pytest.approx(500000 * 0.08 / 3600)
    assert named(book, "in_output_tokens_mean") == pytest.approx(300)
    assert named(book, "in_prompt_tokens_p95") == 6000
    assert named(book, "in_prompt_tokens_mean") > 1500
    assert named(book, "in_tpot_ms") == "n/a"
    assert named(book, "in_percentile") == 99


def test_latency_at_a_percentile_that_is_not_listed() -> None:
    document, points, snapshot = parts(setups=["colocated"], slo={
        "ttft_ms": 1000, "tpot_ms": 50, "percentile": 80})
    headroom = document["recommended"]["headroom"]
    book = read(write_plan(document, points, snapshot))
    assert named(book, "out_ttft_ms") == pytest.approx(1000 * (1 - headroom["ttft"]), rel=1e-3)
    assert named(book, "out_tpot_ms") == pytest.approx(50 * (1 - headroom["tpot"]), rel=1e-3)


def test_two_prices_and_their_average(made: dict[str, PlanParts], books: Books) -> None:
    best, book = made["two kinds"][0]["recommended"], books["two kinds"]
    prefill, decode = (named(book, f"in_{role}_usd_per_gpu_hour") for role in ("prefill", "decode"))
    assert prefill != decode
    assert named(book, "in_usd_per_gpu_hour") == pytest.approx(best["usd_per_hour"] / best["gpus"])


@every
def test_pandas_reads_numbers(made: dict[str, PlanParts], files: dict[str, bytes], kind: str
                              ) -> None:
    document = made[kind][0]
    frames = pd.read_excel(io.BytesIO(files[kind]), sheet_name=TABLES)
    options = document["options"]
    if options:
        assert frames["Options"]["GPUs"].tolist() == [o["gpus"] for o in options]
        assert len(frames["Pools"]) == sum(len(o["pools"]) for o in options)
    if options and options[0]["usd_per_hour"] is not None:
        assert frames["Options"]["Cost per hour [USD/h]"].tolist() == pytest.approx(
            [o["usd_per_hour"] for o in options])


def test_pandas_reads_the_month_that_is_a_formula(made: dict[str, PlanParts],
                                                  files: dict[str, bytes]) -> None:
    cells = pd.read_excel(io.BytesIO(files["plain"]), sheet_name="Summary", header=None)
    monthly = made["plain"][0]["recommended"]["usd_per_month"]
    assert any(isinstance(v, int | float) and math.isclose(v, monthly)
               for v in cells.to_numpy().ravel())


@every
def test_memory_lines_add_up(made: dict[str, PlanParts], books: Books, kind: str) -> None:
    pools = [p for o in made[kind][0]["options"] for p in o["pools"] if p.get("memory")]
    if not pools:
        return
    rows = table(books[kind], "Memory")[:len(pools)]
    for row, pool in zip(rows, pools, strict=True):
        assert row["KV pool [GiB]"] == pytest.approx(pool["memory"]["kv_pool_gib"])
        assert row["Physical memory [GiB]"] == pytest.approx(pool["memory"]["physical_gib"])


def test_infeasible_plan_says_why(made: dict[str, PlanParts], books: Books) -> None:
    document, book = made["impossible"][0], books["impossible"]
    summary = texts(book, "Summary")
    assert "Nothing that was tried can serve 12 requests/s" in summary
    assert "over the target" in summary
    assert len(table(book, "Infeasible")) == len(document["infeasible"])


@pytest.mark.parametrize(("kind", "part"), [
    ("plain", "serve 12 requests/s of Llama-3.1-8B"), ("plain", "TTFT p90 1,000 ms"),
    ("plain", "1 spare replica included"), ("plain", "The limit is"),
    ("two kinds", "for prefill (1 "), ("two kinds", " for decode ("),
    ("unpriced", "no price is known"), ("measured", "replicas of 1 GPU")])
def test_the_answer_in_a_sentence(books: Books, kind: str, part: str) -> None:
    if kind == "two kinds" and part.endswith("(1 "):
        part = " for prefill ("
    assert part in str(books[kind]["Summary"]["A3"].value)


def test_a_plan_with_almost_nothing() -> None:
    document: dict[str, Any] = {"request": {}, "recommended": None, "options": [],
                                "infeasible": [], "advice": [], "assumptions": []}
    book = read(write_plan(document, {"columns": [], "rows": []}, {}))
    assert book.sheetnames == [*BEFORE, *AFTER]


def test_numbers_that_are_none_or_not_finite_leave_blanks() -> None:
    document, points, snapshot = plain()
    best = document["options"][0]
    best["usd_per_hour"], best["power_kw"] = math.nan, math.inf
    best["ttft_ms"] = dict.fromkeys(best["ttft_ms"])
    points["rows"][0] = [math.nan if isinstance(v, float) else v for v in points["rows"][0]]
    document["recommended"] = best
    book = read(write_plan(document, points, snapshot))
    assert named(book, "out_gpus") == plain()[0]["recommended"]["gpus"]
    assert errors(book) == []


# -- what newer documents say ------------------------------------------------------------------


def changed(**recommended: Any) -> PlanParts:
    """The plain plan with some fields of its recommended option changed."""
    document, points, snapshot = plain()
    best = {**document["recommended"], **recommended}
    return {**document, "recommended": best, "options": [best]}, points, snapshot


def test_inputs_are_blue_links_green_and_engine_results_grey(books: Books) -> None:
    def style(sheet: str, cell: str) -> Any:
        return books["plain"][sheet][cell]

    assert style("Inputs", "B3").font.color.rgb == "FF0000FF"
    assert style("Fleet & cost", "B2").font.color.rgb == "FF00701A"
    assert style("Advice", "C2").fill.fgColor.rgb == "FFEDEDED"


def test_the_market_beside_the_price() -> None:
    price = {**plain()[0]["recommended"]["prices"][0], "usd_per_gpu_hour_low": 2.15,
             "usd_per_gpu_hour_high": 12.29, "providers": 9, "notes": "list price"}
    book = read(write_plan(*changed(prices=[price])))
    for sheet in ("Summary", "Inputs"):
        assert "market 2.15 to 12.29 USD, 9 providers; list price" in texts(book, sheet)
    assert "lower median" in texts(book, "Summary")


def test_an_own_price_has_no_market() -> None:
    price = {**plain()[0]["recommended"]["prices"][0], "providers": 1}
    assert "market" not in texts(read(write_plan(*changed(prices=[price]))), "Summary")


def test_whole_instances_network_cards_and_doubt() -> None:
    doubt = {"level": "extrapolated", "tpot_error": 0.2, "ttft_error": 0.3, "gpus_low": 2,
             "gpus_high": 4}
    book = read(write_plan(*changed(usd_per_hour_whole_instances=99.5, limited_by="kv_transfer",
                                    confidence=doubt)))
    summary = texts(book, "Summary")
    for part in ("99.50 USD/hour", "network cards", "not on this GPU or not on this kind of model",
                 "time to first token is 30%"):
        assert part in summary
    assert table(book, "Options")[0]["Error of TTFT [%]"] == 0.3


def test_pools_tell_what_runs_on_them(made: dict[str, PlanParts], books: Books) -> None:
    pools = [p for o in made["plain"][0]["options"] for p in o["pools"]]
    for row, pool in zip(table(books["plain"], "Pools"), pools, strict=True):
        assert row["GPUs per replica"] == pool["gpus_per_replica"]
        assert row["Sequences decoding at once"] == pytest.approx(pool["concurrency_mean"])
        assert row["KV pool used [%]"] == pytest.approx(pool["kv_used_share"])


@every
def test_all_advice_is_kept_and_the_summary_says_how_much_it_leaves_out(
        made: dict[str, PlanParts], books: Books, kind: str) -> None:
    advice = made[kind][0]["advice"]
    if not advice:
        return
    assert len(table(books[kind], "Advice")) == len(advice)
    summary = texts(books[kind], "Summary")
    assert summary.count("no change") <= 2
    left_out = len(advice) - summary.count("•")
    assert (f"{left_out} more on the sheet Advice." in summary) == (left_out > 0)


def test_advice_of_a_plan_without_an_answer() -> None:
    document, points, snapshot = KINDS["impossible"]()
    message = "With FP8 weights it works: 4 GPUs, 12.00 USD/h."
    row = {"code": "fp8_weights", "message": message, "gpus_before": None, "gpus_after": 4,
           "usd_per_hour_after": 12.0}
    book = read(write_plan({**document, "advice": [row]}, points, snapshot))
    assert message in texts(book, "Summary")
    assert table(book, "Advice")[0]["GPUs before"] is None


def test_texts_that_xml_cannot_hold_are_escaped() -> None:
    """Control characters, line ends, blanks at the ends, and what looks like an escape."""
    strings = ["a\x01b", "two\nlines", " padded ", "_x0041_", "plain & <simple>"]
    texts_ = FastStrings()
    texts_.string_table = SharedStringTable()
    for text in strings:
        texts_.string_table._get_shared_string_index(text)
    texts_.string_table._sort_string_data()
    texts_._set_filehandle(part := io.StringIO())
    texts_._assemble_xml_file()
    found = ["".join(si.itertext()) for si in ElementTree.fromstring(part.getvalue())]
    assert found == ["a_x0001_b", "two\nlines", " padded ", "_x005F_x0041_", "plain & <simple>"]


@pytest.mark.parametrize("setup", ["colocated", "static"])
def test_answers_of_one_token_have_no_time_between_tokens(setup: str) -> None:
    book = read(write_plan(*parts(setups=[setup], slo={"ttft_ms": 1000, "tpot_ms": 1}, workload={
        **REQUEST["workload"], "output_tokens": 1})))
    assert named(book, "out_tpot_ms") == "n/a"
    assert named(book, "out_check") == "OK"
    assert named(book, "out_ttft_ms") > 0


def test_the_catalog_sheet_has_the_draft_model_too() -> None:
    wish = {"draft_tokens": 3, "acceptance": 0.7, "draft_model": "llama-3.2-1b"}
    plan = make(parse_plan({
        "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked"], "advice": False,
        "slo": {"ttft_ms": 1000, "tpot_ms": 50}, "speculative": wish,
        "workload": {"requests_per_second": 5, "prompt_tokens": 500, "output_tokens": 50}}),
        shipped_catalog())
    data = write_plan(plan.document, plan.points, plan.snapshot)
    sheet = openpyxl.load_workbook(io.BytesIO(data))["Catalog"]
    words = {cell.value for row in sheet.iter_rows() for cell in row}
    llms = shipped_catalog().llms
    assert {llms["llama-3.1-8b"].name, llms["llama-3.2-1b"].name} <= words
