"""Continuous batching where a waiting prompt runs first and stalls the decodes.

A prefill of ``S`` seconds stops every running sequence, so at arrival rate ``lambda`` a token
takes ``D(n) / (1 - lambda S)`` and the gap that meets a prefill ``D(n) + S``. Orca (OSDI 2022);
DistServe (OSDI 2024) section 2.3 on the interference.
"""

from __future__ import annotations

import numpy as np

from planner.arrivals import burst_behind
from planner.queueing import Moments, Wait, compound
from planner.setups.base import Table
from planner.setups.continuous import RESIDUAL, Array, Continuous, mean_wait_s
from planner.stalls import Stalls


class Colocated(Continuous):
    """Prefill-first continuous batching."""

    setup = "colocated"

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.service = Moments.of(table.prefill_s, table.prompt_weights)
        self.kept_s = float(self.service.first) * table.occupancy

    def _load(self, rate_per_s: float) -> float:
        """Share of time that prefills take."""
        return rate_per_s * self.kept_s

    def tpot(self, rate_per_s: float) -> Array | None:
        """D(n) / (1 - lambda S)."""
        load = self._load(rate_per_s)
        return None if load >= 1.0 else self.table.decode_s / (1.0 - load)

    def prefill(self, rate_per_s: float, cv2: float, running: Array) -> tuple[Wait, Array]:
        """M/G/1 over prompts; the prompt first waits for the step that runs."""
        table, stages = self.table, self.table.deployment.layout.pipeline
        step = np.interp(running, table.n, table.step_s)
        wait = table.wait(rate_per_s, self.service, cv2, stages - 1.0).repeated(len(running))
        if stages > 1:
            wait = wait + self._together(rate_per_s, step)
        return wait, table.first_token_s[None, :] + RESIDUAL * step[:, None]

    def _together(self, rate_per_s: float, step_s: Array) -> Wait:
        """What prompts that come in the same decode step [s] add to a pass of several stages.

        They run in one pass, Poisson in number, and each takes the time of all stages from the
        others, of which :meth:`planner.setups.base.Table.wait` counts one.
        """
        ranks = self.table.deployment.layout.data
        others = rate_per_s / ranks * max(1.0 - self._load(rate_per_s), 0.0) * step_s
        return compound(others, self.service.scaled(1.0 - self.table.occupancy * ranks))

    def gap_stalls(self, rate_per_s: float, running: float) -> tuple[float, Array, Array, float]:
        """Prefills per decode step: lambda D / (1 - lambda S)."""
        table = self.table
        load = self._load(rate_per_s)
        step = float(np.interp(running, table.n, table.step_s))
        share = rate_per_s * step / max(1.0 - load, 1e-9)
        return share, table.prefill_s, table.prompt_weights, load

    def stalls(self, rate_per_s: float, cv2: float, size: int) -> Stalls:
        """A prefill stops every running request for all of its time."""
        table, mean, square = self.table, float(self.service.first), float(self.service.second)
        kept, ranks = table.occupancy, table.deployment.layout.data
        wait = mean_wait_s(rate_per_s, cv2, kept * mean, kept**2 * ranks * square)
        prompt, profile = self.workload.new_prompt, table.deployment.profile
        together = profile.default_max_batched_tokens * prompt.mean / prompt.second_moment
        return Stalls(rate_per_s * kept, self._load(rate_per_s), mean, square, wait, wait + mean,
                      cv2, burst_behind(cv2, together))

    def ceiling_rps(self) -> float:
        """Highest n / (o D + n S)."""
        table = self.table
        return float((table.n / (self.workload.output.mean * table.decode_s
                                 + table.n * self.kept_s)).max())

    def mean_field(self, n: int) -> tuple[float, float, float, float]:
        """lambda = n / (o D + n S), TPOT = D / (1 - lambda S), worst gap D + S."""
        table = self.table
        step = float(table.decode_s[n - 1])
        prefill = float(table.prefill_s @ table.prompt_weights)
        held = prefill * table.occupancy
        rate = n / (self.workload.output.mean * step + n * held)
        return (rate, step / max(1.0 - rate * held, 1e-9), float(table.step_s[n - 1]) + prefill,
                rate * held)
