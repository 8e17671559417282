"""Loading a document with a schema; every refusal carries its JSON pointer. No Flask here."""

from __future__ import annotations

import difflib
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from marshmallow import RAISE, Schema, ValidationError

from planner.errors import InvalidValue

MOST_ERRORS = 100
"""Fields at fault that are listed."""
MOST_GUESSES = 20
"""Unknown fields of one object that are compared with the known ones."""


class StrictSchema(Schema):
    """Base of all schemas: unknown fields are refused, the order is kept."""

    class Meta:
        """Schema options."""

        unknown = RAISE

    error_messages = {  # noqa: RUF012 - marshmallow's own convention
        "unknown": "unknown field",
        "type": "must be an object",
    }

    def load(self, data: Any, **kwargs: Any) -> Any:
        """Load a document; one with far too many fields is refused before any is read."""
        if isinstance(data, Mapping) and len(data) > len(self.fields) + MOST_ERRORS:
            known = {field.data_key or name for name, field in self.load_fields.items()}
            unknown = itertools.islice((name for name in data if name not in known), MOST_ERRORS)
            error = ValidationError({n: [self.error_messages["unknown"]] for n in unknown})
            self.handle_error(error, data)
            raise error
        return super().load(data, **kwargs)

    def handle_error(self, error: ValidationError, data: Any, **_: Any) -> None:
        """Say which field an unknown one may have been meant for."""
        if not isinstance(error.messages, dict):
            return
        unknown = [name for name, messages in error.messages.items()
                   if messages == [self.error_messages["unknown"]]]
        for name in unknown[:MOST_GUESSES]:
            near = difflib.get_close_matches(str(name)[:100], list(self.fields), n=1, cutoff=0.7)
            if near:
                error.messages[name] = [f"unknown field; did you mean {near[0]}?"]


@cache
def schema_of(kind: type[Schema]) -> Schema:
    """A schema of a class, made once: to make one takes longer than to read a document with it."""
    return kind()


class InvalidDocument(InvalidValue):
    """A document with one or more fields at fault.

    Attributes
    ----------
    errors : list of (pointer, message)
        The first 100.
    """

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        pointer, message = errors[0]
        super().__init__(message, pointer)
        self.errors = errors[:MOST_ERRORS]


def load_document(schema: Schema, document: Any) -> dict[str, Any]:
    """Deserialize a document.

    Raises
    ------
    InvalidDocument
        With every field at fault.
    """
    try:
        loaded: dict[str, Any] = schema.load(document)
    except ValidationError as error:
        raise InvalidDocument(list(pointers(error.messages))) from None
    return loaded


class NotJson(ValueError):
    """Text that is not a JSON document, with why."""


def json_of(data: bytes) -> Any:
    """The JSON document of a body or a file; ``NaN`` and ``Infinity`` are left to the fields.

    Raises
    ------
    NotJson
    InvalidDocument
        With the pointer of every key that an object has more than once.

    Examples
    --------
    >>> json_of(b'{"months": 12}')
    {'months': 12}
    """
    try:
        return _loaded(data.decode("utf-8-sig"))
    except InvalidDocument:
        raise
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} (0x{data[error.start]:02x}) is not UTF-8 text"
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = "its lists and objects are nested too deeply"
    except ValueError:  # only a whole number of too many digits is left
        reason = f"a number in it has more than {sys.get_int_max_str_digits():,} digits"
    raise NotJson(reason)


class _Repeating(dict[str, Any]):
    """An object that has some keys more than once."""

    repeated: tuple[str, ...] = ()


def _loaded(text: str) -> Any:
    found = []

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        counts = Counter(key for key, _ in pairs)
        repeating = _Repeating(made)
        repeating.repeated = tuple(key for key, count in counts.items() if count > 1)
        found.append(repeating)
        return repeating

    document = json.loads(text, object_pairs_hook=read)
    if found:
        raise InvalidDocument(list(itertools.islice(_repeated(document, ""), MOST_ERRORS)))
    return document


def _repeated(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Pointers of the keys that objects have more than once."""
    if isinstance(value, _Repeating):
        for key in value.repeated:
            yield f"{pointer}/{escape(key)}", "is given more than once"
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _repeated(part, f"{pointer}/{escape(key)}")
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _repeated(part, f"{pointer}/{place}")


def pointers(messages: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Pairs of JSON pointer and message from marshmallow's nested messages.

    Examples
    --------
    >>> list(pointers({"slo": {"ttft_ms": ["must be a number"]}}))
    [('/slo/ttft_ms', 'must be a number')]
    """
    if isinstance(messages, Mapping):
        for key, inner in messages.items():
            yield from pointers(inner, prefix if key == "_schema" else f"{prefix}/{escape(key)}")
    elif isinstance(messages, list | tuple):
        for inner in messages:
            yield from pointers(inner, prefix)
    else:
        yield prefix, _plain(str(messages))


def escape(key: Any) -> str:
    """One reference token of a JSON pointer (RFC 6901); unpaired surrogates made printable."""
    text = str(key).replace("~", "~0").replace("/", "~1")
    return text.encode("utf-8", "backslashreplace").decode()


_PLAIN = {
    "Missing data for required field.": "is required",
    "Field may not be null.": "must not be null",
    "Unknown field.": "unknown field",
    "Invalid input type.": "must be an object",
    "Not a valid list.": "must be a list",
    "Not a valid mapping type.": "must be an object",
}


def _plain(message: str) -> str:
    return _PLAIN.get(message, message)
