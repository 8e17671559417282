"""Machine code from plain loops (numba): how it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
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
