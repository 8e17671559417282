"""Routers: which server takes a request."""

from __future__ import annotations

import numpy as np

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import LEAST_LOADED, RANDOM, ROUND_ROBIN, Config, State
from planner.simulator.kernel.chance import draw
from planner.simulator.kernel.lists import wait_last


@compiled
def candidates(cf: Config, st: State, q: int, order: np.ndarray) -> int:
    """Servers of a pool among which the least loaded gets the next request; their number.

    One where the router does not look at loads. When all are down: the first to come back.
    """
    first, count = cf.pool_i[q, k.Q_FIRST_SERVER], cf.pool_i[q, k.Q_SERVERS]
    turn, alive = st.pool_i[q, k.P_TURN], 0
    for i in range(count):
        s = first + (turn + i) % count
        if st.server_i[s, k.S_UP]:
            order[alive] = s
            alive += 1
    router = cf.run_i[k.C_ROUTER]
    if alive == 0:
        order[0] = first
        for s in range(first, first + count):
            if st.server_f[s, k.S_NOW_S] < st.server_f[order[0], k.S_NOW_S]:
                order[0] = s
        return 1
    if router == ROUND_ROBIN:
        st.pool_i[q, k.P_TURN] = (order[0] - first + 1) % count
        return 1
    if router == LEAST_LOADED:
        st.pool_i[q, k.P_TURN] = (turn + 1) % count
        return alive
    a = int(draw(st) * alive)
    if router == RANDOM or alive == 1:
        order[0] = order[a]
        return 1
    b = int(draw(st) * (alive - 1))
    b += 1 if b >= a else 0
    one, other = order[a], order[b]
    order[0], order[1] = one, other
    return 2


@compiled
def least_loaded(st: State, order: np.ndarray, count: int) -> int:
    """The first of the servers with the fewest unfinished requests."""
    best = order[0]
    for i in range(1, count):
        if st.server_i[order[i], k.S_LOAD] < st.server_i[best, k.S_LOAD]:
            best = order[i]
    return best


@compiled
def reset(st: State, r: int) -> None:
    """A request arrives, for the first time or again after a failure."""
    st.request_i[r, k.R_LEFT] = st.request_i[r, k.R_STEPS]
    st.request_f[r, k.R_TODO] = float(st.request_i[r, k.R_PROMPT] - st.request_i[r, k.R_HIT])
    st.request_f[r, k.R_CACHED] = float(st.request_i[r, k.R_HIT])
    st.request_f[r, k.R_CONTEXT] = float(st.request_i[r, k.R_PROMPT]) + 1.0
    st.request_f[r, k.R_LAST_TOKEN_S] = -1.0
    st.request_f[r, k.R_FIRST_S] = -1.0
    st.request_f[r, k.R_WORST_GAP_S] = 0.0
    st.request_i[r, k.R_LATE_GAPS] = 0
    st.request_i[r, k.R_HAS_CACHE] = 0
    st.request_f[r, k.R_START_S] = -1.0


@compiled
def assign(st: State, s: int, r: int, ready_s: float) -> None:
    """Queue a request at a server."""
    st.request_i[r, k.R_SERVER] = s
    st.server_i[s, k.S_LOAD] += 1
    wait_last(st, s, r, ready_s)


@compiled
def receive(cf: Config, st: State, s: int, r: int, sent_s: float) -> float:
    """Queue for the cards of a decode server; when the cache has arrived [s]."""
    wire = st.request_f[r, k.R_WIRE_S]
    begins = max(sent_s - wire, st.server_f[s, k.S_CARD_FREE_S])
    st.server_f[s, k.S_CARD_FREE_S] = begins + wire * cf.run_f[k.C_RECEIVE_SHARE]
    there = max(sent_s, begins + wire)
    st.request_f[r, k.R_TRANSFER_S] = there - st.request_f[r, k.R_PREFILL_DONE_S]
    st.request_i[r, k.R_HAS_CACHE] = 1
    st.request_f[r, k.R_CONTEXT] = float(st.request_i[r, k.R_PROMPT])
    return there
