"""Percentiles at an edge of the bins of a length: checks and figures read the same side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_helpers import plan

from planner.workload import SLACK, Slo, from_mean_p95


def edged(percentile: float, setup: str, ttft_ms: float, rate: float) -> Any:
    """A plan whose level falls on a bin's edge, where a few layouts hold the bin above."""
    slo = ({"e2e_ms": 10 * ttft_ms} if setup == "static" else
           {"ttft_ms": ttft_ms, "tpot_ms": 60})
    return plan(rate, {"mean": 1500, "p95": 5000}, {"mean": 60, "p95": 150}, setups=[setup],
                slo={**slo, "percentile": percentile}, limits={"max_gpus": 1000}, advice=False)


@pytest.mark.parametrize("setup", ["colocated", "chunked", "disaggregated", "static"])
@pytest.mark.parametrize("percentile", [50, 90, 95, 99, 99.5, 99.9])
def test_a_plan_that_holds_shows_it(percentile: float, setup: str) -> None:
    shown = 0
    for ttft_ms in (100, 150, 200, 300, 400, 500, 700, 1000, 1500):
        for rate in (0.0001, 0.5, 2.0):
            for option in edged(percentile, setup, ttft_ms, rate).options:
                assert option["warnings"] == [], (ttft_ms, rate)
                shown += 1
    assert shown


def test_a_layout_that_keeps_the_target_wins_over_one_that_misses_it() -> None:
    made = edged(99.9, "colocated", 1500, 2.0)
    assert made.sized[0].latencies.ttft_s["p99.9"] <= 1.5  # with two GPUs it was 1.681 s
    assert made.options[0]["gpus"] > 2


@pytest.mark.parametrize("percentile", [50.0, 90.0, 95.0, 99.0, 99.5, 99.9])
def test_a_level_at_an_edge_holds_by_the_bin_below_it(percentile: float) -> None:
    lengths, slo = from_mean_p95(1500, 5000), Slo("ttft", 1.0, percentile)
    reached = np.cumsum(lengths.weights)
    place = int(reached.searchsorted(slo.level))
    assert reached[place] - slo.level == pytest.approx(SLACK, rel=1e-3)
    assert np.isclose(reached[place], percentile / 100.0)
    assert lengths.tokens[place] < lengths.quantile(percentile / 100.0) < lengths.tokens[place + 1]
