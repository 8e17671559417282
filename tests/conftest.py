"""One migrated, loaded database a session: SQLite, or the PostgreSQL of TEST_DATABASE_URL."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flask import Flask
from flask.testing import FlaskClient
from flask_migrate import downgrade, upgrade

from app import create_app
from planner.catalog.store import load_catalog
from planner.extensions import db


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    default = f"sqlite:///{tmp_path_factory.mktemp('db')}/test.sqlite3"
    return os.environ.get("TEST_DATABASE_URL", default)


@pytest.fixture(scope="session")
def app(database_url: str) -> Iterator[Flask]:
    app = create_app({"DATABASE_URL": database_url, "PLANNER_LOG_LEVEL": "error",
                      "PLANNER_EXECUTOR": "none"})
    with app.app_context():
        if "TEST_DATABASE_URL" in os.environ:
            downgrade(revision="base")
        upgrade()
        load_catalog(db.session)
    yield app
    with app.app_context():
        db.engine.dispose()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The specification of an app of its own: what is posted here must not meet other tests."""
    import schemathesis  # imported late: few tests need it and it is slow to load

    url = f"sqlite:///{tmp_path_factory.mktemp('spec')}/spec.sqlite3"
    app = create_app({"DATABASE_URL": url, "PLANNER_LOG_LEVEL": "error",
                      "PLANNER_EXECUTOR": "none"})
    with app.app_context():
        upgrade()
        load_catalog(db.session)
    yield schemathesis.openapi.from_wsgi("/api/v1/openapi.json", app)
    with app.app_context():
        db.engine.dispose()


OPTION: dict[str, Any] = {
    "rank": 1, "setup": "chunked", "weights": "fp8", "kv": "fp8", "gpus": 4, "nodes": 1,
    "pools": [{"role": "serve", "gpu": "h100-sxm-80gb", "tensor_parallel": 2,
               "pipeline_parallel": 1, "expert_parallel": 1, "data_parallel": 1, "replicas": 2,
               "spare_replicas": 0, "gpus": 4, "batch_size": 32, "token_budget": 512,
               "capacity_rps": 3.0, "utilization": 0.7, "memory": {"fits": True}}],
    **{metric: {"mean": 1.0, "p50": 1.0, "p90": 2.0, "p95": 2.5, "p99": float("nan")}
       for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")},
    "limited_by": "tpot", "bound": {"prefill": "compute", "decode": "memory"},
    "usd_per_hour": 8.0, "usd_per_month": 5840.0, "usd_per_million_tokens": 1.5,
    "power_kw": 2.8, "confidence": {"level": "assumed"},
}


class StubResult:
    """What a planner answers, small and fixed."""

    def __init__(self, request: Any) -> None:
        self.request = request

    def document(self) -> dict[str, Any]:
        options = [OPTION, {**OPTION, "rank": 2, "setup": "static", "usd_per_hour": 10.0}]
        return {"recommended": OPTION, "options": options,
                "infeasible": [{"setup": "static", "gpu": "l4", "tensor_parallel": 1,
                                "reason": "memory", "detail": "short of 3 GiB"}],
                "advice": [], "assumptions": [{"name": "pue", "value": 1.3, "unit": "",
                                               "source": "default"}]}

    def snapshot(self) -> dict[str, Any]:
        return {"gpus": ["h100-sxm-80gb"]}

    def points(self, setup: str | None = None, gpu: str | None = None) -> dict[str, Any]:
        return {"columns": ["setup", "gpu", "batch", "tpot_ms"],
                "rows": [["chunked", "h100-sxm-80gb", 1, 5.0], ["static", "l4", 2, 9.0]]}


@pytest.fixture
def stub_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that answers at once, so that the API is tested by itself."""
    planning = types.ModuleType("planner.planning")
    planning.make_plan = lambda request, catalog: StubResult(request)  # type: ignore[attr-defined]
    estimate = types.ModuleType("planner.estimate")
    estimate.make_estimate = _stub_estimate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "planner.planning", planning)
    monkeypatch.setitem(sys.modules, "planner.estimate", estimate)
    monkeypatch.setattr("planner.workbook.write_plan", lambda *_: b"PK-xlsx", raising=False)


def _stub_estimate(request: Any, catalog: Any) -> dict[str, Any]:
    step = {"step_ms": 6.67, "bound": "memory", "flops": 1.0, "bytes": 2.0,
            "arithmetic_intensity": 0.5, "ridge_point": 295.0,
            "terms": [{"name": "weights", "flops": 1.0, "bytes": 2.0, "ms": 6.67,
                       "bound": "memory"}],
            "memory": {"physical_gib": 79.6, "fits": True}}
    return {"steps": [step for _ in request.batches]} if request.many else step


TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 1024, "vocab_size": 32000, "max_position_embeddings": 8192,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}


@pytest.fixture
def tiny_config() -> dict[str, Any]:
    return dict(TINY_CONFIG)


@pytest.fixture
def tiny(client: FlaskClient, tiny_config: dict[str, Any]) -> str:
    """A small model in the catalog; its slug."""
    if client.get("/api/v1/models/tiny").status_code == 404:
        body = {"slug": "tiny", "hf_id": "Lab/Tiny-1", "aliases": ["Lab/Tiny-1-Instruct"],
                "hf_config": tiny_config}
        assert client.post("/api/v1/models", json=body).status_code == 201
    return "tiny"


@pytest.fixture
def plan_body(tiny: str) -> dict[str, Any]:
    return {"name": "chat", "model": tiny, "slo": {"ttft_ms": 1000, "tpot_ms": 50},
            "workload": {"requests_per_second": 2, "prompt_tokens": {"mean": 1000, "p95": 3000},
                         "output_tokens": 200}}
