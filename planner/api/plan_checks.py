"""What a request must find in the catalog, checked before anything is computed."""

from __future__ import annotations

from planner.catalog.book import Catalog
from planner.engine_fit import unfit
from planner.errors import ContextTooLong, DoNotGoTogether, NotInCatalog
from planner.hardware import Gpu
from planner.llm import Llm
from planner.requests import EstimateRequest, PlanRequest
from planner.workload import Lengths

CHECKED_SHARE = 0.95
"""A log-normal has no longest request; its 95th percentile, which the caller stated, must fit.
Longer requests are what an engine truncates or refuses. Constants and lists must fit whole."""
PADDED_VOCABULARY = 1024
"""Rows by which two embeddings of one tokenizer may differ: they are padded for the hardware."""


def check_plan(request: PlanRequest, catalog: Catalog) -> None:
    """Refuse a plan request that names what the catalog lacks, or too long a context.

    Raises
    ------
    NotInCatalog
        With the pointer of the name.
    ContextTooLong
        When prompt plus output exceeds what the model was built for.
    DoNotGoTogether
        When engine, power cap or draft model suit none of the GPUs, or not the model.
    """
    llm = catalog.llm(request.model, "/model")
    gpus = [catalog.gpu(slug, f"/gpus/{index}") for index, slug in enumerate(request.gpus)]
    for slug in request.pricing.usd_per_gpu_hour:
        catalog.gpu(slug, f"/pricing/usd_per_gpu_hour/{slug}")
    if request.speculative and request.speculative.draft_model:
        check_draft(llm, catalog.llm(request.speculative.draft_model, "/speculative/draft_model"))
    check_engine(request.engine, catalog)
    check_hardware(request.engine, request.power_cap_w, gpus, catalog, "/gpus/0")
    check_context(request, llm)


def check_estimate(request: EstimateRequest, catalog: Catalog) -> None:
    """Refuse an estimate request that names what the catalog lacks.

    Raises
    ------
    NotInCatalog
        With the pointer of the name.
    """
    catalog.llm(request.model, "/model")
    gpu = catalog.gpu(request.gpu, "/gpu")
    check_engine(request.engine, catalog)
    check_hardware(request.engine, request.power_cap_w, [gpu], catalog, "/gpu")


def check_engine(name: str, catalog: Catalog) -> None:
    """Refuse the name of an engine or profile that the catalog lacks."""
    if name in catalog.engines:
        return
    names = sorted({p.engine for p in catalog.engines.values()})
    if name not in names:
        raise NotInCatalog(f"unknown engine {name!r}; the catalog has {', '.join(names)}",
                           "/engine")


def check_hardware(engine: str, power_cap_w: float | None, gpus: list[Gpu], catalog: Catalog,
                   pointer: str) -> None:
    """Refuse an engine that runs on none of the GPUs, and a power cap that caps none.

    Where some do, the others are left out with the reason, and are not capped.
    """
    reasons = [unfit(engine, gpu, catalog) for gpu in gpus]
    if reasons[0] and all(reasons):
        raise DoNotGoTogether(reasons[0], pointer)
    watts = [gpu.tdp_w or float("inf") for gpu in gpus]
    if power_cap_w is not None and power_cap_w > max(watts):
        most = gpus[watts.index(max(watts))]
        raise DoNotGoTogether(f"{power_cap_w:g} W is above the board power of "
                              f"{most.slug}, {most.tdp_w:g} W, so it caps nothing; leave it out",
                              "/power_cap_w")


def check_draft(llm: Llm, draft: Llm) -> None:
    """Refuse a draft model of another vocabulary: its tokens are not the target's.

    vLLM refuses to start with two sizes (``verify_equal_vocab_size_if_draft_model``); sizes that
    differ by padding alone are let through here.
    """
    if abs(llm.vocab - draft.vocab) > PADDED_VOCABULARY:
        raise DoNotGoTogether(
            f"{draft.slug} has a vocabulary of {draft.vocab:,} tokens and {llm.slug} one of "
            f"{llm.vocab:,}; a draft model must share the vocabulary of the model",
            "/speculative/draft_model")


def check_context(request: PlanRequest, llm: Llm, pointer: str = "/workload/prompt_tokens"
                  ) -> None:
    """Refuse prompts and outputs that together exceed the model's context."""
    check_lengths(request.workload.prompt, request.workload.output, llm, pointer)


def check_lengths(prompts: Lengths, outputs: Lengths, llm: Llm, pointer: str) -> None:
    """Refuse lengths that together exceed the model's context.

    Raises
    ------
    ContextTooLong
        At ``pointer``.
    """
    if llm.max_context is None:
        return
    prompt, output = _longest(prompts), _longest(outputs)
    if prompt + output > llm.max_context:
        raise ContextTooLong(
            f"a prompt of {prompt:.0f} and an output of {output:.0f} tokens exceed the "
            f"{llm.max_context} tokens of {llm.slug}", pointer)


def _longest(lengths: Lengths) -> float:
    return lengths.quantile(CHECKED_SHARE) if lengths.kind == "lognormal" else lengths.max
