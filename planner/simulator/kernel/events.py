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
from planner.simulator.kernel.failures import lose
from planner.simulator.kernel.heaps import heap_fill, push_event
from planner.simulator.kernel.routing import assign, candidates, least_loaded, receive, reset
from planner.simulator.kernel.servers import advance, launch
from planner.stepping import PackedSteps


@compiled
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
    servers, total = st.server_i.shape[0], cf.run_i[k.C_COUNT]
    order = np.zeros(servers, dtype=np.int64)
    lost, lost_s = -1, 0.0
    over = False
    while not over:
        action, index, q, count, now, again = ARRIVAL, 0, 0, 0, 0.0, False
        i = st.run_i[k.N_ARRIVED]
        arrival = cf.arrival_s[i] if i < total else math.inf
        event = st.event_key[0] if st.run_i[k.N_EVENTS] > 0 else math.inf
        if lost >= 0:
            index, now, again = lost, lost_s, True
            st.server_i[st.request_i[index, k.R_SERVER], k.S_LOAD] -= 1
            lost = st.request_i[index, k.R_NEXT]
            st.request_i[index, k.R_NEXT] = -1
            st.request_i[index, k.R_RETRIES] += 1
        elif event <= arrival and event < math.inf:
            item, now = st.event_item[0], event
            st.run_i[k.N_EVENTS] -= 1
            heap_fill(st.event_key, st.event_item, st.run_i[k.N_EVENTS], 0)
            action, index = item % 8, item // 8
            q = 1 if action == SENT else 0
        elif i < upto:
            st.run_i[k.N_ARRIVED] += 1
            if i == cf.run_i[k.C_WARMUP]:
                st.run_i[k.N_COUNTING] = 1
            if st.request_i[i, k.R_STATUS] != ARRIVING:
                continue
            index, now = i, arrival
        elif i < total:
            break
        else:
            over, now, count = True, math.inf, servers
            for s in range(servers):
                order[s] = s
        if action == ARRIVAL and not over:
            reset(st, index)
        if (action == ARRIVAL and not over) or action == SENT:
            if action == SENT:
                st.server_i[st.request_i[index, k.R_SENT_FROM], k.S_LOAD] -= 1
            count = candidates(cf, st, q, order)
        elif action == FAILURE:
            q = st.server_i[st.failing[index], k.S_POOL]
            count = cf.pool_i[q, k.Q_RANKS]
            for at in range(count):
                order[at] = st.failing[index] + at
        # Loads are compared by servers that may lag where they end nothing; once, before the
        # warm-up ends, all are brought up, so that no earlier gap is counted.
        lags = count > 1 and action != FAILURE and not over
        lags = lags and st.run_i[k.N_ARRIVED] != cf.run_i[k.C_WARMUP]
        for at in range(count):
            if cf.pool_i[st.server_i[order[at], k.S_POOL], k.Q_SCHEDULER] != PREFILL:
                advance(cf, st, p0, p1, d0, d1, order[at], now, lags)
        if over:
            break
        waking = -1
        if action == ARRIVAL:
            waking = least_loaded(st, order, count)
            if lags and cf.pool_i[st.server_i[waking, k.S_POOL], k.Q_SCHEDULER] != PREFILL:
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
            s = st.failing[index]
            if now >= st.server_f[s, k.S_DOWN_UNTIL_S]:
                for rank in range(cf.pool_i[st.server_i[s, k.S_POOL], k.Q_RANKS]):
                    st.server_i[s + rank, k.S_UP] = 1
                    now_s = max(st.server_f[s + rank, k.S_NOW_S], now)
                    st.server_f[s + rank, k.S_NOW_S] = now_s
                    if cf.pool_i[st.server_i[s, k.S_POOL], k.Q_SCHEDULER] == PREFILL:
                        launch(cf, st, p0, s + rank, now)
        if waking >= 0 and cf.pool_i[st.server_i[waking, k.S_POOL], k.Q_SCHEDULER] == PREFILL:
            if again:  # all that was lost queues before a pass begins
                push_event(st, now, WAKE + 8 * waking)
            else:
                launch(cf, st, p0, waking, now)
