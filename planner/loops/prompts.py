"""Prompts that are prefilled beside decodes (:mod:`planner.setups.continuous`)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from planner.compiled import Array, compiled
from planner.loops.stored import entry
from planner.loops.waits import shared_wait


class Prompts(NamedTuple):
    """How prompts are prefilled on a replica that decodes, over ``n`` running sequences.

    Attributes
    ----------
    chunked : bool
        In chunks beside the decodes, or whole before them.
    ranks : float
        Data-parallel ranks, to which requests are dealt at random.
    rows : ndarray, shape (4, N)
        Space [token], mixed step, decode step [s] and chunk [token]; of whole prompts only the
        decode step counts.
    tokens : ndarray, shape (k,)
        [token] of a prompt.
    further_s, fixed_s : ndarray, shape (k,)
        [s] beyond that of tokens at their mean depth; in which the prefill does not run (of whole
        prompts: until the first token of an idle replica).
    powers : ndarray, shape (4, 4)
        E[p^i f^j] at [i, j] of tokens p and further f; of whole prompts E[S^i] at [i, 0].
    residual : float
        Share of a step that a new prompt waits for.
    kept : float
        Times its time on a rank that a prompt keeps the rank from the next.
    shared : float
        See :meth:`planner.setups.base.Table.wait`.
    together : float
        Share of its time that a prompt takes from those in its pass besides, see
        :class:`planner.setups.colocated.Colocated`.
    """

    chunked: bool
    ranks: float
    rows: Array
    tokens: Array
    further_s: Array
    fixed_s: Array
    powers: Array
    residual: float
    kept: float
    shared: float
    together: float


@entry
def mixed_powers(tokens: Array, further_s: Array, weights: Array) -> Array:
    """E[p^i f^j] at [i, j] of prompts of p tokens that take f beyond, shape (4, 4)."""
    powers = np.zeros((4, 4))
    for k in range(len(tokens)):
        of_tokens = weights[k]
        for i in range(4):
            both = of_tokens
            for j in range(4):
                powers[i, j] += both
                both *= further_s[k]
            of_tokens *= tokens[k]
    return powers


@entry
def chunk_states(step_s: Array, mixed_s: Array, space: Array, chunk: Array, accepted: float,
                 ranks: float, powers: Array) -> Array:
    """:attr:`planner.setups.chunked.Chunked.states`, shape (9, N).

    ``powers`` as of :class:`Prompts`: a prompt of p tokens that take ``a`` each takes ``p a + f``.
    """
    rows = np.empty((9, len(step_s)))
    mean = powers[1, 0]
    for i in range(len(step_s)):
        extra = (mixed_s[i] - step_s[i]) / chunk[i]
        each = step_s[i] / space[i] + extra
        rows[0, i] = step_s[i] / accepted
        rows[1, i] = extra * mean
        rows[2, i] = step_s[i] / space[i]
        rows[3, i] = mean * each / ranks
        rows[4, i] = (each * (each * powers[2, 0] + 2.0 * powers[1, 1]) + powers[0, 2]) / ranks
        rows[5, i] = mean * each + step_s[i]
        rows[6, i] = extra * mean
        rows[7, i] = extra * (extra * powers[2, 0] + 2.0 * powers[1, 1]) + powers[0, 2]
        rows[8, i] = extra * space[i] / accepted
    return rows


@compiled
def prefill_of(rate_per_s: float, arrival_cv2: float, running: float, busy_s: float,
               tokens_per_s: float, p: Prompts, latency: Array) -> tuple[float, float, float]:
    """busy, mean [s] and mean of squares [s^2] of the wait of a prompt that meets ``running``
    sequences; writes its latency [s], shape (k,). ``busy_s`` is what a whole prompt takes from
    the decodes."""
    last = p.rows.shape[1] - 1
    at = min(max(running - 1.0, 0.0), float(last))
    low = int(at)
    high, part = min(low + 1, last), at - low
    decode = p.rows[2, low] + part * (p.rows[2, high] - p.rows[2, low])
    own_cv2 = 1.0 + (arrival_cv2 - 1.0) / p.ranks
    ahead = max(own_cv2 - 1.0, 0.0) / 2.0
    rate = rate_per_s / p.ranks
    if p.chunked:
        space = p.rows[0, low] + part * (p.rows[0, high] - p.rows[0, low])
        mixed = p.rows[1, low] + part * (p.rows[1, high] - p.rows[1, low])
        chunk = p.rows[3, low] + part * (p.rows[3, high] - p.rows[3, low])
        per_token = (mixed - decode) / chunk
        waited_s = p.residual * decode / (1.0 - min(tokens_per_s * per_token, 0.95))
        for k in range(len(p.tokens)):
            latency[k] = (math.ceil(p.tokens[k] / space) * decode + per_token * p.tokens[k]
                          + p.further_s[k] + waited_s + p.fixed_s[k])
        each, e = decode / space + per_token, p.powers
        return shared_wait(
            rate, each * e[1, 0] + e[0, 1],
            each * (each * e[2, 0] + 2.0 * e[1, 1]) + e[0, 2],
            each * (each * (each * e[3, 0] + 3.0 * e[2, 1]) + 3.0 * e[1, 2]) + e[0, 3],
            p.kept, own_cv2, ahead, p.shared)
    for k in range(len(p.tokens)):
        latency[k] = p.fixed_s[k] + p.residual * decode
    busy, mean_s, square = shared_wait(rate, p.powers[1, 0], p.powers[2, 0], p.powers[3, 0],
                                       p.kept, own_cv2, ahead, p.shared)
    if p.together <= 0.0:
        return busy, mean_s, square
    others = rate * max(1.0 - rate_per_s * busy_s, 0.0) * decode
    more_s = others * p.together * p.powers[1, 0]
    more_square = others * p.together * p.together * p.powers[2, 0] + more_s * more_s
    return (1.0 - (1.0 - busy) * math.exp(-others), mean_s + more_s,
            square + more_square + 2.0 * mean_s * more_s)


@entry
def prefills(rate_per_s: float, arrival_cv2: float, running: Array, busy_s: float,
             tokens_per_s: float, p: Prompts) -> tuple[Array, Array]:
    """:func:`prefill_of` of each case: waits, shape (3, cases), and latencies [s], (cases, k)."""
    waits, latency = np.empty((3, len(running))), np.empty((len(running), len(p.tokens)))
    for case in range(len(running)):
        waits[0, case], waits[1, case], waits[2, case] = prefill_of(
            rate_per_s, arrival_cv2, running[case], busy_s, tokens_per_s, p, latency[case])
    return waits, latency
