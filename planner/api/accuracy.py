"""``/accuracy``: predicted against measured."""

from __future__ import annotations

from typing import Any

from flask import Response
from flask.views import MethodView
from marshmallow import Schema, fields

from planner.api.blueprint import ApiBlueprint
from planner.api.etags import respond
from planner.api.fields import Choice
from planner.api.plan_answer import OpenSchema
from planner.api.validation import StrictSchema
from planner.calibration.report import DIMENSIONS, accuracy_report
from planner.catalog.store import catalog_from_db
from planner.extensions import db
from planner.plain import plain

blp = ApiBlueprint("accuracy", __name__, "Predicted against measured")


class AccuracyQuery(StrictSchema):
    """Which breakdown to show."""

    by = Choice((*DIMENSIONS, "phase"), metadata={"description": "Only this one; default: all"})


class StatisticsSchema(OpenSchema):
    """Errors of one metric on some points, as shares; bias is the median signed error."""

    name = fields.String()
    metric = fields.String()
    points = fields.Integer(required=True)
    coverage = fields.Float(required=True)
    median_ape = fields.Float(required=True, allow_none=True)
    mean_ape = fields.Float(required=True, allow_none=True)
    p90_ape = fields.Float(required=True, allow_none=True)
    bias = fields.Float(required=True, allow_none=True)


class LeftOutSchema(Schema):
    """Errors where a fit had not seen the configuration, model or GPU (sample: it had)."""

    kind = fields.String(required=True)
    name = fields.String(required=True)
    engine = fields.String(required=True)
    n = fields.Integer(required=True)
    tpot_median = fields.Float(required=True)
    tpot_mean = fields.Float(required=True)
    ttft_median = fields.Float(required=True)


class AccuracySchema(Schema):
    """The accuracy report."""

    golden = fields.Dict(required=True)
    overall = fields.Dict(keys=fields.String(), values=fields.Nested(StatisticsSchema),
                          required=True)
    by = fields.Dict(keys=fields.String(), values=fields.List(fields.Nested(StatisticsSchema)),
                     required=True)
    throughput = fields.List(fields.Nested(StatisticsSchema), required=True)
    left_out = fields.List(fields.Nested(LeftOutSchema), required=True)
    profiles = fields.List(fields.Dict(), required=True)
    peer = fields.Dict(required=True)


@blp.route("/accuracy")
class Accuracy(MethodView):
    """The errors of the stored profiles."""

    @blp.read(AccuracySchema, query=AccuracyQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """Errors on published points, overall and by GPU, engine, model, set-up and phase."""
        return respond(plain(accuracy_report(catalog_from_db(db.session), args.get("by"))))
