"""Runs of decode steps in closed form."""

from __future__ import annotations

import math

from planner.compiled import compiled
from planner.simulator import columns as k
from planner.simulator.arrays import BIN_WIDTH, Config, State
from planner.simulator.kernel.batch import account, context_now, finish, leave, preempt
from planner.simulator.kernel.blocks import grow_memory, steps_that_fit, stop_growing
from planner.simulator.kernel.gaps import close_gaps, count_gap, remember_gap
from planner.simulator.kernel.heaps import pop_step
from planner.stepping import PackedSteps, batch_seconds, decode_line, decodes_of


@compiled
def after_steps(
    cf: Config, st: State, s: int, q: int, steps: int, first_s: float, rise_s: float
) -> None:
    """Book ``steps`` decode steps, the first of ``first_s`` seconds and each ``rise_s`` longer."""
    start = st.server_f[s, k.S_NOW_S]
    end_first = start + first_s
    end = start + steps * first_s + rise_s * (steps * (steps - 1) / 2.0)
    last_s = first_s + rise_s * (steps - 1)
    old = st.server_i[s, k.S_RUNNING] - st.server_i[s, k.S_FRESH_COUNT]
    if old > 0:
        gap = end_first - st.server_f[s, k.S_LAST_STEP_S]
        remember_gap(st, s, gap)
        st.server_i[s, k.S_LATE] += 1 if gap > cf.run_f[k.C_GAP_LIMIT_S] else 0
        count_gap(cf, st, gap, old)
    for i in range(st.server_i[s, k.S_FRESH_COUNT]):
        r = st.fresh[s, i]
        if st.request_f[r, k.R_LAST_TOKEN_S] < 0.0:
            st.request_f[r, k.R_FIRST_S] = end_first
        else:
            gap = end_first - st.request_f[r, k.R_LAST_TOKEN_S]
            st.request_f[r, k.R_WORST_GAP_S] = max(st.request_f[r, k.R_WORST_GAP_S], gap)
            st.request_i[r, k.R_LATE_GAPS] += 1 if gap > cf.run_f[k.C_GAP_LIMIT_S] else 0
            count_gap(cf, st, gap, 1)
        st.request_f[r, k.R_LAST_TOKEN_S] = end_first
        st.request_i[r, k.R_GAP_SINCE] = st.server_i[s, k.S_GAP_STEP]
        st.request_i[r, k.R_LATE_SINCE] = st.server_i[s, k.S_LATE]
    st.server_i[s, k.S_FRESH_COUNT] = 0
    if steps > 1:
        remember_gap(st, s, max(last_s, first_s + rise_s))
        st.server_i[s, k.S_LATE] += _late_steps(
            first_s + rise_s, rise_s, steps - 1, cf.run_f[k.C_GAP_LIMIT_S]
        )
        _count_run(cf, st, first_s + rise_s, rise_s, steps - 1, st.server_i[s, k.S_RUNNING])
    before = st.server_f[s, k.S_USED_BYTES]
    grow_memory(cf, st, s, q, steps)
    account(
        cf,
        st,
        q,
        start,
        end,
        float(st.server_i[s, k.S_RUNNING]),
        (before + st.server_f[s, k.S_USED_BYTES]) / 2.0,
    )
    st.server_f[s, k.S_CONTEXTS] += st.server_f[s, k.S_GROWTH] * steps
    st.server_i[s, k.S_STEP] += steps
    st.pool_i[q, k.P_ITERATIONS] += steps
    st.server_f[s, k.S_LAST_STEP_S] = end
    st.server_f[s, k.S_NOW_S] = end
    while st.server_i[s, k.S_HEAP_SIZE] > 0 and st.step_key[s, 0] <= st.server_i[s, k.S_STEP]:
        item = pop_step(st, s)
        r = item % cf.run_i[k.C_COUNT]
        if item >= cf.run_i[k.C_COUNT]:
            stop_growing(cf, st, s, q, r, item // cf.run_i[k.C_COUNT] - 1)
        else:
            close_gaps(st, s, r)
            leave(cf, st, s, q, r, context_now(st, s, r))
            finish(st, s, r, end)
    if st.server_i[s, k.S_RUNNING] == 0:
        st.server_i[s, k.S_STACK_SIZE] = 0


@compiled
def _late_steps(first_s: float, rise_s: float, steps: int, limit_s: float) -> int:
    """Of steps that grow by ``rise_s``, how many exceed a limit."""
    if first_s > limit_s:
        return steps
    if rise_s <= 0.0 or first_s + rise_s * (steps - 1) <= limit_s:
        return 0
    within = math.floor((limit_s - first_s) / rise_s) + 1
    return max(0, steps - within)


@compiled
def _count_run(
    cf: Config, st: State, first_s: float, rise_s: float, steps: int, weight: int
) -> None:
    """Count a run of gaps that grow by ``rise_s``, in pieces of a fraction of a bin."""
    if not st.run_i[k.N_COUNTING]:
        return
    pieces = int(min(steps, 1 + math.floor(rise_s * steps / (0.5 * BIN_WIDTH * first_s))))
    done = 0
    for i in range(pieces):
        upto = (steps * (i + 1)) // pieces
        middle = first_s + rise_s * ((done + upto - 1) / 2.0)
        count_gap(cf, st, middle, weight * (upto - done))
        done = upto


@compiled
def decode_run(
    cf: Config, st: State, p: PackedSteps, draft: PackedSteps, s: int, q: int, until: float
) -> bool:
    """Decode steps until something happens: a finish, a full window, the time ``until`` (the step
    that contains it still runs), or memory runs out; False when a sequence had to be preempted."""
    steps = st.step_key[s, 0] - st.server_i[s, k.S_STEP]
    fits = steps_that_fit(cf, st, s, q, steps)
    if fits == 0:
        preempt(cf, st, s, q)
        return False
    n = float(st.server_i[s, k.S_RUNNING])
    context = st.server_f[s, k.S_CONTEXTS] / n
    base = st.base_s[q, st.server_i[s, k.S_RUNNING]]
    if math.isnan(base):
        base = batch_seconds(p, decodes_of(p, n), 0.0, 0.0, 0.0)
        st.base_s[q, st.server_i[s, k.S_RUNNING]] = base
    seconds, slope, end = drafted_line(cf, p, draft, q, base, n, context)
    grows = st.server_f[s, k.S_GROWTH] / n
    steps = min(steps, fits)
    if context + grows * (steps - 1) > end:
        steps = min(steps, math.floor((end - context) / grows) + 1)
    rise = slope * grows
    left = until - st.server_f[s, k.S_NOW_S]
    if seconds * steps + rise * (steps * (steps - 1) / 2.0) > left:
        steps = _steps_begun(seconds, rise, left, steps)
    after_steps(cf, st, s, q, steps, seconds, rise)
    return True


@compiled
def drafted_line(
    cf: Config, p: PackedSteps, draft: PackedSteps, q: int, base: float, n: float, context: float
) -> tuple[float, float, float]:
    """:func:`planner.stepping.decode_line` of a step with those of the draft model before it."""
    seconds, slope, end = decode_line(p, base, n, context)
    drafted = cf.pool_i[q, k.Q_DRAFT_TOKENS]
    if drafted > 0:
        other, other_slope, other_end = decode_line(
            draft, batch_seconds(draft, decodes_of(draft, n), 0.0, 0.0, 0.0), n, context
        )
        seconds += drafted * other
        slope += drafted * other_slope
        end = min(end, other_end)
    return seconds, slope, end


@compiled
def _steps_begun(first_s: float, rise_s: float, left_s: float, most: int) -> int:
    """Smallest number of steps whose end is at or after ``left_s`` seconds, 1 to ``most``."""
    if rise_s <= 1e-15 * first_s:
        guess = left_s / first_s
    else:
        b = first_s - rise_s / 2.0
        guess = (-b + math.sqrt(b * b + 2.0 * rise_s * left_s)) / rise_s
    steps = min(max(math.ceil(guess), 1), most)
    while steps > 1 and _span(first_s, rise_s, steps - 1) >= left_s:
        steps -= 1
    while steps < most and _span(first_s, rise_s, steps) < left_s:
        steps += 1
    return steps


@compiled
def _span(first_s: float, rise_s: float, steps: int) -> float:
    return steps * first_s + rise_s * (steps * (steps - 1) / 2.0)
