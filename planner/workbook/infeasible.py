"""The Infeasible sheet: what was tried and cannot work, and by how much."""

from __future__ import annotations

from planner.workbook import words
from planner.workbook.layout import Column, Page, data_sheet, key, set_up
from planner.workbook.plan import Plan

NAME = "Infeasible"


def write(page: Page, plan: Plan) -> None:
    """Fill the sheet: one row a combination."""
    set_up(page, plan.name, NAME)
    data_sheet(page, _columns(plan), plan.infeasible,
               "Every combination that was tried can serve the workload.", frozen=2, engine=True)


def _columns(plan: Plan) -> list[Column]:
    return [
        Column("Set-up", lambda m: words.setup(m.get("setup")), 16, "text"),
        Column("GPU", lambda m: plan.gpu_name(m.get("gpu")), 22, "text"),
        Column("Weights", key("weights"), 9, "text"),
        Column("Tensor parallel", key("tensor_parallel"), 10),
        Column("Pipeline parallel", key("pipeline_parallel"), 10),
        Column("Expert parallel", key("expert_parallel"), 10),
        Column("Data parallel", key("data_parallel"), 10),
        Column("Reason", lambda m: words.reason(m.get("reason")), 38, "text"),
        Column("Detail", lambda m: words.named(plan, m.get("detail") or ""), 62, "text"),
    ]
