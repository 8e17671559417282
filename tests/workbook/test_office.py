"""A real spreadsheet program opens, recalculates and prints the workbooks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from workbook_reading import read

SOFFICE = shutil.which("soffice")
INFO = shutil.which("pdftotext")
pytestmark = [pytest.mark.office, pytest.mark.slow,
              pytest.mark.skipif(SOFFICE is None, reason="LibreOffice is not installed")]
SHOWN = ["plain", "impossible", "two kinds", "measured"]


def convert(folder: Path, sources: list[Path], form: str) -> Path:
    """Convert files in one start of the program; the folder of the results."""
    target = folder / form
    command = [str(SOFFICE), f"-env:UserInstallation=file://{folder}/profile", "--headless",
               "--convert-to", form, "--outdir", str(target), *map(str, sources)]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    return target


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> list[Path]:
    folder = tmp_path_factory.mktemp("office")
    paths = [folder / f"{kind.replace(' ', '-')}.xlsx" for kind in SHOWN]
    for path, kind in zip(paths, SHOWN, strict=True):
        path.write_bytes(files[kind])
    return paths


@pytest.fixture(scope="module")
def recalculated(sources: list[Path]) -> Path:
    return convert(sources[0].parent, sources, "xlsx")


@pytest.fixture(scope="module")
def printed(sources: list[Path]) -> Path:
    return convert(sources[0].parent, sources, "pdf")


def cells(book: openpyxl.Workbook) -> dict[tuple[str, str], Any]:
    """Every filled cell of a workbook."""
    return {(s.title, c.coordinate): c.value for s in book for row in s.iter_rows() for c in row
            if c.value is not None}


@pytest.mark.parametrize("kind", SHOWN)
def test_recalculated_values_are_the_cached_ones(
        files: dict[str, bytes], recalculated: Path, kind: str) -> None:
    path = recalculated / f"{kind.replace(' ', '-')}.xlsx"
    before, after = cells(read(files[kind])), cells(read(path.read_bytes()))
    assert before.keys() == after.keys()
    for place, value in before.items():
        if isinstance(value, int | float):
            assert after[place] == pytest.approx(value, rel=1e-9, abs=1e-12), place
        else:
            assert after[place] == value, place
        assert not str(after[place]).startswith("#"), place


@pytest.mark.parametrize("kind", SHOWN)
@pytest.mark.skipif(INFO is None, reason="pdftotext is not installed")
def test_the_summary_is_one_page(printed: Path, kind: str) -> None:
    command = [str(INFO), "-layout", str(printed / f"{kind.replace(' ', '-')}.pdf"), "-"]
    text = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout.decode()
    tops = [page.strip().splitlines()[0].split()[-1] for page in text.split("\f") if page.strip()]
    assert tops.count("Summary") == 1
    assert tops[0] == "Summary"
    assert tops[1] == "Inputs"
    assert "###" not in text
