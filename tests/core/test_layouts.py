"""Which layouts are tried: a better GPU only adds choices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.layouts import layouts
from planner.requests import Layout, Limits
from tests.core.core_helpers import catalog, gpu

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b-v0.1", "deepseek-v3", "llama-3.1-405b")
GPUS = ("t4", "l40s", "a100-sxm-40gb", "h100-sxm-80gb", "gh200-96gb", "mi300x")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("slug", GPUS)
def test_a_better_gpu_takes_no_layout_away(model: str, slug: str) -> None:
    llm, now = catalog().llm(model), gpu(slug)
    before = set(layouts(llm, now, Limits()))
    for change in ({"memory_bytes": 4 * now.memory_bytes},
                   {"link_domain_gpus": 8 * now.link_domain_gpus},
                   {"node_gpus": 2 * now.node_gpus}):
        assert before <= set(layouts(llm, replace(now, **change), Limits())), change


def test_large_models_may_span_nodes_and_small_ones_do_not() -> None:
    small, large = catalog().llm("llama-3.1-8b"), catalog().llm("llama-3.1-405b")
    assert max(x.gpus for x in layouts(small, gpu("t4"), Limits())) <= 8
    assert Layout(tensor=8, pipeline=16) in layouts(large, gpu("t4"), Limits())


def test_no_more_stages_than_allowed() -> None:
    limits = Limits(max_pipeline_parallel=4)
    assert max(x.pipeline for x in layouts(catalog().llm("llama-3.1-405b"), gpu("t4"),
                                           limits)) == 4
