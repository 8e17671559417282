"""Compiled evaluation of :class:`planner.simulator.steps.Steps`."""

from __future__ import annotations

import math

from numba import njit

from planner.simulator.steps import NO_LIMIT, Steps


@njit(cache=True, inline="always")
def tiled(rows: float, tile: float) -> float:
    """Rows rounded up to whole tiles, above one tile."""
    if tile <= 1.0 or rows <= tile:
        return rows
    return math.ceil(rows / tile) * tile


@njit(cache=True)
def expert_seconds(p: Steps, tokens: float) -> float:
    """Routed experts: products and reads per format, the larger of both [s]."""
    total, place, count = 0.0, 0, p.expert.shape[0]
    while place < count:
        fmt = p.expert[place, 0]
        compute, memory, rows = 0.0, 0.0, 0.0
        while place < count and p.expert[place, 0] == fmt:
            hit = 1.0 - (1.0 - p.expert[place, 3]) ** (tokens * p.ranks)
            compute += p.expert[place, 1] * tokens
            memory += p.expert[place, 2] * hit
            touched = max(hit * p.expert[place, 5], 1e-12)
            rows = max(rows, tokens * p.ranks * p.expert[place, 4] / touched)
            place += 1
        slow = (tiled(rows, p.tile) + p.half) / max(rows, 1e-12) if rows > 0.0 else 1.0
        total += max(compute * slow, memory)
    return total


@njit(cache=True)
def batch_seconds(p: Steps, decodes: float, new_tokens: float, prompts: float, logits: float
                  ) -> float:
    """Everything of a step but attention [s]: what does not depend on contexts."""
    tokens = decodes * p.tokens_per_decode + new_tokens
    if tokens <= 0.0:
        return 0.0
    total = p.fixed_s + p.token_s * tokens
    rows = tiled(tokens, p.tile) + p.half
    for i in range(p.linear_s.shape[0]):
        total += max(p.linear_s[i] * rows, p.linear_read_s[i])
    if p.expert.shape[0]:
        total += expert_seconds(p, tokens)
    heads = decodes * p.tokens_per_decode + logits
    if heads > 0.0:
        total += max(p.head_s * (tiled(heads, p.tile) + p.half), p.head_read_s)
    return total + max(p.state_token_s * tokens, p.state_read_s * (decodes + prompts))


@njit(cache=True)
def prompt_work(p: Steps, tokens: float, cached: float) -> tuple[float, float]:
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
            half = 0.0 if p.whole else 1.0
            pairs = growing * cached + growing * (growing + half) / 2.0
            if growing < tokens:
                pairs += (tokens - growing) * limit
            pairs /= stride
        kept = min(cached, window) / stride
        compute += p.prompt[i, 0] * pairs + p.prompt[i, 1] * kept
        written = 0.0 if p.whole else tokens / stride
        memory += p.prompt[i, 2] * (kept + written) + p.prompt[i, 7]
    return compute, memory


@njit(cache=True, inline="always")
def _restarting(position: float, window: float) -> float:
    whole = math.floor(position / window)
    rest = position - whole * window
    return whole * window * (window + 1.0) / 2.0 + rest * (rest + 1.0) / 2.0


@njit(cache=True, inline="always")
def decodes_of(p: Steps, running: float) -> float:
    """Sequences that one wave of the pipeline decodes."""
    if running <= 0.0:
        return 0.0
    return max(running / p.pipeline, 1.0) if p.pipeline > 1.0 else running


@njit(cache=True)
def decode_line(p: Steps, base_s: float, running: float, context: float
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
    if p.whole:
        tokens = decodes * p.tokens_per_decode
        c0 += p.linear_s[0] * tokens
        m0 += whole_reads(p, tokens)
        rest = 0.0
    end = p.line[i, 0]
    compute, memory = c0 + c1 * context, m0 + m1 * context
    first, slope, other, other_slope = compute, c1, memory, m1
    if memory > compute or (memory == compute and m1 > c1):
        first, slope, other, other_slope = memory, m1, compute, c1
    if other_slope > slope:
        end = min(end, context + (first - other) / (other_slope - slope))
    return (rest + first) * p.scale, slope * p.scale, end


@njit(cache=True)
def whole_reads(p: Steps, tokens: float) -> float:
    """Napkin: weights that a step reads [s]."""
    total = p.linear_read_s[0]
    for i in range(p.expert.shape[0]):
        total += p.expert[i, 2] * (1.0 - (1.0 - p.expert[i, 3]) ** (tokens * p.ranks))
    return total


@njit(cache=True)
def mixed_seconds(p: Steps, running: float, context: float, new_tokens: float, prompts: float,
                  logits: float, compute_s: float, memory_s: float) -> float:
    """A step with decodes and prompt parts [s].

    ``compute_s`` and ``memory_s`` are the sums of :func:`prompt_work` over the parts.
    """
    decodes = decodes_of(p, running)
    if p.whole:
        tokens = decodes * p.tokens_per_decode + new_tokens
        compute, memory = p.linear_s[0] * tokens, whole_reads(p, tokens)
        if decodes > 0.0:
            i = 0
            while i < p.line.shape[0] - 1 and context >= p.line[i, 0]:
                i += 1
            compute += decodes * (p.line[i, 1] + p.line[i, 2] * context)
            memory += decodes * (p.line[i, 3] + p.line[i, 4] * context)
        return p.scale * max(compute + compute_s, memory + memory_s)
    total = batch_seconds(p, decodes, new_tokens, prompts, logits) + max(compute_s, memory_s)
    if decodes > 0.0:
        i = 0
        while i < p.line.shape[0] - 1 and context >= p.line[i, 0]:
            i += 1
        total += decodes * max(p.line[i, 1] + p.line[i, 2] * context,
                               p.line[i, 3] + p.line[i, 4] * context)
    return p.scale * total
