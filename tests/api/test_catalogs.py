"""List, read, create, replace, delete: the same flow in every catalog."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

GPU = {"slug": "test-gpu", "name": "Test GPU", "vendor": "Acme", "architecture": "Hopper",
       "memory_gib": 79.6, "memory_bandwidth_gb_per_s": 3350,
       "dense_tflops": {"bf16": 989, "fp8": 1979}}
PRICE = {"id": "test-price", "gpu": "h100-sxm-80gb", "provider": "Acme", "commitment": "owned",
         "usd_per_gpu_hour": 1.234567, "as_of": "2026-10-01", "source": "invoice"}
ENGINE = {"slug": "test-engine", "engine": "acme", "mfu": 0.6, "obtained": "measured",
          "tpot_error": 0.08}
WORKLOAD = {"slug": "test-workload", "name": "Chat",
            "workload": {"requests_per_second": 3, "prompt_tokens": 900,
                         "output_tokens": {"p50": 100, "p95": 400}},
            "slo": {"ttft_ms": 500}}
CATALOGS = [("gpus", "slug", GPU, {"name": "Renamed"}),
            ("prices", "id", PRICE, {"usd_per_gpu_hour": 2.5}),
            ("engines", "slug", ENGINE, {"mfu": 0.7}),
            ("workloads", "slug", WORKLOAD, {"name": "Renamed"})]


@pytest.mark.parametrize(("path", "key", "body", "change"), CATALOGS, ids=[c[0] for c in CATALOGS])
def test_life_of_a_row(client: FlaskClient, path: str, key: str, body: dict[str, Any],
                       change: dict[str, Any]) -> None:
    url = f"/api/v1/{path}/{body[key]}"
    made = client.post(f"/api/v1/{path}", json=body)
    assert made.status_code == 201, made.text
    assert made.headers["Location"] == url
    assert made.json is not None
    assert body.items() <= {**made.json, "dense_tflops": body.get("dense_tflops")}.items() or (
        path == "workloads")
    assert client.post(f"/api/v1/{path}", json=body).status_code == 409

    read = client.get(url)
    tag = read.headers["ETag"]
    assert read.json == made.json
    assert tag == made.headers["ETag"]
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 304

    new = {**read.json, **change}
    assert client.put(url, json=new).status_code == 428
    assert client.put(url, json=new, headers={"If-Match": '"stale"'}).status_code == 412
    put = client.put(url, json=new, headers={"If-Match": tag})
    assert put.status_code == 200, put.text
    assert change.items() <= put.json.items()
    assert client.put(url, json=new, headers={"If-Match": tag}).status_code == 412
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 200

    assert client.delete(url).status_code == 428
    assert client.delete(url, headers={"If-Match": tag}).status_code == 412
    gone = client.delete(url, headers={"If-Match": put.headers["ETag"]})
    assert (gone.status_code, gone.data) == (204, b"")
    assert client.get(url).status_code == 404
    assert client.delete(url, headers={"If-Match": tag}).status_code == 404


@pytest.mark.parametrize(("path", "key", "body", "change"), CATALOGS, ids=[c[0] for c in CATALOGS])
def test_the_key_of_a_row_cannot_change(client: FlaskClient, path: str, key: str,
                                        body: dict[str, Any], change: dict[str, Any]) -> None:
    url = f"/api/v1/{path}/{body[key]}"
    tag = client.post(f"/api/v1/{path}", json=body).headers["ETag"]
    answer = client.put(url, json={**body, key: "another"}, headers={"If-Match": tag})
    assert answer.status_code == 422
    assert answer.json["errors"][0]["pointer"] == f"/{key}"
    assert client.delete(url, headers={"If-Match": tag}).status_code == 204


def test_gpu_fields(client: FlaskClient) -> None:
    gpu = client.get("/api/v1/gpus/h100-sxm-80gb").json
    assert gpu["memory_gib"] == pytest.approx(81559 / 1024, rel=0.01)  # nvidia-smi: 81,559 MiB
    assert gpu["dense_tflops"] == {"bf16": 989.5, "fp8": 1979.0, "int8": 1979.0, "fp4": None,
                                   "tf32": 494.5}
    assert (gpu["link_gb_per_s"], gpu["link_domain_gpus"], gpu["node_gpus"]) == (450.0, 8, 8)
    assert gpu["source_url"].startswith("https://")


def test_a_posted_gpu_gets_defaults(client: FlaskClient) -> None:
    made = client.post("/api/v1/gpus", json={**GPU, "slug": "plain-gpu"})
    assert made.json["marketed_memory_gb"] == 80.0
    assert (made.json["node_gpus"], made.json["link_domain_gpus"]) == (8, 1)
    assert made.json["dense_tflops"]["fp4"] is None
    url = made.headers["Location"]
    assert client.delete(url, headers={"If-Match": made.headers["ETag"]}).status_code == 204


def test_a_gpu_with_prices_stays(client: FlaskClient) -> None:
    url = "/api/v1/gpus/l40s"
    tag = client.get(url).headers["ETag"]
    answer = client.delete(url, headers={"If-Match": tag})
    assert answer.status_code == 409
    assert client.get(url).status_code == 200


def test_a_price_needs_a_known_gpu(client: FlaskClient) -> None:
    answer = client.post("/api/v1/prices", json={**PRICE, "gpu": "nothing"})
    assert answer.status_code == 422
    assert answer.json["type"].endswith("#not-in-catalog")
    assert answer.json["errors"][0]["pointer"] == "/gpu"


def test_a_price_without_id_gets_one(client: FlaskClient) -> None:
    made = client.post("/api/v1/prices", json={k: v for k, v in PRICE.items() if k != "id"})
    assert made.status_code == 201
    assert len(made.json["id"]) == 36
    client.delete(made.headers["Location"], headers={"If-Match": made.headers["ETag"]})


def test_pages_follow_each_other(client: FlaskClient) -> None:
    url, seen = "/api/v1/gpus?limit=20", []
    while url:
        page = client.get(url).json
        assert page["total"] == 46
        seen += [g["slug"] for g in page["items"]]
        url = page["next"]
    assert len(seen) == len(set(seen)) == 46


def test_filters_stay_in_next(client: FlaskClient) -> None:
    page = client.get("/api/v1/prices?gpu=h100-sxm-80gb&commitment=on_demand&limit=2").json
    assert "gpu=h100-sxm-80gb" in page["next"]
    assert all(p["gpu"] == "h100-sxm-80gb" for p in client.get(page["next"]).json["items"])


@pytest.mark.parametrize(("url", "slugs"), [
    ("/api/v1/gpus?q=H200", {"h200-sxm-141gb", "h200-nvl-141gb", "gh200-96gb"}),
    ("/api/v1/gpus?q=%25", set()),
    ("/api/v1/gpus?q=_", set()),
])
def test_search(client: FlaskClient, url: str, slugs: set[str]) -> None:
    assert {g["slug"] for g in client.get(url).json["items"]} == slugs


def test_lists_have_tags(client: FlaskClient) -> None:
    tag = client.get("/api/v1/gpus").headers["ETag"]
    assert client.get("/api/v1/gpus", headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=100000", "offset=-1", "limit=1.5",
                                   "colour=red", "limit=", "offset=99999999999999999999"])
def test_bad_pages_are_refused(client: FlaskClient, query: str) -> None:
    answer = client.get(f"/api/v1/gpus?{query}")
    assert answer.status_code == 422
    assert answer.json["errors"][0]["parameter"] == query.split("=")[0]


@pytest.mark.parametrize(("change", "pointer"), [
    ({"memory_gib": 0}, "/memory_gib"),
    ({"memory_gib": True}, "/memory_gib"),
    ({"memory_gib": "80"}, "/memory_gib"),
    ({"memory_gib": None}, "/memory_gib"),
    ({"dense_tflops": {"fp8": 1}}, "/dense_tflops/bf16"),
    ({"dense_tflops": {"bf16": 1, "fp6": 2}}, "/dense_tflops/fp6"),
    ({"dense_tflops": 5}, "/dense_tflops"),
    ({"link_domain_gpus": 8}, "/link_gb_per_s"),
    ({"node_gpus": 8.5}, "/node_gpus"),
    ({"slug": "Has Space"}, "/slug"),
    ({"name": "nul\x00"}, "/name"),
    ({"name": "\ud800"}, "/name"),
    ({"colour/shade": "red"}, "/colour~1shade"),
])
def test_bad_gpus_are_refused(client: FlaskClient, change: dict[str, Any], pointer: str) -> None:
    answer = client.post("/api/v1/gpus", json={**GPU, **change})
    assert answer.status_code == 422, answer.text
    assert [e["pointer"] for e in answer.json["errors"]] == [pointer]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_no_number_is_no_number(client: FlaskClient, number: str) -> None:
    text = json.dumps({**GPU, "memory_gib": 0.125}).replace("0.125", number)
    answer = client.post("/api/v1/gpus", data=text, content_type="application/json")
    assert answer.status_code == 422
    assert answer.json["errors"][0]["pointer"] == "/memory_gib"
    assert "a number above 0" in answer.json["errors"][0]["message"]


def test_engine_profiles_are_complete(client: FlaskClient) -> None:
    ideal = client.get("/api/v1/engines/ideal").json
    assert (ideal["mfu"], ideal["step_s"], ideal["obtained"]) == (1.0, 0.0, "assumed")


@pytest.mark.parametrize(("change", "pointer"), [({"mfu": 1.2}, "/mfu"), ({"mbu": 0}, "/mbu"),
                                                 ({"obtained": "guessed"}, "/obtained"),
                                                 ({"expert_imbalance": 0.5}, "/expert_imbalance"),
                                                 ({"block_tokens": 0}, "/block_tokens")])
def test_bad_engines_are_refused(client: FlaskClient, change: dict[str, Any],
                                 pointer: str) -> None:
    answer = client.post("/api/v1/engines", json={**ENGINE, **change})
    assert [e["pointer"] for e in answer.json["errors"]] == [pointer]


@pytest.mark.parametrize(("engine", "scope", "reserves"), [
    ("tensorrt-llm", "free", True), ("sglang", "static", False), ("vllm", "whole", False),
    ("acme", "whole", False)])
def test_memory_is_counted_as_the_engine_of_that_name_does(client: FlaskClient, engine: str,
                                                           scope: str, reserves: bool) -> None:
    body = {**ENGINE, "slug": f"bare-{engine}", "engine": engine}
    made = client.post("/api/v1/engines", json=body)
    assert made.status_code == 201
    assert (made.json["memory_scope"], made.json["reserves_answers"]) == (scope, reserves)
    url, tag = f"/api/v1/engines/bare-{engine}", made.headers["ETag"]
    stated = client.put(url, headers={"If-Match": tag},
                        json={**body, "memory_scope": "whole", "reserves_answers": False})
    assert stated.json["memory_scope"] == "whole"
    tag = stated.headers["ETag"]
    assert client.delete(url, headers={"If-Match": tag}).status_code == 204
