"""Migrations make the tables that the classes describe, and unmake them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from flask import Flask
from flask_migrate import downgrade, upgrade
from sqlalchemy import inspect, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from app import create_app
from models import Base, PriceRow, WorkloadRow
from planner.extensions import db


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Flask]:
    app = create_app({"DATABASE_URL": f"sqlite:///{tmp_path}/fresh.sqlite3",
                      "PLANNER_LOG_LEVEL": "error"})
    with app.app_context():
        yield app
        db.engine.dispose()


def test_up_and_down(fresh: Flask) -> None:
    upgrade()
    assert set(Base.metadata.tables) <= set(inspect(db.engine).get_table_names())
    downgrade(revision="base")
    assert set(inspect(db.engine).get_table_names()) <= {"alembic_version"}
    upgrade()
    assert set(Base.metadata.tables) <= set(inspect(db.engine).get_table_names())


def test_no_drift(app: Flask) -> None:
    with app.app_context(), db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_checks_are_in_the_database(app: Flask) -> None:
    with app.app_context():
        names = {c["name"] for c in inspect(db.engine).get_check_constraints("gpus")}
        assert "ck_gpus_memory_positive" in names
        assert inspect(db.engine).get_foreign_keys("prices")[0]["referred_table"] == "gpus"


def test_sqlite_is_strict_and_concurrent(fresh: Flask) -> None:
    with db.engine.connect() as connection:
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 10_000


def test_a_price_needs_its_gpu(app: Flask) -> None:
    with app.app_context(), Session(db.engine) as session:
        session.add(PriceRow(id="x", gpu="nothing", provider="a", commitment="owned",
                             usd_per_gpu_hour=1, as_of="2026", source="b"))
        with pytest.raises(IntegrityError):
            session.commit()


def test_of_two_writers_one_loses(app: Flask) -> None:
    with app.app_context(), Session(db.engine) as first, Session(db.engine) as second:
        first.add(WorkloadRow(slug="race", name="a", document={}))
        first.commit()
        mine, theirs = (s.get_one(WorkloadRow, "race") for s in (first, second))
        mine.name = "mine"
        first.commit()
        theirs.name = "theirs"
        with pytest.raises(StaleDataError):
            second.commit()
        second.rollback()
        assert mine.version == 2
        first.delete(mine)
        first.commit()


def test_money_is_exact(app: Flask) -> None:
    with app.app_context():
        row = db.session.scalars(select(PriceRow).where(
            PriceRow.id == "aws-p4d.24xlarge-us-east-1-on-demand")).one()
        assert str(row.usd_per_gpu_hour) == "2.744705"  # 21.957642 USD per 8 GPUs and hour
