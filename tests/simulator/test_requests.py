"""Request tables and generators."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InvalidValue
from planner.simulator import (
    Failure,
    SimulationOptions,
    at_rate,
    diurnal_arrivals,
    gamma_arrivals,
    on_off_arrivals,
    random_failures,
    request_table,
    scaled_rate,
    statistics,
    synthetic,
    time_slice,
)
from planner.simulator.generate import draw_lengths, rates_of
from planner.workload import Workload, constant, empirical, from_mean_p95, lognormal

COUNT = 200_000
TRACE = Path(__file__).resolve().parents[2] / "examples" / "trace_conversation.csv"


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_gamma_gaps_have_the_rate_and_the_cv(cv):
    gaps = np.diff(gamma_arrivals(5.0, cv, COUNT, 1))
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.05 * max(cv, 0.1))


def test_bursts_keep_the_mean_rate_and_leave_pauses():
    arrivals = on_off_arrivals(5.0, 20.0, 60.0, COUNT, 1)
    assert (COUNT - 1) / (arrivals[-1] - arrivals[0]) == pytest.approx(5.0, rel=0.15)
    rates = rates_of(arrivals, 5.0)
    assert (rates == 0).mean() > 0.5
    assert rates.max() == pytest.approx(20.0, rel=0.5)


def test_bursts_and_pauses_have_exponential_lengths():
    """Gaps above 15 times the usual one of a burst are pauses (all but 1.5 % of these)."""
    on_s, off_s = 50.0, 200.0
    arrivals = on_off_arrivals(1.0, on_s, off_s, COUNT, 1)
    pauses = np.diff(arrivals)
    pauses = pauses[pauses > 3.0]
    assert len(pauses) == pytest.approx(arrivals[-1] / (on_s + off_s), rel=0.1)
    assert pauses.mean() == pytest.approx(off_s, rel=0.1)
    assert pauses.std() == pytest.approx(off_s, rel=0.15)
    bursts = np.diff(arrivals[np.flatnonzero(np.diff(arrivals) > 3.0)]) - pauses[:-1]
    assert bursts.mean() == pytest.approx(on_s, rel=0.1)
    assert bursts.std() == pytest.approx(on_s, rel=0.15)


@pytest.mark.parametrize("phase_s", [1e-9, 1e-4, 1e-2])
def test_short_bursts_are_poisson_arrivals_and_take_no_memory(phase_s):
    """Bursts far shorter than a gap are a Poisson process again (a telegraph's fast limit)."""
    tracemalloc.start()
    arrivals = on_off_arrivals(5.0, phase_s, phase_s, COUNT, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    gaps = np.diff(arrivals)
    assert gaps.mean() == pytest.approx(0.2, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.06)
    assert peak < 20 * arrivals.nbytes


def test_days_of_any_length_take_the_memory_of_their_requests():
    """A day of a microsecond is Poisson arrivals at the mean rate; one of 300 years is a part."""
    for day_s in (1e-6, 1e10):
        tracemalloc.start()
        arrivals = diurnal_arrivals(5.0, [1.0, 0.0, 3.0], COUNT, 1, day_s)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20 * arrivals.nbytes
        assert (np.diff(arrivals) >= 0).all()


def test_days_follow_their_profile():
    profile = [0.2] * 8 + [2.0] * 8 + [1.0] * 8
    rate = COUNT / (10 * 86_400)
    arrivals = diurnal_arrivals(rate, profile, COUNT, 1)
    hours = np.bincount(((arrivals % 86_400) // 3600).astype(int), minlength=24)
    assert hours[8:16].mean() / hours[:8].mean() == pytest.approx(10.0, rel=0.1)
    assert (COUNT - 1) / (arrivals[-1] - arrivals[0]) == pytest.approx(rate, rel=0.05)


@settings(max_examples=10)
@given(st.floats(5.0, 9.0), st.floats(0.05, 1.4), st.floats(0.5, 2.0))
def test_lognormals_are_drawn_from_their_law(mu, sigma, factor):
    drawn = np.log(draw_lengths(lognormal(mu, sigma).scaled(factor), COUNT,
                                np.random.default_rng(3)))
    assert drawn.mean() == pytest.approx(mu + np.log(factor), abs=0.05 * sigma + 0.01)
    assert drawn.std() == pytest.approx(sigma, rel=0.05, abs=0.01)


def test_drawn_lengths_follow_their_distribution():
    rng = np.random.default_rng(1)
    lengths = draw_lengths(from_mean_p95(1000, 3000), COUNT, rng)
    assert lengths.mean() == pytest.approx(1000, rel=0.02)
    assert np.percentile(lengths, 95) == pytest.approx(3000, rel=0.03)
    assert set(draw_lengths(constant(7), 50, rng).tolist()) == {7}
    shares = draw_lengths(empirical([10, 90], [1, 3]), COUNT, rng)
    assert (shares == 90).mean() == pytest.approx(0.75, rel=0.02)


def test_streams_are_apart_and_seeded():
    base = Workload(2.0, from_mean_p95(100, 300), constant(10))
    one, again = synthetic(base, 100, 1), synthetic(base, 100, 1)
    assert one.prompt_tokens.tolist() == again.prompt_tokens.tolist()
    bursty = synthetic(Workload(2.0, base.prompt, base.output, arrival_cv=3.0), 100, 1)
    assert bursty.prompt_tokens.tolist() == one.prompt_tokens.tolist()
    assert bursty.arrival_s.tolist() != one.arrival_s.tolist()


def test_scaling_and_slicing():
    requests = request_table([10.0, 12.0, 16.0, 20.0], [5, 6, 7, 8], [1, 2, 3, 4], [0, 9, 0, 0])
    assert requests.cached_tokens.tolist() == [0, 5, 0, 0]
    assert scaled_rate(requests, 2.0).arrival_s.tolist() == [10.0, 11.0, 13.0, 15.0]
    assert at_rate(requests, 3.0).requests_per_s == pytest.approx(3.0)
    assert time_slice(requests, 2.0, 6.1).prompt_tokens.tolist() == [6, 7]
    with pytest.raises(InvalidValue, match="the last one arrives at 10 s"):
        time_slice(requests, 11.0)
    found = statistics(requests)
    assert (found["requests"], found["span_s"], found["prompt_tokens"]["max"]) == (4, 10.0, 8.0)


@pytest.mark.parametrize(("columns", "message"), [
    (([], [], []), "at least one"), (([0.0, -1.0], [1, 1], [1, 1]), "row 2: .* back in time"),
    (([0.0, np.nan], [1, 1], [1, 1]), "row 2: arrival_s must be finite"),
    (([0.0], [0], [1]), "row 1: prompt_tokens must be from 1"),
    (([0.0, 1.0], [1, 1], [1, -4]), "row 2: output_tokens"),
    (([0.0, 1.0], [1], [1, 1]), "differ in length")])
def test_bad_tables_name_the_row(columns, message):
    with pytest.raises(InvalidValue, match=message):
        request_table(*columns)


def test_failures_and_options_are_checked():
    drawn = random_failures([3, 2], 1000.0, 200.0, 20.0, 1)
    assert drawn == tuple(sorted(drawn, key=lambda f: f.at_s))
    SimulationOptions(failures=drawn).check([3, 2])
    for options, pointer in ((SimulationOptions("best"), "/router"),
                             (SimulationOptions(warmup_share=1.0), "/warmup_share"),
                             (SimulationOptions(failures=(Failure(1, 1, 0, 9),)),
                              "/failures/0/replica")):
        with pytest.raises(InvalidValue) as caught:
            options.check([3])
        assert caught.value.pointer == pointer


def test_the_shipped_trace_has_the_statistics_that_it_states():
    """Azure 2023 conversation hour: 5.53 requests/s, CV 1.09, 1,155 and 211 tokens on average."""
    rows = np.loadtxt(TRACE, delimiter=",", skiprows=1)
    found = statistics(request_table(rows[:, 0], rows[:, 1], rows[:, 2]))
    assert found["requests_per_s"] == pytest.approx(5.53, rel=0.02)
    assert found["arrival_cv"] == pytest.approx(1.09, rel=0.1)
    assert found["prompt_tokens"]["mean"] == pytest.approx(1155, rel=0.03)
    assert found["output_tokens"]["mean"] == pytest.approx(211, rel=0.03)
    assert found["prompt_tokens"]["p95"] == pytest.approx(4083, rel=0.01)


def test_statistics_of_a_trace_do_not_grow_with_its_span():
    long = request_table([0.0, 30.0, 1e15], [10, 10, 10], [5, 5, 5])
    assert statistics(long)["peak_over_mean"] == pytest.approx(1e15 / 60.0, rel=1e-9)
    even = request_table(np.arange(0.0, 600.0, 15.0), np.full(40, 10), np.full(40, 5))
    assert statistics(even)["peak_over_mean"] == 1.0
