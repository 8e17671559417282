"""How the machine code of this package is kept: for all of its sources together."""

from __future__ import annotations

from pathlib import Path

from planner.compiled import entries_of

entry = entries_of(Path(__file__).parent)
"""As :func:`planner.compiled.entry`, and new where any module of the package has changed."""
