"""Continuous batching with chunked prefill (stall-free) under a token budget.

Every step carries the decodes first and fills the rest of the budget ``C`` with prompt tokens. A
share ``f = lambda p step / (C - n)`` of the steps carries a chunk and takes ``T_mix``, the rest
``D``; so the mean step is ``D / (1 - lambda p (T_mix - D) / (C - n))``. Sarathi-Serve (OSDI 2024)
section 4.2, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.arrivals import burst_ahead
from planner.loops.prompts import Prompts, chunk_states, mixed_powers
from planner.setups.base import Table
from planner.setups.continuous import Array, Continuous, most_tokens
from planner.stepping import ChunkAsk, chunk_columns

CHUNK_RESIDUAL = 0.9
"""Share of a mean step that a new prompt waits for: the rest of the running one, and the longer
steps that chunks make are met more often (set against a step-level simulation, erring safe)."""
MIN_CHUNK_TOKENS = 16
"""[token] least room that a batch limit leaves for a chunk."""


class Columns(NamedTuple):
    """What a token budget leaves beside ``n`` decodes, and the step that uses it.

    Attributes
    ----------
    caps : ndarray of int
        Batch limits that leave room for a chunk.
    rows : ndarray, shape (4, size)
        [token] left for prompts; step with a chunk [s], evaluated at the batch limits, linear
        between them; that without [s]; [token] that a prompt fills.
    ceiling : float
        See :attr:`planner.setups.continuous.Continuous.ceiling` [1/s].
    least_s : float
        A prompt and a token on an idle replica, at the least that chunks add to a step [s].
    further_s : ndarray, shape (k,)
        What a prompt of each length takes beyond that of its tokens at their mean depth [s]; the
        same for all budgets. Attention reads what is before a token, so a token costs more the
        deeper it stands in its prompt (:func:`planner.setups.base.depth_slope_s`).
    powers : ndarray, shape (4, 4)
        E[p^i f^j] at [i, j] over the prompts: p their tokens, f the above; the same for all
        budgets.
    fixed_s : ndarray, shape (k,)
        Of the latency of a prompt [s] that in which its prefill does not run; the same for all
        budgets. The engine's scale is one on the prefill of the prompt alone, and not on decodes
        beside it.
    """

    caps: NDArray[np.int64]
    rows: Array
    ceiling: float
    least_s: float
    further_s: Array
    powers: Array
    fixed_s: Array

    @classmethod
    def of_budgets(cls, table: Table, token_budgets: Sequence[int]) -> list[Columns]:
        """Columns of several budgets [token] from one evaluation of the steps."""
        ask = _asked(table)
        rows, sizes, bounds, further_s = chunk_columns(
            table.times.packed, table.times.drafting, table.caps, table.step_s, table.decode_s,
            np.array(token_budgets, dtype=float), ask)
        powers = mixed_powers(table.prompt_tokens, further_s, table.prompt_weights)
        return [cls(table.caps[:count], np.ascontiguousarray(own[:, :size]), ceiling, least_s,
                    further_s, powers, ask.fixed_s)
                for own, (count, size), (ceiling, least_s) in zip(
                    rows, sizes.tolist(), bounds.tolist(), strict=True)]


class Chunked(Continuous):
    """Chunked prefill with a budget of ``token_budget`` tokens a step.

    Parameters
    ----------
    table : Table
    token_budget : int
        [token] a step, decodes included.
    """

    setup = "chunked"
    apart = True

    def __init__(self, table: Table, token_budget: int, columns: Columns | None = None) -> None:
        super().__init__(table)
        self.columns = columns or Columns.of_budgets(table, [token_budget])[0]
        self.token_budget, self.caps = token_budget, self.columns.caps
        self.space, self.mixed, self.decode, self.chunk = self.columns.rows
        self.size = len(self.space)
        self.accepted = table.drafts.accepted
        """Tokens that a sequence gets from a step (1 without speculation)."""

    @classmethod
    def of_budgets(cls, table: Table, token_budgets: Sequence[int]) -> list[Chunked]:
        """One setup for each budget; their steps are evaluated in one go."""
        columns = Columns.of_budgets(table, token_budgets)
        return [cls(table, budget, own) for budget, own in zip(token_budgets, columns, strict=True)]

    @property
    def no_batch(self) -> str:
        """The budget, where it leaves no room for a chunk beside a sequence that memory has."""
        return "token_budget" if self.table.caps.size else "memory"

    @cached_property
    def extra_per_token(self) -> Array:
        """What a prompt token adds to a step [s], shape (size,)."""
        return np.asarray((self.mixed - self.decode) / self.chunk)

    @cached_property
    def shortest(self) -> float:
        """Of their tokens."""
        prompt = self.workload.new_prompt
        return float(prompt.tokens.min() / prompt.mean)

    @property
    def ceiling(self) -> float:
        """See :attr:`Columns.ceiling`."""
        return self.columns.ceiling

    @cached_property
    def states(self) -> Array:
        """A prompt's chunks lengthen the steps by their extra time, over all of the prompt."""
        found: Array = chunk_states(self.decode, self.mixed, self.space, self.chunk, self.accepted,
                                    float(self.table.deployment.layout.data), self.columns.powers)
        return found

    def behind(self, cv2: float) -> float:
        """All of its burst."""
        return burst_ahead(cv2)

    @cached_property
    def prompts(self) -> Prompts:
        """In chunk steps; the latency counts whole steps, the load only its tokens."""
        table, columns = self.table, self.columns
        return Prompts(
            True, float(table.deployment.layout.data), columns.rows, table.prompt_tokens,
            columns.further_s, columns.fixed_s, columns.powers, CHUNK_RESIDUAL, 1.0, 1.0, 0.0)

    def prompt_load(self, rate_per_s: float, running: float) -> float:
        """Share of the room of the steps that prompts take."""
        at = np.arange(1.0, self.size + 1.0)
        space, decode, per_token = (float(np.interp(running, at, column)) for column in (
            self.space, self.decode, self.extra_per_token))
        tokens_per_s = rate_per_s * self.workload.new_prompt.mean
        step = decode / max(1.0 - tokens_per_s * per_token, 1e-9)
        return min(tokens_per_s * step / space, 1.0)

    @property
    def taken_s(self) -> Array:
        """What its tokens add to the steps."""
        return self.extra_per_token * self.workload.new_prompt.mean

    def least_s(self) -> float:
        """See :attr:`Columns.least_s`."""
        return self.columns.least_s

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


def _asked(table: Table) -> ChunkAsk:
    """What chunks of the prompts of a table are asked for."""
    workload = table.workload
    accepted = table.drafts.accepted
    # Prompts that come in a step for each sequence that decodes, where as many come as go.
    coming = accepted / workload.output.mean * workload.new_prompt.mean
    limit_s, level = most_tokens(workload.slo("tpot"), table.drafts.quickest)
    return ChunkAsk(
        float(table.deployment.layout.data), table.tokens_per_decode, table.times.passes,
        float(MIN_CHUNK_TOKENS), CHUNK_RESIDUAL, workload.running_context,
        max(workload.prompt_of_token, 1.0), coming, workload.cached_of_token,
        table.prompt_tokens, workload.prompt.tokens - table.prompt_tokens / 2.0,
        table.prompt_weights, table.first_token_s - table.prefill_s, workload.output.mean,
        table.drafts.mean_pace, limit_s, level)
