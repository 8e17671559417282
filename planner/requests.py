"""What a caller asks for, as plain values (the API's schemas build these)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.workload import Workload

SETUPS = ("static", "colocated", "chunked", "disaggregated")
COMMITMENTS = ("on_demand", "spot", "reserved_1y", "reserved_3y", "owned",
               "capacity_block", "tco_hyperscaler", "tco_neocloud")
"""How a GPU-hour is bought. ``capacity_block`` is a dated reservation sold by the day; the two
``tco_`` kinds are estimates of what owning costs a hyperscaler or a GPU cloud, not offers."""
OBJECTIVES = ("cost", "gpus", "power")


@dataclass(frozen=True, slots=True)
class Layout:
    """How one replica is spread over GPUs.

    ``gpus = tensor x pipeline x data``; experts are spread over ``expert`` of them. ``data`` is
    data-parallel attention inside one replica (MoE models), not the number of replicas.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    data: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True)
class Precisions:
    """Weight and KV precision to try; None takes what the model ships in."""

    weights: str | None = None
    kv: str | None = None


@dataclass(frozen=True, slots=True)
class Speculative:
    """Speculative decoding: a draft of ``draft_tokens``, each accepted with ``acceptance``."""

    draft_tokens: int
    acceptance: float
    draft_model: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the search and of the fleet."""

    max_gpus: int = 4096
    max_tensor_parallel: int = 8
    max_pipeline_parallel: int = 8
    max_sequences: int | None = None
    target_utilization: float = 0.8
    spare_replicas: int = 0
    regions: int = 1
    memory_utilization: float | None = None
    layouts: tuple[Layout, ...] | None = None
    token_budgets: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pricing:
    """Which price row applies, and what electricity and the month cost.

    ``usd_per_gpu_hour`` overrides the catalog per GPU slug.
    """

    commitment: str = "on_demand"
    provider: str | None = None
    region: str | None = None
    usd_per_gpu_hour: dict[str, float] = field(default_factory=dict)
    utilization_hours_per_month: float = 730.0
    pue: float = 1.3
    usd_per_kwh: float = 0.1


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A measured operating point of a worker.

    ``batch`` is the sequences in the batch, or the clients of a closed loop (``closed_loop``).
    """

    batch: float
    tpot_s: float | None = None
    ttft_s: float | None = None
    closed_loop: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredWorker:
    """A worker that was measured: its GPUs and its rate at the latency targets, or a curve."""

    requests_per_s: float | None = None
    gpus: int = 1
    curve: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """One planning job; every default is already filled in."""

    model: str
    workload: Workload
    gpus: tuple[str, ...]
    name: str = ""
    setups: tuple[str, ...] = SETUPS
    precisions: tuple[Precisions, ...] = (Precisions(),)
    engine: str = "vllm"
    fidelity: str = "operator"
    limits: Limits = Limits()
    pricing: Pricing = Pricing()
    speculative: Speculative | None = None
    power_cap_w: float | None = None
    objective: str = "cost"
    advice: bool = True
    verify: bool = False
    """Whether every lever is planned as well; without, a plan takes a fifth of the time."""
    measured: dict[str, MeasuredWorker] = field(default_factory=dict)
    stated: dict[str, Any] = field(default_factory=dict)
    """The workload in the words of the request (``{"mean", "p95"}``, requests per day), to echo."""
    assumptions: tuple[dict[str, Any], ...] = ()
    """What reading the request had to assume: rows of name, value, unit and source."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One engine step of an estimate."""

    decodes: int = 0
    context_tokens: float = 0.0
    prefill_tokens: float = 0.0
    prefill_sequences: int = 1
    cached_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """One engine step, or many, on one replica."""

    model: str
    gpu: str
    batches: tuple[Batch, ...]
    weights: str | None = None
    kv: str | None = None
    layout: Layout = Layout()
    fidelity: str = "operator"
    engine: str = "vllm"
    memory_utilization: float | None = None
    power_cap_w: float | None = None
    max_sequences: int | None = None
    max_batched_tokens: int | None = None
    speculative: Speculative | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    many: bool = False
    """Whether the request gave a list of batches, so that the answer is a list of steps."""
