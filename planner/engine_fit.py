"""Whether an engine, or one profile of it, can stand for a GPU at all."""

from __future__ import annotations

from planner.catalog.book import Catalog
from planner.hardware import Gpu

NVIDIA_ONLY = frozenset({"tensorrt-llm"})
"""Engines whose kernels are built for NVIDIA GPUs alone (TensorRT-LLM documentation, support
matrix, section hardware)."""


def unfit(engine: str, gpu: Gpu, catalog: Catalog) -> str | None:
    """Why an engine's name or the slug of a profile says nothing about a GPU; None where it may.

    A profile of another GPU of the same vendor may be borrowed: the confidence says so.

    Examples
    --------
    >>> from planner.catalog.shipped import shipped_catalog
    >>> c = shipped_catalog()
    >>> unfit("tensorrt-llm", c.gpu("mi300x"), c)
    'tensorrt-llm runs on NVIDIA GPUs only, and mi300x is one of AMD'
    """
    profile = catalog.engines.get(engine)
    name = profile.engine if profile else engine
    if name in NVIDIA_ONLY and gpu.vendor != "NVIDIA":
        return f"{name} runs on NVIDIA GPUs only, and {gpu.slug} is one of {gpu.vendor}"
    if profile is None:
        return None
    made_for = {g.vendor for g in catalog.gpus.values()
                if profile.gpu in (g.slug, g.architecture.lower())}
    if made_for and gpu.vendor not in made_for:
        return (f"the profile {profile.slug} is of {', '.join(sorted(made_for))} {profile.gpu}, "
                f"and {gpu.slug} is one of {gpu.vendor}")
    return None
