"""Sheets of money: Cost, Buy or rent, Orders."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xlsxwriter.utility import xl_col_to_name

from planner.budget import commit
from planner.budget.calendar import order_by
from planner.budget.model import GpuLine
from planner.budget.months import LineMonths
from planner.units import SECONDS_PER_HOUR
from planner.wording import gpus as gpus_text
from planner.workbook.budget_fleets import FLEETS
from planner.workbook.budget_grid import FIRST, Formula, Grid, Live, name_cell, serial
from planner.workbook.styles import BAD_FILL, BAD_TEXT

COST, BUY, ORDERS = "Cost", "Buy or rent", "Orders"
NEVER = "not within the budget"
"""In place of a month of break-even."""
Values = NDArray[np.float64]
AMOUNTS = ("List cost", "Contracted cost", "On-demand cost", "Committed cost", "Owned cost",
           "Effective cost", "Breakage cost")
COUNTS = ("GPUs", "Owned GPUs in use", "Committed GPUs", "Burst GPUs", "Unused committed GPUs")
TOTAL_NAMES = {"GPUs": "gpus", "Effective cost": "effective_cost", "List cost": "list_cost"}


class LineValues:
    """Values of one GPU line in floats, as a spreadsheet calculates them.

    Parameters
    ----------
    state : Live
    line : GpuLine
    months : LineMonths
    """

    def __init__(self, state: Live, line: GpuLine, months: LineMonths) -> None:
        m = state.model
        fx, hours = float(m.prices.units_per_usd), m.prices.hours_per_month
        self.gpus, self.owned = months.gpus.astype(float), months.owned.astype(float)
        self.rented = months.rented.astype(float)
        self.list_price, self.on_demand = months.list_price, months.on_demand_price
        self.committed = months.committed.astype(float)
        self.price = months.committed_price
        self.burst = np.maximum(0.0, self.rented - self.committed)
        self.unused = np.maximum(0.0, self.committed - self.rented)
        self.list_cost = self.rented * hours * self.list_price * fx
        self.contracted = self.rented * hours * self.on_demand * fx
        self.burst_cost = self.burst * hours * self.on_demand * fx
        self.committed_cost = self.committed * hours * self.price * fx
        self.breakage = self.unused * hours * self.price * fx * (1 - m.commitments.resale_share)
        watts, e = line.watts or 0.0, m.energy
        self.kwh_each = watts / 1000 * hours * e.pue * e.power_utilization
        self.kwh = self.gpus * self.kwh_each
        self.kg = self.kwh * e.kg_co2e_per_kwh
        yearly = 0.0 if line.server is None else float(
            line.server.hosting_usd_per_year + line.server.licence_usd_per_year)
        self.owned_cost = (line.existing_gpus / line.gpus_per_server * yearly / 12
                           + self.owned * self.kwh_each * float(e.usd_per_kwh)) * fx
        self.effective = self.burst_cost + self.committed_cost + self.owned_cost


def write_cost(state: Live) -> None:
    """What every GPU line costs, and the sums."""
    grid = Grid(state, COST, f"Cost [{state.model.prices.currency}]")
    values = [LineValues(state, line, months)
              for line, months in zip(state.model.lines, state.base.lines, strict=True)]
    top = grid.row
    grid.row += 2 + len(COUNTS) + len(AMOUNTS) + 4
    path = _path_row(state, grid)
    first = grid.row + 1
    for i, line in enumerate(state.model.lines):
        _line_rows(state, grid, i, line, values[i], path)
    last = max(grid.row, first)
    end, grid.row = grid.row, top
    _totals(state, grid, values, first, last)
    grid.row = end
    grid.close()


def _path_row(state: Live, grid: Grid) -> int:
    grid.section("Prices")

    def formula(c: str, before: str, first: str) -> str:
        step = f"(1+SUMIF(step_months,{c}$2,step_changes))"
        if not before:
            return f"=sc_price*{step}"
        return f"={before}{grid.row + 1}*(1+in_price_change_per_month)*{step}"

    return grid.line("Price factor", "factor", formula, state.path.tolist(), "four", "link")


def _line_rows(state: Live, grid: Grid, i: int, line: GpuLine, v: LineValues, path: int) -> None:
    """All rows of one GPU line."""
    grid.section(f"{line.name} ({line.provider})")
    at = state.place["price", i]
    p = "'GPU prices'!"
    last = state.place["fleets", "last"]
    gpus = grid.line("GPUs", "GPUs", lambda c, b, f: (
        f"=SUMIF({FLEETS}!$C$4:$C${last},{p}$A${at},{FLEETS}!{c}$4:{c}${last})"),
        v.gpus.tolist(), "count", "link", total="MAX")
    owned = grid.line("Owned GPUs in use", "GPUs", lambda c, b, f: f"=MIN({c}{gpus},{p}$E${at})",
                      v.owned.tolist(), "count", "link", total="MAX")
    rented = grid.line("Rented GPUs", "GPUs", lambda c, b, f: f"={c}{gpus}-{c}{owned}",
                       v.rented.tolist(), "count", total="MAX")
    state.place["rented", i] = rented
    listed = grid.line("List price", "USD/GPU-h", lambda c, b, f: f"={p}$B${at}*{c}${path}",
                       v.list_price.tolist(), "four", "link")
    paid = grid.line("On-demand price", "USD/GPU-h",
                     lambda c, b, f: f"={c}{listed}*(1-in_negotiated_discount)",
                     v.on_demand.tolist(), "four")
    base, price = _committed_rows(state, grid, i, line, v, (rented, paid, path, at))
    burst = grid.line("Burst GPUs", "GPUs", lambda c, b, f: f"=MAX(0,{c}{rented}-{c}{base})",
                      v.burst.tolist(), "count", total="MAX")
    unused = grid.line("Unused committed GPUs", "GPUs",
                       lambda c, b, f: f"=MAX(0,{c}{base}-{c}{rented})", v.unused.tolist(),
                       "count", total="MAX")
    _amount_rows(state, grid, i, v,
                 {"gpus": gpus, "owned": owned, "rented": rented, "listed": listed, "paid": paid,
                  "base": base, "price": price, "burst": burst, "unused": unused, "at": at})


def _committed_rows(state: Live, grid: Grid, i: int, line: GpuLine, v: LineValues,
                    rows: tuple[int, int, int, int]) -> tuple[int, int]:
    """The committed base of each contract: the largest demand that pays for itself."""
    rented, paid, path, at = rows
    p = "'GPU prices'!"
    if line.term is None:
        base = grid.values("Committed GPUs", "GPUs", [0] * grid.months, "count", "engine")
        price = grid.values("Committed price", "USD/GPU-h", [0.0] * grid.months, "four",
                            "engine")
        return base, price
    term = line.term.term_months
    spans = {}
    for block in commit.blocks(grid.months, term):
        a, z = (xl_col_to_name(FIRST + x) for x in (block.start, block.stop - 1))
        for m in range(block.start, block.stop):
            spans[grid.letters[m]] = (a, z)
    price = grid.line("Committed price", "USD/GPU-h",
                      lambda c, b, f: f"={p}$C${at}*{spans[c][0]}${path}", v.price.tolist(),
                      "four", "link")

    def worth(c: str, b: str, f: str) -> str:
        a, z = spans[c]
        saved = f"SUMIF(${a}{rented}:${z}{rented},\">=\"&{c}{rented},${a}{paid}:${z}{paid})"
        return (f"=IF({saved}>COUNT(${a}{paid}:${z}{paid})*{c}{price}*1.000000001,"
                f"{c}{rented},0)")

    pays = grid.line("Demand that pays as a base", "GPUs", worth, worth_values(v, term), "count")
    base = grid.line(
        "Committed GPUs", "GPUs",
        lambda c, b, f: (f"=INT(MAX(${spans[c][0]}{pays}:${spans[c][1]}{pays})"
                         "*in_committed_share+0.000000001)"),
        v.committed.tolist(), "count", "bold", total="MAX")
    state.place["committed", i] = base
    return base, price


def worth_values(v: LineValues, term: int) -> list[float]:
    """Each month's demand where it pays as the base of its contract, else 0."""
    found = np.zeros(len(v.rented))
    for block in commit.blocks(len(v.rented), term):
        demand, paid = v.rented[block], v.on_demand[block]
        cost = len(demand) * v.price[block][0] * (1.0 + commit.MARGIN)
        found[block] = [q if paid[demand >= q].sum() > cost else 0.0 for q in demand]
    return found.tolist()


def _amount_rows(state: Live, grid: Grid, i: int, v: LineValues, r: dict[str, int]) -> None:
    cur = state.model.prices.currency
    p, at = "'GPU prices'!", r["at"]
    hours = "in_hours_per_month"
    each = f"{p}$F${at}/1000*{hours}*in_pue*in_power_utilization"
    yearly = f"{p}$E${at}/{p}$G${at}*({p}$I${at}+{p}$J${at})/12"

    def times(count: str, price: str) -> Any:
        return lambda c, b, f: f"={c}{r[count]}*{hours}*{c}{r[price]}*in_units_per_usd"

    grid.line("List cost", cur, times("rented", "listed"), v.list_cost.tolist(), "count",
              total="SUM")
    grid.line("Contracted cost", cur, times("rented", "paid"), v.contracted.tolist(), "count",
              total="SUM")
    demand = grid.line("On-demand cost", cur, times("burst", "paid"), v.burst_cost.tolist(),
                       "count", total="SUM")
    grid.line("Committed cost", cur, times("base", "price"), v.committed_cost.tolist(), "count",
              total="SUM")
    owned = grid.line("Owned cost", cur, lambda c, b, f: (
        f"=({yearly}+{c}{r['owned']}*{each}*in_usd_per_kwh)*in_units_per_usd"),
        v.owned_cost.tolist(), "count", "link", total="SUM")
    grid.line("Effective cost", cur, lambda c, b, f: f"=SUM({c}{demand}:{c}{owned})",
              v.effective.tolist(), "count", "total", total="SUM")
    grid.line("Breakage cost", cur, lambda c, b, f: (
        f"={c}{r['unused']}*{hours}*{c}{r['price']}*in_units_per_usd*(1-in_resale_share)"),
        v.breakage.tolist(), "count", total="SUM")
    energy = grid.line("Energy", "kWh", lambda c, b, f: f"={c}{r['gpus']}*{each}",
                       v.kwh.tolist(), "count", "link", total="SUM")
    grid.line("Carbon", "kg CO2e", lambda c, b, f: f"={c}{energy}*in_kg_co2e_per_kwh",
              v.kg.tolist(), "count", total="SUM")
    state.place["rent", i] = demand


def sums(values: Sequence[LineValues], months: int) -> dict[str, Values]:
    """Sums over the lines by the label of their rows."""
    names = {"GPUs": "gpus", "Owned GPUs in use": "owned", "Committed GPUs": "committed",
             "Burst GPUs": "burst", "Unused committed GPUs": "unused", "List cost": "list_cost",
             "Contracted cost": "contracted", "On-demand cost": "burst_cost",
             "Committed cost": "committed_cost", "Owned cost": "owned_cost",
             "Effective cost": "effective", "Breakage cost": "breakage", "Energy": "kwh",
             "Carbon": "kg"}
    nothing = np.zeros(months)
    return {label: sum((getattr(v, n) for v in values), nothing) for label, n in names.items()}


def _totals(state: Live, grid: Grid, values: Sequence[LineValues], first: int, last: int) -> None:
    """Sums over the lines, by the labels of their rows."""
    found = sums(values, grid.months)
    cur = state.model.prices.currency
    grid.section("All GPU lines")
    for label in (*COUNTS, *AMOUNTS, "Energy", "Carbon"):
        unit = {"Energy": "kWh", "Carbon": "kg CO2e"}.get(label, cur if "cost" in label
                                                         else "GPUs")
        at = grid.line(label, unit, _by_label(first, last, grid.row + 1), found[label].tolist(),
                       "count", *(["bold"] if label in TOTAL_NAMES else []),
                       total="MAX" if label in COUNTS else "SUM")
        state.place["total", label] = at
        if label in TOTAL_NAMES:
            name_cell(state.book, f"out_{TOTAL_NAMES[label]}", COST, at - 1, FIRST, at - 1,
                      FIRST + grid.months - 1)
    _unit_cost(state, grid, found["Effective cost"])


def _by_label(first: int, last: int, at: int) -> Formula:
    return lambda c, b, f: f"=SUMIF($A${first}:$A${last},$A{at},{c}${first}:{c}${last})"


def request_values(state: Live) -> Values:
    """Requests of each month, as a spreadsheet calculates them."""
    hours = state.model.prices.hours_per_month
    over = np.array([w.mean_requests_per_s / w.requests_per_s for w in state.model.workloads])
    total: Values = (state.base.rates * over[:, None]).sum(axis=0) * SECONDS_PER_HOUR * hours
    return total


def _unit_cost(state: Live, grid: Grid, effective: Values) -> None:
    a, z = state.place["demand", "first"], state.place["demand", "last"]
    wa = state.place["workload", state.order[0]]
    wz = state.place["workload", state.order[-1]]
    asked = request_values(state)
    requests = grid.line(
        "Requests", "requests",
        lambda c, b, f: (f"=SUMPRODUCT(Demand!{c}{a}:{c}{z},Workloads!$H${wa}:$H${wz})"
                         f"*{SECONDS_PER_HOUR:g}*in_hours_per_month"),
        asked.tolist(), "count", "link", total="SUM")
    state.place["total", "Requests"] = requests
    cost = state.place["total", "Effective cost"]
    per = np.divide(effective, asked, out=np.zeros_like(asked), where=asked > 0) * 1000
    grid.line("Cost per 1,000 requests", state.model.prices.currency,
              lambda c, b, f: f"=IF({c}{requests}>0,{c}{cost}/{c}{requests}*1000,0)",
              per.tolist(), "four")


# -- buy or rent --------------------------------------------------------------------------------


def write_buying(state: Live) -> None:
    """Buying the servers of each line against renting its GPUs."""
    grid = Grid(state, BUY, f"Buy or rent [{state.model.prices.currency}]", holds=NEVER)
    bought = [i for i, line in enumerate(state.model.lines) if line.server is not None]
    if not bought:
        grid.note("No server price was given (owned.servers), so there is nothing to compare.")
    for i in bought:
        _buy_rows(state, grid, i, state.model.lines[i])
    grid.close()


def _buy_rows(state: Live, grid: Grid, i: int, line: GpuLine) -> None:
    m, cur = state.model, state.model.prices.currency
    server = line.server
    assert server is not None
    v = LineValues(state, line, state.base.lines[i])
    fx, life = float(m.prices.units_per_usd), m.owned.depreciation_months
    price = float(server.usd_per_server)
    p, at, rented = "'GPU prices'!", state.place["price", i], state.place["rented", i]
    grid.section(f"{line.name}: servers of {gpus_text(line.gpus_per_server)}")
    needed = np.ceil(v.rented / line.gpus_per_server)
    standing = np.maximum.accumulate(needed)
    servers = grid.line("Servers standing", "servers", lambda c, b, f: (
        f"=MAX({b}{grid.row + 1},ROUNDUP({COST}!{c}{rented}/{p}$G${at},0))" if b else
        f"=ROUNDUP({COST}!{c}{rented}/{p}$G${at},0)"), standing.tolist(), "count", "link",
        total="MAX")
    new = np.diff(standing, prepend=0.0)
    buys = grid.line("Servers bought", "servers", lambda c, b, f: (
        f"={c}{servers}-{b}{servers}" if b else f"={c}{servers}"), new.tolist(), "count",
        total="SUM")
    state.place["bought", i] = buys
    spent = new * price * fx
    capex = grid.line("Capital", cur,
                      lambda c, b, f: f"={c}{buys}*{p}$H${at}*in_units_per_usd",
                      spent.tolist(), "count", "link", total="SUM")
    yearly = float(server.hosting_usd_per_year) + float(server.licence_usd_per_year)
    cost = (standing * yearly / 12 + v.rented * v.kwh_each * float(m.energy.usd_per_kwh)) * fx
    each = f"{p}$F${at}/1000*in_hours_per_month*in_pue*in_power_utilization"
    running = grid.line("Hosting, licences, energy", cur, lambda c, b, f: (
        f"=({c}{servers}*({p}$I${at}+{p}$J${at})/12+{COST}!{c}{rented}*{each}*in_usd_per_kwh)"
        "*in_units_per_usd"), cost.tolist(), "count", "link", total="SUM")
    old = np.concatenate([np.zeros(min(life, grid.months)), standing])[:grid.months]
    lost = (standing - old) * price * (1 - m.owned.residual_share) / life * fx
    last = state.last
    depreciation = grid.line("Depreciation", cur, lambda c, b, f: (
        f"=({c}{servers}-IF({c}$2>in_depreciation_months,"
        f"INDEX(${f}{servers}:${last}{servers},{c}$2-in_depreciation_months),0))"
        f"*{p}$H${at}*(1-in_residual_share)/in_depreciation_months*in_units_per_usd"),
        lost.tolist(), "count", "link", total="SUM")
    rent = v.burst_cost + v.committed_cost
    grid.line("Cost of owning", cur, lambda c, b, f: f"={c}{running}+{c}{depreciation}",
              (cost + lost).tolist(), "count", "bold", total="SUM")
    rows = (capex, running, depreciation, state.place["rent", i])
    _break_even_rows(state, grid, i, rows, (spent, cost, lost, rent))


def _break_even_rows(state: Live, grid: Grid, i: int, rows: tuple[int, int, int, int],
                     values: tuple[Values, Values, Values, Values]) -> None:
    capex, running, depreciation, paid = rows
    spent, cost, lost, rent = values
    cur = state.model.prices.currency
    renting = grid.line("Cost of renting", cur, lambda c, b, f: (
        f"={COST}!{c}{paid}+{COST}!{c}{paid + 1}"), rent.tolist(), "count", "link", total="SUM")

    def running_sum(*parts: str) -> Any:
        return lambda c, b, f: "=" + (f"{b}{grid.row + 1}+" if b else "") + "+".join(
            part.replace("#", c) for part in parts).replace("+-", "-")

    buy_sum, rent_sum = np.cumsum(spent + cost), np.cumsum(rent)
    book = np.cumsum(spent) - np.cumsum(lost)
    cash = grid.line("Paid so far, buying", cur, running_sum(f"#{capex}", f"#{running}"),
                     buy_sum.tolist(), "count")
    rented = grid.line("Paid so far, renting", cur, running_sum(f"#{renting}"),
                       rent_sum.tolist(), "count")
    value = grid.line("Book value of the servers", cur,
                      running_sum(f"#{capex}", f"-#{depreciation}"), book.tolist(), "count")
    plain, resale = ((buy_sum > 0) & (rent_sum >= buy_sum),
                     (buy_sum > 0) & (rent_sum >= buy_sum - book))
    flag = grid.line("Renting has cost as much", "1 = yes", lambda c, b, f: (
        f"=IF(AND({c}{cash}>0,{c}{rented}>={c}{cash}),1,0)"), plain.astype(int).tolist(), "whole")
    flag2 = grid.line("The same with resale at book value", "1 = yes", lambda c, b, f: (
        f"=IF(AND({c}{cash}>0,{c}{rented}>={c}{cash}-{c}{value}),1,0)"),
        resale.astype(int).tolist(), "whole")
    last = state.last
    first = grid.letters[0]
    for label, row, found, name in (
            ("Break-even month", flag, plain, "break_even_month"),
            ("Break-even month with resale", flag2, resale, "break_even_month_with_resale")):
        grid.page.write(grid.row, 0, label, "label", "bold")
        shown = int(found.argmax()) + 1 if found.any() else NEVER
        grid.sheet.write_formula(
            grid.row, 2,
            f"=IFERROR(MATCH(1,{first}{row}:{last}{row},0),\"{NEVER}\")",
            state.styles.get("bold", "left"), shown)
        name_cell(state.book, f"out_{name}_{i + 1}", BUY, grid.row, 2)
        grid.row += 1


# -- orders -------------------------------------------------------------------------------------


def write_orders(state: Live) -> None:
    """What to order by when."""
    grid = Grid(state, ORDERS, "Orders: what must be ordered for each month, and by when")
    lead = state.model.lead_time_days
    by = [serial(order_by(day, lead)) for day in state.dates()]
    row = grid.line("Order by", "date", lambda c, b, f: f"={c}$3-in_lead_time_days", by, "date",
                    "bold")
    made = date.fromisoformat(str(state.document["created_at"])[:10])
    grid.sheet.conditional_format(f"{grid.letters[0]}{row}:{state.last}{row}", {
        "type": "cell", "criteria": "<", "value": serial(made), "format": grid.page.mark(
            {"bg_color": BAD_FILL, "font_color": BAD_TEXT})})
    grid.row += 1
    grid.page.write(grid.row, 0, f"Red: before {made.isoformat()}, the day of this budget.",
                    "label")
    for i, line in enumerate(state.model.lines):
        grid.section(line.name)
        months, rented = state.base.lines[i], state.place["rented", i]
        top = np.maximum.accumulate(months.rented)
        new = np.diff(top, prepend=0)
        grid.line("Capacity to add", "GPUs", _rise(rented), new.tolist(), "count", "link",
                  total="SUM")
        if line.term is not None:
            _commitment_row(state, grid, i, line)
        if line.server is not None:
            bought = state.place["bought", i]
            needed = np.maximum.accumulate(np.ceil(months.rented / line.gpus_per_server))
            grid.line("Servers, if bought", "servers", _from_buying(bought),
                      np.diff(needed, prepend=0.0).tolist(), "count", "link", total="SUM")
    grid.close()


def _rise(row: int) -> Formula:
    return lambda c, b, f: (f"=MAX(0,{COST}!{c}{row}-MAX({COST}!${f}{row}:{b}{row}))" if b
                            else f"={COST}!{c}{row}")


def _from_buying(row: int) -> Formula:
    return lambda c, b, f: f"='{BUY}'!{c}{row}"


def _commitment_row(state: Live, grid: Grid, i: int, line: GpuLine) -> None:
    assert line.term is not None
    starts = {b.start for b in commit.blocks(grid.months, line.term.term_months)}
    committed = state.base.lines[i].committed
    values = [int(committed[m]) if m in starts else 0 for m in range(grid.months)]
    row = state.place["committed", i]
    at = {grid.letters[m]: m in starts for m in range(grid.months)}
    grid.line(f"Contracts of {line.term.term_months} months", "GPUs",
              lambda c, b, f: f"={COST}!{c}{row}" if at[c] else "=0", values, "count", "link",
              total="SUM")
