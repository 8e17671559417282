"""``/gpus``: the accelerator catalog."""

from __future__ import annotations

import re
from typing import Any

from flask import Response
from flask.views import MethodView
from marshmallow import fields, validates_schema
from marshmallow.exceptions import ValidationError
from sqlalchemy import select

from models import GpuRow, PriceRow
from planner.api.blueprint import ApiBlueprint
from planner.api.fields import Number, Text, Whole, date_field, slug_field
from planner.api.paging import SearchQuery, matches, page_schema
from planner.api.resource import Resource
from planner.api.validation import StrictSchema
from planner.catalog.rows import GPU_DEFAULTS, RATES
from planner.extensions import db

blp = ApiBlueprint("gpus", __name__, "Accelerators")
_RATE: dict[str, Any] = {"above": 0, "highest": 1e9, "allow_none": True}
_MEASURED = ("measured_bf16_gemm_tflops", "measured_fp8_gemm_tflops",
             "measured_fp4_gemm_tflops", "measured_weight_stream_gb_per_s")


class DenseTflopsSchema(StrictSchema):
    """Dense tensor-core rates [TFLOP/s]; null where the device has no such unit."""

    bf16 = Number(above=0, highest=1e9, required=True)
    fp8 = Number(**_RATE)
    int8 = Number(**_RATE)
    fp4 = Number(**_RATE)
    tf32 = Number(**_RATE)


class GpuSchema(StrictSchema):
    """One accelerator in vendor units."""

    slug = slug_field(required=True)
    name = Text(shortest=1, required=True)
    vendor = Text(shortest=1, longest=100, required=True)
    architecture = Text(shortest=1, longest=100, required=True)
    memory_gib = Number(above=0, highest=1e6, required=True,
                        metadata={"description": "What the driver reports [GiB]"})
    marketed_memory_gb = Number(above=0, highest=1e6,
                                metadata={"description": "On the box; default memory_gib, rounded"})
    memory_bandwidth_gb_per_s = Number(above=0, highest=1e7, required=True)
    dense_tflops = fields.Nested(DenseTflopsSchema, required=True)
    link_gb_per_s = Number(above=0, highest=1e6, allow_none=True, metadata={
        "description": "Per direction to the link domain; null: no fast link, PCIe is used"})
    link_domain_gpus = Whole(lowest=1, highest=1_000_000)
    node_gpus = Whole(lowest=1, highest=1024, metadata={"description": "GPUs of one host"})
    pcie_gb_per_s = Number(above=0, highest=1e5)
    nic_gb_per_s = Number(above=0, highest=1e5, metadata={"description": "Per GPU, one direction"})
    tdp_w = Number(above=0, highest=1e5, allow_none=True)
    release_year = Whole(lowest=1990, highest=2100, allow_none=True)
    interconnect = Text(longest=100)
    compute_capability = Text(longest=20)
    measured_bf16_gemm_tflops = Number(**_RATE)
    measured_fp8_gemm_tflops = Number(**_RATE)
    measured_fp4_gemm_tflops = Number(**_RATE)
    measured_weight_stream_gb_per_s = Number(**_RATE)
    confidence = Text(longest=100)
    source_url = Text(longest=500, pattern=re.compile(r"(https?://\S+)?"),
                      hint="an address that begins with http:// or https://")
    source = Text(longest=2000)
    source_date = date_field()
    notes = Text(longest=5000)

    @validates_schema
    def _link_has_a_rate(self, data: dict[str, Any], **_: Any) -> None:
        if data.get("link_domain_gpus", 1) > 1 and data.get("link_gb_per_s") is None:
            raise ValidationError("is required where link_domain_gpus is above 1",
                                  "link_gb_per_s")


GpuPage = page_schema("GpuPage", GpuSchema)
_PLAIN = tuple(n for n in GpuSchema().fields if n != "dense_tflops")


def columns(data: dict[str, Any]) -> dict[str, Any]:
    """Columns of a row from a validated document; what it leaves out gets its default."""
    rates = data.pop("dense_tflops")
    return {**GPU_DEFAULTS, **dict.fromkeys(_MEASURED),
            "marketed_memory_gb": float(round(data["memory_gib"])) or data["memory_gib"],
            **data, **{f"dense_{name}_tflops": rates.get(name) for name in RATES}}


def document(row: GpuRow) -> dict[str, Any]:
    """A row as the API shows it."""
    shown = {name: getattr(row, name) for name in _PLAIN}
    rates = {name: getattr(row, f"dense_{name}_tflops") for name in RATES}
    return {**shown, "dense_tflops": rates}


def users(row: GpuRow) -> list[str]:
    """The prices of a GPU."""
    query = select(PriceRow.id).where(PriceRow.gpu == row.slug).order_by(PriceRow.id)
    return [f"price {key!r}" for key in db.session.scalars(query)]


gpus = Resource(GpuRow, "slug", "GPU", "gpus.Gpu", document, users)


@blp.route("/gpus")
class Gpus(MethodView):
    """All GPUs."""

    @blp.read(GpuPage, query=SearchQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List GPUs."""
        query = select(GpuRow).order_by(GpuRow.slug)
        if "q" in args:
            query = query.where(matches(args["q"], GpuRow.slug, GpuRow.name, GpuRow.architecture))
        return gpus.list(query, args)

    @blp.create(GpuSchema, GpuSchema, 409)
    def post(self, data: dict[str, Any]) -> Response:
        """Add a GPU."""
        return gpus.create(columns(data))


@blp.route("/gpus/<slug>")
class Gpu(MethodView):
    """One GPU."""

    @blp.read(GpuSchema, 404)
    def get(self, slug: str) -> Response:
        """Show a GPU."""
        return gpus.read(slug)

    @blp.replace(GpuSchema, GpuSchema, gpus.require_read)
    def put(self, data: dict[str, Any], slug: str) -> Response:
        """Replace a GPU."""
        return gpus.replace(slug, columns(data))

    @blp.remove()
    def delete(self, slug: str) -> Response:
        """Delete a GPU that no price refers to."""
        return gpus.delete(slug)
