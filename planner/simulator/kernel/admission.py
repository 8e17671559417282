"""Who is admitted to a batch, and the prompts that one pass holds."""

from __future__ import annotations

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import Config, State
from planner.simulator.kernel.batch import join
from planner.simulator.kernel.blocks import held, sequence_bytes, take_memory
from planner.simulator.kernel.lists import take_first
from planner.stepping import PackedSteps, mixed_seconds, prompt_work


@compiled
def may_admit(cf: Config, st: State, s: int, q: int, r: int, taken: int) -> bool:
    """Whether a waiting request is here and has a place and blocks next to ``taken`` others."""
    if st.request_f[r, k.R_READY_S] > st.server_f[s, k.S_NOW_S]:
        return False
    if st.server_i[s, k.S_RUNNING] + taken >= cf.pool_i[q, k.Q_MAX_SEQUENCES]:
        return False
    need = sequence_bytes(cf, q, st.request_f[r, k.R_CONTEXT] + held(cf, st, q, r))
    return st.server_f[s, k.S_USED_BYTES] + need <= cf.pool_f[q, k.Q_CAPACITY_BYTES]


@compiled
def admit(cf: Config, st: State, s: int, q: int) -> int:
    """Take the head of the queue in."""
    r = take_first(st, s)
    take_memory(cf, st, s, q, st.request_f[r, k.R_CONTEXT] + held(cf, st, q, r))
    st.request_f[r, k.R_QUEUED_S] += st.server_f[s, k.S_NOW_S] - st.request_f[r, k.R_READY_S]
    if st.request_f[r, k.R_START_S] < 0.0:
        st.request_f[r, k.R_START_S] = st.server_f[s, k.S_NOW_S]
    return r


@compiled
def next_ready(st: State, s: int, until: float) -> float:
    """The time up to which the queue cannot change what runs."""
    head = st.server_i[s, k.S_WAIT_HEAD]
    if head >= 0 and st.request_f[head, k.R_READY_S] > st.server_f[s, k.S_NOW_S]:
        return min(until, st.request_f[head, k.R_READY_S])
    return until


@compiled
def prefill_pass(
    cf: Config, st: State, p: PackedSteps, draft: PackedSteps, s: int, q: int, count: int
) -> tuple[float, float]:
    """[s] of a pass over the ``count`` prompts in the server's list, and of it what keeps the
    server from the next: the time of one stage of a pipeline, and that of a draft model."""
    seconds = _prompts_seconds(st, p, s, count)
    held = seconds * cf.pool_f[q, k.Q_OCCUPANCY]
    if cf.pool_i[q, k.Q_DRAFT_PASSES] > 0:
        drafting = _prompts_seconds(st, draft, s, count)
        seconds += drafting
        held += drafting
    return seconds, held


@compiled
def _prompts_seconds(st: State, p: PackedSteps, s: int, count: int) -> float:
    tokens, compute, memory = 0.0, 0.0, 0.0
    for i in range(count):
        r = st.packed[s, i]
        c, m = prompt_work(p, st.request_f[r, k.R_TODO], st.request_f[r, k.R_CACHED])
        tokens += st.request_f[r, k.R_TODO]
        compute += c
        memory += m
    return mixed_seconds(p, 0.0, 0.0, tokens, float(count), float(count), compute, memory)


@compiled
def pack(cf: Config, st: State, s: int, q: int) -> int:
    """Move waiting prompts that fit one pass into the server's list; those that bring their cache
    along join at once."""
    count, tokens = 0, 0.0
    while st.server_i[s, k.S_WAIT_HEAD] >= 0 and count < cf.pool_i[q, k.Q_PROMPTS_PER_PASS]:
        r = st.server_i[s, k.S_WAIT_HEAD]
        if not may_admit(cf, st, s, q, r, count):
            break
        if st.request_i[r, k.R_HAS_CACHE]:
            admit(cf, st, s, q)
            join(cf, st, s, q, r)
            continue
        if count > 0 and tokens + st.request_f[r, k.R_TODO] > cf.pool_i[q, k.Q_TOKEN_BUDGET]:
            break
        admit(cf, st, s, q)
        tokens += st.request_f[r, k.R_TODO]
        st.packed[s, count] = r
        count += 1
    return count
