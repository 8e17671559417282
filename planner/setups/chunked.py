"""Continuous batching with chunked prefill (stall-free) under a token budget.

Every step carries the decodes first and fills the rest of the budget ``C`` with prompt tokens. A
share ``f = lambda p step / (C - n)`` of the steps carries a chunk and takes ``T_mix``, the rest
``D``; so the mean step is ``D / (1 - lambda p (T_mix - D) / (C - n))``. Sarathi-Serve (OSDI 2024)
section 4.2, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.arrivals import burst_ahead
from planner.loops import Prompts, chunk_states, mixed_powers
from planner.setups.base import (
    Table,
    cached_of_token,
    depth_prompts,
    depth_slope_of,
    prompt_of_token,
)
from planner.setups.continuous import Array, Continuous

CHUNK_RESIDUAL = 0.9
"""Share of a mean step that a new prompt waits for: the rest of the running one, and the longer
steps that chunks make are met more often (set against a step-level simulation, erring safe)."""
MIN_CHUNK_TOKENS = 16
"""[token] least room that a batch limit leaves for a chunk."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What a token budget leaves beside ``n`` decodes, and the step that uses it.

    Attributes
    ----------
    caps : ndarray of int
        Batch limits that leave room for a chunk.
    space, chunk : ndarray, shape (size,)
        [token] left for prompts, and of them what a prompt fills.
    mixed_s : ndarray, shape (size,)
        Step with a chunk [s]: evaluated at the batch limits, linear between them.
    further_s : ndarray, shape (k,)
        See :func:`_further_s`; the same for all budgets.
    powers : ndarray, shape (4, 4)
        E[p^i f^j] at [i, j] over the prompts: p their tokens, f what they take beyond that of
        tokens at their mean depth [s]; the same for all budgets.
    """

    caps: NDArray[np.int64]
    space: Array
    chunk: Array
    mixed_s: Array
    further_s: Array
    powers: Array

    @property
    def size(self) -> int:
        """The largest batch."""
        return len(self.space)

    @classmethod
    def of_budgets(cls, table: Table, token_budgets: Sequence[int]) -> list[Columns]:
        """Columns of several budgets [token] from one evaluation of the steps."""
        longest = max(prompt_of_token(table), 1.0)
        coming = _coming(table) * table.workload.new_prompt.mean
        caps, at, spaces, chunks = [], [], [], []
        for budget in token_budgets:
            room = (budget - MIN_CHUNK_TOKENS) / table.tokens_per_decode
            caps.append(table.caps[table.caps <= room])
            at.append(caps[-1].astype(np.intp) - 1 if caps[-1].size else np.zeros(1, np.intp))
            n = table.n[: at[-1][-1] + 1]
            spaces.append(np.maximum(budget - n * table.tokens_per_decode, 1.0))
            chunks.append(np.minimum(spaces[-1], longest + coming * n))
        seconds, slope_s = _mixed_s(table, table.n[np.concatenate(at)], np.concatenate(
            [chunk[places] for chunk, places in zip(chunks, at, strict=True)]))
        steps = np.split(seconds, np.cumsum([places.size for places in at])[:-1])
        mixed = [np.maximum(np.interp(table.n[: len(space)], table.n[places], step),
                            table.step_s[: len(space)])
                 for space, places, step in zip(spaces, at, steps, strict=True)]
        further = _further_s(table, slope_s)
        powers = mixed_powers(table.prompt_tokens, further, table.prompt_weights)
        return [cls(*row, further, powers) for row in zip(caps, spaces, chunks, mixed, strict=True)]


class Chunked(Continuous):
    """Chunked prefill with a budget of ``token_budget`` tokens a step.

    Parameters
    ----------
    table : Table
    token_budget : int
        [token] a step, decodes included.
    """

    setup = "chunked"

    def __init__(self, table: Table, token_budget: int, columns: Columns | None = None) -> None:
        super().__init__(table)
        own = columns or Columns.of_budgets(table, [token_budget])[0]
        self.token_budget, self.caps, self.size = token_budget, own.caps, own.size
        self.space, self.chunk, self.mixed = own.space, own.chunk, own.mixed_s
        self.decode = table.step_s[: self.size]
        self.accepted = float(table.step_s[0] / table.decode_s[0])
        """Tokens that a sequence gets from a step (1 without speculation)."""
        self.extra_per_token = (self.mixed - self.decode) / self.chunk
        self.further_s, self.powers = own.further_s, own.powers

    @classmethod
    def of_budgets(cls, table: Table, token_budgets: Sequence[int]) -> list[Chunked]:
        """One setup for each budget; their steps are evaluated in one go."""
        columns = Columns.of_budgets(table, token_budgets)
        return [cls(table, budget, own) for budget, own in zip(token_budgets, columns, strict=True)]

    @cached_property
    def states(self) -> Array:
        """A prompt's chunks lengthen the steps by their extra time, over all of the prompt."""
        found: Array = chunk_states(self.decode, self.mixed, self.space, self.chunk, self.accepted,
                                    float(self.table.deployment.layout.data), self.powers)
        return found

    def behind(self, cv2: float) -> float:
        """All of its burst."""
        return burst_ahead(cv2)

    @cached_property
    def prompts(self) -> Prompts:
        """In chunk steps; the latency counts whole steps, the load only its tokens.

        The engine's scale is one on the prefill of the prompt alone, and not on decodes beside it.
        """
        table = self.table
        return Prompts(
            True, float(table.deployment.layout.data),
            np.stack((self.space, self.mixed, self.decode, self.chunk)), table.prompt_tokens,
            self.further_s, table.first_token_s - table.prefill_s, self.powers, CHUNK_RESIDUAL,
            1.0, 1.0, 0.0)

    def gap_stalls(self, rate_per_s: float, running: float) -> tuple[float, Array, Array, float]:
        """Share of the steps that carry a chunk, and what it adds to them."""
        at = np.arange(1.0, self.size + 1.0)
        extra = float(np.interp(running, at, self.mixed - self.decode))
        space = float(np.interp(running, at, self.space))
        decode = float(np.interp(running, at, self.decode))
        tokens_per_s = rate_per_s * self.workload.new_prompt.mean
        per_token = float(np.interp(running, at, self.extra_per_token))
        step = decode / max(1.0 - tokens_per_s * per_token, 1e-9)
        chunk = min(space, self.workload.new_prompt.mean)
        share = min(tokens_per_s * step / chunk, 1.0)
        return share, np.array([extra]), np.array([1.0]), min(tokens_per_s * step / space, 1.0)

    @property
    def taken_s(self) -> Array:
        """What its tokens add to the steps."""
        return self.extra_per_token * self.workload.new_prompt.mean

    def least_s(self) -> float:
        """A prompt and a token on an idle replica, at the least that chunks add to a step."""
        table, decode, space = self.table, float(self.decode[0]), float(self.space[0])
        tokens = table.prompt_tokens
        ttft = (np.maximum(np.ceil(tokens / space) + CHUNK_RESIDUAL - 1.0, 0.0) * decode
                + float(self.extra_per_token.min()) * tokens + self.further_s
                + (table.first_token_s - table.prefill_s))
        return float(ttft @ table.prompt_weights) + float(table.decode_s[0])

    def mean_field(self, n: int) -> tuple[float, float, float, float]:
        """f = n a p / (o (C - n)) of the steps carry a chunk; lambda = n a / (o mean step).

        ``a`` is the tokens a sequence gets from a step (1 without speculation). A share above 1
        means that prompts arrive faster than the budget lets them in.
        """
        wanted = n * self.accepted / self.workload.output.mean
        load = wanted * self.workload.new_prompt.mean / float(self.space[n - 1])
        extra = self.extra_per_token[n - 1] * self.workload.new_prompt.mean * wanted
        step = float(self.decode[n - 1] + extra)
        return wanted / step, step / self.accepted, float(self.mixed[n - 1]), load


def _further_s(table: Table, slope_s: float) -> Array:
    """What a prompt of each length takes beyond that of its tokens at their mean depth [s].

    Attention reads what is before a token, so a token costs more the deeper it stands in its
    prompt (:func:`planner.setups.base.depth_slope_s`). Sums to 0 over the tokens.
    """
    tokens, longest = table.prompt_tokens, max(prompt_of_token(table), 1.0)
    depth = table.workload.prompt.tokens - tokens / 2.0
    deeper = depth - (cached_of_token(table) + longest / 2.0)
    if not deeper.any():
        return np.zeros(len(tokens))
    return slope_s * tokens * deeper


def _coming(table: Table) -> float:
    """Prompts that come in a step for each sequence that decodes, where as many come as go."""
    return float(table.step_s[0] / table.decode_s[0]) / table.workload.output.mean


def _mixed_s(table: Table, decodes: Array, chunk: Array) -> tuple[Array, float]:
    """Step of ``decodes`` sequences with a chunk [token] beside them [s], and
    :func:`planner.setups.base.depth_slope_s`; in one evaluation."""
    longest, size = prompt_of_token(table), len(chunk)
    prompts, before = depth_prompts(table)
    cached = cached_of_token(table) + np.maximum(longest - chunk, 0.0) / 2.0
    seconds = table.times.seconds(
        np.concatenate((decodes, np.zeros(2))), table.workload.running_context,
        np.concatenate((chunk, prompts)),
        np.concatenate((np.maximum(chunk / longest, 1.0), np.ones(2))),
        np.concatenate((cached, before)), 0.0)
    return seconds[:size], depth_slope_of(seconds[size:], prompts, before)
