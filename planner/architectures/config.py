"""Reading a config.json: which part of it is the language model, and its fields, checked.

A config is untrusted input. Every field is read through :class:`Fields`, so a value of the wrong
kind ends in an error with the JSON pointer of the field, never in another exception.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from planner.errors import IncompleteConfig, InvalidValue

MAX_LAYERS: Final = 1_000
MAX_SIZE: Final = 100_000_000
"""Largest width, vocabulary or count taken for real; anything above is a typing error."""

TEXT_SECTIONS: Final = ("text_config", "llm_config", "language_config", "thinker_config",
                        "language_model")
"""Where multimodal wrappers keep the language model (transformers; InternVL; DeepSeek-VL; Omni)."""


def show(value: object) -> str:
    """A value for an error message: short, and safe for huge or deeply nested ones."""
    if isinstance(value, str):
        return repr(value[:60])
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a number beyond 10^18"
    return f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class Fields:
    """Checked access to one section of a config.

    Attributes
    ----------
    data : mapping
    pointer : str
        JSON pointer of the section.
    defaults : mapping
        Values that the model's configuration class documents for absent keys.
    """

    data: Mapping[str, Any]
    pointer: str = "/hf_config"
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def at(self, name: str) -> str:
        """JSON pointer of a field."""
        return f"{self.pointer}/{name}"

    def find(self, *names: str) -> tuple[str, Any]:
        """First of the names that is present and not null, with its value."""
        for source in (self.data, self.defaults):
            for name in names:
                if source.get(name) is not None:
                    return name, source[name]
        return names[0], None

    def optional(self, *names: str, low: int = 1, high: int = MAX_SIZE) -> int | None:
        """A whole number, or None when every name is absent or null."""
        name, value = self.find(*names)
        if value is None:
            return None
        return whole(value, self.at(name), low=low, high=high)

    def count(self, *names: str, low: int = 1, high: int = MAX_SIZE,
              default: int | None = None) -> int:
        """A whole number that must be there unless a default is given.

        Raises
        ------
        IncompleteConfig
            When it is absent and has no default.
        InvalidValue
            When it is not a whole number within the limits.
        """
        value = self.optional(*names, low=low, high=high)
        if value is None:
            value = default
        if value is None:
            raise IncompleteConfig(
                f"the config lacks {' or '.join(names)}, a whole number of at least {low}",
                self.at(names[0]))
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """A positive finite number."""
        name, value = self.find(*names)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidValue(f"{name} must be a number, not {show(value)}", self.at(name))
        if not 0 < value < MAX_SIZE:
            raise InvalidValue(f"{name} must be positive and finite, not {show(value)}",
                               self.at(name))
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """A truth value; the default when absent or null."""
        name, value = self.find(*names)
        if value is None:
            return default
        if not isinstance(value, bool) and value not in (0, 1):
            raise InvalidValue(f"{name} must be true or false, not {show(value)}", self.at(name))
        return bool(value)

    def text(self, *names: str) -> str | None:
        """A string, or None when absent, null or of another kind."""
        value = self.find(*names)[1]
        return value if isinstance(value, str) else None

    def items(self, *names: str, length: int | None = None) -> list[Any] | None:
        """A list with at least ``length`` entries (cut to it), or None when absent."""
        name, value = self.find(*names)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InvalidValue(f"{name} must be a list, not {show(value)}", self.at(name))
        if length is not None and len(value) < length:
            raise InvalidValue(
                f"{name} has {len(value)} entries for {length} layers", self.at(name))
        return list(value[:length])

    def counts(self, *names: str, length: int, low: int = 0) -> list[int] | None:
        """A list of whole numbers, one per layer, or None when absent."""
        values = self.items(*names, length=length)
        if values is None:
            return None
        pointer = self.at(self.find(*names)[0])
        return [whole(v, f"{pointer}/{i}", low=low) for i, v in enumerate(values)]

    def words(self, *names: str, length: int) -> list[str] | None:
        """A list of strings, one per layer, or None when absent."""
        values = self.items(*names, length=length)
        if values is None:
            return None
        name = self.find(*names)[0]
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise InvalidValue(f"{name} must hold words, not {show(value)}",
                                   f"{self.at(name)}/{i}")
        return values

    def section(self, *names: str) -> Fields | None:
        """A nested object, or None when absent or empty."""
        name, value = self.find(*names)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InvalidValue(f"{name} must be an object, not {show(value)}", self.at(name))
        return Fields(value, self.at(name)) if value else None

    def has(self, name: str) -> bool:
        """Whether a key is present and not null."""
        return self.find(name)[1] is not None

    def layers(self, *names: str) -> int:
        """Number of layers."""
        return self.count(*(names or ("num_hidden_layers",)), high=MAX_LAYERS)


def whole(value: object, pointer: str, *, low: int, high: int = MAX_SIZE) -> int:
    """A whole number within limits; whole floats (4096.0) pass, booleans and strings do not.

    Raises
    ------
    InvalidValue
        Otherwise.
    """
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    name = pointer.rsplit("/", 1)[-1]
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{name} must be a whole number, not {show(value)}", pointer)
    if not low <= value <= high:
        raise InvalidValue(f"{name} must be from {low} to {high}, not {show(value)}", pointer)
    return value


def text_section(top: Fields) -> Fields:
    """The part that describes the language model, with its pointer.

    ``thinker_config`` of the Omni models nests ``text_config`` once more.
    """
    for name in TEXT_SECTIONS:
        value = top.data.get(name)
        if isinstance(value, Mapping) and value:
            inner = Fields(value, top.at(name))
            nested = value.get("text_config")
            return inner.section("text_config") or inner if nested else inner
    return top


def class_names(top: Fields, text: Fields) -> list[str]:
    """Names that may say which family it is, the most telling first.

    A wrapper's text section comes before the wrapper: one wrapper class serves several families
    (Mistral3ForConditionalGeneration holds ``mistral``, ``ministral3`` or ``mistral4``).
    """
    names: list[str] = []
    for section in (text, top) if text is not top else (top,):
        names += class_of(section)
        kind = section.data.get("model_type")
        names += [kind] if isinstance(kind, str) else []
    return names


def class_of(section: Fields) -> list[str]:
    """The class in ``architectures``, if there is one."""
    listed = section.data.get("architectures")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return [n for n in listed[:1] if isinstance(n, str)]
    return []
