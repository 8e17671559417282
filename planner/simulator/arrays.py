"""The arrays that the compiled event loop works on, and their codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STATIC, PREFILL_FIRST, CHUNKED, PREFILL, DECODE = range(5)
SCHEDULER_CODES = {"static": STATIC, "prefill_first": PREFILL_FIRST, "chunked": CHUNKED,
                   "prefill": PREFILL, "decode": DECODE}
RANDOM, ROUND_ROBIN, LEAST_LOADED, POWER_OF_TWO = range(4)
ROUTER_CODES = {"random": RANDOM, "round_robin": ROUND_ROBIN, "least_loaded": LEAST_LOADED,
                "power_of_two": POWER_OF_TWO}
ARRIVING, DONE, REFUSED = range(3)
ARRIVAL, SENT, WAKE, FAILURE, RECOVERY = range(5)
FIRST_GAP_S, BIN_WIDTH, GAP_BINS = 1e-6, 0.004, 5800
"""Histogram of gaps: bins of 0.4 % from 1 µs to 3 hours."""


class Config(NamedTuple):
    """What does not change in a run; pool arrays have two rows.

    ``k.Q_GROWS``: blocks are taken step by step (else for the whole answer at admission).
    """

    run_i: Ints
    run_f: Floats
    pool_i: Ints
    pool_f: Floats
    arrival_s: Floats
    windows: Floats
    block_bytes: Floats


class State(NamedTuple):
    """What changes: of requests (N rows), servers (S rows), pools (2 rows) and the run."""

    request_i: Ints
    request_f: Floats
    server_i: Ints
    server_f: Floats
    pool_i: Ints
    pool_f: Floats
    run_i: Ints
    fresh: Ints
    packed: Ints
    chunks: Ints
    step_key: Ints
    step_item: Ints
    stack_gap: Floats
    stack_step: Ints
    phase: Ints
    growing: Ints
    sums: Floats
    timeline: Floats
    base_s: Floats
    event_key: Floats
    event_item: Ints
    failing: Ints
    back_s: Floats
    gaps: Ints
    random: NDArray[np.uint64]
