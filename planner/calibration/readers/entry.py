"""One result with checked access to its values: every error names the file, the row and the field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from planner.errors import InvalidValue

LARGEST = 1e12
"""No count, rate or time of a benchmark is larger; beyond it a value is a slip."""
MOST_GPUS = 100_000
LONGEST_TEXT = 300
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")


@dataclass(frozen=True, slots=True)
class Entry:
    """Values of one result by key.

    Attributes
    ----------
    where : str
        File and line or entry, as errors say it.
    values : mapping
    path : str
        Dotted path of this part inside the entry.
    """

    where: str
    values: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""

    def error(self, key: str, message: str) -> InvalidValue:
        """An error about a field of this entry, to raise."""
        return InvalidValue(f"{self.where}, {self.path}{key}: {message}")

    def child(self, *keys: str) -> Entry:
        """The object under a path of keys; an empty one where a key is missing."""
        entry = self
        for key in keys:
            value = entry.values.get(key)
            if value is not None and not isinstance(value, Mapping):
                raise entry.error(key, f"must be an object, not {_shown(value)}")
            entry = Entry(entry.where, value or {}, f"{entry.path}{key}.")
        return entry

    def number(self, key: str) -> float | None:
        """A finite number from 0, or None where the field is missing, null or blank."""
        value = self.values.get(key)
        if isinstance(value, str):
            value = self._parsed(key, value.strip())
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"must be a number, not {_shown(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(key, f"must be a finite number, not {value}")
        if value < 0:
            raise self.error(key, f"must not be negative, not {_shown(value)}")
        if value > LARGEST:
            raise self.error(key, f"must be at most {LARGEST:g}, not {_shown(value)}")
        return float(value)

    def required(self, key: str, hint: str = "") -> float:
        """A number that must be there."""
        value = self.number(key)
        if value is None:
            raise self.error(key, "missing" + (f"; {hint}" if hint else ""))
        return value

    def scaled(self, key: str, factor: float) -> float | None:
        """A number times a factor (a unit), or None."""
        value = self.number(key)
        return None if value is None else value * factor

    def whole(self, key: str) -> int | None:
        """A whole number from 1, or None where it is missing."""
        value = self.number(key)
        if value is None:
            return None
        if value != int(value) or not 1 <= value <= MOST_GPUS:
            raise self.error(key, f"must be a whole number from 1, not {value:g}")
        return int(value)

    def text(self, key: str) -> str | None:
        """A text, or None where it is missing or blank."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.error(key, f"must be a text, not {_shown(value)}")
        value = value.strip()
        if len(value) > LONGEST_TEXT or not value.isprintable():
            raise self.error(key, f"must be one line of at most {LONGEST_TEXT} characters")
        return value or None

    def first(self, *keys: str) -> str | None:
        """The first text of several fields."""
        return next((text for key in keys if (text := self.text(key))), None)

    def _parsed(self, key: str, text: str) -> float | None:
        if not text:
            return None
        if not _NUMBER.fullmatch(text):
            raise self.error(key, f"must be a number from 0, not {_shown(text)}")
        return float(text)


def epoch_date(seconds: float | None) -> str:
    """The ISO date of a Unix time [s], ``""`` where there is none in our era.

    Examples
    --------
    >>> epoch_date(1_760_000_000.5)
    '2025-10-09'
    """
    if seconds is None or not 0 < seconds < 4e9:
        return ""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def iso_date(text: str | None) -> str:
    """The ISO date at the start of a date or time stamp, ``""`` where there is none.

    Examples
    --------
    >>> iso_date("20250131-101500"), iso_date("2025-01-31T10:15:00"), iso_date("yesterday")
    ('2025-01-31', '2025-01-31', '')
    """
    found = re.match(r"(\d{4})-?(\d{2})-?(\d{2})", text or "", re.ASCII)
    if not found:
        return ""
    year, month, day = (int(part) for part in found.groups())
    try:
        return datetime(year, month, day, tzinfo=UTC).date().isoformat()
    except ValueError:
        return ""


def _shown(value: Any) -> str:
    """A value as an error shows it: short, on one line."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a huge number"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
