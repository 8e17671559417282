"""Quantiles of lengths: of a law, not of its bins; of a list on the safe side of its jumps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from planner.budget.mixing import mixed_lengths
from planner.workload import (
    LEAST_PART,
    Slo,
    Workload,
    constant,
    empirical,
    from_mean_p95,
    from_p50_p95,
    lognormal,
)

LEVELS = (0.01, 0.3, 0.5, 0.85, 0.9, 0.95, 0.99, 0.999)


@pytest.mark.parametrize(("mean", "p95"), [(350, 1300), (350, 900), (200, 200.5), (1000, 3800)])
def test_quantiles_of_a_lognormal_are_those_of_scipy(mean: float, p95: float) -> None:
    lengths = from_mean_p95(mean, p95)
    assert lengths.log_law is not None
    mu, sigma = lengths.log_law
    law = stats.lognorm(sigma, scale=np.exp(mu))
    assert law.mean() == pytest.approx(mean)
    assert law.ppf(0.95) == pytest.approx(p95)
    for level in LEVELS:
        assert lengths.quantile(level) == pytest.approx(max(law.ppf(level), 1.0), rel=1e-12)
    for tokens in (100.0, 350.0, 2000.0):
        assert lengths.share_above(tokens) == pytest.approx(law.sf(tokens), rel=1e-9)


@pytest.mark.parametrize(("p95", "known"), [
    (1300, {0.9: 793, 0.99: 3281}), (900, {0.5: 266, 0.9: 688})])
def test_quantiles_are_known_figures(p95: float, known: dict[float, float]) -> None:
    for level, tokens in known.items():
        assert from_mean_p95(350, p95).quantile(level) == pytest.approx(tokens, rel=0.002)


def test_a_quantile_is_not_below_one_token() -> None:
    assert lognormal(0.0, 1.0).quantile(0.1) == 1.0
    assert lognormal(0.0, 1.0).scaled(0.5).quantile(0.6) == 1.0


def test_a_scaled_law_has_scaled_quantiles() -> None:
    lengths = from_p50_p95(400, 1500)
    for level in LEVELS:
        assert lengths.scaled(1.7).quantile(level) == pytest.approx(1.7 * lengths.quantile(level))


def test_a_list_on_its_jump_is_read_above_it() -> None:
    lengths = empirical([100, 600], [0.5, 0.5])
    assert [lengths.quantile(q) for q in (0.49, 0.5, 0.51, 0.999)] == [100, 600, 600, 600]
    thirds = empirical([10, 20, 30], [1, 1, 1])
    assert thirds.quantile(1 / 3) == 20
    assert thirds.quantile(2 / 3) == 30
    assert constant(70).quantile(0.5) == 70
    assert lengths.share_above(100) == 0.5
    assert lengths.share_above(99) == 1.0


def test_a_jump_is_met_where_shares_are_rounded() -> None:
    thirds = empirical([10, 20, 30], [0.333334, 0.333333, 0.333333])
    assert thirds.quantile(1 / 3) == 20


def test_quantiles_of_a_mixture_are_those_of_its_laws() -> None:
    parts, shares = [from_mean_p95(350, 1300), from_mean_p95(2000, 5000)], [3.0, 1.0]
    mixed = mixed_lengths(parts, shares)
    drawn = np.concatenate([np.exp(np.random.default_rng(i).normal(*part.log_law, n))
                            for i, (part, n) in enumerate(zip(
                                parts, (1_500_000, 500_000), strict=True))])
    for level in (0.5, 0.9, 0.99):
        assert mixed.quantile(level) == pytest.approx(np.quantile(drawn, level), rel=0.01)
        assert mixed.scaled(2.0).quantile(level) == pytest.approx(2.0 * mixed.quantile(level))
    assert mixed.share_above(1000) == pytest.approx((drawn > 1000).mean(), rel=0.01)


def test_a_mixture_of_constants_is_read_above_its_jump() -> None:
    mixed = mixed_lengths([constant(100), constant(300)], [0.5, 0.5])
    assert [mixed.quantile(q) for q in (0.4, 0.5, 0.6)] == pytest.approx([100, 300, 300])


def test_a_level_asks_more_of_a_lump() -> None:
    lengths = empirical([50, 200, 900], [0.6, 0.3, 0.1])
    assert lengths.share_of_lump(0.5) == pytest.approx(5 / 6)
    assert lengths.share_of_lump(0.5998) == 0.99
    assert lengths.share_of_lump(0.6) == 0.6  # of those of 200, nobody is needed
    assert lengths.share_of_lump(0.95) == 0.95  # 900 is no lump
    assert constant(50).share_of_lump(0.9) == pytest.approx(0.9)


@pytest.mark.parametrize("output", [from_mean_p95(350, 1300), from_mean_p95(350, 400),
                                    constant(300), empirical([50, 900], [0.7, 0.3])])
def test_parts_of_a_percentile_rise_with_it(output: object) -> None:
    workload = Workload(1.0, constant(1000), output)  # type: ignore[arg-type]
    for part in (workload.first_percentile, workload.token_percentile):
        found = [part(p) for p in (10.0, 50.0, 60.0, 65.0)]
        assert min(found) >= LEAST_PART
    tokens = [workload.token_percentile(p) for p in (75.0, 90.0, 95.0, 99.0, 99.9)]
    assert tokens == sorted(tokens)


def test_spread_lengths_leave_less_to_the_time_of_a_token() -> None:
    workloads = [Workload(1.0, constant(1000), x)
                 for x in (constant(350), from_mean_p95(350, 420), from_mean_p95(350, 1300))]
    found = [w.token_percentile(99.0) for w in workloads]
    assert found[0] == pytest.approx(99.0)
    assert found[0] > found[1] > 90.0 > found[2] > LEAST_PART
    assert all(w.first_percentile(99.0) == pytest.approx(99.0) for w in workloads)


def test_answers_of_one_token_are_their_first_token() -> None:
    workload = Workload(1.0, constant(1000), constant(1))
    assert workload.first_percentile(50.0) == 50.0
    assert workload.first_level(Slo("e2e", 1.0, 50.0)) < 0.5
