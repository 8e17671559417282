"""The queue with bulk service that static batching is (:mod:`planner.setups.static`)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

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
def queue_shares(ends: Array, left: Array, come: Array, swing: Array) -> Array:
    """Shares of the cycles by the group of the queue when they start, shape (G + 1,).

    The first state is a cycle that an arrival started.

    Parameters
    ----------
    ends : ndarray, shape (G,)
        Longest queue of each group.
    left, come, swing : ndarray, shape (G + 1,)
        Requests of the queue that the cycle of a state leaves waiting; those that come while it
        lasts, mean and variance of their number.
    """
    size = len(left)
    moves, counts, reached = np.empty((size, size)), np.empty(size), np.empty(size)
    for state in range(size):
        counts[0] = -left[state]
        for group in range(1, size):
            counts[group] = ends[group - 1] - left[state]
        fill_at_most(counts, come[state], swing[state], reached)
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
    (G, turns): full ones, of ``cap`` requests, for those ``ahead`` of it, normally distributed."""
    rows = np.empty((len(ahead), turns))
    for state in range(len(ahead)):
        before = 0.0
        for turn in range(turns):
            within = 1.0 if turn == turns - 1 else normal_within(
                (cap * (turn + 1.0) - 0.5 - ahead[state]) / spread[state])
            rows[state, turn] = within - before
            before = within
    return rows


@entry
def cycle_moments(lengths_s: Array, shares: Array, spread_s: Array, nodes: Array,
                  node_shares: Array, place: NDArray[np.intp]) -> Array:
    """E[C] [s], E[C^2] [s^2] and E[C^3] [s^3] of the cycles of some batches, shape (3, G): see
    :func:`first_tokens_within`; where ``place`` repeats itself it is worked out once."""
    rows = np.zeros((3, len(place)))
    for state in range(len(place)):
        b = place[state]
        if state > 0 and b == place[state - 1]:
            rows[:, state] = rows[:, state - 1]
            continue
        for node in range(3):
            for i in range(lengths_s.shape[1]):
                cycle_s = max(lengths_s[b, i] + spread_s[b] * nodes[b, node], 0.0)
                share = shares[b, i] * node_shares[b, node]
                for power in range(3):
                    share *= cycle_s
                    rows[power, state] += share
    return rows


@compiled
def rest_within(left_s: float, lengths_s: Array, shares: Array, spread_s: float, nodes: Array,
                node_shares: Array) -> float:
    """E[min(C, t)] [s] of a cycle C, its longest answer and its prefill apart: a share of the
    requests in it as large as this over E[C] meets a rest of at most t = ``left_s`` [s]."""
    rest_s = 0.0
    for node in range(3):
        for i in range(len(lengths_s)):
            cycle_s = max(lengths_s[i] + spread_s * nodes[node], 0.0)
            rest_s += shares[i] * node_shares[node] * min(cycle_s, left_s)
    return rest_s


@entry
def first_tokens_within(limits_s: Array, lengths_s: Array, shares: Array, spread_s: Array,
                        nodes: Array, node_shares: Array, place: NDArray[np.intp], met: Array,
                        whole_s: Array, turns: Array, turn_s: float, first_s: Array,
                        first_shares: Array) -> Array:
    """Share of the requests that come during a cycle and have their first token within limits [s]:
    the rest of that cycle, whole ones besides, and their own prefill.

    Parameters
    ----------
    lengths_s, shares : ndarray, shape (N, a)
    spread_s : ndarray, shape (N,)
    nodes, node_shares : ndarray, shape (N, 3)
        See :class:`planner.setups.static.Cycles`, whose batches ``place`` tells of the states.
    place, met, whole_s : ndarray, shape (G,)
    turns : ndarray, shape (G, T)
    turn_s : float
    first_s, first_shares : ndarray, shape (G, 3)
        See :class:`planner.setups.static.Batches`.
    """
    found = np.zeros(len(limits_s))
    for state in range(len(place)):
        b = place[state]
        for turn in range(turns.shape[1]):
            weight = turns[state, turn] * met[state]
            if weight <= LIKELY:
                continue
            for node in range(3):
                for i in range(len(limits_s)):
                    left_s = limits_s[i] - turn_s * turn - first_s[state, node]
                    if left_s > 0.0:
                        found[i] += weight * first_shares[state, node] / whole_s[
                            state] * rest_within(left_s, lengths_s[b], shares[b], spread_s[b],
                                                 nodes[b], node_shares[b])
    return found
