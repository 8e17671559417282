"""Schemas of what ``/plans`` answers; they document, the planner writes the documents."""

from __future__ import annotations

from marshmallow import INCLUDE, Schema, fields

from planner.api.plan_schema import PlanSchema


class OpenSchema(Schema):
    """An answer that may carry more fields than are documented."""

    class Meta:
        """Schema options."""

        unknown = INCLUDE


class PercentilesSchema(OpenSchema):
    """A latency [ms]: mean and percentiles over requests."""

    mean = fields.Float(allow_none=True)
    p50 = fields.Float(allow_none=True)
    p90 = fields.Float(allow_none=True)
    p95 = fields.Float(allow_none=True)
    p99 = fields.Float(allow_none=True)


class PoolSchema(OpenSchema):
    """GPUs that do one job: ``serve``, ``prefill`` or ``decode``."""

    role = fields.String()
    gpu = fields.String()
    tensor_parallel = fields.Integer()
    pipeline_parallel = fields.Integer()
    expert_parallel = fields.Integer()
    data_parallel = fields.Integer()
    replicas = fields.Integer()
    spare_replicas = fields.Integer()
    gpus = fields.Integer()
    batch_size = fields.Integer(allow_none=True)
    token_budget = fields.Integer(allow_none=True)
    capacity_rps = fields.Float(allow_none=True)
    utilization = fields.Float(allow_none=True)
    memory = fields.Dict(allow_none=True)


class OptionSchema(OpenSchema):
    """One way to serve the workload."""

    rank = fields.Integer()
    setup = fields.String()
    weights = fields.String()
    kv = fields.String()
    gpus = fields.Integer()
    nodes = fields.Integer()
    pools = fields.List(fields.Nested(PoolSchema))
    ttft_ms = fields.Nested(PercentilesSchema)
    tpot_ms = fields.Nested(PercentilesSchema)
    itl_ms = fields.Nested(PercentilesSchema)
    e2e_ms = fields.Nested(PercentilesSchema)
    headroom = fields.Dict(metadata={
        "description": "Share of each target that is left at its percentile; negative: missed"})
    warnings = fields.List(fields.String(), metadata={
        "description": "Targets that the option misses, a sentence each; empty where it holds"})
    limited_by = fields.String(allow_none=True)
    bound = fields.Dict(allow_none=True)
    usd_per_hour = fields.Float(allow_none=True)
    usd_per_month = fields.Float(allow_none=True)
    usd_per_million_input_tokens = fields.Float(allow_none=True)
    usd_per_million_output_tokens = fields.Float(allow_none=True)
    usd_per_million_tokens = fields.Float(allow_none=True)
    usd_per_request = fields.Float(allow_none=True)
    power_kw = fields.Float(allow_none=True)
    confidence = fields.Dict(allow_none=True)


class InfeasibleSchema(OpenSchema):
    """A combination that cannot serve the workload, and why."""

    setup = fields.String(allow_none=True)
    gpu = fields.String(allow_none=True)
    tensor_parallel = fields.Integer(allow_none=True)
    reason = fields.String()
    detail = fields.Raw(allow_none=True)


class PlanAnswerSchema(OpenSchema):
    """A plan. ``recommended`` is null when nothing meets the targets."""

    id = fields.String(required=True)
    created_at = fields.String(required=True, metadata={"format": "date-time"})
    request = fields.Nested(PlanSchema, required=True)
    recommended = fields.Nested(OptionSchema, required=True, allow_none=True)
    options = fields.List(fields.Nested(OptionSchema), required=True)
    infeasible = fields.List(fields.Nested(InfeasibleSchema), required=True)
    advice = fields.List(fields.Dict(), required=True)
    assumptions = fields.List(fields.Dict(), required=True)


class PlanSummarySchema(Schema):
    """A plan in a list."""

    id = fields.String(required=True)
    created_at = fields.String(required=True, metadata={"format": "date-time"})
    name = fields.String(required=True)
    model = fields.String(required=True)
    options = fields.Integer(required=True)
    setup = fields.String(required=True, allow_none=True)
    gpus = fields.Integer(required=True, allow_none=True)
    usd_per_month = fields.Float(required=True, allow_none=True)


class PointsSchema(Schema):
    """A table of operating points."""

    columns = fields.List(fields.String(), required=True)
    rows = fields.List(fields.List(fields.Raw(allow_none=True)), required=True)


class EstimateAnswerSchema(OpenSchema):
    """One step, or ``steps``, with its terms and the memory of one GPU."""

    step_ms = fields.Float(allow_none=True)
    bound = fields.String(allow_none=True)
    flops = fields.Float(allow_none=True)
    bytes = fields.Float(allow_none=True)
    arithmetic_intensity = fields.Float(allow_none=True)
    ridge_point = fields.Float(allow_none=True)
    terms = fields.List(fields.Dict())
    memory = fields.Dict()
    steps = fields.List(fields.Dict())
