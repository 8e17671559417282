"""Several clients at once: no write is lost, none is refused for being second in line."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

BODY: dict[str, Any] = {
    "workload": {"requests_per_second": 3, "prompt_tokens": 900, "output_tokens": 100}}


def test_writers_wait_for_each_other(app: Flask, client: FlaskClient) -> None:
    def post(number: int) -> Any:
        return app.test_client().post("/api/v1/workloads",
                                      json={**BODY, "slug": f"parallel-{number}"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, range(40)))
    assert {a.status_code for a in answers} == {201}
    assert client.get("/api/v1/workloads?q=parallel-").json["total"] == 40
    for answer in answers:
        tag = {"If-Match": answer.headers["ETag"]}
        assert client.delete(answer.headers["Location"], headers=tag).status_code == 204


def test_one_slug_is_made_once(app: Flask, client: FlaskClient) -> None:
    def post(_: int) -> int:
        return app.test_client().post("/api/v1/workloads",
                                      json={**BODY, "slug": "contested"}).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(post, range(16)))
    assert statuses == [201] + [409] * 15
    tag = client.get("/api/v1/workloads/contested").headers["ETag"]
    client.delete("/api/v1/workloads/contested", headers={"If-Match": tag})


def test_of_many_writers_with_one_tag_one_wins(app: Flask, client: FlaskClient) -> None:
    url = "/api/v1/workloads/disputed"
    made = client.post("/api/v1/workloads", json={**BODY, "slug": "disputed"})
    tag = {"If-Match": made.headers["ETag"]}

    def put(number: int) -> int:
        return app.test_client().put(
            url, json={**BODY, "slug": "disputed", "name": f"writer {number}"},
            headers=tag).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(put, range(16)))
    assert statuses == [200] + [412] * 15
    client.delete(url, headers={"If-Match": client.get(url).headers["ETag"]})
