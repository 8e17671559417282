"""Settings of the service: one table that validates, gives defaults and documents."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "PLANNER_"
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes
    ----------
    name : str
        Environment variable, and key of the Flask configuration.
    kind : callable
        ``str``, ``int`` or ``float``.
    default : object
    description : str
    allowed : tuple of str
        Values that may be given; empty for any.
    pattern : str
        Regular expression that a value must match; empty for any.
    least, most : float
        Bounds of a number.
    """

    name: str
    kind: Callable[[str], Any]
    default: Any
    description: str
    allowed: tuple[str, ...] = ()
    pattern: str = ""
    least: float = -math.inf
    most: float = math.inf


LEAST_STALE_S = 3.0
"""[s] of silence after which a job may be taken over: three of the signs of life that the one who
works on it shows every second (``planner.jobs.run.BEAT_S``)."""
_PORT = (r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]"
         r"|6553[0-5])")
SETTINGS = (
    Setting("DATABASE_URL", str, "",
            "Database as an SQLAlchemy URL. Empty: the SQLite file instance/planner.sqlite3. "
            "PostgreSQL: postgresql+psycopg://user:password@host/name."),
    Setting("PLANNER_MAX_BODY_BYTES", int, 5_000_000, "Largest request body [B]; above it 413.",
            least=1000, most=10**10),
    Setting("PLANNER_PAGE_LIMIT", int, 100, "Items of a list when the request gives no limit.",
            least=1, most=10**6),
    Setting("PLANNER_PAGE_LIMIT_MAX", int, 1000, "Largest limit that a list accepts.",
            least=1, most=10**6),
    Setting("PLANNER_MAX_TRACE_BYTES", int, 200_000_000,
            "Largest trace [B], as sent and again as text after decompression; above it 413.",
            least=1000, most=10**12),
    Setting("PLANNER_MAX_TRACE_ROWS", int, 1_000_000, "Most rows of a trace; above it 413.",
            least=3, most=10**9),
    Setting("PLANNER_MAX_SWEEP_CELLS", int, 100_000, "Most cells of a sweep; above it 422.",
            least=1, most=10**8),
    Setting("PLANNER_EXECUTOR", str, "processes",
            "Who computes jobs: processes of the service's own, a Dask cluster "
            "(dask://scheduler:8786, a host and a port from 1 to 65535), or none (this process "
            "only queues them).",
            pattern=rf"processes|none|dask://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):{_PORT}"),
    Setting("PLANNER_JOB_PROCESSES", int, 0,
            "Processes of the executor processes; 0 is one per core.",
            least=0, most=1000),
    Setting("PLANNER_JOB_STALE_S", float, 30.0,
            "A running job without a sign of life for so long [s] is taken over.",
            least=LEAST_STALE_S, most=86_400),
    Setting("PLANNER_SQLITE_BUSY_MS", int, 10_000,
            "How long a SQLite writer waits for another one [ms].",
            least=0, most=3_600_000),
    Setting("PLANNER_LOG_LEVEL", str, "info", "Least severe log line written.",
            ("debug", "info", "warning", "error")),
    Setting("PLANNER_LOG_FORMAT", str, "json", "Form of a log line.", ("json", "console")),
)
"""Every setting of the service."""


def load_settings(overrides: Mapping[str, Any] | None = None,
                  environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Settings from defaults, then the environment, then ``overrides``.

    Raises
    ------
    ValueError
        With the name of the setting and what is allowed.

    Examples
    --------
    >>> load_settings(environ={"PLANNER_PAGE_LIMIT": "20"})["PLANNER_PAGE_LIMIT"]
    20
    """
    source = os.environ if environ is None else environ
    values = {s.name: _read(s, source) for s in SETTINGS}
    values.update(overrides or {})
    for setting in SETTINGS:
        _check(setting, values[setting.name])
    return values


def unknown_settings(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each variable of the environment that looks like a setting and is none."""
    names = [s.name for s in SETTINGS]
    source, found = os.environ if environ is None else environ, []
    for name in sorted(source):
        if name.startswith(PREFIX) and name not in names:
            bare = name.removeprefix(PREFIX)
            near = [bare] if bare in names else difflib.get_close_matches(name, names, 1, 0.7)
            found.append(f"{name} is no setting and is ignored" + (
                f"; did you mean {near[0]}?" if near else "; docs/settings.md lists them"))
    return found


def _read(setting: Setting, environ: Mapping[str, str]) -> Any:
    text = environ.get(setting.name, "")
    if text == "":
        return setting.default
    try:
        return setting.kind(text)
    except ValueError:
        raise ValueError(f"{setting.name} must be {_number_words(setting)}; got {text!r}") from None


def _check(setting: Setting, value: Any) -> None:
    if setting.allowed and value not in setting.allowed:
        words = ", ".join(setting.allowed)
        raise ValueError(f"{setting.name} must be one of {words}; got {value!r}")
    if setting.pattern and not re.fullmatch(setting.pattern, value):
        raise ValueError(f"{setting.name} must be {setting.description[0].lower()}"
                         f"{setting.description[1:]} Got {value!r}")
    if setting.kind is not str and not setting.least <= value <= setting.most:  # nor is nan
        raise ValueError(f"{setting.name} must be {_number_words(setting)}; got {value!r}")


def _number_words(setting: Setting) -> str:
    kind = "a whole number" if setting.kind is int else "a number"
    return f"{kind} from {setting.least:,.0f} to {setting.most:,.0f}"


def database_url(values: Mapping[str, Any]) -> str:
    """The database of a configuration; creates the directory of the default SQLite file.

    ``postgres://`` and ``postgresql://`` as hosting services print them get the psycopg driver.
    """
    url: str = values["DATABASE_URL"]
    if not url:
        path = ROOT / "instance" / "planner.sqlite3"
        path.parent.mkdir(exist_ok=True)
        return f"sqlite:///{path}"
    for prefix in ("postgres://", "postgresql://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url
