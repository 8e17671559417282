"""Lists of requests: those that wait at a server, and those that run on it."""

from __future__ import annotations

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import State


@compiled
def wait_last(st: State, s: int, r: int, ready_s: float) -> None:
    """Put a request at the end of a server's queue."""
    st.request_f[r, k.R_READY_S] = ready_s
    st.request_i[r, k.R_NEXT] = -1
    st.request_i[r, k.R_PREVIOUS] = st.server_i[s, k.S_WAIT_TAIL]
    if st.server_i[s, k.S_WAIT_TAIL] >= 0:
        st.request_i[st.server_i[s, k.S_WAIT_TAIL], k.R_NEXT] = r
    else:
        st.server_i[s, k.S_WAIT_HEAD] = r
    st.server_i[s, k.S_WAIT_TAIL] = r


@compiled
def wait_first(st: State, s: int, r: int, ready_s: float) -> None:
    """Put a preempted request at the head of its server's queue."""
    st.request_f[r, k.R_READY_S] = ready_s
    st.request_i[r, k.R_PREVIOUS] = -1
    st.request_i[r, k.R_NEXT] = st.server_i[s, k.S_WAIT_HEAD]
    if st.server_i[s, k.S_WAIT_HEAD] >= 0:
        st.request_i[st.server_i[s, k.S_WAIT_HEAD], k.R_PREVIOUS] = r
    else:
        st.server_i[s, k.S_WAIT_TAIL] = r
    st.server_i[s, k.S_WAIT_HEAD] = r


@compiled
def take_first(st: State, s: int) -> int:
    """Remove the head of a server's queue."""
    r = st.server_i[s, k.S_WAIT_HEAD]
    st.server_i[s, k.S_WAIT_HEAD] = st.request_i[r, k.R_NEXT]
    if st.request_i[r, k.R_NEXT] >= 0:
        st.request_i[st.request_i[r, k.R_NEXT], k.R_PREVIOUS] = -1
    else:
        st.server_i[s, k.S_WAIT_TAIL] = -1
    st.request_i[r, k.R_NEXT] = -1
    st.request_i[r, k.R_PREVIOUS] = -1
    return r


@compiled
def run_last(st: State, s: int, r: int) -> None:
    """Add a request to the running ones, latest admitted last."""
    st.request_i[r, k.R_NEXT] = -1
    st.request_i[r, k.R_PREVIOUS] = st.server_i[s, k.S_RUN_TAIL]
    if st.server_i[s, k.S_RUN_TAIL] >= 0:
        st.request_i[st.server_i[s, k.S_RUN_TAIL], k.R_NEXT] = r
    else:
        st.server_i[s, k.S_RUN_HEAD] = r
    st.server_i[s, k.S_RUN_TAIL] = r


@compiled
def run_remove(st: State, s: int, r: int) -> None:
    """Take a request out of the running ones."""
    before, after = st.request_i[r, k.R_PREVIOUS], st.request_i[r, k.R_NEXT]
    if before >= 0:
        st.request_i[before, k.R_NEXT] = after
    else:
        st.server_i[s, k.S_RUN_HEAD] = after
    if after >= 0:
        st.request_i[after, k.R_PREVIOUS] = before
    else:
        st.server_i[s, k.S_RUN_TAIL] = before
    st.request_i[r, k.R_NEXT] = -1
    st.request_i[r, k.R_PREVIOUS] = -1
