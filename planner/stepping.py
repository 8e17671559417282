"""Compiled evaluation of the coefficients of a step, see :class:`planner.steps.Steps`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.compiled import Array, compiled, entry

NO_LIMIT = 1e18
"""[token] that stands for no window."""
SCALARS = (
    "whole", "scale", "tokens_per_decode", "pipeline", "tile", "half", "head_s", "head_read_s",
    "ranks", "skew", "state_token_s", "state_read_s", "token_s", "sequence_s", "fixed_s")
"""Fields of ``Steps`` in the order of the columns of ``PackedSteps.one``."""
(T_WHOLE, T_SCALE, T_TOKENS_PER_DECODE, T_PIPELINE, T_TILE, T_HALF, T_HEAD_S, T_HEAD_READ_S,
 T_RANKS, T_SKEW, T_STATE_TOKEN_S, T_STATE_READ_S, T_TOKEN_S, T_SEQUENCE_S,
 T_FIXED_S) = range(15)


class PackedSteps(NamedTuple):
    """:class:`planner.steps.Steps` as few arrays: ``one`` has the columns ``T_…``, ``linear`` a row
    of [s] per tiled row and [s] to read for each format."""

    one: Array
    linear: Array
    expert: Array
    line: Array
    prompt: Array


@compiled
def tiled(rows: float, tile: float) -> float:
    """Rows rounded up to whole tiles, above one tile."""
    if tile <= 1.0 or rows <= tile:
        return rows
    return math.ceil(rows / tile) * tile


@compiled
def touched_share(share: float, tokens: float, skew: float) -> float:
    """:func:`planner.roofline.experts_touched`."""
    if skew <= 0.0:
        return 1.0 - (1.0 - share) ** tokens
    return 1.0 - (1.0 + skew * share * tokens) ** (-1.0 / skew)


@compiled
def expert_seconds(p: PackedSteps, tokens: float) -> float:
    """Routed experts: products and reads per format, the larger of both [s]."""
    total, place, count = 0.0, 0, p.expert.shape[0]
    share, hit = 0.0, 0.0
    while place < count:
        fmt = p.expert[place, 0]
        compute, memory, rows, least = 0.0, 0.0, 0.0, 0.0
        while place < count and p.expert[place, 0] == fmt:
            if p.expert[place, 3] != share:  # most layers of a model have the same
                share = p.expert[place, 3]
                hit = touched_share(share, tokens * p.one[T_RANKS], p.one[T_SKEW])
            compute += p.expert[place, 1] * tokens
            memory += p.expert[place, 2] * hit
            touched = max(hit * p.expert[place, 5], 1e-12)
            rows = max(rows, tokens * p.one[T_RANKS] * p.expert[place, 4] / touched)
            least = p.expert[place, 6]
            place += 1
        slow = (
            (tiled(max(rows, least), p.one[T_TILE]) + p.one[T_HALF]) / max(rows, 1e-12)
            if rows > 0.0
            else 1.0
        )
        total += max(compute * slow, memory)
    return total


@compiled
def batch_seconds(
    p: PackedSteps, decodes: float, new_tokens: float, prompts: float, logits: float
) -> float:
    """Everything of a step but attention [s]: what does not depend on contexts."""
    tokens = decodes * p.one[T_TOKENS_PER_DECODE] + new_tokens
    if tokens <= 0.0:
        return 0.0
    total = p.one[T_FIXED_S] + p.one[T_TOKEN_S] * tokens
    total += p.one[T_SEQUENCE_S] * (decodes + prompts)
    rows = tiled(tokens, p.one[T_TILE]) + p.one[T_HALF]
    for i in range(p.linear.shape[0]):
        total += max(p.linear[i, 0] * rows, p.linear[i, 1])
    if p.expert.shape[0]:
        total += expert_seconds(p, tokens)
    heads = decodes * p.one[T_TOKENS_PER_DECODE] + logits
    if heads > 0.0:
        total += max(
            p.one[T_HEAD_S] * (tiled(heads, p.one[T_TILE]) + p.one[T_HALF]),
            p.one[T_HEAD_READ_S],
        )
    return total + max(
        p.one[T_STATE_TOKEN_S] * tokens, p.one[T_STATE_READ_S] * (decodes + prompts)
    )


@compiled
def prompt_work(p: PackedSteps, tokens: float, cached: float) -> tuple[float, float]:
    """Compute and memory side [s] of the attention of one prompt part."""
    compute, memory = 0.0, 0.0
    for i in range(p.prompt.shape[0]):
        stride, window, limit = p.prompt[i, 3], p.prompt[i, 4], p.prompt[i, 5]
        if p.prompt[i, 6] > 0.0:
            pairs = _restarting(cached + tokens, window) - _restarting(cached, window)
        else:
            growing = tokens
            if limit < NO_LIMIT:
                growing = min(max(limit - cached, 0.0), tokens)
            half = 0.0 if p.one[T_WHOLE] else 1.0
            pairs = growing * cached + growing * (growing + half) / 2.0
            if growing < tokens:
                pairs += (tokens - growing) * limit
            pairs /= stride
        kept = min(cached, window) / stride
        compute += p.prompt[i, 0] * pairs + p.prompt[i, 1] * kept
        written = 0.0 if p.one[T_WHOLE] else tokens / stride
        memory += p.prompt[i, 2] * (kept + written) + p.prompt[i, 7]
    return compute, memory


@compiled
def _restarting(position: float, window: float) -> float:
    whole = math.floor(position / window)
    rest = position - whole * window
    return whole * window * (window + 1.0) / 2.0 + rest * (rest + 1.0) / 2.0


@compiled
def decodes_of(p: PackedSteps, running: float) -> float:
    """Sequences that one wave of the pipeline decodes."""
    if running <= 0.0:
        return 0.0
    return max(running / p.one[T_PIPELINE], 1.0) if p.one[T_PIPELINE] > 1.0 else running


@compiled
def waves_of(p: PackedSteps, running: float) -> float:
    """Waves of a pipeline that the running sequences make: as many as stages, if they suffice."""
    return running / decodes_of(p, running) if running > 0.0 else 0.0


@compiled
def decode_line(
    p: PackedSteps, base_s: float, running: float, context: float
) -> tuple[float, float, float]:
    """A step of decodes alone at a mean context: seconds, slope per token of mean context, and the
    context up to which it is straight.

    ``base_s`` is :func:`batch_seconds` of these sequences.
    """
    decodes, i = decodes_of(p, running), 0
    while i < p.line.shape[0] - 1 and context >= p.line[i, 0]:
        i += 1
    c0, c1 = decodes * p.line[i, 1], decodes * p.line[i, 2]
    m0, m1 = decodes * p.line[i, 3], decodes * p.line[i, 4]
    rest = base_s
    if p.one[T_WHOLE]:
        tokens = decodes * p.one[T_TOKENS_PER_DECODE]
        c0 += p.linear[0, 0] * tokens
        m0 += whole_reads(p, tokens)
        rest = 0.0
    end = p.line[i, 0]
    compute, memory = c0 + c1 * context, m0 + m1 * context
    first, slope, other, other_slope = compute, c1, memory, m1
    if memory > compute or (memory == compute and m1 > c1):
        first, slope, other, other_slope = memory, m1, compute, c1
    if other_slope > slope:
        end = min(end, context + (first - other) / (other_slope - slope))
    return (rest + first) * p.one[T_SCALE], slope * p.one[T_SCALE], end


@compiled
def whole_reads(p: PackedSteps, tokens: float) -> float:
    """Napkin: weights that a step reads [s]."""
    total = p.linear[0, 1]
    for i in range(p.expert.shape[0]):
        total += p.expert[i, 2] * (1.0 - (1.0 - p.expert[i, 3]) ** (tokens * p.one[T_RANKS]))
    return total


@compiled
def mixed_seconds(
    p: PackedSteps,
    running: float,
    context: float,
    new_tokens: float,
    prompts: float,
    logits: float,
    compute_s: float,
    memory_s: float,
) -> float:
    """A step with decodes and prompt parts [s].

    ``compute_s`` and ``memory_s`` are the sums of :func:`prompt_work` over the parts.
    """
    decodes = decodes_of(p, running)
    if p.one[T_WHOLE]:
        tokens = decodes * p.one[T_TOKENS_PER_DECODE] + new_tokens
        if tokens <= 0.0:
            return 0.0
        compute, memory = p.linear[0, 0] * tokens, whole_reads(p, tokens)
        if decodes > 0.0:
            i = 0
            while i < p.line.shape[0] - 1 and context >= p.line[i, 0]:
                i += 1
            compute += decodes * (p.line[i, 1] + p.line[i, 2] * context)
            memory += decodes * (p.line[i, 3] + p.line[i, 4] * context)
        return p.one[T_SCALE] * max(compute + compute_s, memory + memory_s)
    total = batch_seconds(p, decodes, new_tokens, prompts, logits) + max(compute_s, memory_s)
    if decodes > 0.0:
        i = 0
        while i < p.line.shape[0] - 1 and context >= p.line[i, 0]:
            i += 1
        total += decodes * max(
            p.line[i, 1] + p.line[i, 2] * context, p.line[i, 3] + p.line[i, 4] * context
        )
    return p.one[T_SCALE] * total


@compiled
def draft_seconds(
    p: PackedSteps,
    passes: float,
    running: float,
    context: float,
    new_tokens: float,
    prompts: float,
    logits: float,
    compute_s: float,
    memory_s: float,
) -> float:
    """What a draft model adds to a step [s].

    Its first pass takes the prompt parts along with the decodes of a wave, the others are of
    decodes alone; ``p`` is the draft's, ``compute_s`` and ``memory_s`` its :func:`prompt_work`.
    """
    total = mixed_seconds(p, running, context, new_tokens, prompts, logits, compute_s, memory_s)
    more = passes * waves_of(p, running) - 1.0
    if more > 0.0:
        total += more * mixed_seconds(p, running, context, 0.0, 0.0, 0.0, 0.0, 0.0)
    return total


@entry
def step_seconds(p: PackedSteps, draft: PackedSteps, passes: float, decodes: Array, context: Array,
                 new_tokens: Array, prompts: Array, cached: Array, logits: Array) -> Array:
    """Steps of a rank [s].

    Parameters
    ----------
    draft, passes : PackedSteps, float
        The draft model and its passes over each wave of the decodes of a step; 0: none.
    decodes, context : ndarray, shape (N,) or (1,)
        Sequences that decode, and their mean context [token].
    new_tokens, prompts, cached : ndarray, shape (N,) or (1,)
        [token] in prompt parts, the number of these (all equal), and what of each prompt is in the
        cache [token].
    logits : ndarray, shape (N,) or (1,)
        Prompt parts that need logits.

    Returns
    -------
    ndarray, shape (N,)
    """
    count = max(len(decodes), len(context), len(new_tokens), len(prompts), len(cached),
                len(logits))
    found = np.empty(count)
    for i in range(count):
        tokens, compute, memory, parts = at(new_tokens, i), 0.0, 0.0, 0.0
        if tokens > 0.0:
            parts = max(at(prompts, i), 1e-9)
            compute, memory = prompt_work(p, tokens / parts, at(cached, i))
        ends = at(logits, i) if tokens > 0.0 else 0.0
        found[i] = mixed_seconds(p, at(decodes, i), at(context, i), tokens, parts, ends,
                                 parts * compute, parts * memory)
        if passes > 0.0:
            if tokens > 0.0:
                compute, memory = prompt_work(draft, tokens / parts, at(cached, i))
            found[i] += draft_seconds(draft, passes, at(decodes, i), at(context, i), tokens, parts,
                                      ends, parts * compute, parts * memory)
    return found


@entry
def table_columns(p: PackedSteps, draft: PackedSteps, passes: float, ranks: float, size: int,
                  context: float, new_tokens: Array, cached: Array) -> tuple[Array, Array]:
    """Steps of 1..size sequences that decode at a mean context, shape (size,), and prefills of one
    prompt each, shape (k,) [s]; ``ranks`` share the sequences. ``draft`` and ``passes`` as in
    :func:`step_seconds`."""
    decode_s, prefill_s = np.empty(size), np.empty(len(new_tokens))
    for i in range(size):
        own = max((i + 1.0) / ranks, 1.0)
        decode_s[i] = mixed_seconds(p, own, context, 0.0, 0.0, 0.0, 0.0, 0.0)
        if passes > 0.0:
            decode_s[i] += draft_seconds(draft, passes, own, context, 0.0, 0.0, 0.0, 0.0, 0.0)
    for k in range(len(new_tokens)):
        compute, memory = prompt_work(p, new_tokens[k], cached[k])
        prefill_s[k] = mixed_seconds(p, 0.0, 0.0, new_tokens[k], 1.0, 1.0, compute, memory)
        if passes > 0.0:
            compute, memory = prompt_work(draft, new_tokens[k], cached[k])
            prefill_s[k] += mixed_seconds(draft, 0.0, 0.0, new_tokens[k], 1.0, 1.0, compute,
                                          memory)
    return decode_s, prefill_s


@compiled
def at(column: Array, place: int) -> float:
    """The value at a place of a column, or the only one."""
    return column[place] if len(column) > 1 else column[0]


# -- what the steps of a replica allow (planner.setups) ---------------------------------------


@compiled
def rate_within(token_s: Array, taken_s: Array, answer_tokens: float, limit_s: float,
                level: float) -> float:
    """:func:`highest_rate`, which other machine code calls."""
    least_s, kept_s = np.inf, np.inf
    for i in range(len(token_s)):
        taken = taken_s[i] if len(taken_s) > 1 else taken_s[0]
        answer_s = answer_tokens * token_s[i] / (i + 1.0)
        least_s = min(least_s, answer_s + taken)
        if token_s[i] <= limit_s:
            kept_s = min(kept_s, level * answer_s + taken)
    return min(1.0 / least_s, 1.0 / kept_s) if kept_s < np.inf else 1.0 / least_s


@entry
def highest_rate(token_s: Array, taken_s: Array, answer_tokens: float, limit_s: float,
                 level: float) -> float:
    """:attr:`planner.setups.continuous.Continuous.ceiling` [1/s].

    Parameters
    ----------
    token_s, taken_s : ndarray, shape (N,) or (1,)
        [s] of a token, and what a prompt takes from the decodes, over the running sequences.
    limit_s, level : float
        Target on the time of a token [s], infinite where there is none, and the share that keeps
        it.
    """
    return rate_within(token_s, taken_s, answer_tokens, limit_s, level)


class ChunkAsk(NamedTuple):
    """What chunks of prompts are asked for, whatever their budget.

    Attributes
    ----------
    ranks, tokens_per_decode, passes : float
        Data-parallel ranks; tokens that a decode verifies; passes of a draft model a step.
    least_room, residual : float
        :data:`planner.setups.chunked.MIN_CHUNK_TOKENS` [token] and
        :data:`planner.setups.chunked.CHUNK_RESIDUAL`.
    context, longest, coming, cached : float
        [token] context of a running sequence; prompt that a prompt token belongs to; prompt tokens
        that come in a step for each that decodes; what is cached before that prompt.
    tokens, depth, weights, fixed_s : ndarray, shape (k,)
        [token] of a prompt and the mean depth of its tokens; shares; [s] in which its prefill does
        not run.
    answer_tokens, limit_s, level : float
        As for :func:`highest_rate`.
    pace : float
        Mean TPOT of the answers over the time of a token.
    """

    ranks: float
    tokens_per_decode: float
    passes: float
    least_room: float
    residual: float
    context: float
    longest: float
    coming: float
    cached: float
    tokens: Array
    depth: Array
    weights: Array
    fixed_s: Array
    answer_tokens: float
    pace: float
    limit_s: float
    level: float


@compiled
def chunk_step(p: PackedSteps, draft: PackedSteps, running: float, chunk: float, ask: ChunkAsk
               ) -> float:
    """A step of decodes with a chunk [token] beside them [s], that of a draft model included."""
    own = max(running / ask.ranks, 1.0) if ask.ranks > 1.0 else running
    parts = max(chunk / ask.longest, 1.0)
    cached = ask.cached + max(ask.longest - chunk, 0.0) / 2.0
    compute, memory = prompt_work(p, chunk / parts, cached)
    seconds = mixed_seconds(p, own, ask.context, chunk, parts, 0.0, parts * compute,
                            parts * memory)
    if ask.passes > 0.0:
        compute, memory = prompt_work(draft, chunk / parts, cached)
        seconds += draft_seconds(draft, ask.passes, own, ask.context, chunk, parts, 0.0,
                                 parts * compute, parts * memory)
    return seconds


@compiled
def depth_slope(p: PackedSteps, draft: PackedSteps, ask: ChunkAsk) -> float:
    """:func:`planner.setups.base.depth_slope_s` [s/token^2]."""
    deeper = ask.cached + ask.longest
    found = np.empty(2)
    for k in range(2):
        compute, memory = prompt_work(p, ask.longest, k * deeper)
        found[k] = mixed_seconds(p, 0.0, 0.0, ask.longest, 1.0, 0.0, compute, memory)
        if ask.passes > 0.0:
            compute, memory = prompt_work(draft, ask.longest, k * deeper)
            found[k] += mixed_seconds(draft, 0.0, 0.0, ask.longest, 1.0, 0.0, compute, memory)
    return (found[1] - found[0]) / (ask.longest * deeper)


@entry
def chunk_columns(p: PackedSteps, draft: PackedSteps, caps: NDArray[np.int64], step_s: Array,
                  decode_s: Array, budgets: Array, ask: ChunkAsk
                  ) -> tuple[Array, NDArray[np.int64], Array, Array]:
    """Columns of chunked prefill for several budgets [token].

    Parameters
    ----------
    draft : PackedSteps
        The draft model; any where ``ask.passes`` is 0.
    caps, step_s, decode_s : ndarray
        As of :class:`planner.setups.base.Table`.

    Returns
    -------
    rows : ndarray, shape (budgets, 4, N)
        Space [token], mixed step and step [s] and chunk [token], over the running sequences; mixed
        steps are evaluated at the batch limits and linear between them.
    sizes : ndarray, shape (budgets, 2)
        Batch limits that leave room for a chunk, and the largest batch.
    bounds : ndarray, shape (budgets, 2)
        Rate [1/s] that none exceeds, and [s] that mean TTFT and TPOT together are never below.
    further_s : ndarray, shape (k,)
        What prompts take beyond tokens at their mean depth [s].
    """
    rows = np.empty((len(budgets), 4, len(step_s)))
    sizes = np.empty((len(budgets), 2), dtype=np.int64)
    bounds = np.empty((len(budgets), 2))
    further_s = ask.depth - (ask.cached + ask.longest / 2.0)
    if further_s.any():
        further_s *= depth_slope(p, draft, ask) * ask.tokens
    prompt_tokens = (ask.weights * ask.tokens).sum()
    for b in range(len(budgets)):
        space, mixed_s, chunk, count = rows[b, 0], rows[b, 1], rows[b, 3], 0
        rows[b, 2] = step_s
        room = (budgets[b] - ask.least_room) / ask.tokens_per_decode
        while count < len(caps) and caps[count] <= room:
            count += 1
        size = caps[count - 1] if count > 0 else 1
        sizes[b, 0], sizes[b, 1] = count, size
        for i in range(size):
            space[i] = max(budgets[b] - (i + 1.0) * ask.tokens_per_decode, 1.0)
            chunk[i] = min(space[i], ask.longest + ask.coming * (i + 1.0))
        last = 0
        mixed_s[0] = chunk_step(p, draft, 1.0, chunk[0], ask)
        for place in range(1, count):
            here = caps[place] - 1
            mixed_s[here] = chunk_step(p, draft, here + 1.0, chunk[here], ask)
            slope = (mixed_s[here] - mixed_s[last]) / (here - last)
            for i in range(last + 1, here):
                mixed_s[i] = mixed_s[last] + slope * (i - last)
            last = here
        taken, least = np.empty(size), np.inf
        for i in range(size):
            mixed_s[i] = max(mixed_s[i], step_s[i])
            extra = (mixed_s[i] - step_s[i]) / chunk[i]
            taken[i], least = extra * prompt_tokens, min(least, extra)
        bounds[b, 0] = rate_within(decode_s[:size], taken, ask.answer_tokens, ask.limit_s,
                                   ask.level)
        ttft_s = 0.0
        for k in range(len(ask.tokens)):
            steps = max(math.ceil(ask.tokens[k] / space[0]) + ask.residual - 1.0, 0.0)
            ttft_s += ask.weights[k] * (steps * step_s[0] + least * ask.tokens[k] + further_s[k]
                                        + ask.fixed_s[k])
        bounds[b, 1] = ttft_s + ask.pace * decode_s[0]
    return rows, sizes, bounds, further_s
