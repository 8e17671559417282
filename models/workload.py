"""Saved workloads with their latency targets."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import CatalogRow


class WorkloadRow(CatalogRow):
    """One saved workload; ``document`` holds ``workload`` and ``slo`` as a plan request does."""

    __tablename__ = "workloads"

    slug: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    document: Mapped[dict[str, Any]]
