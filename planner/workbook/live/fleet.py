"""From replicas to GPUs, nodes and money: the sheet Fleet & cost, a column an option."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.units import SECONDS_PER_HOUR, TOKENS_PER_MILLION
from planner.workbook.layout import Page, set_up
from planner.workbook.live.board import Board
from planner.workbook.live.expr import X, both, least, most, round_up, when, whole, x
from planner.workbook.live.inputs import InputCells
from planner.workbook.live.pools import OptionCells, PoolCells
from planner.workbook.plan import Plan

NAME = "Fleet & cost"
WIDTHS = (46, 18, 18, 14, 66)


@dataclass(slots=True, eq=False)
class FleetCells:
    """An option's fleet and cost as named cells; the money is 0 without a price."""

    rank: int
    option: OptionCells
    holds: X
    replicas: X
    gpus: X
    nodes: X
    hourly: X | None
    monthly: X | None
    per_million: X | None
    power: X | None
    parts: dict[str, X] = field(default_factory=dict)


class Sheet:
    """Writes one label, unit and note a row, and a formula for each option."""

    def __init__(self, board: Board, options: int) -> None:
        self.board, self.options = board, options
        self.rows: dict[str, int] = {}

    def put(self, place: int, label: str, e: X | float | None, unit: str = "", note: str = "",
            style: str = "general", name: str = "", kind: str = "") -> X:
        """A cell of one option on the row of its label."""
        page = self.board.page
        if label not in self.rows:
            row = self.rows[label] = self.board.row
            self.board.row += 1
            page.write(row, 0, label, "cell", "text")
            page.write(row, 3, unit, "cell", "text")
            page.write(row, 4, note, "cell", "text")
            for column in range(1, 1 + self.options):
                page.write(row, column, None, "cell")
        row = self.rows[label]
        extra = (kind,) if kind else ()
        if isinstance(e, X):
            return self.board.put(row, 1 + place, e, "cell", style, *extra, name=name)
        return self.board.put_value(row, 1 + place, "n/a" if e is None else e, "cell", style,
                                    *extra, name=name)


def write(board: Board, title: str, inputs: InputCells, options: dict[int, OptionCells],
          names: dict[int, str]) -> dict[int, FleetCells]:
    """Fill the sheet.

    Parameters
    ----------
    names : dict of int to str
        What each option is, by rank.
    """
    page = board.page
    set_up(page, title, NAME, pages_high=1)
    page.widths(WIDTHS)
    page.write(0, 0, "Fleet and cost", "text", "header")
    for place, rank in enumerate(options):
        page.write(0, 1 + place, names[rank], "count", "header")
    page.write(0, 3, "Unit", "text", "header")
    page.write(0, 4, "Note", "text", "header")
    page.height(0, 3.2)
    page.sheet.freeze_panes(1, 1)
    page.sheet.repeat_rows(0)
    board.row = 1
    sheet = Sheet(board, 2)
    made = {rank: _one(sheet, place, rank, inputs, option)
            for place, (rank, option) in enumerate(options.items())}
    page.sheet.print_area(0, 0, board.row - 1, len(WIDTHS) - 1)
    return made


def nothing(page: Page, plan: Plan) -> None:
    """The sheet where no option calculates: what the engine found, as values."""
    set_up(page, plan.name, NAME, pages_high=1)
    page.widths(WIDTHS)
    page.write(0, 0, "Fleet and cost", "text", "header")
    page.write(0, 1, "Engine result", "count", "header")
    page.sheet.freeze_panes(1, 1)
    best = plan.best
    rows = [] if best is None else [
        ("GPUs", best.get("gpus"), "count"), ("Nodes", best.get("nodes"), "count"),
        ("Cost per hour [USD/h]", best.get("usd_per_hour"), "two"),
        ("Cost per month [USD]", best.get("usd_per_month"), "count")]
    for row, (label, value, style) in enumerate(rows, start=1):
        page.write(row, 0, label, "cell", "text")
        page.write(row, 1, value, "cell", style, "engine")
    if not rows:
        page.write(1, 0, "No option holds the targets; see the sheet Infeasible.", "label")
    page.sheet.print_area(0, 0, max(len(rows), 1), len(WIDTHS) - 1)


def _one(s: Sheet, place: int, rank: int, inputs: InputCells, option: OptionCells) -> FleetCells:
    r = str(rank)
    parts: dict[str, X] = {}
    per_region, replicas, tests = x(0.0), x(0.0), [inputs.allowed > 0.0]
    kinds: dict[str, list[tuple[PoolCells, X]]] = {}
    for pool in option.pools:
        role, layout = pool.plan.role, pool.plan.deployment.layout
        label = f"{role.capitalize()} pool"
        loaded = s.put(place, f"{label}: replicas that carry the peak", pool.found.replicas, "",
                       "from the sheet of the option; one region", "count", f"{role}_peak_{r}",
                       "link")
        tests.append(loaded > 0.0)
        both_ = s.put(place, f"{label}: replicas with spares", when(
            loaded > 0.0, loaded + inputs.spares, 0.0), "", "", "count", f"{role}_replicas_{r}")
        each = s.put(place, f"{label}: GPUs of a replica", float(layout.gpus), "",
                     "tensor × pipeline × data parallel: an engine result", "count",
                     f"{role}_gpus_each_{r}", "engine")
        gpus = s.put(place, f"{label}: GPUs of a region", both_ * each, "", "", "count",
                     f"{role}_gpus_{r}")
        parts[f"{role}_replicas"], parts[f"{role}_gpus"] = both_, gpus
        parts[f"{role}_each"] = each
        parts[f"{role}_highest"] = s.put(
            place, f"{label}: highest rate of a replica", pool.found.highest, "1/s",
            "at which every target holds", "three", f"{role}_highest_{r}", "link")
        parts[f"{role}_used"] = s.put(
            place, f"{label}: load at the peak", when(loaded > 0.0, pool.plan.load.rate / most(
                loaded, 1.0) / most(parts[f"{role}_highest"], 1e-12), 0.0), "",
            "rate over the highest rate", "percent1", f"{role}_load_{r}")
        per_region, replicas = per_region + gpus, replicas + both_
        kinds.setdefault(pool.plan.deployment.gpu.slug, []).append((pool, both_))
    region = s.put(place, "GPUs of one region", per_region, "", "spares included", "count")
    tests.append(region <= whole(inputs.max_gpus / most(inputs.regions, 1.0)))
    holds = s.put(place, "Holds the targets", when(both(*tests), 1.0, 0.0), "1 = yes", "", "count",
                  f"holds_{r}")
    total_replicas = s.put(place, "Replicas, all regions", when(
        holds > 0.0, inputs.regions * replicas, 0.0), "", "", "count", f"replicas_{r}")
    gpus = s.put(place, "GPUs, all regions", when(holds > 0.0, inputs.regions * per_region, 0.0),
                 "", "", "count", f"gpus_{r}")
    nodes = x(0.0)
    for pools in kinds.values():
        nodes = nodes + _nodes(s, place, pools, r)
    nodes = s.put(place, "Nodes, all regions", when(holds > 0.0, inputs.regions * nodes, 0.0), "",
                  "whole nodes; no replica is split unless it is larger", "count", f"nodes_{r}")
    hourly = _hourly(s, place, rank, inputs, kinds, r)
    found = FleetCells(rank, option, holds, total_replicas, gpus, nodes, None, None, None,
                       _power(s, place, inputs, option, kinds, r), parts)
    _money(s, place, inputs, option, found, hourly, r)
    return found


def _nodes(s: Sheet, place: int, pools: list[tuple[PoolCells, X]], r: str) -> X:
    """Nodes of one GPU type in one region: the largest replicas first, the rest in the gaps."""
    ordered = sorted(pools, key=lambda p: -p[0].plan.deployment.layout.gpus)
    node = ordered[0][0].plan.hardware.gpu["node_gpus"]
    found, gap, last = x(0.0), x(0.0), x(0.0)
    full = x(0.0)
    for turn, (pool, count) in enumerate(ordered):
        size = float(pool.plan.deployment.layout.gpus)
        role = pool.plan.role
        rest = s.put(place, f"{role.capitalize()} pool: GPUs beyond whole nodes",
                     x(size) - node * whole(size / node), "", "of a replica", "count",
                     f"{role}_rest_{r}")
        fit = s.put(place, f"{role.capitalize()} pool: replicas (or rests) of a node", when(
            rest > 0.0, whole(node / most(rest, 1.0)), 1.0), "", "", "count", f"{role}_fit_{r}")
        here = count
        if turn:
            room = full * whole(gap / most(rest, 1.0)) + whole(last / most(rest, 1.0))
            here = most(count - room, 0.0)
        opened = s.put(place, f"{role.capitalize()} pool: nodes", count * whole(size / node)
                       + when(rest > 0.0, round_up(here / fit), 0.0), "",
                       "after the gaps that larger replicas leave" if turn else "", "count",
                       f"{role}_nodes_{r}")
        found = found + opened
        if not turn and len(ordered) > 1:
            full = s.put(place, f"{role.capitalize()} pool: nodes filled", when(
                rest > 0.0, whole(count / fit), 0.0), "", "", "count", f"{role}_full_{r}")
            gap = s.put(place, f"{role.capitalize()} pool: gap in each", when(
                rest > 0.0, node - fit * rest, 0.0), "", "GPUs", "count", f"{role}_gap_{r}")
            over = count - full * fit
            last = s.put(place, f"{role.capitalize()} pool: gap in the last", when(
                both(rest > 0.0, over > 0.0), node - over * rest, 0.0), "", "GPUs", "count",
                f"{role}_last_{r}")
    return found


def _hourly(s: Sheet, place: int, rank: int, inputs: InputCells,
            kinds: dict[str, list[tuple[PoolCells, X]]], r: str) -> X | None:
    """GPUs times their price, None where one has no price cell."""
    hourly: X | None = x(0.0)
    for slug, pools in kinds.items():
        price = inputs.prices.get((rank, slug))
        if price is None or hourly is None:
            return None
        count = x(0.0)
        for pool, replicas in pools:
            count = count + replicas * float(pool.plan.deployment.layout.gpus)
        used = X(f"N({price.text})", price.value if not isinstance(price.value, str) else 0.0)
        hourly = hourly + inputs.regions * count * used
    return hourly


def _power(s: Sheet, place: int, inputs: InputCells, option: OptionCells,
           kinds: dict[str, list[tuple[PoolCells, X]]], r: str) -> X | None:
    """Board power at its limit [kW], None where a GPU's is unknown."""
    watts = x(0.0)
    for pools in kinds.values():
        for pool, replicas in pools:
            tdp, cap = pool.plan.hardware.gpu["tdp_w"], pool.plan.deployment.power_cap_w
            if isinstance(tdp.value, str):
                return None
            used = tdp if cap is None else least(tdp, cap)
            watts = watts + replicas * float(pool.plan.deployment.layout.gpus) * used
    return s.put(place, "Power of the GPUs", inputs.regions * watts / 1000.0, "kW", "", "one",
                 f"power_{r}")


def _money(s: Sheet, place: int, inputs: InputCells, option: OptionCells, found: FleetCells,
           hourly: X | None, r: str) -> None:
    if hourly is None:
        s.put(place, "Cost per hour", None, "USD/h", "no price is known", "two")
        return
    p = found.parts
    mean = s.put(place, "Requests per second, mean over the day", inputs.rate * inputs.day_share,
                 "1/s", "what requests and tokens are counted at", "three", f"mean_rate_{r}")
    found.hourly = s.put(place, "Cost per hour", when(found.holds > 0.0, hourly, 0.0), "USD/h",
                         "GPUs × price", "two", f"hourly_{r}")
    found.monthly = s.put(place, "Cost per month", found.hourly * inputs.hours, "USD", "", "count",
                          f"monthly_{r}")
    p["yearly"] = s.put(place, "Cost per year", 12.0 * found.monthly, "USD", "", "count",
                        f"yearly_{r}")
    request = p["request"] = s.put(place, "Cost per request", found.hourly / (
        mean * SECONDS_PER_HOUR), "USD", "", "small", f"per_request_{r}")
    prompt, output = inputs.prompt.mean, inputs.output.mean
    found.per_million = s.put(place, "Cost per million tokens", request / (prompt + output)
                              * TOKENS_PER_MILLION, "USD", "prompt and output together", "three",
                              f"per_million_{r}")
    if len(option.pools) == 2:
        share = p["prefill_gpus"] / most(p["prefill_gpus"] + p["decode_gpus"], 1.0)
    else:
        work = option.pools[0].work
        share = work[0] / (work[0] + work[1])
    share = s.put(place, "Share of the prompts", share, "", "of the GPU time", "percent1",
                  f"prompt_share_{r}")
    p["input"] = s.put(place, "Cost per million input tokens", request * share / prompt
                       * TOKENS_PER_MILLION, "USD", "", "three", f"per_million_input_{r}")
    p["output"] = s.put(place, "Cost per million output tokens", request * (1.0 - share) / output
                        * TOKENS_PER_MILLION, "USD", "", "three", f"per_million_output_{r}")
