"""The catalog in the database: loading, and reading it as one value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from models import Base, GpuRow, PriceRow
from planner.catalog.shipped import shipped_catalog
from planner.catalog.store import LoadReport, catalog_from_db, load_catalog


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    engine = create_engine(f"sqlite:///{tmp_path}/catalog.sqlite3")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_loading_twice_changes_nothing(session: Session) -> None:
    assert load_catalog(session)["gpus"] == LoadReport(added=46)
    first = catalog_from_db(session)
    second = load_catalog(session)
    assert all(r.added == r.changed == r.kept == 0 for r in second.values())
    assert catalog_from_db(session) is first


def test_the_database_holds_what_is_shipped(session: Session) -> None:
    load_catalog(session)
    stored, shipped = catalog_from_db(session), shipped_catalog()
    assert stored.gpus == shipped.gpus
    assert stored.engines == shipped.engines
    assert stored.llms == shipped.llms
    assert {p.id: p for p in stored.prices} == {p.id: p for p in shipped.prices}
    assert stored.as_of == shipped.as_of


def test_edited_rows_are_kept_unless_forced(session: Session) -> None:
    load_catalog(session)
    row = session.get_one(GpuRow, "l40s")
    shipped_gib = row.memory_gib
    row.memory_gib, row.origin = 40.0, "user"
    session.commit()
    assert load_catalog(session)["gpus"].kept == 1
    assert session.get_one(GpuRow, "l40s").memory_gib == 40.0
    assert load_catalog(session, force=True)["gpus"].changed == 1
    assert session.get_one(GpuRow, "l40s").memory_gib == shipped_gib


def test_own_rows_stay(session: Session) -> None:
    load_catalog(session)
    session.add(PriceRow(id="mine", gpu="l40s", provider="me", commitment="owned",
                         usd_per_gpu_hour=1, as_of="2026", source="invoice"))
    session.commit()
    load_catalog(session, force=True)
    assert session.get(PriceRow, "mine") is not None


def test_the_value_follows_every_write(session: Session) -> None:
    load_catalog(session)
    before = catalog_from_db(session)
    row = session.get_one(GpuRow, "l40s")
    row.name = "Renamed"
    session.commit()
    changed = catalog_from_db(session)
    assert (before.gpu("l40s").name, changed.gpu("l40s").name) == ("NVIDIA L40S", "Renamed")
    for price in session.query(PriceRow).filter_by(gpu="l40s"):
        session.delete(price)
    session.commit()
    assert not [p for p in catalog_from_db(session).prices if p.gpu == "l40s"]
