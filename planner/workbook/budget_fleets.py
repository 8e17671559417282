"""Sheets from demand to GPUs: Demand, Weights, Layouts, Capacity, Fleets."""

from __future__ import annotations

from itertools import pairwise

from planner.budget.model import FleetLine, PoolLine
from planner.budget.months import weight_of
from planner.workbook.budget_grid import Formula, Grid, Live
from planner.workbook.budget_inputs import (
    COUNT,
    MONTHS,
    SEASON,
    WEIGHT,
    common,
)
from planner.workbook.layout import Page, lines, print_bands, set_up

DEMAND, WEIGHTS, LAYOUTS, CAPACITY, FLEETS = "Demand", "Weights", "Layouts", "Capacity", "Fleets"
SEASONS = (chr(ord("A") + SEASON), chr(ord("A") + SEASON + len(MONTHS) - 1))
"""Columns of the twelve seasons on the sheet Workloads."""
WEIGHT_LETTERS = tuple(chr(ord("A") + WEIGHT + p) for p in range(2))
SLACK = "0.000000001"
LAYOUT_COLUMNS = (
    ("Fleet", 26.0), ("Pool", 9.0), ("Model", 22.0), ("Set-up", 14.0), ("Weights", 9.0),
    ("KV cache", 9.0), ("GPU", 20.0), ("Layout", 12.0), ("GPUs per replica", 10.0),
    ("Spare replicas", 10.0), ("Regions", 9.0), ("Limited by", 12.0), ("Sized in month", 9.0),
    ("Target utilisation", 11.0), ("Workloads", 50.0))
LAYOUT_FIRST = 3
CAPACITY_COLUMNS = (
    ("Fleet", 26.0), ("Pool", 9.0), ("From [1/s]", 13.0), ("Replicas there", 10.0),
    ("Up to [1/s]", 13.0), ("Replicas then", 10.0), ("Replicas per 1/s", 14.0))


def write_demand(state: Live) -> None:
    """The peak rate of every workload in every month."""
    grid = Grid(state, DEMAND, "Requests per second at the peak [1/s]", "Highest")
    low, high = SEASONS
    for i in state.order:
        w = state.model.workloads[i]
        at = state.place["workload", i]
        state.place["demand", i] = grid.row + 1
        if w.fleet is None:
            grid.values(f"{i + 1}  {w.name}", "not served", [0.0] * grid.months, "fraction",
                        "engine")
            continue

        def formula(c: str, before: str, first: str, at: int = at) -> str:
            return (f"=IF(AND({c}$2>=Workloads!$E{at},{c}$2<=Workloads!$F{at}),"
                    f"Workloads!$G{at}*sc_demand*(1+Workloads!$I{at}+sc_growth_added)"
                    f"^({c}$2-Workloads!$E{at})"
                    f"*INDEX(Workloads!${low}{at}:${high}{at},MONTH({c}$3))"
                    f"*MAX(0,1+SUMIFS(launch_uplift,launch_no,Workloads!$A{at},"
                    f"launch_first,\"<=\"&{c}$2,launch_last,\">=\"&{c}$2)),0)")

        grid.line(f"{i + 1}  {w.name}", "1/s", formula, state.base.rates[i].tolist(), "three",
                  "link", total="MAX")
    first = state.place["demand", state.order[0]]
    state.place["demand", "first"], state.place["demand", "last"] = first, grid.row
    grid.line("All workloads", "1/s", lambda c, b, f: f"=SUM({c}{first}:{c}{grid.row})",
              state.base.rates.sum(axis=0).tolist(), "three", "total", total="MAX")
    grid.close()


def growing(state: Live) -> list[int]:
    """Workloads whose lengths grow and that a fleet serves, in the order of the sheets."""
    lines_ = state.model.workloads
    return [i for i in state.order if lines_[i].tokens_growth_per_month
            and lines_[i].fleet is not None]


def write_weights(state: Live) -> None:
    """Growth of lengths, and what a longer request weighs in its fleet."""
    grid = Grid(state, WEIGHTS, "Reference requests that one request stands for as its tokens "
                "grow", "")
    if not growing(state):
        grid.note("No workload's tokens grow: the weights on the sheet Workloads hold for all "
                  "months.")
    for i in growing(state):
        w, at = state.model.workloads[i], state.place["workload", i]
        grid.section(f"{i + 1}  {w.name}")
        factors = state.base.factors[i]
        row = grid.line("Growth of tokens", "factor", _compound(at), factors.tolist(), "four",
                        "link")
        for p, weight in enumerate(w.weights):
            first = state.place["nodes", i, p]
            last = first + len(weight.factors) - 1
            nodes = f"Capacity!$C${first}:$C${last}"

            def formula(c: str, b: str, f: str, n: str = nodes, a: int = first, z: int = last,
                        row: int = row) -> str:
                match = f"IFERROR(MATCH({c}{row},{n},1),1)"
                return (f"=INDEX(Capacity!$D${a}:$D${z},{match})*({c}{row}/INDEX({n},{match}))"
                        f"^INDEX(Capacity!$E${a}:$E${z},{match})")

            state.place["weight", i, p] = grid.line(
                f"Weight in pool {p + 1}", "requests", formula,
                weight_of(weight, factors).tolist(), "four", "link")
    grid.close()


def _compound(at: int) -> Formula:
    return lambda c, b, f: f"=(1+Workloads!$J{at})^MAX(0,{c}$2-Workloads!$E{at})"


def write_layouts(state: Live) -> None:
    """The layout of every pool, as the engine chose it; spares and regions can be edited."""
    page = Page(state.book.get_worksheet_by_name(LAYOUTS), state.styles)
    set_up(page, state.model.name or "Budget", LAYOUTS)
    page.widths([w for _, w in LAYOUT_COLUMNS])
    page.write(0, 0, "Layouts", "heading")
    page.write(1, 2, "Sized for the busiest month of each fleet. Amber: results of the engine; the "
               "search over layouts is not made again here.", "label")
    for column, (label, _) in enumerate(LAYOUT_COLUMNS):
        page.write(2, column, label, "text", "header")
    page.height(2, 2)
    m, row = state.model, LAYOUT_FIRST
    usual = (common([f.spare_replicas for f in m.fleets], 0),
             common([f.regions for f in m.fleets], 1))
    for n, fleet in enumerate(m.fleets):
        for p, pool in enumerate(fleet.pools):
            _layout_line(state, page, row, fleet, pool, usual)
            state.place["layout", n, p] = row + 1
            row += 1
    if not m.fleets:
        page.write(row, 0, "no workload can be served", "label")
        row += 1
    page.sheet.data_validation(LAYOUT_FIRST, 9, row - 1, 10, dict(COUNT))
    page.sheet.freeze_panes(3, 2)
    page.sheet.print_area(0, 0, row - 1, len(LAYOUT_COLUMNS) - 1)
    print_bands(page, [w for _, w in LAYOUT_COLUMNS], 2)


def _layout_line(state: Live, page: Page, row: int, fleet: FleetLine, pool: PoolLine,
                 usual: tuple[int, int]) -> None:
    members = ", ".join(state.model.workloads[i].name for i in fleet.members)
    engine = (fleet.name, pool.role, fleet.model, fleet.setup, fleet.weights, fleet.kv, pool.gpu,
              pool.layout)
    for column, value in enumerate(engine):
        page.write(row, column, value, "cell", "text", "engine")
    page.write(row, 8, pool.gpus_per_replica, "cell", "whole", "engine")
    for column, count, common_count, name in (
            (9, fleet.spare_replicas, usual[0], "in_spare_replicas"),
            (10, fleet.regions, usual[1], "in_regions")):
        if count == common_count:
            page.formula(row, column, f"={name}", count, "cell", "whole", "link")
        else:
            page.write(row, column, count, "cell", "whole", "input")
    page.write(row, 11, fleet.limited_by or "n/a", "cell", "text", "engine")
    page.write(row, 12, fleet.sized_month, "cell", "whole", "engine")
    page.write(row, 13, fleet.target_utilization, "cell", "percent", "engine")
    page.write(row, 14, members, "cell", "text")
    page.height(row, max(lines(members, 49.0), lines(fleet.name, 25.0), lines(fleet.model, 21.0),
                         lines(pool.gpu, 19.0)))


def write_capacity(state: Live) -> None:
    """Rates against replicas of every pool, weights of growing lengths, factors of mixes."""
    page = Page(state.book.get_worksheet_by_name(CAPACITY), state.styles)
    set_up(page, state.model.name or "Budget", CAPACITY)
    page.widths([w for _, w in CAPACITY_COLUMNS])
    page.write(0, 0, "Capacity at the fixed layouts: results of the engine", "heading")
    page.write(1, 0, "Replicas rise in a straight line inside a row and are rounded up; beyond "
               "the last row they go on with its slope.", "label")
    row = _curves(state, page, 3)
    row = _nodes(state, page, row + 1)
    page.sheet.print_area(0, 0, row, len(CAPACITY_COLUMNS) - 1)
    page.sheet.freeze_panes(3, 0)


def _curves(state: Live, page: Page, row: int) -> int:
    for column, (label, _) in enumerate(CAPACITY_COLUMNS):
        page.write(2, column, label, "text", "header")
    page.height(2, 2)
    for n, fleet in enumerate(state.model.fleets):
        for p, pool in enumerate(fleet.pools):
            points = pool.capacity.points
            state.place["curve", n, p] = row + 1
            for (at, base), (after, top) in pairwise(points):
                for column, value, style in (
                        (0, fleet.name, "label"), (1, pool.role, "label"), (2, at, "four"),
                        (3, base, "whole"), (4, after, "four"), (5, top, "whole")):
                    page.write(row, column, value, "cell", style, "engine")
                r = row + 1
                page.formula(row, 6, f"=(F{r}-D{r})/(E{r}-C{r})", (top - base) / (after - at),
                             "cell", "small")
                row += 1
            state.place["curve end", n, p] = row
    return row


def _nodes(state: Live, page: Page, row: int) -> int:
    if not growing(state):
        return row
    labels = ("Workload", "Pool", "Growth of tokens", "Weight", "Power")
    for column, label in enumerate(labels):
        page.write(row, column, label, "text", "header")
    page.height(row, 2)
    row += 1
    for i in growing(state):
        w = state.model.workloads[i]
        for p, weight in enumerate(w.weights):
            state.place["nodes", i, p] = row + 1
            count = len(weight.factors)
            for j, (factor, value) in enumerate(zip(weight.factors, weight.values, strict=True)):
                page.write(row, 0, f"{i + 1}  {w.name}", "cell", "label", "engine")
                page.write(row, 1, p + 1, "cell", "whole", "engine")
                page.write(row, 2, factor, "cell", "four", "engine")
                page.write(row, 3, value, "cell", "four", "engine")
                r, power = row + 1, weight.exponents[j]
                if count == 1:
                    page.write(row, 4, power, "cell", "four", "engine")
                elif j == count - 1:
                    page.formula(row, 4, f"=E{r - 1}", power, "cell", "four")
                else:
                    page.formula(row, 4, f"=LN(D{r + 1}/D{r})/LN(C{r + 1}/C{r})", power, "cell",
                                 "four")
                row += 1
    return row


def write_fleets(state: Live) -> None:
    """Load, replicas and GPUs of every pool in every month."""
    grid = Grid(state, FLEETS, "From load to GPUs", "GPU line")
    for n, fleet in enumerate(state.model.fleets):
        for p, pool in enumerate(fleet.pools):
            grid.section(f"{fleet.name}: {pool.role}, {pool.layout} on {pool.gpu}")
            mix = _mix_rows(state, grid, pool)
            _pool_rows(state, grid, n, p, mix)
    if not state.model.fleets:
        grid.note("no workload can be served")
    state.place["fleets", "last"] = grid.row
    grid.close()


def _mix_rows(state: Live, grid: Grid, pool: PoolLine) -> int | None:
    """Factors of the mix by scenario, and the one in use; None without any."""
    if not pool.mix:
        return None
    rows = [grid.values(f"Mix factor, {s.name}", "factor", list(values), "four", "engine")
            for s, values in zip(state.model.scenarios, pool.mix, strict=True)]
    return grid.line("Mix factor in use", "factor",
                     lambda c, b, f: f"=INDEX({c}{rows[0]}:{c}{rows[-1]},sc_place)",
                     list(pool.mix[state.model.base]), "four")


def load_formula(state: Live, n: int, p: int, c: str) -> str:
    """Sum over members of rate times weight: those of fixed weight, then those that grow."""
    members = [i for i in state.order if state.model.workloads[i].fleet == n]
    grow = set(growing(state))
    fixed = [i for i in members if i not in grow]
    parts = []
    if fixed:
        a, z = state.place["demand", fixed[0]], state.place["demand", fixed[-1]]
        wa, wz = state.place["workload", fixed[0]], state.place["workload", fixed[-1]]
        letter = WEIGHT_LETTERS[p]
        parts.append(f"SUMPRODUCT(Demand!{c}{a}:{c}{z},Workloads!${letter}${wa}:${letter}${wz})")
    parts += [f"Demand!{c}{state.place['demand', i]}*Weights!{c}{state.place['weight', i, p]}"
              for i in members if i in grow]
    return "+".join(parts)


def _pool_rows(state: Live, grid: Grid, n: int, p: int, mix: int | None) -> None:
    fleet, counted = state.model.fleets[n], state.base.pools[n][p]
    pool, at = fleet.pools[p], state.place["layout", n, p]
    spread = f"(1+in_headroom)/MAX(Layouts!$K{at}-1,1)"
    load = grid.line(
        "Load of a region", "1/s",
        lambda c, b, f: f"=({load_formula(state, n, p, c)})*{spread}"
        + (f"*{c}{mix}" if mix else ""), counted.load.tolist(), "three", "link")
    first, last = state.place["curve", n, p], state.place["curve end", n, p]

    def replicas(c: str, b: str, f: str) -> str:
        x = f"{c}{load}"
        if first == last:
            return f"=IF({x}<=0,0,ROUNDUP({x}*Capacity!$G${first}-{SLACK},0))"
        row = f"MATCH({x},Capacity!$C${first}:$C${last},1)"
        base, at, slope = (f"INDEX(Capacity!${k}${first}:${k}${last},{row})" for k in "DCG")
        return f"=IF({x}<=0,0,ROUNDUP({base}+({x}-{at})*{slope}-{SLACK},0))"

    needed = grid.line("Replicas for the load", "replicas", replicas, counted.replicas.tolist(),
                       "count", "link")
    state.place["gpus", n, p] = grid.line(
        "GPUs with spares, all regions", "GPUs",
        lambda c, b, f: (f"=IF({c}{needed}>0,{c}{needed}+Layouts!$J{at},0)"
                         f"*Layouts!$I{at}*Layouts!$K{at}"),
        counted.gpus.tolist(), "count", "bold", key=state.model.lines[pool.line].name)
