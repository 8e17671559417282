"""From a fleet, requests and options to the arrays of the event loop."""

from __future__ import annotations

import math

import numpy as np

from planner.simulator import columns as k
from planner.simulator.arrays import (
    ARRIVING,
    FAILURE,
    GAP_BINS,
    RECOVERY,
    REFUSED,
    ROUTER_CODES,
    SCHEDULER_CODES,
    Config,
    Floats,
    Ints,
    State,
)
from planner.simulator.fleet import SimulatedFleet, SimulatedPool, expected_tokens
from planner.simulator.options import Failure, SimulationOptions
from planner.simulator.table import RequestTable


def config_of(fleet: SimulatedFleet, requests: RequestTable, options: SimulationOptions) -> Config:
    """Everything that stays the same in a run."""
    pools = two(fleet.pools)
    kinds = max(len(p.memory.windows) for p in pools)
    windows, block_bytes = np.zeros((2, kinds)), np.zeros((2, kinds))
    for row, pool in enumerate(pools):
        own = len(pool.memory.windows)
        windows[row, :own] = pool.memory.windows
        # Whole bytes, so that sums of blocks are exact.
        block_bytes[row, :own] = np.ceil(pool.memory.bytes_per_token * pool.memory.block_tokens)
    target = next((s for s in fleet.slos if s.metric == "itl"), None)
    count = len(requests)
    run_i = np.array([count, ROUTER_CODES[options.router], int(options.warmup_share * count)],
                     dtype=np.int64)
    run_f = np.array([requests.arrival_s[0], max(requests.span_s, 1e-9) / options.timeline_bins,
                      math.inf if target is None else target.limit_s,
                      *((wire.layers, wire.send_share, wire.receive_share)
                        if (wire := fleet.transfer) else (1.0, 1.0, 1.0))], dtype=np.float64)
    servers = [p.replicas * p.ranks for p in pools]
    if len(fleet.pools) == 1:
        servers[1] = 0
    pool_i = np.array([[
        SCHEDULER_CODES[p.scheduler], row * servers[0], servers[row], p.max_sequences,
        p.token_budget, p.prompts_per_pass, p.memory.block_tokens, len(p.memory.windows),
        p.draft_passes, grows(p), p.ranks]
        for row, p in enumerate(pools)], dtype=np.int64)
    pool_f = np.array([[p.occupancy, expected_tokens(p), p.memory.capacity_bytes,
                        math.ceil(p.memory.state_bytes)] for p in pools], dtype=np.float64)
    return Config(run_i, run_f, pool_i, pool_f, requests.arrival_s, windows, block_bytes)


def two(pools: tuple[SimulatedPool, ...]) -> tuple[SimulatedPool, SimulatedPool]:
    """The pools, the last one repeated where there is one alone."""
    return pools[0], pools[-1]


def grows(pool: SimulatedPool) -> bool:
    """Whether blocks are taken step by step.

    Not by static batches and engines that reserve, nor with speculation, where a step may fill
    several.
    """
    return pool.scheduler != "static" and not pool.reserves and pool.draft_tokens == 0


def state_of(fleet: SimulatedFleet, requests: RequestTable, options: SimulationOptions,
             cf: Config) -> State:
    """An empty fleet and all requests still to come."""
    count, servers = len(requests), int(cf.pool_i[:, k.Q_SERVERS].sum())
    most, kinds = int(cf.pool_i[:, k.Q_MAX_SEQUENCES].max()), cf.windows.shape[1]
    failures = _server_failures(fleet, options.failures, cf)
    events = (count if len(fleet.pools) > 1 else 0) + 4 * servers + 2 * len(failures) + 8
    heap, stack = most * (1 + kinds) + 1, 4 * most + 64
    request_i, request_f = _requests(fleet, requests, cf)
    server_i, server_f = _servers(cf, servers)
    state = State(
        request_i=request_i, request_f=request_f, server_i=server_i, server_f=server_f,
        pool_i=_zeros(2, 3), pool_f=np.zeros((2, 2)), run_i=_zeros(4),
        fresh=_zeros(servers, most), packed=_zeros(servers, most), chunks=_zeros(servers, most + 1),
        step_key=_zeros(servers, heap), step_item=_zeros(servers, heap),
        stack_gap=np.zeros((servers, stack)), stack_step=_zeros(servers, stack),
        phase=_zeros(servers, kinds, int(cf.pool_i[:, k.Q_BLOCK].max())),
        growing=_zeros(servers, kinds), sums=np.zeros((2, 3)),
        timeline=np.zeros((2, options.timeline_bins + 1, 3)),
        base_s=np.full((2, most + 1), math.nan), event_key=np.zeros(events),
        event_item=_zeros(events), failing=np.array([s for _, s, _ in failures], dtype=np.int64),
        back_s=np.array([back for _, _, back in failures], dtype=np.float64),
        gaps=_zeros(GAP_BINS),
        random=np.array([options.seed & (2**63 - 1)], dtype=np.uint64))
    _schedule(state, failures)
    return state


def _requests(fleet: SimulatedFleet, requests: RequestTable, cf: Config) -> tuple[Ints, Floats]:
    whole, real = _zeros(len(requests), 17), np.zeros((len(requests), 16))
    for column, values in ((k.R_PROMPT, requests.prompt_tokens),
                           (k.R_OUTPUT, requests.output_tokens),
                           (k.R_HIT, requests.cached_tokens), (k.R_STEPS, requests.output_tokens),
                           (k.R_STATUS, _statuses(requests, cf))):
        whole[:, column] = values
    whole[:, [k.R_NEXT, k.R_PREVIOUS, k.R_SERVER, k.R_SENT_FROM]] = -1
    real[:, [k.R_LAST_TOKEN_S, k.R_START_S, k.R_FIRST_S, k.R_FINISH_S, k.R_PREFILL_DONE_S]] = -1.0
    real[:, k.R_YIELDS] = 1.0
    if fleet.transfer is not None:
        real[:, k.R_WIRE_S] = fleet.transfer.wire_s(requests.prompt_tokens)
    return whole, real


def _servers(cf: Config, servers: int) -> tuple[Ints, Floats]:
    whole, real = _zeros(servers, 15), np.zeros((servers, 8))
    whole[:, k.S_POOL] = np.repeat((0, 1), cf.pool_i[:, k.Q_SERVERS])
    whole[:, k.S_UP] = 1
    whole[:, [k.S_WAIT_HEAD, k.S_WAIT_TAIL, k.S_RUN_HEAD, k.S_RUN_TAIL, k.S_PARTIAL]] = -1
    real[:, [k.S_DOWN_UNTIL_S, k.S_NOW_S, k.S_CARD_FREE_S]] = -math.inf
    return whole, real


def _zeros(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def _statuses(requests: RequestTable, cf: Config) -> Ints:
    """Requests whose cache no server could ever hold are refused."""
    tokens = (requests.prompt_tokens + requests.output_tokens).astype(float)
    status = np.full(len(requests), ARRIVING, dtype=np.int64)
    for q in (0, 1):
        kinds = int(cf.pool_i[q, k.Q_KINDS])
        kept = np.minimum(tokens[:, None], cf.windows[q, :kinds])
        size = np.ceil(kept / cf.pool_i[q, k.Q_BLOCK]) @ cf.block_bytes[q, :kinds]
        status[size + cf.pool_f[q, k.Q_STATE_BYTES] > cf.pool_f[q, k.Q_CAPACITY_BYTES]] = REFUSED
    return status


def _server_failures(fleet: SimulatedFleet, failures: tuple[Failure, ...], cf: Config
                     ) -> list[tuple[float, int, float]]:
    """Start [s], first server of the replica and end [s] of every failure."""
    start = float(cf.run_f[k.C_START_S])
    return sorted(
        (start + f.at_s, int(cf.pool_i[f.pool, k.Q_FIRST_SERVER])
         + f.replica * fleet.pools[f.pool].ranks, start + f.at_s + f.duration_s) for f in failures)


def _schedule(state: State, failures: list[tuple[float, int, float]]) -> None:
    """Put failures and recoveries on the heap of events (sorted is a heap)."""
    rows = sorted([(at, FAILURE + 8 * i) for i, (at, _, _) in enumerate(failures)]
                  + [(back, RECOVERY + 8 * i) for i, (_, _, back) in enumerate(failures)])
    for place, (when, item) in enumerate(rows):
        state.event_key[place], state.event_item[place] = when, item
    state.run_i[k.N_EVENTS] = len(rows)
