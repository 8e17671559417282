"""The Advice sheet: what each lever would change, every one planned again."""

from __future__ import annotations

from planner.workbook import words
from planner.workbook.layout import Column, Page, data_sheet, key, number, set_up
from planner.workbook.plan import Plan, Row

NAME = "Advice"
NOTHING = "The plan holds no computed advice."


def write(page: Page, plan: Plan) -> None:
    """Fill the sheet: one row a piece of advice, in the order of the plan."""
    set_up(page, plan.name, NAME)
    data_sheet(page, _columns(plan), plan.advice, NOTHING, engine=True)


def _columns(plan: Plan) -> list[Column]:
    return [
        Column("Lever", lambda a: words.lever(a.get("code")), 32, "text"),
        Column("Effect", lambda a: words.named(plan, a.get("message") or ""), 92, "text"),
        Column("GPUs before", key("gpus_before"), 10),
        Column("GPUs after", key("gpus_after"), 10),
        Column("Change of GPUs", _change, 10, "signed"),
        Column("Cost per hour after [USD/h]", key("usd_per_hour_after"), 12, "two"),
    ]


def _change(row: Row) -> float | None:
    before, after = number(row.get("gpus_before")), number(row.get("gpus_after"))
    return None if before is None or after is None or states_limit(row) else after - before


def states_limit(row: Row) -> bool:
    """Whether a piece of advice says what limits the fleet or what it misses, and is no lever."""
    return str(row.get("code")).startswith(("limited_by_", "misses_"))


def changes_nothing(row: Row) -> bool:
    """Whether a lever leaves the number of GPUs as it is."""
    return _change(row) == 0
