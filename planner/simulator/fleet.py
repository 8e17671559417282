"""What is simulated: pools of replicas, each with its step time, scheduler and memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.collectives import NETWORK_EFFICIENCY
from planner.drafts import accepted_tokens
from planner.errors import InvalidValue
from planner.fleet import Fleet
from planner.kv_cache import heads_per_rank
from planner.llm import Llm
from planner.memory import MemoryBudget, memory_budget, stage_share
from planner.requests import Speculative
from planner.roofline import Deployment, StepModel
from planner.setups.disaggregated import PrefillPool
from planner.sizing import Pool, Sized
from planner.stepping import NO_LIMIT
from planner.steps import Steps, steps_of
from planner.units import bytes_to_gib
from planner.workload import Slo

SCHEDULERS = ("static", "prefill_first", "chunked", "prefill", "decode")
SCHEDULER_OF = {"static": "static", "colocated": "prefill_first", "chunked": "chunked"}
"""Scheduler of each one-pool setup."""


@dataclass(frozen=True, slots=True)
class KvMemory:
    """KV blocks of one data-parallel rank.

    Attributes
    ----------
    capacity_bytes : float
        [B] for blocks and states; infinite when memory is not simulated.
    block_tokens : int
        [token] per block.
    state_bytes : float
        [B] per sequence whatever its length (recurrent state).
    windows : ndarray, shape (k,)
        [token] up to which each kind of layer keeps its cache; :data:`NO_LIMIT` = all of it.
    bytes_per_token : ndarray, shape (k,)
        [B] of each kind.
    """

    capacity_bytes: float = math.inf
    block_tokens: int = 16
    state_bytes: float = 0.0
    windows: NDArray[np.float64] = field(default_factory=lambda: np.full(1, NO_LIMIT))
    bytes_per_token: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))

    def sequence_bytes(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """[B] of sequences of ``tokens``, in whole blocks."""
        kept = np.minimum(np.asarray(tokens, dtype=float)[..., None], self.windows)
        blocks = np.ceil(kept / self.block_tokens)
        return np.asarray(blocks @ (self.bytes_per_token * self.block_tokens) + self.state_bytes)


@dataclass(frozen=True, slots=True)
class SimulatedPool:
    """Replicas that are alike.

    Attributes
    ----------
    role : str
        ``serve``, ``prefill`` or ``decode``.
    scheduler : str
        ``static`` (request-level batching), ``prefill_first`` (continuous, whole prompts first),
        ``chunked`` (stall-free chunks under a token budget), ``prefill``, ``decode``.
    steps : Steps
        Step time of one data-parallel rank.
    replicas, ranks : int
        Replicas, and data-parallel ranks in each: every rank schedules on its own.
    gpus_per_replica : int
    max_sequences : int
        Most running sequences of a rank.
    token_budget : int
        [token] of prompts in one pass (``prefill_first``), or of a whole step (``chunked``).
    prompts_per_pass : int
        Most prompts in one pass.
    memory : KvMemory
    occupancy : float
        Share of a prefill pass that keeps the rank from the next one (one stage of a pipeline).
    first_token_scale, request_s, first_steps, prompt_token_s : float
        Delay of an answer: ``(scale - 1)`` times its own prefill, [s] on the host, steps of one
        sequence, and [s] per prompt token.
    acceptance : float
        Chance that a drafted token is accepted.
    draft : Steps or None
        Steps of the draft model, ``draft_tokens`` of them before each decode step.
    draft_tokens : int
    gpu : str
        Slug, for reports.
    reserves : bool
        Whether a request waits until there is room for its whole answer.
    """

    role: str
    scheduler: str
    steps: Steps
    replicas: int
    gpus_per_replica: int = 1
    max_sequences: int = 256
    token_budget: int = 8192
    prompts_per_pass: int = 1_000_000
    memory: KvMemory = field(default_factory=KvMemory)
    ranks: int = 1
    occupancy: float = 1.0
    first_token_scale: float = 1.0
    request_s: float = 0.0
    first_steps: float = 0.0
    prompt_token_s: float = 0.0
    acceptance: float = 0.0
    draft_tokens: int = 0
    draft: Steps | None = None
    gpu: str = ""
    reserves: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the pool."""
        return self.replicas * self.gpus_per_replica


@dataclass(frozen=True, slots=True)
class KvTransfer:
    """How a cache moves from a prefill to a decode replica, over cards that transfers share.

    Attributes
    ----------
    bytes_per_s : float
        [B/s] of the slower side.
    latency_s : float
    windows, bytes_per_token : ndarray, shape (k,)
        Cache of a prompt: ``sum(bytes_per_token * min(prompt, windows)) + state_bytes``.
    state_bytes : float
    layers : int
        Layers, each sent when it is computed.
    send_share, receive_share : float
        Of the time on the wire, how much keeps the cards of each side: below 1 where that side is
        the faster and others can use the rest.
    """

    bytes_per_s: float
    latency_s: float
    windows: NDArray[np.float64]
    bytes_per_token: NDArray[np.float64]
    state_bytes: float
    layers: int
    send_share: float = 1.0
    receive_share: float = 1.0

    def wire_s(self, prompt_tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """[s] that each prompt's cache is on the wire."""
        kept = np.minimum(prompt_tokens[:, None].astype(float), self.windows)
        size = kept @ self.bytes_per_token + self.state_bytes
        return np.asarray(size / self.bytes_per_s + self.latency_s)


@dataclass(frozen=True, slots=True)
class SimulatedFleet:
    """One pool that serves, or a prefill and a decode pool.

    Attributes
    ----------
    setup : str
        ``static``, ``colocated``, ``chunked`` or ``disaggregated``.
    pools : tuple of SimulatedPool
    transfer : KvTransfer or None
        Needed by two pools; None moves caches in no time.
    slos : tuple of Slo
        Targets, for attainment and goodput.
    """

    setup: str
    pools: tuple[SimulatedPool, ...]
    transfer: KvTransfer | None = None
    slos: tuple[Slo, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        return sum(p.gpus for p in self.pools)


# -- from a deployment ----------------------------------------------------------------------------


def pool_of(deployment: Deployment, role: str, scheduler: str, replicas: int, *,
            max_sequences: int | None = None, token_budget: int | None = None,
            prompts_per_pass: int | None = None, memory: MemoryBudget | None = None,
            speculative: Speculative | None = None, draft: Llm | None = None) -> SimulatedPool:
    """A pool of replicas of a deployment: the ad-hoc description.

    Parameters
    ----------
    deployment : Deployment
        What a replica runs.
    role, scheduler : str
    replicas : int
    max_sequences : int, optional
        Most running sequences of a replica; the profile's limit per rank when None.
    token_budget : int, optional
        [token] a step; the profile's ``default_max_batched_tokens`` when None.
    prompts_per_pass : int, optional
        Most prompts packed into one pass of a prefill pool (1 when None).
    memory : MemoryBudget, optional
        Of one GPU; computed when None.
    speculative, draft : optional
        Speculative decoding and its draft model.

    Raises
    ------
    InvalidValue
        When the scheduler is unknown, a count is below one or no cache fits.
    """
    if scheduler not in SCHEDULERS:
        raise InvalidValue(f"scheduler must be one of {', '.join(SCHEDULERS)}, not {scheduler!r}",
                           "/pools/scheduler")
    if replicas < 1:
        raise InvalidValue(f"replicas must be at least 1, not {replicas}", "/pools/replicas")
    d, profile, layout = deployment, deployment.profile, deployment.layout
    budget = memory or memory_budget(d, draft=draft)
    kv = kv_memory(d, budget)
    most = (max_sequences or profile.default_max_sequences * layout.data) / layout.data
    scale = profile.disaggregated_scale if scheduler == "decode" else 1.0
    model = StepModel.of(d)
    verified = 1.0 if speculative is None or scheduler == "prefill" \
        else speculative.draft_tokens + 1.0
    drafts = None
    if verified > 1.0 and draft is not None:
        own = Deployment(draft, d.gpu, draft.native_precision, d.kv, layout, profile,
                         d.power_cap_w, d.fidelity)
        drafts = steps_of(StepModel.of(own), 1.0, scale)
    occupancy = stage_share(d.llm.layers, layout.pipeline)
    return SimulatedPool(
        role, scheduler, steps_of(model, verified, scale), replicas, layout.gpus,
        max(1, math.ceil(most - 1e-9)), token_budget or profile.default_max_batched_tokens,
        prompts_per_pass or (1 if scheduler == "prefill" else 1_000_000), kv, layout.data,
        occupancy, profile.ttft_scale, profile.request_s, profile.first_steps,
        profile.prompt_token_s,
        speculative.acceptance if speculative and verified > 1.0 else 0.0,
        speculative.draft_tokens if speculative and verified > 1.0 else 0, drafts, d.gpu.slug,
        profile.reserves_answers and scheduler != "prefill")


def kv_memory(deployment: Deployment, budget: MemoryBudget) -> KvMemory:
    """KV blocks of one rank of a deployment.

    Raises
    ------
    InvalidValue
        When nothing is left for the cache.
    """
    if not budget.fits:
        raise InvalidValue("the model does not fit: the KV pool is "
                           f"{bytes_to_gib(budget.kv_pool_bytes):.1f} GiB", "/pools")
    d = deployment
    windows, sizes = _cache_kinds(d, d.layout.tensor)
    stage = stage_share(d.llm.layers, d.layout.pipeline)
    # What a draft model caches beside each token is in the budget's bytes per token.
    draft = max(budget.bytes_per_token - float(sizes.sum()) * stage, 0.0)
    sizes = sizes * stage
    if draft > 1e-9 * max(budget.bytes_per_token, 1.0):
        windows, sizes = np.append(windows, NO_LIMIT), np.append(sizes, draft)
    state = d.llm.state_bytes_per_sequence / d.layout.tensor * stage
    return KvMemory(budget.kv_pool_bytes, max(d.profile.block_tokens, 1), state, windows, sizes)


def _cache_kinds(d: Deployment, tensor: int
                 ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Windows [token] and bytes per token [B] of the kinds of layers, on one tensor rank."""
    kinds: dict[float, float] = {}
    for count, stream in d.llm.streams():
        window = NO_LIMIT if stream.window is None else float(stream.window)
        share = heads_per_rank(stream.heads, tensor) / stream.heads
        size = count * stream.values_per_entry * stream.value_bytes(d.kv) * share / stream.stride
        kinds[window] = kinds.get(window, 0.0) + size
    if not kinds:
        kinds[NO_LIMIT] = 0.0
    return np.array(list(kinds)), np.array(list(kinds.values()))


def kv_transfer(source: Deployment, target: Deployment) -> KvTransfer:
    """The hand-over between a prefill and a decode deployment."""
    windows, sizes = _cache_kinds(source, 1)
    send, receive = (d.layout.gpus * d.gpu.nic_bytes_per_s for d in (source, target))
    slower = min(send, receive)
    return KvTransfer(slower * NETWORK_EFFICIENCY, source.profile.collective_latency_s,
                      windows, sizes, float(source.llm.state_bytes_per_sequence),
                      source.llm.layers, slower / send, slower / receive)


# -- from a plan ----------------------------------------------------------------------------------


def fleet_of(option: Sized | Fleet, slos: tuple[Slo, ...] | None = None, *, spares: bool = False,
             speculative: Speculative | None = None, draft: Llm | None = None) -> SimulatedFleet:
    """The fleet that a planned option describes, of one region.

    Parameters
    ----------
    option : Sized or Fleet
        As :func:`planner.planning.make_plan` leaves it.
    slos : tuple of Slo, optional
        Targets; those that the option was sized for when None.
    spares : bool
        Whether spare replicas (of a :class:`planner.fleet.Fleet`) serve too. The plan's promises
        are made without them.
    speculative, draft : optional
        As in the plan request.
    """
    sized = option.sized if isinstance(option, Fleet) else option
    more = option.pools[0].spare_replicas if spares and isinstance(option, Fleet) else 0
    pools = tuple(_planned_pool(sized.setup, p, more, speculative, draft) for p in sized.pools)
    transfer = None
    if sized.setup == "disaggregated":
        transfer = kv_transfer(*(p.deployment for p in sized.pools))
    wanted = sized.pools[-1].table.workload.slos if slos is None else slos
    return SimulatedFleet(sized.setup, pools, transfer, wanted)


def _planned_pool(setup: str, pool: Pool, more: int, speculative: Speculative | None,
                  draft: Llm | None) -> SimulatedPool:
    scheduler = SCHEDULER_OF.get(setup, pool.role)
    packed = pool.source.batch if isinstance(pool.source, PrefillPool) else None
    return pool_of(pool.deployment, pool.role, scheduler, pool.replicas + more,
                   max_sequences=pool.batch_size if scheduler != "prefill" else None,
                   token_budget=pool.token_budget, prompts_per_pass=packed,
                   memory=pool.table.memory, speculative=speculative, draft=draft)


def expected_tokens(pool: SimulatedPool) -> float:
    """Mean tokens that one decode step yields."""
    if not pool.draft_tokens:
        return 1.0
    return accepted_tokens(Speculative(pool.draft_tokens, pool.acceptance))
