"""``/estimates``: one engine step, or many."""

from __future__ import annotations

from typing import Any

from flask import Response
from flask.views import MethodView

from planner.api.blueprint import ApiBlueprint
from planner.api.estimate_schema import EstimateSchema, estimate_of
from planner.api.etags import respond
from planner.api.plan_answer import EstimateAnswerSchema
from planner.api.plan_service import estimate
from planner.catalog.store import catalog_from_db
from planner.extensions import db

blp = ApiBlueprint("estimates", __name__, "Single engine steps")
EXAMPLE = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "weights": "bf16", "kv": "bf16",
    "fidelity": "napkin", "engine": "ideal",
    "batch": {"decodes": 32, "context_tokens": 1500, "prefill_tokens": 0},
}


@blp.route("/estimates")
class Estimates(MethodView):
    """Estimates are computed, not stored."""

    @blp.create(EstimateSchema, EstimateAnswerSchema, status=200, example=EXAMPLE)
    def post(self, data: dict[str, Any]) -> Response:
        """Time, terms and memory of one engine step, or of every step of a list."""
        return respond(estimate(estimate_of(data), catalog_from_db(db.session)))
