"""Models: from a config, from fields, under every name."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient


def test_counts_are_derived(client: FlaskClient, tiny: str) -> None:
    model = client.get(f"/api/v1/models/{tiny}").json
    # 2 x 32000 x 512 + 512 + 4 x (512 x 64 x (8 + 2 + 2 + 8) + 3 x 512 x 1024 + 2 x 512)
    assert model["total_params"] == model["active_params"] == 41_685_504
    assert model["kv_bytes_per_token"] == 2 * 2 * 64 * 2 * 4
    assert model["weight_bytes"]["bf16"] == model["weight_bytes"]["native"] == 2 * 41_685_504
    assert (model["layers"], model["hidden"], model["vocab"]) == (4, 512, 32000)
    assert (model["max_context"], model["native_weights"]) == (8192, "bf16")


@pytest.mark.parametrize("name", ["tiny", "Lab/Tiny-1", "lab/tiny-1", "Lab/Tiny-1-Instruct",
                                  "LAB/TINY-1-INSTRUCT", "TINY"])
def test_every_name_resolves(client: FlaskClient, tiny: str, name: str) -> None:
    assert client.get(f"/api/v1/models/{name}").json["slug"] == tiny


@pytest.mark.parametrize("name", ["Lab", "Lab/Tiny", "nothing", "a/b/c", "Tiny-1-Instruct", "%00"])
def test_no_other_name_does(client: FlaskClient, tiny: str, name: str) -> None:
    answer = client.get(f"/api/v1/models/{name}")
    assert answer.status_code == 404
    assert answer.content_type == "application/problem+json"


@pytest.mark.parametrize(("change", "pointer"), [
    ({"slug": "tiny"}, "/slug"),
    ({"hf_id": "lab/TINY-1"}, "/hf_id"),
    ({"hf_id": "tiny"}, "/hf_id"),
    ({"aliases": ["new", "Lab/Tiny-1-Instruct"]}, "/aliases/1"),
])
def test_a_name_is_given_once(client: FlaskClient, tiny: str, tiny_config: dict[str, Any],
                              change: dict[str, Any], pointer: str) -> None:
    body = {"slug": "other", "hf_config": tiny_config, **change}
    answer = client.post("/api/v1/models", json=body)
    assert answer.status_code == 409
    assert answer.json["errors"][0]["pointer"] == pointer


def test_an_unknown_architecture_is_refused_by_name(client: FlaskClient,
                                                    tiny_config: dict[str, Any]) -> None:
    config = {**tiny_config, "architectures": ["QuuxForCausalLM"], "model_type": "quux"}
    answer = client.post("/api/v1/models", json={"slug": "quux", "hf_config": config})
    assert answer.status_code == 422
    assert answer.json["type"].endswith("#unknown-architecture")
    assert "QuuxForCausalLM" in answer.json["detail"]
    assert answer.json["errors"][0]["pointer"] == "/hf_config/architectures"


@pytest.mark.parametrize(("change", "pointer"), [
    ({"hf_config": {}}, None), ({"hf_config": []}, "/hf_config"), ({"hidden": 0}, "/hidden"),
    ({"hidden": 512, "layers": 2, "heads": 3, "vocab": 100, "intermediate": 8}, "/heads"),
    ({"layers": 2}, "/hidden"), ({"colour": 1}, "/colour"),
    ({"hf_config": {}, "hidden": 512}, "/hidden"),
])
def test_bad_models_are_refused(client: FlaskClient, change: dict[str, Any],
                                pointer: str | None) -> None:
    answer = client.post("/api/v1/models", json={"slug": "bad", **change})
    assert answer.status_code == 422
    found = answer.json["errors"][0]["pointer"]
    assert found == pointer if pointer else found.startswith("/hf_config")


def test_life_of_a_model_from_its_sizes(client: FlaskClient) -> None:
    sizes = {"hidden": 512, "layers": 4, "heads": 8, "kv_heads": 2, "intermediate": 1024,
             "vocab": 32000}
    made = client.post("/api/v1/models", json={"slug": "by-hand", **sizes})
    assert made.status_code == 201, made.text
    assert made.json["total_params"] == 41_685_504
    url = made.headers["Location"]
    put = client.put(url, json={"slug": "by-hand", **sizes, "layers": 8},
                     headers={"If-Match": made.headers["ETag"]})
    assert put.json["layers"] == 8
    assert client.delete(url, headers={"If-Match": put.headers["ETag"]}).status_code == 204


def test_a_strange_path_in_a_config_names_nothing(client: FlaskClient,
                                                  tiny_config: dict[str, Any]) -> None:
    config = {**tiny_config, "_name_or_path": "\u0000/../models\ud800"}
    made = client.post("/api/v1/models", json={"slug": "strange", "hf_config": config})
    assert (made.status_code, made.json["hf_id"], made.json["name"]) == (201, None, "strange")
    client.delete(made.headers["Location"], headers={"If-Match": made.headers["ETag"]})
