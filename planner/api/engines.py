"""``/engines``: efficiency profiles of serving engines. Fields follow ``EngineProfile``."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from flask import Response
from flask.views import MethodView
from marshmallow import Schema
from marshmallow import fields as ma_fields
from sqlalchemy import select

from models import EngineRow
from planner.api.blueprint import ApiBlueprint
from planner.api.fields import Choice, Flag, Map, Number, Text, Whole, date_field, slug_field
from planner.api.paging import PageQuery, page_schema
from planner.api.resource import Resource
from planner.api.validation import StrictSchema
from planner.catalog.rows import engine_from_fields
from planner.catalog.store import engine_columns
from planner.engine import MEMORY_SCOPES, EngineProfile
from planner.precision import WEIGHT_PRECISIONS

blp = ApiBlueprint("engines", __name__, "Engine profiles")
_SHARES = {"mfu", "mbu", "expert_mfu", "expert_mbu", "attention_mfu", "attention_mbu",
           "link_efficiency", "memory_utilization"}
OBTAINED = ("measured", "fitted", "assumed")


def _field(name: str, kind: str) -> ma_fields.Field[Any]:
    """The strict field for one attribute of a profile, by its name and type."""
    special: dict[str, ma_fields.Field[Any]] = {
        "slug": slug_field(required=True),
        "engine": slug_field(required=True),
        "gpu": Text(longest=100, shortest=1),
        "precision": Choice((*WEIGHT_PRECISIONS, "*")),
        "obtained": Choice(OBTAINED),
        "memory_scope": Choice(tuple(MEMORY_SCOPES)),
        "expert_imbalance": Number(lowest=1, highest=1000),
        "ttft_scale": Number(above=0, highest=1000),
        "disaggregated_scale": Number(above=0, highest=1000),
        "points": Whole(lowest=0, highest=1_000_000_000),
        "as_of": date_field(),
        "source": Text(longest=2000),
        "notes": Map(keys=Text(longest=100), values=Text(longest=2000)),
    }
    if name in special:
        return special[name]
    if name in _SHARES:
        return Number(above=0, highest=1)
    plain: dict[str, ma_fields.Field[Any]] = {
        "float": Number(lowest=0, highest=1e15),
        "float | None": Number(lowest=0, highest=1e15, allow_none=True),
        "int": Whole(lowest=1, highest=1_000_000_000),
        "bool": Flag(),
        "str": Text(longest=200),
    }
    return plain[kind]


EngineSchema: type[Schema] = type("EngineSchema", (StrictSchema,), {
    "__doc__": "One engine profile; fields left out are ideal (factor 1, no overhead), those of "
               "how memory is counted what the engine of that name does.",
    **{f.name: _field(f.name, str(f.type)) for f in fields(EngineProfile)}})
EnginePage = page_schema("EnginePage", EngineSchema)


class EngineQuery(PageQuery):
    """A page of the profiles that fit."""

    engine = Text(longest=100)
    gpu = Text(longest=100)
    precision = Text(longest=20)
    obtained = Choice(OBTAINED)


def document(row: EngineRow) -> dict[str, Any]:
    """A row as the API shows it; a factor added later shows its default."""
    return asdict(engine_from_fields(row.profile))


engines = Resource(EngineRow, "slug", "engine profile", "engines.Engine", document)


@blp.route("/engines")
class Engines(MethodView):
    """All engine profiles."""

    @blp.read(EnginePage, query=EngineQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List engine profiles, by engine, GPU, precision or how they were obtained."""
        query = select(EngineRow).order_by(EngineRow.slug)
        for name in ("engine", "gpu", "precision", "obtained"):
            if name in args:
                query = query.where(getattr(EngineRow, name) == args[name])
        return engines.list(query, args)

    @blp.create(EngineSchema, EngineSchema, 409)
    def post(self, data: dict[str, Any]) -> Response:
        """Add an engine profile."""
        return engines.create(engine_columns(data))


@blp.route("/engines/<slug>")
class Engine(MethodView):
    """One engine profile."""

    @blp.read(EngineSchema, 404)
    def get(self, slug: str) -> Response:
        """Show an engine profile."""
        return engines.read(slug)

    @blp.replace(EngineSchema, EngineSchema, engines.require_read)
    def put(self, data: dict[str, Any], slug: str) -> Response:
        """Replace an engine profile."""
        return engines.replace(slug, engine_columns(data))

    @blp.remove()
    def delete(self, slug: str) -> Response:
        """Delete an engine profile."""
        return engines.delete(slug)
