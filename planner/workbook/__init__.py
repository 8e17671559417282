"""The Excel workbook of a plan, one module a sheet."""

from planner.workbook.book import write_plan

__all__ = ["write_plan"]
