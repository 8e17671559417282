"""Cache arithmetic: entries that a layer keeps and reads, query-entry pairs, bytes per sequence."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.llm import KvStream, Llm

Array = NDArray[np.float64]


def heads_per_rank(heads: int, tensor: int) -> int:
    """Key/value heads on one tensor-parallel rank: split, and replicated past one head."""
    return max(1, -(-heads // tensor))


def kept_entries(stream: KvStream, context: Array) -> Array:
    """Cache entries that a sequence of ``context`` tokens keeps in one layer."""
    tokens = context if stream.window is None else np.minimum(context, stream.window)
    return np.asarray(tokens / stream.stride)


def attended_entries(stream: KvStream, context: Array) -> Array:
    """Cache entries that one decoding query reads in one layer.

    For a window that restarts at its multiples this is the most a query reads.
    """
    entries = kept_entries(stream, context)
    return entries if stream.attend is None else np.minimum(entries, stream.attend)


def prefill_pairs(stream: KvStream, tokens: Array, cached: Array) -> Array:
    """Query-entry pairs of one prompt part in one layer, causal and window-limited.

    Full attention: sum over i of (c + i) = q c + q (q + 1) / 2. With at most ``w`` keys a query,
    the first max(0, w - c) queries see c + i keys and the rest w. A window that restarts at its
    multiples sums ((j - 1) mod w) + 1.
    """
    if stream.chunked and stream.window is not None:
        return _restarting(cached + tokens, stream.window) - _restarting(cached, stream.window)
    limits = [x for x in (stream.window,
                          stream.attend and stream.attend * stream.stride) if x]
    if not limits:
        return (tokens * cached + tokens * (tokens + 1.0) / 2.0) / stream.stride
    cap = float(min(limits))
    growing = np.clip(cap - cached, 0.0, tokens)
    pairs = (growing * cached + growing * (growing + 1.0) / 2.0) + (tokens - growing) * cap
    return np.asarray(pairs / stream.stride)


def _restarting(position: Array, window: int) -> Array:
    """Sum of ((j - 1) mod w) + 1 for j = 1..position."""
    whole = np.floor(position / window)
    rest = position - whole * window
    return np.asarray(whole * window * (window + 1.0) / 2.0 + rest * (rest + 1.0) / 2.0)


def sequence_cache_bytes(llm: Llm, context: ArrayLike, kv: str, tensor: int = 1) -> Array:
    """Cache and state [B] that one sequence of ``context`` tokens keeps on one rank.

    Windows cap their layers; recurrent state is split over tensor ranks; heads that outnumber
    the ranks are split, fewer are replicated.
    """
    tokens = np.asarray(context, dtype=float)
    if not tokens.ndim:
        return np.asarray(one_sequence_bytes(llm, float(tokens), kv, tensor))
    total: Array = np.full_like(tokens, llm.state_bytes_per_sequence / tensor)
    for entry, window, stride in _kept(llm, kv, tensor):
        kept = tokens if window is None else np.minimum(tokens, window)
        total = total + entry * (kept / stride)
    return total


def one_sequence_bytes(llm: Llm, context: float, kv: str, tensor: int = 1) -> float:
    """The same [B] for one context [token]."""
    total = llm.state_bytes_per_sequence / tensor
    for entry, window, stride in _kept(llm, kv, tensor):
        tokens = context if window is None else min(context, window)
        total += entry * (tokens / stride)
    return total


def _kept(llm: Llm, kv: str, tensor: int) -> tuple[tuple[float, int | None, int], ...]:
    """Bytes [B] of an entry in all layers of a stream, its window and its stride."""
    return llm.remembered(("kept", kv, tensor), lambda: tuple(
        (count * (s.values_per_entry * s.value_bytes(kv)
                  * (heads_per_rank(s.heads, tensor) / s.heads)), s.window, s.stride)
        for count, s in llm.streams()))


def reading_streams(llm: Llm) -> tuple[tuple[int, KvStream], ...]:
    """Layer counts and streams that attention reads, shared ones included."""
    return llm.remembered(("reading_streams",), lambda: tuple(
        (group.count, stream) for group in llm.groups
        for stream in (*group.mixer.streams, *group.mixer.shared_streams)))
