"""Waiting, percentiles and the batch chain against textbook results.

Sources: Kleinrock, *Queueing Systems* vol. 1; Kingman 1961; Allen & Cunneen 1978; Erlang C;
Kelly 1979 on processor sharing.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from core_helpers import (
    admission_wait,
    share_within,
    share_within_either,
    tokens_within,
    wait_cdf,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.arrivals import Influx, burst_ahead, burst_behind, peakedness, split_arrival_cv2
from planner.loops.batches import ends_in_time
from planner.loops.chain import prompts_left
from planner.loops.prompts import Prompts, prefills
from planner.loops.two_pools import starts_placed
from planner.queueing import (
    Chain,
    full_percentiles,
    mg1_wait,
    no_wait,
    placed_percentiles,
    sum_percentiles,
)
from planner.stalls import Stalls, TokenTimes
from planner.workload import (
    QUARTERS,
    Lengths,
    constant,
    empirical,
    from_mean_p95,
    from_p50_p95,
    lognormal,
)

QUICK = settings(max_examples=40, derandomize=True, deadline=None)
ONE = np.array([1.0])


def exponential_points(count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """An exponential service of mean 1 as equal shares at their conditional means."""
    edges = -np.log1p(-np.arange(count) / count)
    below = (edges + 1) * np.exp(-edges)
    mass = below - np.append(below[1:], 0.0)
    return mass * count, np.full(count, 1.0 / count)


def erlang_c(servers: int, load: float) -> float:
    """Probability of waiting in M/M/c at an offered load."""
    top = load**servers / math.factorial(servers) * servers / (servers - load)
    return top / (sum(load**k / math.factorial(k) for k in range(servers)) + top)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.8, 0.95])
def test_mm1_mean_wait(rho):
    service, weights = exponential_points()
    assert mg1_wait(rho, service, weights).mean_s == pytest.approx(rho / (1 - rho), rel=2e-3)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.8, 0.95])
def test_md1_mean_wait_is_half_of_mm1(rho):
    assert mg1_wait(rho, ONE, ONE).mean_s == pytest.approx(rho / (2 * (1 - rho)))


@pytest.mark.parametrize("rho", [0.3, 0.7])
def test_mg1_second_moment(rho):
    """E[W^2] = 2 Wq^2 + lambda E[S^3] / (3 (1 - rho)); M/M/1: 2 rho / (1 - rho)^2."""
    service, weights = exponential_points()
    wait = mg1_wait(rho, service, weights)
    assert wait.second_s2 == pytest.approx(2 * rho / (1 - rho) ** 2, rel=0.01)


def test_two_point_service():
    service, weights = np.array([0.5, 3.0]), np.array([0.8, 0.2])
    mean, second = service @ weights, service**2 @ weights
    rate = 0.6 / mean
    assert mg1_wait(rate, service, weights).mean_s == pytest.approx(rate * second / (2 * 0.4))


@pytest.mark.parametrize("rho", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_gamma_tail_is_exact_for_mm1(rho, share):
    """P(W > t) = rho exp(-(1 - rho) t)."""
    service, weights = exponential_points()
    wait = mg1_wait(rho, service, weights)
    exact = max(0.0, math.log(rho / (1 - share)) / (1 - rho))
    found = sum_percentiles(wait, np.array([0.0]), ONE, (100 * share,))[0]
    assert found == pytest.approx(exact, rel=0.02, abs=0.02)


def test_unstable_server_never_answers():
    wait = mg1_wait(1.0, ONE, ONE)
    assert math.isinf(wait.mean_s)
    assert sum_percentiles(wait, ONE, ONE) == [math.inf] * 4
    assert share_within(1e9, wait, ONE, ONE) == 0.0


@QUICK
@given(st.floats(0.05, 0.95), st.floats(0, 30), st.floats(0.01, 30))
def test_bursts_only_lengthen_the_wait(rho, cv2, more):
    low, high = mg1_wait(rho, ONE, ONE, cv2), mg1_wait(rho, ONE, ONE, cv2 + more)
    assert low.mean_s < high.mean_s
    assert low.busy <= high.busy <= 1.0


@QUICK
@given(st.floats(0.05, 0.9), st.floats(1.01, 1.1))
def test_wait_rises_with_the_rate(rho, factor):
    before, after = mg1_wait(rho, ONE, ONE), mg1_wait(rho * factor, ONE, ONE)
    assert before.mean_s < after.mean_s
    assert share_within(3.0, before, ONE, ONE) >= share_within(3.0, after, ONE, ONE)


def test_kingman_interpolates():
    """ca^2 = 1 is M/G/1, ca^2 = 0 with constant service never waits."""
    assert mg1_wait(0.7, ONE, ONE, 0.0).mean_s == pytest.approx(0.0, abs=1e-12)
    both = [mg1_wait(0.7, ONE, ONE, c).mean_s for c in (1.0, 2.0, 3.0)]
    assert both[2] - both[1] == pytest.approx(both[1] - both[0])


def test_bursts_are_geometric_batches():
    """Mean, mean of squares and chance of the wait against Lindley's recursion."""
    rng, rate, cv2, count = np.random.default_rng(3), 0.6, 4.0, 400_000
    service, weights = np.array([0.5, 2.0]), np.array([2 / 3, 1 / 3])
    mean_batch = 1.0 + (cv2 - 1.0) / 2.0
    first = rng.random(count) < 1.0 / mean_batch
    gaps = np.where(first, rng.exponential(mean_batch / rate, count), 0.0)
    steps = rng.choice(service, count, p=weights)[:-1] - gaps[1:]
    sums = np.concatenate([[0.0], np.cumsum(steps)])
    waits = sums - np.minimum.accumulate(sums)
    formula = mg1_wait(rate, service, weights, cv2)
    assert waits.mean() == pytest.approx(float(formula.mean_s), rel=0.04)
    assert (waits**2).mean() == pytest.approx(float(formula.second_s2), rel=0.1)
    assert (waits > 1e-12).mean() == pytest.approx(float(formula.busy), abs=0.01)


@QUICK
@given(st.floats(0.05, 0.95), st.floats(0, 20), st.floats(0.0, 50.0))
def test_cdf_is_a_distribution(rho, cv2, at):
    wait = mg1_wait(rho, np.array([0.3, 2.0]), np.array([0.7, 0.3]) / 0.81, cv2)
    low, high = (float(wait_cdf(wait, np.array([t]))[0]) for t in (at, at + 1.0))
    assert 0.0 <= low <= high <= 1.0


def test_tiny_waits_do_not_underflow():
    """A wait of 1e-200 s is no wait; nothing divides by its square."""
    wait = admission_wait(np.array([1e-200]), np.array([1e-3])) + no_wait((1,))
    assert share_within(1.0, wait, np.array([[0.5]]), ONE)[0] == pytest.approx(1.0)


def test_sum_of_waits_adds_moments():
    a, b = mg1_wait(0.5, ONE, ONE), mg1_wait(0.3, ONE, ONE)
    both = a + b
    assert both.mean_s == pytest.approx(a.mean_s + b.mean_s)
    assert both.second_s2 - both.mean_s**2 == pytest.approx(
        a.second_s2 - a.mean_s**2 + b.second_s2 - b.mean_s**2)


def test_percentiles_of_no_wait_are_those_of_the_latency():
    latency, weights = np.array([1.0, 2.0, 5.0]), np.array([0.6, 0.35, 0.05])
    found = sum_percentiles(no_wait(), latency, weights, (50.0, 90.0, 99.0))
    assert found == pytest.approx([1.0, 2.0, 5.0], rel=1e-6)


@pytest.mark.parametrize(("cv", "replicas", "cv2"), [(1, 7, 1.0), (3, 1, 9.0), (3, 8, 2.0),
                                                     (0, 4, 0.75)])
def test_random_split(cv, replicas, cv2):
    """Whitt 1983: towards Poisson with more replicas."""
    assert split_arrival_cv2(cv, replicas) == pytest.approx(cv2)


def test_peakedness():
    assert peakedness(1.0) == 1.0
    assert peakedness(9.0) == 5.0
    assert peakedness(0.2) == 1.0


# -- how requests come to decode ----------------------------------------------------------------


def beside(cv2: float, load: float, overlap: float, ranks: int = 1, size: int = 1) -> Influx:
    """Requests beside prompts that all take the same time."""
    return Influx.beside(cv2, np.full(size, load), np.zeros(size), overlap, ranks)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_prompts_let_requests_through_by_busy_periods(load):
    """Constant prompts: a busy period serves a Borel number K; batches of K that stay for a
    constant time are E[K^2] / E[K] times as uneven as single ones."""
    k = np.arange(1, 4000)
    served = np.exp(-load * k + (k - 1) * np.log(load * k) - np.array(
        [math.lgamma(i + 1.0) for i in k]))
    assert served.sum() == pytest.approx(1.0, abs=1e-6)
    influx = beside(1.0, load, 1.0)
    assert influx.peak == pytest.approx(float(served @ k**2 / (served @ k)), rel=1e-3)


def test_influx_of_ranks_and_bursts():
    assert Influx.of(9.0) == Influx(5.0, 5.0)
    assert Influx.of(9.0, 4) == Influx(8.0, 2.0, 0.0, 4)
    plain = beside(1.0, 0.0, 0.5)
    assert (plain.peak, plain.full_peak) == (1.0, 1.0)
    assert beside(9.0, 0.0, 0.5).peak == Influx.of(9.0).peak
    ranks = beside(9.0, 0.0, 0.5, ranks=4)
    assert ranks.peak == 4 * peakedness(3.0)
    assert ranks.full_peak == peakedness(3.0)


def test_a_full_batch_is_one_server():
    """Past the cap the ratio is the rate over that of a replica that always runs the cap."""
    rate, tokens, prefill, step, cap = 2.0, 100.0, 0.2, 0.012, 8
    load = rate * prefill
    chain = Chain.of(rate, tokens, np.full(cap, step / (1.0 - load)),
                     beside(1.0, load, 1.0, size=cap))
    kept = prefill + tokens * step / cap
    left = load + load**2 / (2.0 * (1.0 - load))
    assert chain.ratio[-1] == pytest.approx(rate * kept)
    assert chain.waiting()[1][-1] == pytest.approx(kept * (1.0 / (1.0 - rate * kept) + left))


@pytest.mark.parametrize("load", [0.2, 0.6, 0.9])
def test_prompts_that_one_leaves_behind(load):
    """Exponential prompts: those of M/M/1, geometric with mean u / (1 - u)."""
    assert prompts_left(1.0, np.array([load**2]), np.array([load]))[0] == pytest.approx(
        load / (1.0 - load))


def full_by_events(rate: float, prefill_s: float, answer_s: float, cap: int, count: int
                   ) -> tuple[float, float]:
    """Prompts first, exponential, as long as a place is free; then answers end one by one, every
    ``answer_s / n`` [s] on average. Share of the requests that find a full batch or one that those
    before them fill, and their mean wait [s] until their prefill starts."""
    draw = np.random.default_rng(5)
    arrival_s = np.cumsum(draw.exponential(1.0 / rate, count))
    started, ends = np.zeros(count), np.zeros(count)
    now, first, running, done = 0.0, 0, 0, 0
    while first < count:
        if running < cap and arrival_s[first] <= now:
            started[first] = now
            now += draw.exponential(prefill_s)
            first, running = first + 1, running + 1
        elif running:
            gap = draw.exponential(answer_s / running)
            if running < cap and now + gap > arrival_s[first]:
                now = arrival_s[first]
            else:
                now, running = now + gap, running - 1
                ends[done], done = now, done + 1
        else:
            now = arrival_s[first]
    found = np.arange(count) - np.searchsorted(ends[:done], arrival_s)
    late = found >= cap
    return float(late.mean()), float((started - arrival_s)[late].mean())


@pytest.mark.parametrize("prefill_s", [0.02, 0.3, 0.5])
def test_a_batch_fills_up_with_those_that_wait_for_their_prefill(prefill_s):
    """At 90 % of what a full batch carries, against events one by one. The wait errs high: a prompt
    and an answer's end together vary less than one exponential time."""
    cap, answer_s = 24, 12.0
    kept = prefill_s + answer_s / cap
    rate = 0.9 / kept
    load = rate * prefill_s
    influx = Influx.beside(1.0, np.full(cap, load), np.full(cap, load**2), 0.5)
    chain = Chain.of(rate, 1.0, np.full(cap, answer_s / (1.0 - load)), influx)
    seen, wait_s = full_by_events(rate, prefill_s, answer_s, cap, 400_000)
    share, given_s = (float(x[-1]) for x in chain.waiting())
    assert share == pytest.approx(seen, rel=0.15)
    assert 0.95 * wait_s < given_s < 1.4 * wait_s


def test_prompts_of_one_step_that_share_a_pass_are_a_compound_sum():
    """What they add has the moments of a Poisson number of prompts, by drawing."""
    count, draw = 3.0, np.random.default_rng(3)
    powers = np.zeros((4, 4))
    powers[1:, 0] = 2.5, 8.5, 32.5  # half take 1 s, half 4 s
    rows = np.ones((4, 1))
    rows[2] = count
    together = Prompts(False, 1.0, rows, ONE, ONE, ONE, powers, 0.5, 0.0, 0.0, 1.0)
    (busy, first, second), latency = prefills(1.0, 1.0, ONE, 0.0, 1.0, together)
    many = draw.poisson(count, 100_000)
    total = many + 3.0 * draw.binomial(many, 0.5)
    assert busy[0] == pytest.approx((many > 0).mean(), abs=0.01)
    assert first[0] == pytest.approx(total.mean(), rel=0.02)
    assert second[0] == pytest.approx((total**2).mean(), rel=0.03)
    assert latency[0, 0] == 1.0 + 0.5 * count


# -- the chain --------------------------------------------------------------------------------


def test_constant_tpot_is_an_infinite_server():
    """M/M/inf: Poisson with mean lambda o tpot."""
    chain = Chain.of(2.0, 100.0, np.full(400, 0.05))
    law = chain.distribution(400)
    n = np.arange(1, 401)
    exact = np.exp(-10.0 + n * math.log(10.0) - np.array([math.lgamma(k + 1) for k in n]))
    assert np.allclose(law, exact, atol=1e-9)
    assert chain.mean_running(400) == pytest.approx(10.0)


def test_tpot_that_grows_with_n_is_processor_sharing():
    """M/M/1-PS: pi(n) = (1 - rho) rho^n, E[n] = rho / (1 - rho)."""
    n = np.arange(1.0, 2001.0)
    chain = Chain.of(0.7, 10.0, 0.1 * n)
    assert np.allclose(chain.distribution(2000)[:50], 0.3 * 0.7 ** n[:50], atol=1e-9)
    assert chain.mean_running(2000) == pytest.approx(0.7 / 0.3, rel=1e-6)


@pytest.mark.parametrize("servers", [1, 4, 20])
@pytest.mark.parametrize("rho", [0.3, 0.7, 0.95])
def test_cap_with_constant_tpot_is_erlang_c(servers, rho):
    """M/M/c: waiting probability and mean wait of those who wait."""
    load = rho * servers
    chain = Chain.of(load, 10.0, np.full(servers, 0.1))
    probability, mean = chain.waiting()
    assert probability[servers - 1] == pytest.approx(erlang_c(servers, load), rel=1e-9)
    assert mean[servers - 1] == pytest.approx(1.0 / (servers - load), rel=1e-9)
    assert chain.mean_running(servers) == pytest.approx(load, rel=1e-9)


@QUICK
@given(st.floats(0.1, 20), st.floats(0.001, 0.2), st.floats(0, 0.01), st.integers(2, 60))
def test_littles_law(rate, base, slope, cap):
    """Tokens per second generated = tokens per second asked, whenever it is stable."""
    tpot = base + slope * np.arange(1.0, cap + 1.0)
    chain = Chain.of(rate, 20.0, tpot)
    if rate * 20.0 * tpot[-1] / cap > 0.98:
        return
    served = float(chain.distribution(cap) @ (chain.n / tpot))
    assert served == pytest.approx(rate * 20.0, rel=1e-6)


@QUICK
@given(st.floats(0.1, 5), st.floats(0.001, 0.05), st.floats(0, 0.005))
def test_more_room_waits_less(rate, base, slope):
    tpot = base + slope * np.sqrt(np.arange(1.0, 65.0))
    chain = Chain.of(rate, 50.0, tpot)
    probability, _ = chain.waiting()
    stable = rate * 50.0 * tpot / np.arange(1.0, 65.0) < 1.0
    assert (np.diff(probability[stable]) <= 1e-9).all()
    assert ((probability >= 0) & (probability <= 1)).all()


def test_token_percentiles_are_ordered_and_within_the_column():
    tpot = 0.01 + 0.001 * np.arange(1.0, 101.0)
    chain = Chain.of(5.0, 100.0, tpot)
    found = [chain.token_percentile(tpot, 100, p) for p in (0.5, 0.9, 0.95, 0.99)]
    assert found == sorted(found)
    assert tpot[0] <= found[0] <= found[-1] <= tpot[-1]


def test_share_within_agrees_with_the_percentile():
    tpot = 0.01 + 0.001 * np.arange(1.0, 101.0)
    chain = Chain.of(5.0, 100.0, tpot)
    limit = chain.token_percentile(tpot, 100, 0.9)
    assert chain.token_share_within(limit)[99] >= 0.9
    assert chain.token_share_within(limit - 0.001)[99] < 0.9


def test_idle_chain_is_finite():
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        chain = Chain.of(1e-9, 1.0, np.full(2000, 1e-3))
        assert chain.mean_running(2000) == pytest.approx(1e-12, rel=1e-3)


def test_heavy_chain_is_finite():
    chain = Chain.of(1e6, 1e4, np.full(4000, 0.1))
    probability, mean = chain.waiting()
    assert np.isfinite(probability).all()
    assert (probability == 1.0).all()
    assert np.isinf(mean).all()


def test_bursty_arrivals_widen_the_chain():
    tpot = np.full(400, 0.05)
    calm, wild = (Chain.of(2.0, 100.0, tpot, Influx.of(cv2)) for cv2 in (1.0, 9.0))

    def variance(chain: Chain) -> float:
        law, n = chain.distribution(400), chain.n
        return float(law @ n**2 - (law @ n) ** 2)

    assert variance(wild) > 2.5 * variance(calm)
    assert wild.mean_running(400) == pytest.approx(10.0, rel=0.25)


# -- lengths ----------------------------------------------------------------------------------


@QUICK
@given(st.floats(2, 50_000), st.floats(1.0, 3.8))
def test_lognormal_keeps_its_mean_and_p95(mean, ratio):
    lengths = from_mean_p95(mean, mean * ratio)
    assert lengths.mean == pytest.approx(mean, rel=0.02, abs=0.7)
    assert lengths.weights.sum() == pytest.approx(1.0)
    assert (np.diff(lengths.tokens) >= 0).all()
    if mean > 100 and ratio < 3.5:
        assert lengths.quantile(0.95) == pytest.approx(mean * ratio, rel=0.08)


def test_median_and_p95():
    lengths = from_p50_p95(1000, 4000)
    assert lengths.quantile(0.5) == pytest.approx(1000, rel=0.06)
    assert lengths.quantile(0.95) == pytest.approx(4000, rel=0.06)


def test_running_answers_are_longer_than_the_mean():
    """Inspection paradox: E[o^2] / (2 E[o]) is more than half the mean."""
    lengths = lognormal(5.0, 1.0)
    assert isinstance(lengths, Lengths)
    assert lengths.moment(2) / (2 * lengths.mean) > 0.9 * lengths.mean


@QUICK
@given(first=st.tuples(st.floats(0.01, 0.9), st.floats(0.01, 2.0)),
       second=st.tuples(st.floats(1e-5, 0.9), st.floats(0.01, 2.0)), limit=st.floats(0.01, 5.0))
def test_a_full_batch_never_makes_it_more_likely_to_be_in_time(first, second, limit):
    """Where those who wait for a place waited shorter than others, they count as those."""
    wait = admission_wait(*(np.array([x]) for x in first))
    places, given_s = (np.array([x]) for x in second)
    latency = np.zeros((1, 1))
    share = float(share_within_either(limit, wait, places, given_s, latency, ONE)[0])
    assert share <= share_within(limit, wait, latency, ONE)[0]
    moments = [float(x[0]) for x in (wait.busy, wait.mean_s, wait.second_s2)]
    no_tokens, row = (0.0, 0.0), np.zeros(1)
    for off, held in ((-1e-9, True), (1e-9, False)):
        assert held == ends_in_time(limit, share + off, *no_tokens, row, np.zeros((3, 1, 1)), row,
                                    ONE, row, 0.0, *moments, *second, latency[0], ONE, 1e-6)


@QUICK
@given(first=st.tuples(st.floats(0.01, 0.9), st.floats(0.01, 2.0)), places=st.floats(1e-5, 0.9),
       given_s=st.floats(2.0, 9.0), level=st.floats(0.5, 0.999))
def test_a_full_batch_is_waited_for_apart(first, places, given_s, level):
    """The percentile of a figure is where the share in time reaches it."""
    wait = admission_wait(*(np.array([x]) for x in first))
    mean, [value] = full_percentiles(wait, places, given_s, np.zeros(1), ONE, (100 * level,))
    assert mean == pytest.approx((1.0 - places) * float(wait.mean_s[0]) + places * given_s)
    if value > 1e-9:
        late = np.array([places]), np.array([given_s])
        none = np.zeros((1, 1))
        assert share_within_either(1.02 * value, wait, *late, none, ONE)[0] >= level - 1e-6
        assert share_within_either(0.98 * value, wait, *late, none, ONE)[0] <= level + 1e-6


@QUICK
@given(first=st.tuples(st.floats(0.01, 0.9), st.floats(0.01, 2.0)),
       second=st.tuples(st.floats(1e-5, 0.9), st.floats(0.01, 2.0)), level=st.floats(0.5, 0.999))
def test_a_place_is_waited_for_apart(first, second, level):
    """The percentile of a figure is where its check turns, and hardly falls with a longer wait."""
    wait, place = (admission_wait(np.float64(p), np.float64(m)) for p, m in (first, second))
    latency = np.zeros(1)
    [value] = placed_percentiles(wait, place, latency, ONE, (100 * level,))
    moments = [float(x) for x in (wait.busy, wait.mean_s, wait.second_s2, place.busy)]
    if value > 1e-9:
        assert starts_placed(1.02 * value, level - 1e-6, *moments, *place.given, latency, ONE)
        assert not starts_placed(0.999 * value, level, *moments, *place.given, latency, ONE)
    assert value >= sum_percentiles(wait, latency, ONE, (100 * level,))[0] * 0.98
    longer = admission_wait(np.float64(second[0]), np.float64(1.5 * second[1]))
    assert placed_percentiles(wait, longer, latency, ONE, (100 * level,))[0] >= value * 0.99


# -- what prompts add to an answer ------------------------------------------------------------


def stalls(rate: float = 3.0, service: float = 0.05, cv2: float = 1.0, before: float = 0.0,
           **more: float) -> Stalls:
    return Stalls(rate, rate * service, service, service**2, 0.0, before, cv2,
                  burst_ahead(cv2), **more)


def delay_cycles(rate: float, service: float, work: float | np.ndarray, runs: int,
                 before: float | np.ndarray = 0.0) -> np.ndarray:
    """Time that ``work`` [s] takes when each arrival stops it for ``service`` [s], and what is
    ``before`` it [s]."""
    draw = np.random.default_rng(3)
    found = np.empty(runs)
    works = np.broadcast_to(np.asarray(work) + before, (runs,))
    for run in range(runs):
        left = total = works[run]
        while left > 0:
            come = draw.poisson(rate * left)
            left = come * service
            total += left
        found[run] = total
    return found


@pytest.mark.parametrize("gaps", [8, 64, 400])
def test_stalls_are_those_of_a_delay_cycle(gaps):
    """Mean, variance and p90 of an answer that is stopped by a Poisson stream, by simulation."""
    step = 0.01
    seen = delay_cycles(3.0, 0.05, gaps * step, 40_000) / gaps
    law, answers = stalls(), constant(gaps + 1).gaps
    steps = np.array([step])
    added = law.added(steps)
    mean = float(added.mean(answers)[0])
    assert step + mean == pytest.approx(seen.mean(), rel=0.02)
    none, shape, scale = (float(x) for x in TokenTimes.of(added, answers).times[:, 0, 0])
    square = (1 - none) * (shape + shape**2) * scale**2
    assert square - mean**2 == pytest.approx(seen.var(), rel=0.06)
    assert none == pytest.approx((seen < step * 1.0001).mean(), abs=0.01)
    chain = Chain.of(1e-9, 100.0, steps / 0.85, added=added, gaps=answers)
    assert chain.tpot_percentiles(1, (90.0,))[0] == pytest.approx(np.quantile(seen, 0.9),
                                                                 rel=0.12)


def test_answers_of_many_lengths_are_a_law_for_each_quarter():
    """With the prompts that came before the first token, by simulation: quarters are near where
    one gamma for all errs by far."""
    rate, service, before, step = 3.0, 0.1, 0.5, 0.01
    answers = from_mean_p95(30, 90)
    draw = np.random.default_rng(5)
    gaps = draw.choice(answers.shared_gaps[0], 40_000, p=answers.shared_gaps[1])
    seen = delay_cycles(rate, service, gaps * step, 40_000,
                        draw.poisson(rate * before, 40_000) * service) / gaps
    law = stalls(rate, service, before=before, least_s=service).added(np.array([step]))
    chain = Chain.of(1e-9, 30.0, np.array([step / (1.0 - rate * service)]), added=law,
                     gaps=answers.gaps)
    levels = (50.0, 75.0, 90.0, 95.0)
    wanted = np.quantile(seen, np.array(levels) / 100.0)
    assert chain.parted_percentiles(1, levels, answers.quarters) == pytest.approx(wanted, rel=0.16)
    assert max(abs(chain.tpot_percentiles(1, levels) / wanted - 1.0)) > 0.2
    assert chain.mean_tpot(1, answers.quarters) == pytest.approx(seen.mean(), rel=0.03)


def test_quarters_average_to_all_answers():
    for answers in (from_mean_p95(40, 120), constant(7), constant(1),
                    empirical([1.0, 5.0, 9.0], [0.5, 0.3, 0.2])):
        for name in ("mean", "inverse", "inverse_square"):
            each = getattr(answers.quarters, name)
            assert each.shape == (QUARTERS, 1)
            assert each.mean() == pytest.approx(getattr(answers.gaps, name))
        assert (np.diff(answers.quarters.mean[:, 0]) >= -1e-9).all()


def test_quarters_of_equal_answers_are_their_law():
    """But for the least that a stop holds."""
    answers, law = constant(30), stalls(least_s=0.0).added(np.array([0.01, 0.012]))
    chain = Chain.of(1e-9, 30.0, np.array([0.012, 0.014]), added=law, gaps=answers.gaps)
    assert chain.parted_percentiles(2, (50.0, 90.0, 99.0), answers.quarters) == pytest.approx(
        chain.tpot_percentiles(2, (50.0, 90.0, 99.0)), rel=1e-5)


def test_an_answer_that_meets_no_prompt_takes_its_steps():
    times = TokenTimes.of(stalls(1e-9).added(np.array([0.01, 0.02])), constant(100).gaps)
    assert tokens_within(times, np.array([0.0101, 0.0201])) == pytest.approx(
        np.array([[1.0, 0.0], [1.0, 1.0]]))


MOST_KNOWN = 0.82
"""Share below which two moments may get it wrong: near saturation a gamma of the same mean and more
variance puts more answers near 0 (of 60,000 random pairs none above 0.81)."""


@QUICK
@given(rate=st.floats(0.01, 15.0), more=st.floats(1.0, 1.3), tokens=st.integers(2, 500),
       cv2=st.floats(1.0, 9.0), limit=st.floats(0.0101, 0.2))
def test_more_prompts_never_make_a_token_more_likely_to_be_in_time(rate, more, tokens, cv2, limit):
    answers, step = constant(tokens).gaps, np.array([0.01])
    times = [TokenTimes.of(stalls(r, cv2=cv2, before=0.05).added(step), answers)
             for r in (rate, rate * more)]
    share = [float(tokens_within(law, np.array([limit]))[0, 0]) for law in times]
    assert share[1] <= max(share[0], MOST_KNOWN) + 1e-9


def test_a_budget_bounds_every_step():
    times = TokenTimes.of(stalls(10.0, most_s=0.02).added(np.array([0.01])), constant(4).gaps)
    assert tokens_within(times, np.array([0.03001]))[0, 0] == 1.0
    assert tokens_within(times, np.array([0.0299]))[0, 0] < 1.0


def test_where_every_step_is_full_every_token_takes_that_long():
    """Near saturation the mean is that of a full step; a wide law would put the rest near 0."""
    law = stalls(19.0, before=2.0, most_s=0.02).added(np.array([0.01]))
    assert law.mean(constant(20).gaps)[0] == pytest.approx(0.02)
    times = TokenTimes.of(law, constant(20).gaps)
    assert tokens_within(times, np.array([0.025]))[0, 0] < 0.01


@pytest.mark.parametrize(("per_pass", "behind"), [(1, 4.0), (3, 3.0), (1000, 0.8)])
def test_who_shares_a_pass_stops_nobody_in_it(per_pass, behind):
    assert burst_behind(9.0, per_pass) == pytest.approx(behind)


@pytest.mark.parametrize("lengths", [constant(300), from_mean_p95(200, 600),
                                     empirical([10, 20, 90], [0.5, 0.3, 0.2])])
def test_overlap_is_the_shorter_of_two_answers(lengths):
    draw = np.random.default_rng(2).choice(lengths.tokens, (2, 200_000), p=lengths.weights)
    assert lengths.overlap == pytest.approx(draw.min(axis=0).mean() / lengths.mean, rel=0.01)
    assert lengths.scaled(3.0).overlap == pytest.approx(lengths.overlap)


def test_gaps_of_one_token_do_not_count():
    gaps = empirical([1, 3, 5], [0.5, 0.25, 0.25]).gaps
    assert (gaps.mean, gaps.inverse, gaps.inverse_square) == pytest.approx((3.0, 0.375, 0.15625))
