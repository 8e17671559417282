"""Every code name that a document gives in back-ticks exists."""

from pathlib import Path

import pytest
from doc_names import code_names, resolves

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.name)
def test_code_names_exist(file: Path) -> None:
    names = code_names(file.read_text(encoding="utf-8"))
    assert sorted(n for n in names if not resolves(n)) == []


def test_formulas_name_their_code() -> None:
    names = code_names((ROOT / "docs" / "formulas.md").read_text(encoding="utf-8"))
    assert sum(n.startswith("planner.") for n in names) > 60


def test_a_name_that_does_not_exist_is_seen() -> None:
    assert not resolves("planner.roofline.no_such_function")
    assert not resolves("Llm.no_such_field")
    assert resolves("planner.roofline.StepModel._gemm")
    assert resolves("EngineProfile.mfu")
