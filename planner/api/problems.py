"""Errors as RFC 9457 problems: every failure is ``application/problem+json``, never HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from flask import Flask, Response, request
from marshmallow import Schema, fields
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm.exc import StaleDataError
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from planner.api.validation import InvalidDocument
from planner.errors import PlannerError
from planner.reading import RETRY_S, BodyTooSlow, TooManyReaders
from planner.traces.stream import TraceTooLarge

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "/api/v1/problems#"
log = structlog.get_logger()


class ProblemErrorSchema(Schema):
    """One field at fault."""

    pointer = fields.String(metadata={"description": "JSON pointer into the request body"})
    parameter = fields.String(metadata={"description": "Query parameter or header at fault"})
    message = fields.String(required=True)


class ProblemSchema(Schema):
    """Problem details (RFC 9457)."""

    type = fields.String(required=True, metadata={"format": "uri-reference"})
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String(required=True)
    instance = fields.String(required=True)
    errors = fields.List(fields.Nested(ProblemErrorSchema), required=True)


class Problem(Exception):
    """A failure that is about HTTP rather than about a plan.

    Parameters
    ----------
    status : int
    code : str
        Fragment of the problem's type.
    detail : str
    errors : sequence of dict
    """

    def __init__(self, status: int, code: str, detail: str,
                 errors: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.errors = status, code, detail, list(errors)


def problem_response(status: int, code: str, title: str, detail: str,
                     errors: Sequence[Mapping[str, str]] = (),
                     headers: Mapping[str, str] | None = None) -> Response:
    """A problem as a response."""
    body = {"type": TYPE_PREFIX + code, "title": title, "status": status, "detail": detail,
            "instance": request.path, "errors": list(errors)}
    response = Response(json.dumps(body), status, content_type=CONTENT_TYPE)
    response.headers.update(headers or {})
    return response


def not_found(error: PlannerError) -> Problem:
    """The same error as a 404: the path, not the body, named what is missing."""
    return Problem(404, error.code, error.message)


def errors_of(error: PlannerError | Problem) -> list[Mapping[str, str]]:
    """The fields at fault, a row each, as a problem shows them."""
    if isinstance(error, Problem):
        return error.errors
    pairs = error.errors if isinstance(error, InvalidDocument) else [(error.pointer, error.message)]
    return [{"pointer": p, "message": m} for p, m in pairs]


def _from_planner(error: PlannerError) -> Response:
    rows = errors_of(error)
    detail = "; ".join(f"{r['pointer'] or 'the document'}: {r['message']}" for r in rows[:5])
    return problem_response(422, error.code, error.title, detail, rows)


def _from_problem(error: Problem) -> Response:
    title = HTTPStatus(error.status).phrase
    return problem_response(error.status, error.code, title, error.detail, error.errors)


def _from_http(error: HTTPException) -> Response:
    status = error.code or 500
    kept = {k: v for k, v in error.get_headers() if k.lower() not in ("content-type",)}
    if 300 <= status < 400:
        return Response("", status, kept | {"Location": getattr(error, "new_url", "")})
    code = (error.name or "error").lower().replace(" ", "-")
    return problem_response(status, code, error.name, error.description or error.name,
                            headers=kept)


def _from_too_large(error: RequestEntityTooLarge) -> Response:
    message = (f"must be at most {request.max_content_length:,} bytes; the service's setting "
               "PLANNER_MAX_BODY_BYTES allows more")
    return problem_response(413, "request-entity-too-large", error.name, f"the body {message}",
                            [{"pointer": "", "message": message}])


def _from_stale(error: StaleDataError) -> Response:
    return problem_response(412, "precondition-failed", "Precondition Failed",
                            "someone else wrote this in the meantime; read it again")


def _from_integrity(error: IntegrityError) -> Response:
    return problem_response(409, "conflict", "Conflict",
                            "the change conflicts with a row that is already stored")


def _from_operational(error: OperationalError) -> Response:
    log.error("database_unavailable", error=str(error.orig))
    return problem_response(503, "database-unavailable", "Service Unavailable",
                            "the database cannot be used now; is it migrated?",
                            headers={"Retry-After": "5"})


def _from_trace_too_large(error: TraceTooLarge) -> Response:
    message = (f"{error.message}; the settings PLANNER_MAX_TRACE_ROWS and PLANNER_MAX_TRACE_BYTES "
               "allow more")
    return problem_response(413, error.code, error.title, message,
                            [{"pointer": "", "message": message}])


def _from_slow(error: BodyTooSlow) -> Response:
    return problem_response(408, "request-timeout", "Request Timeout", str(error))


def _from_readers(error: TooManyReaders) -> Response:
    return problem_response(503, "too-many-uploads", "Service Unavailable", str(error),
                            headers={"Retry-After": str(RETRY_S)})


def _from_anything(error: Exception) -> Response:
    log.error("unhandled_error", exc_info=error)
    return problem_response(500, "internal-error", "Internal Server Error",
                            "something broke here; the log has the request id")


def register_problems(app: Flask) -> None:
    """Turn every exception of an app into a problem."""
    app.register_error_handler(PlannerError, _from_planner)
    app.register_error_handler(TraceTooLarge, _from_trace_too_large)
    app.register_error_handler(Problem, _from_problem)
    app.register_error_handler(RequestEntityTooLarge, _from_too_large)
    app.register_error_handler(HTTPException, _from_http)
    app.register_error_handler(StaleDataError, _from_stale)
    app.register_error_handler(IntegrityError, _from_integrity)
    app.register_error_handler(OperationalError, _from_operational)
    app.register_error_handler(BodyTooSlow, _from_slow)
    app.register_error_handler(TooManyReaders, _from_readers)
    app.register_error_handler(Exception, _from_anything)


def problem_types() -> list[dict[str, Any]]:
    """Every problem type that input can cause, with its title."""
    found: dict[str, str] = {}
    queue: list[type[PlannerError]] = [PlannerError]
    while queue:
        kind = queue.pop()
        found.setdefault(kind.code, kind.title)
        queue.extend(kind.__subclasses__())
    return [{"type": TYPE_PREFIX + code, "title": title} for code, title in sorted(found.items())]
