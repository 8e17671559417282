"""A budget ready to be calculated: demand, capacity curves and prices, without the catalog.

Everything that sizing found is kept as numbers, so the months, the money and the workbook follow
from this value alone, today and when it is read back from the database.
"""

from __future__ import annotations

import math
import types
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any, Union, get_args, get_origin, get_type_hints

from planner.budget.capacity import Capacity
from planner.budget.inputs import (
    Actual,
    Commitments,
    Energy,
    Owned,
    Prices,
    Scenario,
    Server,
    Spike,
)


@dataclass(frozen=True, slots=True)
class Weight:
    """Load of a request against one of the fleet's reference mix, by the factor on its lengths.

    A request whose lengths have grown by ``factors[j]`` takes as much of the pool's capacity as
    ``values[j]`` reference requests; between the factors a power law joins them.
    """

    factors: tuple[float, ...] = (1.0,)
    values: tuple[float, ...] = (1.0,)

    @property
    def exponents(self) -> tuple[float, ...]:
        """Power of each stretch; the last goes on beyond the table."""
        pairs = list(zip(self.factors, self.values, strict=True))
        found = [math.log(v2 / v1) / math.log(f2 / f1)
                 for (f1, v1), (f2, v2) in pairwise(pairs)]
        return (*found, found[-1] if found else 1.0)


@dataclass(frozen=True, slots=True)
class Unserved:
    """A month in which a workload is not served: the GPUs it needs, and those too many."""

    month: int
    gpus: int
    short: int


@dataclass(frozen=True, slots=True)
class WorkloadLine:
    """One workload: its curve, and the fleet that serves it or the reason why none does.

    Attributes
    ----------
    ends_month : int
        Last month in which it is served.
    requests_per_s, mean_requests_per_s : float
        [1/s] in its first month, at the peak and over the day.
    spikes : tuple of Spike
        Launches; and for months in between that are not served, what takes the rate to 0.
    weights : tuple of Weight
        One for each pool of the fleet.
    unserved : tuple of Unserved
        Months that need more GPUs than are allowed.
    """

    name: str
    model: str
    starts_month: int
    ends_month: int
    requests_per_s: float
    mean_requests_per_s: float
    growth_per_month: float
    tokens_growth_per_month: float
    seasonality: tuple[float, ...]
    spikes: tuple[Spike, ...]
    prompt_tokens_mean: float
    output_tokens_mean: float
    fleet: int | None = None
    weights: tuple[Weight, ...] = ()
    reason: str | None = None
    unserved: tuple[Unserved, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool at its fixed layout.

    Attributes
    ----------
    line : int
        Which GPU line pays for it.
    mix : tuple of tuple of float
        By scenario and month: joint sizing over the sum of the members alone; empty: always 1.
    """

    role: str
    gpu: str
    line: int
    layout: str
    gpus_per_replica: int
    capacity: Capacity
    mix: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class FleetLine:
    """Replicas of one model at one layout, serving the workloads ``members``."""

    name: str
    model: str
    members: tuple[int, ...]
    setup: str
    weights: str
    kv: str
    limited_by: str
    target_utilization: float
    spare_replicas: int
    regions: int
    sized_month: int
    pools: tuple[PoolLine, ...]


@dataclass(frozen=True, slots=True)
class TermPrice:
    """A commitment on offer for a GPU line [USD per GPU-hour].

    ``discount`` is what was stated in place of a price.
    """

    term_months: int
    usd_per_gpu_hour: Decimal
    source: str
    discount: float | None = None


@dataclass(frozen=True, slots=True)
class GpuLine:
    """GPUs of one kind at one price.

    Attributes
    ----------
    term : TermPrice or None
        The commitment that costs least over the budget (base scenario); None: on demand only.
    offered : tuple of TermPrice
    server : Server or None
        What a server to buy costs.
    """

    name: str
    gpu: str
    usd_per_gpu_hour: Decimal
    provider: str
    region: str
    commitment: str
    source: str
    watts: float | None
    gpus_per_server: int
    offered: tuple[TermPrice, ...] = ()
    term: TermPrice | None = None
    existing_gpus: int = 0
    server: Server | None = None


@dataclass(frozen=True, slots=True)
class BudgetModel:
    """Everything that months and money follow from."""

    name: str
    months: int
    start_year: int
    start_month: int
    scenarios: tuple[Scenario, ...]
    headroom: float
    regions: tuple[str, ...]
    prices: Prices
    commitments: Commitments
    owned: Owned
    energy: Energy
    lead_time_days: int
    actuals: tuple[Actual, ...]
    workloads: tuple[WorkloadLine, ...]
    fleets: tuple[FleetLine, ...]
    lines: tuple[GpuLine, ...]
    catalog_as_of: str

    @property
    def base(self) -> int:
        """Place of the base scenario."""
        return [s.name for s in self.scenarios].index("base")


def to_json(value: Any) -> Any:
    """A value of this module as JSON types; decimals as text, so that they stay exact."""
    if is_dataclass(value):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    if isinstance(value, dict):
        return {k: to_json(v) for k, v in value.items()}
    return str(value) if isinstance(value, Decimal) else value


def model_from_json(document: Any) -> BudgetModel:
    """The model that :func:`to_json` wrote."""
    found: BudgetModel = _read(BudgetModel, document)
    return found


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _read(next(k for k in inner if k is not type(None)), value)
    if origin is tuple:
        return tuple(_read(inner[0], v) for v in value)
    if origin is dict:
        return {k: _read(inner[1], v) for k, v in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{k: _read(hints[k], v) for k, v in value.items()})
    return Decimal(value) if kind is Decimal else value
