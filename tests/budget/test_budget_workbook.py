"""The budget workbook: complete, printable, and live in a real spreadsheet program."""

from __future__ import annotations

import copy
import io
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from budget_requests import IMPOSSIBLE, made, request, workload

from planner.workbook.budget import SHEETS, write_budget
from planner.workbook.budget_money import NEVER
from planner.workbook.layout import BOLD, text_width

SOFFICE = shutil.which("soffice")
TERMS = {"terms": [{"term_months": 12, "discount": 0.3}]}
SERVERS = {"servers": [{"gpu": "h100-sxm-80gb", "usd_per_server": 120_000, "gpus_per_server": 8,
                        "hosting_usd_per_year": 10_000}], "depreciation_months": 10,
           "residual_share": 0.1}
FULL: dict[str, Any] = request(
    workload(rate=40, growth_per_month=0.06, name="one", cv=2.0,
             seasonality=[1, 1, 1, 1, 1, 0.9, 0.8, 1, 1, 1, 1.2, 1.3],
             launches=[{"month": 4, "multiplier": 1.7, "months": 3}]),
    workload(rate=15, name="two", starts_month=3, growth_per_month=0.04, prompt=600, output=150,
             slo={"ttft_ms": 2000}),
    workload(rate=15, name="three", model="qwen3-32b", tokens_growth_per_month=0.02,
             limits={"layouts": [{"tensor_parallel": 2}], "token_budgets": [2048]}),
    workload(rate=9, name="four", fleet="apart", setups=["disaggregated"]),
    {**IMPOSSIBLE, "name": "five"},
    name="Everything", months=30, commitments=TERMS, owned=SERVERS, headroom=0.1,
    spare_replicas=1, currency="EUR", units_per_usd=0.9, lead_time_days=90,
    prices={"change_per_month": -0.005, "steps": [{"month": 13, "multiplier": 0.9}]},
    what_if=[{"name": "cheap", "price_multiplier": 0.8}],
    actuals=[{"month": 1, "gpus": 9, "cost": 1000}])
LONG = "=1+1 \"quoted\" 'single' 🚀 " + "x" * 170
HOSTILE = request(workload(rate=1e-3, name=LONG[:200]), workload(name="*?~<b>", fleet="@x"),
                  name=LONG[:200])
SOME_MONTHS = request(workload(rate=40, growth_per_month=0.01, seasonality=[1] * 6 + [4] + [1] * 5,
                               launches=[{"month": 6, "multiplier": 2, "months": 3}],
                               limits={"layouts": [{"tensor_parallel": 1}],
                                       "token_budgets": [2048], "max_gpus": 8}), months=19)
KINDS = {"full": FULL, "some months": SOME_MONTHS, "hostile": HOSTILE,
         "nothing": request(IMPOSSIBLE),
         "one GPU": request(workload(rate=1e-6)),
         "few hold nothing": request(workload(setups=["colocated"], cv=8.0, rate=100, slo={
             "ttft_ms": 300, "tpot_ms": 50})), "a million": request(workload(
             rate=1_000_000, limits={"layouts": [{"tensor_parallel": 1}],
                                     "token_budgets": [2048], "max_gpus": 1_000_000}))}


def written(document: dict[str, Any]) -> bytes:
    stored = made(*document["workloads"], **{k: v for k, v in document.items()
                                             if k != "workloads"})
    return write_budget(stored.document, stored.model)


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {kind: written(document) for kind, document in KINDS.items()}


def read(data: bytes, values: bool = True) -> openpyxl.Workbook:
    return openpyxl.load_workbook(io.BytesIO(data), data_only=values)


def named(book: openpyxl.Workbook, name: str) -> Any:
    [(sheet, cell)] = list(book.defined_names[name].destinations)
    found = book[sheet][cell.replace("$", "")]
    return [c.value for c in found[0]] if isinstance(found, tuple) else found.value


@pytest.mark.parametrize("kind", KINDS)
def test_every_sheet_is_there_and_visible(files: dict[str, bytes], kind: str) -> None:
    book = read(files[kind])
    assert tuple(book.sheetnames) == SHEETS
    assert all(s.sheet_state == "visible" for s in book)
    assert all(s.print_area for s in book)
    cells = [c for s in book for row in s.iter_rows() for c in row if c.value is not None]
    assert [c for c in cells if c.data_type == "e" or str(c.value).startswith("#")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_formula_has_its_value(files: dict[str, bytes], kind: str) -> None:
    formulas, values = read(files[kind], values=False), read(files[kind])
    blank = [(s.title, c.coordinate) for s in formulas for row in s.iter_rows() for c in row
             if c.data_type == "f" and values[s.title][c.coordinate].value is None
             and s.title != "Plan against actual"]
    assert blank == []


def test_text_stays_text(files: dict[str, bytes]) -> None:
    book = read(files["hostile"], values=False)
    assert book["Summary"]["A1"].value.startswith("=1+1")
    assert book["Summary"]["A1"].data_type == "s"


def test_only_functions_that_every_program_has(files: dict[str, bytes]) -> None:
    allowed = {"ABS", "AND", "COUNT", "COUNTIF", "EDATE", "IF", "IFERROR", "INDEX", "INT",
               "ISERROR", "ISNUMBER", "LN", "MATCH", "MAX", "MIN", "MONTH", "OR", "ROUNDUP",
               "SUM", "SUMIF", "SUMIFS", "SUMPRODUCT"}
    book = read(files["full"], values=False)
    used = {name for s in book for row in s.iter_rows() for c in row if c.data_type == "f"
            for name in re.findall(r"([A-Z][A-Z.0-9]*)\(", str(c.value))}
    assert used <= allowed


def test_charts_have_alternative_text_and_data(files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(files["full"])) as archive:
        drawing = archive.read("xl/drawings/drawing1.xml").decode()
        charts = [archive.read(n).decode() for n in archive.namelist()
                  if n.startswith("xl/charts/chart")]
    assert drawing.count("descr=") == len(charts) == 2
    assert all("<c:numCache>" in c for c in charts)


def test_the_column_that_pages_repeat_holds_the_words_for_no_break_even(
        files: dict[str, bytes]) -> None:
    sheet = read(files["full"], values=False)["Buy or rent"]
    cells = [c for row in sheet.iter_rows(min_col=3, max_col=3) for c in row
             if NEVER in str(c.value)]
    assert cells
    assert sheet.column_dimensions["C"].width > BOLD * text_width(NEVER)


def test_a_row_without_a_launch_shows_nothing(files: dict[str, bytes]) -> None:
    sheet = read(files["full"], values=False)["Launches"]
    empty = [row for row in sheet.iter_rows(min_row=3, max_col=6)
             if row[1].value is None and row[4].value is not None]
    assert empty
    for row in empty:
        assert {cell.number_format.split(";")[2] for cell in row[4:6]} == {""}


def test_results_are_those_of_the_api(files: dict[str, bytes]) -> None:
    document = made(*FULL["workloads"], **{k: v for k, v in FULL.items()
                                           if k != "workloads"}).document
    book, totals = read(files["full"]), document["totals"]
    assert named(book, "out_total_cost") == pytest.approx(totals["effective_cost"], rel=1e-6)
    assert named(book, "out_gpus") == [m["gpus"] for m in document["months"]]
    assert named(book, "out_effective_cost") == pytest.approx(
        [m["effective_cost"] for m in document["months"]], rel=1e-5)
    assert named(book, "out_energy_kwh") == pytest.approx(totals["energy_kwh"], rel=1e-6)
    assert named(book, "out_check") == "OK"
    assert named(book, "out_savings") == pytest.approx(totals["savings"], rel=1e-6)


# -- in a spreadsheet program -------------------------------------------------------------------

Change = Callable[[dict[str, Any]], Any]


def at(*path: Any, value: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        for key in path[:-1]:
            document = document.setdefault(key, {}) if isinstance(key, str) else document[key]
        document[path[-1]] = value
    return change


EDITS: dict[str, tuple[dict[str, Any], Change]] = {
    "growth": ({"in_growth_per_month_3": 0.05},
               at("workloads", 2, "growth_per_month", value=0.05)),
    "no growth": ({"in_growth_per_month_1": 0}, at("workloads", 0, "growth_per_month", value=0)),
    "rate": ({"in_requests_per_second_3": 41},
             at("workloads", 2, "workload", "requests_per_second", value=41)),
    "two pools": ({"in_requests_per_second_4": 12},
                  at("workloads", 3, "workload", "requests_per_second", value=12)),
    "tokens": ({"in_tokens_growth_per_month_3": 0.025},
               at("workloads", 2, "tokens_growth_per_month", value=0.025)),
    "headroom": ({"in_headroom": 0.35}, at("headroom", value=0.35)),
    "spares": ({"in_spare_replicas": 3}, at("spare_replicas", value=3)),
    "regions": ({"in_regions": 3}, at("regions", value=3)),
    "price path": ({"in_price_change_per_month": 0.01},
                   at("prices", "change_per_month", value=0.01)),
    "committed": ({"in_committed_share": 0.5}, at("commitments", "committed_share", value=0.5)),
    "discount": ({"in_negotiated_discount": 0.1},
                 at("prices", "negotiated_discount", value=0.1)),
    "pue": ({"in_pue": 1.6}, at("energy", "pue", value=1.6)),
    "power price": ({"in_usd_per_kwh": 0.3}, at("energy", "usd_per_kwh", value=0.3)),
    "exchange": ({"in_units_per_usd": 1.2}, at("units_per_usd", value=1.2)),
    "depreciation": ({"in_depreciation_months": 24},
                     at("owned", "depreciation_months", value=24)),
    "low": ({"in_scenario": "low"}, lambda d: None), "high": ({"in_scenario": "high"},
                                                              lambda d: None),
}


def edited(data: bytes, cells: dict[str, Any]) -> bytes:
    book = read(data, values=False)
    for name, value in cells.items():
        [(sheet, cell)] = list(book.defined_names[name].destinations)
        book[sheet][cell.replace("$", "")].value = value
    out = io.BytesIO()
    book.save(out)  # without cached values, so that the program must calculate
    return out.getvalue()


@pytest.fixture(scope="module")
def recalculated(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
                 ) -> dict[str, openpyxl.Workbook]:
    """Every kind unedited and every edit of the full one, in one start of the program."""
    if SOFFICE is None:
        pytest.skip("LibreOffice is not installed")
    folder = tmp_path_factory.mktemp("budgets")
    sources = {kind: edited(data, {}) for kind, data in files.items()}
    sources |= {f"edit {name}": edited(files["full"], cells)
                for name, (cells, _) in EDITS.items()}
    paths = {name: folder / f"{name.replace(' ', '-')}.xlsx" for name in sources}
    for name, data in sources.items():
        paths[name].write_bytes(data)
    command = [SOFFICE, f"-env:UserInstallation=file://{folder}/profile", "--headless",
               "--convert-to", "xlsx", "--outdir", str(folder / "out"),
               *map(str, paths.values())]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return {name: read((folder / "out" / path.name).read_bytes())
            for name, path in paths.items()}


@pytest.mark.office
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_cached_values_are_the_recalculated_ones(
        files: dict[str, bytes], recalculated: dict[str, openpyxl.Workbook], kind: str) -> None:
    before, after = read(files[kind]), recalculated[kind]
    count = 0
    for sheet in before:
        for row in sheet.iter_rows():
            for cell in row:
                found = after[sheet.title][cell.coordinate].value
                if cell.value in (None, ""):
                    assert found in (None, "")
                elif isinstance(cell.value, int | float):
                    assert found == pytest.approx(cell.value, rel=1e-9, abs=1e-9), (
                        sheet.title, cell.coordinate)
                    count += 1
                else:
                    assert found == cell.value, (sheet.title, cell.coordinate)
    assert count > 300


@pytest.mark.office
@pytest.mark.slow
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_a_new_budget(recalculated: dict[str, openpyxl.Workbook], name: str) -> None:
    cells, change = EDITS[name]
    document = copy.deepcopy(FULL)
    change(document)
    answer = made(*document["workloads"], **{k: v for k, v in document.items()
                                             if k != "workloads"}).document
    scenario = cells.get("in_scenario", "base")
    wanted = next(s for s in answer["scenarios"] if s["name"] == scenario)
    book = recalculated[f"edit {name}"]
    gpus = named(book, "out_gpus")
    assert sum(gpus) == pytest.approx(sum(wanted["gpus"]), rel=0.005)
    assert max(abs(a - b) for a, b in zip(gpus, wanted["gpus"], strict=True)) <= 2
    assert named(book, "out_total_cost") == pytest.approx(
        wanted["totals"]["effective_cost"], rel=0.005)
    assert named(book, "out_energy_kwh") == pytest.approx(wanted["totals"]["energy_kwh"],
                                                          rel=0.005)
    if scenario == "base":
        line = answer["buy_or_rent"][0]
        for key in ("break_even_month", "break_even_month_with_resale"):
            assert named(book, f"out_{key}_1") == (line[key] or "not within the budget")


@pytest.mark.office
@pytest.mark.slow
@pytest.mark.parametrize(("cells", "change"), [
    ({"in_usd_per_gpu_hour_1": 2.6}, at("workloads", 0, "pricing", value={
        "usd_per_gpu_hour": {"h100-sxm-80gb": 2.6}})),
    ({"in_term_discount_1": 0.1}, at("commitments", "terms", 0, "discount", value=0.1)),
    ({"in_existing_gpus_1": 5}, at("owned", "existing_gpus", value={"h100-sxm-80gb": 5}))],
    ids=["list price", "discount of the term", "GPUs owned"])
def test_prices_are_live(tmp_path: Path, cells: dict[str, Any], change: Change) -> None:
    if SOFFICE is None:
        pytest.skip("LibreOffice is not installed")
    document = request(workload(rate=90, growth_per_month=0.05, seasonality=[1] * 10 + [2, 2],
                                pricing={"usd_per_gpu_hour": {"h100-sxm-80gb": 4.0}}),
                       months=24, commitments=copy.deepcopy(TERMS))
    source = tmp_path / "prices.xlsx"
    source.write_bytes(edited(written(document), cells))
    command = [SOFFICE, f"-env:UserInstallation=file://{tmp_path}/profile", "--headless",
               "--convert-to", "xlsx", "--outdir", str(tmp_path / "out"), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    after = read((tmp_path / "out" / "prices.xlsx").read_bytes())
    changed = copy.deepcopy(document)
    change(changed)
    totals = made(*changed["workloads"], **{k: v for k, v in changed.items()
                                            if k != "workloads"}).document["totals"]
    assert named(after, "out_total_cost") == pytest.approx(totals["effective_cost"], rel=1e-5)
    assert named(after, "out_savings") == pytest.approx(totals["savings"], rel=1e-5, abs=1)


@pytest.mark.office
@pytest.mark.slow
def test_what_an_edit_makes_stale_is_flagged(
        tmp_path: Path, files: dict[str, bytes]) -> None:
    if SOFFICE is None:
        pytest.skip("LibreOffice is not installed")
    book = read(files["full"], values=False)
    book["Workloads"]["Y4"].value = 5000  # prompt tokens of the first workload
    source = tmp_path / "stale.xlsx"
    book.save(source)
    command = [SOFFICE, f"-env:UserInstallation=file://{tmp_path}/profile", "--headless",
               "--convert-to", "xlsx", "--outdir", str(tmp_path / "out"), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    after = read((tmp_path / "out" / "stale.xlsx").read_bytes())
    assert named(after, "out_check") == "STALE"
    states = {row[0].value: row[2].value for row in after["Checks"].iter_rows(min_row=3)}
    assert states["Lengths and targets are those that were sized"] == "STALE"
    assert states["Parts of the cost add up"] == "OK"
