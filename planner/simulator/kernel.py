"""The compiled event loop. State is a set of arrays, so a run can stop and go on.

A *server* is one data-parallel rank of one replica. Servers are advanced lazily: only when an arrival,
a router or a failure needs to know them. An iteration costs O(1): batch size, sum of contexts, a heap
of finish steps. Runs of decode steps between two events are one closed form, because a step is straight
in the mean context between the knots that :func:`planner.simulator.stepping.decode_line` names, and the
mean context grows by a constant a step; so are the blocks that they take (sequences by the phase of
their last block).

Nothing here is meant to be called but by :mod:`planner.simulator.run`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from planner.simulator.arrays import (
    ARRIVING,
    BIN_WIDTH,
    CHUNKED,
    DONE,
    FAILURE,
    FIRST_GAP_S,
    POWER_OF_TWO,
    PREFILL,
    RANDOM,
    RECOVERY,
    ROUND_ROBIN,
    SENT,
    STATIC,
    WAKE,
    Config,
    State,
)
from planner.simulator.steps import Steps
from planner.simulator.stepping import (
    batch_seconds,
    decode_line,
    decodes_of,
    mixed_seconds,
    prompt_work,
)

# -- random numbers -------------------------------------------------------------------------------


@njit(cache=True)
def draw(st: State) -> float:
    """Uniform number in [0, 1) (SplitMix64, Steele et al. 2014)."""
    st.random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = st.random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


# -- lists of requests ----------------------------------------------------------------------------


@njit(cache=True)
def wait_last(st: State, s: int, r: int, ready_s: float) -> None:
    """Put a request at the end of a server's queue."""
    st.ready_s[r] = ready_s
    st.next[r] = -1
    st.previous[r] = st.wait_tail[s]
    if st.wait_tail[s] >= 0:
        st.next[st.wait_tail[s]] = r
    else:
        st.wait_head[s] = r
    st.wait_tail[s] = r


@njit(cache=True)
def wait_first(st: State, s: int, r: int, ready_s: float) -> None:
    """Put a preempted request at the head of its server's queue."""
    st.ready_s[r] = ready_s
    st.previous[r] = -1
    st.next[r] = st.wait_head[s]
    if st.wait_head[s] >= 0:
        st.previous[st.wait_head[s]] = r
    else:
        st.wait_tail[s] = r
    st.wait_head[s] = r


@njit(cache=True)
def take_first(st: State, s: int) -> int:
    """Remove the head of a server's queue."""
    r = st.wait_head[s]
    st.wait_head[s] = st.next[r]
    if st.next[r] >= 0:
        st.previous[st.next[r]] = -1
    else:
        st.wait_tail[s] = -1
    st.next[r] = -1
    st.previous[r] = -1
    return r


@njit(cache=True)
def run_last(st: State, s: int, r: int) -> None:
    """Add a request to the running ones, latest admitted last."""
    st.next[r] = -1
    st.previous[r] = st.run_tail[s]
    if st.run_tail[s] >= 0:
        st.next[st.run_tail[s]] = r
    else:
        st.run_head[s] = r
    st.run_tail[s] = r


@njit(cache=True)
def run_remove(st: State, s: int, r: int) -> None:
    """Take a request out of the running ones."""
    before, after = st.previous[r], st.next[r]
    if before >= 0:
        st.next[before] = after
    else:
        st.run_head[s] = after
    if after >= 0:
        st.previous[after] = before
    else:
        st.run_tail[s] = before
    st.next[r] = -1
    st.previous[r] = -1


# -- heaps ----------------------------------------------------------------------------------------


@njit(cache=True)
def heap_push(key: np.ndarray, item: np.ndarray, size: int, k: float, x: int) -> None:
    """Push onto a binary heap held in the first ``size`` places."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if key[parent] <= k:
            break
        key[i] = key[parent]
        item[i] = item[parent]
        i = parent
    key[i] = k
    item[i] = x


@njit(cache=True)
def heap_pop(key: np.ndarray, item: np.ndarray, size: int) -> int:
    """Remove the smallest of ``size`` entries and return its item."""
    top = item[0]
    heap_fill(key, item, size - 1, 0)
    return top


@njit(cache=True)
def heap_fill(key: np.ndarray, item: np.ndarray, last: int, hole: int) -> None:
    """Move the entry at ``last`` into a hole and restore the order of ``last`` entries."""
    k, x, i = key[last], item[last], hole
    if i >= last:
        return
    while i > 0 and key[(i - 1) >> 1] > k:
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
        if key[child] >= k:
            break
        key[i] = key[child]
        item[i] = item[child]
        i = child
    key[i] = k
    item[i] = x


@njit(cache=True)
def push_step(st: State, s: int, key: int, item: int) -> None:
    """Something happens to a running request at the end of decode step ``key``."""
    heap_push(st.step_key[s], st.step_item[s], st.heap_size[s], key, item)
    st.heap_size[s] += 1


@njit(cache=True)
def pop_step(st: State, s: int) -> int:
    """The next such thing."""
    item = heap_pop(st.step_key[s], st.step_item[s], st.heap_size[s])
    st.heap_size[s] -= 1
    return item


@njit(cache=True)
def forget_steps(st: State, s: int, r: int, count: int) -> int:
    """Remove every entry of a request; its finish step."""
    i, finish = 0, 0
    while i < st.heap_size[s]:
        if st.step_item[s, i] % count == r:
            if st.step_item[s, i] == r:
                finish = st.step_key[s, i]
            st.heap_size[s] -= 1
            heap_fill(st.step_key[s], st.step_item[s], st.heap_size[s], i)
            i = -1
        i += 1
    return finish


@njit(cache=True)
def push_event(st: State, when: float, item: int) -> None:
    """A global event: ``item`` = kind + 8 * index."""
    heap_push(st.event_key, st.event_item, st.events[0], when, item)
    st.events[0] += 1


# -- memory ---------------------------------------------------------------------------------------


@njit(cache=True)
def sequence_bytes(cf: Config, q: int, tokens: float) -> float:
    """[B] of a sequence of ``tokens`` in whole blocks."""
    total = cf.state_bytes[q]
    for g in range(cf.kinds[q]):
        kept = min(tokens, cf.windows[q, g])
        total += math.ceil(kept / cf.block[q]) * cf.block_bytes[q, g]
    return total


@njit(cache=True)
def held(cf: Config, st: State, q: int, r: int) -> float:
    """[token] reserved for the answer from the start, where blocks are not taken step by step."""
    return 0.0 if cf.grows[q] else float(st.output[r])


@njit(cache=True)
def take_memory(cf: Config, st: State, s: int, q: int, tokens: float) -> None:
    """Allocate the blocks of a sequence."""
    size = sequence_bytes(cf, q, tokens)
    st.used_bytes[s] += size
    st.allocated_bytes[q] += size


@njit(cache=True)
def free_memory(cf: Config, st: State, s: int, q: int, tokens: float) -> None:
    """Give the blocks of a sequence back."""
    size = sequence_bytes(cf, q, tokens)
    st.used_bytes[s] -= size
    st.freed_bytes[q] += size


@njit(cache=True)
def new_bytes(cf: Config, st: State, s: int, q: int, steps: int) -> float:
    """[B] that the running sequences take in the next decode steps."""
    total, block = 0.0, cf.block[q]
    whole, rest = steps // block, steps % block
    for g in range(cf.kinds[q]):
        if st.growing[s, g] == 0:
            continue
        blocks = whole * st.growing[s, g]
        place = (block - st.step[s] % block) % block
        for _ in range(rest):
            blocks += st.phase[s, g, place]
            place -= 1
            if place < 0:
                place = block - 1
        total += blocks * cf.block_bytes[q, g]
    return total


@njit(cache=True)
def steps_that_fit(cf: Config, st: State, s: int, q: int, steps: int) -> int:
    """Most of the next ``steps`` decode steps whose blocks are free."""
    if not cf.grows[q]:
        return steps
    left = cf.capacity_bytes[q] - st.used_bytes[s]
    whole = steps // cf.block[q] + 1
    most = 0.0
    for g in range(cf.kinds[q]):
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


@njit(cache=True)
def grow_memory(cf: Config, st: State, s: int, q: int, steps: int) -> None:
    """Allocate the blocks of the next ``steps`` decode steps."""
    if cf.grows[q]:
        size = new_bytes(cf, st, s, q, steps)
        st.used_bytes[s] += size
        st.allocated_bytes[q] += size


@njit(cache=True)
def start_growing(cf: Config, st: State, s: int, q: int, r: int) -> None:
    """Count a sequence that joins under the phase of its last block, kind by kind of layer."""
    if not cf.grows[q]:
        return
    tokens = int(st.context[r])
    place = (tokens - st.step[s]) % cf.block[q]
    for g in range(cf.kinds[q]):
        if tokens < cf.windows[q, g]:
            st.phase[s, g, place] += 1
            st.growing[s, g] += 1
            if tokens + st.left[r] > cf.windows[q, g]:
                push_step(st, s, st.step[s] + int(cf.windows[q, g]) - tokens,
                          r + (g + 1) * cf.count)


@njit(cache=True)
def stop_growing(cf: Config, st: State, s: int, q: int, r: int, g: int) -> None:
    """A sequence has filled a window, or leaves."""
    st.phase[s, g, (int(st.context[r]) - st.joined[r]) % cf.block[q]] -= 1
    st.growing[s, g] -= 1


# -- gaps between tokens --------------------------------------------------------------------------


@njit(cache=True)
def count_gap(cf: Config, st: State, gap_s: float, weight: int) -> None:
    """Count gaps in the histogram once the warm-up is over."""
    if st.counting[0] and weight > 0:
        place = int(math.log(max(gap_s, FIRST_GAP_S) / FIRST_GAP_S) / BIN_WIDTH)
        st.gaps[min(place, st.gaps.shape[0] - 1)] += weight


@njit(cache=True)
def remember_gap(st: State, s: int, gap_s: float) -> None:
    """Keep the largest gap since any step on a stack that descends."""
    size = st.stack_size[s]
    while size > 0 and st.stack_gap[s, size - 1] <= gap_s:
        size -= 1
    if size == st.stack_gap.shape[1]:
        size = _thin_out(st, s)
    st.stack_gap[s, size] = gap_s
    st.stack_step[s, size] = st.gap_step[s]
    st.stack_size[s] = size + 1
    st.gap_step[s] += 1


@njit(cache=True)
def _place_on_stack(st: State, s: int, since: int) -> int:
    low, high = 0, st.stack_size[s]
    while low < high:
        middle = (low + high) >> 1
        if st.stack_step[s, middle] >= since:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True)
def largest_gap(st: State, s: int, since: int) -> float:
    """Largest gap from step ``since`` on, 0 when there was none."""
    place = _place_on_stack(st, s, since)
    return st.stack_gap[s, place] if place < st.stack_size[s] else 0.0


@njit(cache=True)
def _thin_out(st: State, s: int) -> int:
    """Keep only the gaps that a running request still needs (the stack has room for those)."""
    keep = np.zeros(st.stack_size[s] + 1, dtype=np.bool_)
    r = st.run_head[s]
    while r >= 0:
        keep[_place_on_stack(st, s, st.gap_since[r])] = True
        r = st.next[r]
    size = 0
    for i in range(st.stack_size[s]):
        if keep[i]:
            st.stack_gap[s, size] = st.stack_gap[s, i]
            st.stack_step[s, size] = st.stack_step[s, i]
            size += 1
    st.stack_size[s] = size
    return size


@njit(cache=True)
def close_gaps(st: State, s: int, r: int) -> None:
    """Read the gaps of a request that stops decoding."""
    st.worst_gap_s[r] = max(st.worst_gap_s[r], largest_gap(st, s, st.gap_since[r]))
    st.late_gaps[r] += st.late[s] - st.late_since[r]


# -- the timeline ---------------------------------------------------------------------------------


@njit(cache=True)
def account(cf: Config, st: State, q: int, start: float, end: float, running: float,
            kv_bytes: float) -> None:
    """Add a busy stretch to the bins of the timeline and to the sums."""
    st.sums[q, 0] += end - start
    st.sums[q, 1] += running * (end - start)
    st.sums[q, 2] += kv_bytes * (end - start)
    last = st.timeline.shape[1] - 1
    i = min(max(int((start - cf.start_s) / cf.bin_s), 0), last)
    at = start
    while at < end:
        edge = end if i >= last else min(end, cf.start_s + (i + 1) * cf.bin_s)
        if edge > at:
            st.timeline[q, i, 0] += edge - at
            st.timeline[q, i, 1] += running * (edge - at)
            st.timeline[q, i, 2] += kv_bytes * (edge - at)
            at = edge
        i = min(i + 1, last)


# -- joining, leaving -----------------------------------------------------------------------------


@njit(cache=True)
def join(cf: Config, st: State, s: int, q: int, r: int) -> None:
    """A request starts to decode (its blocks are taken)."""
    st.running[s] += 1
    st.contexts[s] += st.context[r]
    st.growth[s] += st.yields[r]
    st.joined[r] = st.step[s]
    run_last(st, s, r)
    push_step(st, s, st.step[s] + st.left[r], r)
    start_growing(cf, st, s, q, r)
    st.fresh[s, st.fresh_count[s]] = r
    st.fresh_count[s] += 1


@njit(cache=True)
def context_now(st: State, s: int, r: int) -> float:
    """[token] of a running request."""
    return st.context[r] + st.yields[r] * (st.step[s] - st.joined[r])


@njit(cache=True)
def finish(st: State, s: int, r: int, end: float) -> None:
    """The last token is out."""
    st.finish_s[r] = end
    st.status[r] = DONE
    st.load[s] -= 1
    st.finished[0] += 1


@njit(cache=True)
def leave(cf: Config, st: State, s: int, q: int, r: int, final: float) -> float:
    """Take a running request off its server and free its blocks; its context.

    ``final`` is the context it would have had at its end: windows beyond it were never crossed.
    """
    tokens = context_now(st, s, r)
    st.running[s] -= 1
    st.contexts[s] -= tokens
    st.growth[s] -= st.yields[r]
    if st.running[s] == 0:
        st.contexts[s] = 0.0
        st.growth[s] = 0.0
    run_remove(st, s, r)
    free_memory(cf, st, s, q, tokens if cf.grows[q] else st.context[r] + held(cf, st, q, r))
    if cf.grows[q]:
        for g in range(cf.kinds[q]):
            window = cf.windows[q, g]
            if st.context[r] < window and not (tokens >= window and final > window):
                stop_growing(cf, st, s, q, r, g)
    return tokens


@njit(cache=True)
def first_token(cf: Config, st: State, s: int, q: int, r: int, end: float) -> None:
    """A prefill on a serving pool is done: one token is out, the rest is decoded."""
    if st.last_token_s[r] < 0.0:
        st.first_s[r] = end
    else:
        gap = end - st.last_token_s[r]
        st.worst_gap_s[r] = max(st.worst_gap_s[r], gap)
        st.late_gaps[r] += 1 if gap > cf.gap_limit_s else 0
        count_gap(cf, st, gap, 1)
    st.last_token_s[r] = end
    st.left[r] -= 1
    if st.left[r] > 0:
        join(cf, st, s, q, r)
    else:
        free_memory(cf, st, s, q, st.context[r] + held(cf, st, q, r))
        finish(st, s, r, end)


@njit(cache=True)
def preempt(cf: Config, st: State, s: int, q: int) -> None:
    """The latest admitted gives its blocks up and is computed again later, prompt and answer."""
    r = st.run_tail[s]
    key = forget_steps(st, s, r, cf.count)
    final = st.context[r] + st.yields[r] * (key - st.joined[r])
    tokens = leave(cf, st, s, q, r, final)
    st.left[r] = key - st.step[s]
    was_fresh = False
    for i in range(st.fresh_count[s]):
        if st.fresh[s, i] == r:
            st.fresh_count[s] -= 1
            st.fresh[s, i] = st.fresh[s, st.fresh_count[s]]
            was_fresh = True
            break
    if not was_fresh:
        close_gaps(st, s, r)
        st.last_token_s[r] = st.last_step_s[s]
    st.preemptions[r] += 1
    st.has_cache[r] = False
    st.todo[r] = tokens
    st.cached[r] = 0.0
    st.context[r] = tokens + 1.0
    wait_first(st, s, r, st.now_s[s])


# -- decode steps ---------------------------------------------------------------------------------


@njit(cache=True)
def after_steps(cf: Config, st: State, s: int, q: int, steps: int, first_s: float, rise_s: float
                ) -> None:
    """Book ``steps`` decode steps, the first of ``first_s`` seconds and each ``rise_s`` longer."""
    start = st.now_s[s]
    end_first = start + first_s
    end = start + steps * first_s + rise_s * (steps * (steps - 1) / 2.0)
    last_s = first_s + rise_s * (steps - 1)
    old = st.running[s] - st.fresh_count[s]
    if old > 0:
        gap = end_first - st.last_step_s[s]
        remember_gap(st, s, gap)
        st.late[s] += 1 if gap > cf.gap_limit_s else 0
        count_gap(cf, st, gap, old)
    for i in range(st.fresh_count[s]):
        r = st.fresh[s, i]
        if st.last_token_s[r] < 0.0:
            st.first_s[r] = end_first
        else:
            gap = end_first - st.last_token_s[r]
            st.worst_gap_s[r] = max(st.worst_gap_s[r], gap)
            st.late_gaps[r] += 1 if gap > cf.gap_limit_s else 0
            count_gap(cf, st, gap, 1)
        st.last_token_s[r] = end_first
        st.gap_since[r] = st.gap_step[s]
        st.late_since[r] = st.late[s]
    st.fresh_count[s] = 0
    if steps > 1:
        remember_gap(st, s, max(last_s, first_s + rise_s))
        st.late[s] += _late_steps(first_s + rise_s, rise_s, steps - 1, cf.gap_limit_s)
        _count_run(cf, st, first_s + rise_s, rise_s, steps - 1, st.running[s])
    before = st.used_bytes[s]
    grow_memory(cf, st, s, q, steps)
    account(cf, st, q, start, end, float(st.running[s]), (before + st.used_bytes[s]) / 2.0)
    st.contexts[s] += st.growth[s] * steps
    st.step[s] += steps
    st.iterations[q] += steps
    st.last_step_s[s] = end
    st.now_s[s] = end
    while st.heap_size[s] > 0 and st.step_key[s, 0] <= st.step[s]:
        item = pop_step(st, s)
        r = item % cf.count
        if item >= cf.count:
            stop_growing(cf, st, s, q, r, item // cf.count - 1)
        else:
            close_gaps(st, s, r)
            leave(cf, st, s, q, r, context_now(st, s, r))
            finish(st, s, r, end)
    if st.running[s] == 0:
        st.stack_size[s] = 0


@njit(cache=True)
def _late_steps(first_s: float, rise_s: float, steps: int, limit_s: float) -> int:
    """Of steps that grow by ``rise_s``, how many exceed a limit."""
    if first_s > limit_s:
        return steps
    if rise_s <= 0.0 or first_s + rise_s * (steps - 1) <= limit_s:
        return 0
    within = int(math.floor((limit_s - first_s) / rise_s)) + 1
    return max(0, steps - within)


@njit(cache=True)
def _count_run(cf: Config, st: State, first_s: float, rise_s: float, steps: int, weight: int
               ) -> None:
    """Count a run of gaps that grow by ``rise_s``, in pieces of a fraction of a bin."""
    if not st.counting[0]:
        return
    pieces = int(min(steps, 1 + math.floor(rise_s * steps / (0.5 * BIN_WIDTH * first_s))))
    done = 0
    for i in range(pieces):
        upto = (steps * (i + 1)) // pieces
        middle = first_s + rise_s * ((done + upto - 1) / 2.0)
        count_gap(cf, st, middle, weight * (upto - done))
        done = upto


@njit(cache=True)
def decode_run(cf: Config, st: State, p: Steps, draft: Steps, s: int, q: int, until: float
               ) -> bool:
    """Decode steps until something happens: a finish, a full window, the time ``until`` (the step
    that contains it still runs), or memory runs out; False when a sequence had to be preempted."""
    steps = st.step_key[s, 0] - st.step[s]
    fits = steps_that_fit(cf, st, s, q, steps)
    if fits == 0:
        preempt(cf, st, s, q)
        return False
    n = float(st.running[s])
    context = st.contexts[s] / n
    base = st.base_s[q, st.running[s]]
    if math.isnan(base):
        base = batch_seconds(p, decodes_of(p, n), 0.0, 0.0, 0.0)
        st.base_s[q, st.running[s]] = base
    seconds, slope, end = decode_line(p, base, n, context)
    if cf.draft_tokens[q] > 0:
        other, other_slope, other_end = decode_line(
            draft, batch_seconds(draft, decodes_of(draft, n), 0.0, 0.0, 0.0), n, context)
        seconds += cf.draft_tokens[q] * other
        slope += cf.draft_tokens[q] * other_slope
        end = min(end, other_end)
    grows = st.growth[s] / n
    steps = min(steps, fits)
    if context + grows * (steps - 1) > end:
        steps = min(steps, int(math.floor((end - context) / grows)) + 1)
    rise = slope * grows
    left = until - st.now_s[s]
    if seconds * steps + rise * (steps * (steps - 1) / 2.0) > left:
        steps = _steps_begun(seconds, rise, left, steps)
    after_steps(cf, st, s, q, steps, seconds, rise)
    return True


@njit(cache=True)
def _steps_begun(first_s: float, rise_s: float, left_s: float, most: int) -> int:
    """Smallest number of steps whose end is at or after ``left_s`` seconds, 1 to ``most``."""
    if rise_s <= 1e-15 * first_s:
        guess = left_s / first_s
    else:
        b = first_s - rise_s / 2.0
        guess = (-b + math.sqrt(b * b + 2.0 * rise_s * left_s)) / rise_s
    steps = min(max(int(math.ceil(guess)), 1), most)
    while steps > 1 and _span(first_s, rise_s, steps - 1) >= left_s:
        steps -= 1
    while steps < most and _span(first_s, rise_s, steps) < left_s:
        steps += 1
    return steps


@njit(cache=True)
def _span(first_s: float, rise_s: float, steps: int) -> float:
    return steps * first_s + rise_s * (steps * (steps - 1) / 2.0)


# -- schedulers -----------------------------------------------------------------------------------


@njit(cache=True)
def may_admit(cf: Config, st: State, s: int, q: int, r: int, taken: int) -> bool:
    """Whether a waiting request is here and has a place and blocks next to ``taken`` others."""
    if st.ready_s[r] > st.now_s[s] or st.running[s] + taken >= cf.max_sequences[q]:
        return False
    need = sequence_bytes(cf, q, st.context[r] + held(cf, st, q, r))
    return st.used_bytes[s] + need <= cf.capacity_bytes[q]


@njit(cache=True)
def admit(cf: Config, st: State, s: int, q: int) -> int:
    """Take the head of the queue in."""
    r = take_first(st, s)
    take_memory(cf, st, s, q, st.context[r] + held(cf, st, q, r))
    st.queued_s[r] += st.now_s[s] - st.ready_s[r]
    if st.start_s[r] < 0.0:
        st.start_s[r] = st.now_s[s]
    return r


@njit(cache=True)
def next_ready(st: State, s: int, until: float) -> float:
    """The time up to which the queue cannot change what runs."""
    head = st.wait_head[s]
    if head >= 0 and st.ready_s[head] > st.now_s[s]:
        return min(until, st.ready_s[head])
    return until


@njit(cache=True)
def prefill_pass(cf: Config, st: State, p: Steps, s: int, q: int, count: int) -> float:
    """[s] of a pass over the ``count`` prompts in the server's list."""
    tokens, compute, memory = 0.0, 0.0, 0.0
    for i in range(count):
        r = st.packed[s, i]
        c, m = prompt_work(p, st.todo[r], st.cached[r])
        tokens += st.todo[r]
        compute += c
        memory += m
    return mixed_seconds(p, 0.0, 0.0, tokens, float(count), float(count), compute, memory)


@njit(cache=True)
def pack(cf: Config, st: State, s: int, q: int) -> int:
    """Move waiting prompts that fit one pass into the server's list; those that bring their cache
    along join at once."""
    count, tokens = 0, 0.0
    while st.wait_head[s] >= 0 and count < cf.prompts_per_pass[q]:
        r = st.wait_head[s]
        if not may_admit(cf, st, s, q, r, count):
            break
        if st.has_cache[r]:
            admit(cf, st, s, q)
            join(cf, st, s, q, r)
            continue
        if count > 0 and tokens + st.todo[r] > cf.token_budget[q]:
            break
        admit(cf, st, s, q)
        tokens += st.todo[r]
        st.packed[s, count] = r
        count += 1
    return count


@njit(cache=True)
def prefill_first_step(cf: Config, st: State, p: Steps, draft: Steps, s: int, q: int, until: float
                       ) -> None:
    """Whole waiting prompts first, then decodes."""
    count = pack(cf, st, s, q)
    if count:
        seconds = prefill_pass(cf, st, p, s, q, count)
        start, held = st.now_s[s], seconds * cf.occupancy[q]
        end = start + held
        account(cf, st, q, start, end, float(st.running[s] + count), st.used_bytes[s])
        st.now_s[s] = end
        st.passes[q] += 1
        for i in range(count):
            r = st.packed[s, i]
            st.own_prefill_s[r] += seconds
            st.lag_s[r] += seconds - held
            first_token(cf, st, s, q, r, end)
    elif st.running[s] > 0:
        decode_run(cf, st, p, draft, s, q, next_ready(st, s, until))


@njit(cache=True)
def chunked_step(cf: Config, st: State, p: Steps, draft: Steps, s: int, q: int, until: float
                 ) -> None:
    """Every decode, and prompt tokens in what is left of the budget."""
    n = st.running[s]
    if n > 0 and st.wait_head[s] < 0 and st.partial[s] < 0:
        decode_run(cf, st, p, draft, s, q, until)
        return
    space = cf.token_budget[q] - n * p.tokens_per_decode
    ready, tokens, parts = 0, 0.0, 0
    compute, memory = 0.0, 0.0
    if n > 0 and steps_that_fit(cf, st, s, q, 1) == 0:
        preempt(cf, st, s, q)
        return
    grows = new_bytes(cf, st, s, q, 1) if n > 0 and cf.grows[q] else 0.0
    st.used_bytes[s] += grows
    while space >= 1.0:
        r = st.partial[s]
        if r < 0:
            if st.wait_head[s] < 0 or not may_admit(cf, st, s, q, st.wait_head[s], ready):
                break
            r = admit(cf, st, s, q)
            st.partial[s] = r
            st.partial_done[s] = 0.0
        chunk = min(math.floor(space), st.todo[r] - st.partial_done[s])
        c, m = prompt_work(p, chunk, st.cached[r] + st.partial_done[s])
        compute += c
        memory += m
        tokens += chunk
        space -= chunk
        parts += 1
        st.partial_done[s] += chunk
        st.chunks[s, parts - 1] = r
        if st.partial_done[s] < st.todo[r]:
            break
        st.packed[s, ready] = r
        ready += 1
        st.partial[s] = -1
    st.used_bytes[s] -= grows
    if parts == 0:
        if n > 0:
            decode_run(cf, st, p, draft, s, q, next_ready(st, s, until))
        return
    context = st.contexts[s] / n if n > 0 else 0.0
    seconds = mixed_seconds(p, float(n), context, tokens, float(parts), float(ready), compute,
                            memory)
    if n > 0 and cf.draft_tokens[q] > 0:
        seconds += cf.draft_tokens[q] * decode_line(
            draft, batch_seconds(draft, decodes_of(draft, float(n)), 0.0, 0.0, 0.0), float(n),
            context)[0]
    for i in range(parts):
        st.own_prefill_s[st.chunks[s, i]] += seconds
    st.passes[q] += 1
    start = st.now_s[s]
    end = start + seconds
    if n > 0:
        after_steps(cf, st, s, q, 1, seconds, 0.0)
    else:
        account(cf, st, q, start, end, 0.0, st.used_bytes[s])
        st.now_s[s] = end
    extra = float(ready + (1 if st.partial[s] >= 0 else 0))
    st.sums[q, 1] += extra * (end - start)
    for i in range(ready):
        first_token(cf, st, s, q, st.packed[s, i], end)


@njit(cache=True)
def static_step(cf: Config, st: State, p: Steps, s: int, q: int) -> None:
    """A whole batch: its prefill, then decodes until its longest answer is done.

    The batch keeps its size: answers that are done are padded, and their blocks stay.
    """
    count = 0
    while st.wait_head[s] >= 0 and may_admit(cf, st, s, q, st.wait_head[s], count):
        st.packed[s, count] = admit(cf, st, s, q)
        count += 1
    start = st.now_s[s]
    seconds = prefill_pass(cf, st, p, s, q, count)
    now = start + seconds * cf.occupancy[q]
    account(cf, st, q, start, now, float(count), st.used_bytes[s])
    contexts, steps = 0.0, 0
    for i in range(count):
        r = st.packed[s, i]
        st.own_prefill_s[r] += seconds
        st.lag_s[r] += seconds * (1.0 - cf.occupancy[q])
        st.first_s[r] = now
        contexts += st.context[r]
        steps = max(steps, st.left[r] - 1)
        push_step(st, s, st.left[r] - 1, r)
    st.passes[q] += 1
    n, done = float(count), 0
    base = batch_seconds(p, decodes_of(p, n), 0.0, 0.0, 0.0)
    before = now
    active = count
    while True:
        while st.heap_size[s] > 0 and st.step_key[s, 0] <= done:
            r = pop_step(st, s)
            st.worst_gap_s[r] = largest_gap(st, s, 0)
            st.late_gaps[r] = st.late[s]
            active -= 1
            finish(st, s, r, now)
        if done >= steps:
            break
        context = contexts / n
        first, slope, end = decode_line(p, base, n, context)
        run = st.step_key[s, 0] - done
        grows = cf.yields[q]
        if context + grows * (run - 1) > end:
            run = min(run, int(math.floor((end - context) / grows)) + 1)
        rise = slope * grows
        remember_gap(st, s, first + rise * (run - 1))
        st.late[s] += _late_steps(first, rise, run, cf.gap_limit_s)
        _count_run(cf, st, first, rise, run, active)
        now += _span(first, rise, run)
        contexts += n * grows * run
        done += run
    account(cf, st, q, before, now, n, st.used_bytes[s])
    st.iterations[q] += steps
    for i in range(count):
        r = st.packed[s, i]
        free_memory(cf, st, s, q, st.context[r] + held(cf, st, q, r))
    st.stack_size[s] = 0
    st.gap_step[s] = 0
    st.late[s] = 0
    st.now_s[s] = now


@njit(cache=True)
def advance(cf: Config, st: State, p0: Steps, p1: Steps, d0: Steps, d1: Steps, s: int,
            until: float) -> None:
    """Play a server: every step that begins before ``until``."""
    q = st.pool[s]
    while st.now_s[s] < until:
        head = st.wait_head[s]
        if st.running[s] == 0 and st.partial[s] < 0:
            if head < 0:
                return
            st.now_s[s] = max(st.now_s[s], st.ready_s[head])
            if st.now_s[s] >= until:
                return
        kind = cf.scheduler[q]
        p, draft = (p0, d0) if q == 0 else (p1, d1)
        if kind == CHUNKED:
            chunked_step(cf, st, p, draft, s, q, until)
        elif kind == STATIC:
            static_step(cf, st, p, s, q)
        else:
            prefill_first_step(cf, st, p, draft, s, q, until)


@njit(cache=True)
def launch(cf: Config, st: State, p: Steps, s: int, now: float) -> None:
    """A free prefill replica takes what waits; hand-overs follow."""
    if st.now_s[s] > now or st.wait_head[s] < 0 or not st.up[s]:
        return
    st.now_s[s] = now
    count, tokens = 0, 0.0
    while st.wait_head[s] >= 0 and count < cf.prompts_per_pass[0]:
        r = st.wait_head[s]
        if count > 0 and tokens + st.todo[r] > cf.token_budget[0]:
            break
        if not may_admit(cf, st, s, 0, r, count) and count > 0:
            break
        admit(cf, st, s, 0)
        tokens += st.todo[r]
        st.packed[s, count] = r
        count += 1
    seconds = prefill_pass(cf, st, p, s, 0, count)
    end, free = now + seconds, now + seconds * cf.occupancy[0]
    account(cf, st, 0, now, free, float(count), st.used_bytes[s])
    st.now_s[s] = free
    st.passes[0] += 1
    for i in range(count):
        r = st.packed[s, i]
        free_memory(cf, st, s, 0, st.context[r])
        st.own_prefill_s[r] += seconds
        st.prefill_done_s[r] = end
        wire = st.wire_s[r]
        begins = max(now + seconds / cf.layers, st.card_free_s[s])
        st.card_free_s[s] = begins + wire
        sent = max(begins + wire, end + wire / cf.layers)
        st.sent_from[r] = s
        push_event(st, sent, SENT + 8 * r)
    push_event(st, free, WAKE + 8 * s)


# -- routing --------------------------------------------------------------------------------------


@njit(cache=True)
def choose(cf: Config, st: State, p0: Steps, p1: Steps, d0: Steps, d1: Steps, q: int, now: float
           ) -> int:
    """The server of a pool that gets the next request."""
    first, count = cf.first_server[q], cf.servers[q]
    alive = 0
    for i in range(count):
        if st.up[first + i]:
            alive += 1
    if alive == 0:
        best = first
        for i in range(count):
            if st.now_s[first + i] < st.now_s[best]:
                best = first + i
        return best
    if cf.router == ROUND_ROBIN:
        while True:
            s = first + st.turn[q]
            st.turn[q] = (st.turn[q] + 1) % count
            if st.up[s]:
                return s
    if cf.router == RANDOM:
        return _alive_at(st, first, count, int(draw(st) * alive))
    if cf.router == POWER_OF_TWO:
        a = int(draw(st) * alive)
        b = int(draw(st) * (alive - 1)) if alive > 1 else a
        if alive > 1 and b >= a:
            b += 1
        s, other = _alive_at(st, first, count, a), _alive_at(st, first, count, b)
        if cf.scheduler[q] != PREFILL:
            advance(cf, st, p0, p1, d0, d1, s, now)
            advance(cf, st, p0, p1, d0, d1, other, now)
        return other if st.load[other] < st.load[s] else s
    best = -1
    for i in range(count):
        s = first + (st.turn[q] + i) % count
        if st.up[s]:
            if cf.scheduler[q] != PREFILL:
                advance(cf, st, p0, p1, d0, d1, s, now)
            if best < 0 or st.load[s] < st.load[best]:
                best = s
    st.turn[q] = (st.turn[q] + 1) % count
    return best


@njit(cache=True)
def _alive_at(st: State, first: int, count: int, place: int) -> int:
    """The server at a place among those that are up."""
    for i in range(count):
        if st.up[first + i]:
            if place == 0:
                return first + i
            place -= 1
    return first


@njit(cache=True)
def send_in(cf: Config, st: State, p0: Steps, p1: Steps, d0: Steps, d1: Steps, r: int, now: float
            ) -> None:
    """A request arrives at the front pool, for the first time or again."""
    st.left[r] = st.steps[r]
    st.todo[r] = float(st.prompt[r] - st.hit[r])
    st.cached[r] = float(st.hit[r])
    st.context[r] = float(st.prompt[r]) + 1.0
    st.last_token_s[r] = -1.0
    st.first_s[r] = -1.0
    st.worst_gap_s[r] = 0.0
    st.late_gaps[r] = 0
    st.has_cache[r] = False
    st.start_s[r] = -1.0
    s = choose(cf, st, p0, p1, d0, d1, 0, now)
    st.server[r] = s
    st.load[s] += 1
    if cf.scheduler[0] == PREFILL:
        wait_last(st, s, r, now)
        launch(cf, st, p0, s, now)
    else:
        advance(cf, st, p0, p1, d0, d1, s, now)
        wait_last(st, s, r, now)


@njit(cache=True)
def hand_over(cf: Config, st: State, p0: Steps, p1: Steps, d0: Steps, d1: Steps, r: int, now: float
              ) -> None:
    """A cache has left the prefill side: choose where it goes and queue for that side's cards."""
    st.load[st.sent_from[r]] -= 1
    s = choose(cf, st, p0, p1, d0, d1, 1, now)
    wire = st.wire_s[r]
    begins = max(now - wire, st.card_free_s[s])
    st.card_free_s[s] = begins + wire
    there = max(now, begins + wire)
    st.transfer_s[r] = there - st.prefill_done_s[r]
    st.has_cache[r] = True
    st.context[r] = float(st.prompt[r])
    st.server[r] = s
    st.load[s] += 1
    advance(cf, st, p0, p1, d0, d1, s, now)
    wait_last(st, s, r, there)


# -- failures -------------------------------------------------------------------------------------


@njit(cache=True)
def fail(cf: Config, st: State, p0: Steps, p1: Steps, d0: Steps, d1: Steps, s: int, now: float,
         back: float) -> None:
    """A server goes down: what it holds starts again elsewhere."""
    q = st.pool[s]
    if cf.scheduler[q] != PREFILL:
        advance(cf, st, p0, p1, d0, d1, s, now)
    st.up[s] = False
    st.down_until_s[s] = max(st.down_until_s[s], back)
    st.now_s[s] = max(st.now_s[s], st.down_until_s[s])
    first = -1
    while st.run_tail[s] >= 0:
        r = st.run_tail[s]
        key = forget_steps(st, s, r, cf.count)
        leave(cf, st, s, q, r, st.context[r] + st.yields[r] * (key - st.joined[r]))
        st.next[r] = first
        first = r
    if st.partial[s] >= 0:
        r = st.partial[s]
        free_memory(cf, st, s, q, st.context[r] + held(cf, st, q, r))
        st.partial[s] = -1
        st.next[r] = first
        first = r
    st.fresh_count[s] = 0
    st.stack_size[s] = 0
    while st.wait_head[s] >= 0:
        r = take_first(st, s)
        st.next[r] = first
        first = r
    while first >= 0:
        r = first
        first = st.next[r]
        st.next[r] = -1
        st.load[s] -= 1
        st.retries[r] += 1
        send_in(cf, st, p0, p1, d0, d1, r, now)


@njit(cache=True)
def play(cf: Config, st: State, p0: Steps, p1: Steps, d0: Steps, d1: Steps, upto: int) -> None:
    """Run to the arrival of request ``upto``; to the end when there is none."""
    while True:
        i = st.arrived[0]
        arrival = cf.arrival_s[i] if i < cf.count else math.inf
        event = st.event_key[0] if st.events[0] > 0 else math.inf
        if event <= arrival:
            if event == math.inf:
                break
            item = st.event_item[0]
            st.events[0] -= 1
            heap_fill(st.event_key, st.event_item, st.events[0], 0)
            kind, index = item % 8, item // 8
            if kind == SENT:
                hand_over(cf, st, p0, p1, d0, d1, index, event)
            elif kind == WAKE:
                launch(cf, st, p0, index, event)
            elif kind == FAILURE:
                fail(cf, st, p0, p1, d0, d1, st.failing[index], event, st.back_s[index])
            elif kind == RECOVERY:
                s = st.failing[index]
                if event >= st.down_until_s[s]:
                    st.up[s] = True
                    st.now_s[s] = max(st.now_s[s], event)
                    if cf.scheduler[st.pool[s]] == PREFILL:
                        launch(cf, st, p0, s, st.now_s[s])
            continue
        if i >= upto:
            break
        st.arrived[0] += 1
        if i == cf.warmup:
            st.counting[0] = True
        if st.status[i] == ARRIVING:
            send_in(cf, st, p0, p1, d0, d1, i, arrival)
    if upto >= cf.count and st.arrived[0] >= cf.count:
        for s in range(st.pool.shape[0]):
            if cf.scheduler[st.pool[s]] != PREFILL:
                advance(cf, st, p0, p1, d0, d1, s, math.inf)


@njit(cache=True)
def draw_steps(st: State, tokens: np.ndarray, drafted: int, acceptance: float) -> np.ndarray:
    """Decode steps that each answer takes when every draft token is accepted by chance."""
    steps = np.zeros(tokens.shape[0], dtype=np.int64)
    for r in range(tokens.shape[0]):
        left = tokens[r]
        while left > 0:
            taken = 1
            while taken <= drafted and draw(st) < acceptance:
                taken += 1
            left -= taken
            steps[r] += 1
    return steps
