"""``/prices``: what providers ask for a GPU-hour."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

from flask import Response
from flask.views import MethodView
from sqlalchemy import select

from models import GpuRow, PriceRow
from planner.api.blueprint import ApiBlueprint
from planner.api.fields import Choice, Number, Text, Whole, date_field, slug_field
from planner.api.paging import PageQuery, page_schema
from planner.api.resource import Resource
from planner.api.validation import StrictSchema
from planner.errors import NotInCatalog
from planner.extensions import db
from planner.requests import COMMITMENTS

blp = ApiBlueprint("prices", __name__, "Prices per GPU-hour")


class PriceSchema(StrictSchema):
    """One price. ``id`` is made when it is left out."""

    id = slug_field()
    gpu = slug_field(required=True)
    provider = Text(shortest=1, longest=100, required=True)
    region = Text(longest=100, load_default="")
    instance = Text(longest=100, load_default="")
    gpus_per_instance = Whole(lowest=1, highest=100_000, allow_none=True, load_default=None)
    commitment = Choice(COMMITMENTS, required=True)
    usd_per_gpu_hour = Number(lowest=0.000001, highest=1e6, required=True)
    as_of = date_field(required=True)
    source = Text(shortest=1, longest=2000, required=True)
    notes = Text(longest=5000, load_default="")


class PriceQuery(PageQuery):
    """A page of the prices that fit."""

    gpu = Text(longest=100)
    provider = Text(longest=100)
    region = Text(longest=100)
    commitment = Choice(COMMITMENTS)


PricePage = page_schema("PricePage", PriceSchema)
_FIELDS = tuple(PriceSchema().fields)


def columns(data: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    """Columns of a row; the GPU must be in the catalog."""
    if db.session.get(GpuRow, data["gpu"]) is None:
        raise NotInCatalog(f"unknown GPU {data['gpu']!r}", "/gpu")
    usd = Decimal(str(data["usd_per_gpu_hour"])).quantize(Decimal("0.000001"))
    return {**data, "id": data.get("id") or key or str(uuid.uuid4()), "usd_per_gpu_hour": usd}


def document(row: PriceRow) -> dict[str, Any]:
    """A row as the API shows it."""
    shown = {name: getattr(row, name) for name in _FIELDS}
    return {**shown, "usd_per_gpu_hour": float(row.usd_per_gpu_hour)}


prices = Resource(PriceRow, "id", "price", "prices.Price", document)


@blp.route("/prices")
class Prices(MethodView):
    """All prices."""

    @blp.read(PricePage, query=PriceQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List prices, by GPU, provider, region or commitment."""
        query = select(PriceRow).order_by(PriceRow.gpu, PriceRow.usd_per_gpu_hour, PriceRow.id)
        for name in ("gpu", "provider", "region", "commitment"):
            if name in args:
                query = query.where(getattr(PriceRow, name) == args[name])
        return prices.list(query, args)

    @blp.create(PriceSchema, PriceSchema, 409)
    def post(self, data: dict[str, Any]) -> Response:
        """Add a price."""
        return prices.create(columns(data))


@blp.route("/prices/<id>")
class Price(MethodView):
    """One price."""

    @blp.read(PriceSchema, 404)
    def get(self, id: str) -> Response:
        """Show a price."""
        return prices.read(id)

    @blp.replace(PriceSchema, PriceSchema, prices.require_read)
    def put(self, data: dict[str, Any], id: str) -> Response:
        """Replace a price."""
        return prices.replace(id, columns(data, id))

    @blp.remove()
    def delete(self, id: str) -> Response:
        """Delete a price."""
        return prices.delete(id)
