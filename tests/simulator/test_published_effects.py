"""What papers on serving systems found, in direction and rough size."""

from __future__ import annotations

import numpy as np
import pytest
from sim_helpers import deployment

from planner.roofline import StepBatch, StepModel
from planner.simulator import (
    SimulatedFleet,
    SimulationOptions,
    kv_transfer,
    poisson_arrivals,
    pool_of,
    request_table,
    simulate,
)
from planner.workload import Slo

SLOS = (Slo("ttft", 0.4), Slo("tpot", 0.04))


def goodput(fleet: SimulatedFleet) -> float:
    """Highest rate per GPU [1/s] at which 90 % of the requests meet both targets."""
    def held(rate: float) -> bool:
        count = 3000
        requests = request_table(poisson_arrivals(rate * fleet.gpus, count, 7),
                                 np.full(count, 512), np.full(count, 64))
        share = simulate(fleet, requests, SimulationOptions("least_loaded")).attainment()["all"]
        return share is not None and share >= 0.9

    low, high = 0.1, 30.0
    while high - low > 0.1:
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) else (low, middle)
    return low


@pytest.fixture(scope="module")
def distserve() -> tuple[float, float]:
    """Goodput per GPU of one pool and of two prefill and one decode replicas.

    A 13B model on A100, 512/64 tokens, TTFT 0.4 s and TPOT 0.04 s (DistServe, OSDI 2024, figure 1).
    """
    d = deployment("opt-13b", "a100-sxm-80gb")
    one = SimulatedFleet("colocated", (pool_of(d, "serve", "prefill_first", 3),), slos=SLOS)
    two = SimulatedFleet("disaggregated", (pool_of(d, "prefill", "prefill", 2),
                                           pool_of(d, "decode", "decode", 1)),
                         kv_transfer(d, d), SLOS)
    return goodput(one), goodput(two)


def test_two_pools_double_the_goodput_of_one(distserve):
    """Published: 1.6 requests/s and GPU colocated against 3.3 disaggregated."""
    one, two = distserve
    assert two / one == pytest.approx(3.3 / 1.6, rel=0.5)
    assert two > 1.3 * one


def test_a_whole_prefill_stalls_decodes_and_a_chunk_hardly_does():
    """Sarathi-Serve (OSDI 2024) section 3.2: a full prefill that joins a decode batch lengthens the
    gap many times; a chunk within the budget does so by a bounded step."""
    d = deployment("llama-3.1-8b", "a100-sxm-80gb")
    arrivals = np.concatenate([np.zeros(32), [3.0]])
    requests = request_table(arrivals, [500] * 32 + [8000], [600] * 32 + [2])
    options = SimulationOptions(warmup_share=0.0)
    gaps = {}
    for scheduler, budget in (("prefill_first", 16_384), ("chunked", 512)):
        fleet = SimulatedFleet(scheduler, (pool_of(d, "serve", scheduler, 1,
                                                   token_budget=budget),))
        seen = simulate(fleet, requests, options)
        gaps[scheduler] = float(seen.worst_gap_s[:32].max())
    step = float(StepModel.of(d).seconds(StepBatch(decodes=32, context=700)))
    whole = float(StepModel.of(d).seconds(StepBatch(prefill_tokens=8000, prefill_sequences=1)))
    assert gaps["prefill_first"] == pytest.approx(whole + step, rel=0.1)
    assert gaps["prefill_first"] > 20 * step
    assert gaps["chunked"] < 0.2 * gaps["prefill_first"]


def test_layer_wise_transfer_hides_behind_the_prefill():
    """Splitwise (ISCA 2024) section 4.2: what is left of a transfer is about a layer's share."""
    d = deployment("llama-3.1-70b", "h100-sxm-80gb", tensor=8)
    fleet = SimulatedFleet("disaggregated", (pool_of(d, "prefill", "prefill", 1),
                                             pool_of(d, "decode", "decode", 1)), kv_transfer(d, d))
    requests = request_table([0.0], [4000], [10])
    seen = simulate(fleet, requests, SimulationOptions(warmup_share=0.0))
    assert fleet.transfer is not None
    wire = float(fleet.transfer.wire_s(requests.prompt_tokens)[0])
    assert seen.transfer_s[0] == pytest.approx(wire / d.llm.layers, rel=1e-6)


def test_static_batching_makes_newcomers_wait_for_the_longest_answer():
    """Orca (OSDI 2022) section 3."""
    d = deployment()
    requests = request_table([0.0, 0.0, 0.5], [500, 500, 500], [1000, 10, 10])
    options = SimulationOptions(warmup_share=0.0)
    waits = [simulate(SimulatedFleet(s, (pool_of(d, "serve", s, 1),)), requests, options)
             .ttft_s[2] for s in ("static", "prefill_first")]
    assert waits[0] > 5.0
    assert waits[1] < 0.1
