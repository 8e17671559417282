"""Request-level batching as a queue with bulk service, against M/G/1 and a plain simulation.

Source: Bailey 1954, *On queueing processes with bulk service*, for the queue; Pollaczek-Khinchine.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from planner.catalog.shipped import shipped_catalog
from planner.loops.bulk import fill_at_most, stationary
from planner.loops.sums import points_of, points_of_sum
from planner.requests import Layout, Limits
from planner.roofline import Deployment
from planner.setups.base import build_table
from planner.setups.static import Batches, Cycles, Static, longest_shares
from planner.simulator import SimulatedFleet, pool_of, simulate, synthetic
from planner.workload import (
    Slo,
    Workload,
    constant,
    from_mean_p95,
    with_tail,
)

QUICK = settings(max_examples=40, derandomize=True, deadline=None)


def cycles(count: int, first: float = 0.1, step: float = 0.01,
           longest: tuple[float, ...] = (100.0,), shares: tuple[float, ...] = (1.0,)) -> Cycles:
    """A prefill of ``first`` [s] and steps whose time grows by a hundredth a request."""
    b = np.arange(1.0, count + 1.0)
    steps = step * (1.0 + b / 100.0)
    prefill = np.full(count, first)
    below = np.cumsum(shares)[None, :] ** b[:, None]
    lengths = prefill[:, None] + np.array(longest) * steps[:, None]
    return Cycles(prefill, np.zeros(1), np.ones(1), steps, lengths,
                  np.diff(below, prepend=0.0, axis=1), np.array([first]), np.array([1.0]), 0.0)


def played(table: Cycles, rate: float, cap: int, count: int = 200_000
           ) -> tuple[np.ndarray, np.ndarray]:
    """TTFT [s] and batch of each request of a Poisson stream."""
    draw = np.random.default_rng(5)
    arrivals = np.cumsum(draw.exponential(1.0 / rate, count))
    ttft, batch = np.empty(count), np.empty(count)
    done, clock = 0, 0.0
    while done < count:
        clock = max(clock, arrivals[done])
        ready = min(int(np.searchsorted(arrivals, clock, side="right")), done + cap)
        b = ready - done
        length = draw.choice(table.lengths_s[b - 1], p=table.shares[b - 1])
        ttft[done:ready] = clock + table.prefill_s[b - 1] - arrivals[done:ready]
        batch[done:ready] = b
        clock, done = clock + length, ready
    return ttft, batch


CASES = [
    (0.05, 64, (100.0,), (1.0,)),
    (0.8, 64, (100.0,), (1.0,)),
    (6.0, 64, (100.0,), (1.0,)),
    (0.1, 32, (20.0, 100.0, 400.0), (0.6, 0.3, 0.1)),
    (2.0, 32, (20.0, 100.0, 400.0), (0.6, 0.3, 0.1)),
    (4.5, 16, (50.0, 200.0), (0.7, 0.3)),
]


@pytest.mark.parametrize(("rate", "cap", "longest", "shares"), CASES)
def test_first_tokens_and_batches_are_those_of_the_queue(rate, cap, longest, shares):
    table = cycles(cap, longest=longest, shares=shares)
    ttft, batch = played(table, rate, cap)
    law = Batches.of(table, rate, 1.0, cap)
    assert law.mean_ttft_s == pytest.approx(ttft.mean(), rel=0.06)
    levels = (0.5, 0.9, 0.99)
    assert law.ttft_percentiles(list(levels)) == pytest.approx(np.quantile(ttft, levels), rel=0.12,
                                                              abs=0.02)
    steps = table.step_s[batch.astype(int) - 1]
    assert law.tpot_percentiles(list(levels)) == pytest.approx(np.quantile(steps, levels),
                                                              rel=0.06)


def test_points_of_few_values_are_these():
    found = points_of(np.array([3.0, 1.0]), np.array([0.25, 0.75]))
    assert found[0] @ found[1] == pytest.approx(1.5)
    assert dict(zip(*found[:, found[1] > 0.0], strict=True)) == {3.0: 0.25, 1.0: 0.75}


@pytest.mark.parametrize("spread", [0.3, 1.0, 1.5])
def test_points_of_a_sum_are_those_of_drawn_ones(spread):
    """Eight log-normal times, by their halves: mean, tail and E[max(X - x, 0)]."""
    draw = np.random.default_rng(1)
    values = np.quantile(draw.lognormal(0.0, spread, 1_000_000), np.linspace(0.0005, 0.9995, 1000))
    one = points_of(values, np.full(1000, 1e-3))
    two = points_of_sum(one, one)
    eight = points_of_sum(points_of_sum(two, two), points_of_sum(two, two))
    seen = draw.choice(values, (200_000, 8)).sum(axis=1)
    assert eight[0] @ eight[1] == pytest.approx(seen.mean(), rel=0.01)
    assert eight[1].sum() == pytest.approx(1.0)
    for share in (0.5, 0.9, 0.99):
        level = np.quantile(seen, share)
        beyond = np.maximum(eight[0] - level, 0.0) @ eight[1]
        assert beyond == pytest.approx(np.maximum(seen - level, 0.0).mean(), rel=0.15,
                                       abs=0.01 * seen.mean())


def test_one_long_prompt_holds_up_its_batch():
    """One prompt in a hundred takes 2 s, the others less, in batches of up to four: as played."""
    own_s, shares = np.array([-0.02, 1.98]), np.array([0.99, 0.01])
    table = replace(cycles(4, longest=(10.0,)), own_s=own_s, own_shares=shares,
                    alone_s=0.1 + own_s, weights=shares)
    draw, rate, count = np.random.default_rng(5), 1.0, 200_000
    arrivals, ttft = np.cumsum(draw.exponential(1.0 / rate, count)), np.empty(count)
    done, clock = 0, 0.0
    while done < count:
        clock = max(clock, arrivals[done])
        ready = min(int(np.searchsorted(arrivals, clock, side="right")), done + 4)
        more = draw.choice(table.own_s, ready - done, p=table.own_shares).sum()
        ttft[done:ready] = clock + table.prefill_s[ready - done - 1] + more - arrivals[done:ready]
        clock, done = clock + table.lengths_s[ready - done - 1, 0] + more, ready
    law = Batches.of(table, rate, 1.0, 4)
    assert law.mean_ttft_s == pytest.approx(ttft.mean(), rel=0.15)
    assert law.ttft_percentiles([0.5, 0.9, 0.97]) == pytest.approx(
        np.quantile(ttft, [0.5, 0.9, 0.97]), rel=0.2)


@pytest.mark.parametrize("load", [0.1, 0.4, 0.8])
def test_batches_of_one_are_a_queue_of_one_server(load):
    """M/D/1: mean wait rho S / (2 (1 - rho))."""
    table = cycles(1)
    service = float(table.lengths_s[0, 0])
    law = Batches.of(table, load / service, 1.0, 1)
    assert law.mean_ttft_s - 0.1 == pytest.approx(load * service / (2 * (1 - load)), rel=0.08)


def test_an_idle_rank_answers_at_once():
    law = Batches.of(cycles(8), 1e-9, 1.0, 8)
    assert law.idle == pytest.approx(1.0)
    assert law.ttft_percentiles([0.5, 0.99]) == pytest.approx([0.1, 0.1])


@QUICK
@given(rate=st.floats(0.01, 20.0), more=st.floats(1.01, 1.5), cv2=st.floats(1.0, 9.0),
       limit=st.floats(0.11, 3.0))
def test_more_requests_are_never_answered_sooner(rate, more, cv2, limit):
    table = cycles(48, longest=(20.0, 100.0, 300.0), shares=(0.5, 0.4, 0.1))
    share = [Batches.of(table, r, cv2, 48) for r in (rate, rate * more)]
    times = [float(law.ttft_within(np.array([limit]))[0]) for law in share]
    assert times[1] <= times[0] + 1e-3
    assert share[1].tpot_within(0.0105) <= share[0].tpot_within(0.0105) + 1e-3


@QUICK
@given(rate=st.floats(0.001, 12.0), cv2=st.floats(0.5, 9.0))
def test_shares_are_shares(rate, cv2):
    law = Batches.of(cycles(24), rate, cv2, 24)
    assert law.idle + law.met.sum() == pytest.approx(1.0)
    assert law.batches.sum() == pytest.approx(1.0)
    assert law.ttft_within(np.array([1e6]))[0] == pytest.approx(1.0)


@pytest.mark.parametrize("count", [8, 64, 512])
def test_the_longest_of_many_log_normal_answers(count):
    """E[longest of b] = the integral of 1 - F(x)^b, by SciPy."""
    answers = from_mean_p95(300.0, 1000.0)
    assert answers.log_law is not None
    mu, sigma = answers.log_law
    law = stats.lognorm(sigma, scale=math.exp(mu))
    wanted = integrate.quad(lambda x: 1.0 - law.cdf(x) ** count, 0.0, 60_000.0, limit=500)[0]
    tailed = with_tail(answers)
    found = float(longest_shares(tailed, count)[-1] @ tailed.tokens)
    assert found == pytest.approx(wanted, rel=0.02)
    assert tailed.mean == pytest.approx(answers.mean)


@pytest.mark.parametrize(("mean", "variance"), [(0.5, 0.6), (3.0, 3.0), (12.0, 90.0), (29.0, 31.0)])
def test_arrivals_in_a_cycle_are_negative_binomial(mean, variance):
    counts = np.array([-1.0, 0.0, 1.0, 2.5, 7.0, 30.0, 200.0])
    found = np.empty(len(counts))
    fill_at_most.py_func(counts, mean, variance, found)
    over = max(variance, mean * (1.0 + 1e-6))
    law = stats.nbinom(mean**2 / (over - mean), mean / over)
    assert found == pytest.approx(law.cdf(np.floor(counts)), abs=1e-9)


def test_shares_of_a_chain_are_its_own():
    """Shares p with p = p P, of a random chain in which every state leads to the first."""
    moves = np.random.default_rng(4).random((9, 9))
    moves /= moves.sum(axis=1)[:, None]
    share = stationary.py_func(moves.copy())
    assert share.sum() == pytest.approx(1.0)
    assert share @ moves == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("mean", "p95"), [(200.0, 200.0), (300.0, 450.0), (250.0, 700.0)])
def test_padded_batches_take_as_long_as_simulated_ones(mean, p95):
    """The context of a padded batch grows to its longest answer, far beyond the mean one."""
    workload = Workload(6.0, constant(1000.0), from_mean_p95(mean, p95),
                        slos=(Slo("ttft", 20.0),))
    catalog = shipped_catalog()
    gpu = catalog.gpu("h100-sxm-80gb")
    deployment = Deployment(catalog.llm("llama-3.1-8b"), gpu, "bf16", "bf16", Layout(),
                            catalog.engine("vllm", gpu, "bf16"))
    source = Static(build_table(deployment, workload, Limits()))
    rate = 0.7 * 96 / float(source.cycle_s[95])
    seen = simulate(SimulatedFleet("static", (pool_of(deployment, "serve", "static", 1,
                                                      max_sequences=96),)),
                    synthetic(replace(workload, requests_per_s=rate), 60_000, seed=3))
    law = source.latencies(rate, 1.0, 96)
    for level, close in (("mean", 0.08), ("p50", 0.08), ("p90", 0.1)):
        assert law.ttft_s[level] == pytest.approx(seen.figure_s("ttft")[level], rel=close)
        assert law.tpot_s[level] == pytest.approx(seen.figure_s("tpot")[level], rel=0.05)
