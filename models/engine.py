"""Engine profiles: efficiency factors and overheads of serving engines."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import CatalogRow


class EngineRow(CatalogRow):
    """One profile.

    ``profile`` holds every field of ``planner.engine.EngineProfile``; what a caller selects by
    is repeated as columns. Factors are only ever read together, and a new one needs no migration.
    """

    __tablename__ = "engines"

    slug: Mapped[str] = mapped_column(String(100), primary_key=True)
    engine: Mapped[str] = mapped_column(String(100), index=True)
    gpu: Mapped[str] = mapped_column(String(100), default="*")
    precision: Mapped[str] = mapped_column(String(20), default="*")
    obtained: Mapped[str] = mapped_column(String(10))
    profile: Mapped[dict[str, Any]]
