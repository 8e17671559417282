"""Plans side by side as a workbook: figures, what differs, a bridge with a chart for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from planner.bridge import CATALOG, PARTS
from planner.wording import gpus as gpus_text
from planner.workbook import words
from planner.workbook.blank import written
from planner.workbook.layout import Page, clean, lines, number, set_up
from planner.workbook.plan import Plan
from planner.workbook.styles import FONT, NAVY, Styles

TITLE = "Comparison of plans"
SIDE, CHANGES = "Comparison", "Changes"
PART_WORDS = {
    "rate": "Rate and burstiness", "lengths": "Prompt and output lengths",
    "prefix_cache": "Prefix cache", "slo": "Latency targets", "pricing": "Prices",
    "model": "Model", "gpus": "GPU types", "efficiency": "Engine, precision, efficiency",
    "setups": "Set-ups", "limits": "Limits", "objective": "Objective",
    CATALOG: "Catalog or planner since then",
}
"""What each part of a bridge is called."""
ORDER = " → ".join(PART_WORDS[p.name] for p in PARTS)
Document = Mapping[str, Any]


def write_comparison(document: Document, snapshots: Sequence[Document]) -> bytes:
    """A comparison as an xlsx file.

    Parameters
    ----------
    document : mapping
        The answer of ``POST /plans/compare``.
    snapshots : sequence of mapping
        The catalog rows of each plan, for names.
    """
    plans = [Plan(p, {}, s) for p, s in zip(document["plans"], snapshots, strict=True)]

    def fill(book: Any, styles: Styles) -> None:
        side = Page(book.add_worksheet(SIDE), styles)
        changes = Page(book.add_worksheet(CHANGES), styles)
        names = plan_names(document)
        _write_side(side, names, plans)
        _write_changes(changes, document)
        for bridge in document["bridges"]:
            page = Page(book.add_worksheet(f"Bridge to plan {bridge['plan'] + 1}"), styles)
            _Bridge(page, names, bridge).write(book)
        side.sheet.activate()

    return written(TITLE, fill)


def bridge_words(parts: Sequence[str]) -> str:
    """The parts of a step in words."""
    return " and ".join(PART_WORDS.get(p, words.spaced(p)) for p in parts)


# -- side by side -------------------------------------------------------------------------------


def _of_best(name: str) -> Any:
    return lambda plan: (plan.best or {}).get(name)


def _best(found: Any) -> Any:
    return lambda plan: found(plan.best) if plan.best else None


def _confidence(best: Document) -> str:
    sure = best.get("confidence") or {}
    low = sure.get("gpus_low")
    span = "" if low is None else f", {low} to {gpus_text(sure['gpus_high'])}"
    return f"{sure.get('level') or 'n/a'}{span}"


FIGURES: tuple[tuple[str, Any, str], ...] = (
    ("Model", lambda p: p.model, "text"),
    ("Requests per second [1/s]", lambda p: p.requests_per_second, "fraction"),
    ("GPUs", _of_best("gpus"), "count"),
    ("Nodes", _of_best("nodes"), "count"),
    ("GPU", lambda p: words.gpus(p, p.best) if p.best else None, "text"),
    ("Set-up", _best(lambda b: words.setup(b["setup"])), "text"),
    ("Layout", _best(words.layout), "text"),
    ("Precisions", _best(words.precision), "text"),
    ("Replicas", _best(words.replicas), "count"),
    ("TTFT [ms]", lambda p: p.latency_ms(p.best, "ttft") if p.best else None, "count"),
    ("TPOT [ms]", lambda p: p.latency_ms(p.best, "tpot") if p.best else None, "one"),
    ("Gap between tokens [ms]", lambda p: p.latency_ms(p.best, "itl") if p.best else None, "one"),
    ("Whole request [ms]", lambda p: p.latency_ms(p.best, "e2e") if p.best else None, "count"),
    ("Percentile [%]", lambda p: p.percentile("ttft"), "fraction"),
    ("Limited by", _best(lambda b: words.limit(b["limited_by"])), "text"),
    ("Cost per hour [USD/h]", _of_best("usd_per_hour"), "two"),
    ("Cost per month [USD]", _of_best("usd_per_month"), "count"),
    ("Cost per million tokens [USD]", _of_best("usd_per_million_tokens"), "three"),
    ("Power [kW]", _of_best("power_kw"), "one"),
    ("Confidence", _best(_confidence), "text"),
    ("Reason", lambda p: str(p.document.get("reason") or ""), "text"),
)
"""Label, value and style of each line."""
_COMPARED = {"GPUs", "Nodes", "Replicas", "Cost per hour [USD/h]", "Cost per month [USD]",
             "Cost per million tokens [USD]", "Power [kW]", "Requests per second [1/s]"}


def plan_names(document: Document) -> list[str]:
    """Number and name of each plan; of equal names, what differs from the first so called."""
    plans, found = document["plans"], []
    called = [str(p["name"]) for p in plans]
    for i, name in enumerate(called):
        first = called.index(name)
        told = [f"{words.spaced(r['field'].rpartition('/')[2])} {r['values'][i]}"
                for r in document["differences"] if r["values"][i] != r["values"][first]][:2]
        apart = f" ({', '.join(told) or 'the same request'})" if first < i else ""
        found.append(f"{i + 1}: {clean(name)[:70]}{clean(apart)}"[:150])
    return found


def _write_side(page: Page, names: Sequence[str], plans: Sequence[Plan]) -> None:
    set_up(page, TITLE, SIDE, pages_high=1)
    width = 30.0 if len(plans) <= 3 else 24.0
    page.widths((30, *(width for _ in plans), *(15 for _ in plans[1:])))
    page.merge(0, 0, len(plans), TITLE, "title")
    page.sheet.set_row(0, 30)
    page.write(2, 0, "Figure", "short", "header")
    for column, name in enumerate(names, 1):
        page.write(2, column, name, "text", "header")
    for column in range(1, len(plans)):
        page.write(2, len(plans) + column, f"Plan {column + 1} against plan 1", "text", "header")
    page.height(2, max(2, *(lines(n, width, 1.08) for n in names)))
    for row, (label, value, style) in enumerate(FIGURES, 3):
        _figure(page, row, label, [value(p) for p in plans], style, width)
    page.sheet.freeze_panes(3, 1)


def _figure(page: Page, row: int, label: str, values: Sequence[Any], style: str, width: float
            ) -> None:
    page.write(row, 0, label, "cell", "label")
    for column, value in enumerate(values, 1):
        page.write(row, column, value, "cell", style, "left")
    if style == "text":
        page.height(row, max(lines(str(v or ""), width - 1) for v in values))
    if label not in _COMPARED:
        for column in range(1, len(values)):
            page.write(row, len(values) + column, None, "cell")
        return
    first = number(values[0])
    for column, value in enumerate(values[1:], 1):
        place, other = len(values) + column, number(value)
        if first and other is not None:
            cell = f"{chr(ord('B') + column)}{row + 1}"
            page.formula(row, place, f"={cell}/$B${row + 1}-1", other / first - 1, "cell",
                         "percent1")
        else:
            page.write(row, place, "n/a", "cell", "count")


# -- what differs -------------------------------------------------------------------------------


def _write_changes(page: Page, document: Document) -> None:
    set_up(page, TITLE, CHANGES)
    names = plan_names(document)
    page.widths((44, *(34 for _ in names)))
    page.write(0, 0, "Field of the request", "short", "header")
    for column, name in enumerate(names, 1):
        page.write(0, column, name, "text", "header")
    page.height(0, max(2, *(lines(n, 34, 1.08) for n in names)))
    for row, found in enumerate(document["differences"], 1):
        page.write(row, 0, found["field"].lstrip("/").replace("/", "."), "cell", "text")
        texts = [_shown(v) for v in found["values"]]
        for column, value in enumerate(found["values"], 1):
            style = "figure" if number(value) is not None else "text"
            page.write(row, column, texts[column - 1] if style == "text" else value,
                       "cell", style, "left")
        page.height(row, max(lines(t, 33) for t in texts))
    if not document["differences"]:
        page.write(1, 0, "The requests are the same.", "label")
    page.sheet.freeze_panes(1, 1)
    page.sheet.repeat_rows(0)


def _shown(value: Any) -> str:
    """A value of a request in one cell; a long list by its size."""
    if value is None:
        return "–"
    if isinstance(value, list) and value and all(isinstance(v, str | int | float) for v in value):
        return ", ".join(str(v) for v in value)
    if isinstance(value, list) and len(value) > 4:
        return f"a list of {len(value)}"
    return value if isinstance(value, str) else json.dumps(value)


# -- bridge -------------------------------------------------------------------------------------


class _Bridge:
    """The way from the first plan to another, GPUs and cost, with a chart each."""

    HEADER = ("Step", "GPUs before", "Change of GPUs", "GPUs after", "Cost per month before [USD]",
              "Change of cost [USD]", "Cost per month after [USD]")
    CHART = ("Hidden", "Level", "Rise", "Fall")
    FIRST = 4
    """Row of the first line of the table, from 0."""

    def __init__(self, page: Page, names: Sequence[str], bridge: Document) -> None:
        self.page, self.bridge = page, bridge
        self.names = (names[0], names[bridge["plan"]])
        self.priced = bridge["usd_per_month_change"] is not None
        self.sheet_name = f"Bridge to plan {bridge['plan'] + 1}"

    def write(self, book: Any) -> None:
        page = self.page
        set_up(page, TITLE, self.sheet_name, pages_high=1)
        page.sheet.set_portrait()
        page.widths((38, 11, 11, 11, 15, 15, 15, 3, 9, 9, 9, 9, 12, 12, 12, 12))
        title = f"From {self.names[0]} to {self.names[1]}"
        page.merge(0, 0, 6, title, "answer")
        page.height(0, 1.3 * lines(title, 112.0, 1.3))
        if self.bridge["reason"]:
            page.merge(2, 0, 6, self.bridge["reason"], "refused")
            page.height(2, lines(self.bridge["reason"], 100, 1.3) + 1)
            return
        page.merge(1, 0, 6, "Each step replaces one part of the request and plans again, always in "
                   f"this order: {ORDER}. A step's size depends on those before it.", "note")
        page.height(1, 3)
        last = self._table()
        self._check(last + 1)
        self._helpers(last)
        self._chart(book, last, "GPUs", 8, last + 4)
        if self.priced:
            self._chart(book, last, "Cost per month [USD]", 12, last + 22)
        page.sheet.print_area(0, 0, last + 40, 6)

    def _table(self) -> int:
        """The lines; the row of the last one, which is the other plan."""
        page, bridge = self.page, self.bridge
        for column, label in enumerate(self.HEADER):
            page.write(self.FIRST - 1, column, label, "text" if not column else "count", "header")
        page.height(self.FIRST - 1, 3)
        row = self.FIRST
        self._line(row, self.names[0], None,
                   (bridge["gpus_before"], bridge["usd_per_month_before"]))
        for step in bridge["steps"]:
            row += 1
            self._line(row, bridge_words(step["parts"]), step, ())
        row += 1
        self._end(row)
        return row

    def _line(self, row: int, label: str, step: Document | None, start: Sequence[Any]) -> None:
        page = self.page
        page.write(row, 0, label, "cell", "text", *(() if step else ("bold",)))
        page.height(row, lines(label, 37))
        for first, style, name in ((1, "count", "gpus"), (4, "count", "usd_per_month")):
            if name == "usd_per_month" and not self.priced:
                for column in range(first, first + 3):
                    page.write(row, column, "n/a" if step else None, "cell", "count")
            elif step is None:
                page.write(row, first, None, "cell")
                page.write(row, first + 1, None, "cell")
                page.write(row, first + 2, start[0 if first == 1 else 1], "cell", style, "bold")
            else:
                before, change, after = (chr(ord("A") + first + i) for i in range(3))
                page.formula(row, first, f"={after}{row}", step[f"{name}_before"], "cell", style)
                page.write(row, first + 1, step[f"{name}_change"], "cell", "signed")
                page.formula(row, first + 2, f"={before}{row + 1}+{change}{row + 1}",
                             step[f"{name}_after"], "cell", style)

    def _end(self, row: int) -> None:
        page, bridge = self.page, self.bridge
        page.write(row, 0, self.names[1], "cell", "text", "bold")
        page.height(row, lines(self.names[1], 36.0, 1.08))
        for first, style, name in ((1, "count", "gpus"), (4, "count", "usd_per_month")):
            page.write(row, first, None, "cell")
            if name == "usd_per_month" and not self.priced:
                page.write(row, first + 1, None, "cell")
                page.write(row, first + 2, bridge["usd_per_month_after"], "cell", style, "bold")
                continue
            change = chr(ord("A") + first + 1)
            total = bridge[f"{name}_change"]
            if bridge["steps"]:
                page.formula(row, first + 1, f"=SUM({change}{self.FIRST + 2}:{change}{row})", total,
                             "cell", "signed", "bold")
            else:
                page.write(row, first + 1, total, "cell", "signed", "bold")
            page.write(row, first + 2, bridge[f"{name}_after"], "cell", style, "bold")

    def _check(self, row: int) -> None:
        """Whether the steps sum to the difference of the two plans."""
        end, start = row, self.FIRST + 1
        parts = [f"ABS(D{end}-D{start}-C{end})<0.000001"]
        if self.priced:
            parts.append(f"ABS(G{end}-G{start}-F{end})<0.01")
        test = f"AND({','.join(parts)})"
        self.page.write(row, 0, "Check: the steps sum to the difference", "note")
        self.page.sheet.write_formula(row, 1, f'=IF({test},"OK","ERROR")',
                                      self.page.styles.get("note"), "OK")

    def _helpers(self, last: int) -> None:
        """What the charts are drawn from, beside the table."""
        page = self.page
        for start, name, column in ((8, "gpus", "D"), (12, "usd_per_month", "G")):
            if name == "usd_per_month" and not self.priced:
                continue
            for offset, label in enumerate(self.CHART):
                page.write(self.FIRST - 1, start + offset, f"{label} (chart)", "note")
            ends = (self.FIRST, last)
            for row in ends:
                value = self.bridge[f"{name}_{'before' if row == self.FIRST else 'after'}"]
                page.formula(row, start + 1, f"={column}{row + 1}", value, "note")
            for row, step in enumerate(self.bridge["steps"], self.FIRST + 1):
                self._bars(row, start, step, name)

    def _bars(self, row: int, start: int, step: Document, name: str) -> None:
        before, change, after = "BCD" if name == "gpus" else "EFG"
        line = row + 1
        moved = step[f"{name}_change"]
        values = ((0, f"=MIN({before}{line},{after}{line})",
                   min(step[f"{name}_before"], step[f"{name}_after"])),
                  (2, f"=MAX({change}{line},0)", max(moved, 0)),
                  (3, f"=MAX(-{change}{line},0)", max(-moved, 0)))
        for offset, formula, value in values:
            self.page.formula(row, start + offset, formula, value, "note")

    def _chart(self, book: Any, last: int, title: str, column: int, row: int) -> None:
        chart = book.add_chart({"type": "column", "subtype": "stacked"})
        looks: tuple[dict[str, Any], ...] = ({"fill": {"none": True}, "border": {"none": True}},
                 {"fill": {"color": NAVY}}, {"fill": {"color": "#C9A227"}},
                 {"fill": {"color": "#5B9F6A"}})
        for offset, (label, look) in enumerate(zip(self.CHART, looks, strict=True)):
            chart.add_series({
                "name": label, "gap": 40, **look,
                "categories": [self.sheet_name, self.FIRST, 0, last, 0],
                "values": [self.sheet_name, self.FIRST, column + offset, last, column + offset]})
        font: dict[str, Any] = {"name": FONT, "size": 9}
        chart.set_title({"name": title, "name_font": {**font, "size": 11}, "overlay": False})
        chart.set_legend({"position": "bottom", "delete_series": [0], "font": font})
        chart.set_x_axis({"num_font": font})
        chart.set_y_axis({"num_font": font, "num_format": "#,##0", "min": 0,
                          "major_gridlines": {"visible": True, "line": {"color": "#D9D9D9"}}})
        chart.set_size({"width": 840, "height": 330})
        self.page.sheet.insert_chart(row, 0, chart, {
            "description": f"{title}: from the first plan to the other, step by step",
            "object_position": 2})
