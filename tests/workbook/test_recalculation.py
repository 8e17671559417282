"""The workbook calculates what the planner would: inputs are typed in, LibreOffice recalculates.

Every case sets one input, drops all cached values, recalculates, and compares the named results
with a new plan for the changed request at the same layout: GPUs equal, latency and money within
0.5 %. Two examples and two plans of other kinds run by default; ``WORKBOOK_MATRIX=1`` runs all
of them with every edit (half an hour).
"""

from __future__ import annotations

import copy
import functools
import io
import json
import math
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from workbook_plans import CATALOG, REQUEST, PlanParts, parts
from workbook_reading import errors, named, read

from planner import two_pools
from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.workbook import write_plan

SOFFICE = shutil.which("soffice")
pytestmark = [pytest.mark.office, pytest.mark.slow,
              pytest.mark.skipif(SOFFICE is None, reason="LibreOffice is not installed")]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WHOLE = os.environ.get("WORKBOOK_MATRIX") == "1"
OTHERS: dict[str, dict[str, Any]] = {
    "gaps": {"setups": ["colocated"], "slo": {"ttft_ms": 1000, "itl_ms": 80, "percentile": 90}},
    "gaps of short answers": {"setups": ["chunked"],
                              "workload": {**REQUEST["workload"], "requests_per_second": 90,
                                           "output_tokens": {"mean": 12, "p95": 30},
                                           "arrival_cv": 1.5},
                              "slo": {"ttft_ms": 1000, "itl_ms": 60, "percentile": 95}},
    "short answers": {"setups": ["colocated"],
                      "workload": {**REQUEST["workload"], "requests_per_second": 60,
                                   "output_tokens": {"mean": 60, "p95": 160}, "arrival_cv": 2}},
    "whole, two pools": {"setups": ["disaggregated"],
                         "limits": {"max_tensor_parallel": 1, "spare_replicas": 1},
                         # Not 24/s, where the 90th percentile falls within 1e-4 on a whole
                         # number of sequences and the rows of the sheet see the one below.
                         "workload": {**REQUEST["workload"], "requests_per_second": 26},
                         "slo": {"ttft_ms": 2000, "e2e_ms": 9000, "percentile": 90}},
    "cached prompts, two pools": {
        "setups": ["disaggregated"], "model": "llama-3.2-3b", "gpus": ["l4"],
        "limits": {"max_tensor_parallel": 1, "spare_replicas": 1},
        "workload": {"requests_per_second": 56, "prompt_tokens": 960, "prefix_cache_hit_rate": 0.9,
                     "output_tokens": {"mean": 400, "p95": 1200}},
        "slo": {"ttft_ms": 1000, "tpot_ms": 40, "percentile": 95}},
    "packed passes": {"setups": ["disaggregated"],
                      "limits": {"max_tensor_parallel": 1, "spare_replicas": 1,
                                 "max_gpus": 5000},
                      "slo": {"ttft_ms": 400, "tpot_ms": 40, "percentile": 90},
                      "workload": {"requests_per_second": 300, "output_tokens": 200,
                                   "prompt_tokens": {"mean": 450, "p95": 1200}}},
}
"""Plans of other kinds than the examples: what they change of the usual request."""
NAMES = [*(f.stem for f in sorted(EXAMPLES.glob("*.json")) if f.stem != "budget")] if WHOLE else [
    "chat", "rag"]
NAMES += list(OTHERS)
BATCH = 12
"""Files that one start of LibreOffice converts."""
COUNTS = ("gpus", "replicas", "nodes")
MONEY = ("usd_per_hour", "usd_per_month", "usd_per_million_tokens")
LAYOUT = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
Get = Callable[[str], Any]
Change = Callable[[dict[str, Any], Get], dict[str, float] | None]


def lengths(which: str, factor: float) -> Change:
    """The mean length times a factor: a list is scaled, a spread keeps its 95th percentile."""
    def change(request: dict[str, Any], get: Get) -> dict[str, float] | None:
        form = request["workload"][f"{which}_tokens"]
        mean = float(round(get(f"in_{which}_tokens_mean") * factor))
        if isinstance(form, list):
            return None
        if isinstance(form, dict):
            p95 = get(f"in_{which}_tokens_p95")
            if not mean <= p95 <= 3.8 * mean:
                return None
            request["workload"][f"{which}_tokens"] = {"mean": mean, "p95": p95}
        else:
            request["workload"][f"{which}_tokens"] = mean
        return {f"in_{which}_tokens_mean": mean}
    return change


def spread(factor: float) -> Change:
    """The 95th percentile of the prompts over their mean."""
    def change(request: dict[str, Any], get: Get) -> dict[str, float]:
        mean = get("in_prompt_tokens_mean")
        p95 = mean * factor
        request["workload"]["prompt_tokens"] = {"mean": mean, "p95": p95}
        return {"in_prompt_tokens_p95": p95}
    return change


def target(metric: str, factor: float) -> Change:
    """A latency target times a factor, where the request has it."""
    def change(request: dict[str, Any], get: Get) -> dict[str, float] | None:
        if f"{metric}_ms" not in request["slo"]:
            return None
        request["slo"][f"{metric}_ms"] = get(f"in_{metric}_ms") * factor
        return {f"in_{metric}_ms": request["slo"][f"{metric}_ms"]}
    return change


def field(part: str, name: str, value: float) -> Change:
    """A field of the request that is a cell of the same meaning."""
    def change(request: dict[str, Any], get: Get) -> dict[str, float]:
        request.setdefault(part, {})[name] = value
        return {f"in_{name}": value}
    return change


def rate(factor: float) -> Change:
    def change(request: dict[str, Any], get: Get) -> dict[str, float]:
        request["workload"]["requests_per_second"] = get("in_requests_per_second") * factor
        return {"in_requests_per_second": request["workload"]["requests_per_second"]}
    return change


def price(factor: float) -> Change:
    def change(request: dict[str, Any], get: Get) -> dict[str, float] | None:
        if len(request["gpus"]) != 1:
            return None
        usd = get("in_usd_per_gpu_hour") * factor
        request.setdefault("pricing", {})["usd_per_gpu_hour"] = {request["gpus"][0]: usd}
        return {"in_usd_per_gpu_hour": usd}
    return change


EDITS: dict[str, Change] = {
    "nothing": lambda request, get: {},
    "rate x0.3": rate(0.3), "rate x2.7": rate(2.7), "rate x11": rate(11.0),
    "prompt x1.3": lengths("prompt", 1.3), "prompt x0.8": lengths("prompt", 0.8),
    "p95 2.2": spread(2.2), "output x0.5": lengths("output", 0.5),
    "output x2": lengths("output", 2.0),
    "hits": field("workload", "prefix_cache_hit_rate", 0.5),
    "ttft x0.7": target("ttft", 0.7), "ttft x2": target("ttft", 2.0),
    "ttft x4": target("ttft", 4.0),
    "tpot x0.7": target("tpot", 0.7), "tpot x2": target("tpot", 2.0),
    "impossible": target("ttft", 0.001),
    "percentile": field("slo", "percentile", 99.0),
    "utilisation": field("limits", "target_utilization", 0.6),
    "spares": field("limits", "spare_replicas", 3), "no spares": field("limits",
                                                                       "spare_replicas", 0),
    "price": price(1.37), "bursts": field("workload", "arrival_cv", 2.5),
    "whole x0.8": target("e2e", 0.8), "gap x0.8": target("itl", 0.8),
    "gap x2": target("itl", 2.0), "regions": field("limits", "regions", 3),
}
QUICK = ("nothing", "rate x0.3", "rate x2.7", "prompt x1.3", "p95 2.2", "output x0.5", "hits",
         "ttft x0.7", "tpot x0.7", "impossible", "percentile", "utilisation", "spares", "price",
         "bursts")
FEW = ("nothing", "rate x2.7", "prompt x1.3", "output x2", "whole x0.8", "gap x0.8", "ttft x4")
CASES = [(n, e) for n in NAMES for e in EDITS if WHOLE or e in (QUICK if n == "chat" else FEW)]


def request_of(name: str) -> dict[str, Any]:
    """An example by its name, or a plan of another kind; advice is not compared."""
    if name in OTHERS:
        usual = {**REQUEST, "gpus": ["h100-sxm-80gb"], **OTHERS[name]}
        return copy.deepcopy({**usual, "advice": False})
    found = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return {**found, "advice": False}


def same_layout(request: dict[str, Any], option: dict[str, Any], rate_: float) -> dict[str, Any]:
    """The request with the recommended option's layout as the only choice."""
    found = copy.deepcopy(request)
    for name in ("concurrent_users", "think_time_s", "requests_per_day", "peak_hour_share"):
        found["workload"].pop(name, None)
    found["workload"]["requests_per_second"] = rate_
    pools = option["pools"]
    found["setups"] = [option["setup"]]
    found["gpus"] = list(dict.fromkeys(p["gpu"] for p in pools))
    found["precisions"] = [{"weights": option["weights"], "kv": option["kv"]}]
    limits = found.setdefault("limits", {})
    layouts = {tuple(p[k] for k in LAYOUT): {k: p[k] for k in LAYOUT} for p in pools}
    limits["layouts"] = list(layouts.values())
    budgets = [p["token_budget"] for p in pools if p.get("token_budget")]
    if budgets:
        limits["token_budgets"] = budgets
    return found


def keep_pools(monkeypatch: pytest.MonkeyPatch, option: dict[str, Any]) -> None:
    """Let a plan in two pools choose no other GPU or layout for a pool than an option's: a request
    can name layouts, not which pool they are for."""
    if len(option["pools"]) < 2:
        return
    prefill, decode = ((p["gpu"], tuple(p[k] for k in LAYOUT)) for p in option["pools"])

    def is_of(layout: Any, pool: tuple[Any, ...]) -> bool:
        d = layout.deployment
        degrees = (d.layout.tensor, d.layout.pipeline, d.layout.expert, d.layout.data)
        return bool((d.gpu.slug, degrees) == pool)

    whole = two_pools._PrefillLayout

    class Decodes(two_pools._DecodePools):
        def __init__(self, request: Any, held: list[Any], refusals: Any) -> None:
            super().__init__(request, [x for x in held if is_of(x, decode)], refusals)

    class Prefills(whole):
        @functools.cached_property
        def sources(self) -> list[Any]:
            return whole(self.request, self.layout).sources if is_of(self.layout, prefill) else []

    monkeypatch.setattr(two_pools, "_DecodePools", Decodes)
    monkeypatch.setattr(two_pools, "_PrefillLayout", Prefills)


def without_values(data: bytes) -> bytes:
    """The workbook without the cached values of its formulas."""
    target_ = io.BytesIO()
    with (zipfile.ZipFile(io.BytesIO(data)) as source,
          zipfile.ZipFile(target_, "w", zipfile.ZIP_DEFLATED) as made):
        for name in source.namelist():
            part = source.read(name)
            if "worksheets/sheet" in name:
                part = re.sub(rb"</f><v>[^<]*</v>", b"</f>", part)
            made.writestr(name, part)
    return target_.getvalue()


def recalculated(folder: Path, files: dict[str, bytes]) -> dict[str, openpyxl.Workbook]:
    """What LibreOffice makes of workbooks without cached values."""
    paths = {name: folder / f"{place}.xlsx" for place, name in enumerate(files)}
    for name, path in paths.items():
        path.write_bytes(without_values(files[name]))
    listed = list(paths.values())
    for start in range(0, len(listed), BATCH):
        command = [str(SOFFICE), f"-env:UserInstallation=file://{folder}/profile", "--headless",
                   "--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", f"{folder}/out",
                   *map(str, listed[start:start + BATCH])]
        subprocess.run(command, check=True, capture_output=True, timeout=900)
    return {name: read((folder / "out" / path.name).read_bytes())
            for name, path in paths.items()}


def edited(data: bytes, values: dict[str, float] | dict[str, str]) -> bytes:
    """The workbook with numbers, text or formulas typed into named cells."""
    target_ = io.BytesIO()
    with (zipfile.ZipFile(io.BytesIO(data)) as source,
          zipfile.ZipFile(target_, "w", zipfile.ZIP_DEFLATED) as made):
        book = source.read("xl/workbook.xml").decode()
        sheets = re.findall(r'<sheet name="([^"]+)"', book)
        typed = {name: re.search(rf'<definedName name="{name}">(\w+)!([^<]+)<', book)
                 for name in values}
        for part in source.namelist():
            text = source.read(part)
            for name, found in typed.items():
                assert found is not None, name
                if part == f"xl/worksheets/sheet{sheets.index(found[1]) + 1}.xml":
                    text = typed_in(text.decode(), found[2].replace("$", ""), values[name])
            made.writestr(part, text)
    return target_.getvalue()


def typed_in(sheet: str, cell: str, value: float | str) -> bytes:
    """The XML of a sheet with a number, text or a formula in a cell."""
    head = re.search(rf'<c r="{cell}"( s="\d+")[^>]*>', sheet)
    assert head is not None, cell
    rest = sheet[head.end():]
    after = rest if head[0].endswith("/>") else rest[rest.index("</c>") + 4:]
    kind, held = "", f"<v>{value!r}</v>"
    if isinstance(value, str):
        kind, held = ("", f"<f>{value[1:]}</f>") if value.startswith("=") else (
            ' t="inlineStr"', f"<is><t>{value}</t></is>")
    return (f'{sheet[:head.start()]}<c r="{cell}"{head[1]}{kind}>{held}</c>{after}').encode()


Edited = tuple[dict[str, Any], dict[str, tuple[openpyxl.Workbook, dict[str, Any]]]]


@pytest.fixture(scope="module")
def edits_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Edited]:
    """The recalculated workbook and the changed request of every edit of a plan."""
    @functools.cache
    def of(name: str) -> Edited:
        files: dict[str, bytes] = {}
        requests: dict[str, dict[str, Any]] = {}
        request = request_of(name)
        plan = make(parse_plan(request), CATALOG)
        data = write_plan(plan.document, plan.points, plan.snapshot)
        book = read(data)

        def get(cell: str) -> Any:
            return named(book, cell)

        base = same_layout(request, plan.document["recommended"], get("in_requests_per_second"))
        for edit in (e for n, e in CASES if n == name):
            changed = copy.deepcopy(base)
            values = EDITS[edit](changed, get)
            if values is not None:
                requests[edit], files[edit] = changed, edited(data, values)
        books = recalculated(tmp_path_factory.mktemp("edits"), files)
        return plan.document["recommended"], {
            edit: (books[edit], request) for edit, request in requests.items()}
    return of


@pytest.mark.parametrize(("name", "edit"), CASES)
def test_a_changed_input_moves_every_result_as_a_new_plan_would(
        edits_of: Callable[[str], Edited], monkeypatch: pytest.MonkeyPatch, name: str, edit: str
        ) -> None:
    option, edits = edits_of(name)
    if edit not in edits:
        pytest.skip("this plan has no such input")
    book, request = edits[edit]
    assert errors(book) == []
    keep_pools(monkeypatch, option)
    best = make(parse_plan(request), CATALOG).document["recommended"]
    if best is None:
        assert all(named(book, f"out_{n}") == "n/a" for n in (*COUNTS, *MONEY))
        assert "fail" in named(book, "out_check")
        return
    wanted = {**{n: best[n] for n in ("gpus", "nodes", *MONEY)},
              "replicas": best["regions"] * sum(p["replicas"] for p in best["pools"])}
    if "requests_per_day" in request_of(name)["workload"]:
        del wanted["usd_per_million_tokens"]  # counted at the day's mean, not at the peak
    for metric in ("ttft", "tpot"):
        wanted[f"{metric}_ms"] = latency(best, request["slo"], metric)
    if "itl_ms" in request["slo"]:
        gap = next(n for n in book.defined_names if n.startswith("itl_s_"))
        assert math.isclose(1000.0 * named(book, gap), latency(best, request["slo"], "itl"),
                            rel_tol=0.005)
    for quantity, value in wanted.items():
        found = named(book, f"out_{quantity}")
        if quantity in COUNTS:
            assert found == value, quantity
        else:
            assert math.isclose(found, value, rel_tol=0.005), (quantity, found, value)
    assert str(named(book, "out_check")).startswith("OK")


def latency(best: dict[str, Any], slo: dict[str, Any], metric: str) -> float:
    """A latency [ms] at the percentile of its target, 90 without one."""
    level = slo.get(f"{metric}_percentile", slo.get("percentile", 90))
    figure = best[f"{metric}_ms"].get(f"p{level if f'{metric}_ms' in slo else 90:g}")
    if figure is not None:
        return float(figure)
    return float(slo[f"{metric}_ms"] * (1.0 - best["headroom"][metric]))


# -- unedited ----------------------------------------------------------------------------------

LONG = 'A "quoted" name, 🚀 and =1+1 ' + "x" * 171
ODD: dict[str, Callable[[], PlanParts]] = {
    "one pool": lambda: parts(name=LONG[:200], setups=["colocated", "chunked"]),
    "two pools": lambda: parts(setups=["disaggregated"]),
    "whole answers": lambda: parts(setups=["colocated"], engine="tensorrt-llm"),
    "two pools, whole answers": lambda: parts(setups=["disaggregated"], engine="tensorrt-llm"),
    "shares of weights and cache": lambda: parts(setups=["colocated"], engine="sglang"),
    "two pools, lists": lambda: parts(setups=["disaggregated"], workload={
        "requests_per_second": 10, "prompt_tokens": [
            {"tokens": 200, "share": 0.5}, {"tokens": 1800, "share": 0.5}], "output_tokens": [
            {"tokens": 20, "share": 0.3}, {"tokens": 300, "share": 0.7}]}),
    "static": lambda: parts(setups=["static"], slo={"ttft_ms": 20000, "e2e_ms": 40000}),
    "static, lists": lambda: parts(
        setups=["static"], slo={"e2e_ms": 90000, "percentile": 99},
        workload={"requests_per_second": 10, "prompt_tokens": [
            {"tokens": 200, "share": 0.5}, {"tokens": 1800, "share": 0.5}], "output_tokens": [
            {"tokens": 20, "share": 0.3}, {"tokens": 300, "share": 0.7}]}),
    "gaps": lambda: parts(setups=["chunked"], slo={"ttft_ms": 2000, "itl_ms": 60}),
    "gaps, two pools": lambda: parts(setups=["disaggregated"], slo={
        "ttft_ms": 2000, "itl_ms": 60}),
    "whole request, two pools": lambda: parts(setups=["disaggregated"], slo={
        "ttft_ms": 2000, "e2e_ms": 14000}),
    "impossible": lambda: parts(slo={"ttft_ms": 1, "tpot_ms": 50}, setups=["colocated"]),
    "unpriced": lambda: parts(setups=["colocated"], pricing={"commitment": "owned"}),
    "one GPU": lambda: parts(workload={"requests_per_second": 0.01, "prompt_tokens": 100,
                                       "output_tokens": 1}, setups=["colocated"],
                             limits={"spare_replicas": 0}),
    "hardly any wait for a place": lambda: parts(
        setups=["disaggregated"], gpus=["h100-sxm-80gb"], limits={
            "max_sequences": 4, "max_gpus": 4096, "max_tensor_parallel": 1},
        workload={"requests_per_second": 10, "prompt_tokens": 1000, "output_tokens": 200,
                  "arrival_cv": 2.0},
        slo={"ttft_ms": 300, "tpot_ms": 40, "percentile": 99.9}),
    "hardly any bursts": lambda: parts(
        setups=["disaggregated"], gpus=["h100-sxm-80gb"],
        workload={"requests_per_second": 8, "prompt_tokens": 1000, "output_tokens": 200,
                  "arrival_cv": 1.01}, slo={"ttft_ms": 1000, "tpot_ms": 50}),
    "waits for a place": lambda: parts(
        setups=["disaggregated"], gpus=["h100-sxm-80gb"], limits={
            "max_sequences": 2, "max_gpus": 4096, "max_tensor_parallel": 1},
        workload={"requests_per_second": 10, "prompt_tokens": 1000, "arrival_cv": 2.0,
                  "output_tokens": {"mean": 200, "p95": 600}},
        slo={"ttft_ms": 4000, "percentile": 90}),
    "no second token": lambda: parts(
        workload={"requests_per_second": 20, "prompt_tokens": 800, "output_tokens": 1},
        setups=["chunked", "disaggregated"], slo={"ttft_ms": 1000, "tpot_ms": 1, "itl_ms": 1}),
    "a million a second": lambda: parts(
        workload={"requests_per_second": 1e6, "prompt_tokens": {"mean": 2000, "p95": 6000},
                  "output_tokens": 300}, setups=["chunked"], gpus=["h100-sxm-80gb"],
        limits={"max_gpus": 10**6, "max_tensor_parallel": 1}),
}


NOT_ALLOWED: dict[str, tuple[dict[str, Any], str]] = {
    "negative": ({"in_requests_per_second": -5.0}, "Requests per second"),
    "text": ({"in_requests_per_second": "abc"}, "Requests per second"),
    "empty": ({"in_output_tokens_mean": ""}, "Output tokens, mean"),
    "an error": ({"in_spare_replicas": "=1/0"}, "Spare replicas"),
    "no target": ({"in_tpot_ms": "none", "in_regions": 0.0}, "Time per output token and 1 more"),
    "a spread": ({"in_output_tokens_p95": 10.0}, "Output tokens, 95th percentile"),
    "a factor": ({"eng1_mfu": 0.0}, "Share of peak compute"),
    "a price": ({"in_usd_per_gpu_hour": "cheap"}, "Price of L40S"),
}


def test_results_say_which_input_is_not_allowed(tmp_path: Path) -> None:
    plan = parts(gpus=["l40s"], setups=["colocated"])
    assert plan[0]["recommended"]["pools"][0]["gpu"] == "l40s"
    data = write_plan(*plan)
    books = recalculated(tmp_path, {n: edited(data, e) for n, (e, _) in NOT_ALLOWED.items()})
    for name, book in books.items():
        said = NOT_ALLOWED[name][1]
        assert named(book, "out_check") == f"Not allowed: {said}", name
        results = [n for n in book.defined_names if n.startswith("out_") and n != "out_check"]
        assert {named(book, n) for n in results} == {"n/a"}, name
        assert book["Summary"]["A3"].value == f"No result. Not allowed: {said}."
        typed = {"Checks!", "Inputs!"} if name == "an error" else set()  # the error, where it shows
        assert {e[:7] for e in errors(book)} == typed, name


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory
        ) -> dict[str, tuple[bytes, openpyxl.Workbook]]:
    files = {name: write_plan(*build()) for name, build in ODD.items()}
    books = recalculated(tmp_path_factory.mktemp("odd"), files)
    return {name: (files[name], books[name]) for name in files}


@pytest.mark.parametrize(("edits", "verdict", "own"), [
    ({}, "OK", "yes"),
    ({"in_requests_per_second": 30.0}, "OK, but engine results are stale", "yes"),
    ({"in_usd_per_gpu_hour": 3.0}, "OK, but engine results are stale", "yes"),
    ({"in_prompt_tokens_mean": 2500.0}, "Stale capacity: plan again", "no: stale, plan again"),
    ({"in_e2e_ms": 20000.0}, "Stale capacity: plan again", "no: stale, plan again")])
def test_a_capacity_of_the_engine_is_stale_when_an_input_of_it_changes(
        tmp_path: Path, edits: dict[str, float], verdict: str, own: str) -> None:
    data = edited(write_plan(*ODD["static"]()), edits)
    book = recalculated(tmp_path, {"static": data})["static"]
    assert errors(book) == []
    assert named(book, "out_check") == verdict
    [line] = [row for row in book["Operating points 1"].iter_rows(max_col=2)
              if row[0].value == "Are they of the inputs as they are?"]
    assert line[1].value == own
    styled = openpyxl.load_workbook(io.BytesIO(data))["Operating points 1"]
    [capacity] = [row for row in styled.iter_rows(max_col=2)
                  if str(row[0].value).endswith(": highest rate of a replica")]
    assert capacity[1].font.i


@pytest.mark.parametrize("name", list(ODD))
def test_every_cached_value_is_what_a_spreadsheet_calculates(
        odd: dict[str, tuple[bytes, openpyxl.Workbook]], name: str) -> None:
    data, after = odd[name]
    before = read(data)
    assert errors(after) == []
    for sheet in before:
        for row in sheet.iter_rows():
            for cell in row:
                value, again = cell.value, after[sheet.title][cell.coordinate].value
                if isinstance(value, int | float):
                    assert math.isclose(again, value, rel_tol=1e-8, abs_tol=1e-12), (
                        sheet.title, cell.coordinate, value, again)
                elif value is not None:
                    assert again == value, (sheet.title, cell.coordinate)
