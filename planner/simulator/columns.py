"""Names of the columns of the event loop's arrays: ``k.R_LEFT`` is a column of requests.

Plain two-dimensional arrays compile in a third of the time that records take.
"""

from __future__ import annotations

# -- a pool's settings (``Config.pool_i``, ``pool_f``)
(Q_SCHEDULER, Q_FIRST_SERVER, Q_SERVERS, Q_MAX_SEQUENCES, Q_TOKEN_BUDGET, Q_PROMPTS_PER_PASS,
 Q_BLOCK, Q_KINDS, Q_DRAFT_PASSES, Q_GROWS, Q_RANKS) = range(11)
(Q_OCCUPANCY, Q_YIELDS, Q_CAPACITY_BYTES, Q_STATE_BYTES) = range(4)

# -- the run's settings (``Config.run_i``, ``run_f``)
(C_COUNT, C_ROUTER, C_WARMUP) = range(3)
(C_START_S, C_BIN_S, C_GAP_LIMIT_S, C_LAYERS, C_SEND_SHARE, C_RECEIVE_SHARE) = range(6)

# -- requests (``State.request_i``, ``request_f``)
(R_PROMPT, R_OUTPUT, R_HIT, R_STEPS, R_STATUS, R_LEFT, R_JOINED, R_HAS_CACHE, R_NEXT,
 R_PREVIOUS, R_SERVER, R_SENT_FROM, R_GAP_SINCE, R_LATE_SINCE, R_LATE_GAPS, R_PREEMPTIONS,
 R_RETRIES) = range(17)
(R_YIELDS, R_WIRE_S, R_TODO, R_CACHED, R_CONTEXT, R_READY_S, R_LAST_TOKEN_S, R_START_S,
 R_FIRST_S, R_FINISH_S, R_PREFILL_DONE_S, R_TRANSFER_S, R_QUEUED_S, R_OWN_PREFILL_S, R_LAG_S,
 R_WORST_GAP_S) = range(16)

# -- servers (``State.server_i``, ``server_f``)
(S_POOL, S_UP, S_RUNNING, S_STEP, S_LOAD, S_WAIT_HEAD, S_WAIT_TAIL, S_RUN_HEAD, S_RUN_TAIL,
 S_PARTIAL, S_FRESH_COUNT, S_HEAP_SIZE, S_STACK_SIZE, S_GAP_STEP, S_LATE) = range(15)
(S_DOWN_UNTIL_S, S_NOW_S, S_CONTEXTS, S_GROWTH, S_PARTIAL_DONE, S_LAST_STEP_S, S_USED_BYTES,
 S_CARD_FREE_S) = range(8)

# -- pools (``State.pool_i``, ``pool_f``)
(P_TURN, P_ITERATIONS, P_PASSES) = range(3)
(P_ALLOCATED_BYTES, P_FREED_BYTES) = range(2)

# -- the run (``State.run_i``)
(N_EVENTS, N_ARRIVED, N_FINISHED, N_COUNTING) = range(4)
