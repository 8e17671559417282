"""The step of a server that fills a budget of tokens with chunks of prompts."""

from __future__ import annotations

import math

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import Config, State
from planner.simulator.kernel.admission import admit, may_admit, next_ready
from planner.simulator.kernel.batch import account, first_token, preempt
from planner.simulator.kernel.blocks import new_bytes, steps_that_fit
from planner.simulator.kernel.decoding import after_steps, decode_run
from planner.stepping import (
    T_TOKENS_PER_DECODE,
    PackedSteps,
    draft_seconds,
    mixed_seconds,
    prompt_work,
)


@compiled
def chunked_step(
    cf: Config, st: State, p: PackedSteps, draft: PackedSteps, s: int, q: int, until: float
) -> None:
    """Every decode, and prompt tokens in what is left of the budget."""
    n = st.server_i[s, k.S_RUNNING]
    if n > 0 and st.server_i[s, k.S_WAIT_HEAD] < 0 and st.server_i[s, k.S_PARTIAL] < 0:
        decode_run(cf, st, p, draft, s, q, until)
        return
    space = cf.pool_i[q, k.Q_TOKEN_BUDGET] - n * p.one[T_TOKENS_PER_DECODE]
    ready, tokens, parts = 0, 0.0, 0
    compute, memory, draft_compute, draft_memory = 0.0, 0.0, 0.0, 0.0
    drafts = float(cf.pool_i[q, k.Q_DRAFT_PASSES])
    if n > 0 and steps_that_fit(cf, st, s, q, 1) == 0:
        preempt(cf, st, s, q)
        return
    grows = new_bytes(cf, st, s, q, 1) if n > 0 and cf.pool_i[q, k.Q_GROWS] else 0.0
    st.server_f[s, k.S_USED_BYTES] += grows
    while space >= 1.0:
        r = st.server_i[s, k.S_PARTIAL]
        if r < 0:
            if st.server_i[s, k.S_WAIT_HEAD] < 0 or not may_admit(
                cf, st, s, q, st.server_i[s, k.S_WAIT_HEAD], ready
            ):
                break
            r = admit(cf, st, s, q)
            st.server_i[s, k.S_PARTIAL] = r
            st.server_f[s, k.S_PARTIAL_DONE] = 0.0
        chunk = min(math.floor(space), st.request_f[r, k.R_TODO] - st.server_f[s, k.S_PARTIAL_DONE])
        before = st.request_f[r, k.R_CACHED] + st.server_f[s, k.S_PARTIAL_DONE]
        c, m = prompt_work(p, chunk, before)
        compute += c
        memory += m
        if drafts > 0.0:
            c, m = prompt_work(draft, chunk, before)
            draft_compute += c
            draft_memory += m
        tokens += chunk
        space -= chunk
        parts += 1
        st.server_f[s, k.S_PARTIAL_DONE] += chunk
        st.chunks[s, parts - 1] = r
        if st.server_f[s, k.S_PARTIAL_DONE] < st.request_f[r, k.R_TODO]:
            break
        st.packed[s, ready] = r
        ready += 1
        st.server_i[s, k.S_PARTIAL] = -1
    st.server_f[s, k.S_USED_BYTES] -= grows
    if parts == 0:
        if n > 0:
            decode_run(cf, st, p, draft, s, q, next_ready(st, s, until))
        return
    context = st.server_f[s, k.S_CONTEXTS] / n if n > 0 else 0.0
    seconds = mixed_seconds(
        p, float(n), context, tokens, float(parts), float(ready), compute, memory
    )
    if drafts > 0.0:
        seconds += draft_seconds(
            draft,
            drafts,
            float(n),
            context,
            tokens,
            float(parts),
            float(ready),
            draft_compute,
            draft_memory,
        )
    for i in range(parts):
        st.request_f[st.chunks[s, i], k.R_OWN_PREFILL_S] += seconds
    st.pool_i[q, k.P_PASSES] += 1
    start = st.server_f[s, k.S_NOW_S]
    end = start + seconds
    if n > 0:
        after_steps(cf, st, s, q, 1, seconds, 0.0)
    else:
        account(cf, st, q, start, end, 0.0, st.server_f[s, k.S_USED_BYTES])
        st.server_f[s, k.S_NOW_S] = end
    extra = float(ready + (1 if st.server_i[s, k.S_PARTIAL] >= 0 else 0))
    st.sums[q, 1] += extra * (end - start)
    for i in range(ready):
        first_token(cf, st, s, q, st.packed[s, i], end)
