"""The events of a run: arrivals, transfers, failures and recoveries."""

from __future__ import annotations

import math

import numpy as np

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import (
    ARRIVAL,
    ARRIVING,
    FAILURE,
    PREFILL,
    RECOVERY,
    SENT,
    WAKE,
    Config,
    State,
)
from planner.simulator.kernel.failures import lose, recover
from planner.simulator.kernel.heaps import heap_fill, push_event
from planner.simulator.kernel.routing import assign, candidates, least_loaded, receive, reset
from planner.simulator.kernel.servers import advance, launch
from planner.simulator.kernel.stored import entry
from planner.stepping import PackedSteps

STOP, SKIP = -1, -2
"""In place of an event: the next arrival is not asked for yet; a request that never arrives."""


@compiled
def next_event(cf: Config, st: State, upto: int, lost: int, lost_s: float
               ) -> tuple[int, int, float]:
    """Take the next event: what it is, whose, and when [s].

    First the requests of a failed server, a list that begins with ``lost``; each arrives anew.
    """
    i, total = st.run_i[k.N_ARRIVED], cf.run_i[k.C_COUNT]
    arrival = cf.arrival_s[i] if i < total else math.inf
    event = st.event_key[0] if st.run_i[k.N_EVENTS] > 0 else math.inf
    if lost >= 0:
        st.server_i[st.request_i[lost, k.R_SERVER], k.S_LOAD] -= 1
        st.request_i[lost, k.R_RETRIES] += 1
        return ARRIVAL, lost, lost_s
    if event <= arrival and event < math.inf:
        item = st.event_item[0]
        st.run_i[k.N_EVENTS] -= 1
        heap_fill(st.event_key, st.event_item, st.run_i[k.N_EVENTS], 0)
        return item % 8, item // 8, event
    if i >= upto:
        return STOP, 0, math.inf
    st.run_i[k.N_ARRIVED] += 1
    if i == cf.run_i[k.C_WARMUP]:
        st.run_i[k.N_COUNTING] = 1
    return ARRIVAL if st.request_i[i, k.R_STATUS] == ARRIVING else SKIP, i, arrival


@compiled
def concerned(cf: Config, st: State, action: int, index: int, order: np.ndarray) -> int:
    """How many servers an event concerns; they are put in ``order``."""
    if action == ARRIVAL:
        reset(st, index)
        return candidates(cf, st, 0, order)
    if action == SENT:
        st.server_i[st.request_i[index, k.R_SENT_FROM], k.S_LOAD] -= 1
        return candidates(cf, st, 1, order)
    count, first = 0, 0
    if action == FAILURE:
        first = st.failing[index]
        count = cf.pool_i[st.server_i[first, k.S_POOL], k.Q_RANKS]
    elif action == STOP:
        count = st.server_i.shape[0]
    for at in range(count):
        order[at] = first + at
    return count


@compiled
def prefills_only(cf: Config, st: State, s: int) -> bool:
    """Whether a server is one of a prefill pool, whose passes are events themselves."""
    return cf.pool_i[st.server_i[s, k.S_POOL], k.Q_SCHEDULER] == PREFILL


@entry
def run_events(
    cf: Config,
    st: State,
    p0: PackedSteps,
    p1: PackedSteps,
    d0: PackedSteps,
    d1: PackedSteps,
    upto: int,
) -> None:
    """Run to the arrival of request ``upto``; to the end when there is none.

    Each turn takes the next event, brings the servers that it concerns up to its time, then acts.
    """
    order = np.zeros(st.server_i.shape[0], dtype=np.int64)
    lost, lost_s = -1, 0.0
    while True:
        action, index, now = next_event(cf, st, upto, lost, lost_s)
        again = lost >= 0
        if again:
            lost = st.request_i[index, k.R_NEXT]
            st.request_i[index, k.R_NEXT] = -1
        if action == SKIP:
            continue
        if action == STOP and upto < cf.run_i[k.C_COUNT]:
            return
        count = concerned(cf, st, action, index, order)
        # Loads are compared by servers that may lag where they end nothing; once, before the
        # warm-up ends, all are brought up, so that no earlier gap is counted.
        lags = count > 1 and action in (ARRIVAL, SENT)
        lags = lags and st.run_i[k.N_ARRIVED] != cf.run_i[k.C_WARMUP]
        for at in range(count):
            if not prefills_only(cf, st, order[at]):
                advance(cf, st, p0, p1, d0, d1, order[at], now, lags)
        if action == STOP:
            return
        waking = -1
        if action == ARRIVAL:
            waking = least_loaded(st, order, count)
            if lags and not prefills_only(cf, st, waking):
                advance(cf, st, p0, p1, d0, d1, waking, now, False)
            assign(st, waking, index, now)
        elif action == SENT:
            s = least_loaded(st, order, count)
            if lags:
                advance(cf, st, p0, p1, d0, d1, s, now, False)
            assign(st, s, index, receive(cf, st, s, index, now))
        elif action == WAKE:
            waking = index
        elif action == FAILURE:
            lost_s = now
            for at in range(count):
                lost = lose(cf, st, order[at], st.back_s[index], lost)
        elif action == RECOVERY:
            recover(cf, st, p0, d0, st.failing[index], now)
        if waking >= 0 and prefills_only(cf, st, waking):
            if again:  # all that was lost queues before a pass begins
                push_event(st, now, WAKE + 8 * waking)
            else:
                launch(cf, st, p0, d0, waking, now)
