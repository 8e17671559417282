"""The body of ``POST /estimates`` as an :class:`EstimateRequest`. Usable without Flask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, validates_schema

from planner.api.fields import Choice, Number, Text, Whole, name_field, slug_field
from planner.api.plan_schema import (
    FIDELITIES,
    LayoutSchema,
    SpeculativeSchema,
    layout_of,
)
from planner.api.validation import StrictSchema, load_document
from planner.precision import KV_PRECISIONS, WEIGHT_PRECISIONS
from planner.requests import Batch, EstimateRequest, Speculative

MAX_BATCHES = 10_000
MAX_SEQUENCES = 1_000_000
MAX_TOKENS = 100_000_000


class BatchSchema(StrictSchema):
    """What one engine step computes."""

    decodes = Whole(lowest=0, highest=MAX_SEQUENCES, load_default=0, metadata={
        "description": "Sequences that get one token each"})
    context_tokens = Number(lowest=0, highest=MAX_TOKENS, load_default=0.0, metadata={
        "description": "Mean context of the decodes"})
    prefill_tokens = Number(lowest=0, highest=MAX_TOKENS, load_default=0.0, metadata={
        "description": "New prompt tokens, all prefills together"})
    prefill_sequences = Whole(lowest=1, highest=MAX_SEQUENCES, load_default=1)
    cached_tokens = Number(lowest=0, highest=MAX_TOKENS, load_default=0.0, metadata={
        "description": "Prompt tokens of each prefill that are in the cache already"})

    @validates_schema
    def _some_work(self, data: dict[str, Any], **_: Any) -> None:
        if not data["decodes"] and not data["prefill_tokens"]:
            raise ValidationError("must be above 0 unless prefill_tokens is", "decodes")


class EstimateSchema(LayoutSchema):
    """One engine step under ``batch``, or many under ``batches``."""

    model = name_field(required=True)
    gpu = slug_field(required=True)
    weights = Choice(WEIGHT_PRECISIONS, allow_none=True, load_default=None)
    kv = Choice(KV_PRECISIONS, allow_none=True, load_default=None)
    fidelity = Choice(FIDELITIES, load_default="operator")
    engine = Text(longest=100, shortest=1, load_default="vllm")
    batch = fields.Nested(BatchSchema)
    batches = fields.List(fields.Nested(BatchSchema), metadata={
        "minItems": 1, "maxItems": MAX_BATCHES})
    memory_utilization = Number(above=0, highest=1, allow_none=True, load_default=None)
    power_cap_w = Number(above=0, highest=1e5, allow_none=True, load_default=None)
    max_sequences = Whole(lowest=1, highest=MAX_SEQUENCES, allow_none=True, load_default=None)
    max_batched_tokens = Whole(lowest=1, highest=MAX_TOKENS, allow_none=True, load_default=None)
    speculative = fields.Nested(SpeculativeSchema, allow_none=True, load_default=None)
    prompt_tokens = Whole(lowest=1, highest=MAX_TOKENS, allow_none=True, load_default=None)
    output_tokens = Whole(lowest=1, highest=MAX_TOKENS, allow_none=True, load_default=None)

    @validates_schema(skip_on_field_errors=False)
    def _one_kind(self, data: dict[str, Any], **_: Any) -> None:
        if "batch" in data and "batches" in data:
            raise ValidationError("give only one of batch and batches", "batches")
        if "batches" in data and not 1 <= len(data["batches"]) <= MAX_BATCHES:
            raise ValidationError(
                f"must have 1 to {MAX_BATCHES} entries, not {len(data['batches'])}", "batches")

    @validates_schema
    def _some_kind(self, data: dict[str, Any], **_: Any) -> None:
        if "batch" not in data and "batches" not in data:
            raise ValidationError("is required (or batches)", "batch")


_PARALLEL = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
_SPECIAL = {*_PARALLEL, "batch", "batches", "speculative"}


def parse_estimate(document: Any) -> EstimateRequest:
    """Read an estimate request.

    Raises
    ------
    InvalidDocument
        With a JSON pointer for every field at fault.

    Examples
    --------
    >>> parse_estimate({"model": "llama-3.1-8b", "gpu": "l4", "batch": {"decodes": 8}}).batches[0]
    Batch(decodes=8, context_tokens=0.0, prefill_tokens=0.0, prefill_sequences=1, cached_tokens=0.0)
    """
    return estimate_of(load_document(EstimateSchema(), document))


def estimate_of(data: Mapping[str, Any]) -> EstimateRequest:
    """An estimate request from a document that :class:`EstimateSchema` has loaded."""
    many = "batches" in data
    rows = data["batches"] if many else [data["batch"]]
    plain = {k: v for k, v in data.items() if k not in _SPECIAL}
    speculative = data["speculative"]
    return EstimateRequest(
        **plain,
        batches=tuple(Batch(**row) for row in rows),
        layout=layout_of(data),
        speculative=Speculative(**speculative) if speculative else None,
        many=many,
    )
