"""KV blocks: what sequences hold, how many steps still fit, and how they grow."""

from __future__ import annotations

import math

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import Config, State
from planner.simulator.kernel.heaps import push_step


@compiled
def sequence_bytes(cf: Config, q: int, tokens: float) -> float:
    """[B] of a sequence of ``tokens`` in whole blocks."""
    total = cf.pool_f[q, k.Q_STATE_BYTES]
    for g in range(cf.pool_i[q, k.Q_KINDS]):
        kept = min(tokens, cf.windows[q, g])
        total += math.ceil(kept / cf.pool_i[q, k.Q_BLOCK]) * cf.block_bytes[q, g]
    return total


@compiled
def held(cf: Config, st: State, q: int, r: int) -> float:
    """[token] reserved for the answer from the start, where blocks are not taken step by step."""
    return 0.0 if cf.pool_i[q, k.Q_GROWS] else float(st.request_i[r, k.R_OUTPUT])


@compiled
def take_memory(cf: Config, st: State, s: int, q: int, tokens: float) -> None:
    """Allocate the blocks of a sequence."""
    size = sequence_bytes(cf, q, tokens)
    st.server_f[s, k.S_USED_BYTES] += size
    st.pool_f[q, k.P_ALLOCATED_BYTES] += size


@compiled
def free_memory(cf: Config, st: State, s: int, q: int, tokens: float) -> None:
    """Give the blocks of a sequence back."""
    size = sequence_bytes(cf, q, tokens)
    st.server_f[s, k.S_USED_BYTES] -= size
    st.pool_f[q, k.P_FREED_BYTES] += size


@compiled
def new_bytes(cf: Config, st: State, s: int, q: int, steps: int) -> float:
    """[B] that the running sequences take in the next decode steps."""
    total, block = 0.0, cf.pool_i[q, k.Q_BLOCK]
    whole, rest = steps // block, steps % block
    for g in range(cf.pool_i[q, k.Q_KINDS]):
        if st.growing[s, g] == 0:
            continue
        blocks = whole * st.growing[s, g]
        place = (block - st.server_i[s, k.S_STEP] % block) % block
        for _ in range(rest):
            blocks += st.phase[s, g, place]
            place -= 1
            if place < 0:
                place = block - 1
        total += blocks * cf.block_bytes[q, g]
    return total


@compiled
def steps_that_fit(cf: Config, st: State, s: int, q: int, steps: int) -> int:
    """Most of the next ``steps`` decode steps whose blocks are free."""
    if cf.pool_i[q, k.Q_GROWS] == 0:
        return steps
    left = cf.pool_f[q, k.Q_CAPACITY_BYTES] - st.server_f[s, k.S_USED_BYTES]
    whole = steps // cf.pool_i[q, k.Q_BLOCK] + 1
    most = 0.0
    for g in range(cf.pool_i[q, k.Q_KINDS]):
        most += whole * st.growing[s, g] * cf.block_bytes[q, g]
    if most <= left:
        return steps
    low, high = 0, steps
    while low < high:
        middle = (low + high + 1) >> 1
        if new_bytes(cf, st, s, q, middle) <= left:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def grow_memory(cf: Config, st: State, s: int, q: int, steps: int) -> None:
    """Allocate the blocks of the next ``steps`` decode steps."""
    if cf.pool_i[q, k.Q_GROWS]:
        size = new_bytes(cf, st, s, q, steps)
        st.server_f[s, k.S_USED_BYTES] += size
        st.pool_f[q, k.P_ALLOCATED_BYTES] += size


@compiled
def start_growing(cf: Config, st: State, s: int, q: int, r: int) -> None:
    """Count a sequence that joins under the phase of its last block, kind by kind of layer."""
    if cf.pool_i[q, k.Q_GROWS] == 0:
        return
    tokens = int(st.request_f[r, k.R_CONTEXT])
    place = (tokens - st.server_i[s, k.S_STEP]) % cf.pool_i[q, k.Q_BLOCK]
    for g in range(cf.pool_i[q, k.Q_KINDS]):
        if tokens < cf.windows[q, g]:
            st.phase[s, g, place] += 1
            st.growing[s, g] += 1
            if tokens + st.request_i[r, k.R_LEFT] > cf.windows[q, g]:
                push_step(
                    st,
                    s,
                    st.server_i[s, k.S_STEP] + int(cf.windows[q, g]) - tokens,
                    r + (g + 1) * cf.run_i[k.C_COUNT],
                )


@compiled
def stop_growing(cf: Config, st: State, s: int, q: int, r: int, g: int) -> None:
    """A sequence has filled a window, or leaves."""
    st.phase[
        s,
        g,
        (int(st.request_f[r, k.R_CONTEXT]) - st.request_i[r, k.R_JOINED]) % cf.pool_i[q, k.Q_BLOCK],
    ] -= 1
    st.growing[s, g] -= 1
