"""Targets on whole requests and gaps under small batch limits: every small limit is asked."""

from __future__ import annotations

from typing import Any

import pytest
from core_helpers import plan

ONE = {"layouts": [{"tensor_parallel": 1}]}


def limited(most: int, slo: dict[str, float], setup: str = "colocated", cv: float = 1.0,
            **changes: Any) -> int:
    asked = {"rate": 25.0, "prompt": 500, "output": 100, **changes}
    budgets = {"token_budgets": [2048]} if setup == "chunked" else {}
    made = plan(asked["rate"], asked["prompt"], asked["output"], setups=[setup], slo=slo,
                limits={**ONE, **budgets, "max_sequences": most}, advice=False,
                workload={"arrival_cv": cv})
    return int(made.options[0]["gpus"])


@pytest.mark.parametrize("setup", ["colocated", "chunked"])
@pytest.mark.parametrize("most", [2, 4, 7, 12, 28])
def test_loose_targets_of_other_kinds_take_no_more_gpus(setup: str, most: int) -> None:
    usual = limited(most, {"ttft_ms": 500, "tpot_ms": 40}, setup)
    assert limited(most, {"ttft_ms": 500, "tpot_ms": 40, "itl_ms": 500}, setup) == usual
    assert limited(most, {"ttft_ms": 500, "tpot_ms": 40, "e2e_ms": 60_000}, setup) == usual


@pytest.mark.parametrize(("most", "slo", "request_"), [
    (3, {"percentile": 99, "itl_ms": 30, "ttft_ms": 500}, (25.587, 50, 100)),
    (2, {"percentile": 99, "itl_ms": 80, "ttft_ms": 500}, (86.328, 50, 100)),
    (4, {"percentile": 99, "e2e_ms": 1700, "itl_ms": 30}, (19.148, 1000, 100))])
def test_bursts_take_hardly_fewer_gpus(most: int, slo: dict[str, float],
                                   request_: tuple[float, int, int]) -> None:
    rate, prompt, output = request_
    gpus = [limited(most, slo, "chunked", cv, rate=rate, prompt=prompt, output=output)
            for cv in (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)]
    assert all(more >= 0.99 * max(gpus[:i + 1]) for i, more in enumerate(gpus))
