"""The queue with bulk service that static batching is (:mod:`planner.setups.static`)."""

from __future__ import annotations

import math

import numpy as np

from planner.compiled import Array, compiled
from planner.loops.gamma import DIGITS, LIKELY
from planner.loops.stored import entry

LEAK = 1e-9
"""Chance of a fresh start, so that the chain is the one that an idle rank begins."""
MANY = 30.0
"""Arrivals in a cycle from which their number is taken as normal."""
FAR = 9.0
"""Standard deviations beyond which a normal has nothing."""


@compiled
def normal_within(x: float) -> float:
    """P(X <= x) of a standard normal."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@compiled
def fill_at_most(counts: Array, mean: float, variance: float, found: Array) -> None:
    """P(number <= count) of a negative binomial number, for counts that ascend, into ``found``.

    Its terms follow from one another; those past the mean that no longer count are left out.
    """
    mean = max(mean, DIGITS)
    over = max(variance, mean * (1.0 + 1e-6))
    if mean > MANY:
        for i in range(len(counts)):
            most = math.floor(counts[i])
            away = (most + 0.5 - mean) / math.sqrt(over)
            if most < 0.0 or away < -FAR:
                found[i] = 0.0
            else:
                found[i] = normal_within(away) if away < FAR else 1.0
        return
    shape, again = mean * mean / (over - mean), (over - mean) / over
    term = math.exp(-shape * math.log(over / mean)) if mean > 0.0 else 1.0
    within, k = term, 0.0
    for i in range(len(counts)):
        most = math.floor(counts[i])
        while k < most and not (k > mean and term < DIGITS * (1.0 - again)):
            term *= again * (shape + k) / (k + 1.0)
            within += term
            k += 1.0
        found[i] = min(within, 1.0) if most >= 0.0 else 0.0


@compiled
def stationary(moves: Array) -> Array:
    """Shares of the time in each state of a chain, which sum to 1; ``moves`` is written over.

    States are taken out from the last on, by sums and products of positive numbers alone, so no
    digit is lost (Grassmann, Taksar & Heyman 1985, *Operations Research* 33, 1107).

    Parameters
    ----------
    moves : ndarray, shape (G, G)
        Chance to go from a state (row) to another; every state leads to the first.
    """
    size = len(moves)
    for last in range(size - 1, 0, -1):
        low, out = 1, moves[last, 0]  # states between the first and ``low`` are not reached
        while low < last and moves[last, low] == 0.0:
            low += 1
        for j in range(low, last):
            out += moves[last, j]
        for i in range(last):
            moves[i, last] /= out
            if moves[i, last] > 0.0:
                moves[i, 0] += moves[i, last] * moves[last, 0]
                for j in range(low, last):
                    moves[i, j] += moves[i, last] * moves[last, j]
    share, total = np.empty(size), 1.0
    share[0] = 1.0
    for state in range(1, size):
        share[state] = 0.0
        for i in range(state):
            share[state] += share[i] * moves[i, state]
        total += share[state]
    return share / total


@entry
def queue_shares(ends: Array, left: Array, come: Array, swing: Array, shares: Array) -> Array:
    """Shares of the cycles by the group of the queue when they start, shape (G + 1,).

    The first state is a cycle that an arrival started.

    Parameters
    ----------
    ends : ndarray, shape (G,)
        Longest queue of each group.
    left : ndarray, shape (G + 1,)
        Requests of the queue that the cycle of a state leaves waiting.
    come, swing, shares : ndarray, shape (G + 1, k)
        Those that come while it lasts, mean and variance of their number, by its length; shares of
        the lengths.
    """
    size = len(left)
    moves, counts, reached = np.empty((size, size)), np.empty(size), np.empty(size)
    within = np.empty(size)
    for state in range(size):
        counts[0] = -left[state]
        for group in range(1, size):
            counts[group] = ends[group - 1] - left[state]
        reached[:] = 0.0
        for length in range(shares.shape[1]):
            if shares[state, length] > 0.0:
                fill_at_most(counts, come[state, length], swing[state, length], within)
                for group in range(size):
                    reached[group] += shares[state, length] * within[group]
        reached[size - 1] = 1.0
        before = 0.0
        for group in range(size):
            moves[state, group] = (reached[group] - before) * (1.0 - LEAK)
            before = reached[group]
        moves[state, 0] += LEAK
    return stationary(moves)


@entry
def turns_ahead(cap: float, turns: int, ahead: Array, spread: Array) -> Array:
    """Chance that a request waits for each number of whole cycles besides the running one, shape
    (C, turns): full ones, of ``cap`` requests, for those ``ahead`` of it, normally distributed."""
    rows = np.zeros((len(ahead), turns))
    for cycle in range(len(ahead)):
        before = 0.0
        for turn in range(turns):
            away = (cap * (turn + 1.0) - 0.5 - ahead[cycle]) / spread[cycle]
            last = turn == turns - 1 or away > FAR
            within = 1.0 if last else normal_within(away) if away > -FAR else 0.0
            rows[cycle, turn] = within - before
            before = within
            if last:
                break
    return rows


@entry
def first_tokens_within(limits_s: Array, met: Array, whole_s: Array, turns: Array, turn_s: float,
                        first_s: Array, first_shares: Array) -> Array:
    """Share of the requests that come during a cycle and have their first token within limits [s]:
    the rest of that cycle, uniform, whole ones besides, and their own prefill.

    Parameters
    ----------
    met, whole_s : ndarray, shape (C,)
    turns : ndarray, shape (C, T)
    turn_s : float
    first_s, first_shares : ndarray, shape (C, k)
        See :class:`planner.setups.static.Batches`.
    """
    found = np.zeros(len(limits_s))
    for cycle in range(len(met)):
        for turn in range(turns.shape[1]):
            weight = turns[cycle, turn] * met[cycle]
            if weight <= LIKELY:
                continue
            for node in range(first_s.shape[1]):
                if first_shares[cycle, node] <= 0.0:
                    continue
                for i in range(len(limits_s)):
                    left_s = limits_s[i] - turn_s * turn - first_s[cycle, node]
                    if left_s > 0.0:
                        found[i] += (weight * first_shares[cycle, node]
                                     * min(left_s / whole_s[cycle], 1.0))
    return found
