"""The running batch of a server: joining, leaving, preemption, and its timeline."""

from __future__ import annotations

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import DONE, Config, State
from planner.simulator.kernel.blocks import free_memory, held, start_growing, stop_growing
from planner.simulator.kernel.gaps import close_gaps, count_gap
from planner.simulator.kernel.heaps import forget_steps, push_step
from planner.simulator.kernel.lists import run_last, run_remove, wait_first


@compiled
def account(
    cf: Config, st: State, q: int, start: float, end: float, running: float, kv_bytes: float
) -> None:
    """Add a busy stretch to the bins of the timeline and to the sums."""
    st.sums[q, 0] += end - start
    st.sums[q, 1] += running * (end - start)
    st.sums[q, 2] += kv_bytes * (end - start)
    last = st.timeline.shape[1] - 1
    i = min(max(int((start - cf.run_f[k.C_START_S]) / cf.run_f[k.C_BIN_S]), 0), last)
    at = start
    while at < end:
        edge = end if i >= last else min(end, cf.run_f[k.C_START_S] + (i + 1) * cf.run_f[k.C_BIN_S])
        if edge > at:
            st.timeline[q, i, 0] += edge - at
            st.timeline[q, i, 1] += running * (edge - at)
            st.timeline[q, i, 2] += kv_bytes * (edge - at)
            at = edge
        i = min(i + 1, last)


@compiled
def join(cf: Config, st: State, s: int, q: int, r: int) -> None:
    """A request starts to decode (its blocks are taken)."""
    st.server_i[s, k.S_RUNNING] += 1
    st.server_f[s, k.S_CONTEXTS] += st.request_f[r, k.R_CONTEXT]
    st.server_f[s, k.S_GROWTH] += st.request_f[r, k.R_YIELDS]
    st.request_i[r, k.R_JOINED] = st.server_i[s, k.S_STEP]
    run_last(st, s, r)
    push_step(st, s, st.server_i[s, k.S_STEP] + st.request_i[r, k.R_LEFT], r)
    start_growing(cf, st, s, q, r)
    st.fresh[s, st.server_i[s, k.S_FRESH_COUNT]] = r
    st.server_i[s, k.S_FRESH_COUNT] += 1


@compiled
def context_now(st: State, s: int, r: int) -> float:
    """[token] of a running request."""
    return st.request_f[r, k.R_CONTEXT] + st.request_f[r, k.R_YIELDS] * (
        st.server_i[s, k.S_STEP] - st.request_i[r, k.R_JOINED]
    )


@compiled
def finish(st: State, s: int, r: int, end: float) -> None:
    """The last token is out."""
    st.request_f[r, k.R_FINISH_S] = end
    st.request_i[r, k.R_STATUS] = DONE
    st.server_i[s, k.S_LOAD] -= 1
    st.run_i[k.N_FINISHED] += 1


@compiled
def leave(cf: Config, st: State, s: int, q: int, r: int, final: float) -> float:
    """Take a running request off its server and free its blocks; its context.

    ``final`` is the context it would have had at its end: windows beyond it were never crossed.
    """
    tokens = context_now(st, s, r)
    st.server_i[s, k.S_RUNNING] -= 1
    st.server_f[s, k.S_CONTEXTS] -= tokens
    st.server_f[s, k.S_GROWTH] -= st.request_f[r, k.R_YIELDS]
    if st.server_i[s, k.S_RUNNING] == 0:
        st.server_f[s, k.S_CONTEXTS] = 0.0
        st.server_f[s, k.S_GROWTH] = 0.0
    run_remove(st, s, r)
    if cf.pool_i[q, k.Q_GROWS] == 0:
        free_memory(cf, st, s, q, st.request_f[r, k.R_CONTEXT] + held(cf, st, q, r))
    else:
        free_memory(cf, st, s, q, tokens)
        for g in range(cf.pool_i[q, k.Q_KINDS]):
            window = cf.windows[q, g]
            if st.request_f[r, k.R_CONTEXT] < window and not (tokens >= window and final > window):
                stop_growing(cf, st, s, q, r, g)
    return tokens


@compiled
def first_token(cf: Config, st: State, s: int, q: int, r: int, end: float) -> None:
    """A prefill on a serving pool is done: one token is out, the rest is decoded."""
    if st.request_f[r, k.R_LAST_TOKEN_S] < 0.0:
        st.request_f[r, k.R_FIRST_S] = end
    else:
        gap = end - st.request_f[r, k.R_LAST_TOKEN_S]
        st.request_f[r, k.R_WORST_GAP_S] = max(st.request_f[r, k.R_WORST_GAP_S], gap)
        st.request_i[r, k.R_LATE_GAPS] += 1 if gap > cf.run_f[k.C_GAP_LIMIT_S] else 0
        count_gap(cf, st, gap, 1)
    st.request_f[r, k.R_LAST_TOKEN_S] = end
    st.request_i[r, k.R_LEFT] -= 1
    if st.request_i[r, k.R_LEFT] > 0:
        join(cf, st, s, q, r)
    else:
        free_memory(cf, st, s, q, st.request_f[r, k.R_CONTEXT] + held(cf, st, q, r))
        finish(st, s, r, end)


@compiled
def preempt(cf: Config, st: State, s: int, q: int) -> None:
    """The latest admitted gives its blocks up and is computed again later, prompt and answer."""
    r = st.server_i[s, k.S_RUN_TAIL]
    key = forget_steps(st, s, r, cf.run_i[k.C_COUNT])
    final = st.request_f[r, k.R_CONTEXT] + st.request_f[r, k.R_YIELDS] * (
        key - st.request_i[r, k.R_JOINED]
    )
    tokens = leave(cf, st, s, q, r, final)
    st.request_i[r, k.R_LEFT] = key - st.server_i[s, k.S_STEP]
    was_fresh = False
    for i in range(st.server_i[s, k.S_FRESH_COUNT]):
        if st.fresh[s, i] == r:
            st.server_i[s, k.S_FRESH_COUNT] -= 1
            st.fresh[s, i] = st.fresh[s, st.server_i[s, k.S_FRESH_COUNT]]
            was_fresh = True
            break
    if not was_fresh:
        close_gaps(st, s, r)
        st.request_f[r, k.R_LAST_TOKEN_S] = st.server_f[s, k.S_LAST_STEP_S]
    st.request_i[r, k.R_PREEMPTIONS] += 1
    st.request_i[r, k.R_HAS_CACHE] = 0
    st.request_f[r, k.R_TODO] = tokens
    st.request_f[r, k.R_CACHED] = 0.0
    st.request_f[r, k.R_CONTEXT] = tokens + 1.0
    wait_first(st, s, r, st.server_f[s, k.S_NOW_S])
