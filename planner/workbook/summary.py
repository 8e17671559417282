"""The Summary sheet: the answer, its figures, the alternatives and the levers, on one page."""

from __future__ import annotations

import re
from typing import Any

from planner.units import HOURS_PER_MONTH
from planner.workbook import advice, words
from planner.workbook.charts import cost_chart, sheet_range
from planner.workbook.layout import (
    BOLD,
    LINE_POINTS,
    PIXELS_PER_CHARACTER,
    Column,
    Page,
    clean,
    key,
    lines,
    number,
    or_na,
    set_up,
    text_lines,
    write_table,
)
from planner.workbook.live.checks import Checked
from planner.workbook.live.expr import X
from planner.workbook.options import at_target, level_label, live
from planner.workbook.plan import Plan, Row
from planner.workbook.styles import BAD_FILL, BAD_TEXT

NAME = "Summary"
MOST_OPTIONS = 8
MOST_LEVERS, MOST_IDLE = 8, 2
"""Most levers on the page, and most of them that leave the number of GPUs as it is."""
FIRST_SAID = ("no_price", "beyond_context")
"""Advice that is no lever and stands before them."""
SHORTER = ((re.compile(r"(\d) GPUs instead of \d+ \(([^,()]*), ([\d.,]+ USD/h)\)"),
            r"\1 GPUs (\2), \3"),
           (re.compile(r"(\d) GPUs instead of \d+ \(([^,()]*)\)"), r"\1 GPUs (\2)"),
           (re.compile(r"prefill ([\d.]+) times as fast, decode ([\d.]+) times"),
            r"prefill \1 ×, decode \2 ×"),
           (re.compile(r" at ([\d.]+) times the price"), r", price \1 ×"),
           (re.compile(r"\b(NVIDIA|AMD) "), ""))
"""Forms of advice, and the same in fewer words."""
MOST_LINES = 1.3
"""Height of a lever's row where there is room to spare [lines]."""
WIDTHS = (6, 17, 26, 32, 8, 8, 13, 11, 11, 12, 24)
LAST = len(WIDTHS) - 1
LEFT_LAST = 4
"""Last column of the left half: levers left, chart right."""
CHECK = 9
"""Column of the master check."""
LITERAL = 240
"""Characters of one text constant of a formula (255 at most)."""
RESULTS = ("out_gpus", "out_replicas", "out_nodes", "out_ttft_ms", "out_tpot_ms",
           "out_usd_per_hour", "out_usd_per_month", "out_usd_per_million_tokens")
TILES = ((0, 1), (2, 2), (3, 3), (4, 6), (7, 8), (9, 10))
CHART_POINTS = 190.0
"""Least height of the chart."""

Tile = tuple[Any, Any, str, str]
"""Label, value, style, cell name (or empty)."""


def write(page: Page, plan: Plan, book: Any, checked: Checked) -> None:
    """Fill the sheet and name its result cells."""
    set_up(page, plan.name, NAME, pages_high=1)
    page.widths(WIDTHS)
    row = _head(page, plan, checked)
    book.define_name("out_check", sheet_range(NAME, 1, CHECK))
    if plan.best is None:
        for name in RESULTS:
            book.define_name(name, sheet_range(NAME, 1, LAST + 1))
        page.write(1, LAST + 1, "n/a", "note")
    if plan.best is None:
        row = _refused(page, plan, row)
    else:
        row = _tiles(page, plan, plan.best, book, row)
        row, table = _options(page, plan, row)
        row = _why(page, plan, row)
        row = _levers_and_chart(page, plan, book, row, table)
        row = _notes(page, plan, plan.best, row)
    page.sheet.print_area(0, 0, row - 1, LAST)
    page.sheet.freeze_panes(2, 0)


def _width(first: int, last: int) -> float:
    return sum(WIDTHS[first:last + 1])


def _paragraph(page: Page, row: int, first: int, last: int, text: str, style: str,
               scale: float = 1.0) -> int:
    """One merged cell of running text, high enough; the row after it."""
    page.merge(row, first, last, text, style)
    page.height(row, scale * lines(text, _width(first, last), scale))
    return row + 1


def _head(page: Page, plan: Plan, checked: Checked) -> int:
    """Title, date line and answer."""
    row = _paragraph(page, 0, 0, LAST, plan.name, "title", 1.9)
    made = clean(plan.document.get("created_at") or "")[:10]
    parts = [plan.model, f"planned {made}" if made else "",
             f"catalog as of {clean(plan.document.get('catalog_as_of'))}"
             if plan.document.get("catalog_as_of") else ""]
    page.merge(row, 0, CHECK - 2, "  ·  ".join(p for p in parts if p), "note")
    page.write(row, CHECK - 1, "Master check", "note")
    page.merge(row, CHECK, LAST, X("check_all", checked.verdict.value), "note", "bold")
    page.sheet.conditional_format(row, CHECK, row, LAST, {
        "type": "formula", "criteria": f'=LEFT(${"ABCDEFGHIJKL"[CHECK]}${row + 1},2)<>"OK"',
        "format": page.mark({"bg_color": BAD_FILL, "font_color": BAD_TEXT})})
    style = "answer" if plan.best else "refused"
    text = words.answer(plan)
    page.merge(row + 1, 0, LAST, _answer(plan, text), style)
    page.height(row + 1, 1.25 * lines(text, _width(0, LAST) - 2.0, 1.3) + 0.8)
    page.height(row + 2, 0.3)
    return row + 3


def _answer(plan: Plan, text: str) -> Any:
    """The engine's sentence, and a shorter one of the cells once an input has changed."""
    best = plan.best
    if best is None or plan.cell(best, "gpus") is None:
        return text
    priced = plan.cell(best, "usd_per_hour") is not None
    money = ('&", at "&TEXT(out_usd_per_hour,"#,##0.00")&" USD/hour ("&TEXT(out_usd_per_month,'
             '"#,##0")&" USD/month)"') if priced else ""
    live = ('"With the changed inputs: "&IF(ISNUMBER(out_gpus),TEXT(out_gpus,"#,##0")&'
            'IF(out_gpus=1," GPU in "," GPUs in ")&TEXT(out_replicas,"#,##0")&'
            'IF(out_replicas=1," replica on "," replicas on ")&TEXT(out_nodes,"#,##0")&'
            'IF(out_nodes=1," node"," nodes")'
            f'{money}&".","no number of replicas of this layout holds the targets.")')
    said = " ".join(text.split())
    pieces = [said[i:i + LITERAL].replace('"', '""') for i in range(0, len(said), LITERAL)]
    quoted = "&".join(f'"{p}"' for p in pieces)
    answer = f"IF(inputs_changed=0,{quoted},{live})"
    return X(f'IF(inputs_allowed=0,"No result. "&check_all&".",{answer})', said)


# -- key figures ------------------------------------------------------------------------------


def _tiles(page: Page, plan: Plan, best: Row, book: Any, row: int) -> int:
    """Two rows of key figures."""
    for tiles in (_fleet_tiles(plan, best), _service_tiles(plan, best)):
        page.height(row, 1.1)
        page.height(row + 1, 1.6)
        for (first, last), (label, value, style, name) in zip(TILES, tiles, strict=True):
            page.merge(row, first, last, label, "tile_label")
            page.merge(row + 1, first, last, or_na(value), style, "tile", "left")
            if name:
                book.define_name(name, sheet_range(NAME, row + 1, first))
        row += 2
    _mark_misses(page, row - 1)
    page.height(row, 0.3)
    return row + 1


def _mark_misses(page: Page, row: int) -> None:
    """Red tiles of latencies over their targets, and of negative headroom."""
    bad = page.mark({"bg_color": BAD_FILL, "font_color": BAD_TEXT})
    for place, metric in ((0, "ttft"), (1, "tpot")):
        page.sheet.conditional_format(row, TILES[place][0], row, TILES[place][1], {
            "type": "formula", "format": bad, "criteria": f"=AND(ISNUMBER(out_{metric}_ms),"
            f"ISNUMBER(in_{metric}_ms),N(out_{metric}_ms)>N(in_{metric}_ms)*1.001)"})
    page.sheet.conditional_format(row, TILES[3][0], row, TILES[3][1], {
        "type": "cell", "criteria": "<", "value": -0.001, "format": bad})


def _fleet_tiles(plan: Plan, best: Row) -> list[Tile]:
    def figure(name: str, of: Any = None) -> Any:
        return live(plan, name, of)(best)

    return [("GPUs", figure("gpus"), "count", "out_gpus"),
            ("Replicas, spares included", figure("replicas", words.replicas), "count",
             "out_replicas"),
            ("Nodes", figure("nodes"), "count", "out_nodes"),
            ("Cost per hour [USD/h]", figure("usd_per_hour"), "two", "out_usd_per_hour"),
            ("Cost per month [USD]", figure("usd_per_month"), "count", "out_usd_per_month"),
            ("Cost per million tokens [USD]", figure("usd_per_million_tokens"), "three",
             "out_usd_per_million_tokens")]


def _service_tiles(plan: Plan, best: Row) -> list[Tile]:
    found = best.get("confidence") or {}
    low, high = number(found.get("gpus_low")), number(found.get("gpus_high"))
    band = words.span(low, high)

    def figure(name: str, of: Any) -> Any:
        return live(plan, name, of)(best)

    return [(level_label(plan, "ttft"), figure("ttft", lambda o: plan.latency_ms(o, "ttft")),
             "count", "out_ttft_ms"),
            (level_label(plan, "tpot"), figure("tpot", lambda o: plan.latency_ms(o, "tpot")),
             "one", "out_tpot_ms"),
            ("Power of the GPUs [kW]", figure("power_kw", key("power_kw")), "one", ""),
            ("Tightest headroom", figure("tightest", tightest), "percent", ""),
            (f"GPUs, range ({words.spaced(found.get('level')) or 'n/a'})", band, "text", ""),
            ("Limited by", words.limit(best.get("limited_by")) or None, "text", "")]


def tightest(option: Row) -> float | None:
    """Smallest share of a target that is left, over all targets."""
    shares = [number(v) for v in (option.get("headroom") or {}).values()]
    return min((s for s in shares if s is not None), default=None)


# -- options ----------------------------------------------------------------------------------


def option_columns(plan: Plan) -> list[Column]:
    """Columns of the options side by side."""
    return [Column("Rank", key("rank"), WIDTHS[0], "rank"),
            Column("Set-up", lambda o: words.setup(o.get("setup")), WIDTHS[1], "text"),
            Column("GPU", lambda o: words.gpus(plan, o), WIDTHS[2], "text"),
            Column("Layout", words.layout, WIDTHS[3], "text"),
            Column("GPUs", live(plan, "gpus"), WIDTHS[4]),
            Column("Nodes", live(plan, "nodes"), WIDTHS[5]),
            Column("Cost per hour [USD/h]", live(plan, "usd_per_hour"), WIDTHS[6], "two"),
            at_target(plan, "ttft", WIDTHS[7], "count"), at_target(plan, "tpot", WIDTHS[8], "one"),
            Column("Headroom", live(plan, "tightest", tightest), WIDTHS[9], "percent"),
            Column("Limited by", lambda o: words.limit(o.get("limited_by")), WIDTHS[10], "text")]


def _options(page: Page, plan: Plan, row: int) -> tuple[int, tuple[int, int]]:
    """The best options side by side; the next row, and the rows of the table."""
    shown, columns = plan.options[:MOST_OPTIONS], option_columns(plan)
    page.merge(row, 0, LAST, "Options side by side", "heading")
    end = write_table(page, row + 1, columns, shown[:1], "best")
    for place, option in enumerate(shown[1:]):
        for i, column in enumerate(columns):
            value = column.value(option)
            page.write(end + place, i, value, "cell", column.style,
                       *(() if isinstance(value, X) else ("engine",)))
    first, after = row + 2, row + 2 + len(shown)
    for place, option in enumerate(shown):
        page.height(first + place, text_lines(columns, [c.value(option) for c in columns],
                                              1.0 if place else BOLD))
    more = len(plan.options) - len(shown)
    if more > 0:
        page.merge(after, 0, LAST, f"{more} more on the sheet Options.", "note")
        return after + 1, (first, after - 1)
    return after, (first, after - 1)


def _why(page: Page, plan: Plan, row: int) -> int:
    text = words.named(plan, plan.document.get("reason") or "")
    page.height(row, 0.3)
    return _paragraph(page, row + 1, 0, LAST, f"Why the first: {text}", "body") if text else row + 1


# -- levers and chart -------------------------------------------------------------------------


def _levers_and_chart(page: Page, plan: Plan, book: Any, row: int, table: tuple[int, int]) -> int:
    """What would change the answer on the left, the chart on the right."""
    top = row
    page.merge(row, 0, LEFT_LAST, "What would change the answer", "heading")
    page.height(row, 1.4)
    said = _levers(plan)
    width = _width(0, LEFT_LAST)
    each = max(max(lines(text, width) for text in said),
               min(CHART_POINTS / LINE_POINTS / len(said), MOST_LINES))
    for place, text in enumerate(said, start=row + 1):
        page.merge(place, 0, LEFT_LAST, text, "body")
        page.height(place, each)
    height = LINE_POINTS * (1.4 + each * len(said)) + 3.0 * (1 + len(said))
    row += 1 + len(said)
    if height < CHART_POINTS:
        page.sheet.set_row(row, CHART_POINTS - height)
        height, row = CHART_POINTS, row + 1
    _chart(page, plan, book, top, height, table)
    return row


def _levers(plan: Plan) -> list[str]:
    """What the page says of the levers: all that change something, two that do not."""
    idle = [a for a in plan.advice if advice.changes_nothing(a)][MOST_IDLE:]
    kept = [a for a in plan.advice if a not in idle]
    first = [a for a in kept if advice.states_limit(a) or a.get("code") in FIRST_SAID]
    kept = [*first, *(a for a in kept if a not in first)]
    said = [f"•  {_short(plan, a)}" for a in kept[:MOST_LEVERS]]
    if len(said) < len(plan.advice):
        said.append(f"{len(plan.advice) - len(said)} more on the sheet Advice.")
    return said or [advice.NOTHING]


def _short(plan: Plan, row: Row) -> str:
    """A piece of advice on one line, where it has one of the forms that the planner writes."""
    said = words.named(plan, row.get("message") or "").partition(" A faster GPU helps")[0]
    for form, short in SHORTER:
        said = form.sub(short, said)
    return said


def _chart(page: Page, plan: Plan, book: Any, top: int, height: float, table: tuple[int, int]
           ) -> None:
    chart = cost_chart(book, plan, NAME, table)
    columns = WIDTHS[LEFT_LAST + 1:]
    width = sum(w * PIXELS_PER_CHARACTER + 5 for w in columns) - 12
    chart.set_size({"width": width, "height": round(height / 0.75) - 6})
    page.sheet.insert_chart(top, LEFT_LAST + 1, chart, {
        "x_offset": 10, "y_offset": 4, "object_position": 2,
        "description": "Column chart of the options by rank; the figures are in the table above"})


def _notes(page: Page, plan: Plan, best: Row, row: int) -> int:
    """Price, confidence and date lines at the foot."""
    prices = "; ".join(words.price(plan, p) for p in plan.prices(best)) or (
        "no price is known for these GPUs")
    page.height(row, 0.3)
    texts = [f"Price: {prices}.{_price_rule(plan, best)} A month is {HOURS_PER_MONTH:g} hours."
             f"{_whole_instances(best)}", words.confidence(best)]
    row += 1
    for text in texts:
        row = _paragraph(page, row, 0, LAST, text, "note")
    return row


def _price_rule(plan: Plan, best: Row) -> str:
    """Which of the market's prices is meant, where there is a market."""
    market = any(words.market(p) for p in plan.prices(best))
    return f" Of a market it is {words.PRICE_RULE}." if market else ""


def _whole_instances(best: Row) -> str:
    """The cost when only whole instances can be rented, where it is more."""
    whole, hourly = (number(best.get(f"usd_per_hour{end}")) for end in ("_whole_instances", ""))
    if whole is None or hourly is None or whole - hourly < 0.005:
        return ""
    return f" If only whole instances can be rented: {words.money(whole)} USD/hour."


# -- plans without an answer ------------------------------------------------------------------


def _refused(page: Page, plan: Plan, row: int) -> int:
    """What was tried and why it cannot work, counted by reason."""
    page.merge(row, 0, LAST, "What was tried", "heading")
    row += 1
    _refused_line(page, row, ("Count", "Reason", "Closest combination and its shortfall"),
                  "header")
    for found in _by_reason(plan):
        row += 1
        _refused_line(page, row, found, "cell")
        page.height(row, max(lines(found[1], _width(1, 2)), lines(found[2], _width(3, LAST))))
    if not plan.infeasible:
        row += 1
        page.merge(row, 0, LAST, "Nothing was tried.", "body")
    row = _rescues(page, plan, row + 2)
    page.merge(row, 0, LAST, "Every combination is on the sheet Infeasible. To find an answer, "
               "relax the target named above, allow other GPUs or precisions, or raise the limits "
               "of the request.", "body")
    return row + 1


def _rescues(page: Page, plan: Plan, row: int) -> int:
    """What would make a plan possible, as far as the planner tried; the next row."""
    if not plan.advice:
        return row
    page.merge(row, 0, LAST, "What was tried to make it possible", "heading")
    for text in _levers(plan):
        row = _paragraph(page, row + 1, 0, LAST, text, "body") - 1
    page.height(row + 1, 0.3)
    return row + 2


def _refused_line(page: Page, row: int, values: tuple[Any, str, str], style: str) -> None:
    page.merge(row, 0, 0, values[0], style, "rank")
    page.merge(row, 1, 2, values[1], style, "text")
    page.merge(row, 3, LAST, values[2], style, "text")


def _by_reason(plan: Plan) -> list[tuple[int, str, str]]:
    """Number of combinations, reason and first example, the most frequent reason first."""
    groups: dict[str, list[Row]] = {}
    for miss in plan.infeasible:
        groups.setdefault(str(miss.get("reason")), []).append(miss)
    ordered = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    return [(len(rows), words.reason(name), _example(plan, rows[0])) for name, rows in ordered]


def _example(plan: Plan, miss: Row) -> str:
    place = f"{words.setup(miss.get('setup'))} on {plan.gpu_name(miss.get('gpu'))}"
    return f"{place}, {words.degrees(miss)}: {words.named(plan, miss.get('detail') or '')}"
