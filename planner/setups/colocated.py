"""Continuous batching where a waiting prompt runs first and stalls the decodes.

A prefill of ``S`` seconds stops every running sequence, so at arrival rate ``lambda`` a token
takes ``D(n) / (1 - lambda S)`` and the gap that meets a prefill ``D(n) + S``. Orca (OSDI 2022);
DistServe (OSDI 2024) section 2.3 on the interference.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.arrivals import burst_behind
from planner.loops.prompts import Prompts
from planner.queueing import Moments
from planner.setups.base import Table
from planner.setups.continuous import RESIDUAL, Array, Continuous


class Colocated(Continuous):
    """Prefill-first continuous batching."""

    setup = "colocated"

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.service = Moments.of(table.prefill_s, table.prompt_weights)
        self.kept_s = self.service.first * table.occupancy

    @property
    def stops(self) -> float:
        """Of pipelines and ranks a prompt stops its own share."""
        return self.table.occupancy

    @cached_property
    def shortest(self) -> float:
        """Of their prefills."""
        return float(self.table.prefill_s.min() / self.service.first)

    @property
    def stages(self) -> float:  # type: ignore[override]
        """Those of the pipeline."""
        return float(self.table.deployment.layout.pipeline)

    @cached_property
    def states(self) -> Array:
        """A prefill stops every running request for all of its time."""
        table, mean, square = self.table, self.service.first, self.service.second
        kept, ranks = table.occupancy, table.deployment.layout.data
        rows = np.empty((9, self.size))
        rows[0] = table.decode_s
        rows[1:] = np.array([self.kept_s, 0.0, kept * mean, kept**2 * ranks * square, mean, mean,
                             square, np.inf])[:, None]
        return rows

    def behind(self, cv2: float) -> float:
        """Those of its burst that do not share its pass."""
        prompt, profile = self.workload.new_prompt, self.table.deployment.profile
        return burst_behind(
            cv2, profile.default_max_batched_tokens * prompt.mean / prompt.second_moment)

    @cached_property
    def prompts(self) -> Prompts:
        """M/G/1 over prompts; the prompt first waits for the step that runs.

        Prompts that come in the same decode step run in one pass of several stages, Poisson in
        number, and each takes the time of all stages from the others, of which
        :meth:`planner.setups.base.Table.wait` counts one.
        """
        table, layout = self.table, self.table.deployment.layout
        kept = table.occupancy * layout.data
        powers = np.zeros((4, 4))
        powers[1:, 0] = self.service.first, self.service.second, self.service.third
        rows = np.ones((4, self.size))
        rows[2] = table.step_s
        return Prompts(
            False, float(layout.data), rows, table.prompt_tokens,
            np.zeros(len(table.prompt_tokens)), table.first_token_s, powers, RESIDUAL, kept,
            layout.pipeline - 1.0, 1.0 - kept if layout.pipeline > 1 else 0.0)

    def prompt_load(self, rate_per_s: float, running: float) -> float:
        """Share of the time that prefills take."""
        return rate_per_s * self.kept_s

    @property
    def taken_s(self) -> Array:
        """Its share of the replica."""
        return np.array([self.kept_s])

    def least_s(self) -> float:
        """A prompt and a token on an idle replica."""
        table = self.table
        return (float(table.first_token_s @ table.prompt_weights)
                + RESIDUAL * float(table.step_s[0])
                + self.drafts.mean_pace * float(table.decode_s[0]))

    def mean_field(self, n: int) -> tuple[float, float, float, float]:
        """lambda = n / (o D + n S), TPOT = D / (1 - lambda S), worst gap D + S."""
        table = self.table
        step = float(table.decode_s[n - 1])
        prefill = float(table.prefill_s @ table.prompt_weights)
        held = prefill * table.occupancy
        rate = n / (self.workload.output.mean * step + n * held)
        return (rate, step / max(1.0 - rate * held, 1e-9), float(table.step_s[n - 1]) + prefill,
                rate * held)
