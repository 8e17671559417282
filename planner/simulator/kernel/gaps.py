"""Gaps between tokens: their histogram, and the longest of each request."""

from __future__ import annotations

import math

import numpy as np

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import BIN_WIDTH, FIRST_GAP_S, Config, State


@compiled
def count_gap(cf: Config, st: State, gap_s: float, weight: int) -> None:
    """Count gaps in the histogram once the warm-up is over."""
    if st.run_i[k.N_COUNTING] and weight > 0:
        place = int(math.log(max(gap_s, FIRST_GAP_S) / FIRST_GAP_S) / BIN_WIDTH)
        st.gaps[min(place, st.gaps.shape[0] - 1)] += weight


@compiled
def remember_gap(st: State, s: int, gap_s: float) -> None:
    """Keep the largest gap since any step on a stack that descends."""
    size = st.server_i[s, k.S_STACK_SIZE]
    while size > 0 and st.stack_gap[s, size - 1] <= gap_s:
        size -= 1
    if size == st.stack_gap.shape[1]:
        size = _thin_out(st, s)
    st.stack_gap[s, size] = gap_s
    st.stack_step[s, size] = st.server_i[s, k.S_GAP_STEP]
    st.server_i[s, k.S_STACK_SIZE] = size + 1
    st.server_i[s, k.S_GAP_STEP] += 1


@compiled
def _place_on_stack(st: State, s: int, since: int) -> int:
    low, high = 0, st.server_i[s, k.S_STACK_SIZE]
    while low < high:
        middle = (low + high) >> 1
        if st.stack_step[s, middle] >= since:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def largest_gap(st: State, s: int, since: int) -> float:
    """Largest gap from step ``since`` on, 0 when there was none."""
    place = _place_on_stack(st, s, since)
    return st.stack_gap[s, place] if place < st.server_i[s, k.S_STACK_SIZE] else 0.0


@compiled
def _thin_out(st: State, s: int) -> int:
    """Keep only the gaps that a running request still needs (the stack has room for those)."""
    keep = np.zeros(st.server_i[s, k.S_STACK_SIZE] + 1, dtype=np.bool_)
    r = st.server_i[s, k.S_RUN_HEAD]
    while r >= 0:
        keep[_place_on_stack(st, s, st.request_i[r, k.R_GAP_SINCE])] = True
        r = st.request_i[r, k.R_NEXT]
    size = 0
    for i in range(st.server_i[s, k.S_STACK_SIZE]):
        if keep[i]:
            st.stack_gap[s, size] = st.stack_gap[s, i]
            st.stack_step[s, size] = st.stack_step[s, i]
            size += 1
    st.server_i[s, k.S_STACK_SIZE] = size
    return size


@compiled
def close_gaps(st: State, s: int, r: int) -> None:
    """Read the gaps of a request that stops decoding."""
    st.request_f[r, k.R_WORST_GAP_S] = max(
        st.request_f[r, k.R_WORST_GAP_S], largest_gap(st, s, st.request_i[r, k.R_GAP_SINCE])
    )
    st.request_i[r, k.R_LATE_GAPS] += st.server_i[s, k.S_LATE] - st.request_i[r, k.R_LATE_SINCE]
