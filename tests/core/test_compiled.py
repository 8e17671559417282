"""How machine code is kept: for all sources of a package together."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from planner.compiled import digest_of

CALLEE = """from planner.compiled import compiled


@compiled
def more(x):
    return x + {added}
"""
CALLER = """from pathlib import Path

from kept_loops.callee import more
from planner.compiled import entries_of

entry = entries_of(Path(__file__).parent)


@entry
def doubled(x):
    return 2.0 * more(x)
"""


def loaded(folder: Path, added: float) -> ModuleType:
    """The package with a callee, as a new process loads it."""
    for name in [m for m in sys.modules if m.partition(".")[0] == "kept_loops"]:
        del sys.modules[name]
    package = folder / "kept_loops"
    package.mkdir(exist_ok=True)
    for name, text in (("__init__", ""), ("callee", CALLEE.format(added=added)),
                       ("caller", CALLER)):
        path = package / f"{name}.py"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    importlib.invalidate_caches()
    return importlib.import_module("kept_loops.caller")


def kept(loop: object) -> set[str]:
    """Names of the files that hold machine code of the package."""
    return {p.name for p in Path(loop.stats.cache_path).glob("caller.doubled*.nb[ic]")}


def test_a_change_of_a_callee_renews_its_caller_and_drops_the_old(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = loaded(tmp_path, 1.0).doubled
    assert first(1.0) == 4.0
    assert not first.stats.cache_hits
    old = kept(first)
    assert len(old) == 2
    again = loaded(tmp_path, 1.0).doubled
    assert again(1.0) == 4.0
    assert sum(again.stats.cache_hits.values()) == 1
    assert kept(again) == old
    changed = loaded(tmp_path, 2.0).doubled
    assert not kept(changed)
    assert changed(1.0) == 6.0
    assert not changed.stats.cache_hits
    assert len(kept(changed)) == 2
    assert not kept(changed) & old


def test_a_digest_is_of_what_the_files_say(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("x = 1\n")
    two.write_text("y = 2\n")
    before = digest_of([one, two])
    assert digest_of([two, one]) == before
    assert len(before) == 16
    two.write_text("y = 3\n")
    assert digest_of([one, two]) != before


def test_without_machine_code_the_loops_are_plain_functions() -> None:
    """For debuggers and for short jobs, where compiling takes longer than running."""
    code = "from planner.loops.gamma import gamma_within; print(gamma_within(1.0, 1.0))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                           env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert float(found.stdout) == pytest.approx(1.0 - math.exp(-1.0))
