"""A token length in a request: a number, a mean, two percentiles, or a list. No Flask here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields

from planner.api.fields import Number, Whole, shown
from planner.api.validation import StrictSchema, schema_of
from planner.errors import InvalidValue
from planner.workload import Lengths, constant, empirical, from_mean_p95, from_p50_p95

MAX_TOKENS = 10_000_000
MAX_ROWS = 10_000
FORMS = "a whole number, {mean}, {mean, p95}, {p50, p95} or a list of {tokens, share}"


class LengthRowSchema(StrictSchema):
    """One length of a list and its share of the requests."""

    tokens = Whole(lowest=1, highest=MAX_TOKENS, required=True)
    share = Number(lowest=0, highest=1e12, required=True)


class LengthShapeSchema(StrictSchema):
    """A length by its mean, by mean and 95th percentile, or by median and 95th percentile."""

    mean = Number(lowest=1, highest=MAX_TOKENS)
    p50 = Number(lowest=1, highest=MAX_TOKENS)
    p95 = Number(lowest=1, highest=MAX_TOKENS)


_TOKENS = {"type": "number", "minimum": 1, "maximum": MAX_TOKENS}
_ROW = {"type": "object", "additionalProperties": False, "required": ["tokens", "share"],
        "properties": {"tokens": {**_TOKENS, "type": "integer"},
                       "share": {"type": "number", "minimum": 0}}}
LENGTH_DOC: dict[str, Any] = {"oneOf": [
    {"type": "integer", "minimum": 1, "maximum": MAX_TOKENS},
    {"type": "object", "additionalProperties": False, "required": ["mean"],
     "properties": {"mean": _TOKENS, "p95": _TOKENS}},
    {"type": "object", "additionalProperties": False, "required": ["p50", "p95"],
     "properties": {"p50": _TOKENS, "p95": _TOKENS}},
    {"type": "array", "minItems": 1, "maxItems": MAX_ROWS, "items": _ROW},
]}


class LengthField(fields.Field[Any]):
    """A length in any of its forms; loads as the checked form."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={**LENGTH_DOC, "description": FORMS}, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if isinstance(value, Mapping):
            form: Any = _shape(schema_of(LengthShapeSchema).load(value))
        elif isinstance(value, list):
            form = _rows(value)
        else:
            form = _whole(value)
        lengths_of(form)
        return form


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValidationError(f"must be {FORMS}; not {shown(value)}")
    return Whole(lowest=1, highest=MAX_TOKENS).deserialize(value)


def _shape(shape: dict[str, Any]) -> dict[str, Any]:
    if set(shape) not in ({"mean"}, {"mean", "p95"}, {"p50", "p95"}):
        raise ValidationError(f"must be {FORMS}")
    return shape


def _rows(value: list[Any]) -> list[dict[str, Any]]:
    if not 1 <= len(value) <= MAX_ROWS:
        raise ValidationError(f"must have 1 to {MAX_ROWS} rows, not {len(value)}")
    schema: Schema = LengthRowSchema(many=True)
    rows: list[dict[str, Any]] = schema.load(value)
    return rows


def lengths_of(form: Any) -> Lengths:
    """The distribution of a checked form.

    A mean alone is taken as the length of every request: nothing is known of the spread.

    Raises
    ------
    ValidationError
        When no distribution has these numbers; at ``p95`` where that is at fault.

    Examples
    --------
    >>> lengths_of({"mean": 300}).max
    300.0
    """
    if isinstance(form, int | float):
        return constant(form)
    if isinstance(form, list):
        return _checked(empirical, [r["tokens"] for r in form], [r["share"] for r in form])
    if "p50" in form:
        return _checked(from_p50_p95, form["p50"], form["p95"], key="p95")
    if "p95" in form:
        return _checked(from_mean_p95, form["mean"], form["p95"], key="p95")
    return constant(form["mean"])


def _checked(build: Callable[..., Lengths], *numbers: Any, key: str | None = None) -> Lengths:
    try:
        return build(*numbers)
    except InvalidValue as error:
        raise ValidationError({key: [error.message]} if key else error.message) from None
