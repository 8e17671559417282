"""The live part of a plan's workbook: from the stored plan to sheets whose cells calculate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from planner.engine import EngineProfile
from planner.hardware import Gpu
from planner.llm import Llm, from_record
from planner.memory import memory_budget
from planner.requests import Layout
from planner.roofline import Deployment
from planner.setups.disaggregated import ADMISSION_SHARE
from planner.workbook import words
from planner.workbook.layout import number, set_up
from planner.workbook.live import fleet, inputs
from planner.workbook.live.board import Board
from planner.workbook.live.expr import X, most, when, whole, x
from planner.workbook.live.kept import grown, kept_option
from planner.workbook.live.option import OptionSheet
from planner.workbook.live.pools import Demand, OptionCells, PoolPlan
from planner.workbook.live.targets import Load
from planner.workbook.plan import Plan, Row

MOST_LIVE = 2
"""Options that get a sheet: the recommended one and the runner-up."""
SHEET = "Operating points {place}"
LIVE_SETUPS = ("colocated", "chunked", "disaggregated")
OPTION_WIDTHS = (40, 14, 13, 13, 12, 12, 12, 12)
LAST_COLUMN = 1000
"""Of those that a search may take."""


@dataclass(slots=True, eq=False)
class Live:
    """The live cells of a plan.

    Attributes
    ----------
    inputs : InputCells
    options, fleets : dict
        By place: 1 the recommended option, 2 the runner-up.
    """

    inputs: inputs.InputCells
    options: dict[int, OptionCells] = field(default_factory=dict)
    fleets: dict[int, fleet.FleetCells] = field(default_factory=dict)

    @property
    def best(self) -> fleet.FleetCells | None:
        """The recommended option, None where it does not calculate."""
        return self.fleets.get(1)


@dataclass(frozen=True, slots=True)
class Source:
    """What the stored plan says of an option that gets a sheet.

    ``whole`` tells whether formulas cover all of it; else only its fleet and money calculate, from
    the capacity that the engine found.
    """

    place: int
    option: Row
    deployments: list[tuple[str, Deployment]]
    whole: bool


def sources(plan: Plan) -> list[Source]:
    """The recommended option and the runner-up, as far as they have a layout."""
    best = plan.best
    if best is None:
        return []
    others = [o for o in plan.options if o is not best and o.get("rank") != best.get("rank")]
    found = []
    for place, option in enumerate([best, *others][:MOST_LIVE], start=1):
        deployments = _deployments(plan, option)
        if deployments:
            found.append(Source(place, option, deployments, _covered(plan, option)))
    return found if found and found[0].place == 1 else []


def _covered(plan: Plan, option: Row) -> bool:
    """Whether formulas cover an option from its lengths to its latencies."""
    request = plan.request
    return not (option.get("setup") not in LIVE_SETUPS or grown(option)
                or request.get("speculative")
                or (request.get("fidelity") or "operator") != "operator")


def _deployments(plan: Plan, option: Row) -> list[tuple[str, Deployment]]:
    """The pools' deployments from the snapshot; none where the snapshot lacks them."""
    record = (plan.snapshot.get("model") or {}).get("record")
    if not record:
        return []
    try:
        llm = from_record(record)
        return [(str(p["role"]), _deployment(plan, llm, option, p)) for p in option["pools"]]
    except (KeyError, TypeError, ValueError, StopIteration):
        return []


def _deployment(plan: Plan, llm: Llm, option: Row, pool: Row) -> Deployment:
    gpu = next(Gpu(**g) for g in plan.rows("gpus") if g["slug"] == pool["gpu"])
    profile = next(EngineProfile(**e) for e in plan.rows("engines") if e["slug"] == pool["engine"])
    layout = Layout(pool["tensor_parallel"], pool["pipeline_parallel"], pool["expert_parallel"],
                    pool["data_parallel"])
    return Deployment(llm, gpu, str(option["weights"]), str(option["kv"]), layout, profile,
                      plan.request.get("power_cap_w"))


class Builder:
    """Makes the live sheets.

    Parameters
    ----------
    plan : Plan
    book : xlsxwriter.Workbook
    page : callable
        From the name of a sheet to its page.
    """

    def __init__(self, plan: Plan, book: Any, page: Any) -> None:
        self.plan, self.book, self.page = plan, book, page
        self.found = sources(plan)

    def board(self, name: str) -> Board:
        """A sheet to fill with formulas."""
        return Board(self.page(name), self.book)

    def build(self) -> Live:
        """Inputs, the sheets of the options, and Fleet & cost."""
        plan = self.plan
        limits = plan.request.get("limits") or {}
        share = number(limits.get("memory_utilization"))
        pairs = {(d.gpu.slug, d.profile.slug): (d.gpu, d.profile, share)
                 for s in self.found for _, d in s.deployments}
        board = self.board(inputs.NAME)
        set_up(board.page, plan.name, inputs.NAME)
        priced = [(s.place, s.option) for s in self.found]
        if not priced and plan.best is not None:
            priced = [(1, plan.best)]
        live = Live(inputs.write(board, plan, list(pairs.values()), priced))
        for source in self.found:
            live.options[source.place] = self._option(source, live.inputs)
        if self.found:
            names = {s.place: f"{'Recommended' if s.place == 1 else 'Runner-up'}: "
                             f"{words.setup(s.option.get('setup'))}" for s in self.found}
            live.fleets = fleet.write(self.board(fleet.NAME), plan.name, live.inputs, live.options,
                                      names)
        return live

    def _option(self, source: Source, cells: inputs.InputCells) -> OptionCells:
        plan, option = self.plan, source.option
        name = SHEET.format(place=source.place)
        board = self.board(name)
        set_up(board.page, plan.name, name)
        board.page.sheet.set_portrait()
        board.page.widths(OPTION_WIDTHS)
        board.page.sheet.set_column(len(OPTION_WIDTHS), LAST_COLUMN, 14)
        board.page.sheet.freeze_panes(1, 1)
        board.page.write(0, 0, f"{'Recommended' if source.place == 1 else 'Runner-up'}: "
                         f"{words.setup(option.get('setup'))} on {words.gpus(plan, option)}, "
                         f"{words.layout(option)}", "heading")
        board.row = 1
        rate = board.line("Peak of one region", when(
            cells.regions > 1.0, cells.rate / most(cells.regions - 1.0, 1.0), cells.rate), "1/s",
            "with R > 1 regions one may fail", "general", name=f"region_rate_{source.place}")
        room = board.line("GPUs of one region, at most", whole(cells.max_gpus / most(
            cells.regions, 1.0)), "", "", "count")
        pools = []
        for (role, deployment), document in zip(source.deployments, option["pools"], strict=True):
            each = float(deployment.layout.gpus)
            limit = board.line(f"Replicas of {role}, at most",
                               whole(room / each) - cells.spares, "", "", "count")
            pool = self._pool(role, deployment, document, cells, rate, limit)
            pools.append(self._valued(pool, source, cells))
        if source.whole:
            demand = Demand(cells.prompt, cells.output, cells.hit, cells.targets,
                            cells.whole_level, cells.spares, room)
            made = OptionSheet(board, str(option["setup"]), source.place, demand, pools).write()
        else:
            made = kept_option(board, plan, option, pools, cells, source.place)
        board.print_rows(len(OPTION_WIDTHS) - 1)
        return made

    def _valued(self, pool: PoolPlan, source: Source, cells: inputs.InputCells) -> PoolPlan:
        """The pool with what one of its GPUs costs and counts in the objective."""
        prices = [cells.prices.get((source.place, str(p["gpu"]))) for p in source.option["pools"]]
        known = all(p is not None and not isinstance(p.value, str) for p in prices)
        price = cells.prices.get((source.place, pool.deployment.gpu.slug))
        usd = price if known and price is not None else x(0.0)
        worth = {"cost": usd if known else x(1.0), "power": pool.hardware.gpu["tdp_w"]}
        return replace(pool, price=usd, worth=worth.get(
            str(self.plan.request.get("objective") or "cost"), x(1.0)))

    def _pool(self, role: str, deployment: Deployment, document: Row, cells: inputs.InputCells,
              rate: X, limit: X) -> PoolPlan:
        limits = self.plan.request.get("limits") or {}
        sequences = limits.get("max_sequences")
        budget = memory_budget(deployment, utilization=number(limits.get("memory_utilization")),
                               max_sequences=sequences)
        top = int(sequences or deployment.profile.default_max_sequences) * deployment.layout.data
        hardware = cells.hardware[deployment.gpu.slug, deployment.profile.slug]
        each = number(document.get("requests_per_s_per_replica"))
        planned = float(round(rate.value / each)) if each else 0.0
        return PoolPlan(role, deployment, hardware, budget, top, document.get("token_budget"),
                        int(document.get("batch_size") or 1),
                        Load(rate, cells.utilization, cells.cv, limit,
                             number(document.get("capacity_rps")) or 0.0, planned),
                        admission_share=number(document.get("admission_share"))
                        or ADMISSION_SHARE)

