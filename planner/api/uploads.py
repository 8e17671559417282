"""A file in a request: the raw body, or the one file of a form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flask import Request

from planner.api.blueprint import whole_body
from planner.api.problems import Problem
from planner.errors import InvalidValue
from planner.reading import READERS

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
XLSM = "application/vnd.ms-excel.sheet.macroenabled.12"
ANY = "application/octet-stream"
CSV = "text/csv"
FORM = "multipart/form-data"
FILE = "file"
BINARY: Mapping[str, Any] = {"type": "string", "format": "binary"}


def body_doc(*content_types: str) -> dict[str, Any]:
    """The request body of an operation that takes a file, for the specification."""
    form = {"type": "object", "required": [FILE], "additionalProperties": False,
            "properties": {FILE: dict(BINARY)}}
    return {"required": True, "content": {
        **{kind: {"schema": dict(BINARY)} for kind in content_types},
        FORM: {"schema": form}}}


def uploaded(req: Request, *content_types: str) -> tuple[bytes, str]:
    """The content and the name of the file that a request sends.

    Parameters
    ----------
    content_types : str
        Types of a raw body that are taken, lower case; a form is always taken.

    Returns
    -------
    bytes, str
        The name is empty for a raw body.

    Raises
    ------
    Problem
        415 for another type of body.
    InvalidValue
        When a form has not exactly one file, under the name ``file``.
    """
    if req.mimetype == FORM:
        return _of_form(req)
    if req.mimetype not in content_types:
        raise Problem(415, "unsupported-media-type",
                      f"send the file as {FORM} (field {FILE}) or as {' or '.join(content_types)}, "
                      f"not {req.mimetype or 'nothing'}")
    return whole_body(req), ""


def other_names(parts: Iterable[str | None], *known: str) -> list[str]:
    """Names of parts of a form that are not known, sorted; a part may have none that can be read.

    Examples
    --------
    >>> other_names(["file", None, "more"], "file")
    ['', 'more']
    """
    return sorted({name or "" for name in parts} - set(known))


def _of_form(req: Request) -> tuple[bytes, str]:
    other = other_names((*req.files, *req.form), FILE)
    READERS.leave()
    if other:
        raise InvalidValue(f"unknown field; send one file as {FILE}", f"/{other[0][:100]}")
    sent = req.files.getlist(FILE)
    if len(sent) != 1 or FILE in req.form:
        raise InvalidValue(f"must be one file, not {len(sent)}", f"/{FILE}")
    return sent[0].read(), sent[0].filename or ""
