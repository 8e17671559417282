"""Memory on one GPU: what weights, activations and the runtime leave for the KV cache.

``kv_pool = usable - weights - activation - runtime - graphs - draft``, signed: a negative pool says
by how much the deployment does not fit. What is usable follows from what the engine's share counts
(:func:`usable_bytes`). Checked against engine start-up logs (vLLM 0.11 and 0.19, SGLang, on H100),
see ``docs/formulas.md`` section 3.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from planner.kv_cache import heads_per_rank, one_sequence_bytes
from planner.llm import Llm, Role
from planner.precision import FORMATS
from planner.requests import Layout
from planner.roofline import ACTIVATION_BYTES, Deployment

ALLOCATOR_UNSPLIT_BYTES = 2.0**20
"""[B] a rest of a segment up to this stays with its tensor (PyTorch ``kSmallSize``)."""
ALLOCATOR_SMALL_BYTES = 10 * 2.0**20
"""[B] tensors below this share segments (PyTorch ``kMinLargeAlloc``)."""
MXFP4_TILE = 256
"""Width that MXFP4 expert kernels pad to (vLLM ``mxfp4.py``, ``round_up(..., 256)``)."""


class MemoryBudget(NamedTuple):
    """Every line of one GPU's memory [B], and what the pool holds.

    Attributes
    ----------
    physical_bytes, usable_bytes : float
        What the driver reports, and what the engine may hold with everything below.
    weights_bytes, activation_bytes, runtime_bytes, graph_bytes, draft_bytes : float
    kv_pool_bytes : float
        Signed.
    bytes_per_token : float
        Cache growth per token on this GPU while every window is still filling.
    reserved_bytes_per_token : float
        What the engine reserves for it: more where layer kinds are padded to equal groups.
    kv_tokens : int
        Tokens of the whole replica as an engine logs them (0 when the pool is not positive).
    """

    physical_bytes: float
    usable_bytes: float
    weights_bytes: float
    activation_bytes: float
    runtime_bytes: float
    graph_bytes: float
    draft_bytes: float
    kv_pool_bytes: float
    bytes_per_token: float
    reserved_bytes_per_token: float
    kv_tokens: int

    @property
    def beside_bytes(self) -> float:
        """What is neither weights nor cache: activations, the runtime and graphs [B]."""
        return self.activation_bytes + self.runtime_bytes + self.graph_bytes

    @property
    def fits(self) -> bool:
        """Whether anything is left for the cache."""
        return self.kv_pool_bytes > 0


def memory_budget(deployment: Deployment, *, utilization: float | None = None,
                  max_sequences: int | None = None, max_batched_tokens: int | None = None
                  ) -> MemoryBudget:
    """The memory of the fullest GPU of a replica.

    Parameters
    ----------
    deployment : Deployment
    utilization : float, optional
        Share of the memory the engine may use, of what the profile's ``memory_scope`` says; the
        profile's when None.
    max_sequences, max_batched_tokens : int, optional
        Engine limits that set the activation peak; the profile's when None.
    """
    profile, gpu = deployment.profile, deployment.gpu
    share = profile.memory_utilization if utilization is None else utilization
    napkin = deployment.fidelity == "napkin"
    physical = gpu.marketed_memory_bytes if napkin else gpu.memory_bytes
    weights = (napkin_weight_bytes(deployment) if napkin
               else weight_bytes_per_gpu(deployment, profile.allocator_block_bytes))
    activation = activation_bytes(deployment, max_sequences, max_batched_tokens)
    runtime = (profile.runtime_tp_bytes if deployment.layout.tensor > 1
               else profile.runtime_bytes)
    draft = deployment.drafting
    draft_bytes = 0.0 if draft is None else (
        draft.llm.weight_bytes(draft.weights) / draft.layout.tensor)
    held = weights + activation + runtime + profile.graph_bytes + draft_bytes
    beside = activation + runtime + profile.graph_bytes
    usable = usable_bytes(profile.memory_scope, share, physical, held, beside, runtime)
    pool = usable - held
    per_token = token_bytes_per_gpu(deployment)
    reserved = _model_token_bytes(deployment) * reserved_share(deployment.llm)
    if draft is not None:
        reserved += _model_token_bytes(draft) * reserved_share(draft.llm)
    tokens = _whole_blocks(pool, reserved, profile.block_tokens) * deployment.layout.data
    return MemoryBudget(physical, usable, weights, activation, runtime,
                        profile.graph_bytes, draft_bytes, pool, per_token, reserved, tokens)


def usable_bytes(scope: str, share: float, physical: float, held: float, beside: float,
                 runtime: float) -> float:
    """Memory [B] that an engine fills, the cache included.

    ``whole``: ``u P``. ``static``: ``u (P - runtime)`` of weights and cache, with activations,
    runtime and graphs beside them, all of the GPU at most. ``free``: what is held, and ``u`` of the
    rest for the cache (all of the GPU where nothing is left).

    Parameters
    ----------
    scope : str
        One of :data:`planner.engine.MEMORY_SCOPES`.
    share : float
        The engine's share u.
    physical, held, beside, runtime : float
        [B] of the GPU; of everything but the cache; of activations, runtime and graphs; of the
        runtime alone.

    Examples
    --------
    >>> [usable_bytes(s, 0.9, 80.0, 50.0, 5.0, 2.0) for s in ("whole", "static", "free")]
    [72.0, 75.2, 77.0]
    """
    if scope == "static":
        return min(share * (physical - runtime) + beside, physical)
    if scope == "free":
        left = physical - held
        return held + (share * left if left > 0.0 else left)
    return share * physical


def _whole_blocks(pool_bytes: float, per_token: float, block_tokens: int) -> int:
    if pool_bytes <= 0 or per_token <= 0:
        return 0
    return math.floor(pool_bytes / per_token / block_tokens) * block_tokens


def stage_share(layers: int, pipeline: int) -> float:
    """Share of the layers that the fullest pipeline stage holds."""
    return math.ceil(layers / pipeline) / layers


def weight_bytes_per_gpu(deployment: Deployment, allocator_block_bytes: float = 0.0) -> float:
    """Weights [B] on the fullest GPU, scales and allocator rounding included.

    Tensor parallelism splits what is sharded; routed experts are split over every GPU of a stage;
    a pipeline's last stage holds the LM head, its first the embedding. Parameters outside the
    language model (a vision tower) are held in 16 bits by every engine that loads the checkpoint.
    """
    key = ("weight_bytes_per_gpu", deployment.weights, deployment.layout, allocator_block_bytes)
    return deployment.llm.remembered(
        key, lambda: _weight_bytes_per_gpu(deployment, allocator_block_bytes))


def _weight_bytes_per_gpu(deployment: Deployment, allocator_block_bytes: float) -> float:
    llm, layout = deployment.llm, deployment.layout
    inner = sum(
        group.count * _tensor_bytes(deployment, weight.role, weight.elements,
                                    _shards(weight.role, weight.sharded, layout),
                                    allocator_block_bytes)
        for group in llm.groups for weight in group.all_weights())
    inner *= stage_share(llm.layers, layout.pipeline)
    outer = {role: sum(_tensor_bytes(deployment, w.role, w.elements,
                                     layout.tensor if w.sharded else 1, allocator_block_bytes)
                       for w in llm.outer if (w.role is Role.LM_HEAD) == head)
             for role, head in (("input", False), ("output", True))}
    ends = sum(outer.values()) if layout.pipeline == 1 else max(
        outer["input"], outer["output"] or outer["input"])
    vision = llm.extra_params.get("vision_tower", 0) * 2.0 / layout.tensor
    rotary = rotary_bytes(llm) if allocator_block_bytes else 0.0
    return inner + ends + vision + rotary


def rotary_bytes(llm: Llm) -> float:
    """The engine's cosine and sine table [B]: one head dimension in 16 bits per position.

    Tables of scaled or second rotary bases (Gemma 3) are not counted.
    """
    widths = [s.values_per_entry // (2 * s.heads) for _, s in llm.streams() if s.name == "kv"]
    return (llm.max_context or 0) * (max(widths) if widths else 64) * 2.0


def _shards(role: Role, sharded: bool, layout: Layout) -> int:
    if not sharded:
        return 1
    return layout.tensor * (layout.data if role is Role.ROUTED_EXPERT else 1)


def _tensor_bytes(deployment: Deployment, role: Role, elements: int, shards: int,
                  block_bytes: float) -> float:
    fmt = deployment.llm.role_format(role, deployment.weights)
    size = elements / shards * fmt.bytes_per_value
    if block_bytes and fmt.name == "mxfp4":
        size *= padded_share(deployment.llm.hidden)
    return allocated_bytes(size, block_bytes)


def padded_share(width: int) -> float:
    """Growth of packed MXFP4 experts, whose kernels want widths of whole 256s.

    gpt-oss (2,880 wide, padded to 3,072) so loads 64.4 GiB where its values take 60.7.
    """
    return math.ceil(width / MXFP4_TILE) * MXFP4_TILE / width


def allocated_bytes(tensor_bytes: float, block_bytes: float) -> float:
    """What a caching allocator hands out for one tensor [B].

    Large tensors get a segment rounded up to ``block_bytes`` (2 MiB); a rest of at most 1 MiB is
    not split off. 80 layers of a 231 MiB down-projection so cost 80 MiB more than their elements,
    which is what the start-up log of a 72B model shows. Source: PyTorch
    ``c10/cuda/CUDACachingAllocator.cpp`` (``round_size``, ``should_split``).
    """
    if not block_bytes or tensor_bytes < ALLOCATOR_SMALL_BYTES:
        return tensor_bytes
    rest = -tensor_bytes % block_bytes
    return tensor_bytes + (rest if rest <= ALLOCATOR_UNSPLIT_BYTES else 0.0)


def napkin_weight_bytes(deployment: Deployment) -> float:
    """Parameters times nominal bytes, split evenly over the GPUs [B]."""
    name = {"int4": "int4_g128", "fp4": "nvfp4"}.get(deployment.weights, deployment.weights)
    return (deployment.llm.total_params * FORMATS[name].nominal_bytes
            / deployment.layout.gpus)


def activation_bytes(deployment: Deployment, max_sequences: int | None,
                     max_batched_tokens: int | None) -> float:
    """Peak activation [B]: the engine's profiling run.

    The sampler works on ``max_sequences`` rows of the vocabulary, the forward pass on
    ``max_batched_tokens`` rows of the hidden width; a MoE adds its routing buffers.
    """
    profile, llm = deployment.profile, deployment.llm
    sequences = max_sequences or profile.default_max_sequences
    tokens = max_batched_tokens or profile.default_max_batched_tokens
    sampler = (profile.activation_vocab_bytes * llm.vocab
               * sequences / profile.default_max_sequences)
    forward = profile.activation_token_bytes * tokens * llm.hidden * ACTIVATION_BYTES
    moe = profile.activation_moe_bytes if llm.is_moe else 0.0
    return profile.activation_base_bytes + sampler + forward + moe


def token_bytes_per_gpu(deployment: Deployment) -> float:
    """Cache growth [B/token] on the fullest GPU, every layer and those of a draft model counted.

    GQA heads are split over tensor ranks and replicated once there are more ranks than heads;
    MLA latents are whole on every rank; pipeline stages hold their own layers, and the last one
    those of the draft.
    """
    own, draft = _model_token_bytes(deployment), deployment.drafting
    return own if draft is None else own + _model_token_bytes(draft)


def _model_token_bytes(deployment: Deployment) -> float:
    """The same of the model alone."""
    llm, layout, kv = deployment.llm, deployment.layout, deployment.kv
    per_rank = llm.remembered(("token_bytes", kv, layout.tensor), lambda: sum(
        n * s.values_per_entry * s.value_bytes(kv) / s.stride
        * heads_per_rank(s.heads, layout.tensor) / s.heads for n, s in llm.streams()))
    return per_rank * stage_share(llm.layers, layout.pipeline)


def reserved_share(llm: Llm) -> float:
    """Bytes an engine reserves per token over those that the layers cache.

    vLLM's hybrid cache manager pads layer kinds to groups of the smaller count: Gemma 3 27B has
    10 full and 52 sliding layers and reserves for 10 + 60 (start-up logs of vLLM 0.19: 573,582 B
    against 507,904). Source: vLLM ``v1/core/kv_cache_utils.py``.
    """
    return llm.remembered(("reserved_share",), lambda: _reserved_share(llm))


def _reserved_share(llm: Llm) -> float:
    kinds: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    for count, stream in llm.streams():
        if stream.name == "kv":
            kinds[stream.window is None].append((count, float(stream.values_per_entry)))
    counts = [sum(n for n, _ in rows) for rows in kinds.values()]
    if not all(counts):
        return 1.0
    group = min(counts)
    sizes = [sum(n * v for n, v in rows) for rows in kinds.values()]
    padded = [size * math.ceil(n / group) * group / n
              for size, n in zip(sizes, counts, strict=True)]
    return sum(padded) / sum(sizes)


def sequence_bytes_per_gpu(deployment: Deployment, context: float) -> float:
    """Cache and state [B] of one sequence of ``context`` tokens on the fullest GPU, with what a
    draft model keeps of it."""
    whole = one_sequence_bytes(deployment.llm, context, deployment.kv, deployment.layout.tensor)
    own = whole * stage_share(deployment.llm.layers, deployment.layout.pipeline)
    if deployment.draft is None:
        return own
    return own + one_sequence_bytes(deployment.draft, context, deployment.kv,
                                    deployment.layout.tensor)


def max_running_sequences(deployment: Deployment, pool_bytes: float, context: float,
                          context_variance: float, safety: float = 2.326) -> int:
    """Most sequences whose cache fits the pool of a replica at the given percentile.

    ``n m + z sqrt(n) s <= pool`` with m the mean and s the standard deviation of one running
    sequence's cache; z = 2.326 keeps it in 99 % of the time (central limit theorem).

    Parameters
    ----------
    pool_bytes : float
        [B] on one GPU.
    context, context_variance : float
        [token] and [token^2] of a running sequence.
    """
    mean = sequence_bytes_per_gpu(deployment, context)
    if pool_bytes <= 0:
        return 0
    if mean <= 0:
        return 10**6
    spread = math.sqrt(context_variance)
    edge = sequence_bytes_per_gpu(deployment, context + spread)
    z_sigma = safety * max(edge - mean, 0.0)
    root = (-z_sigma + math.sqrt(z_sigma**2 + 4.0 * mean * pool_bytes)) / (2.0 * mean)
    return math.floor(root**2) * deployment.layout.data
