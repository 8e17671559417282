"""Entity tags: a hash of what a read shows. Writes must name the one they saw."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from flask import Response, request

from planner.api.problems import Problem


def etag_of(body: bytes) -> str:
    """The tag of a representation."""
    return hashlib.sha256(body).hexdigest()[:32]


def encode(document: Any) -> bytes:
    """A document as the bytes a read sends."""
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def known(tag: str) -> bool:
    """Whether the client has a representation already, so that its body need not be made."""
    return request.if_none_match.contains(tag)


def respond(document: Any, status: int = 200, location: str | None = None) -> Response:
    """A document as a response with its tag; 304 when the client has it already."""
    body = encode(document)
    response = Response(body, status, content_type="application/json")
    return tagged(response, body, location)


def tagged(response: Response, body: bytes, location: str | None = None) -> Response:
    """Give a response its tag, and answer a conditional read."""
    response.set_etag(etag_of(body))
    if location is not None:
        response.headers["Location"] = location
        response.autocorrect_location_header = False
    if request.method in ("GET", "HEAD"):
        response.make_conditional(request)
    return response


def require_match(document: Any) -> None:
    """Let a write through only when ``If-Match`` names the current representation.

    Raises
    ------
    Problem
        428 without the header, 412 when it names another representation.
    """
    if "If-Match" not in request.headers:
        raise Problem(428, "precondition-required",
                      "send the ETag of the version you read in If-Match",
                      [{"parameter": "If-Match", "message": "is required"}])
    if not request.if_match.contains(etag_of(encode(document))):
        raise Problem(412, "precondition-failed",
                      "this is not the version you read; read it again",
                      [{"parameter": "If-Match", "message": "names another version"}])
