"""The step of a server that serves one batch to its end."""

from __future__ import annotations

import math

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import Config, State
from planner.simulator.kernel.admission import admit, may_admit, prefill_pass
from planner.simulator.kernel.batch import account, finish
from planner.simulator.kernel.blocks import free_memory, held
from planner.simulator.kernel.decoding import _count_run, _late_steps, _span, drafted_line
from planner.simulator.kernel.gaps import largest_gap, remember_gap
from planner.simulator.kernel.heaps import pop_step, push_step
from planner.stepping import PackedSteps, batch_seconds, decodes_of


@compiled
def static_step(
    cf: Config, st: State, p: PackedSteps, draft: PackedSteps, s: int, q: int
) -> None:
    """A whole batch: its prefill, then decodes until its longest answer is done.

    The batch keeps its size: answers that are done are padded, and their blocks stay.
    """
    count = 0
    while st.server_i[s, k.S_WAIT_HEAD] >= 0 and may_admit(
        cf, st, s, q, st.server_i[s, k.S_WAIT_HEAD], count
    ):
        st.packed[s, count] = admit(cf, st, s, q)
        count += 1
    start = st.server_f[s, k.S_NOW_S]
    seconds = prefill_pass(cf, st, p, s, q, count)
    now = start + seconds * cf.pool_f[q, k.Q_OCCUPANCY]
    account(cf, st, q, start, now, float(count), st.server_f[s, k.S_USED_BYTES])
    contexts, steps = 0.0, 0
    for i in range(count):
        r = st.packed[s, i]
        st.request_f[r, k.R_OWN_PREFILL_S] += seconds
        st.request_f[r, k.R_LAG_S] += seconds * (1.0 - cf.pool_f[q, k.Q_OCCUPANCY])
        st.request_f[r, k.R_FIRST_S] = now
        contexts += st.request_f[r, k.R_CONTEXT]
        steps = max(steps, st.request_i[r, k.R_LEFT] - 1)
        push_step(st, s, st.request_i[r, k.R_LEFT] - 1, r)
    st.pool_i[q, k.P_PASSES] += 1
    n, done = float(count), 0
    base = batch_seconds(p, decodes_of(p, n), 0.0, 0.0, 0.0)
    before = now
    active = count
    while True:
        while st.server_i[s, k.S_HEAP_SIZE] > 0 and st.step_key[s, 0] <= done:
            r = pop_step(st, s)
            st.request_f[r, k.R_WORST_GAP_S] = largest_gap(st, s, 0)
            st.request_i[r, k.R_LATE_GAPS] = st.server_i[s, k.S_LATE]
            active -= 1
            finish(st, s, r, now)
        if done >= steps:
            break
        context = contexts / n
        first, slope, end = drafted_line(cf, p, draft, q, base, n, context)
        run = st.step_key[s, 0] - done
        grows = cf.pool_f[q, k.Q_YIELDS]
        if context + grows * (run - 1) > end:
            run = min(run, math.floor((end - context) / grows) + 1)
        rise = slope * grows
        remember_gap(st, s, first + rise * (run - 1))
        st.server_i[s, k.S_LATE] += _late_steps(first, rise, run, cf.run_f[k.C_GAP_LIMIT_S])
        _count_run(cf, st, first, rise, run, active)
        now += _span(first, rise, run)
        contexts += n * grows * run
        done += run
    account(cf, st, q, before, now, n, st.server_f[s, k.S_USED_BYTES])
    st.pool_i[q, k.P_ITERATIONS] += steps
    for i in range(count):
        r = st.packed[s, i]
        free_memory(cf, st, s, q, st.request_f[r, k.R_CONTEXT] + held(cf, st, q, r))
    st.server_i[s, k.S_STACK_SIZE] = 0
    st.server_i[s, k.S_GAP_STEP] = 0
    st.server_i[s, k.S_LATE] = 0
    st.server_f[s, k.S_NOW_S] = now
