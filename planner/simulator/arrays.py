"""The arrays that the compiled event loop works on, and their codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

STATIC, PREFILL_FIRST, CHUNKED, PREFILL, DECODE = range(5)
SCHEDULER_CODES = {"static": STATIC, "prefill_first": PREFILL_FIRST, "chunked": CHUNKED,
                   "prefill": PREFILL, "decode": DECODE}
RANDOM, ROUND_ROBIN, LEAST_LOADED, POWER_OF_TWO = range(4)
ROUTER_CODES = {"random": RANDOM, "round_robin": ROUND_ROBIN, "least_loaded": LEAST_LOADED,
                "power_of_two": POWER_OF_TWO}
ARRIVING, DONE, REFUSED = range(3)
SENT, WAKE, FAILURE, RECOVERY = range(4)
FIRST_GAP_S, BIN_WIDTH, GAP_BINS = 1e-6, 0.004, 5800
"""Histogram of gaps: bins of 0.4 % from 1 µs to 3 hours."""


class Config(NamedTuple):
    """What does not change in a run; pool arrays have two rows.

    ``grows``: blocks are taken step by step (else for the whole answer at admission).
    """

    count: int
    arrival_s: Floats
    start_s: float
    bin_s: float
    gap_limit_s: float
    router: int
    warmup: int
    layers: float
    scheduler: Ints
    first_server: Ints
    servers: Ints
    max_sequences: Ints
    token_budget: Ints
    prompts_per_pass: Ints
    block: Ints
    kinds: Ints
    draft_tokens: Ints
    grows: Flags
    occupancy: Floats
    yields: Floats
    capacity_bytes: Floats
    state_bytes: Floats
    windows: Floats
    block_bytes: Floats


class State(NamedTuple):
    """What changes: of requests (shape N), of servers (shape S), of pools, and of the run."""

    # requests
    prompt: Ints
    output: Ints
    hit: Ints
    steps: Ints
    yields: Floats
    wire_s: Floats
    status: Ints
    left: Ints
    todo: Floats
    cached: Floats
    context: Floats
    joined: Ints
    has_cache: Flags
    ready_s: Floats
    next: Ints
    previous: Ints
    server: Ints
    sent_from: Ints
    gap_since: Ints
    late_since: Ints
    last_token_s: Floats
    start_s: Floats
    first_s: Floats
    finish_s: Floats
    prefill_done_s: Floats
    transfer_s: Floats
    queued_s: Floats
    own_prefill_s: Floats
    lag_s: Floats
    worst_gap_s: Floats
    late_gaps: Ints
    preemptions: Ints
    retries: Ints
    # servers
    pool: Ints
    up: Flags
    down_until_s: Floats
    now_s: Floats
    running: Ints
    contexts: Floats
    growth: Floats
    step: Ints
    load: Ints
    wait_head: Ints
    wait_tail: Ints
    run_head: Ints
    run_tail: Ints
    partial: Ints
    partial_done: Floats
    last_step_s: Floats
    fresh: Ints
    fresh_count: Ints
    packed: Ints
    chunks: Ints
    step_key: Ints
    step_item: Ints
    heap_size: Ints
    stack_gap: Floats
    stack_step: Ints
    stack_size: Ints
    gap_step: Ints
    late: Ints
    used_bytes: Floats
    phase: Ints
    growing: Ints
    card_free_s: Floats
    # pools
    turn: Ints
    allocated_bytes: Floats
    freed_bytes: Floats
    sums: Floats
    timeline: Floats
    iterations: Ints
    passes: Ints
    base_s: Floats
    # the run
    event_key: Floats
    event_item: Ints
    events: Ints
    failing: Ints
    back_s: Floats
    arrived: Ints
    finished: Ints
    counting: Flags
    gaps: Ints
    random: NDArray[np.uint64]
