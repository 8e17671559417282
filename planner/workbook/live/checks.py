"""The Checks sheet: does the workbook agree with itself, with the engine, and with its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.workbook.layout import lines, set_up
from planner.workbook.live.board import Board
from planner.workbook.live.expr import X, both, is_number, total, when, words, x
from planner.workbook.live.fleet import FleetCells
from planner.workbook.live.inputs import InputCells, spread_fits
from planner.workbook.live.kept import STALE_INPUTS
from planner.workbook.plan import Plan
from planner.workload import BETWEEN_TOKENS, MAX_P95_OVER_MEAN, REFERENCE_TOKENS

NAME = "Checks"
WIDTHS = (54, 20, 20, 12, 68)
GOOD, STALE = "OK", "OK, but engine results are stale"
STALE_CAPACITY = "Stale capacity: plan again"
"""The recommended option's capacity is an engine result, of inputs that differ by now."""
FOLLOWED = frozenset({
    "in_requests_per_second", "in_mean_over_peak", "in_target_utilization", "in_spare_replicas",
    "in_regions", "in_max_gpus", "in_hours_per_month"})
"""Inputs that fleet and money follow even where the capacity of a replica is an engine result;
prices are others."""
OF_CAPACITY = "capacity"
SHORT = "OK, but short answers miss TPOT"
"""A pool for short answers is sized as if they had :data:`REFERENCE_TOKENS`; theirs may take more
(the ``warnings`` of an option)."""


@dataclass(slots=True, eq=False)
class Checked:
    """What the Summary shows: the verdict and the number of changed inputs."""

    verdict: X
    changed: X


def write(board: Board, plan: Plan, inputs: InputCells, fleets: dict[int, FleetCells]) -> Checked:
    """Fill the sheet."""
    page = board.page
    set_up(page, plan.name, NAME)
    page.widths(WIDTHS)
    page.write(0, 0, "Checks", "heading")
    page.sheet.freeze_panes(2, 0)
    page.sheet.repeat_rows(1)
    for place, text in enumerate(("Check", "Now", "Bound", "1 = holds", "What it means")):
        page.write(1, place, text, "text" if place in (0, 4) else "count", "header")
    board.row = 2
    first = board.row
    passed: list[float] = []
    for label, now, bound, test, note in _checks(plan, inputs, fleets):
        _line(board, label, now, bound, test, note)
        passed.append(float(test.value))
    last = board.row
    results = X(f"$D${first + 1}:$D${last}", passed)
    failed = board.put(last, 3, x(float(len(passed))) - total(_array(results)), "cell", "count",
                       "bold")
    page.write(last, 0, "Checks that fail", "cell", "text", "bold")
    page.sheet.conditional_format(first, 3, last - 1, 3, {
        "type": "cell", "criteria": "==", "value": 0, "format": page.mark(
            {"bg_color": "#FBE5E3", "font_color": "#9C0006"})})
    board.row = last + 2
    stays = {place for place, fleet in fleets.items() if fleet.option.kept}
    changed, stale = _inputs(board, inputs, bool(stays))
    board.row += 1
    page.write(board.row, 0, "Master check", "cell", "text", "bold")
    fails = X(f'{failed.text}&" of {len(passed)} checks fail"',
              f"{failed.value:g} of {len(passed)} checks fail")
    good = when(changed > 0.0, words(STALE), words(GOOD))
    if 1 in fleets and plan.target("tpot") is not None:
        good = when(both(_over(plan, fleets[1]) > 0.0, inputs.output.mean < REFERENCE_TOKENS,
                         inputs.several),
                    words(SHORT), good)
    if 1 in stays:
        good = when(stale > 0.0, words(STALE_CAPACITY), good)
    refused = X('"Not allowed: "&INDEX(inputs_each_label,MATCH(0,inputs_each_allowed,0))'
                f'&IF({inputs.faults.text}>1," and "&({inputs.faults.text}-1)&" more","")',
                "Not allowed")
    fails = when(inputs.allowed > 0.0, fails, refused)
    verdict = board.put(board.row, 1, when(failed > 0.0, fails, good), "cell", "label", "bold",
                        name="check_all")
    page.sheet.print_area(0, 0, board.row, len(WIDTHS) - 1)
    return Checked(verdict, changed)


def _array(e: X) -> X:
    return X(e.text, np.asarray(e.value))


def _line(board: Board, label: str, now: Any, bound: Any, test: X, note: str) -> None:
    page, row = board.page, board.row
    page.write(row, 0, label, "cell", "text")
    page.write(row, 1, now, "cell", "fraction")
    page.write(row, 2, bound, "cell", "fraction")
    board.put(row, 3, test, "cell", "rank")
    page.write(row, 4, note, "cell", "text")
    page.height(row, max(lines(note, WIDTHS[4]), lines(label, WIDTHS[0])))
    board.row += 1


def _checks(plan: Plan, inputs: InputCells, fleets: dict[int, FleetCells]) -> Any:
    """Label, value, bound, test and meaning of each check."""
    yield ("Inputs that are not allowed", inputs.faults, 0.0, when(
        inputs.allowed > 0.0, 1.0, 0.0), "those with a 0 on the sheet Inputs; all results are n/a "
           "until they are changed")
    for name, source in (("Prompt", inputs.prompt), ("Output", inputs.output)):
        ratio = source.p95 / source.mean
        yield (f"{name} tokens: 95th percentile over mean", ratio, MAX_P95_OVER_MEAN,
               when(spread_fits(source), 1.0, 0.0),
               "no log-normal has a 95th percentile below its mean or above 3.87 times it; "
               "the planner refuses it")
    used = inputs.utilization
    for rank, found in fleets.items():
        if rank > 1:
            continue
        yield ("Recommended: targets hold", found.holds, 1.0, when(found.holds > 0.0, 1.0, 0.0),
               "0: at this layout no number of replicas within the limits holds every target")
        yield ("Recommended: GPUs", found.gpus, inputs.max_gpus,
               when(found.gpus <= inputs.max_gpus, 1.0, 0.0), "within the most GPUs allowed")
        for pool in found.option.pools:
            load = found.parts[f"{pool.plan.role}_used"]
            yield (f"Recommended: load of the {pool.plan.role} pool", load, used,
                   when(load <= used * 1.005, 1.0, 0.0),
                   "peak rate over the highest rate that holds, at most the target utilisation")
        yield from _targets(plan, inputs, found)
        if found.hourly is not None and found.monthly is not None:
            request = found.parts["request"]
            per = (found.parts["input"] * inputs.prompt.mean
                   + found.parts["output"] * inputs.output.mean) / 1e6
            yield ("Recommended: input and output cost of a request [USD]", per, request, when(
                X(f"ABS({per.text}-{request.text})", abs(per.value - request.value))
                <= 1e-9 * (request + 1.0), 1.0, 0.0),
                "input and output tokens at their prices are the whole cost")
            yield ("Recommended: hour × hours of a month [USD]", found.hourly * inputs.hours,
                   found.monthly, when(X(
                       f"ABS({found.hourly.text}*{inputs.hours.text}-{found.monthly.text})", 0.0)
                       <= 0.01, 1.0, 0.0), "the month is the hour times the hours")


def _over(plan: Plan, found: FleetCells) -> X:
    """Whether the time per token at its percentile is above its target, where it has one."""
    target = plan.target("tpot")
    assert target is not None
    limit = X("use_tpot_ms", target.limit_ms)
    return when(is_number(limit), when(
        1000.0 * found.option.seen.tpot[1] > limit * 1.001, 1.0, 0.0), 0.0)


def _targets(plan: Plan, inputs: InputCells, found: FleetCells) -> Any:
    """Each target against what the sheet of the option finds at the peak."""
    seen = found.option.seen
    names = {"ttft": ("first token", seen.ttft[1]), "tpot": ("time per token", seen.tpot[1]),
             "itl": ("gap between tokens", seen.itl), "e2e": ("whole request", seen.e2e[1])}
    for target in plan.targets():
        label, value = names[target.metric]
        if value is None:
            continue
        limit = X(f"use_{target.metric}_ms", target.limit_ms)
        within, note = 1000.0 * value <= limit * 1.001, "within the target"
        if target.metric in BETWEEN_TOKENS:
            within = within + when(inputs.several, 0.0, 1.0)
            note += "; answers of one token have none"
        if target.metric == "tpot":
            within = within + (inputs.output.mean < REFERENCE_TOKENS)
            note += (f"; not asked of answers of fewer than {REFERENCE_TOKENS:g} tokens, which are "
                     "sized as if they had those")
        yield (f"Recommended: {label} at its percentile [ms]", 1000.0 * value, limit,
               when(is_number(limit), when(within > 0.0, 1.0, 0.0), 1.0), note)


def _inputs(board: Board, inputs: InputCells, stays: bool) -> tuple[X, X]:
    """One row an input: what it is and what it was; the number that changed, and of those that the
    capacity of a replica is of where that ``stays`` an engine result."""
    page = board.page
    page.write(board.row, 0, "Inputs since the plan was made", "heading")
    page.height(board.row, 1.5)
    board.row += 1
    note = ("Layout search, other options, advice, ranges and confidence are results of the "
            "engine; they are stale once an input differs from when it was written.")
    page.merge(board.row, 0, 4, note, "note")
    page.height(board.row, lines(note, sum(WIDTHS)))
    board.row += 1
    for place, text in enumerate(("Input", "Now", "When written", "1 = same")):
        page.write(board.row, place, text, "text" if not place else "count", "header")
    board.row += 1
    first = board.row
    if stays:
        page.write(board.row - 1, 4, "What else is of it", "text", "header")
    for label, cell, value in inputs.kept:
        row = board.row
        if stays and cell.text not in FOLLOWED and "_usd_" not in cell.text:
            page.write(row, 4, OF_CAPACITY, "cell", "text")
        page.write(row, 0, label, "cell", "text")
        page.write(row, 1, cell, "cell", "general", "link")
        page.write(row, 2, value, "cell", "general")
        board.put(row, 3, X(
            f"IF(ISERROR($B{row + 1}),0,IF($B{row + 1}=$C{row + 1},1,0))", 1.0), "cell", "rank")
        board.row += 1
    same = X(f"$D${first + 1}:$D${board.row}", np.ones(board.row - first))
    page.write(board.row, 0, "Inputs that changed", "cell", "text", "bold")
    changed = board.put(board.row, 3, x(float(board.row - first)) - total(same), "cell", "count",
                        "bold", name="inputs_changed")
    board.row += 1
    if not stays:
        return changed, x(0.0)
    page.write(board.row, 0, "of which the engine's capacity of a replica is", "cell", "text",
               "bold")
    area = f"$E${first + 1}:$E${board.row - 1}"
    stale = board.put(board.row, 3, X(
        f'SUMPRODUCT(({same.text}=0)*({area}="{OF_CAPACITY}"))', 0.0), "cell", "count", "bold",
        name=STALE_INPUTS)
    board.row += 1
    return changed, stale
