"""``/catalog``: the catalog tables as files, and what an edited file would change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flask import Response, request
from flask.views import MethodView
from flask_smorest import Blueprint
from marshmallow import Schema, fields

from planner.api.blueprint import ApiBlueprint, View
from planner.api.catalog_exchange import (
    apply,
    as_csv,
    as_xlsx,
    catalog_tag,
    compare,
)
from planner.api.catalog_files import sheets_of
from planner.api.catalog_tables import TABLES
from planner.api.etags import respond
from planner.api.fields import Choice
from planner.api.plans import attachment
from planner.api.problems import Problem
from planner.api.uploads import ANY, BINARY, CSV, XLSM, XLSX, body_doc, uploaded
from planner.api.validation import StrictSchema
from planner.extensions import db

blp = ApiBlueprint("catalog", __name__, "The catalog as files")
_TAG = {"ETag": {"description": "Tag of the tables' content, for If-Match",
                 "schema": {"type": "string"}}}
_IF_MATCH = {"in": "header", "name": "If-Match", "schema": {"type": "string"},
             "description": "Tag of the content that the file was made from, as the export or a "
                            "dry run gave it; not needed for a dry run"}


class ExportQuery(StrictSchema):
    """The form of a table."""

    format = Choice(("csv", "xlsx"), load_default="csv")


class ImportQuery(StrictSchema):
    """Whether to write."""

    dry_run = Choice(("true", "false"), load_default="false", metadata={
        "description": "true: only say what would change"})


class FieldChangeSchema(Schema):
    """One field of a row that differs."""

    field = fields.String(required=True)
    old = fields.Raw(required=True, allow_none=True)
    new = fields.Raw(required=True, allow_none=True)


class RowChangeSchema(Schema):
    """A stored row that differs."""

    key = fields.String(required=True)
    fields_ = fields.List(fields.Nested(FieldChangeSchema), required=True, data_key="fields")


class TableChangeSchema(Schema):
    """What a file changes in one table."""

    table = fields.String(required=True)
    added = fields.List(fields.String(), required=True)
    changed = fields.List(fields.Nested(RowChangeSchema), required=True)
    unchanged = fields.Integer(required=True)
    not_in_file = fields.Integer(required=True, metadata={
        "description": "Stored rows that the file does not name; they are never removed"})
    ignored_columns = fields.List(fields.String(), required=True, metadata={
        "description": "Headers of the file that name no column of the table"})


class CatalogChangeSchema(Schema):
    """What a file changes, or would change."""

    dry_run = fields.Boolean(required=True)
    tables = fields.List(fields.Nested(TableChangeSchema), required=True)
    ignored_sheets = fields.List(fields.String(), required=True)


def _import_operation(*content_types: str) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        described: View = Blueprint.doc(requestBody=body_doc(*content_types, ANY),
                                        parameters=[_IF_MATCH])(view)
        described = blp.response(200, CatalogChangeSchema, headers=_TAG)(described)
        described = blp.arguments(ImportQuery, location="query")(described)
        documented: View = blp.problems(400, 404, 408, 412, 413, 415, 422, 428, 503)(described)
        return documented

    return decorate


def take(names: Sequence[str], content_types: Sequence[str], dry_run: bool) -> Response:
    """Read the file of the request, compare it with the tables, and write it unless dry.

    Raises
    ------
    Problem
        428 without ``If-Match``, 412 when the tables are no longer those the file was made from.
    """
    data, _ = uploaded(request, *content_types, ANY, XLSM)
    if not dry_run:
        _require_match(catalog_tag(db.session, names))
    sheets, ignored = sheets_of(data, names)
    changes = compare(db.session, sheets)
    if not dry_run:
        apply(db.session, changes)
    response = respond({"dry_run": dry_run, "tables": [c.document() for c in changes],
                        "ignored_sheets": ignored})
    response.set_etag(catalog_tag(db.session, names))
    return response


def _require_match(tag: str) -> None:
    if "If-Match" not in request.headers:
        raise Problem(428, "precondition-required",
                      "send the ETag of the export or of the dry run in If-Match",
                      [{"parameter": "If-Match", "message": "is required unless dry_run=true"}])
    if not request.if_match.contains(tag):
        raise Problem(412, "precondition-failed",
                      "the catalog has changed since; make a dry run again",
                      [{"parameter": "If-Match", "message": "names another version"}])


@blp.route("/catalog")
class WholeCatalog(MethodView):
    """All four tables."""

    @blp.read(dict(BINARY), content_type=XLSX)
    def get(self) -> Response:
        """The catalog as an xlsx: a sheet for GPUs, models, prices and engine profiles each."""
        names = list(TABLES)
        body = as_xlsx(db.session, names)
        return attachment(body, XLSX, "catalog.xlsx", catalog_tag(db.session, names))

    @_import_operation(XLSX)
    def post(self, args: dict[str, Any]) -> Response:
        """Take an edited catalog workbook: adds and changes rows, never removes one."""
        return take(list(TABLES), (XLSX,), args["dry_run"] == "true")


@blp.route("/catalog/<table>")
class CatalogTable(MethodView):
    """One table."""

    @blp.read(dict(BINARY), 404, content_type=XLSX, query=ExportQuery, text="text/csv")
    def get(self, args: dict[str, Any], table: str) -> Response:
        """One table (``gpus``, ``models``, ``prices``, ``engines``) as CSV or xlsx."""
        _known(table)
        if args["format"] == "csv":
            body, kind = as_csv(db.session, table), "text/csv; charset=utf-8"
        else:
            body, kind = as_xlsx(db.session, [table]), XLSX
        # One address has two forms, told apart by the query: the tag is of the content alone.
        return attachment(body, kind, f"{table}.{args['format']}",
                          catalog_tag(db.session, [table]))

    @_import_operation(XLSX, CSV)
    def post(self, args: dict[str, Any], table: str) -> Response:
        """Take an edited table as CSV or xlsx: adds and changes rows, never removes one."""
        _known(table)
        return take([table], (XLSX, CSV), args["dry_run"] == "true")


def _known(table: str) -> None:
    if table not in TABLES:
        raise Problem(404, "not-found",
                      f"there is no table {table[:100]!r}; there are {', '.join(TABLES)}")


