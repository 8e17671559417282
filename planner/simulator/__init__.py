"""Discrete-event simulation of every request of a fleet, with the step time of the plan.

A plan is closed form; this is its referee. :func:`simulate` serves a table of requests
(:mod:`~planner.simulator.table`, :mod:`~planner.simulator.generate`) on a fleet
(:mod:`~planner.simulator.fleet`) and returns what each request saw. The compiled loop
is loaded when the first simulation runs, not on import.

Examples
--------
>>> from planner.simulator import SimulatedFleet, SimulatedPool, affine_steps
>>> pool = SimulatedPool("serve", "prefill_first", affine_steps(0.01, 1e-5), replicas=2)
>>> SimulatedFleet("colocated", (pool,)).gpus
2
"""

from planner.simulator.fleet import (
    KvMemory,
    KvTransfer,
    SimulatedFleet,
    SimulatedPool,
    fleet_of,
    kv_transfer,
    pool_of,
)
from planner.simulator.generate import (
    diurnal_arrivals,
    gamma_arrivals,
    on_off_arrivals,
    poisson_arrivals,
    synthetic,
)
from planner.simulator.options import ROUTERS, Failure, SimulationOptions, random_failures
from planner.simulator.result import SimulationResult
from planner.simulator.run import simulate
from planner.simulator.table import (
    RequestTable,
    at_rate,
    request_table,
    scaled_rate,
    statistics,
    time_slice,
)
from planner.steps import Steps, affine_steps, steps_of

__all__ = [
    "ROUTERS", "Failure", "KvMemory", "KvTransfer", "RequestTable", "SimulatedFleet",
    "SimulatedPool", "SimulationOptions", "SimulationResult", "Steps", "affine_steps", "at_rate",
    "diurnal_arrivals", "fleet_of", "gamma_arrivals", "kv_transfer", "on_off_arrivals",
    "poisson_arrivals", "pool_of", "random_failures", "request_table", "scaled_rate", "simulate",
    "statistics", "steps_of", "synthetic", "time_slice",
]
