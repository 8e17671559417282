"""Values in plain JSON types. Loads no web or database library, as worker processes use it too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A value in plain JSON types; what is not a finite number becomes null."""
    kind = type(value)
    # Exact types first: an answer of 10,000 steps has over half a million values.
    if kind is float:
        return value if math.isfinite(value) else None
    if kind in _ALREADY_PLAIN:
        return value
    if kind is dict:
        return {str(k): plain(v) for k, v in value.items()}
    if kind is list or kind is tuple:
        return [plain(v) for v in value]
    return _plain_unusual(value)


def _plain_unusual(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Decimal | float):
        return plain(float(value))
    if isinstance(value, Mapping):
        return plain(dict(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return plain(list(value))
    return str(value)


_ALREADY_PLAIN = frozenset({str, int, bool, type(None)})
