"""Which parallel layouts of a model on a GPU are worth trying."""

from __future__ import annotations

from collections.abc import Iterable

from planner.errors import InvalidValue
from planner.hardware import Gpu
from planner.llm import Llm
from planner.requests import Layout, Limits

_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
MAX_DATA_GROUP = 64
"""GPUs that data-parallel attention with expert parallelism spans at most."""


def layouts(llm: Llm, gpu: Gpu, limits: Limits) -> tuple[Layout, ...]:
    """Candidate layouts, smallest first.

    Tensor parallelism stays inside a node (or the link domain, where that is larger) and divides
    the query heads; pipeline stages are tried inside a node, and beyond where the weights fit no
    node (a better link never takes a choice away); data-parallel attention is tried for MoE
    models, whose experts it spreads and whose latent caches tensor parallelism would replicate.
    """
    if limits.layouts is not None:
        for place, layout in enumerate(limits.layouts):
            check_layout(llm, layout, f"/limits/layouts/{place}")
        return limits.layouts
    tensors = tuple(_tensor_degrees(llm, gpu, limits))
    found = [Layout(tensor=t) for t in tensors]
    found += [Layout(tensor=t, pipeline=p) for p in _pipeline_degrees(llm, gpu, limits)
              for t in tensors if _worth_staging(llm, gpu, t, p)]
    if llm.is_moe:
        found += list(_data_parallel(gpu, tensors))
    return tuple(sorted({x for x in found if x.gpus <= limits.max_gpus},
                        key=lambda x: (x.gpus, x.pipeline, x.data)))


def check_layout(llm: Llm, layout: Layout, pointer: str) -> None:
    """Refuse a layout that no engine could run.

    Raises
    ------
    InvalidValue
        When the tensor degree does not divide the query heads, there are more stages than layers,
        or more expert ranks than the replica has GPUs (or the model experts).
    """
    heads = {g.mixer.heads for g in llm.groups if g.mixer.heads}
    if any(h % layout.tensor for h in heads):
        raise InvalidValue(
            f"tensor_parallel {layout.tensor} does not divide the {max(heads)} attention heads of "
            f"{llm.slug}", f"{pointer}/tensor_parallel")
    if layout.pipeline > llm.layers:
        raise InvalidValue(f"pipeline_parallel {layout.pipeline} is more than the {llm.layers} "
                           f"layers of {llm.slug}", f"{pointer}/pipeline_parallel")
    ranks = layout.tensor * layout.data
    if ranks % layout.expert:
        raise InvalidValue(f"expert_parallel {layout.expert} does not divide the {ranks} GPUs of "
                           "a stage (tensor x data)", f"{pointer}/expert_parallel")


def _worth_staging(llm: Llm, gpu: Gpu, tensor: int, stages: int) -> bool:
    """Whether stages stay in one node, or the model needs more than one."""
    node = gpu.node_gpus
    return tensor * stages <= node or llm.total_params > 0.5 * node * gpu.memory_bytes


def _tensor_degrees(llm: Llm, gpu: Gpu, limits: Limits) -> Iterable[int]:
    reach = max(gpu.link_domain_gpus, gpu.node_gpus)
    heads = [g.mixer.heads for g in llm.groups if g.mixer.heads]
    for t in _WIDTHS:
        if t <= min(reach, limits.max_tensor_parallel) and all(h % t == 0 for h in heads):
            yield t


def _pipeline_degrees(llm: Llm, gpu: Gpu, limits: Limits) -> Iterable[int]:
    """Two and four stages inside a node; more where the weights need more than a node."""
    reach = min(max(gpu.link_domain_gpus, gpu.node_gpus), limits.max_tensor_parallel)
    crowded = llm.total_params * 0.5 > 0.8 * reach * gpu.memory_bytes
    wide = llm.total_params * 2.0 > 0.5 * reach * gpu.memory_bytes
    most = 32 if crowded else min(limits.max_pipeline_parallel, 8 if wide else 4)
    for p in (2, 4, 8, 16, 32):
        if p <= min(most, llm.layers):
            yield p


def _data_parallel(gpu: Gpu, tensors: Iterable[int]) -> Iterable[Layout]:
    reach = max(gpu.link_domain_gpus, gpu.node_gpus, 1)
    for t in tensors:
        for d in _WIDTHS[1:]:
            if t * d <= min(max(reach, 16), MAX_DATA_GROUP):
                yield Layout(tensor=t, data=d, expert=t * d)
