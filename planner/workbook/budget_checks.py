"""The Checks sheet: whether the sums agree, and what an edit made stale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.workbook.budget_fleets import CAPACITY, growing
from planner.workbook.budget_grid import ENGINE_FILL, Live, name_cell
from planner.workbook.budget_inputs import LENGTHS, WORKLOAD_FIRST, targets
from planner.workbook.budget_money import COST
from planner.workbook.layout import Page, lines, set_up
from planner.workbook.styles import BAD_FILL, BAD_TEXT

CHECKS = "Checks"
WIDTHS = (50, 12, 12, 92)
SIZED = "Sized for"
SIZED_WIDTHS = (36, 12, 12, 11, 11, 11, 11, 11)
SIZED_FIRST = 3
"""Row of the first workload on the sheet that keeps what was sized, from 0."""
TOLERANCE = "0.000001"
WORDS = ("CHECK", "STALE", "OLD")
"""What a failed check says: the workbook does not add up; months follow from sizes that no longer
belong to the inputs; months are right, but tables of the engine beside them are older."""
OLD = "OK, but engine results are stale"
"""The master check when only those tables are."""
COPIES = 7
"""Lengths and targets kept as the engine saw them: columns of the sheet Workloads."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that is 1 when it holds."""

    label: str
    formula: str
    value: int
    meaning: str
    word: str = "STALE"
    """What a failure means, see :data:`WORDS`."""


def write_checks(state: Live) -> None:
    """Fill the sheet and name the master check."""
    page = Page(state.book.get_worksheet_by_name(CHECKS), state.styles)
    set_up(page, state.model.name or "Budget", CHECKS)
    page.widths(WIDTHS)
    page.write(0, 0, "Checks", "heading")
    for column, label in enumerate(("Check", "1 = holds", "State", "What it means")):
        page.write(1, column, label, "text", "header")
    found = checks(state)
    row = 2
    for check in found:
        page.write(row, 0, check.label, "cell", "text")
        page.formula(row, 1, check.formula, check.value, "cell", "whole")
        _text_formula(state, row, 2, f'=IF(B{row + 1}=1,"OK","{check.word}")',
                      "OK" if check.value else check.word)
        page.write(row, 3, check.meaning, "cell", "text")
        page.height(row, max(lines(check.meaning, WIDTHS[3] - 1), lines(check.label, 45)))
        row += 1
    page.write(row, 0, "All checks", "cell", "label", "bold")
    page.formula(row, 1, f"=MIN(B3:B{row})", min(c.value for c in found), "cell", "whole")
    _text_formula(state, row, 2, f'=IF(COUNTIF(C3:C{row},"CHECK")>0,"CHECK",'
                  f'IF(COUNTIF(C3:C{row},"STALE")>0,"STALE",IF(COUNTIF(C3:C{row},"OLD")>0,'
                  f'"{OLD}","OK")))', state_of(found))
    page.write(row, 3, "CHECK: the workbook does not add up. STALE: replicas follow from sizes of "
               "other inputs. OLD: months, GPUs and money are right, but the engine's tables "
               "beside them are of other inputs. A new budget brings all up to date.", "cell",
               "text")
    page.height(row, 3)
    name_cell(state.book, "out_check", CHECKS, row, 2)
    for word, colors in (("CHECK", (BAD_FILL, BAD_TEXT)), ("STALE", (ENGINE_FILL, "#7F4A00")),
                         ("OLD", (ENGINE_FILL, "#7F4A00"))):
        page.sheet.conditional_format(2, 2, row, 2, {
            "type": "cell", "criteria": "==", "value": f'"{word}"',
            "format": page.mark({"bg_color": colors[0], "font_color": colors[1]})})
    page.sheet.freeze_panes(2, 1)
    page.sheet.print_area(0, 0, row, len(WIDTHS) - 1)


def state_of(found: Sequence[Check]) -> str:
    """The word of the master check."""
    failed = [c for c in found if not c.value]
    words = {c.word for c in failed}
    return next((w for w in ("CHECK", "STALE") if w in words), OLD if words else "OK")


def _text_formula(state: Live, row: int, column: int, formula: str, value: str) -> None:
    sheet = state.book.get_worksheet_by_name(CHECKS)
    sheet.write_formula(row, column, formula, state.styles.get("cell", "short", "bold"), value)


def checks(state: Live) -> list[Check]:
    """Every check, with its value in the workbook as delivered."""
    total = state.place
    last = state.last
    effective, gpus = total["total", "Effective cost"], total["total", "GPUs"]
    n = len(state.order)
    a, z = WORKLOAD_FIRST + 1, WORKLOAD_FIRST + n
    start = LENGTHS
    letters = [_letter(start + i) for i in range(COPIES)]
    kept = f"'{SIZED}'!$B${SIZED_FIRST + 1}:${_letter(COPIES)}${SIZED_FIRST + n}"
    engine = float(state.document["totals"]["effective_cost"])
    by_name = {s["name"]: s["totals"]["effective_cost"] for s in state.document["scenarios"]}
    unedited = "+".join(f'(in_scenario="{k}")*{v!r}' for k, v in by_name.items())
    return [
        Check("GPUs of fleets and of GPU lines agree",
              f"=IF(ABS({_fleet_sum(state)}-SUM({COST}!$D${gpus}:${last}${gpus}))"
              f"<{TOLERANCE},1,0)", 1,
              "Each GPU of a fleet is paid once. Text or errors in a row break it.", "CHECK"),
        Check("Parts of the cost add up",
              f"=IF(ABS({COST}!$C${effective}-{COST}!$C${effective - 1}-{COST}!$C${effective - 2}"
              f"-{COST}!$C${effective - 3})<0.01,1,0)", 1,
              "Effective cost is on-demand, committed and owned cost.", "CHECK"),
        Check("No error in any month",
              f"=IF(ISERROR(SUM({COST}!$D$4:${last}${effective + 5})),0,1)", 1,
              "An input that is text, or empty where a number is needed, shows here.", "CHECK"),
        Check("Lengths and targets are those that were sized",
              f"=IF(SUMPRODUCT(--(Workloads!{letters[0]}{a}:{letters[-1]}{z}<>{kept}))=0,1,0)",
              1, "Tokens per request, latency targets and their percentile: the workbook keeps "
              "the capacity of the sizes it was made with. After an edit make a new budget."),
        Check("Tokens grow only where growth was sized", _growth_formula(state, a, z), 1,
              "A workload without growth of its tokens was sized once; growth added here does "
              "not change its capacity."),
        Check("Tokens stay within the sized range", _range_formula(state), 1,
              "Beyond the longest lengths sized, weights are extended by a power law."),
        Check("Rates stay within the capacity tables", _capacity_formula(state),
              _within_tables(state),
              "Beyond the last row of a table, replicas go on with its slope."),
        Check("Scenarios and questions are of these inputs",
              f"=IF(ABS({COST}!$C${effective}-({unedited}))<=0.0005*ABS({unedited})+1,1,0)",
              int(abs(engine - by_name["base"]) < 1.0),
              "The sheet Scenarios shows results of the engine. 0: an input was edited, so they "
              "no longer belong to the months shown; also the chosen layouts and terms may no "
              "longer be the cheapest.", "OLD"),
        Check("Commitments do not cost more than they save",
              f"=IF({COST}!$C${effective}<={COST}!$C${effective - 4}+{COST}!$C${effective - 1}"
              "+0.01,1,0)", int(_pays(state)),
              "0: with the edited inputs the committed share is too high.", "OLD"),
        Check("Mixes are those that were sized", "=1" if not _mixed(state) else _mix_formula(state),
              1, "Where several workloads share a fleet, the factor of their mix is the engine's; "
              "growth edited for some of them moves the mix."),
    ]


def _fleet_sum(state: Live) -> str:
    """Sum of the GPU rows of the sheet Fleets."""
    rows = [row for place, row in state.place.items() if place[0] == "gpus"]
    key = f"Fleets!$C$4:$C${state.place['fleets', 'last']}"
    cells = f"Fleets!$D$4:${state.last}${state.place['fleets', 'last']}"
    return f'SUMPRODUCT(({key}<>"")*ISNUMBER({cells}),{cells})' if rows else "0"


def _letter(column: int) -> str:
    first, second = divmod(column, 26)
    return (chr(ord("A") + first - 1) if first else "") + chr(ord("A") + second)


def _growth_formula(state: Live, a: int, z: int) -> str:
    grow = {state.place["workload", i] for i in growing(state)}
    rows = [r for r in range(a, z + 1) if r not in grow]
    if not rows:
        return "=1"
    parts = []
    start = previous = rows[0]
    for r in [*rows[1:], rows[-1] + 2]:
        if r != previous + 1:
            parts.append(f"COUNTIF(Workloads!$J${start}:$J${previous},\"<>0\")")
            start = r
        previous = r
    served = [i for i in state.order if state.model.workloads[i].fleet is None
              and state.model.workloads[i].tokens_growth_per_month]
    return f"=IF({'+'.join(parts)}<={len(served)},1,0)"


def _range_formula(state: Live) -> str:
    parts = []
    for i in growing(state):
        row = state.place["weight", i, 0] - 1
        nodes = state.model.workloads[i].weights[0].factors
        parts.append(f"(MAX(Weights!$D${row}:${state.last}${row})>{max(nodes):.9g})"
                     f"+(MIN(Weights!$D${row}:${state.last}${row})<{min(nodes) * 0.999999:.9g})")
    return f"=IF({'+'.join(parts)}=0,1,0)" if parts else "=1"


def _tables(state: Live) -> list[tuple[int, int, float, Any]]:
    """Load row, last capacity row, its end and the load of every pool whose curve is bent."""
    found = []
    for n, fleet in enumerate(state.model.fleets):
        for p, pool in enumerate(fleet.pools):
            if len(pool.capacity.replicas) > 1:
                found.append((state.place["gpus", n, p] - 2, state.place["curve end", n, p],
                              pool.capacity.requests_per_s[-1], state.base.pools[n][p].load))
    return found


def _capacity_formula(state: Live) -> str:
    parts = [f"(MAX(Fleets!$D${load}:${state.last}${load})>{CAPACITY}!$E${end})"
             for load, end, _, _ in _tables(state)]
    return f"=IF({'+'.join(parts)}=0,1,0)" if parts else "=1"


def _within_tables(state: Live) -> int:
    return int(all(load.max() <= end for _, _, end, load in _tables(state)))


def _mixed(state: Live) -> bool:
    return any(pool.mix for fleet in state.model.fleets for pool in fleet.pools)


def _mix_formula(state: Live) -> str:
    """Rate and growth of members of shared fleets as they were sized."""
    shared = [i for i in state.order if state.model.workloads[i].fleet is not None and len(
        state.model.fleets[state.model.workloads[i].fleet or 0].members) > 1]
    rows = [state.place["workload", i] for i in shared]
    lines_ = state.model.workloads
    rate = sum(lines_[i].requests_per_s * (1.0 + lines_[i].growth_per_month)
               * (1.0 + lines_[i].tokens_growth_per_month) for i in shared)
    cells = (f"Workloads!$G${rows[0]}:$G${rows[-1]},1+Workloads!$I${rows[0]}:$I${rows[-1]},"
             f"1+Workloads!$J${rows[0]}:$J${rows[-1]}")
    inside = set(range(rows[0], rows[-1] + 1)) - set(rows)
    away = "".join(f"-Workloads!$G${r}*(1+Workloads!$I${r})*(1+Workloads!$J${r})"
                   for r in sorted(inside))
    return f"=IF(ABS(SUMPRODUCT({cells}){away}-{rate!r})<=0.000001*{rate!r},1,0)"


def _pays(state: Live) -> bool:
    totals = state.document["totals"]
    return bool(totals["effective_cost"] <= totals["contracted_cost"] + totals["owned_cost"]
                + 0.01)


def write_sized(state: Live) -> None:
    """Lengths and targets as the engine saw them, beside which an edit shows."""
    page = Page(state.book.get_worksheet_by_name(SIZED), state.styles)
    set_up(page, state.model.name or "Budget", SIZED)
    page.widths(SIZED_WIDTHS)
    page.write(0, 0, "Lengths and targets that the fleets were sized for", "heading")
    page.write(1, 0, "Results of the engine. The sheet Checks compares those on the sheet "
               "Workloads with them.", "label")
    labels = ("Workload", "Prompt tokens, mean", "Output tokens, mean", "TTFT [ms]",
              "TPOT [ms]", "Gap [ms]", "End to end [ms]", "Percentile")
    for column, label in enumerate(labels):
        page.write(SIZED_FIRST - 1, column, label, "text", "header")
    page.height(SIZED_FIRST - 1, 3)
    for at, i in enumerate(state.order, SIZED_FIRST):
        w = state.model.workloads[i]
        limits, percentile = targets(state, i)
        name = f"{i + 1}  {w.name}"
        page.write(at, 0, name, "cell", "text")
        for column, value in enumerate((w.prompt_tokens_mean, w.output_tokens_mean, *limits,
                                        *percentile), 1):
            page.write(at, column, value, "cell", "figure", "engine")
        page.height(at, lines(name, SIZED_WIDTHS[0] - 1))
    page.sheet.freeze_panes(SIZED_FIRST, 1)
    page.sheet.print_area(0, 0, SIZED_FIRST + len(state.order) - 1, len(SIZED_WIDTHS) - 1)
