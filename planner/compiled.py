"""Machine code from plain loops (numba): how it is made."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_NOT_COMPILED = SimpleNamespace(cache_path=None)
"""In place of what is known of machine code, where numba is told to make none."""
compiled: Any = njit(**_OPTIONS, **_NO_WRAPPERS)
"""Machine code that only other machine code calls."""


def entry(loop: Callable[..., Any]) -> Any:
    """Machine code that Python calls, kept on disk; other threads go on while it runs.

    Where neither the folder of the module nor the user's cache can be written it is compiled anew
    in every process.
    """
    try:
        return njit(cache=True, **_OPTIONS)(loop)
    except RuntimeError:
        return njit(**_OPTIONS)(loop)


def digest_of(sources: Iterable[Path]) -> str:
    """A digest of source files, whatever their order: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def entries_of(package: Path, *others: Path) -> Callable[[Callable[..., Any]], Any]:
    """:func:`entry` for the modules of a package that call one another, and ``others`` too.

    What is stored is keyed by the file of the function that Python calls alone, and a change of a
    function that it calls in another file would pass unseen. So the digest of all these sources
    goes into its name, and what was stored for others is deleted.
    """
    digest = digest_of([*package.glob("*.py"), *others, Path(__file__)])
    seen: set[str] = set()

    def named(loop: Callable[..., Any]) -> Any:
        loop.__qualname__ = f"{loop.__qualname__}_{digest}"
        made = entry(loop)
        folder = getattr(made, "stats", _NOT_COMPILED).cache_path
        if folder is not None and folder not in seen:
            seen.add(folder)
            _forget(Path(folder), digest)
        return made

    return named


def _forget(folder: Path, digest: str) -> None:
    """Delete what a folder keeps for other sources."""
    for path in folder.glob("*.nb[ic]"):
        kept = re.search(r"_([0-9a-f]{16})-", path.name)
        if kept and kept[1] != digest:
            with suppress(OSError):  # not ours to delete, or another process was faster
                path.unlink()
