"""Stored plans: never changed after they are written."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, utc_now


class PlanRow(Base):
    """One plan with everything it was made from.

    Attributes
    ----------
    request, result : dict
        As the API shows them.
    snapshot : dict
        The catalog rows that the plan used, so that later edits do not change its meaning.
    points : bytes
        Operating points, JSON compressed with zlib: a search makes tens of thousands of rows.
    """

    __tablename__ = "plans"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    model: Mapped[str] = mapped_column(String(200), index=True)
    request: Mapped[dict[str, Any]]
    result: Mapped[dict[str, Any]]
    snapshot: Mapped[dict[str, Any]]
    points: Mapped[bytes] = mapped_column(LargeBinary)
