"""``/catalog``: round trips without loss, previews, preconditions, and text that stays text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_migrate import upgrade

from app import create_app
from planner.catalog.store import load_catalog, row_fields
from planner.extensions import db

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
TABLES = ("gpus", "models", "prices", "engines")
SHIPPED = Path(__file__).resolve().parents[2] / "planner" / "catalog"
RISKY = ['=cmd|"/c calc"!A1', "+1+1", "-2", "@SUM(A1)", "'=1", "''+", "\t=1", "plain", "ünï 🚀",
         "a\nb", '"quoted", with; separators', "_x0041_", "1,000", "007"]


def fresh(path: Path, loaded: bool = True) -> Flask:
    app = create_app({"DATABASE_URL": f"sqlite:///{path}", "PLANNER_LOG_LEVEL": "error"})
    with app.app_context():
        upgrade()
        if loaded:
            load_catalog(db.session)
    return app


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Flask]:
    """A service of its own, so that imports do not meet other tests."""
    app = fresh(tmp_path / "own.sqlite3")
    yield app
    with app.app_context():
        db.engine.dispose()


def content(app: Flask) -> dict[str, Any]:
    """Everything stored, without the bookkeeping."""
    from planner.api.catalog_tables import TABLES as ALL

    with app.app_context():
        return {name: {getattr(r, t.key): row_fields(r)
                       for r in db.session.query(t.row)} for name, t in ALL.items()}


def assert_alike(found: Any, expected: Any, tolerance: float) -> None:
    """Equal, but for the last digit of a number: xlsx keeps 16 of them."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_alike(found[key], expected[key], tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=tolerance, abs=0)
    else:
        assert found == expected


def send(client: FlaskClient, data: bytes, table: str | None = None, kind: str = XLSX,
         tag: str | None = None) -> Any:
    url = "/api/v1/catalog" + (f"/{table}" if table else "")
    if tag is None:
        return client.post(f"{url}?dry_run=true", data=data, content_type=kind)
    return client.post(url, data=data, content_type=kind, headers={"If-Match": tag})


def counts(answer: Any) -> dict[str, tuple[int, int, int, int]]:
    return {t["table"]: (len(t["added"]), len(t["changed"]), t["unchanged"], t["not_in_file"])
            for t in answer.json["tables"]}


def test_an_export_that_was_not_edited_changes_nothing(own: Flask) -> None:
    client, before = own.test_client(), content(own)
    sizes = {name: len(rows) for name, rows in before.items()}
    whole = client.get("/api/v1/catalog")
    assert counts(send(client, whole.data)) == {n: (0, 0, sizes[n], 0) for n in TABLES}
    for name in TABLES:
        found = client.get(f"/api/v1/catalog/{name}")
        assert found.mimetype == "text/csv"
        answer = send(client, found.data, name, "text/csv", found.headers["ETag"])
        assert counts(answer) == {name: (0, 0, sizes[name], 0)}, answer.json
    assert content(own) == before


@pytest.mark.parametrize("form", ["csv", "xlsx"])
def test_an_export_fills_an_empty_catalog(own: Flask, tmp_path: Path, form: str) -> None:
    """Nothing is lost: not a digit of a price, not a layer of a model."""
    source = own.test_client()
    empty = fresh(tmp_path / "empty.sqlite3", loaded=False)
    client = empty.test_client()
    for name in TABLES:
        data = source.get(f"/api/v1/catalog/{name}?format={form}").data
        tag = client.get(f"/api/v1/catalog/{name}").headers["ETag"]
        answer = send(client, data, name, "text/csv" if form == "csv" else XLSX, tag)
        assert answer.status_code == 200, answer.json
    assert_alike(content(empty), content(own), 0.0 if form == "csv" else 1e-15)
    with empty.app_context():
        db.engine.dispose()


@pytest.mark.parametrize("name", ["gpus", "prices", "engines"])
def test_the_shipped_tables_can_be_imported(client: FlaskClient, name: str) -> None:
    answer = send(client, (SHIPPED / f"{name}.csv").read_bytes(), name, "text/csv")
    assert answer.status_code == 200
    assert answer.json["tables"][0]["added"] == []


def test_a_preview_and_the_import_say_the_same(own: Flask) -> None:
    client = own.test_client()
    found = client.get("/api/v1/catalog/gpus")
    rows = list(csv.DictReader(io.StringIO(found.text)))[:3]
    slug = rows[0]["slug"]
    old = float(rows[0]["memory_gib"])
    rows[0] |= {"memory_gib": "1,024", "release_year": ""}
    rows.append({**rows[1], "slug": "new-gpu", "name": "New"})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    preview = send(client, data, "gpus", "text/csv")
    table = preview.json["tables"][0]
    assert (table["added"], table["unchanged"], table["not_in_file"]) == (["new-gpu"], 2, 43)
    [changed] = table["changed"]
    assert changed["key"] == slug
    assert {"field": "memory_gib", "old": old, "new": 1024.0} in changed["fields"]
    assert [f["field"] for f in changed["fields"]] == ["memory_gib", "release_year"]
    assert client.get("/api/v1/gpus/new-gpu").status_code == 404
    done = send(client, data, "gpus", "text/csv", preview.headers["ETag"])
    assert {**done.json, "dry_run": True} == preview.json
    assert client.get("/api/v1/gpus/new-gpu").json["name"] == "New"
    assert client.get(f"/api/v1/gpus/{slug}").json["memory_gib"] == 1024
    assert client.get("/api/v1/gpus").json["total"] == 47  # nothing was removed
    assert counts(send(client, data, "gpus", "text/csv")) == {"gpus": (0, 0, 4, 43)}


def test_the_precondition(own: Flask) -> None:
    client = own.test_client()
    found = client.get("/api/v1/catalog/prices")
    tag = found.headers["ETag"]
    answer = client.post("/api/v1/catalog/prices", data=found.data, content_type="text/csv")
    assert answer.status_code == 428
    price = {"gpu": "l4", "provider": "Us", "commitment": "owned", "usd_per_gpu_hour": 1,
             "as_of": "2026", "source": "x"}
    client.post("/api/v1/prices", json=price)
    assert send(client, found.data, "prices", "text/csv", tag).status_code == 412
    preview = send(client, found.data, "prices", "text/csv")
    assert counts(preview)["prices"][3] == 1
    assert send(client, found.data, "prices", "text/csv",
                preview.headers["ETag"]).status_code == 200
    assert client.get("/api/v1/catalog/prices", headers={
        "If-None-Match": preview.headers["ETag"]}).status_code == 304


def test_prices_of_a_gpu_in_the_same_file_and_without_an_id(own: Flask) -> None:
    client = own.test_client()
    book = openpyxl.Workbook()
    page = book.active
    page.title = "GPUs"
    page.append(["slug", "name", "vendor", "architecture", "memory_gib",
                 "memory_bandwidth_gb_per_s", "dense_bf16_tflops"])
    page.append(["own-gpu", "Own", "Us", "X", 100, "2,000", 500])
    prices = book.create_sheet("Prices")
    prices.append(["GPU", "Provider", "commitment", "usd_per_gpu_hour", "as_of", "source", "team"])
    prices.append(["own-gpu", "Us", "owned", 1.25, 2026, "a contract", "blue"])
    book.create_sheet("Remarks").append(["hello"])
    target = io.BytesIO()
    book.save(target)
    preview = send(client, target.getvalue())
    assert preview.json["ignored_sheets"] == ["Remarks"]
    done = send(client, target.getvalue(), tag=preview.headers["ETag"])
    assert counts(done) == {"gpus": (1, 0, 0, 46), "prices": (1, 0, 0, 247)}
    price = client.get("/api/v1/prices/us-own-gpu-owned").json
    assert (price["usd_per_gpu_hour"], price["as_of"]) == (1.25, "2026")
    assert counts(send(client, target.getvalue()))["prices"] == (0, 0, 1, 247)


OFFER = {"provider": "Us", "instance": "x1", "gpu": "l4", "region": "eu", "commitment": "owned"}
CHINA = [{**OFFER, "provider": name} for name in ("阿里云", "腾讯云")]


def price_file(*rows: dict[str, Any]) -> bytes:
    text = io.StringIO()
    rows = tuple({"usd_per_gpu_hour": 1, "as_of": "2026", "source": "x", **r} for r in rows)
    writer = csv.DictWriter(text, list(dict.fromkeys(k for r in rows for k in r)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def import_prices(client: FlaskClient, *rows: dict[str, Any]) -> Any:
    tag = client.get("/api/v1/catalog/prices").headers["ETag"]
    return send(client, price_file(*rows), "prices", "text/csv", tag)


@pytest.mark.parametrize(("one", "other"), [
    tuple(CHINA),
    ({**OFFER, "provider": "Café"}, {**OFFER, "provider": "Cafè"}),
    ({**OFFER, "provider": "Our Cloud"}, {**OFFER, "provider": "Our/Cloud"}),
    ({**OFFER, "instance": "", "region": "x1"}, {**OFFER, "region": ""}),
    ({**OFFER, "instance": "small 小"}, {**OFFER, "instance": "small 大"}),
    ({**OFFER, "region": "r" * 98 + "x"}, {**OFFER, "region": "r" * 98 + "y"}),
    ({**OFFER, "gpus_per_instance": 1}, {**OFFER, "gpus_per_instance": 8}),
])
def test_an_id_that_is_made_is_never_another_offers(own: Flask, one: dict[str, Any],
                                                    other: dict[str, Any]) -> None:
    client = own.test_client()
    first = import_prices(client, {**one, "id": ""})
    second = import_prices(client, {**other, "id": "", "usd_per_gpu_hour": 2})
    assert counts(first)["prices"][:2] == counts(second)["prices"][:2] == (1, 0), second.json
    [[a], [b]] = (r.json["tables"][0]["added"] for r in (first, second))
    stored = [client.get(f"/api/v1/prices/{key}").json for key in (a, b)]
    assert [p["usd_per_gpu_hour"] for p in stored] == [1, 2]
    assert [{k: p[k] for k in one} for p in stored] == [one, other]
    again = import_prices(client, {**other, "usd_per_gpu_hour": 2}, one)
    assert counts(again)["prices"][:3] == (0, 0, 2)


def test_the_offer_of_a_made_id_however_spelt_is_one_row(own: Flask) -> None:
    client = own.test_client()
    import_prices(client, OFFER, CHINA[0])
    found = import_prices(client, {**OFFER, "provider": "US ", "usd_per_gpu_hour": 3},
                          {**CHINA[0], "usd_per_gpu_hour": 4})
    assert counts(found)["prices"][:2] == (0, 2)
    said = import_prices(client, OFFER, {**OFFER, "provider": "us"})
    assert said.status_code == 422
    assert "is also in" in said.json["detail"]


def test_an_id_that_is_made_meets_one_that_was_given(own: Flask) -> None:
    """Neither the row with the plain id nor the one with the marked id is overwritten."""
    client = own.test_client()
    [marked] = send(client, price_file(CHINA[0]), "prices", "text/csv").json["tables"][0]["added"]
    import_prices(client, {**OFFER, "id": "us-x1-l4-eu-owned", "provider": "Them"},
                  {**OFFER, "id": marked})
    assert counts(import_prices(client, OFFER))["prices"][:2] == (1, 0)
    said = import_prices(client, CHINA[0])
    assert (said.status_code, marked in said.json["detail"]) == (422, True)
    assert client.get(f"/api/v1/prices/{marked}").json["provider"] == "Us"


def test_models(own: Flask, tiny_config: dict[str, Any]) -> None:
    client = own.test_client()
    text = io.StringIO()
    csv.writer(text).writerows([
        ["slug", "name", "aliases", "hf_config", "total_params"],
        ["tiny-x", "Tiny X", "Lab/Tiny-X; Lab/Tiny-Y", json.dumps(tiny_config), ""],
        ["llama-3.1-8b", "Llama 3.1 8B", "", "", "8030261248"]])
    preview = send(client, text.getvalue().encode(), "models", "text/csv")
    assert counts(preview) == {"models": (1, 1, 0, 222)}, preview.json
    done = send(client, text.getvalue().encode(), "models", "text/csv", preview.headers["ETag"])
    assert done.status_code == 200
    assert client.get("/api/v1/models/Lab/Tiny-Y").json["slug"] == "tiny-x"
    assert client.get("/api/v1/models/llama-3.1-8b").json["aliases"] == []


@pytest.mark.parametrize(("table", "text", "place", "words"), [
    ("gpus", "slug,memory_gib\nl4,-1", "/gpus/B2", "above 0"),
    ("gpus", 'slug,memory_gib\nl4,"1,5"', "/gpus/B2", "more than one way"),
    ("gpus", "slug,memory_gib\nL4!,1", "/gpus/A2", "lower-case"),
    ("gpus", "slug,memory_gib\nnew,1", "/gpus/A1", "no column name, vendor, architecture, "
     "memory_bandwidth_gb_per_s, dense_bf16_tflops"),
    ("gpus", "slug,name,vendor,architecture,memory_gib,memory_bandwidth_gb_per_s,dense_bf16_tflops"
     "\nnew,N,V,A,1,,2", "/gpus/F2", "is required"),
    ("engines", "slug,mfu\nmine,0.5", "/engines/A1", "no column engine"),
    ("prices", "notes,id,gpu\nx,mine,l4\ny,yours,l4", "/prices/A1", "no column provider, "
     "commitment, usd_per_gpu_hour, as_of, source"),
    ("gpus", "slug,dense_fp8_tflops\nl4,x", "/gpus/B2", "number"),
    ("gpus", "slug,dense_fp8_tflops\nl4,-3", "/gpus/B2", "above 0"),
    ("gpus", "slug,node_gpus\nl4,1.5", "/gpus/B2", "whole number"),
    ("gpus", "slug,link_domain_gpus\nl4,8", "/gpus/A2", "is required where"),
    ("gpus", "slug,memory_gib\nl4,24\nl4,25", "/gpus/A3", "also in A2"),
    ("gpus", "slug,memory_gibb\nl4,24", "/gpus/B1", "did you mean memory_gib"),
    ("gpus", "slug,name,slug\nl4,L4,l4", "/gpus/C1", "again"),
    ("gpus", "hello,world\n1,2", "/gpus", "no header row"),
    ("prices", "gpu,provider,commitment,usd_per_gpu_hour,as_of,source\nx9,A,owned,1,2026,s",
     "/prices/A2", "neither in the catalog nor in the file"),
    ("prices", "gpu,provider,commitment,usd_per_gpu_hour,as_of,source\nl4,A,gratis,1,2026,s",
     "/prices/C2", "must be one of"),
    ("prices", "gpu,provider,commitment,usd_per_gpu_hour,as_of,source\nl4,A,owned,1,03/04/2026,s",
     "/prices/E2", "date"),
    ("engines", "slug,engine,mfu\nmine,vllm,1.5", "/engines/C2", "at most 1"),
    ("engines", 'slug,engine,notes\nmine,vllm,"{bad"', "/engines/C2", "JSON"),
    ("models", "slug,name\nnew-model,New", "/models/A2", "needs its record"),
    ("models", "slug,total_params\nllama-3.1-8b,9", "/models/B2", "cannot be edited"),
    ("models", 'slug,record\nnew-model,"{}"', "/models/B2", "architecture record|record"),
    ("models", 'slug,record\nnew-model,"[]"', "/models/B2", "JSON object"),
    ("models", 'slug,hf_config\nnew-model,"{""architectures"": [""Quux""]}"', "/models/B2",
     "Quux"),
    ("models", "slug,aliases\nllama-3.1-8b,llama-3.1-70b", "/models/B2", "is a name of model"),
])
def test_the_cell_at_fault(client: FlaskClient, table: str, text: str, place: str, words: str
                           ) -> None:
    answer = send(client, text.encode(), table, "text/csv")
    assert answer.status_code == 422
    said = [e["message"] for e in answer.json["errors"] if e["pointer"] == place]
    assert any(w in message for w in words.split("|") for message in said), answer.json


def test_missing_columns_are_named_once(client: FlaskClient) -> None:
    answer = send(client, b"id,gpu\nmine,l4\nyours,l4", "prices", "text/csv")
    assert [e["pointer"] for e in answer.json["errors"]] == ["/prices/A1"]
    [key] = [p["id"] for p in client.get("/api/v1/prices?gpu=l4&limit=1").json["items"]]
    kept = send(client, f"id,gpu,notes\n{key},l4,hello".encode(), "prices", "text/csv")
    assert counts(kept)["prices"][:2] == (0, 1)


def test_one_bad_row_writes_nothing(own: Flask) -> None:
    client, before = own.test_client(), content(own)
    tag = client.get("/api/v1/catalog/gpus").headers["ETag"]
    text = "slug,memory_gib\nl4,99\nl40s,-1"
    assert send(client, text.encode(), "gpus", "text/csv", tag).status_code == 422
    assert content(own) == before


@pytest.mark.parametrize("form", ["csv", "xlsx"])
def test_text_that_looks_like_a_formula_stays_text(own: Flask, form: str) -> None:
    client = own.test_client()
    for index, text in enumerate(RISKY):
        client.post("/api/v1/prices", json={
            "id": f"risky-{index}", "gpu": "l4", "provider": text.replace("\n", " "),
            "commitment": "owned", "usd_per_gpu_hour": 1, "as_of": "2026", "source": text})
    found = client.get(f"/api/v1/catalog/prices?format={form}")
    if form == "csv":
        for row in csv.reader(io.StringIO(found.text)):
            assert not any(c.startswith(("=", "+", "-", "@", "\t", "\r")) for c in row)
    else:
        book = openpyxl.load_workbook(io.BytesIO(found.data))
        assert not any(c.data_type == "f" for row in book.active.iter_rows() for c in row)
    kind = "text/csv" if form == "csv" else XLSX
    assert counts(send(client, found.data, "prices", kind))["prices"][:2] == (0, 0)
    again = client.post("/api/v1/catalog/prices", data=found.data, content_type=kind,
                        headers={"If-Match": found.headers["ETag"]})
    assert again.status_code == 200
    for index, text in enumerate(RISKY):
        assert client.get(f"/api/v1/prices/risky-{index}").json["source"] == text


def test_files_of_another_kind(client: FlaskClient) -> None:
    assert send(client, b"slug\nl4", kind="text/csv").status_code == 415
    assert send(client, b"slug\nl4").status_code == 422
    assert client.get("/api/v1/catalog/workloads").status_code == 404
    assert send(client, b"slug\nl4", "workloads", "text/csv").status_code == 404
    assert client.get("/api/v1/catalog/gpus?format=ods").status_code == 422
    answer = client.post("/api/v1/catalog/gpus?dry_run=maybe", data=b"x", content_type="text/csv")
    assert answer.json["errors"] == [{"parameter": "dry_run", "message":
                                      "must be one of true, false; not 'maybe'"}]
    book = openpyxl.Workbook()
    book.active.append(["hello"])
    target = io.BytesIO()
    book.save(target)
    answer = send(client, target.getvalue())
    assert "no sheet named gpus or models" in answer.json["detail"]


def test_a_semicolon_file_from_a_european_program(client: FlaskClient) -> None:
    answer = send(client, "\ufeffslug;memory_gib;notes\r\nl4;25;a;b".encode(), "gpus", "text/csv")
    assert answer.json["tables"][0]["changed"][0]["fields"][0]["new"] == 25
    answer = send(client, b"slug;memory_gib\nl4;22,5", "gpus", "text/csv")
    assert "22.5" in answer.json["detail"]


def test_the_commands(own: Flask, tmp_path: Path) -> None:
    run = own.test_cli_runner().invoke
    before = content(own)
    for name in ("catalog.xlsx", "catalog.json", "gpus.csv", "models.csv"):
        path = tmp_path / name
        assert run(args=["catalog", "export", "--output", str(path)]).exit_code == 0
        found = run(args=["catalog", "import", str(path)])
        assert found.exit_code == 0, found.stderr
        assert "0 added, 0 changed" in found.stdout
        assert " 1 changed" not in found.stdout
    assert content(own) == before
    edited = tmp_path / "gpus.csv"
    edited.write_text("slug,memory_gib\nl4,25\n", encoding="utf-8")
    dry = run(args=["catalog", "import", str(edited), "--dry-run"])
    assert "~ l4: memory_gib" in dry.stdout
    assert "nothing was written" in dry.stdout
    assert content(own) == before
    assert run(args=["catalog", "import", str(edited)]).exit_code == 0
    assert content(own)["gpus"]["l4"]["memory_gib"] == 25
    other = tmp_path / "other.csv"
    other.write_bytes(edited.read_bytes())
    assert "--table" in run(args=["catalog", "import", str(other)]).stderr
    assert run(args=["catalog", "import", str(other), "--table", "gpus"]).exit_code == 0
    assert "--table" in run(args=["catalog", "export", "--format", "csv"]).stderr


@pytest.mark.parametrize("dry_run", [True, False])
def test_columns_that_are_not_read_are_listed(own: Flask, dry_run: bool) -> None:
    client = own.test_client()
    found = client.get("/api/v1/catalog/gpus")
    lines = found.text.splitlines()
    text = "\r\n".join([f"{lines[0]},owner,shelf life", *(f"{x},us,1" for x in lines[1:])])
    answer = client.post(f"/api/v1/catalog/gpus?dry_run={str(dry_run).lower()}", data=text.encode(),
                         content_type="text/csv", headers={"If-Match": found.headers["ETag"]})
    assert answer.status_code == 200, answer.text
    assert answer.json["tables"][0]["ignored_columns"] == ["owner", "shelf life"]
    assert answer.json["tables"][0]["changed"] == []
