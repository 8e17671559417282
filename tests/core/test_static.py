"""Request-level batching as a queue with bulk service, against M/G/1 and a plain simulation.

Source: Bailey 1954, *On queueing processes with bulk service*, for the queue; Pollaczek-Khinchine.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.setups.static import Batches, Cycles, three_points

QUICK = settings(max_examples=40, derandomize=True, deadline=None)


def cycles(count: int, first: float = 0.1, step: float = 0.01,
           longest: tuple[float, ...] = (100.0,), shares: tuple[float, ...] = (1.0,)) -> Cycles:
    """A prefill of ``first`` [s] and steps whose time grows by a hundredth a request."""
    b = np.arange(1.0, count + 1.0)
    steps = step * (1.0 + b / 100.0)
    prefill = np.full(count, first)
    below = np.cumsum(shares)[None, :] ** b[:, None]
    lengths = prefill[:, None] + np.array(longest) * steps[:, None]
    return Cycles(prefill, np.zeros(count), np.zeros(count), steps, lengths,
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


@pytest.mark.parametrize("skew", [0.0, 0.3, 2.0, 6.0])
def test_three_points_share_five_moments_of_a_gamma(skew):
    """Standardized: 0, 1, s, 3 + 1.5 s^2, 10 s + 3 s^3 of skewness s."""
    z, shares = three_points(np.array([skew]))
    assert (shares > 0.0).all()
    wanted = [1.0, 0.0, 1.0, skew, 3.0 + 1.5 * skew**2, 10.0 * skew + 3.0 * skew**3]
    for power, moment in enumerate(wanted):
        assert float((shares * z**power).sum()) == pytest.approx(moment, rel=0.01, abs=0.25)


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
