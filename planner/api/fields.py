"""Strict fields: a number is a JSON number, and a refusal says what is allowed.

marshmallow's own fields take ``"12"`` and ``NaN`` for numbers; a capacity plan must not.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from marshmallow import ValidationError, fields

from planner.wording import in_full

SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,199}")
"""A slug or a Hugging Face id."""
_DATE = re.compile(r"[0-9]{4}(-H[12]|-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?")
AHEAD = datetime.timedelta(days=366)
"""How far a date may lie ahead: clocks differ, and prices are announced."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def _bounds(lowest: float | None, above: float | None, highest: float | None,
            below: float | None) -> str:
    words = [("at least", lowest), ("above", above), ("at most", highest), ("below", below)]
    return " and ".join(f"{word} {in_full(value)}" for word, value in words if value is not None)


class Number(fields.Field[float]):
    """A finite JSON number inside bounds; never a boolean, never text.

    Parameters
    ----------
    lowest, highest : float, optional
        Inclusive bounds.
    above, below : float, optional
        Exclusive bounds.
    """

    noun = "a number"
    json_type = "number"

    def __init__(self, *, lowest: float | None = None, above: float | None = None,
                 highest: float | None = None, below: float | None = None,
                 metadata: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self.range = (lowest, above, highest, below)
        keys = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
        limits = {k: v for k, v in zip(keys, self.range, strict=True) if v is not None}
        super().__init__(
            metadata={"type": self.json_type, **limits, **(metadata or {})}, **kwargs)
        words = _bounds(*self.range)
        self.allowed = f"{self.noun} {words}" if words else self.noun

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        number = self._number(value)
        lowest, above, highest, below = self.range
        outside = ((lowest is not None and number < lowest)
                   or (above is not None and number <= above)
                   or (highest is not None and number > highest)
                   or (below is not None and number >= below))
        if outside:
            raise self.refusal(value)
        return number

    def _number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refusal(value)
        try:
            number = float(value)
        except OverflowError:
            raise self.refusal(value) from None
        if not math.isfinite(number):
            raise self.refusal(value)
        return number

    def refusal(self, value: Any) -> ValidationError:
        """The error for a value: what is allowed, and what came."""
        return ValidationError(f"must be {self.allowed}, not {shown(value)}")


class Whole(Number):
    """A whole JSON number inside bounds; ``8.0`` is whole, ``"8"`` and ``true`` are not."""

    noun = "a whole number"
    json_type = "integer"

    def _number(self, value: Any) -> int:
        number = super()._number(value)
        if number != int(number):
            raise self.refusal(value)
        return int(number)


class Flag(fields.Field[bool]):
    """A JSON boolean."""

    def __init__(self, *, metadata: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(metadata={"type": "boolean", **(metadata or {})}, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            raise ValidationError(f"must be true or false, not {shown(value)}")
        return value


class Text(fields.Field[str]):
    """Text without control characters, of a limited length, optionally of a pattern."""

    def __init__(self, *, longest: int = 200, shortest: int = 0,
                 pattern: re.Pattern[str] | None = None, hint: str = "",
                 metadata: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self.longest, self.shortest, self.pattern, self.hint = longest, shortest, pattern, hint
        doc: dict[str, Any] = {"type": "string", "maxLength": longest}
        if shortest:
            doc["minLength"] = shortest
        if pattern is not None:
            doc["pattern"] = f"^{pattern.pattern}$"
        super().__init__(metadata={**doc, **(metadata or {})}, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            raise ValidationError(f"must be text, not {shown(value)}")
        if _UNPRINTABLE.search(value):
            raise ValidationError("must not contain control characters")
        if not self.shortest <= len(value) <= self.longest:
            raise ValidationError(
                f"must be {self.shortest} to {self.longest} characters, not {len(value)}")
        if self.pattern is not None and not self.pattern.fullmatch(value):
            raise ValidationError(f"must be {self.hint}, not {shown(value)}")
        return value


def slug_field(**kwargs: Any) -> Text:
    """A slug: lower-case letters, digits, dot, underscore, hyphen."""
    return Text(longest=100, shortest=1, pattern=SLUG,
                hint="lower-case letters, digits, '.', '_' or '-', starting with a letter or digit",
                **kwargs)


def name_field(**kwargs: Any) -> Text:
    """A slug or a Hugging Face id (``organisation/name``)."""
    return Text(longest=200, shortest=1, pattern=NAME,
                hint="a slug or a Hugging Face id (letters, digits, '.', '_', '-', '/')", **kwargs)


class Past(Text):
    """A date of the calendar, however exact, on which something was known."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, attr, data, **kwargs)
        start = text.replace("-H1", "-01").replace("-H2", "-07")
        try:
            day = datetime.date.fromisoformat((start + "-01-01")[:10]) if text else None
        except ValueError:
            raise ValidationError(f"is no day of the calendar: {shown(text)}") from None
        if day and day > datetime.datetime.now(datetime.UTC).date() + AHEAD:
            raise ValidationError(f"lies in the future: {shown(text)}")
        return text


def date_field(**kwargs: Any) -> Text:
    """A date as exact as it is known: a year, a half-year, a month or a day.

    Only a required date must be known; another may be empty, which is how reads show it.
    """
    needed = bool(kwargs.get("required"))
    pattern = _DATE if needed else re.compile(f"({_DATE.pattern})?")
    return Past(longest=10, shortest=4 if needed else 0, pattern=pattern,
                hint="a date as YYYY-MM-DD, YYYY-MM, YYYY-H1, YYYY-H2 or YYYY", **kwargs)


class Choice(fields.Field[str]):
    """One of a few words."""

    def __init__(self, choices: Sequence[str], *, metadata: Mapping[str, Any] | None = None,
                 **kwargs: Any) -> None:
        self.choices = tuple(choices)
        shown_choices: list[str | None] = list(choices)
        if kwargs.get("allow_none"):
            shown_choices.append(None)
        super().__init__(metadata={"type": "string", "enum": shown_choices, **(metadata or {})},
                         **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise ValidationError(f"must be one of {', '.join(self.choices)}; not {shown(value)}")
        return value


class Unique(fields.List[Any]):
    """A non-empty list without repetitions."""

    def __init__(self, inner: fields.Field[Any], *, longest: int = 100,
                 metadata: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self.longest = longest
        doc = {"minItems": 1, "maxItems": longest, "uniqueItems": True}
        super().__init__(inner, metadata={**doc, **(metadata or {})}, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValidationError(f"must be a list, not {shown(value)}")
        if not 1 <= len(value) <= self.longest:
            raise ValidationError(f"must have 1 to {self.longest} entries, not {len(value)}")
        items: list[Any] = super()._deserialize(value, attr, data, **kwargs)
        seen: list[Any] = []
        for index, item in enumerate(items):
            if item in seen:
                raise ValidationError({index: [f"repeats {shown(item)}"]})
            seen.append(item)
        return items


class Entries(fields.List[Any]):
    """A list of a limited length, which is checked before any entry is read."""

    def __init__(self, inner: fields.Field[Any] | type[fields.Field[Any]], *, longest: int,
                 shortest: int = 0, metadata: Mapping[str, Any] | None = None, **kwargs: Any
                 ) -> None:
        self.shortest, self.longest = shortest, longest
        doc = {"minItems": shortest} if shortest else {}
        super().__init__(inner, metadata={**doc, "maxItems": longest, **(metadata or {})}, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValidationError(f"must be a list, not {shown(value)}")
        if not self.shortest <= len(value) <= self.longest:
            raise ValidationError(f"must have {self.shortest} to {self.longest} entries, "
                                  f"not {len(value)}")
        found: list[Any] = super()._deserialize(value, attr, data, **kwargs)
        return found


class Map(fields.Dict):
    """An object with free names; an error points at the name, not at a ``value`` below it."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        try:
            return super()._deserialize(  # type: ignore[no-untyped-call]
                value, attr, data, **kwargs)
        except ValidationError as error:
            if not isinstance(error.messages, dict):
                raise
            raise ValidationError({
                name: [*parts.get("key", ()), *parts.get("value", ())]
                for name, parts in error.messages.items()}) from None


class QueryWhole(Whole):
    """A whole number in a query string, where every value is text."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]{1,15}", value):
            raise self.refusal(value)
        return super()._deserialize(int(value), attr, data, **kwargs)


class QueryFlag(Flag):
    """``true`` or ``false`` in a query string or a form."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:
        words = {"true": True, "1": True, "false": False, "0": False}
        if not isinstance(value, str) or value.lower() not in words:
            raise ValidationError(f"must be true or false, not {shown(value)}")
        return words[value.lower()]


def shown(value: Any) -> str:
    """A short, safe form of a refused value for a message."""
    if isinstance(value, str):
        text = repr(value if len(value) <= 40 else value[:37] + "...")
        return text.encode("ascii", "backslashreplace").decode()
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return _short_number(value)


def _short_number(value: float) -> str:
    try:
        return in_full(value)
    except (OverflowError, ValueError):
        return "so large a number"
