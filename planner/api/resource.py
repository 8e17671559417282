"""What every editable catalog does: list, read, create, replace, delete a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Response, url_for
from sqlalchemy import Select

from models.base import CatalogRow
from planner.api.etags import require_match, respond
from planner.api.paging import page
from planner.api.problems import Problem
from planner.extensions import db

MOST_USERS = 20
"""Users of a row that a refusal names."""


def nobody(row: Any) -> list[str]:
    """Rows that nothing else needs."""
    return []


@dataclass(frozen=True, slots=True)
class Resource:
    """How one catalog is shown and found.

    Attributes
    ----------
    table : type
    key : str
        Column of the primary key, also its name in documents.
    noun : str
        What a message calls one row.
    endpoint : str
        Flask endpoint of one row.
    document : callable
        A row as the API shows it.
    """

    table: type[CatalogRow]
    key: str
    noun: str
    endpoint: str
    document: Callable[[Any], dict[str, Any]]
    users: Callable[[Any], list[str]] = nobody
    """What else needs a row, in words."""

    def find(self, key: str) -> Any:
        """The row of a key.

        Raises
        ------
        Problem
            404 when there is none.
        """
        row = None if "\x00" in key else db.session.get(self.table, key)
        if row is None:
            raise Problem(404, "not-in-catalog", f"there is no {self.noun} {key!r}")
        return row

    def list(self, query: Select[Any], args: dict[str, Any]) -> Response:
        """A page of rows."""
        rows, total, following = page(query, args)
        return respond({"items": [self.document(r) for r in rows], "total": total,
                        "next": following})

    def read(self, key: str) -> Response:
        """One row."""
        return respond(self.document(self.find(key)))

    def require_read(self, key: str) -> None:
        """Let a write through only when the client has read the row as it is now.

        Raises
        ------
        Problem
            404, 428 or 412.
        """
        require_match(self.document(self.find(key)))

    def create(self, columns: dict[str, Any]) -> Response:
        """Store a new row; 409 when its key is taken."""
        key = columns[self.key]
        if db.session.get(self.table, key) is not None:
            raise Problem(409, "already-exists", f"{self.noun} {key!r} exists already",
                          [{"pointer": f"/{self.key}", "message": "is taken"}])
        row = self.table(**columns)
        db.session.add(row)
        db.session.commit()
        return respond(self.document(row), 201, self.address(key))

    def replace(self, key: str, columns: dict[str, Any]) -> Response:
        """Replace a row that the client has read; its key cannot change."""
        row = self.find(key)
        require_match(self.document(row))
        if columns[self.key] != key:
            message = f"must be {key!r}, as in the address"
            raise Problem(422, "invalid-value", f"/{self.key}: {message}",
                          [{"pointer": f"/{self.key}", "message": message}])
        for name, value in columns.items():
            setattr(row, name, value)
        row.origin = "user"
        db.session.commit()
        return respond(self.document(row))

    def delete(self, key: str) -> Response:
        """Delete a row that the client has read; 409 when another row needs it."""
        row = self.find(key)
        require_match(self.document(row))
        users = self.users(row)
        if users:
            more = f" and {len(users) - MOST_USERS} more" if len(users) > MOST_USERS else ""
            raise Problem(409, "conflict", f"{self.noun} {key!r} is in use by "
                          f"{', '.join(users[:MOST_USERS])}{more}; delete those first")
        db.session.delete(row)
        db.session.commit()
        return Response(status=204)

    def address(self, key: str) -> str:
        """Path of one row."""
        values: dict[str, Any] = {self.key: key}
        return url_for(self.endpoint, **values)
