"""``python -m planner.warm_up``: compile what plans and their workbooks need, so that the first
one does not wait.

The machine code is kept on disk, beside the modules or in the user's cache, for later processes.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from planner import loops
from planner.api.plan_schema import parse_plan
from planner.api.plan_service import make
from planner.catalog.shipped import shipped_catalog
from planner.workbook import write_plan

REQUEST: dict[str, Any] = {
    "model": "llama-3.1-8b", "gpus": ["h100-sxm-80gb"], "advice": False,
    "setups": ["static", "colocated", "chunked", "disaggregated"],
    "workload": {"requests_per_second": 20, "prompt_tokens": 1000, "output_tokens": 200},
}
CHANGES: tuple[dict[str, Any], ...] = (
    {"slo": {"ttft_ms": 1000, "tpot_ms": 30}},
    {"slo": {"ttft_ms": 10_000, "itl_ms": 500}, "limits": {"max_sequences": 4},
     "workload": {**REQUEST["workload"], "arrival_cv": 2}},
    {"slo": {"tpot_ms": 30, "e2e_ms": 9000}})
"""Plans that, with a workbook, ask every compiled loop."""


def warm_up() -> None:
    """Plan :data:`REQUEST` with each of :data:`CHANGES` from the shipped catalog, and write the
    workbook of the last."""
    catalog = shipped_catalog()
    for change in CHANGES:
        plan = make(parse_plan({**REQUEST, **change}), catalog)
    write_plan(plan.document, plan.points, plan.snapshot)


def uncompiled() -> list[str]:
    """Loops that Python calls and that no call has compiled in this process."""
    modules = (import_module(f"{loops.__name__}.{m.name}") for m in iter_modules(loops.__path__))
    return sorted({name for module in modules for name, loop in vars(module).items()
                   if getattr(loop, "targetoptions", {}).get("nopython") and not loop.signatures
                   and not loop.targetoptions.get("no_cpython_wrapper")})


if __name__ == "__main__":
    warm_up()
