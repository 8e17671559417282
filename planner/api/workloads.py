"""``/workloads``: saved workloads with their latency targets."""

from __future__ import annotations

from typing import Any

from flask import Response
from flask.views import MethodView
from marshmallow import fields
from sqlalchemy import select

from models import WorkloadRow
from planner.api.blueprint import ApiBlueprint
from planner.api.fields import Text, slug_field
from planner.api.paging import SearchQuery, matches, page_schema
from planner.api.resource import Resource
from planner.api.validation import StrictSchema
from planner.api.workload_schema import SloSchema, WorkloadSchema
from planner.extensions import db

blp = ApiBlueprint("workloads", __name__, "Saved workloads")


class SavedWorkloadSchema(StrictSchema):
    """A workload under a name; a plan request may give its slug as ``workload``."""

    slug = slug_field(required=True)
    name = Text(longest=200, load_default="")
    workload = fields.Nested(WorkloadSchema, required=True)
    slo = fields.Nested(SloSchema, allow_none=True, load_default=None)


SavedWorkloadPage = page_schema("SavedWorkloadPage", SavedWorkloadSchema)


def columns(data: dict[str, Any]) -> dict[str, Any]:
    """Columns of a row from a validated document."""
    return {"slug": data["slug"], "name": data["name"],
            "document": {"workload": data["workload"], "slo": data["slo"]}}


def document(row: WorkloadRow) -> dict[str, Any]:
    """A row as the API shows it."""
    return {"slug": row.slug, "name": row.name, **row.document}


def saved_workload(slug: str) -> dict[str, Any] | None:
    """The document of a saved workload, None when there is none."""
    row = db.session.get(WorkloadRow, slug)
    return row.document if row else None


workloads = Resource(WorkloadRow, "slug", "workload", "workloads.Workload", document)


@blp.route("/workloads")
class Workloads(MethodView):
    """All saved workloads."""

    @blp.read(SavedWorkloadPage, query=SearchQuery)
    def get(self, args: dict[str, Any]) -> Response:
        """List workloads."""
        query = select(WorkloadRow).order_by(WorkloadRow.slug)
        if "q" in args:
            query = query.where(matches(args["q"], WorkloadRow.slug, WorkloadRow.name))
        return workloads.list(query, args)

    @blp.create(SavedWorkloadSchema, SavedWorkloadSchema, 409)
    def post(self, data: dict[str, Any]) -> Response:
        """Save a workload."""
        return workloads.create(columns(data))


@blp.route("/workloads/<slug>")
class Workload(MethodView):
    """One saved workload."""

    @blp.read(SavedWorkloadSchema, 404)
    def get(self, slug: str) -> Response:
        """Show a workload."""
        return workloads.read(slug)

    @blp.replace(SavedWorkloadSchema, SavedWorkloadSchema, workloads.require_read)
    def put(self, data: dict[str, Any], slug: str) -> Response:
        """Replace a workload."""
        return workloads.replace(slug, columns(data))

    @blp.remove()
    def delete(self, slug: str) -> Response:
        """Delete a workload; plans made from it keep their own copy."""
        return workloads.delete(slug)
