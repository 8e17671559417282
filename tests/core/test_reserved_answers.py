"""Engines that admit a sequence only with room for its whole answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from core_helpers import catalog, gpu

from planner.memory import max_running_sequences, memory_budget, sequence_bytes_per_gpu
from planner.prediction import running_cap
from planner.requests import Layout, Limits
from planner.roofline import Deployment
from planner.setups.base import held_context, memory_fit
from planner.workload import Workload, constant, empirical


def _deployment(reserves: bool) -> Deployment:
    profile = catalog().engine("tensorrt-llm", gpu(), "fp8")
    return Deployment(catalog().llm("llama-3.1-70b"), gpu(), "fp8", "fp8", Layout(1),
                      replace(profile, reserves_answers=reserves))


def test_shipped_engines_reserve_as_their_schedulers_do():
    """TensorRT-LLM's default is GUARANTEED_NO_EVICT; vLLM and SGLang preempt or retract."""
    assert {e: catalog().engine(e, gpu(), "fp8").reserves_answers
            for e in ("vllm", "sglang", "tensorrt-llm")} == {
        "vllm": False, "sglang": False, "tensorrt-llm": True}


def test_a_fixed_answer_is_reserved_whole():
    prompt, output = np.array([1024.0]), np.array([2048.0])
    grown, whole = (running_cap(_deployment(r), prompt, output)[0] for r in (False, True))
    pool = memory_budget(_deployment(True)).kv_pool_bytes
    assert whole == np.floor(pool / sequence_bytes_per_gpu(_deployment(True), 3072.0))
    assert grown == np.floor(pool / sequence_bytes_per_gpu(_deployment(True), 2048.0))


def test_what_a_running_sequence_holds_is_seen_by_time():
    """Of answers of 100 and 300 tokens three in four running ones are long: 250 on average."""
    output = empirical([100.0, 300.0], [0.5, 0.5])
    workload = Workload(1.0, constant(1000.0), output)
    growing, whole = (held_context(_deployment(r), workload) for r in (False, True))
    assert growing[0] == pytest.approx(1125.0)
    assert whole == pytest.approx((1250.0, 0.75 * 0.25 * 200.0 ** 2))


def test_fewer_sequences_fit_where_answers_are_reserved():
    workload = Workload(1.0, constant(1000.0), constant(1000.0))
    (memory, grown), (_, whole) = (memory_fit(_deployment(r), workload, Limits())
                                   for r in (False, True))
    assert whole == max_running_sequences(_deployment(True), memory.kv_pool_bytes, 2000.0, 0.0)
    assert whole < grown
