"""What a failed server loses, and its recovery."""

from __future__ import annotations

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import PREFILL, Config, State
from planner.simulator.kernel.batch import leave
from planner.simulator.kernel.blocks import free_memory, held
from planner.simulator.kernel.heaps import forget_steps
from planner.simulator.kernel.lists import take_first
from planner.simulator.kernel.servers import launch
from planner.stepping import PackedSteps


@compiled
def lose(cf: Config, st: State, s: int, back: float, first: int) -> int:
    """A server goes down until ``back``; what it held goes before ``first`` in a chain."""
    q = st.server_i[s, k.S_POOL]
    st.server_i[s, k.S_UP] = 0
    st.server_f[s, k.S_DOWN_UNTIL_S] = max(st.server_f[s, k.S_DOWN_UNTIL_S], back)
    st.server_f[s, k.S_NOW_S] = max(st.server_f[s, k.S_NOW_S], st.server_f[s, k.S_DOWN_UNTIL_S])
    while st.server_i[s, k.S_RUN_TAIL] >= 0:
        r = st.server_i[s, k.S_RUN_TAIL]
        key = forget_steps(st, s, r, cf.run_i[k.C_COUNT])
        final = st.request_f[r, k.R_CONTEXT] + st.request_f[r, k.R_YIELDS] * (
            key - st.request_i[r, k.R_JOINED]
        )
        leave(cf, st, s, q, r, final)
        st.request_i[r, k.R_NEXT] = first
        first = r
    if st.server_i[s, k.S_PARTIAL] >= 0:
        r = st.server_i[s, k.S_PARTIAL]
        free_memory(cf, st, s, q, st.request_f[r, k.R_CONTEXT] + held(cf, st, q, r))
        st.server_i[s, k.S_PARTIAL] = -1
        st.request_i[r, k.R_NEXT] = first
        first = r
    st.server_i[s, k.S_FRESH_COUNT] = 0
    st.server_i[s, k.S_STACK_SIZE] = 0
    while st.server_i[s, k.S_WAIT_HEAD] >= 0:
        r = take_first(st, s)
        st.request_i[r, k.R_NEXT] = first
        first = r
    return first


@compiled
def recover(
    cf: Config, st: State, p: PackedSteps, draft: PackedSteps, s: int, now: float
) -> None:
    """A replica, whose first server this is, is up again; unless it failed anew meanwhile."""
    if now < st.server_f[s, k.S_DOWN_UNTIL_S]:
        return
    q = st.server_i[s, k.S_POOL]
    for rank in range(s, s + cf.pool_i[q, k.Q_RANKS]):
        st.server_i[rank, k.S_UP] = 1
        st.server_f[rank, k.S_NOW_S] = max(st.server_f[rank, k.S_NOW_S], now)
        if cf.pool_i[q, k.Q_SCHEDULER] == PREFILL:
            launch(cf, st, p, draft, rank, now)
