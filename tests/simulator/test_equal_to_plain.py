"""The compiled loop against the plain simulation, event by event."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plain_simulation import Plain, affine, of_model
from sim_helpers import AFFINE, deployment, memory, one_pool, table, two_pools

from planner.roofline import StepModel
from planner.simulator import (
    Failure,
    RequestTable,
    SimulatedFleet,
    SimulationOptions,
    SimulationResult,
    kv_transfer,
    pool_of,
    simulate,
)
from planner.steps import StepTimes, affine_steps, packed_steps
from planner.workload import Slo

TIGHT, WINDOWED = 1.2e5, (1.1e5, (1e18, 300.0), (50.0, 60.0), 777.5)
FLEETS = {
    "prefill first": one_pool(),
    "prefill first, tight memory": one_pool(memory=memory(TIGHT)),
    "prefill first, windows and states": one_pool(memory=memory(*WINDOWED)),
    "prefill first, ranks and stages": one_pool(replicas=2, ranks=2, occupancy=0.5),
    "prefill first, whole answers": one_pool(reserves=True, memory=memory(TIGHT)),
    "chunked, whole answers": one_pool("chunked", "chunked", token_budget=200, reserves=True,
                                       memory=memory(*WINDOWED)),
    "chunked": one_pool("chunked", "chunked", token_budget=200),
    "chunked, tight memory": one_pool("chunked", "chunked", token_budget=200,
                                      memory=memory(TIGHT)),
    "static": one_pool("static", "static", max_sequences=8, replicas=4),
    "static, tight memory": one_pool("static", "static", replicas=4, memory=memory(TIGHT)),
    "two pools": two_pools(prompts_per_pass=3),
    "two pools, tight memory": two_pools({"memory": memory(TIGHT)}),
}
FAILURES = (Failure(2.0, 1.5, -1), Failure(4.0, 3.0, -1, 1), Failure(4.5, 0.5, 0, 0))
"""Pool -1 stands for the last one."""


def compare(fleet: SimulatedFleet, plain: Plain, requests: RequestTable,
            options: SimulationOptions, seen: SimulationResult | None = None) -> tuple[int, int]:
    """All times equal to 1e-9, all counts equal; preemptions and retries that occurred."""
    seen = seen or simulate(fleet, requests, options)
    jobs = plain.play()
    front = fleet.pools[0]
    output = requests.output_tokens.astype(float)
    context = requests.prompt_tokens.mean() + (output**2).mean() / (2.0 * output.mean())
    times = StepTimes(packed_steps(front.steps), 1)
    alone = float(times.seconds(1.0, float(context))[0])
    prefill = times.seconds(new_tokens=requests.prompt_tokens - requests.cached_tokens,
                            prompts=1.0, cached=requests.cached_tokens)
    lag = np.array([j.lag_s for j in jobs]) + front.request_s + front.first_steps * alone
    lag += front.prompt_token_s * requests.prompt_tokens + (front.first_token_scale - 1.0) * prefill
    arrival = requests.arrival_s
    expected = {
        "ttft_s": np.array([j.tokens_s[0] for j in jobs]) + lag - arrival,
        "e2e_s": np.array([j.tokens_s[-1] for j in jobs]) + lag - arrival,
        "worst_gap_s": np.array([np.diff(j.tokens_s).max(initial=0.0) for j in jobs]),
        "queued_s": np.array([j.queued_s for j in jobs]),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(seen, name), values, rtol=1e-9, atol=1e-9, err_msg=name)
    gaps = [np.diff(j.tokens_s) for j in jobs]
    limit_s = next((s.limit_s for s in fleet.slos if s.metric == "itl"), np.inf)
    assert seen.gaps.tolist() == [len(g) for g in gaps]
    assert seen.late_gaps.tolist() == [int((g > limit_s).sum()) for g in gaps]
    assert seen.preemptions.tolist() == [j.preemptions for j in jobs]
    assert seen.retries.tolist() == [j.retries for j in jobs]
    return int(seen.preemptions.sum()), int(seen.retries.sum())


@pytest.mark.parametrize("router", ["round_robin", "least_loaded"])
@pytest.mark.parametrize("failures", [(), FAILURES], ids=["", "failures"])
@pytest.mark.parametrize("name", FLEETS)
def test_equal_on_affine_steps(name, router, failures):
    fleet, step = FLEETS[name], affine(*AFFINE)
    failures = tuple(replace(f, pool=f.pool % len(fleet.pools)) for f in failures)
    options = SimulationOptions(router, warmup_share=0.0, failures=failures)
    happened = [compare(fleet, Plain(fleet, [step, step], requests, router, failures), requests,
                        options) for requests in (table(seed=s, rate=14.0) for s in range(3))]
    preempted, retried = (sum(x) for x in zip(*happened, strict=True))
    if "tight" in name and "static" not in name:
        assert preempted > 0
    if failures:
        assert retried > 0


DRAFTED = {"draft_tokens": 3, "acceptance": 0.7, "draft": affine_steps(0.002, 0.0, 1e-5, 1e-8)}
GAP = (Slo("itl", 0.0172, 90.0),)


@pytest.mark.parametrize("fleet", [
    one_pool(slos=GAP, **DRAFTED), one_pool("chunked", "chunked", GAP, token_budget=200, **DRAFTED),
    one_pool("static", "static", GAP, max_sequences=8, replicas=4, **DRAFTED),
    replace(two_pools(DRAFTED), slos=GAP)], ids=lambda f: f.setup)
def test_equal_with_drafts(fleet):
    """The plain one is told how many steps each answer takes."""
    step, requests = affine(*AFFINE), table(rate=14.0)
    options = SimulationOptions("round_robin", warmup_share=0.0)
    seen = simulate(fleet, requests, options)
    plain = Plain(fleet, [step, step], requests, drafts=affine(0.002, 0.0, 1e-5, 1e-8),
                  outputs=(seen.gaps + 1).tolist())
    compare(fleet, plain, requests, options, seen)
    assert 0 < seen.late_gaps.sum() < seen.gaps.sum() < (requests.output_tokens - 1).sum()
    assert seen.gap_counts.sum() == seen.gaps.sum()
    share = 1.0 - seen.late_gaps.sum() / seen.gaps.sum()
    assert seen.attainment()["itl"] == pytest.approx(share)
    assert (seen.meets(GAP[0]) == (seen.late_gaps <= 0.1 * seen.gaps + 1e-9)).all()


@pytest.mark.parametrize(("model", "layout"), [
    ("llama-3.1-8b", {}), ("gpt-oss-120b", {}), ("gemma-3-27b", {"tensor": 2}),
    ("mixtral-8x7b-v0.1", {"tensor": 2, "pipeline": 2}), ("deepseek-v2-lite", {})])
@pytest.mark.parametrize("scheduler", ["prefill_first", "chunked"])
def test_equal_on_deployments(model, layout, scheduler):
    d = deployment(model, **layout)
    setup = "chunked" if scheduler == "chunked" else "colocated"
    fleet = SimulatedFleet(setup, (pool_of(d, "serve", scheduler, 1, token_budget=512),))
    requests = table(40, 6.0, output=20.0)
    plain = Plain(fleet, [of_model(StepModel.of(d))], requests)
    compare(fleet, plain, requests, SimulationOptions("round_robin", warmup_share=0.0))


def test_equal_on_two_pools_of_a_deployment():
    d = deployment("llama-3.1-70b", weights="fp8", tensor=2, plain=False)
    pools = (pool_of(d, "prefill", "prefill", 2, prompts_per_pass=2),
             pool_of(d, "decode", "decode", 1))
    fleet = SimulatedFleet("disaggregated", pools, kv_transfer(d, d))
    requests, model = table(40, 6.0, output=20.0), StepModel.of(d)
    steps = [of_model(model), of_model(model, d.profile.disaggregated_scale)]
    compare(fleet, Plain(fleet, steps, requests), requests,
            SimulationOptions("round_robin", warmup_share=0.0))
