"""The body of ``POST /predictions`` as points to predict. Usable without Flask.

A call may have ten thousand points, and loading each with marshmallow would take longer than
predicting it. So the schema says what a point is, and the list checks each distinct value of a
field once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields

from planner.api.fields import Choice, Number, Text, Whole, name_field, shown, slug_field
from planner.api.plan_answer import OpenSchema
from planner.api.plan_schema import MAX_PARALLEL
from planner.api.validation import StrictSchema, load_document
from planner.precision import KV_PRECISIONS, WEIGHT_PRECISIONS
from planner.prediction import Point, WorkerPool
from planner.requests import SETUPS, Layout

MAX_POINTS = 10_000
MAX_ERRORS = 100
"""Faults that a refusal lists; more would only bury the first."""
MAX_TOKENS = 100_000_000
MAX_REQUESTS = 1_000_000
DEFAULT_ENGINE = "vllm"
_DEGREES = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")


def _degree(**metadata: Any) -> Whole:
    return Whole(lowest=1, highest=MAX_PARALLEL, allow_none=True, metadata=metadata)


class DeploymentSchema(StrictSchema):
    """GPUs of one kind of worker."""

    gpu = slug_field(allow_none=True)
    tensor_parallel = _degree(default=1)
    pipeline_parallel = _degree(default=1)
    expert_parallel = _degree(description="Default: 1, and all GPUs of a replica when its "
                                          "attention is data parallel")
    data_parallel = _degree(default=1, description="Data-parallel attention inside a replica")
    replicas = Whole(lowest=1, highest=100_000, allow_none=True, metadata={"default": 1})


class PointPoolSchema(DeploymentSchema):
    """One pool of a disaggregated point; what it does not say it takes from the point."""

    batch_size = Whole(lowest=1, highest=MAX_REQUESTS, allow_none=True, metadata={
        "description": "Most sequences a rank decodes at once; default: what memory holds"})


class PointSchema(DeploymentSchema):
    """One benchmark point: a deployment, a load and lengths.

    Exactly one of ``concurrency`` (closed loop) and ``requests_per_second`` (open loop). A
    disaggregated point has ``prefill`` and ``decode``, any other a ``gpu``.
    """

    model = name_field(required=True)
    engine = Text(longest=100, shortest=1, allow_none=True, metadata={"default": DEFAULT_ENGINE})
    setup = Choice(SETUPS, allow_none=True, metadata={
        "description": "Default: disaggregated with pools, else chunked for vllm and colocated "
                       "for other engines; all but disaggregated predict alike"})
    weights = Choice(WEIGHT_PRECISIONS, allow_none=True)
    kv = Choice(KV_PRECISIONS, allow_none=True)
    concurrency = Number(lowest=1, highest=MAX_REQUESTS, allow_none=True)
    requests_per_second = Number(above=0, highest=MAX_REQUESTS, allow_none=True)
    prompt_tokens = Number(lowest=1, highest=MAX_TOKENS, required=True)
    output_tokens = Number(lowest=1, highest=MAX_TOKENS, required=True)
    prefill = fields.Nested(PointPoolSchema, allow_none=True)
    decode = fields.Nested(PointPoolSchema, allow_none=True)


class _Reader:
    """Checks objects against the fields of a schema, each distinct value once."""

    def __init__(self, schema: type[Schema]) -> None:
        self.fields: Mapping[str, fields.Field[Any]] = schema().fields
        self.required = [name for name, field in self.fields.items() if field.required]
        self.nested = {name: _Reader(PointPoolSchema) for name, field in self.fields.items()
                       if isinstance(field, fields.Nested)}
        self.known: dict[tuple[str, type, Any], Any] = {}

    def read(self, row: Any) -> dict[str, Any]:
        """The fields of an object that are not null."""
        if not isinstance(row, dict):
            raise ValidationError([f"must be an object, not {shown(row)}"])
        found: dict[str, Any] = {}
        errors: dict[str, Any] = {n: ["is required"] for n in self.required if n not in row}
        for name, value in row.items():
            try:
                found[name] = self._value(name, value)
            except ValidationError as error:
                errors[name] = error.messages
        if errors:
            raise ValidationError(errors)
        return {name: value for name, value in found.items() if value is not None}

    def _value(self, name: str, value: Any) -> Any:
        if name not in self.fields:
            raise ValidationError(["unknown field"])
        if name in self.nested and value is not None:
            return self.nested[name].read(value)
        if not isinstance(value, str | int | float):
            return self.fields[name].deserialize(value)
        key = (name, type(value), value)
        if key not in self.known:
            self.known[key] = self.fields[name].deserialize(value)
        return self.known[key]


class PointList(fields.List[Any]):
    """The points of a call, as :class:`planner.prediction.Point`."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, list):
            raise ValidationError(f"must be a list, not {shown(value)}")
        if not 1 <= len(value) <= MAX_POINTS:
            raise ValidationError(f"must have 1 to {MAX_POINTS} entries, not {len(value)}")
        reader, points, errors = _Reader(PointSchema), [], {}
        for index, row in enumerate(value):
            try:
                points.append(_point(reader.read(row)))
            except ValidationError as error:
                errors[index] = error.messages
                if len(errors) >= MAX_ERRORS:
                    break
        if errors:
            raise ValidationError(errors)
        return points


class PredictionsSchema(StrictSchema):
    """Points to predict."""

    points = PointList(fields.Nested(PointSchema), required=True,
                       metadata={"minItems": 1, "maxItems": MAX_POINTS})


def parse_predictions(document: Any) -> list[Point]:
    """Read the points of a request.

    Raises
    ------
    InvalidDocument
        With a JSON pointer for every field at fault.

    Examples
    --------
    >>> point, = parse_predictions({"points": [{
    ...     "model": "llama-3.1-8b", "gpu": "l4", "concurrency": 8, "prompt_tokens": 1000,
    ...     "output_tokens": 200}]})
    >>> point.engine, point.setup, point.layout.tensor
    ('vllm', 'chunked', 1)
    """
    points: list[Point] = load_document(PredictionsSchema(), document)["points"]
    return points


def _point(row: dict[str, Any]) -> Point:
    """A point from checked fields, and what only the fields together can say."""
    errors = {**_load_errors(row), **_pool_errors(row)}
    if errors:
        raise ValidationError(errors)
    engine = row.get("engine", DEFAULT_ENGINE)
    split = "prefill" in row
    usual = "disaggregated" if split else "chunked" if engine == "vllm" else "colocated"
    return Point(
        row["model"], engine, row["prompt_tokens"], row["output_tokens"], row.get("gpu"),
        _layout(row), row.get("setup", usual), row.get("weights"), row.get("kv"),
        row.get("concurrency"), row.get("requests_per_second"), row.get("replicas", 1),
        _pool(row, "prefill") if split else None, _pool(row, "decode") if split else None)


def _load_errors(row: Mapping[str, Any]) -> dict[str, Any]:
    given = [name for name in ("concurrency", "requests_per_second") if name in row]
    if not given:
        return {"concurrency": ["is required (or requests_per_second)"]}
    if len(given) > 1:
        return {"requests_per_second": ["give only one of concurrency and requests_per_second"]}
    return {}


def _pool_errors(row: Mapping[str, Any]) -> dict[str, Any]:
    pools = [name for name in ("prefill", "decode") if name in row]
    if not pools and row.get("setup") != "disaggregated":
        return {} if "gpu" in row else {"gpu": ["is required"]}
    errors: dict[str, Any] = {name: ["is required: a disaggregated point has both pools"]
                              for name in ("prefill", "decode") if name not in row}
    if row.get("setup", "disaggregated") != "disaggregated":
        errors["setup"] = [f"{row['setup']} has no prefill and decode pools"]
    errors |= {name: {"gpu": ["is required"]} for name in pools
               if "gpu" not in row and "gpu" not in row[name]}
    return errors


def _layout(row: Mapping[str, Any]) -> Layout:
    """The degrees of parallelism; data-parallel attention spreads experts over all ranks."""
    tensor, pipeline, data = (row.get(name, 1) for name in _DEGREES if name[0] != "e")
    return Layout(tensor, pipeline,
                  row.get("expert_parallel", tensor * data if data > 1 else 1), data)


def _pool(row: Mapping[str, Any], role: str) -> WorkerPool:
    own = row[role]
    inherited = {name: row[name] for name in (*_DEGREES, "gpu", "replicas") if name in row}
    pool = {**inherited, **own}
    return WorkerPool(pool["gpu"], _layout(pool), pool.get("replicas", 1), pool.get("batch_size"))


class PredictionSchema(OpenSchema):
    """What a benchmark of the point would show."""

    ttft_ms = fields.Float(required=True, allow_none=True, metadata={
        "description": "null: the queue grows for as long as the run lasts"})
    tpot_ms = fields.Float(required=True, allow_none=True)
    output_tokens_per_s = fields.Float(required=True, allow_none=True)
    output_tokens_per_s_per_gpu = fields.Float(required=True, allow_none=True)
    saturated = fields.Boolean(required=True)
    confidence = fields.Dict(required=True, metadata={
        "description": "level (measured, fitted, extrapolated, assumed) and the median errors of "
                       "the profile on points it was not fitted on, where known"})


class PredictionsAnswerSchema(Schema):
    """One prediction for each point, in the order of the request."""

    points = fields.List(fields.Nested(PredictionSchema), required=True)
