"""Plans of pools, the demand on them and what they came to, as the sheets of options share them."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.memory import MemoryBudget
from planner.roofline import Deployment
from planner.setups.disaggregated import ADMISSION_SHARE
from planner.workbook.live.expr import X, x
from planner.workbook.live.lengths import LengthInputs
from planner.workbook.live.seen import Seen
from planner.workbook.live.sizing import Found
from planner.workbook.live.step import Hardware, StepSheet
from planner.workbook.live.targets import Load, Targets

SCALAR_ROWS = 110
"""Rows kept for the scalars of one search."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolPlan:
    """One pool of an option as the stored plan has it.

    Attributes
    ----------
    worth : X
        What one of its GPUs counts in the objective: USD/h, W, or 1.
    price : X
        [USD/h] of one of its GPUs, 0 where none is known.
    """

    role: str
    deployment: Deployment
    hardware: Hardware
    budget: MemoryBudget
    most_sequences: int
    token_budget: int | None
    batch: int
    load: Load
    worth: X = field(default_factory=lambda: x(1.0))
    price: X = field(default_factory=lambda: x(0.0))
    admission_share: float = ADMISSION_SHARE
    """Most requests that may wait for a place in a decode pool."""


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The workload, the targets and the fleet's limits as input cells.

    Attributes
    ----------
    spares : X
        Spare replicas of a pool.
    room : X
        Most GPUs of a region.
    """

    prompt: LengthInputs
    output: LengthInputs
    hit: X
    targets: Targets
    whole_level: X
    spares: X
    room: X


@dataclass(slots=True, eq=False)
class PoolCells:
    """What a pool came to."""

    plan: PoolPlan
    found: Found
    step: StepSheet | None
    work: tuple[X, X] = field(default_factory=lambda: (x(0.0), x(0.0)))
    """Replica seconds of a request in prefill and decode (one pool)."""


@dataclass(slots=True, eq=False)
class OptionCells:
    """What an option came to: its pools and its latencies."""

    pools: list[PoolCells]
    seen: Seen
    limit: X
    kept: bool = False
    """Whether its capacity is an engine result."""
