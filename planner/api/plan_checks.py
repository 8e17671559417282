"""What a request must find in the catalog, checked before anything is computed."""

from __future__ import annotations

from planner.catalog.book import Catalog
from planner.errors import ContextTooLong, NotInCatalog
from planner.llm import Llm
from planner.requests import EstimateRequest, PlanRequest
from planner.workload import Lengths

CHECKED_SHARE = 0.95
"""A log-normal has no longest request; its 95th percentile, which the caller stated, must fit.
Longer requests are what an engine truncates or refuses. Constants and lists must fit whole."""


def check_plan(request: PlanRequest, catalog: Catalog) -> None:
    """Refuse a plan request that names what the catalog lacks, or too long a context.

    Raises
    ------
    NotInCatalog
        With the pointer of the name.
    ContextTooLong
        When prompt plus output exceeds what the model was built for.
    """
    llm = catalog.llm(request.model, "/model")
    for index, slug in enumerate(request.gpus):
        catalog.gpu(slug, f"/gpus/{index}")
    for slug in request.pricing.usd_per_gpu_hour:
        catalog.gpu(slug, f"/pricing/usd_per_gpu_hour/{slug}")
    if request.speculative and request.speculative.draft_model:
        catalog.llm(request.speculative.draft_model, "/speculative/draft_model")
    check_engine(request.engine, catalog)
    check_context(request, llm)


def check_estimate(request: EstimateRequest, catalog: Catalog) -> None:
    """Refuse an estimate request that names what the catalog lacks.

    Raises
    ------
    NotInCatalog
        With the pointer of the name.
    """
    catalog.llm(request.model, "/model")
    catalog.gpu(request.gpu, "/gpu")
    check_engine(request.engine, catalog)


def check_engine(name: str, catalog: Catalog) -> None:
    """Refuse the name of an engine or profile that the catalog lacks."""
    if name in catalog.engines:
        return
    names = sorted({p.engine for p in catalog.engines.values()})
    if name not in names:
        raise NotInCatalog(f"unknown engine {name!r}; the catalog has {', '.join(names)}",
                           "/engine")


def check_context(request: PlanRequest, llm: Llm) -> None:
    """Refuse prompts and outputs that together exceed the model's context."""
    if llm.max_context is None:
        return
    prompt, output = _longest(request.workload.prompt), _longest(request.workload.output)
    if prompt + output > llm.max_context:
        raise ContextTooLong(
            f"a prompt of {prompt:.0f} and an output of {output:.0f} tokens exceed the "
            f"{llm.max_context} tokens of {llm.slug}", "/workload/prompt_tokens")


def _longest(lengths: Lengths) -> float:
    return lengths.quantile(CHECKED_SHARE) if lengths.kind == "lognormal" else lengths.max
