"""``/predictions``: what a benchmark of stated deployments would show."""

from __future__ import annotations

from typing import Any

from flask import Response
from flask.views import MethodView

from planner.api.blueprint import ApiBlueprint
from planner.api.etags import respond
from planner.api.predictions_schema import PredictionsAnswerSchema, PredictionsSchema
from planner.catalog.store import catalog_from_db
from planner.extensions import db
from planner.plain import plain
from planner.prediction import predict

blp = ApiBlueprint("predictions", __name__, "Predicted benchmark points")
EXAMPLE = {"points": [
    {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "engine": "vllm", "weights": "fp8",
     "tensor_parallel": 4, "concurrency": 64, "prompt_tokens": 1024, "output_tokens": 512},
    {"model": "deepseek-v3", "engine": "sglang", "requests_per_second": 4,
     "prompt_tokens": 4096, "output_tokens": 512,
     "prefill": {"gpu": "h200-sxm-141gb", "tensor_parallel": 8, "replicas": 2},
     "decode": {"gpu": "h200-sxm-141gb", "data_parallel": 8}},
]}


@blp.route("/predictions")
class Predictions(MethodView):
    """Predictions are computed, not stored."""

    @blp.create(PredictionsSchema, PredictionsAnswerSchema, status=200, example=EXAMPLE)
    def post(self, data: dict[str, Any]) -> Response:
        """TTFT, TPOT and throughput of up to 10,000 benchmark points."""
        return respond({"points": plain(predict(data["points"], catalog_from_db(db.session)))})
