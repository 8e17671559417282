"""Code names in documents, resolved against the code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import cache
from typing import Any

import planner

MODULES_WITH_VALUES = (
    "llm", "hardware", "precision", "engine", "workload", "requests", "roofline", "memory",
    "arrivals", "drafts", "queueing", "stalls", "sizing", "fleet", "cost", "measured", "prediction",
    "planning", "setups.base", "setups.chunked", "catalog.book", "calibration.points",
    "simulator.result", "simulator.table", "simulator.options")
"""Modules whose classes a document may name without their path: ``Llm.hidden``."""
FULL = re.compile(r"planner(?:\.[A-Za-z_]\w*)+")
SHORT = re.compile(r"[A-Z]\w*(?:\.[a-z_]\w*)+")


@cache
def short_names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in MODULES_WITH_VALUES:
        module = importlib.import_module(f"planner.{name}")
        found |= {n: c for n, c in vars(module).items()
                  if inspect.isclass(c) and c.__module__ == module.__name__}
    return found


@cache
def modules() -> set[str]:
    return {m.name for m in pkgutil.walk_packages(planner.__path__, "planner.")}


def resolves(name: str) -> bool:
    """Whether a code name exists: a module, or something reached through one."""
    first, *rest = name.split(".")
    if first != "planner":
        return first in short_names() and _reach(short_names()[first], rest)
    depth = max(i for i in range(1, len(rest) + 2)
                if i == 1 or ".".join(["planner", *rest[:i - 1]]) in modules())
    path = ".".join(["planner", *rest[:depth - 1]])
    return _reach(importlib.import_module(path), rest[depth - 1:])


def _reach(value: Any, names: list[str]) -> bool:
    for name in names:
        if not hasattr(value, name):
            return inspect.isclass(value) and name in getattr(value, "__annotations__", {})
        value = getattr(value, name)
    return True


def code_names(text: str) -> set[str]:
    """Every code name in back-ticks."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return {m.group() for s in spans for p in (FULL, SHORT)
            if (m := p.fullmatch(s.strip())) and not s.endswith(".py")}
