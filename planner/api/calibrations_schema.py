"""What ``POST /calibrations`` takes, as measured points with their defaults. No Flask here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from marshmallow import Schema, ValidationError, fields, validates_schema

from planner.api.engines import EngineSchema
from planner.api.fields import Choice, Flag, Number, Text, Whole, name_field, shown, slug_field
from planner.api.plan_schema import MAX_PARALLEL
from planner.api.validation import InvalidDocument, StrictSchema, escape, load_document
from planner.calibration.points import DEPLOYMENT, LOADS, MeasuredPoint, with_defaults
from planner.calibration.readers import read, rows
from planner.calibration.readers.columns import column_of
from planner.calibration.readers.entry import Entry
from planner.calibration.screening import Rejection
from planner.catalog.book import Catalog
from planner.errors import InvalidValue, PlannerError
from planner.precision import KV_PRECISIONS, WEIGHT_PRECISIONS
from planner.requests import SETUPS

MAX_POINTS = 2_000
"""Results of one call."""
MAX_FILES = 50


def _degree() -> Whole:
    return Whole(lowest=1, highest=MAX_PARALLEL, allow_none=True)


class DefaultsSchema(StrictSchema):
    """What was measured, where the results do not say it, and what to do with the profile."""

    model = name_field(allow_none=True)
    gpu = slug_field(allow_none=True)
    engine = Text(longest=100, shortest=1, allow_none=True)
    engine_version = Text(longest=100, allow_none=True)
    setup = Choice(SETUPS, allow_none=True)
    weights = Choice(WEIGHT_PRECISIONS, allow_none=True, metadata={
        "description": "Default: what the model ships in"})
    kv = Choice(KV_PRECISIONS, allow_none=True)
    tensor_parallel = _degree()
    pipeline_parallel = _degree()
    expert_parallel = _degree()
    data_parallel = _degree()
    concurrency = Number(lowest=1, highest=1e6, allow_none=True)
    requests_per_second = Number(above=0, highest=1e6, allow_none=True)
    slug = slug_field(allow_none=True, metadata={
        "description": "Name of the new profile; default <engine>-<gpu>-<precision>-custom"})
    save = Flag(load_default=False, metadata={"description": "Store the profile under /engines"})

    @validates_schema
    def _one_load(self, data: dict[str, Any], **_: Any) -> None:
        if all(data.get(name) is not None for name in LOADS):
            raise ValidationError("give only one of concurrency and requests_per_second",
                                  "requests_per_second")


class CalibrationSchema(DefaultsSchema):
    """Results as rows; their names are those of the columns of a plain CSV."""

    points = fields.List(fields.Dict(), required=True, metadata={
        "minItems": 1, "maxItems": MAX_POINTS})

    @validates_schema(skip_on_field_errors=False)
    def _few(self, data: dict[str, Any], **_: Any) -> None:
        if "points" in data and not 1 <= len(data["points"]) <= MAX_POINTS:
            raise ValidationError(
                f"must have 1 to {MAX_POINTS} entries, not {len(data['points'])}", "points")


class CalibrationFormSchema(DefaultsSchema):
    """Result files with the same defaults as form fields."""

    files = fields.List(fields.String(metadata={"format": "binary"}), metadata={
        "minItems": 1, "maxItems": MAX_FILES,
        "description": "vllm bench serve, SGLang bench_serving, GuideLLM, AIPerf, trtllm-bench, "
                       "or plain CSV; the format is recognised"})


class RejectedSchema(Schema):
    """A result that was not used."""

    source = fields.String(required=True)
    code = fields.String(required=True)
    reason = fields.String(required=True)


class MedianErrorsSchema(Schema):
    """Median absolute relative errors on the results that were used."""

    tpot_error = fields.Float(required=True, allow_none=True)
    ttft_error = fields.Float(required=True, allow_none=True)


class CalibrationAnswerSchema(Schema):
    """The new profiles, and what they gain."""

    profiles = fields.List(fields.Nested(EngineSchema), required=True)
    before = fields.Nested(MedianErrorsSchema, required=True)
    after = fields.Nested(MedianErrorsSchema, required=True)
    kept = fields.Integer(required=True)
    rejected = fields.List(fields.Nested(RejectedSchema), required=True)
    saved = fields.Boolean(required=True)


# -- reading ------------------------------------------------------------------------------------


def form_defaults(form: Mapping[str, str]) -> dict[str, Any]:
    """Form fields as checked defaults; all of a form is text.

    Raises
    ------
    InvalidDocument

    Examples
    --------
    >>> found = form_defaults({"tensor_parallel": "4", "save": "true"})
    >>> found["tensor_parallel"], found["save"]
    (4, True)
    """
    texts = {name or "": text.strip() for name, text in form.items()}
    return load_document(DefaultsSchema(), {
        name: _typed(name, text) for name, text in texts.items() if text})


def _typed(name: str, text: str) -> Any:
    """The JSON value that a form field means; what is none stays text, to be refused."""
    if name == "save":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if not (name.endswith("_parallel") or name in LOADS):
        return text
    try:
        return float(text)
    except ValueError:
        return text


def row_points(found: Sequence[Mapping[str, Any]]) -> list[MeasuredPoint]:
    """Points of plain rows.

    Raises
    ------
    InvalidDocument
        With the pointer of every row or field at fault.
    """
    points, errors = [], []
    for index, row in enumerate(found):
        try:
            points.append(_row_point(row, f"/points/{index}"))
        except InvalidDocument as error:
            errors += error.errors
        except InvalidValue as error:
            errors.append(_field_at_fault(error.message, f"/points/{index}"))
    if errors:
        raise InvalidDocument(errors[:100])
    return points


def _field_at_fault(message: str, place: str) -> tuple[str, str]:
    """Pointer and message of a reader's error: ``<place>, <field>: <message>``."""
    name, _, reason = message.removeprefix(f"{place}, ").partition(": ")
    return f"{place}/{escape(name)}", reason


def _row_point(row: Mapping[str, Any], place: str) -> MeasuredPoint:
    values = {name: value for name, value in row.items() if value is not None}
    label = values.pop("source", None)
    if label is not None and not (isinstance(label, str) and label.isprintable()):
        message = f"must be one line of text, not {shown(label)}"
        raise InvalidDocument([(f"{place}/source", message)])
    unknown = [name for name in values if column_of(name) is None]
    if unknown:
        raise InvalidDocument([(f"{place}/{escape(n)}", "unknown field") for n in unknown])
    if not rows.matches(values):
        known = {c.name for name in values if (c := column_of(name))}
        raise InvalidDocument([(f"{place}/{shown_name}", "is required")
                               for name, shown_name in rows.NEEDED.items() if name not in known])
    source = place.lstrip("/") if label is None else label[:200]
    return replace(rows.read(Entry(place, values))[0], source=source)


def file_points(files: Iterable[tuple[str, bytes]]) -> list[MeasuredPoint]:
    """Points of result files.

    Raises
    ------
    InvalidValue
        For a file that cannot be read, and for too many files or results.
    """
    points: list[MeasuredPoint] = []
    count = 0
    for count, (name, content) in enumerate(files, 1):
        if count > MAX_FILES:
            raise InvalidValue(f"more than {MAX_FILES} files", "/files")
        try:
            points += read(name, content)
        except InvalidValue as error:
            raise InvalidValue(error.message, "/files") from None
        if len(points) > MAX_POINTS:
            raise InvalidValue(f"more than {MAX_POINTS} results", "/files")
    if not count:
        raise InvalidValue("is required: at least one result file", "/files")
    return points


def filled(points: Iterable[MeasuredPoint], options: Mapping[str, Any], catalog: Catalog
           ) -> tuple[list[MeasuredPoint], list[Rejection]]:
    """Points with the defaults filled in, and those that still lack something."""
    defaults = {name: options[name] for name in (*DEPLOYMENT, *LOADS)
                if options.get(name) is not None}
    whole, lacking = [], []
    for point in points:
        own = {**_native(point.model or defaults.get("model"), catalog), **defaults}
        try:
            whole += with_defaults([point], own)
        except InvalidValue as error:
            lacking.append(Rejection(point, "incomplete", error.message))
    return whole, lacking


def _native(model: str | None, catalog: Catalog) -> dict[str, Any]:
    """What a model ships in."""
    try:
        llm = catalog.llm(model or "")
    except PlannerError:
        return {}
    return {"weights": llm.native_precision, "kv": llm.native_kv}


def rejections(found: Iterable[Rejection]) -> Iterator[dict[str, str]]:
    """Rejections as documents."""
    for rejection in found:
        yield {"source": rejection.point.source, "code": rejection.code,
               "reason": rejection.reason}
