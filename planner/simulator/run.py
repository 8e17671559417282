"""Run a simulation and read its arrays."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.engine import lag_s
from planner.errors import InvalidValue
from planner.simulator import columns as k
from planner.simulator.arrays import DONE, Config, State
from planner.simulator.fleet import SimulatedFleet, SimulatedPool
from planner.simulator.options import SimulationOptions
from planner.simulator.result import PoolSums, SimulationResult
from planner.simulator.setting_up import config_of, state_of, two
from planner.simulator.table import RequestTable
from planner.stepping import PackedSteps
from planner.steps import Steps, StepTimes, affine_steps, packed_steps

Array = NDArray[np.float64]
Progress = Callable[[float], bool]
SLICE = 5_000
"""Requests between two calls of ``progress``."""
DEFAULT_OPTIONS = SimulationOptions()


def simulate(fleet: SimulatedFleet, requests: RequestTable,
             options: SimulationOptions = DEFAULT_OPTIONS, progress: Progress | None = None
             ) -> SimulationResult:
    """Serve every request of a table on a fleet.

    Parameters
    ----------
    fleet : SimulatedFleet
        From :func:`planner.simulator.fleet.fleet_of` or made by hand.
    requests : RequestTable
    options : SimulationOptions
    progress : callable, optional
        Called with the share of the requests that have arrived, 0 to 1, a few times a second at
        least; returns False to cancel.

    Returns
    -------
    SimulationResult

    Raises
    ------
    InvalidValue
        When the fleet or the options make no sense.

    Notes
    -----
    The first run on a machine compiles the event loop and stores it (one to two minutes of one
    core); later ones load it. Same fleet, requests and options: the same result, bit for bit.
    """
    options.check(p.replicas for p in fleet.pools)
    _check(fleet)
    from planner.simulator import kernel  # compiles or loads the loop, so only when one runs

    start = time.perf_counter()
    cf = config_of(fleet, requests, options)
    st = state_of(fleet, requests, options, cf)
    _answer_steps(fleet.pools[-1], st, kernel.draw_steps)
    steps = [packed_steps(p.steps) for p in two(fleet.pools)]
    steps += [packed_steps(p.draft or NO_DRAFT) for p in two(fleet.pools)]
    count = len(requests)
    cancelled = False
    for upto in [*range(SLICE, count, SLICE), count]:
        kernel.run_events(cf, st, *steps, upto)
        if progress is not None and not progress(upto / count):
            cancelled = upto < count
            break
    return _result(fleet, requests, cf, st, _path_s(fleet.pools[0], steps[0], requests),
                   time.perf_counter() - start, cancelled)


NO_DRAFT: Steps = affine_steps(0.0)


def _check(fleet: SimulatedFleet) -> None:
    kinds = tuple(p.scheduler for p in fleet.pools)
    if len(kinds) == 2 and kinds != ("prefill", "decode"):
        raise InvalidValue("two pools must be a prefill pool and a decode pool, in this order",
                           "/pools")
    if len(kinds) not in (1, 2) or (len(kinds) == 1 and kinds[0] == "prefill"):
        raise InvalidValue("a fleet is one pool that serves, or a prefill and a decode pool",
                           "/pools")
    for i, pool in enumerate(fleet.pools):
        if min(pool.replicas, pool.ranks, pool.max_sequences, pool.token_budget,
               pool.prompts_per_pass) < 1:
            raise InvalidValue("replicas, sequences and tokens must be at least 1", f"/pools/{i}")


def _answer_steps(pool: SimulatedPool, st: State, draw_steps: Callable[..., Any]) -> None:
    """Decode steps of each answer: one a token, or fewer where drafts are accepted."""
    if pool.draft_tokens:
        rest = st.request_i[:, k.R_OUTPUT] - 1
        drawn = draw_steps(st, rest, pool.draft_tokens, pool.acceptance)
        st.request_i[:, k.R_STEPS] = 1 + drawn
        st.request_f[:, k.R_YIELDS] = np.where(drawn > 0, rest / np.maximum(drawn, 1), 1.0)


def _path_s(pool: SimulatedPool, steps: PackedSteps, requests: RequestTable) -> Array:
    """What the host and the engine's output path add to each answer [s].

    :func:`planner.engine.lag_s` with a step of one sequence at the mean running context, and the
    pool's scale on the prefill of the prompt alone.
    """
    output = np.asarray(requests.output_tokens, dtype=float)
    context = float(requests.prompt_tokens.mean() + (output**2).mean() / (2.0 * output.mean()))
    times = StepTimes(steps, 1)
    alone = float(times.seconds(1.0, context)[0])
    prompts = requests.prompt_tokens.astype(np.float64)
    lag = lag_s(pool.request_s, pool.first_steps, pool.prompt_token_s, alone, prompts)
    if pool.first_token_scale == 1.0:
        return lag
    hit = requests.cached_tokens
    kinds, place = np.unique(np.stack([requests.prompt_tokens - hit, hit]), axis=1,
                             return_inverse=True)
    prefill = times.seconds(new_tokens=kinds[0], prompts=1.0, cached=kinds[1])
    return np.asarray(lag + (pool.first_token_scale - 1.0) * prefill[place.reshape(-1)])


def _result(fleet: SimulatedFleet, requests: RequestTable, cf: Config, st: State, path_s: Array,
            wall_s: float, cancelled: bool) -> SimulationResult:
    whole, real, arrival = st.request_i, st.request_f, requests.arrival_s
    done, lag, nan = whole[:, k.R_STATUS] == DONE, real[:, k.R_LAG_S] + path_s, np.nan
    first = np.where(done, real[:, k.R_FIRST_S] + lag - arrival, nan)
    e2e = np.where(done, real[:, k.R_FINISH_S] + lag - arrival, nan)
    rest = requests.output_tokens - 1
    tpot = np.where(rest > 0, (e2e - first) / np.maximum(rest, 1), nan)
    prefilled = first if len(fleet.pools) == 1 else np.where(
        done, real[:, k.R_PREFILL_DONE_S] + lag - arrival, nan)
    start = float(cf.run_f[k.C_START_S])
    end = float(real[done, k.R_FINISH_S].max()) if done.any() else start
    span = max(end - start, 1e-12)
    worst, queued, moved = (np.where(done, real[:, column], nan) for column in (
        k.R_WORST_GAP_S, k.R_QUEUED_S, k.R_TRANSFER_S))
    steps, late, again, retried = (whole[:, column].copy() for column in (
        k.R_STEPS, k.R_LATE_GAPS, k.R_PREEMPTIONS, k.R_RETRIES))
    counted = np.arange(len(requests)) >= int(cf.run_i[k.C_WARMUP])
    return SimulationResult(
        fleet, requests, first, tpot, e2e, prefilled, worst, queued, moved, steps - 1, late, again,
        retried, done, counted, span, wall_s, st.gaps,
        tuple(_sums(p, q, cf, st, span) for q, p in enumerate(fleet.pools)),
        _timeline(fleet, requests, cf, st, end), cancelled)


def _sums(pool: SimulatedPool, q: int, cf: Config, st: State, span_s: float) -> PoolSums:
    servers = int(cf.pool_i[q, k.Q_SERVERS])
    busy, running, held = (float(x) for x in st.sums[q])
    room = float(cf.pool_f[q, k.Q_CAPACITY_BYTES])
    taken, freed = st.pool_f[q, [k.P_ALLOCATED_BYTES, k.P_FREED_BYTES]].tolist()
    return PoolSums(
        pool.role, pool.gpu, servers, pool.gpus, busy / span_s / servers,
        running / span_s / servers, held / span_s / servers / room if np.isfinite(room) else 0.0,
        int(st.pool_i[q, k.P_ITERATIONS]), int(st.pool_i[q, k.P_PASSES]), taken, freed, running)


def _timeline(fleet: SimulatedFleet, requests: RequestTable, cf: Config, st: State, end_s: float
              ) -> dict[str, Any]:
    """Columns over equal bins of the arrivals; the last bin is the time after the last arrival."""
    bins, start = st.timeline.shape[1], float(cf.run_f[k.C_START_S])
    bin_s = float(cf.run_f[k.C_BIN_S])
    edges = start + bin_s * np.arange(bins + 1.0)
    edges[-1] = max(end_s, edges[-2] + 1e-12)
    width = np.diff(edges)
    place = np.minimum(((requests.arrival_s - start) / bin_s).astype(np.int64), bins - 2)
    arrived = np.bincount(place, minlength=bins)
    columns: dict[str, Any] = {
        "start_s": (edges[:-1] - start).tolist(), "width_s": width.tolist(),
        "requests_per_s": (arrived / width).tolist()}
    rows = []
    for q, pool in enumerate(fleet.pools):
        servers, room = int(cf.pool_i[q, k.Q_SERVERS]), float(cf.pool_f[q, k.Q_CAPACITY_BYTES])
        busy, running, held = (st.timeline[q, :, k] / width / servers for k in range(3))
        rows.append({"role": pool.role, "utilization": np.minimum(busy, 1.0).tolist(),
                     "running": running.tolist(),
                     "kv_share": (held / room).tolist() if np.isfinite(room) else [0.0] * bins})
    columns["pools"] = rows
    return columns
