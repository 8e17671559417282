"""The simulator set up as textbook queues, and laws that hold on every run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sim_helpers import jobs_of, memory, one_pool, pool, table, two_pools
from test_equal_to_plain import FLEETS

from planner.queueing import mg1_wait
from planner.simulator import (
    SimulatedFleet,
    SimulationOptions,
    affine_steps,
    gamma_arrivals,
    poisson_arrivals,
    request_table,
    simulate,
)

COUNT, TOKEN_S = 400_000, 1e-6
SERVER = SimulatedFleet("colocated", (pool(
    steps=affine_steps(0.0, TOKEN_S), replicas=1, prompts_per_pass=1, max_sequences=1,
    token_budget=1),))
"""First come first served, one job at a time: its service time is its prompt."""


def wait_of(service_s: np.ndarray, rate: float, cv: float = 1.0) -> np.ndarray:
    """Waits of Poisson (or gamma) arrivals at one server, warm-up left out."""
    arrivals = gamma_arrivals(rate, cv, COUNT, seed=3)
    seen = simulate(SERVER, jobs_of(arrivals, service_s, TOKEN_S))
    return seen.queued_s[seen.seen]


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_mm1(rho):
    """Mean wait rho / (mu - lambda), and an exponential tail of that rate."""
    wait = wait_of(np.random.default_rng(1).exponential(1.0, COUNT), rho)
    assert wait.mean() == pytest.approx(rho / (1 - rho), rel=0.05)
    assert (wait > 1e-9).mean() == pytest.approx(rho, rel=0.02)
    for t in (1.0, 3.0):
        assert (wait > t).mean() == pytest.approx(rho * math.exp(-(1 - rho) * t), rel=0.08)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_md1(rho):
    """Half the wait of M/M/1."""
    assert wait_of(np.ones(COUNT), rho).mean() == pytest.approx(rho / (2 * (1 - rho)), rel=0.04)


@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_mg1(sigma):
    """Pollaczek-Khinchine with log-normal service, as the plan's own formula has it."""
    service = np.random.default_rng(2).lognormal(-sigma**2 / 2, sigma, COUNT)
    weights = np.full(COUNT, 1.0 / COUNT)
    formula = mg1_wait(0.6, service, weights)
    wait = wait_of(service, 0.6)
    assert wait.mean() == pytest.approx(float(formula.mean_s), rel=0.08)


def test_bursts_wait_longer_and_metronomes_do_not_wait():
    bursty, steady = (wait_of(np.ones(COUNT), 0.6, cv) for cv in (3.0, 0.0))
    poisson = wait_of(np.ones(COUNT), 0.6)
    assert bursty.mean() > 3 * poisson.mean()
    assert steady.max() < 1e-9


@pytest.mark.parametrize("places", [1, 4, 16])
def test_erlang_c(places):
    """Decode places are servers: M/M/c with the probability of waiting of Erlang C."""
    step, mean_steps, load = 1e-3, 1000.0, 0.7
    rng, count = np.random.default_rng(4), 60_000
    answers = np.maximum(np.round(rng.exponential(mean_steps, count)), 1)
    arrivals = poisson_arrivals(load * places / (step * mean_steps), count, seed=5)
    instant = pool("prefill", "prefill", steps=affine_steps(1e-9), replicas=1)
    decode = pool("decode", "decode", steps=affine_steps(step), replicas=1, max_sequences=places)
    fleet = SimulatedFleet("disaggregated", (instant, decode))
    seen = simulate(fleet, request_table(arrivals, np.ones(count), answers))
    offered = load * places
    blocked = offered**places / math.factorial(places) / (1 - load)
    below = sum(offered**n / math.factorial(n) for n in range(places))
    erlang = blocked / (blocked + below)
    waited = seen.queued_s[seen.seen]
    assert (waited > 3 * step).mean() == pytest.approx(erlang, rel=0.12)
    mean = erlang * step * mean_steps / (places * (1 - load))
    assert waited.mean() == pytest.approx(mean, rel=0.15)


# -- laws of every run ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in FLEETS if "ranks" not in n])
def test_littles_law(name):
    """Sequences in service, summed over time, are times in service, summed over requests."""
    fleet = FLEETS[name]
    requests = table(600, rate=10.0, seed=8)
    seen = simulate(fleet, requests, SimulationOptions(warmup_share=0.0))
    if seen.preemptions.any() or fleet.setup == "static":
        return
    inside = np.nansum(seen.e2e_s - seen.queued_s)
    if fleet.setup == "disaggregated":
        inside -= np.nansum(seen.transfer_s)
    assert sum(p.running_s for p in seen.pools) == pytest.approx(inside, rel=1e-6)


@pytest.mark.parametrize("name", FLEETS)
@pytest.mark.parametrize("router", ["random", "power_of_two"])
def test_nothing_is_lost_and_every_block_comes_back(name, router):
    requests = table(400, rate=14.0, seed=9)
    seen = simulate(FLEETS[name], requests, SimulationOptions(router))
    assert seen.finished.all()
    assert (seen.ttft_s > 0).all()
    assert (seen.e2e_s >= seen.ttft_s - 1e-12).all()
    assert (seen.worst_gap_s <= seen.e2e_s - seen.ttft_s + 1e-9).all()
    for p in seen.pools:
        assert p.allocated_bytes == p.freed_bytes > 0
        assert 0 < p.utilization <= 1 + 1e-9


def test_same_seed_same_result():
    first, second, other = (simulate(FLEETS["chunked"], table(200), SimulationOptions(seed=s))
                            for s in (1, 1, 2))
    assert first.ttft_s.tolist() == second.ttft_s.tolist()
    assert first.ttft_s.tolist() != other.ttft_s.tolist()


def test_better_routers_wait_less():
    """Least loaded, then two choices, then random (Mitzenmacher 2001)."""
    fleet = one_pool(replicas=8, steps=affine_steps(0.0, 1e-4), max_sequences=1, token_budget=1)
    requests = jobs_of(poisson_arrivals(60.0, 50_000, 1),
                       np.random.default_rng(1).exponential(0.1, 50_000), 1e-4)
    random, two, least = (
        float(np.nanmean(simulate(fleet, requests, SimulationOptions(r)).queued_s))
        for r in ("random", "power_of_two", "least_loaded"))
    assert least < two < 0.5 * random


def test_too_long_for_any_replica_is_refused_and_counted():
    requests = request_table([0.0, 1.0, 2.0], [100, 5000, 100], [10, 10, 10])
    seen = simulate(one_pool(memory=memory(1e5)), requests, SimulationOptions(warmup_share=0.0))
    assert seen.finished.tolist() == [True, False, True]
    assert seen.document()["refused"] == 1


def test_prefix_hits_shorten_the_first_token():
    hot, cold = (request_table([0.0], [1000], [2], [hit]) for hit in (900, 0))
    fleet, options = one_pool(), SimulationOptions(warmup_share=0.0)
    assert simulate(fleet, hot, options).ttft_s[0] < 0.5 * simulate(fleet, cold, options).ttft_s[0]


def test_progress_counts_up_and_cancels():
    shares: list[float] = []
    fleet, requests = one_pool(), table(60_000, rate=10.0, prompt=50, output=2)
    simulate(fleet, requests, progress=lambda share: shares.append(share) is None)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    stopped = simulate(fleet, requests, progress=lambda _: False)
    assert stopped.cancelled
    assert 0 < stopped.finished.sum() < 60_000


def test_two_pools_report_both_first_tokens():
    seen = simulate(two_pools(), table(200, rate=5.0), SimulationOptions(warmup_share=0.0))
    assert (seen.prefill_done_s < seen.ttft_s).all()
    assert (seen.transfer_s > 0).all()
