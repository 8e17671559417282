"""The catalog in the database: fill it from the seed tables, read it as one value."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import func, inspect, select
from sqlalchemy.orm import Session

from models import EngineRow, GpuRow, LlmRow, PriceRow
from models.base import CatalogRow
from planner.catalog.book import Catalog
from planner.catalog.rows import engine_from_fields
from planner.catalog.shipped import (
    build_catalog,
    engine_rows,
    gpu_rows,
    model_rows,
    price_rows,
)

TABLES: tuple[type[CatalogRow], ...] = (GpuRow, LlmRow, PriceRow, EngineRow)
_BOOKKEEPING = {"version", "updated_at", "origin"}


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What one load did to a table."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    kept: int = 0
    """Rows that a user edited and the load left alone."""


def row_fields(row: CatalogRow) -> dict[str, Any]:
    """A row's own columns by name, without the bookkeeping."""
    return {a.key: getattr(row, a.key) for a in inspect(type(row)).column_attrs
            if a.key not in _BOOKKEEPING}


def engine_columns(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an engine row from the fields of a profile."""
    full = asdict(engine_from_fields(profile))
    selectors = {k: full[k] for k in ("slug", "engine", "gpu", "precision", "obtained")}
    return {**selectors, "profile": full}


def model_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a model row from a line of ``models.jsonl``."""
    record = row["record"]
    return {"slug": row["slug"], "name": row.get("name") or record["name"],
            "hf_id": row.get("hf_id"), "aliases": list(row.get("aliases") or ()),
            "architecture": record["architecture"], "record": record,
            "published": {k: v for k, v in row.items() if k.startswith("published_")},
            "source": row.get("source") or "", "as_of": row.get("as_of") or ""}


def price_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a price row; money as a decimal."""
    return {**row, "usd_per_gpu_hour": Decimal(str(row["usd_per_gpu_hour"]))}


def load_catalog(session: Session, force: bool = False) -> dict[str, LoadReport]:
    """Bring the database up to the seed tables; doing it twice changes nothing.

    Parameters
    ----------
    session : Session
        Committed at the end.
    force : bool
        Also overwrite rows that a user edited.

    Returns
    -------
    dict of str to LoadReport
        By table name.
    """
    seeds: list[tuple[type[CatalogRow], list[dict[str, Any]]]] = [
        (GpuRow, gpu_rows()),
        (LlmRow, [model_columns(r) for r in model_rows()]),
        (PriceRow, [price_columns(r) for r in price_rows()]),
        (EngineRow, [engine_columns(r) for r in engine_rows()]),
    ]
    report = {}
    for table, rows in seeds:
        report[table.__tablename__] = _upsert(session, table, rows, force)
        session.flush()  # prices refer to GPUs
    session.commit()
    return report


def _upsert(session: Session, table: type[CatalogRow], rows: Iterable[Mapping[str, Any]],
            force: bool) -> LoadReport:
    key = next(iter(table.__table__.primary_key)).key
    stored: dict[str, CatalogRow] = {
        getattr(r, key): r for r in session.scalars(select(table)).all()}
    counts = dict.fromkeys(("added", "changed", "unchanged", "kept"), 0)
    for row in rows:
        old = stored.get(row[key])
        if old is None:
            session.add(table(**row, origin="shipped"))
            counts["added"] += 1
        else:
            counts[_refresh(old, row, force)] += 1
    return LoadReport(**counts)


def _refresh(old: CatalogRow, row: Mapping[str, Any], force: bool) -> str:
    """Update one stored row; returns which count it belongs to."""
    if old.origin == "user" and not force:
        return "kept"
    changes = {k: v for k, v in row.items() if getattr(old, k) != v}
    if not changes and old.origin == "shipped":
        return "unchanged"
    for name, value in changes.items():
        setattr(old, name, value)
    old.origin = "shipped"
    return "changed"


_cache: dict[str, tuple[tuple[Any, ...], Catalog]] = {}
_lock = threading.Lock()


def catalog_from_db(session: Session) -> Catalog:
    """The catalog of the database as one value, rebuilt only when a row has changed.

    The value is shared between callers and not to be changed.
    """
    stamp = catalog_version(session)
    where = str(session.get_bind().engine.url)
    with _lock:
        cached = _cache.get(where)
    if cached and cached[0] == stamp:
        return cached[1]
    catalog = _read(session)
    with _lock:
        _cache[where] = (stamp, catalog)
    return catalog


def catalog_version(session: Session) -> tuple[Any, ...]:
    """What changes whenever any catalog row is written, added or deleted."""
    return tuple(
        tuple(session.execute(select(
            func.count(), func.max(t.updated_at), func.sum(t.version)).select_from(t)).one())
        for t in TABLES)


def _read(session: Session) -> Catalog:
    gpus, models, prices, engines = (
        [row_fields(r) for r in session.scalars(select(t)).all()] for t in TABLES)
    return build_catalog(gpus, models, prices, [row["profile"] for row in engines])
