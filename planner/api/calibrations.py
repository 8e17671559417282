"""``/calibrations``: own benchmark results to engine profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from flask import Response, request
from flask.views import MethodView
from flask_smorest import Blueprint

from models import EngineRow
from planner.api.blueprint import ApiBlueprint, View, read_json
from planner.api.calibrations_schema import (
    CalibrationAnswerSchema,
    CalibrationFormSchema,
    CalibrationSchema,
    file_points,
    filled,
    form_defaults,
    rejections,
    row_points,
)
from planner.api.etags import respond
from planner.api.problems import Problem
from planner.api.uploads import other_names
from planner.api.validation import InvalidDocument, load_document
from planner.calibration.adjust import Adjustment, calibrate_results
from planner.calibration.points import MeasuredPoint
from planner.catalog.book import Catalog
from planner.catalog.store import catalog_from_db, engine_columns
from planner.errors import InvalidValue, NotInCatalog
from planner.extensions import db

blp = ApiBlueprint("calibrations", __name__, "Engine profiles from own benchmark results")
EXAMPLE = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "engine": "vllm", "weights": "bf16",
    "tensor_parallel": 1, "save": False,
    "points": [{"concurrency": 16, "prompt_tokens": 1024, "output_tokens": 128,
                "ttft_ms": 82.0, "tpot_ms": 8.9},
               {"concurrency": 64, "prompt_tokens": 1024, "output_tokens": 128,
                "ttft_ms": 210.0, "tpot_ms": 15.4}]}
_BODY = {"required": True, "content": {
    "application/json": {"schema": CalibrationSchema, "example": EXAMPLE},
    "multipart/form-data": {"schema": CalibrationFormSchema}}}


def calibrate(points: Iterable[MeasuredPoint], options: Mapping[str, Any], catalog: Catalog
              ) -> Adjustment:
    """Adjust profiles by some results, with the defaults and the slug of ``options``.

    Raises
    ------
    Problem
        422 when no result can be used; it lists why.
    """
    slug = options.get("slug")
    if slug is not None and slug in {p.engine for p in catalog.engines.values()}:
        raise InvalidValue(f"{slug!r} is the name of an engine; a profile needs its own", "/slug")
    points = list(points)
    check_names(points, options, catalog)
    whole, lacking = filled(points, options, catalog)
    found = calibrate_results(whole, catalog, datetime.now(UTC).date(), slug)
    found.rejected[:0] = lacking
    if not found.profiles:
        rows = [{"pointer": _pointer(r.point), "message": f"{r.point.source}: {r.code}: {r.reason}"}
                for r in found.rejected[:100]]
        raise Problem(422, "nothing-usable", "none of the results can be used: " + "; ".join(
            row["message"] for row in rows[:5]), rows)
    return found


def check_names(points: Iterable[MeasuredPoint], options: Mapping[str, Any], catalog: Catalog
                ) -> None:
    """Refuse a default model or GPU that the catalog lacks, at the field that names it, and rows
    of which none has known ones.

    Raises
    ------
    InvalidDocument
    """
    errors, useful = [], False
    for name, find in (("model", catalog.llm), ("gpu", catalog.gpu)):
        if options.get(name):
            errors += _unknown(find, options[name], f"/{name}")
    for point in points:
        if not point.source.startswith("points/"):
            useful = True  # of a file, or with a name of its own: its rejection says what it is
            continue
        own = [e for name, find in (("model", catalog.llm), ("gpu", catalog.gpu))
               if getattr(point, name) for e in _unknown(
                   find, getattr(point, name), f"/{point.source}/{name}")]
        useful |= not own
        errors += own
    if errors and (not useful or errors[0][0].count("/") == 1):
        raise InvalidDocument(errors)


def _unknown(find: Callable[[str, str], Any], name: str, pointer: str) -> list[tuple[str, str]]:
    try:
        find(name, pointer)
    except NotInCatalog as error:
        return [(error.pointer, error.message)]
    return []


def _pointer(point: MeasuredPoint) -> str:
    return f"/{point.source}" if point.source.startswith("points/") else ""


def save(found: Adjustment) -> None:
    """Store the profiles as rows of the engine catalog.

    Raises
    ------
    Problem
        409 when a slug is taken; then nothing is stored.
    """
    for profile in found.profiles:
        if db.session.get(EngineRow, profile.slug) is not None:
            raise Problem(409, "already-exists", f"there is an engine profile {profile.slug!r} "
                          "already; give another slug or delete it",
                          [{"pointer": "/slug", "message": f"{profile.slug} is taken"}])
    db.session.add_all(EngineRow(**engine_columns(asdict(p))) for p in found.profiles)
    db.session.commit()


def document(found: Adjustment, saved: bool) -> dict[str, Any]:
    """An adjustment as the API shows it."""
    return {"profiles": [asdict(p) for p in found.profiles], "before": found.before,
            "after": found.after, "kept": len(found.kept),
            "rejected": list(rejections(found.rejected)), "saved": saved}


def _read() -> tuple[list[MeasuredPoint], dict[str, Any]]:
    """Points and options of the request, from JSON rows or from files."""
    if request.mimetype == "multipart/form-data":
        return _read_form()
    if not request.is_json:
        raise Problem(415, "unsupported-media-type", "send application/json or "
                      f"multipart/form-data, not {request.mimetype or 'nothing'}")
    body = load_document(CalibrationSchema(), read_json(request))
    return row_points(body["points"]), body


def _read_form() -> tuple[list[MeasuredPoint], dict[str, Any]]:
    other = other_names(request.files, "files", "files[]")
    if other:
        raise InvalidValue("unknown field; send result files as files", f"/{other[0]}")
    sent = [f for name in ("files", "files[]") for f in request.files.getlist(name)]
    options = form_defaults(request.form)
    return file_points((f.filename or "file", f.read()) for f in sent), options


def _operation(view: View) -> View:
    """Document an operation with two kinds of body; the view reads them."""
    described: View = Blueprint.doc(requestBody=_BODY)(view)
    documented: View = blp.response(201, CalibrationAnswerSchema)(described)
    return blp.problems(400, 408, 409, 413, 415, 422, 503)(documented)


@blp.route("/calibrations")
class Calibrations(MethodView):
    """A calibration is computed; its profiles are stored when asked."""

    @_operation
    def post(self) -> Response:
        """Fit or adjust engine profiles to result files or rows, and list what was rejected."""
        points, options = _read()
        found = calibrate(points, options, catalog_from_db(db.session))
        if options["save"]:
            save(found)
        return respond(document(found, options["save"]), 201)
