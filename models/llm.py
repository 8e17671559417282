"""Language models: their architecture record and published counts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import CatalogRow


class LlmRow(CatalogRow):
    """One language model; ``record`` is what ``planner.llm.from_record`` reads."""

    __tablename__ = "models"

    slug: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    hf_id: Mapped[str | None] = mapped_column(String(200), index=True)
    aliases: Mapped[list[str]] = mapped_column(default=list)
    architecture: Mapped[str] = mapped_column(String(100))
    record: Mapped[dict[str, Any]]
    published: Mapped[dict[str, Any]] = mapped_column(default=dict)
    source: Mapped[str] = mapped_column(Text, default="")
    as_of: Mapped[str] = mapped_column(String(10), default="")
