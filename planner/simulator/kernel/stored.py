"""How the machine code of this package is kept: for all of the sources that go into it."""

from __future__ import annotations

from pathlib import Path

from planner import stepping
from planner.compiled import entries_of
from planner.simulator import arrays, columns

entry = entries_of(Path(__file__).parent, *(
    Path(str(module.__file__)) for module in (arrays, columns, stepping)))
"""As :func:`planner.compiled.entry`, and new where any of them has changed."""
