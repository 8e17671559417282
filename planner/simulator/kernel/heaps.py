"""Heaps: of what happens at the end of a decode step of a server, and of the events of the run."""

from __future__ import annotations

import numpy as np

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import State


@compiled
def heap_push(key: np.ndarray, item: np.ndarray, size: int, at: float, x: int) -> None:
    """Push onto a binary heap held in the first ``size`` places."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if key[parent] <= at:
            break
        key[i] = key[parent]
        item[i] = item[parent]
        i = parent
    key[i] = at
    item[i] = x


@compiled
def heap_pop(key: np.ndarray, item: np.ndarray, size: int) -> int:
    """Remove the smallest of ``size`` entries and return its item."""
    top = item[0]
    heap_fill(key, item, size - 1, 0)
    return top


@compiled
def heap_fill(key: np.ndarray, item: np.ndarray, last: int, hole: int) -> None:
    """Move the entry at ``last`` into a hole and restore the order of ``last`` entries."""
    at, x, i = key[last], item[last], hole
    if i >= last:
        return
    while i > 0 and key[(i - 1) >> 1] > at:
        parent = (i - 1) >> 1
        key[i] = key[parent]
        item[i] = item[parent]
        i = parent
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and key[child + 1] < key[child]:
            child += 1
        if key[child] >= at:
            break
        key[i] = key[child]
        item[i] = item[child]
        i = child
    key[i] = at
    item[i] = x


@compiled
def push_step(st: State, s: int, key: int, item: int) -> None:
    """Something happens to a running request at the end of decode step ``key``."""
    heap_push(st.step_key[s], st.step_item[s], st.server_i[s, k.S_HEAP_SIZE], key, item)
    st.server_i[s, k.S_HEAP_SIZE] += 1


@compiled
def pop_step(st: State, s: int) -> int:
    """The next such thing."""
    item = heap_pop(st.step_key[s], st.step_item[s], st.server_i[s, k.S_HEAP_SIZE])
    st.server_i[s, k.S_HEAP_SIZE] -= 1
    return item


@compiled
def forget_steps(st: State, s: int, r: int, count: int) -> int:
    """Remove every entry of a request; its finish step."""
    i, finish = 0, 0
    while i < st.server_i[s, k.S_HEAP_SIZE]:
        if st.step_item[s, i] % count == r:
            if st.step_item[s, i] == r:
                finish = st.step_key[s, i]
            st.server_i[s, k.S_HEAP_SIZE] -= 1
            heap_fill(st.step_key[s], st.step_item[s], st.server_i[s, k.S_HEAP_SIZE], i)
            i = -1
        i += 1
    return finish


@compiled
def push_event(st: State, when: float, item: int) -> None:
    """A global event: ``item`` = kind + 8 * index."""
    heap_push(st.event_key, st.event_item, st.run_i[k.N_EVENTS], when, item)
    st.run_i[k.N_EVENTS] += 1
