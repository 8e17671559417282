"""Plans of the shipped catalog, made once, and their workbooks."""

from __future__ import annotations

import io

import openpyxl
import pytest
from workbook_plans import KINDS, PlanParts

from planner.workbook import write_plan


@pytest.fixture(scope="session")
def made() -> dict[str, PlanParts]:
    """One plan of each kind."""
    return {name: build() for name, build in KINDS.items()}


@pytest.fixture(scope="session")
def files(made: dict[str, PlanParts]) -> dict[str, bytes]:
    """The workbook of each kind."""
    return {name: write_plan(*found) for name, found in made.items()}


@pytest.fixture(scope="session")
def books(files: dict[str, bytes]) -> dict[str, openpyxl.Workbook]:
    """The workbooks as openpyxl reads them, values only."""
    return {name: openpyxl.load_workbook(io.BytesIO(data), data_only=True)
            for name, data in files.items()}
