"""From a fleet, requests and options to the arrays of the event loop."""

from __future__ import annotations

import math

import numpy as np

from planner.simulator.arrays import (
    ARRIVING,
    FAILURE,
    GAP_BINS,
    RECOVERY,
    REFUSED,
    ROUTER_CODES,
    SCHEDULER_CODES,
    Config,
    State,
)
from planner.simulator.fleet import KvTransfer, SimulatedFleet, SimulatedPool, expected_tokens
from planner.simulator.options import Failure, SimulationOptions
from planner.simulator.table import RequestTable

NO_ROWS = np.zeros(0, dtype=np.int64)


def config_of(fleet: SimulatedFleet, requests: RequestTable, options: SimulationOptions) -> Config:
    """Everything that stays the same in a run."""
    pools = two(fleet.pools)
    servers = [p.replicas * p.ranks for p in pools]
    if len(fleet.pools) == 1:
        servers[1] = 0
    kinds = max(len(p.memory.windows) for p in pools)
    windows, block_bytes = np.zeros((2, kinds)), np.zeros((2, kinds))
    for row, pool in enumerate(pools):
        own = len(pool.memory.windows)
        windows[row, :own] = pool.memory.windows
        # Whole bytes, so that sums of blocks are exact.
        block_bytes[row, :own] = np.ceil(pool.memory.bytes_per_token * pool.memory.block_tokens)
    target = next((s for s in fleet.slos if s.metric == "itl"), None)
    count = len(requests)
    whole = [np.array([f(p) for p in pools], dtype=np.int64) for f in (
        lambda p: SCHEDULER_CODES[p.scheduler], lambda p: p.max_sequences,
        lambda p: p.token_budget, lambda p: p.prompts_per_pass,
        lambda p: p.memory.block_tokens, lambda p: len(p.memory.windows),
        lambda p: p.draft_tokens if p.draft is not None else 0)]
    real = [np.array([f(p) for p in pools], dtype=np.float64) for f in (
        lambda p: p.occupancy, expected_tokens, lambda p: p.memory.capacity_bytes,
        lambda p: math.ceil(p.memory.state_bytes))]
    return Config(
        count, requests.arrival_s, float(requests.arrival_s[0]),
        max(requests.span_s, 1e-9) / options.timeline_bins,
        math.inf if target is None else target.limit_s, ROUTER_CODES[options.router],
        int(options.warmup_share * count), float(fleet.transfer.layers if fleet.transfer else 1),
        whole[0], np.array([0, servers[0]], dtype=np.int64), np.array(servers, dtype=np.int64),
        *whole[1:], np.array([grows(p) for p in pools]), *real, windows, block_bytes)


def two(pools: tuple[SimulatedPool, ...]) -> tuple[SimulatedPool, SimulatedPool]:
    """The pools, the last one repeated where there is one alone."""
    return pools[0], pools[-1]


def grows(pool: SimulatedPool) -> bool:
    """Whether blocks are taken step by step.

    Not by static batches, which reserve, nor with speculation, where a step may fill several.
    """
    return pool.scheduler != "static" and pool.draft_tokens == 0


def state_of(fleet: SimulatedFleet, requests: RequestTable, options: SimulationOptions,
             cf: Config) -> State:
    """An empty fleet and all requests still to come."""
    n, servers = cf.count, int(cf.servers.sum())
    most = int(max(cf.max_sequences[0], cf.max_sequences[1]))
    most = max(most, min(int(cf.prompts_per_pass.min()), most))
    kinds = cf.windows.shape[1]
    heap, stack = most * (1 + kinds) + 1, 4 * most + 64
    failures = _server_failures(fleet, options.failures, cf)
    events = (n if len(fleet.pools) > 1 else 0) + 4 * servers + 2 * len(failures) + 8
    pool = np.concatenate([np.full(cf.servers[q], q) for q in (0, 1)]).astype(np.int64)
    state = State(
        requests.prompt_tokens, requests.output_tokens, requests.cached_tokens,
        requests.output_tokens.copy(), np.ones(n), _wire_s(fleet.transfer, requests),
        _statuses(requests, cf), *(_zeros(n) for _ in range(1)), *(np.zeros(n) for _ in range(3)),
        _zeros(n), np.zeros(n, dtype=np.bool_), np.zeros(n), *(_nothing(n) for _ in range(4)),
        *(_zeros(n) for _ in range(2)), *(np.full(n, -1.0) for _ in range(4)),
        np.full(n, -1.0), *(np.zeros(n) for _ in range(5)), *(_zeros(n) for _ in range(3)),
        pool, np.ones(servers, dtype=np.bool_), np.full(servers, -math.inf),
        np.full(servers, -math.inf), _zeros(servers), np.zeros(servers), np.zeros(servers),
        _zeros(servers), _zeros(servers), *(_nothing(servers) for _ in range(5)),
        np.zeros(servers), np.zeros(servers), _zeros(servers, most), _zeros(servers),
        _zeros(servers, most), _zeros(servers, most + 1), _zeros(servers, heap),
        _zeros(servers, heap), _zeros(servers), np.zeros((servers, stack)),
        _zeros(servers, stack), _zeros(servers), _zeros(servers), _zeros(servers),
        np.zeros(servers), _zeros(servers, kinds, int(cf.block.max())), _zeros(servers, kinds),
        np.full(servers, -math.inf), _zeros(2), np.zeros(2), np.zeros(2), np.zeros((2, 3)),
        np.zeros((2, options.timeline_bins + 1, 3)), _zeros(2), _zeros(2),
        np.full((2, most + 1), math.nan), np.zeros(events), _zeros(events), _zeros(1),
        np.array([s for _, s, _ in failures], dtype=np.int64),
        np.array([back for _, _, back in failures]), _zeros(1), _zeros(1),
        np.zeros(1, dtype=np.bool_), _zeros(GAP_BINS),
        np.array([np.uint64(options.seed & (2**63 - 1))], dtype=np.uint64))
    _schedule(state, failures)
    return state


def _zeros(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.zeros(shape, dtype=np.int64)


def _nothing(size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.full(size, -1, dtype=np.int64)


def _wire_s(transfer: KvTransfer | None, requests: RequestTable
            ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    if transfer is None:
        return np.zeros(len(requests))
    return transfer.wire_s(requests.prompt_tokens)


def _statuses(requests: RequestTable, cf: Config
              ) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Requests whose cache no server could ever hold are refused."""
    tokens = (requests.prompt_tokens + requests.output_tokens).astype(float)
    status = np.full(cf.count, ARRIVING, dtype=np.int64)
    for q in (0, 1):
        kept = np.minimum(tokens[:, None], cf.windows[q, : cf.kinds[q]])
        blocks = np.ceil(kept / cf.block[q])
        size = blocks @ cf.block_bytes[q, : cf.kinds[q]] + cf.state_bytes[q]
        status[size > cf.capacity_bytes[q]] = REFUSED
    return status


def _server_failures(fleet: SimulatedFleet, failures: tuple[Failure, ...], cf: Config
                     ) -> list[tuple[float, int, float]]:
    """Start [s], server and end [s] of every failure, rank by rank."""
    rows = []
    for failure in failures:
        ranks = fleet.pools[failure.pool].ranks
        first = int(cf.first_server[failure.pool]) + failure.replica * ranks
        at = cf.start_s + failure.at_s
        rows += [(at, first + rank, at + failure.duration_s) for rank in range(ranks)]
    return sorted(rows)


def _schedule(state: State, failures: list[tuple[float, int, float]]) -> None:
    """Put failures and recoveries on the heap of events (sorted is a heap)."""
    rows = sorted([(at, FAILURE + 8 * i) for i, (at, _, _) in enumerate(failures)]
                  + [(back, RECOVERY + 8 * i) for i, (_, _, back) in enumerate(failures)])
    for place, (when, item) in enumerate(rows):
        state.event_key[place], state.event_item[place] = when, item
    state.events[0] = len(rows)
