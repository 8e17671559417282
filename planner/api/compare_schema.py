"""What ``POST /plans/compare`` takes and answers. No Flask here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields, validates_schema

from planner.api.fields import Entries, Text
from planner.api.plan_answer import OptionSchema
from planner.api.plan_schema import PlanSchema
from planner.api.validation import StrictSchema

MAX_PLANS = 8
"""Plans side by side."""


class PlanOrId(fields.Field[Any]):
    """A plan request, or the id of a stored plan."""

    def __init__(self, **kwargs: Any) -> None:
        doc = {"oneOf": [{"$ref": "#/components/schemas/Plan"},
                         {"type": "string", "minLength": 1, "maxLength": 100}],
               "description": "A plan request, or the id of a stored plan"}
        super().__init__(metadata=doc, **kwargs)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if isinstance(value, str):
            return Text(longest=100, shortest=1).deserialize(value)
        if not isinstance(value, Mapping):
            raise ValidationError("must be a plan request or the id of a stored plan")
        PlanSchema().load(value)
        return dict(value)


class ScenarioSchema(StrictSchema):
    """A change of the base, as a JSON merge patch (RFC 7396) of its request."""

    name = Text(longest=200, load_default="")
    changes = fields.Dict(keys=fields.String(), required=True, metadata={
        "description": "Fields to replace; null takes one away"})


class CompareSchema(StrictSchema):
    """Two or more plans: ``plans``, or a ``base`` with ``scenarios``."""

    plans = Entries(PlanOrId(), shortest=2, longest=MAX_PLANS)
    base = PlanOrId()
    scenarios = Entries(fields.Nested(ScenarioSchema), shortest=1, longest=MAX_PLANS - 1)

    @validates_schema(skip_on_field_errors=False, pass_original=True)
    def _one_form(self, data: dict[str, Any], original: Any, **_: Any) -> None:
        given = original if isinstance(original, Mapping) else data
        if "plans" in given and ("base" in given or "scenarios" in given):
            raise ValidationError("give plans, or base with scenarios, not both", "plans")
        if "plans" in given:
            return
        if "base" not in given and "scenarios" not in given:
            raise ValidationError("is required (or base with scenarios)", "plans")
        if "base" not in given:
            raise ValidationError("is required with scenarios", "base")
        if "scenarios" not in given:
            raise ValidationError(f"must have 1 to {MAX_PLANS - 1} entries, not 0", "scenarios")


class ComparedPlanSchema(Schema):
    """One of the plans; ``id`` is null for one that is not stored."""

    id = fields.String(required=True, allow_none=True)
    name = fields.String(required=True)
    request = fields.Nested(PlanSchema, required=True)
    recommended = fields.Nested(OptionSchema, required=True, allow_none=True)
    reason = fields.String(required=True)


class DifferenceSchema(Schema):
    """A field of the request in which the plans differ; null where one lacks it."""

    field = fields.String(required=True)
    values = fields.List(fields.Raw(allow_none=True), required=True)


class _ChangeSchema(Schema):
    gpus_before = fields.Integer(required=True, allow_none=True)
    gpus_after = fields.Integer(required=True, allow_none=True)
    gpus_change = fields.Integer(required=True, allow_none=True)
    usd_per_hour_before = fields.Float(required=True, allow_none=True)
    usd_per_hour_after = fields.Float(required=True, allow_none=True)
    usd_per_hour_change = fields.Float(required=True, allow_none=True)
    usd_per_month_before = fields.Float(required=True, allow_none=True)
    usd_per_month_after = fields.Float(required=True, allow_none=True)
    usd_per_month_change = fields.Float(required=True, allow_none=True)


class BridgeStepSchema(_ChangeSchema):
    """One step: the parts of the request that it replaced, and what that changed."""

    parts = fields.List(fields.String(), required=True)


class BridgeSchema(_ChangeSchema):
    """Why a plan differs from the first; no steps where one of the two has no option."""

    plan = fields.Integer(required=True, metadata={"description": "Place in plans, from 0"})
    steps = fields.List(fields.Nested(BridgeStepSchema), required=True)
    reason = fields.String(required=True, allow_none=True)


class ComparisonSchema(Schema):
    """Plans side by side, what differs in the requests, and a bridge to each from the first."""

    plans = fields.List(fields.Nested(ComparedPlanSchema), required=True)
    differences = fields.List(fields.Nested(DifferenceSchema), required=True)
    bridges = fields.List(fields.Nested(BridgeSchema), required=True)
