"""The step of a server on which prompts run before decodes go on."""

from __future__ import annotations

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import Config, State
from planner.simulator.kernel.admission import next_ready, pack, prefill_pass
from planner.simulator.kernel.batch import account, first_token
from planner.simulator.kernel.decoding import decode_run
from planner.stepping import PackedSteps


@compiled
def prefill_first_step(
    cf: Config, st: State, p: PackedSteps, draft: PackedSteps, s: int, q: int, until: float
) -> None:
    """Whole waiting prompts first, then decodes."""
    count = pack(cf, st, s, q)
    if count:
        seconds, held = prefill_pass(cf, st, p, draft, s, q, count)
        start = st.server_f[s, k.S_NOW_S]
        end = start + held
        account(
            cf,
            st,
            q,
            start,
            end,
            float(st.server_i[s, k.S_RUNNING] + count),
            st.server_f[s, k.S_USED_BYTES],
        )
        st.server_f[s, k.S_NOW_S] = end
        st.pool_i[q, k.P_PASSES] += 1
        for i in range(count):
            r = st.packed[s, i]
            st.request_f[r, k.R_OWN_PREFILL_S] += seconds
            st.request_f[r, k.R_LAG_S] += seconds - held
            first_token(cf, st, s, q, r, end)
    elif st.server_i[s, k.S_RUNNING] > 0:
        decode_run(cf, st, p, draft, s, q, next_ready(st, s, until))
