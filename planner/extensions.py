"""Flask extensions, made once and bound to an app in ``create_app``."""

from __future__ import annotations

from typing import Any

from flask_migrate import Migrate
from flask_sqlalchemy_lite import SQLAlchemy
from sqlalchemy import Engine, event

from planner.settings import ROOT

db = SQLAlchemy(engine_options={"pool_pre_ping": True})
migrate = Migrate(directory=str(ROOT / "migrations"))


def prepare_sqlite(engine: Engine, busy_ms: int) -> None:
    """Make every SQLite connection check foreign keys, write ahead and wait for its turn."""
    if engine.dialect.name != "sqlite":
        return

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute(f"PRAGMA busy_timeout={int(busy_ms)}")
        cursor.close()
