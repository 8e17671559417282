"""Time the work a user waits for: plans, estimates, workbooks; and operating points a core.

Runs in this process against a fresh SQLite file, so it measures the planner and not a network.
``python -m scripts.bench chat rag`` times these examples only.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
REPEATS = 5
CELLS: dict[bytes, dict[str, list[Any]]] = {}
"""Cells of a workbook by its file, read once."""
PATIENCE_S = 10.0
"""[s] after which a job is not repeated again."""


class Api:
    """The application with a loaded catalog, called without a network."""

    def __init__(self, folder: str) -> None:
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/bench.sqlite"
        os.environ["PLANNER_LOG_LEVEL"] = "error"
        from app import create_app  # reads the environment, so only now

        application = create_app()
        for command in (["db", "upgrade"], ["catalog", "load"]):
            result = application.test_cli_runner().invoke(args=command)
            if result.exit_code:
                raise SystemExit(f"flask {' '.join(command)} failed: {result.output}")
        self.client = application.test_client()

    def post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """POST a document; stop on an error."""
        response = self.client.post(f"/api/v1/{path}", json=document)
        if response.status_code >= 300:
            raise SystemExit(f"POST {path}: {response.status_code} {response.get_data(True)[:500]}")
        return dict(response.json or {})

    def get(self, path: str) -> bytes:
        """GET a resource; stop on an error."""
        response = self.client.get(f"/api/v1/{path}")
        if response.status_code != 200:
            raise SystemExit(f"GET {path}: {response.status_code}")
        return bytes(response.get_data())


def example(name: str) -> dict[str, Any]:
    """One of the plan requests in ``examples/``."""
    return dict(json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8")))


def many_steps(count: int) -> dict[str, Any]:
    """An estimate of ``count`` engine steps in one call."""
    batches = [{"decodes": 1 + i % 256, "context_tokens": 500 + i, "prefill_tokens": 0}
               for i in range(count)]
    return {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "batches": batches}


def jobs(api: Api, names: Sequence[str]) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    plans = {f"plan {name}": partial(api.post, "plans", example(name)) for name in names}
    plan_id = api.post("plans", example("chat"))["id"]
    months = fifty_teams()
    budget_id = api.post("budgets", months)["id"]
    budget_book = partial(api.get, f"budgets/{budget_id}/workbook")
    apart = {**months, "workloads": [{**w, "fleet": f"Fleet {i}"}
                                     for i, w in enumerate(months["workloads"])]}
    return {"budget 60 months x 50": partial(api.post, "budgets", months),
            "the same, 50 fleets": partial(api.post, "budgets", apart),
            "workbook of that budget": budget_book,
            "the same by openpyxl": partial(write_with_openpyxl, cells_of(budget_book())),
            "40 cells of the catalog sweep": sweep_cells(40),
            "in process, no advice": in_process(advice=False),
            "in process, with advice": in_process(advice=True), **plans,
            "estimate 10,000 steps": partial(api.post, "estimates", many_steps(10_000)),
            "workbook chat": partial(api.get, f"plans/{plan_id}/workbook"),
            "the same cells by openpyxl": partial(openpyxl_cells, api.get(
                f"plans/{plan_id}/workbook"))}


def openpyxl_cells(data: bytes) -> None:
    """Write the cells of a workbook with openpyxl: formulas and values, no formats or charts."""
    import openpyxl

    if data not in CELLS:
        book = openpyxl.load_workbook(io.BytesIO(data))
        CELLS[data] = {s.title: list(s.iter_rows(values_only=True)) for s in book}
    made = openpyxl.Workbook()
    for title, rows in CELLS[data].items():
        sheet = made.create_sheet(title)
        for row in rows:
            sheet.append(row)
    made.save(io.BytesIO())


def fifty_teams() -> dict[str, Any]:
    """A budget of 60 months and 50 workloads on five models, ten to a fleet; all grow."""
    models = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "mixtral-8x7b-v0.1", "gpt-oss-120b")
    workloads = [{
        "name": f"Team {i + 1}", "model": models[i % 5], "gpus": ["h100-sxm-80gb"],
        "setups": ["chunked"], "slo": {"ttft_ms": 2000, "tpot_ms": 60},
        "workload": {"requests_per_second": 1 + i % 7, "output_tokens": 150 + 20 * (i % 6),
                     "prompt_tokens": {"mean": 800 + 100 * (i % 9), "p95": 2500 + 250 * (i % 9)}},
        "growth_per_month": 0.01 + 0.002 * (i % 10), "starts_month": 1 + i % 4 * 3}
        for i in range(50)]
    return {"name": "Fifty teams", "months": 60, "start": "2027-01", "workloads": workloads,
            "commitments": {"terms": [{"term_months": 12, "discount": 0.3}]}}


def cells_of(data: bytes) -> dict[str, list[tuple[Any, ...]]]:
    """Values and formulas of a workbook by sheet."""
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(data))
    return {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book}


def write_with_openpyxl(sheets: dict[str, list[tuple[Any, ...]]]) -> None:
    """Write the same cells with openpyxl: no formats, no cached values, no charts."""
    from openpyxl import Workbook

    book = Workbook()
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(io.BytesIO())


def sweep_cells(count: int) -> Callable[[], Any]:
    """Cells spread evenly over the catalog sweep: a model on a GPU in three set-ups each."""
    from planner.catalog.shipped import shipped_catalog
    from planner.sweeps.grid import checked_grid
    from planner.sweeps.tasks import plan_cell

    asked, catalog = example("sweeps/catalog"), shipped_catalog()
    grid = checked_grid(asked["base"], asked["grid"], catalog, 10**6)
    cells = [grid.combination(grid.cells * i // count) for i in range(count)]
    return lambda: [plan_cell(grid, cell, catalog) for cell in cells]


def in_process(advice: bool) -> Callable[[], Any]:
    """A plan by the library alone: one model, three set-ups, one GPU type, all layouts."""
    from planner.api.plan_schema import parse_plan
    from planner.catalog.shipped import shipped_catalog
    from planner.planning import make_plan

    request = parse_plan({**example("chat"), "gpus": ["h100-sxm-80gb"], "advice": advice,
                          "setups": ["colocated", "chunked", "disaggregated"]})
    return partial(make_plan, request, shipped_catalog())


def sweep_cells_per_s(cells: int = 300) -> tuple[float, float, int]:
    """Cells planned per second by one process and by all, and the cells of the whole catalog.

    A sample of every model on every GPU with three set-ups each, planned as a job does it.
    """
    import random
    from concurrent.futures import wait

    from planner.catalog.shipped import shipped_catalog
    from planner.jobs.executors import Processes
    from planner.jobs.sending import pack_catalog
    from planner.sweeps.grid import Grid, checked_grid
    from planner.sweeps.tasks import plan_cell, plan_part

    catalog = shipped_catalog()
    asked = json.loads((EXAMPLES / "sweeps" / "catalog.json").read_text(encoding="utf-8"))
    whole = checked_grid(asked["base"], asked["grid"], catalog, 10**6)
    sample = random.Random(0).sample(range(whole.cells), 40)
    plan_cell(whole, whole.combination(0), catalog)
    start = time.process_time()
    for cell in sample:
        plan_cell(whole, whole.combination(cell), catalog)
    alone = len(sample) / (time.process_time() - start)
    models = random.Random(0).sample(whole.values["model"], max(cells // 20, 1))
    grid = Grid(whole.base, {"model": models, "gpus": whole.values["gpus"][::2][:20]})
    executor, book = Processes(), pack_catalog(catalog)
    wait([executor.submit(plan_part, book, grid.to_json(), 0) for _ in range(executor.workers)])
    start = time.perf_counter()
    wait([executor.submit(plan_part, book, grid.to_json(), p) for p in range(grid.parts)])
    together = grid.cells / (time.perf_counter() - start)
    executor.stop()
    return alone, together, whole.cells


def timed(work: Callable[[], Any]) -> tuple[float, float, float]:
    """First and median time, and median processor time [s], of up to ``REPEATS`` runs.

    Processor time does not depend on what else the machine does.
    """
    times: list[float] = []
    busy: list[float] = []
    while len(times) < REPEATS and sum(times) < PATIENCE_S:
        start, busy_start = time.perf_counter(), time.process_time()
        work()
        times.append(time.perf_counter() - start)
        busy.append(time.process_time() - busy_start)
    return times[0], statistics.median(times), statistics.median(busy)


def points_per_core_s() -> float:
    """Operating points per second of processor time.

    One point is one batch size of one deployment at one arrival rate: step time, TPOT and its place
    in the product-form chain. Llama 3.1 8B on one H100, colocated, 200 rates over its batch sizes.
    """
    from planner.api.plan_schema import parse_plan
    from planner.catalog.shipped import shipped_catalog
    from planner.requests import Layout
    from planner.roofline import Deployment
    from planner.setups.base import build_table
    from planner.setups.colocated import Colocated

    catalog = shipped_catalog()
    llm, gpu = catalog.llm("llama-3.1-8b"), catalog.gpu("h100-sxm-80gb")
    deployment = Deployment(llm, gpu, "bf16", "bf16", Layout(),
                            catalog.engine("vllm", gpu, "bf16"))
    request = parse_plan(example("chat"))
    points, start = 0, time.process_time()
    table = build_table(deployment, request.workload, request.limits)
    source = Colocated(table)
    for i in range(1, 201):
        source.chain(0.01 * i, 1.0)
        points += len(table.n)
    return points / (time.process_time() - start)


def main(names: Sequence[str]) -> None:
    """Print one line a job (first run, median, processor time), then operating points a core."""
    chosen = names or [file.stem for file in sorted(EXAMPLES.glob("*.json"))
                       if file.stem != "budget"]
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'job':<28}{'first':>10}{'median':>10}{'processor':>11}")
        for name, work in jobs(Api(folder), chosen).items():
            first, median, busy = timed(work)
            print(f"{name:<28}{first * 1e3:>7.0f} ms{median * 1e3:>7.0f} ms{busy * 1e3:>8.0f} ms",
                  flush=True)
    print(f"{points_per_core_s():,.0f} operating points per second and core")
    alone, together, cells = sweep_cells_per_s()
    print(f"sweep of the catalog, 3 set-ups a cell: {alone:,.1f} cells per second of one core, "
          f"{together:,.1f} by all processes; {cells:,} cells in {cells / together:,.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
