"""Servers that are advanced to some time, and started when work comes."""

from __future__ import annotations

import math

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import CHUNKED, SENT, STATIC, WAKE, Config, State
from planner.simulator.kernel.admission import admit, may_admit, prefill_pass
from planner.simulator.kernel.batch import account
from planner.simulator.kernel.blocks import free_memory, steps_that_fit
from planner.simulator.kernel.chunked import chunked_step
from planner.simulator.kernel.heaps import push_event
from planner.simulator.kernel.prefill_first import prefill_first_step
from planner.simulator.kernel.static import static_step
from planner.stepping import PackedSteps, decode_line


@compiled
def advance(
    cf: Config,
    st: State,
    p0: PackedSteps,
    p1: PackedSteps,
    d0: PackedSteps,
    d1: PackedSteps,
    s: int,
    until: float,
    lags: bool,
) -> None:
    """Play a server: every step that begins before ``until``; with ``lags`` at least those that
    may end a request, so that its load is that of ``until``."""
    q = st.server_i[s, k.S_POOL]
    p, draft = (p0, d0) if q == 0 else (p1, d1)
    while st.server_f[s, k.S_NOW_S] < until:
        if lags and ends_nothing(cf, st, p, s, until):
            return
        head = st.server_i[s, k.S_WAIT_HEAD]
        if st.server_i[s, k.S_RUNNING] == 0 and st.server_i[s, k.S_PARTIAL] < 0:
            if head < 0:
                return
            st.server_f[s, k.S_NOW_S] = max(
                st.server_f[s, k.S_NOW_S], st.request_f[head, k.R_READY_S]
            )
            if st.server_f[s, k.S_NOW_S] >= until:
                return
        kind = cf.pool_i[q, k.Q_SCHEDULER]
        if kind == CHUNKED:
            chunked_step(cf, st, p, draft, s, q, until)
        elif kind == STATIC:
            static_step(cf, st, p, draft, s, q)
        else:
            prefill_first_step(cf, st, p, draft, s, q, until)


@compiled
def ends_nothing(cf: Config, st: State, p: PackedSteps, s: int, until: float) -> bool:
    """Whether a server that only decodes surely ends no request in a step that begins before
    ``until``, so that its load is known without playing it.

    Steps get no shorter while contexts grow and nobody leaves, and nobody leaves while the blocks
    suffice. False where that is not sure.
    """
    q = st.server_i[s, k.S_POOL]
    if st.server_i[s, k.S_WAIT_HEAD] >= 0 or st.server_i[s, k.S_PARTIAL] >= 0:
        return False
    if st.server_i[s, k.S_RUNNING] == 0 or cf.pool_i[q, k.Q_DRAFT_TOKENS] > 0:
        return False
    steps = st.step_key[s, 0] - st.server_i[s, k.S_STEP]
    base = st.base_s[q, st.server_i[s, k.S_RUNNING]]
    if steps <= 1 or math.isnan(base) or steps_that_fit(cf, st, s, q, steps) < steps:
        return False
    n = float(st.server_i[s, k.S_RUNNING])
    seconds = decode_line(p, base, n, st.server_f[s, k.S_CONTEXTS] / n)[0]
    return st.server_f[s, k.S_NOW_S] + (1.0 - 1e-9) * seconds * (steps - 1) >= until


@compiled
def launch(cf: Config, st: State, p: PackedSteps, s: int, now: float) -> None:
    """A free prefill replica takes what waits; hand-overs follow."""
    if (
        st.server_f[s, k.S_NOW_S] > now
        or st.server_i[s, k.S_WAIT_HEAD] < 0
        or not st.server_i[s, k.S_UP]
    ):
        return
    st.server_f[s, k.S_NOW_S] = now
    count, tokens = 0, 0.0
    while st.server_i[s, k.S_WAIT_HEAD] >= 0 and count < cf.pool_i[0, k.Q_PROMPTS_PER_PASS]:
        r = st.server_i[s, k.S_WAIT_HEAD]
        if count > 0 and tokens + st.request_f[r, k.R_TODO] > cf.pool_i[0, k.Q_TOKEN_BUDGET]:
            break
        if not may_admit(cf, st, s, 0, r, count) and count > 0:
            break
        admit(cf, st, s, 0)
        tokens += st.request_f[r, k.R_TODO]
        st.packed[s, count] = r
        count += 1
    seconds = prefill_pass(cf, st, p, s, 0, count)
    end, free = now + seconds, now + seconds * cf.pool_f[0, k.Q_OCCUPANCY]
    account(cf, st, 0, now, free, float(count), st.server_f[s, k.S_USED_BYTES])
    st.server_f[s, k.S_NOW_S] = free
    st.pool_i[0, k.P_PASSES] += 1
    for i in range(count):
        r = st.packed[s, i]
        free_memory(cf, st, s, 0, st.request_f[r, k.R_CONTEXT])
        st.request_f[r, k.R_OWN_PREFILL_S] += seconds
        st.request_f[r, k.R_PREFILL_DONE_S] = end
        wire = st.request_f[r, k.R_WIRE_S]
        begins = max(now + seconds / cf.run_f[k.C_LAYERS], st.server_f[s, k.S_CARD_FREE_S])
        st.server_f[s, k.S_CARD_FREE_S] = begins + wire * cf.run_f[k.C_SEND_SHARE]
        sent = max(begins + wire, end + wire / cf.run_f[k.C_LAYERS])
        st.request_i[r, k.R_SENT_FROM] = s
        push_event(st, sent, SENT + 8 * r)
    push_event(st, free, WAKE + 8 * s)
