"""The constants of an engine profile as a vector with priors and physical bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.calibration.features import PRECISIONS, StepFeatures
from planner.engine import EngineProfile

Array = NDArray[np.float64]

STEP_NAMES = (*(f"mfu_{p}" for p in PRECISIONS), "mbu", "expert_mbu", "attention_mfu",
              "attention_mbu", "link_efficiency", "collective_latency_s", "layer_s",
              "moe_layer_s", "step_s")
"""Constants of a step, in the order of the vector."""
_LOW = np.array([0.15, 0.12, 0.06, 0.12, 0.35, 0.2, 0.08, 0.25, 0.06, 1e-6, 1e-6, 1e-6, 2e-5])
_HIGH = np.array([0.80, 0.70, 0.80, 0.75, 0.95, 0.95, 0.72, 0.95, 0.80, 8e-5, 3e-4, 8e-4, 1.2e-2])
"""Physical bounds. Large GEMMs reach 0.93-0.99 of the bf16 and 0.77-0.85 of the fp8 peak at their
best shape and a tenth less at usual ones (AIConfigurator 0.12 GEMM tables), engines 0.6-0.8 of it;
FlashAttention-3 0.75 (Shah et al. 2024, figure 5); weight streams 0.87-0.96 of the bandwidth;
all-reduces of 64 MiB 0.6-0.8 of NVLink (Vidur and APEX+ collective tables)."""
_FP4_UNIT_HIGH = 0.5
"""FP4 GEMMs reach 0.43-0.59 of the peak where the GPU has FP4 units; elsewhere they run 16-bit."""

FIRST_TOKEN_NAMES = ("ttft_scale", "request_s", "burst_share", "client_s", "queue_scale")
"""Constants of the time to first token, in the order of the vector."""
FIRST_TOKEN_PRIOR = np.array([1.3, 0.04, 0.1, 3e-4, 1.0])
FIRST_TOKEN_LOW = np.array([1.0, 5e-4, 1e-3, 1e-6, 0.02])
FIRST_TOKEN_HIGH = np.array([2.0, 1.0, 1.0, 1e-2, 5.0])


@dataclass(frozen=True, slots=True)
class Bounds:
    """Prior and bounds of a vector of positive constants, in logarithms."""

    prior: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, prior: Array, low: Array, high: Array) -> Bounds:
        """Bounds with the prior moved inside them."""
        return cls(np.log(np.clip(prior, low * 1.001, high * 0.999)), np.log(low), np.log(high))


def step_bounds(profiles: Mapping[str, EngineProfile], fp4_units: bool) -> Bounds:
    """Prior of the step constants: those of the profiles in force, by weight precision."""
    base = profiles["bf16"]
    prior = [profiles[p].mfu for p in PRECISIONS]
    prior += [base.mbu, base.expert_mbu, base.attention_mfu, base.attention_mbu,
              base.link_efficiency, base.collective_latency_s, base.layer_s, base.moe_layer_s,
              base.step_s]
    high = _HIGH.copy()
    if fp4_units:
        high[PRECISIONS.index("fp4")] = _FP4_UNIT_HIGH
    return Bounds.of(np.array(prior), _LOW, high)


def first_token_bounds() -> Bounds:
    """Prior of the first-token constants: what most engines need."""
    return Bounds.of(FIRST_TOKEN_PRIOR, FIRST_TOKEN_LOW, FIRST_TOKEN_HIGH)


def step_seconds(constants: Array, features: StepFeatures, precision: NDArray[np.intp]) -> Array:
    """Step time [s] of every point under the constants (in :data:`STEP_NAMES` order)."""
    k = len(PRECISIONS)
    mfu = constants[:k][precision]
    mbu, expert_mbu, attention_mfu, attention_mbu, link, latency, layer, moe, fixed = constants[k:]
    gemm = np.maximum(features.gemm[0] / mfu, features.gemm[1] / mbu).sum(axis=0)
    expert = np.maximum(features.expert[0] / mfu, features.expert[1] / expert_mbu).sum(axis=0)
    attention = np.maximum(features.attention[0] / attention_mfu,
                           features.attention[1] / attention_mbu).sum(axis=0)
    wire = features.wire_s / link + features.calls * latency
    layers = features.dense_layers * layer + features.moe_layers * moe
    return np.asarray(gemm + expert + attention + wire + layers + fixed)
