"""The four catalog tables as flat rows for spreadsheets, and back as checked columns.

The columns are named as in the shipped CSV files, so those can be imported too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from marshmallow import Schema

from models import EngineRow, GpuRow, LlmRow, PriceRow
from models.base import CatalogRow
from planner.api import engines, gpus, models, prices
from planner.api.fields import Choice, Flag, Text
from planner.api.validation import load_document
from planner.catalog.rows import RATES, engine_from_fields
from planner.catalog.store import engine_columns, row_fields
from planner.errors import InvalidValue, PlannerError
from planner.llm import from_record

Kind = Literal["text", "number", "flag", "date", "list", "notes", "json", "derived"]
Flat = dict[str, Any]
_RATE_COLUMNS = {f"dense_{name}_tflops": name for name in RATES}
_DATES = ("as_of", "source_date")
_IDENTITY = ("slug", "name", "hf_id", "aliases", "source", "as_of")
_GPU, _PRICE, _ENGINE = gpus.GpuSchema(), prices.PriceSchema(), engines.EngineSchema()
_MODEL = models.ModelInSchema(only=_IDENTITY)


@dataclass(frozen=True, slots=True)
class Table:
    """One catalog table.

    Attributes
    ----------
    name : str
        As in the address: ``gpus``, ``models``, ``prices``, ``engines``.
    row : type
    key : str
    kinds : dict of str to str
        How each column is read, in the order of the file.
    flat : callable
        A stored row as a flat one.
    checked : callable
        From a flat row and the stored row (None when new) to the columns of a row; raises
        PlannerError with pointers that end in a column's name.
    """

    name: str
    row: type[CatalogRow]
    key: str
    kinds: Mapping[str, Kind]
    flat: Callable[[Any], Flat]
    checked: Callable[[Flat, Any], dict[str, Any]]


def _kinds(schema: type[Schema], **own: Kind) -> dict[str, Kind]:
    return {name: own.get(name) or _kind(name, field) for name, field in schema().fields.items()}


def _kind(name: str, field: Any) -> Kind:
    if name in _DATES:
        return "date"
    if isinstance(field, Text | Choice):
        return "text"
    return "flag" if isinstance(field, Flag) else "number"


# -- GPUs ---------------------------------------------------------------------------------------


def _gpu_kinds() -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for name, kind in _kinds(gpus.GpuSchema, dense_tflops="json").items():
        if name == "dense_tflops":
            kinds |= dict.fromkeys(_RATE_COLUMNS, "number")
        else:
            kinds[name] = kind
    return kinds


def _gpu_columns(flat: Flat, row: GpuRow | None) -> dict[str, Any]:
    rates = {short: flat[name] for name, short in _RATE_COLUMNS.items()
             if flat.get(name) is not None}
    document = {k: v for k, v in flat.items() if v is not None and k not in _RATE_COLUMNS}
    return gpus.columns(load_document(_GPU, {**document, "dense_tflops": rates}))


# -- prices -------------------------------------------------------------------------------------


def _price_flat(row: PriceRow) -> Flat:
    return row_fields(row)


def _price_columns(flat: Flat, row: PriceRow | None) -> dict[str, Any]:
    document = {k: v for k, v in flat.items() if v is not None}
    # The schema wants a number; the decimal itself is what is stored.
    data = load_document(_PRICE, {
        **document, **({"usd_per_gpu_hour": float(document["usd_per_gpu_hour"])}
                       if "usd_per_gpu_hour" in document else {})})
    usd = Decimal(str(document["usd_per_gpu_hour"])).quantize(Decimal("0.000001"))
    return {**data, "usd_per_gpu_hour": usd}


# -- engines ------------------------------------------------------------------------------------


def _engine_flat(row: EngineRow) -> Flat:
    return engines.document(row)


def _engine_columns(flat: Flat, row: EngineRow | None) -> dict[str, Any]:
    document = {k: v for k, v in flat.items() if v is not None}
    return engine_columns(load_document(_ENGINE, document))


# -- models -------------------------------------------------------------------------------------

_DERIVED = ("architecture", "total_params", "active_params", "layers", "hidden", "vocab",
            "max_context", "native_weights", "native_kv")
_MODEL_KINDS: dict[str, Kind] = {
    "slug": "text", "name": "text", "hf_id": "text", "aliases": "list",
    **dict.fromkeys(_DERIVED, "derived"),
    "source": "text", "as_of": "date", "published": "json", "record": "json",
    "hf_config": "json",
}


def _model_flat(row: LlmRow) -> Flat:
    shown = models.document(row)
    return {**row_fields(row), **{n: shown[n] for n in _DERIVED}, "hf_config": None}


def _model_columns(flat: Flat, row: LlmRow | None) -> dict[str, Any]:
    identity = {k: flat[k] for k in _IDENTITY if flat.get(k) is not None}
    data = load_document(_MODEL, identity)
    built, shown = _architecture(flat, row, data)
    _check_derived(flat, shown)
    return built | {"source": data.get("source", ""), "as_of": data.get("as_of", ""),
                    "aliases": data.get("aliases", []),
                    "published": _object(flat.get("published") or {}, "published")}


def _architecture(flat: Flat, row: LlmRow | None, data: Mapping[str, Any]
                  ) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Identity and record of a model, and what follows from the record."""
    if flat.get("hf_config") is not None:
        config = _object(flat["hf_config"], "hf_config")
        built = models.columns({**data, "hf_config": config})
        return built, {**models.derived(from_record(built["record"])),
                       "architecture": built["architecture"]}
    record = flat.get("record")
    if row is not None and record in (None, row.record):
        built = {"slug": row.slug, "name": data.get("name") or row.name,
                 "hf_id": data.get("hf_id"), "architecture": row.architecture,
                 "record": row.record}
        return built, models.document(row)
    if record is None:
        raise InvalidValue("a new model needs its record, or its config.json in hf_config",
                           "/record")
    return _from_record(data, _object(record, "record"))


def _from_record(data: Mapping[str, Any], record: dict[str, Any]
                 ) -> tuple[dict[str, Any], Mapping[str, Any]]:
    try:
        llm = from_record(record)
        shown = {**models.derived(llm), "architecture": llm.architecture}
    except PlannerError as error:
        raise InvalidValue(error.message, "/record") from None
    except Exception as error:  # a record is a deep structure: anything in it may be missing
        raise InvalidValue("is no architecture record as the export writes it "
                           f"({type(error).__name__})", "/record") from None
    if llm.slug != data["slug"]:
        raise InvalidValue(f"is the record of {llm.slug!r}, not of {data['slug']!r}", "/record")
    return {"slug": data["slug"], "name": data.get("name") or llm.name,
            "hf_id": data.get("hf_id"), "architecture": llm.architecture,
            "record": record}, shown


def _object(value: Any, column: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValue("must be a JSON object", f"/{column}")
    return dict(value)


def _check_derived(flat: Flat, shown: Mapping[str, Any]) -> None:
    """Refuse an edit of what follows from the architecture."""
    for name in _DERIVED:
        given = flat.get(name)
        if given is not None and str(given) != str(shown[name]):
            raise InvalidValue(f"follows from the architecture ({shown[name]}) and cannot be "
                               "edited; leave it as exported or blank", f"/{name}")


# -- all ----------------------------------------------------------------------------------------

TABLES: Mapping[str, Table] = {t.name: t for t in (
    Table("gpus", GpuRow, "slug", _gpu_kinds(), row_fields, _gpu_columns),
    Table("models", LlmRow, "slug", _MODEL_KINDS, _model_flat, _model_columns),
    Table("prices", PriceRow, "id", _kinds(prices.PriceSchema), _price_flat, _price_columns),
    Table("engines", EngineRow, "slug", _kinds(engines.EngineSchema, notes="notes"),
          _engine_flat, _engine_columns),
)}
"""Every table, in the order in which they refer to one another."""


def flat_of_columns(table: Table, columns: Mapping[str, Any]) -> Flat:
    """The columns of a row as a flat row, to compare with a stored one."""
    if table.name == "engines":
        return asdict(engine_from_fields(columns["profile"]))
    return dict(columns)


def text_of_value(kind: Kind, value: Any) -> Any:
    """A value as a cell holds it: lists and objects as text."""
    if kind == "list":
        return "; ".join(value or ())
    if kind in ("json", "notes"):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False) if value else ""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def table_rows(table: Table, rows: Iterable[Any]) -> list[list[Any]]:
    """Stored rows as cells, in the order of the table's columns."""
    found = []
    for row in rows:
        flat = table.flat(row)
        found.append([text_of_value(kind, flat.get(name)) for name, kind in table.kinds.items()])
    return found
