"""Plans as terminal tables."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from planner.report import layout, option_rows, print_estimate, print_plan, summary_lines

POOL = {"gpu": "b200-sxm-180gb", "replicas": 12, "tensor_parallel": 8, "pipeline_parallel": 2,
        "expert_parallel": 1, "data_parallel": 1}
OPTION: dict[str, Any] = {
    "rank": 1, "setup": "disaggregated", "weights": "fp8", "kv": "bf16", "gpus": 1024,
    "pools": [{**POOL, "gpus": 192}, {**POOL, "gpus": 192, "gpu": "h100-sxm-80gb"}],
    "usd_per_hour": 12345.5,
    "ttft_ms": {"p90": 1234.5}, "tpot_ms": {"p90": None}, "limited_by": "throughput"}


def plan(*options: dict[str, Any], objective: str = "cost") -> dict[str, Any]:
    return {"options": list(options), "request": {"objective": objective},
            "infeasible": [{"reason": "memory"}, {"reason": "no_price"}, {"reason": "memory"}],
            "advice": [{"message": "Use more."}]}


def printed(document: dict[str, Any], width: int = 80) -> str:
    out = io.StringIO()
    print_plan(document, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_the_terminal(width: int) -> None:
    text = printed(plan(OPTION, {**OPTION, "rank": 2, "weights": "bf16"}), width)
    assert max(map(len, text.splitlines())) <= width
    assert "12x b200-sxm-180gb tp8 pp2" in text
    assert "not possible: memory (2 combinations)" in text
    assert "advice: Use more." in text


def test_no_solution_is_said() -> None:
    text = printed(plan())
    assert "Nothing meets the targets." in text
    assert "not possible: no_price (1 combinations)" in text


def test_the_recommended_option_is_decomposed() -> None:
    option = {**OPTION, "pools": [{**POOL, "role": "serve", "gpus": 192, "spare_replicas": 1,
                                   "concurrency_mean": 41.6}],
              "usd_per_month": 1000.0, "prices": [], "confidence": {
                  "level": "fitted", "gpus_low": 176, "gpus_high": 208, "tpot_error": 0.09}}
    lines = summary_lines(plan(option))
    assert lines[0].startswith("serve: 192 GPUs = 12x b200-sxm-180gb tp8 pp2, 1 of them spare; 42")
    assert "1,000 USD/month" in lines[1]
    assert lines[2] == "confidence: fitted, 176 to 208 GPUs if step times were off by 9%"


def test_layout_names_degrees_above_one() -> None:
    assert layout(POOL) == "12x b200-sxm-180gb tp8 pp2"
    assert layout({"gpu": "l4", "replicas": 1}) == "1x l4"


def test_rows_for_csv() -> None:
    header, row = option_rows(plan(OPTION))
    assert len(header) == len(row)
    assert row[header.index("ttft_p90_ms")] == 1234.5
    assert row[header.index("itl_p99_ms")] is None


def test_an_estimate_of_many_steps() -> None:
    out = io.StringIO()
    step = {"step_ms": 1.5, "bound": "memory"}
    print_estimate({"steps": [step, step], "memory": {"fits": False}}, Console(file=out))
    assert out.getvalue().count("step 1.5 ms, bound by memory") == 2
    assert "fits: False" in out.getvalue()
