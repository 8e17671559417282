"""The blueprint that all resources use: strict bodies, problems, entity tags in the spec."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import wraps
from typing import Any, NoReturn

from flask import Request
from flask_smorest import Api, Blueprint
from marshmallow import Schema, ValidationError
from webargs.flaskparser import FlaskParser
from werkzeug.exceptions import RequestEntityTooLarge

from planner.api.problems import CONTENT_TYPE, Problem, ProblemSchema
from planner.api.validation import InvalidDocument, NotJson, json_of, pointers
from planner.reading import READERS

BASE_PATH = "/api/v1"
View = Callable[..., Any]
_ETAG = {"ETag": {"description": "Tag of this representation", "schema": {"type": "string"}}}
_READ_HEADER = {"in": "header", "name": "If-None-Match", "schema": {"type": "string"},
                "description": "Tag already held; 304 when it is still current"}
_WRITE_HEADER = {"in": "header", "name": "If-Match", "schema": {"type": "string"},
                 "description": "Tag of the version read; without it 428, when stale 412"}


class BodyParser(FlaskParser):
    """Reads JSON bodies and query strings; every refusal is a problem."""

    DEFAULT_UNKNOWN_BY_LOCATION = {"json": None, "query": "raise", "path": "raise"}  # noqa: RUF012

    def load_json(self, req: Request, schema: Schema) -> Any:
        """The body as JSON, ``NaN`` and ``Infinity`` included so that a field can refuse them."""
        return read_json(req)

    def handle_error(self, error: ValidationError, req: Request, schema: Schema, *,
                     error_status_code: int | None, error_headers: Any) -> NoReturn:
        """Raise the refusal with pointers (body) or parameter names (query)."""
        for location, messages in error.messages_dict.items():
            found = list(pointers(messages))
            if location == "json":
                raise InvalidDocument(found)
            rows = [{"parameter": p.strip("/"), "message": m} for p, m in found]
            detail = "; ".join(f"{r['parameter']}: {r['message']}" for r in rows)
            raise Problem(422, "invalid-value", detail, rows)
        raise Problem(422, "invalid-value", "the request cannot be used")


def read_json(req: Request) -> Any:
    """Parse a JSON body.

    Raises
    ------
    Problem
        415 for another content type, 400 for text that is not JSON.
    """
    if not req.is_json:
        raise Problem(415, "unsupported-media-type",
                      f"send application/json, not {req.mimetype or 'nothing'}")
    try:
        return json_of(whole_body(req))
    except NotJson as error:
        raise Problem(400, "malformed-json", f"the body is not JSON: {error}",
                      [{"pointer": "", "message": str(error)}]) from None


def whole_body(req: Request) -> bytes:
    """The body, refused when it is too large.

    A body of announced length is refused before it is read. One sent in chunks is only cut at
    the limit, so one that fills the limit counts as larger: nobody plans with half a document.
    """
    data = req.get_data(cache=True)
    READERS.leave()
    limit = req.max_content_length
    if req.content_length is None and limit is not None and len(data) >= limit:
        raise RequestEntityTooLarge()
    return data


def _compose(*decorators: Callable[[View], View]) -> Callable[[View], View]:
    def apply(view: View) -> View:
        for decorator in reversed(decorators):
            view = decorator(view)
        return view

    return apply


class ApiBlueprint(Blueprint):  # type: ignore[misc]
    """A blueprint with the four kinds of operation a catalog has."""

    ARGUMENTS_PARSER = BodyParser()

    def __init__(self, name: str, import_name: str, description: str) -> None:
        super().__init__(name, import_name, url_prefix=BASE_PATH, description=description)
        self._prepare_doc_cbks.append(self._prepare_header_doc)

    def problems(self, *statuses: int) -> Callable[[View], View]:
        """Document the problems an operation may answer."""
        return _compose(*(self.alt_response(s, schema=ProblemSchema, content_type=CONTENT_TYPE)
                          for s in (*statuses, 500)))

    def read(self, schema: Any, *problems: int, query: Any = None,
             content_type: str | None = None, text: str | None = None
             ) -> Callable[[View], View]:
        """An operation that shows something, with its tag; ``text``: a second content type."""
        parts = [self.response(200, schema, headers=_ETAG, content_type=content_type),
                 self.alt_response(304, description="The client's copy is current"),
                 self.problems(*problems, *((422,) if query else ())), _mark(_READ_HEADER)]
        if text is not None:
            parts.append(self.alt_response(200, schema={"type": "string"}, content_type=text))
        if query is not None:
            parts.insert(0, self.arguments(query, location="query"))
        return _compose(*parts)

    def create(self, body: Any, schema: Any, *problems: int, status: int = 201,
               example: Any = None, content_type: str | None = None
               ) -> Callable[[View], View]:
        """An operation that takes a body and makes something of it."""
        return _compose(self.arguments(body, example=example),
                        self.response(status, schema, content_type=content_type),
                        self.problems(400, 408, 413, 415, 422, 503, *problems))

    def replace(self, body: Any, schema: Any, require_read: Callable[[str], None]
                ) -> Callable[[View], View]:
        """An operation that replaces a row that the client has read.

        Parameters
        ----------
        require_read : callable
            Refuses the key of the address where the client has not read the row as it is now;
            asked before the body is read.
        """
        return _compose(_first(require_read), self.arguments(body),
                        self.response(200, schema, headers=_ETAG),
                        self.problems(400, 404, 408, 409, 412, 413, 415, 422, 428, 503),
                        _mark(_WRITE_HEADER))

    def remove(self, checked: bool = True) -> Callable[[View], View]:
        """An operation that deletes a row; ``checked``: only one that the client has read."""
        problems = (404, 409, 412, 428) if checked else (404, 412)
        return _compose(self.response(204), self.problems(*problems), _mark(_WRITE_HEADER))

    @staticmethod
    def replaces(view: View) -> View:
        """Document the ``If-Match`` that a write with a body of its own kind needs."""
        return _mark(_WRITE_HEADER)(view)

    @staticmethod
    def _prepare_header_doc(doc: dict[str, Any], doc_info: dict[str, Any], **_: Any
                            ) -> dict[str, Any]:
        for header in doc_info.get("headers", []):
            doc.setdefault("parameters", []).append(deepcopy(header))
        return doc


def _first(require_read: Callable[[str], None]) -> Callable[[View], View]:
    """Ask for the key of the address before all else."""
    def decorate(view: View) -> View:
        @wraps(view)
        def checked(*args: Any, **address: Any) -> Any:
            require_read(*address.values())
            return view(*args, **address)

        return checked

    return decorate


def _mark(header: dict[str, Any]) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        info = deepcopy(getattr(view, "_apidoc", {}))
        info.setdefault("headers", []).append(header)
        view._apidoc = info  # type: ignore[attr-defined]
        return view

    return decorate


class ProblemApi(Api):  # type: ignore[misc]
    """The API object; its errors are the app's problems and its spec says so."""

    ERROR_SCHEMA = ProblemSchema

    def _register_error_handlers(self) -> None:
        """Nothing: ``planner.api.problems`` handles every error of the app."""

    def _register_responses(self) -> None:
        self.DEFAULT_RESPONSE_CONTENT_TYPE = CONTENT_TYPE
        super()._register_responses()
        del self.DEFAULT_RESPONSE_CONTENT_TYPE
