"""An option whose replicas stay the engine's: its capacity as a value, its fleet from that."""

from __future__ import annotations

from typing import Any

from planner.workbook import words
from planner.workbook.layout import number, write_table
from planner.workbook.live.asked import Asked
from planner.workbook.live.board import Board
from planner.workbook.live.expr import X, most, round_up, when, x
from planner.workbook.live.inputs import InputCells
from planner.workbook.live.pools import OptionCells, PoolCells, PoolPlan
from planner.workbook.live.seen import LEVELS, Seen
from planner.workbook.live.sizing import Found
from planner.workbook.operating_points import columns_of
from planner.workbook.plan import Plan, Row

WHY = ("This set-up (or target, or fidelity) is not written as formulas: capacity and latencies "
       "are engine results. Replicas, GPUs and money still follow from the rate, the target "
       "utilisation, spares and prices.")

STALE_INPUTS = "capacity_inputs_changed"
"""Cell with the number of changed inputs that the capacity of a replica is of."""
GROWN = ("A simulation asked for more replicas than the formulas: what each carries and the "
         "latencies are engine results. Replicas, GPUs and money follow from the rate, the target "
         "utilisation, spares and prices.")


def grown(option: Row) -> bool:
    """Whether replicas were added to an option because its simulation missed a target."""
    return bool((option.get("verification") or {}).get("added_replicas"))


def kept_option(board: Board, plan: Plan, option: Row, pools: list[PoolPlan], cells: InputCells,
                place: int) -> OptionCells:
    """Write the sheet of such an option."""
    board.page.write(board.row, 0, GROWN if grown(option) else WHY, "label", "grey")
    board.row += 1
    board.heading("Engine results")
    board.line("Are they of the inputs as they are?", when(
        X(STALE_INPUTS, 0.0) > 0.0, "no: stale, plan again", "yes"), "",
        "see the sheet Checks", "text")
    made = []
    share = _prompt_share(option, cells)
    for pool, document in zip(pools, option["pools"], strict=True):
        role = pool.role
        capacity = board.line(f"{role}: highest rate of a replica", _capacity_rps(
            option, document, pool), "1/s", "", "three", "engine",
            name=f"highest_found_{role}_{place}")
        wanted = pool.load.rate / (pool.load.utilization * most(capacity, 1e-12))
        count = most(round_up(wanted - 1e-9), 1.0)
        replicas = board.line(f"{role}: replicas that carry the peak", when(
            count <= pool.load.limit, count, 0.0), "", "rate over the planned rate of a replica",
            "count", name=f"replicas_found_{role}_{place}")
        nothing = Asked(0, x(0.0), x(0.0))
        found = Found(replicas, capacity, x(0.0), nothing, count)
        made.append(PoolCells(pool, found, None, share))
    seen = _seen(board, plan, option, place)
    _points(board, plan, option)
    return OptionCells(made, seen, x(float(option["pools"][-1].get("batch_size") or 1)), True)


def _capacity_rps(option: Row, document: Row, pool: PoolPlan) -> float:
    """Rate [1/s] that a replica can carry; of a verified pool what it was shown to."""
    shown = float(document.get("requests_per_s_per_replica") or 0.0)
    if grown(option) and shown:
        return shown / float(pool.load.utilization.value)
    return float(document.get("capacity_rps") or 0.0)


def _prompt_share(option: Row, cells: InputCells) -> tuple[X, X]:
    """Shares of prefill and decode of the cost, as the engine found them."""
    usd, request = (number(option.get(n)) for n in ("usd_per_million_input_tokens",
                                                    "usd_per_request"))
    if usd is None or not request:
        return x(0.5), x(0.5)
    part = min(usd * float(cells.prompt.mean.value) / 1e6 / request, 1.0)
    return x(part), x(1.0 - part)


def _seen(board: Board, plan: Plan, option: Row, rank: int) -> Seen:
    """The latencies as values."""
    board.heading("Latencies at the peak")
    board.columns(["Latency", "Mean", "Target", *(f"p{100 * p:g}" for p in LEVELS)])
    board.row += 1
    found: dict[str, list[X]] = {}
    for metric in ("ttft", "tpot", "e2e"):
        figures: dict[str, Any] = dict(option.get(f"{metric}_ms") or {})
        values = [figures.get("mean"), plan.latency_ms(option, metric),
                  *(figures.get(f"p{100 * p:g}") for p in LEVELS)]
        board.page.write(board.row, 0, f"{words.SHORT[metric]} [s]", "cell", "text")
        found[metric] = [_second(board, 1 + i, number(v), f"{metric}_s_{rank}" if i == 1 else "")
                         for i, v in enumerate(values)]
        board.row += 1
    return Seen(found["ttft"], found["tpot"], found["e2e"], x(0.0))


def _second(board: Board, column: int, value_ms: float | None, name: str) -> X:
    """A latency in seconds; ``n/a``, which counts as 0, where there is none."""
    if value_ms is None:
        board.page.write(board.row, column, "n/a", "cell", "six", "engine")
        return x(0.0)
    return board.put_value(board.row, column, value_ms / 1000.0, "cell", "six", "engine", name=name)


def _points(board: Board, plan: Plan, option: Row) -> None:
    """The operating points of the option, as values."""
    names = list(plan.points.get("columns") or [])
    if "option_rank" not in names:
        return
    place = names.index("option_rank")
    rows = [r for r in plan.points.get("rows") or [] if r[place] == option.get("rank")]
    board.heading("Operating points")
    board.row = write_table(board.page, board.row, columns_of(plan), rows, engine=True)
