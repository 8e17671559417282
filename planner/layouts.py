"""Which parallel layouts of a model on a GPU are worth trying."""

from __future__ import annotations

from collections.abc import Iterable

from planner.errors import InvalidValue
from planner.hardware import Gpu
from planner.llm import Llm
from planner.requests import Layout, Limits

_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
MANY_NODES_PARAMS = 40e9
"""Parameters from which stages may span nodes: at 16 bits most of a node of eight 16 GB GPUs."""
MANY_STAGES_PARAMS = 200e9
"""Parameters from which more than eight stages are tried: past eight nodes of 16 GB GPUs."""
MAX_DATA_GROUP = 64
"""GPUs that data-parallel attention with expert parallelism spans at most."""


def layouts(llm: Llm, gpu: Gpu, limits: Limits) -> tuple[Layout, ...]:
    """Candidate layouts, smallest first.

    Tensor parallelism stays inside a node (or the link domain, where that is larger) and divides
    the query heads; pipeline stages are tried inside a node, and beyond for large models (a better
    link or more memory never takes a choice away); data-parallel attention is tried for MoE
    models, whose experts it spreads and whose latent caches tensor parallelism would replicate.
    """
    if limits.layouts is not None:
        for place, layout in enumerate(limits.layouts):
            check_layout(llm, layout, f"/limits/layouts/{place}")
        return limits.layouts
    tensors = tuple(_tensor_degrees(llm, gpu, limits))
    found = [Layout(tensor=t) for t in tensors]
    found += [Layout(tensor=t, pipeline=p) for p in _pipeline_degrees(llm, limits)
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
    """Whether stages stay in one node, or the model is large enough to want more than one.

    What is tried never depends on the GPU's memory: more of it must not take a choice away.
    """
    return tensor * stages <= gpu.node_gpus or llm.total_params > MANY_NODES_PARAMS


def _tensor_degrees(llm: Llm, gpu: Gpu, limits: Limits) -> Iterable[int]:
    reach = max(gpu.link_domain_gpus, gpu.node_gpus)
    heads = [g.mixer.heads for g in llm.groups if g.mixer.heads]
    for t in _WIDTHS:
        if t <= min(reach, limits.max_tensor_parallel) and all(h % t == 0 for h in heads):
            yield t


def _pipeline_degrees(llm: Llm, limits: Limits) -> Iterable[int]:
    """Stages up to the limit; up to 32 for models that many small GPUs could hold only so."""
    most = limits.max_pipeline_parallel
    if most >= Limits().max_pipeline_parallel and llm.total_params > MANY_STAGES_PARAMS:
        most = max(most, 32)
    for p in (2, 4, 8, 16, 32):
        if p <= min(most, llm.layers):
            yield p


def _data_parallel(gpu: Gpu, tensors: Iterable[int]) -> Iterable[Layout]:
    reach = max(gpu.link_domain_gpus, gpu.node_gpus, 1)
    for t in tensors:
        for d in _WIDTHS[1:]:
            if t * d <= min(max(reach, 16), MAX_DATA_GROUP):
                yield Layout(tensor=t, data=d, expert=t * d)
