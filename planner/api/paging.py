"""Lists in pages: ``limit`` and ``offset`` in, ``items``, ``total`` and ``next`` out."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from flask import current_app, request
from marshmallow import Schema, fields
from sqlalchemy import Select, func, select

from planner.api.fields import QueryWhole, Text
from planner.api.problems import Problem
from planner.api.validation import StrictSchema
from planner.extensions import db

MAX_OFFSET = 1_000_000_000


class PageQuery(StrictSchema):
    """Which page of a list."""

    limit = QueryWhole(lowest=1, metadata={"description": "Items a page (default 100)"})
    offset = QueryWhole(lowest=0, highest=MAX_OFFSET, load_default=0,
                        metadata={"description": "Items to skip"})


class SearchQuery(PageQuery):
    """A page of the rows that match a text."""

    q = Text(longest=100, metadata={"description": "Part of the slug or name, any case"})


def page_schema(name: str, item: type[Schema]) -> type[Schema]:
    """The schema of a page of items."""
    made = Schema.from_dict({
        "items": fields.List(fields.Nested(item), required=True),
        "total": fields.Integer(required=True),
        "next": fields.String(required=True, allow_none=True),
    }, name=name)
    return made


def page_limit(args: dict[str, Any]) -> int:
    """The page size asked for, or the default; refused above the largest allowed."""
    largest: int = current_app.config["PLANNER_PAGE_LIMIT_MAX"]
    limit = args.get("limit")
    if limit is None:
        return min(int(current_app.config["PLANNER_PAGE_LIMIT"]), largest)
    if limit > largest:
        message = f"must be at most {largest}, not {limit}"
        raise Problem(422, "invalid-value", f"limit: {message}",
                      [{"parameter": "limit", "message": message}])
    return int(limit)


def page(query: Select[Any], args: dict[str, Any]) -> tuple[list[Any], int, str | None]:
    """One page of a query: the rows, how many there are, and where the next page is."""
    limit, offset = page_limit(args), args["offset"]
    total = db.session.scalar(select(func.count()).select_from(query.order_by(None).subquery()))
    rows = list(db.session.scalars(query.limit(limit).offset(offset)))
    return rows, total or 0, next_url(offset + limit) if offset + limit < (total or 0) else None


def next_url(offset: int) -> str:
    """This request's address with another offset."""
    query = {**request.args.to_dict(), "offset": str(offset)}
    return f"{request.path}?{urlencode(query)}"


def matches(text: str, *columns: Any) -> Any:
    """A condition: any column contains the text, whatever the case."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    conditions = [column.ilike(f"%{escaped}%", escape="\\") for column in columns]
    result = conditions[0]
    for condition in conditions[1:]:
        result = result | condition
    return result
