"""Engine profiles: how far a serving engine gets on a GPU, and what memory it keeps.

A profile is data (a catalog row), never code. ``ideal`` has every factor 1 and no overhead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MEMORY_SCOPES = {"whole": "share of the GPU's memory",
                 "static": "share of the free memory, for weights and cache",
                 "free": "share of what all else leaves, for the cache"}
"""What ``memory_utilization`` is a share of. ``whole``: of the GPU, for everything the engine holds
(vLLM ``gpu_memory_utilization``). ``static``: of what is free once the ranks are connected, for
weights and cache; activations and graphs live in the rest (SGLang ``mem_fraction_static``).
``free``: of what weights, activations and the runtime leave, for the cache (TensorRT-LLM
``free_gpu_memory_fraction``). Sources: vLLM ``v1/worker/gpu_worker.py``; SGLang
``model_executor/model_runner.py`` (``rest_memory``); TensorRT-LLM ``pyexecutor/_util.py``
(``_cal_max_memory``)."""


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """Efficiency factors and overheads of one engine on one kind of GPU at one precision.

    Attributes
    ----------
    slug, engine, version : str
    gpu : str
        Slug of a GPU, name of a family (``hopper``), or ``*``.
    precision : str
        Weight precision it holds for, or ``*``.
    mfu : float
        Share of the dense peak that large GEMMs reach, 0 to 1.
    half_tokens : float
        [token] at which a GEMM reaches half of ``mfu`` (tiles fill with the batch).
    tile_tokens : int
        [token] GEMM rows are rounded up to this (Sarathi-Serve p. 9); 1 = no rounding.
    mbu : float
        Share of the memory bandwidth that weight reads reach.
    expert_mfu, expert_mbu : float
        The same for routed experts (grouped GEMMs over few rows each): FLOPs and weight reads.
    expert_skew : float
        Squared coefficient of variation of how popular experts are; 0 = uniform routing. The more
        skewed, the fewer distinct experts a batch touches.
    attention_mfu, attention_mbu : float
        The same for attention scores and for cache reads.
    link_efficiency : float
        Share of the link bandwidth that collectives reach.
    collective_latency_s : float
        [s] per collective.
    layer_s, moe_layer_s : float
        [s] per dense and per MoE layer and step (launches, small kernels).
    latent_layer_s, recurrent_layer_s : float
        [s] more per step for a layer of latent attention (MLA: projections, absorption) and of a
        recurrence (convolution, gates).
    step_s : float
        [s] per step (scheduler, sampling).
    sequence_s : float
        [s] per sequence and step (sampling, scheduling, detokenising).
    request_s : float
        [s] per request before its first token (tokenizer, HTTP, scheduling); occupies no GPU.
    first_steps : float
        Decode steps of one sequence from the end of a prefill to the client's first token (steps in
        flight, streaming interval).
    prompt_token_s : float
        [s] of the host per prompt token (tokenizer, transfer of the request).
    ttft_scale : float
        Prefill time of a request that waits for it over that which it takes from others' decoding.
    queue_scale : float
        Wait behind other prefills in a closed loop over that of M/M/1.
    burst_share : float
        Share of a closed-loop benchmark's requests that meet its start-up burst.
    client_s : float
        [s] of TTFT that each concurrent client adds in a closed loop.
    disaggregated_scale : float
        Time per token of a decode pool over that of the same step in one pool (caches that
        arrive, the router between the pools).
    expert_imbalance : float
        Load of the fullest expert rank over the mean, at least 1.
    memory_utilization : float
        Share of the memory the engine may use.
    memory_scope : str
        What that is a share of (:data:`MEMORY_SCOPES`).
    reserves_answers : bool
        Whether a sequence waits until there is room for its whole answer, so that none is ever put
        back (TensorRT-LLM ``GUARANTEED_NO_EVICT``); others take blocks as it grows.
    activation_base_bytes, activation_vocab_bytes, activation_moe_bytes : float
        [B] peak activation: base + per vocabulary entry (at ``default_max_sequences``) + MoE.
    activation_token_bytes : float
        [B] per batched token and hidden element.
    runtime_bytes, runtime_tp_bytes : float
        [B] outside the allocator on one GPU, and with tensor parallelism.
    graph_bytes : float
        [B] of captured graphs that count against the budget.
    allocator_block_bytes : float
        [B] granularity of the weight allocator; 0 = exact.
    block_tokens : int
        [token] per KV block.
    default_max_sequences, default_max_batched_tokens : int
    obtained : str
        ``measured``, ``fitted`` or ``assumed``.
    tpot_error, ttft_error : float or None
        Median relative error against measurements it was not fitted on, where known.
    train_error : float or None
        Median relative TPOT error on the measurements it was fitted on.
    points : int
        Measurements behind it.
    fitted_on : str
        What kinds of models it has seen, comma-separated (``dense moe mla recurrent``).
    source, as_of : str
    """

    slug: str
    engine: str
    version: str = ""
    gpu: str = "*"
    precision: str = "*"
    mfu: float = 1.0
    half_tokens: float = 0.0
    tile_tokens: int = 1
    mbu: float = 1.0
    expert_mfu: float = 1.0
    expert_mbu: float = 1.0
    expert_skew: float = 0.0
    attention_mfu: float = 1.0
    attention_mbu: float = 1.0
    link_efficiency: float = 1.0
    collective_latency_s: float = 0.0
    layer_s: float = 0.0
    moe_layer_s: float = 0.0
    latent_layer_s: float = 0.0
    recurrent_layer_s: float = 0.0
    step_s: float = 0.0
    sequence_s: float = 0.0
    request_s: float = 0.0
    first_steps: float = 0.0
    prompt_token_s: float = 0.0
    ttft_scale: float = 1.0
    queue_scale: float = 1.0
    burst_share: float = 0.0
    client_s: float = 0.0
    disaggregated_scale: float = 1.0
    expert_imbalance: float = 1.0
    memory_utilization: float = 0.9
    memory_scope: str = "whole"
    reserves_answers: bool = False
    activation_base_bytes: float = 0.0
    activation_vocab_bytes: float = 0.0
    activation_moe_bytes: float = 0.0
    activation_token_bytes: float = 0.0
    runtime_bytes: float = 0.0
    runtime_tp_bytes: float = 0.0
    graph_bytes: float = 0.0
    allocator_block_bytes: float = 0.0
    block_tokens: int = 1
    default_max_sequences: int = 256
    default_max_batched_tokens: int = 8192
    obtained: str = "assumed"
    tpot_error: float | None = None
    ttft_error: float | None = None
    train_error: float | None = None
    points: int = 0
    fitted_on: str = ""
    source: str = ""
    as_of: str = ""
    notes: dict[str, str] = field(default_factory=dict)

    def lag_s(self, alone_s: float | Array, prompt_tokens: Array) -> Array:
        """:func:`lag_s` with this profile's constants."""
        return lag_s(self.request_s, self.first_steps, self.prompt_token_s, alone_s,
                     prompt_tokens)


def lag_s(request_s: float | Array, first_steps: float | Array, prompt_token_s: float | Array,
          alone_s: float | Array, prompt_tokens: Array) -> Array:
    """Time [s] between a request and its first token in which its prefill does not run.

    ``request + k D(1) + host p``: tokenizer, HTTP and scheduling; the steps until the client sees
    a token; the host's time per prompt token.

    Parameters
    ----------
    alone_s : float or ndarray
        [s] of a decode step of one sequence.
    prompt_tokens : float or ndarray
        [token] of the whole prompt, with what a prefix cache holds.
    """
    return np.asarray(request_s + first_steps * alone_s + prompt_token_s * prompt_tokens)


def profile_slug(engine: str, gpu: str, precision: str) -> str:
    """The slug of a shipped profile of an engine on a GPU or family at a weight precision.

    Examples
    --------
    >>> profile_slug("vllm", "blackwell ultra", "*")
    'vllm-blackwell-ultra-any'
    """
    return "-".join((engine, gpu, precision)).replace("*", "any").replace(" ", "-")


IDEAL = EngineProfile(slug="ideal", engine="ideal", obtained="assumed",
                      source="100 % of the roofline; a physical floor, not a prediction")
