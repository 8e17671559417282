"""The answer to a filled template: one line a workload, its pools, and the totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xlsxwriter.utility import xl_col_to_name

from planner.spreadsheets.workload_columns import COLUMNS, SHEET, WorkloadColumn
from planner.workbook import advice, words
from planner.workbook.blank import written
from planner.workbook.layout import Column, Page, clean, data_sheet, lines, number, set_up
from planner.workbook.plan import Plan
from planner.workbook.styles import Styles

TITLE = "Portfolio of workloads"
SUMMARY, RESULTS, FLEET = "Summary", "Results", "Fleet"
HOURS = "Hours per month"
PLANNED, REFUSED = "planned", "no plan"
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Planned:
    """One workload of a sheet with its plan.

    Attributes
    ----------
    number : int
        Row of the sheet that was sent.
    values : mapping
        What its cells say, by column.
    plan : Plan
    """

    number: int
    values: Mapping[str, Any]
    plan: Plan

    @property
    def best(self) -> Document:
        """The recommended option; empty where there is none."""
        return self.plan.best or {}

    @property
    def name(self) -> str:
        """The workload's name, or its row."""
        return clean(self.values.get("name") or "").strip() or f"Row {self.number}"


def totals(rows: Sequence[Planned]) -> dict[str, Any]:
    """Sums over the workloads that have a plan, in all and by GPU.

    Cost sums are None when a planned workload has no price.
    """
    done = [r.best for r in rows if r.best]
    by_gpu: dict[str, dict[str, Any]] = {}
    for best in done:
        for slug, gpus, usd in _gpu_costs(best):
            entry = by_gpu.setdefault(slug, {"gpu": slug, "workloads": 0, "gpus": 0,
                                             "usd_per_hour": 0.0})
            entry["workloads"] += 1
            entry["gpus"] += gpus
            entry["usd_per_hour"] = _plus(entry["usd_per_hour"], usd)
    return {"workloads": len(rows), "planned": len(done),
            "gpus": sum(b["gpus"] for b in done), "nodes": sum(b.get("nodes") or 0 for b in done),
            "usd_per_hour": _sum(b.get("usd_per_hour") for b in done),
            "usd_per_month": _sum(b.get("usd_per_month") for b in done),
            "power_kw": _sum(b.get("power_kw") for b in done),
            "by_gpu": sorted(by_gpu.values(), key=lambda e: (-e["gpus"], e["gpu"]))}


def _gpu_costs(best: Document) -> list[tuple[str, int, float | None]]:
    """GPUs of an option by kind, and what they cost per hour [USD]."""
    usd = {p["gpu"]: p["usd_per_gpu_hour"] for p in best.get("prices") or []}
    kinds = best.get("gpus_by_kind") or _kinds(best)
    return [(slug, n, n * usd[slug] if slug in usd else None) for slug, n in kinds.items()]


def _kinds(best: Document) -> dict[str, int]:
    found: dict[str, int] = {}
    for pool in best.get("pools") or []:
        found[pool["gpu"]] = found.get(pool["gpu"], 0) + pool["gpus"]
    return found


def _plus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _sum(values: Any) -> float | None:
    found = list(values)
    return None if any(v is None for v in found) else float(sum(found))


def write_portfolio(rows: Sequence[Planned], notes: Sequence[str]) -> bytes:
    """The plans of a filled template as a workbook.

    Totals are formulas over the sheets Results and Fleet, every one with its value.

    Parameters
    ----------
    rows : sequence of Planned
    notes : sequence of str
        What the reader should know of the file that was read.
    """
    def fill(book: Any, styles: Styles) -> None:
        pages = {name: Page(book.add_worksheet(name), styles)
                 for name in (SUMMARY, RESULTS, FLEET, SHEET)}
        last = _write_results(pages[RESULTS], rows)
        pools = [pool for row in rows for pool in _pools(row)]
        fleet_last = _write_fleet(pages[FLEET], pools)
        _write_workloads(pages[SHEET], rows)
        _Summary(pages[SUMMARY], rows, last, fleet_last).write(notes)
        pages[SUMMARY].sheet.activate()

    return written(TITLE, fill)


# -- results ------------------------------------------------------------------------------------


def _percentile(row: Planned) -> float:
    """The percentile of the row's targets: a template has one a row."""
    return next((t.percentile for t in row.plan.targets()), 90.0)


def _latency(metric: str) -> Any:
    def at_percentile(row: Planned) -> float | None:
        if row.plan.target(metric) or not row.best:
            return row.plan.latency_ms(row.best, metric) if row.best else None
        return number((row.best.get(f"{metric}_ms") or {}).get(f"p{_percentile(row):g}"))
    return at_percentile


def _target(metric: str) -> Any:
    def limit(row: Planned) -> float | None:
        target = row.plan.target(metric)
        return target.limit_ms if target else None
    return limit


def _of_best(name: str) -> Any:
    return lambda r: r.best.get(name)


def _range(row: Planned) -> str | None:
    sure = row.best.get("confidence") or {}
    if sure.get("gpus_low") is None:
        return None
    return f"{sure['gpus_low']} to {sure['gpus_high']}"


def reason_of(row: Planned) -> str:
    """Why the option was chosen, or what stands in the way of any."""
    return str(row.plan.document.get("reason") or "")


def _utilization(row: Planned) -> float | None:
    return max((p["utilization"] for p in row.best.get("pools") or []
                if number(p.get("utilization")) is not None), default=None)


def _lever(row: Planned) -> str | None:
    """The first lever that changes something; what only says what limits the fleet is none."""
    levers = [a for a in row.plan.advice
              if not advice.states_limit(a) and a.get("code") != "beyond_context"]
    found = next((a for a in levers if not advice.changes_nothing(a)), None)
    return words.named(row.plan, found.get("message") or "") if found else None


_COLUMNS = (
    Column("Row", lambda r: r.number, 6, "rank"),
    Column("Name", lambda r: r.name, 26, "text"),
    Column("State", lambda r: PLANNED if r.best else REFUSED, 10, "short"),
    Column("Model", lambda r: r.plan.model, 22, "text"),
    Column("GPUs", _of_best("gpus"), 8),
    Column("GPU", lambda r: words.gpus(r.plan, r.best) or None, 20, "text"),
    Column("Set-up", lambda r: words.setup(r.best["setup"]) if r.best else None, 15, "text"),
    Column("Layout", lambda r: words.layout(r.best) or None, 20, "text"),
    Column("Replicas", lambda r: words.replicas(r.best) if r.best else None, 9),
    Column("Spare replicas", lambda r: words.spares(r.best) if r.best else None, 9),
    Column("Nodes", _of_best("nodes"), 8),
    Column("Precisions", lambda r: words.precision(r.best) or None, 14, "text"),
    Column("Requests per second [1/s]", lambda r: r.plan.requests_per_second, 11, "fraction"),
    Column("TTFT [ms]", _latency("ttft"), 10, "count"),
    Column("Target, TTFT [ms]", _target("ttft"), 10, "count"),
    Column("TPOT [ms]", _latency("tpot"), 10, "one"),
    Column("Target, TPOT [ms]", _target("tpot"), 10, "one"),
    Column("Gap between tokens [ms]", _latency("itl"), 10, "one"),
    Column("Target, gap between tokens [ms]", _target("itl"), 10, "one"),
    Column("Whole request [ms]", _latency("e2e"), 10, "count"),
    Column("Target, whole request [ms]", _target("e2e"), 10, "count"),
    Column("Percentile [%]", _percentile, 10, "fraction"),
    Column("Utilisation", _utilization, 10, "percent"),
    Column("Limited by", lambda r: words.limit(r.best["limited_by"])
           if r.best.get("limited_by") else None, 22, "text"),
    Column("Cost per hour [USD/h]", _of_best("usd_per_hour"), 12, "two"),
    Column("Cost per month [USD]", _of_best("usd_per_month"), 13, "count"),
    Column("Cost per million tokens [USD]", _of_best("usd_per_million_tokens"), 12, "three"),
    Column("Power [kW]", _of_best("power_kw"), 9, "one"),
    Column("GPUs, range", _range, 11, "short"),
    Column("Confidence", lambda r: (r.best.get("confidence") or {}).get("level"), 12, "short"),
    Column("Reason", reason_of, 60, "text"),
    Column("First lever", _lever, 48, "text"),
    Column("Start", lambda r: r.values.get("start"), 11, "short"),
    Column("Notes", lambda r: r.values.get("notes"), 30, "text"),
    Column("Plan", lambda r: r.plan.document.get("id"), 38, "short"),
)
_LABELS = [c.label for c in _COLUMNS]


def _write_results(page: Page, rows: Sequence[Planned]) -> int:
    set_up(page, TITLE, RESULTS)
    last = data_sheet(page, _COLUMNS, rows, "No workload.", frozen=2)
    state = _LABELS.index("State")
    page.sheet.conditional_format(1, state, last, state, {
        "type": "cell", "criteria": "==", "value": f'"{REFUSED}"',
        "format": page.mark({"font_color": "#9C0006", "bg_color": "#FBE5E3"})})
    return last


# -- fleet --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PoolLine:
    row: Planned
    pool: Document
    gpus: int
    price: Document | None


def _pools(row: Planned) -> list[_PoolLine]:
    prices = {p["gpu"]: p for p in row.best.get("prices") or []}
    regions = int(row.best.get("regions") or 1)
    return [_PoolLine(row, p, p["gpus"] * regions, prices.get(p["gpu"]))
            for p in row.best.get("pools") or []]


def _price(name: str) -> Any:
    return lambda p: (p.price or {}).get(name)


def _month_hours(row: Planned) -> float:
    pricing = row.plan.request.get("pricing") or {}
    return float(pricing.get("utilization_hours_per_month") or 730.0)


_FLEET = (
    Column("Row", lambda p: p.row.number, 6, "rank"),
    Column("Name", lambda p: p.row.name, 26, "text"),
    Column("Pool", lambda p: p.pool.get("role"), 10, "short"),
    Column("GPU", lambda p: p.pool.get("gpu"), 22, "text"),
    Column("Layout", lambda p: words.degrees(p.pool), 16, "text"),
    Column("Replicas", lambda p: p.pool.get("replicas"), 9),
    Column("GPUs", lambda p: p.gpus, 8),
    Column("Price per GPU-hour [USD]", _price("usd_per_gpu_hour"), 11, "price"),
    Column("Cost per hour [USD/h]", lambda p: None if p.price is None else
           p.gpus * p.price["usd_per_gpu_hour"], 12, "two"),
    Column(HOURS, lambda p: _month_hours(p.row), 10),
    Column("Cost per month [USD]", lambda p: None if p.price is None else
           p.gpus * p.price["usd_per_gpu_hour"] * _month_hours(p.row), 13, "count"),
    Column("Provider", _price("provider"), 18, "text"),
    Column("Commitment", _price("commitment"), 13, "short"),
    Column("As of", _price("as_of"), 11, "short"),
)
_FLEET_LABELS = [c.label for c in _FLEET]


def _write_fleet(page: Page, pools: Sequence[_PoolLine]) -> int:
    """The pools, their cost as formulas; the index of the last row."""
    set_up(page, TITLE, FLEET)
    last = data_sheet(page, _FLEET, pools, "No workload has a plan.", frozen=2)
    gpus, price, hour, hours = (_letter(_FLEET_LABELS, n) for n in (
        "GPUs", "Price per GPU-hour [USD]", "Cost per hour [USD/h]", HOURS))
    for row, pool in enumerate(pools, 1):
        if pool.price is None:
            continue
        usd = pool.gpus * pool.price["usd_per_gpu_hour"]
        page.formula(row, _FLEET_LABELS.index("Cost per hour [USD/h]"),
                     f"={gpus}{row + 1}*{price}{row + 1}", usd, "cell", "two")
        page.formula(row, _FLEET_LABELS.index("Cost per month [USD]"),
                     f"={hour}{row + 1}*{hours}{row + 1}", usd * _month_hours(pool.row),
                     "cell", "count")
    return last


def _letter(labels: Sequence[str], label: str) -> str:
    return str(xl_col_to_name(labels.index(label)))


# -- what was read ------------------------------------------------------------------------------


def _write_workloads(page: Page, rows: Sequence[Planned]) -> None:
    """The workloads as they were understood, so that the file can be edited and sent again."""
    set_up(page, TITLE, SHEET)
    columns = [Column(c.title, _cell_of(c), c.width, _style_of(c)) for c in COLUMNS]
    data_sheet(page, columns, rows, "No workload.", frozen=2)


def _cell_of(column: WorkloadColumn) -> Any:
    def value(row: Planned) -> Any:
        found = row.values.get(column.key)
        return ", ".join(found) if isinstance(found, list) else found
    return value


def _style_of(column: WorkloadColumn) -> str:
    return {"number": "fraction", "share": "percent", "percentile": "fraction",
            "text": "text"}.get(column.kind, "short")


# -- summary ------------------------------------------------------------------------------------


class _Summary:
    """The first page: totals as formulas, by GPU, and what has no plan."""

    def __init__(self, page: Page, rows: Sequence[Planned], last: int, fleet_last: int) -> None:
        self.page, self.rows = page, rows
        self.sums = totals(rows)
        self.last, self.fleet_last = last, fleet_last

    def write(self, notes: Sequence[str]) -> None:
        page = self.page
        set_up(page, TITLE, SUMMARY, pages_high=1)
        page.widths((34, 12, 12, 14, 16, 16))
        page.merge(0, 0, 5, TITLE, "title")
        page.sheet.set_row(0, 30)
        row = self._tiles(2)
        row = self._by_gpu(row + 1)
        row = self._refused(row + 1)
        self._notes(row + 1, notes)

    def _tiles(self, row: int) -> int:
        sums = self.sums
        state = self._results("State")
        figures = (
            ("Workloads", f"=COUNTA({state})", sums["workloads"], "count"),
            ("Workloads with a plan", f'=COUNTIF({state},"{PLANNED}")', sums["planned"], "count"),
            ("GPUs", f"=SUM({self._results('GPUs')})", sums["gpus"], "count"),
            ("Nodes", f"=SUM({self._results('Nodes')})", sums["nodes"], "count"),
            ("Cost per hour [USD/h]", f"=SUM({self._results('Cost per hour [USD/h]')})",
             sums["usd_per_hour"], "two"),
            ("Cost per month [USD]", f"=SUM({self._results('Cost per month [USD]')})",
             sums["usd_per_month"], "count"),
            ("Power of the GPUs [kW]", f"=SUM({self._results('Power [kW]')})", sums["power_kw"],
             "one"),
        )
        for label, formula, value, style in figures:
            self.page.write(row, 0, label, "cell", "label")
            if value is None:
                self.page.write(row, 1, "n/a", "cell", "left", "bold")
                self.page.merge(row, 2, 5, "a workload has no price or power", "cell", "note")
            else:
                self.page.formula(row, 1, formula, value, "cell", style, "bold")
            row += 1
        return row

    def _results(self, label: str) -> str:
        letter = _letter(_LABELS, label)
        return f"{RESULTS}!${letter}$2:${letter}${self.last + 1}"

    def _fleet(self, label: str) -> str:
        letter = _letter(_FLEET_LABELS, label)
        return f"{FLEET}!${letter}$2:${letter}${self.fleet_last + 1}"

    def _by_gpu(self, row: int) -> int:
        page = self.page
        page.write(row, 0, "By GPU", "heading")
        row += 1
        labels = ("GPU", "GPUs", "Share", "Cost per hour [USD/h]", "Cost per month [USD]",
                  "Workloads")
        for place, label in enumerate(labels):
            page.write(row, place, label, "short" if place == 0 else "count", "header")
        page.height(row, 2)
        for entry in self.sums["by_gpu"]:
            row += 1
            self._gpu_line(row, entry)
        if not self.sums["by_gpu"]:
            row += 1
            page.write(row, 0, "No workload has a plan.", "label")
        return row + 1

    def _gpu_line(self, row: int, entry: Mapping[str, Any]) -> None:
        page, line = self.page, row + 1
        months = sum(p.gpus * p.price["usd_per_gpu_hour"] * _month_hours(p.row)
                     for r in self.rows for p in _pools(r)
                     if p.price is not None and p.pool["gpu"] == entry["gpu"])
        page.write(row, 0, entry["gpu"], "cell", "label")

        def summed(label: str) -> str:
            return f"=SUMIF({self._fleet('GPU')},$A{line},{self._fleet(label)})"

        page.formula(row, 1, summed("GPUs"), entry["gpus"], "cell", "count")
        total = self.sums["gpus"]
        page.formula(row, 2, f"=B{line}/$B$5", entry["gpus"] / total, "cell", "percent")
        if entry["usd_per_hour"] is None:
            for place in (3, 4):
                page.write(row, place, "n/a", "cell", "count")
        else:
            page.formula(row, 3, summed("Cost per hour [USD/h]"), entry["usd_per_hour"],
                         "cell", "two")
            page.formula(row, 4, summed("Cost per month [USD]"), months, "cell", "count")
        page.write(row, 5, entry["workloads"], "cell", "count")

    def _refused(self, row: int) -> int:
        refused = [r for r in self.rows if not r.best]
        if not refused:
            return row
        self.page.write(row, 0, "Without a plan", "heading")
        for found in refused[:20]:
            row += 1
            self.page.write(row, 0, f"Row {found.number}: {found.name}"[:200], "cell", "text")
            text = reason_of(found)[:300]
            self.page.merge(row, 1, 5, text, "cell", "text")
            self.page.height(row, max(lines(text, 66), lines(found.name, 26)))
        if len(refused) > 20:
            row += 1
            self.page.write(row, 0, f"and {len(refused) - 20} more on the sheet {RESULTS}",
                            "label")
        return row + 2

    def _notes(self, row: int, notes: Sequence[str]) -> None:
        self.page.write(row, 0, "Notes", "heading")
        fixed = ("Each workload is planned by itself, at its own peak; GPUs and nodes are not "
                 "shared between workloads and peaks are added.",
                 f"Latencies on the sheet {RESULTS} are at each workload's percentile.",
                 f"The sheet {SHEET} is what was read; edit it and send this file again.")
        for text in (*notes, *fixed):
            row += 1
            self.page.merge(row, 0, 5, text, "note")
            self.page.height(row, lines(text, 100))
