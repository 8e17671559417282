"""The constants of an engine profile as a vector with priors and physical bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.calibration.features import PRECISIONS, StepFeatures
from planner.closed_loop import CONSTANTS
from planner.engine import EngineProfile

Array = NDArray[np.float64]

BY_PRECISION = ("mfu", "mbu", "expert_mfu", "expert_mbu")
"""Shares that each weight precision has for itself."""
SHARED = ("attention_mfu", "attention_mbu", "link_efficiency", "collective_latency_s", "layer_s",
          "moe_extra_s", "latent_layer_s", "recurrent_layer_s", "step_s", "sequence_s")
"""Constants that all precisions share. ``moe_extra_s`` is what a layer of experts takes beyond
``layer_s``, so that every model speaks about the time of a layer."""
STEP_NAMES = (*(f"{name}_{p}" for name in BY_PRECISION for p in PRECISIONS), *SHARED)
"""Constants of a step, in the order of the vector."""
_AT = {name: i for i, name in enumerate(STEP_NAMES)}
_ORDER = tuple((_AT[f"{name}_{wide}"], _AT[f"{name}_{narrow}"])
               for wide, narrow in (("fp8", "fp4"), ("bf16", "fp8"))
               for name in ("mfu", "expert_mfu"))
_UNITS = math.log(2.0)
"""Logarithm of the peak of a precision over that of the next wider one, where a GPU has units."""
_BOUNDS = {"mfu": (0.1, 0.8), "mbu": (0.5, 0.95), "expert_mfu": (0.03, 0.8),
           "expert_mbu": (0.15, 0.95), "attention_mfu": (0.08, 0.72), "attention_mbu": (0.25, 0.95),
           "link_efficiency": (0.06, 0.8), "collective_latency_s": (1e-6, 8e-5),
           "layer_s": (1e-6, 3e-4), "moe_extra_s": (1e-6, 8e-4), "latent_layer_s": (1e-7, 4e-4),
           "recurrent_layer_s": (1e-7, 4e-4), "step_s": (2e-5, 1.2e-2), "sequence_s": (1e-7, 2e-4)}
"""Physical bounds. Large GEMMs reach 0.93-0.99 of the bf16 and 0.77-0.85 of the fp8 peak at their
best shape and a tenth less at usual ones (AIConfigurator 0.12 GEMM tables), engines 0.6-0.8 of it;
FlashAttention-3 0.75 (Shah et al. 2024, figure 5); weight streams 0.87-0.96 of the bandwidth;
all-reduces of 64 MiB 0.6-0.8 of NVLink (Vidur and APEX+ collective tables). Dense weights are read
at 0.65-0.95 in the fits of all engines: below half it would be another time that goes astray."""
_SPREAD = {"mfu": 0.1, "mbu": 0.1, "expert_mfu": 0.3, "expert_mbu": 0.3, "attention_mfu": 0.2,
           "attention_mbu": 0.2, "step_s": 0.5, "sequence_s": 0.5}
_USUAL_SPREAD = 0.3

_FIRST_TOKEN = {"ttft_scale": (1.3, 0.8, 2.5), "request_s": (0.04, 5e-4, 1.0),
                "burst_share": (0.1, 1e-3, 1.0), "client_s": (3e-4, 1e-6, 1e-2),
                "queue_scale": (1.0, 0.02, 5.0), "first_steps": (0.8, 0.01, 15.0),
                "prompt_token_s": (1e-6, 1e-8, 1e-4)}
"""Prior, lowest and highest value of the constants of the time to first token. A scale of 0.8 on a
prefill at the highest mfu is the peak."""
FIRST_TOKEN_NAMES = (*(f"ttft_scale_{p}" for p in PRECISIONS), *CONSTANTS[1:])
"""Those constants in the order of the vector: a scale for each weight precision, then the rest."""


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


def kind_of(name: str) -> str:
    """A constant's name without the precision."""
    head, _, tail = name.rpartition("_")
    return head if tail in PRECISIONS else name


def spreads() -> Array:
    """How far constants usually are from their prior: standard deviations of logarithms.

    Shares of large GEMMs and of weight reads are set by the hardware and vary little; overheads
    are the engine's and vary much.
    """
    return np.array([_SPREAD.get(kind_of(n), _USUAL_SPREAD) for n in STEP_NAMES])


def in_order(logs: Array) -> Array:
    """Logarithms of constants in which no wider precision multiplies faster than a narrower one.

    The narrower has twice the peak, and a kernel that is slower than the wider one's need not be
    used. Where few points or another model's say otherwise the wider one, mostly the one that was
    not measured, has the rate of the narrower.

    Parameters
    ----------
    logs : ndarray, shape (..., k)
        In :data:`STEP_NAMES` order.
    """
    found = np.array(logs)
    for wide, narrow in _ORDER:
        found[..., wide] = np.minimum(found[..., wide], found[..., narrow] + _UNITS)
    return found


def passed_on(slope: Array, logs: Array, ordered: Array) -> Array:
    """Derivatives by logarithms of constants from those by :func:`in_order` of them.

    A constant that the order holds down passes its own on to the one that holds it.
    """
    found = np.array(slope)
    for wide, narrow in reversed(_ORDER):
        held = ordered[:, wide] < logs[:, wide]
        found[:, narrow] += np.where(held, found[:, wide], 0.0)
        found[:, wide] = np.where(held, 0.0, found[:, wide])
    return found


def highest_of(name: str) -> float:
    """The largest physical value of a share of a profile."""
    return _BOUNDS[name][1]


def step_bounds(profiles: Mapping[str, EngineProfile]) -> Bounds:
    """Prior of the step constants: those of the profiles in force, by weight precision."""
    base = profiles["bf16"]
    prior = [getattr(profiles[p], name) for name in BY_PRECISION for p in PRECISIONS]
    prior += [base.moe_layer_s - base.layer_s if name == "moe_extra_s" else getattr(base, name)
              for name in SHARED]
    low, high = (np.array([_BOUNDS[kind_of(n)][side] for n in STEP_NAMES]) for side in (0, 1))
    return Bounds.of(np.array(prior), low, high)


def first_token_bounds() -> Bounds:
    """Prior of the first-token constants: what most engines need."""
    return Bounds.of(*np.array([_FIRST_TOKEN[kind_of(n)] for n in FIRST_TOKEN_NAMES]).T)


def first_token_limits(name: str) -> tuple[float, float]:
    """The smallest and largest value of a first-token constant."""
    return _FIRST_TOKEN[name][1:]


def first_token_constants(vectors: Array, precision: NDArray[np.intp]) -> Array:
    """What :func:`planner.closed_loop.first_token_s` takes, for points of some precisions.

    Parameters
    ----------
    vectors : ndarray, shape (k,) or (k, n)
        In :data:`FIRST_TOKEN_NAMES` order.
    precision : ndarray of int, shape (n,)

    Returns
    -------
    ndarray, shape (7, n)
    """
    wide = np.broadcast_to(vectors.reshape(len(vectors), -1), (len(vectors), len(precision)))
    scale = wide[precision, np.arange(len(precision))]
    return np.vstack([scale[None, :], wide[len(PRECISIONS):]])


def step_seconds(logs: Array, features: StepFeatures, precision: NDArray[np.intp]
                 ) -> tuple[Array, Array]:
    """Step time [s] of every point and its derivative by the logarithm of each constant.

    Parameters
    ----------
    logs : ndarray, shape (n, k)
        Logarithms of the constants of every point, in :data:`STEP_NAMES` order.
    features : StepFeatures
    precision : ndarray of int, shape (n,)

    Returns
    -------
    (ndarray of shape (n,), ndarray of shape (n, k))
    """
    values, slope = np.exp(logs), np.zeros_like(logs)
    each, total = np.arange(len(logs)), np.zeros(len(logs))

    def roofline(sides: Array, compute: NDArray[np.intp], memory: NDArray[np.intp]) -> None:
        nonlocal total
        for flops_s, bytes_s in zip(sides[0], sides[1], strict=True):
            by_compute, by_memory = flops_s / values[each, compute], bytes_s / values[each, memory]
            bound = by_compute > by_memory
            slope[each, compute] -= np.where(bound, by_compute, 0.0)
            slope[each, memory] -= np.where(bound, 0.0, by_memory)
            total = total + np.maximum(by_compute, by_memory)

    def fixed(count: Array, name: str, sign: float = 1.0) -> None:
        nonlocal total
        seconds = count * values[:, _AT[name]] ** sign
        slope[:, _AT[name]] += sign * seconds
        total = total + seconds

    first = {name: _AT[f"{name}_{PRECISIONS[0]}"] + precision for name in BY_PRECISION}
    roofline(features.gemm, first["mfu"], first["mbu"])
    roofline(features.expert, first["expert_mfu"], first["expert_mbu"])
    same = np.zeros_like(precision)
    roofline(features.attention, same + _AT["attention_mfu"], same + _AT["attention_mbu"])
    fixed(features.wire_s, "link_efficiency", -1.0)
    fixed(features.calls, "collective_latency_s")
    fixed(features.layers, "layer_s")
    fixed(features.moe_layers, "moe_extra_s")
    fixed(features.latent_layers, "latent_layer_s")
    fixed(features.recurrent_layers, "recurrent_layer_s")
    fixed(np.ones(len(logs)), "step_s")
    fixed(features.sequences, "sequence_s")
    return total, slope
