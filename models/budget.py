"""Stored budgets: never changed after they are written."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, utc_now


class BudgetRow(Base):
    """One budget with everything it was made from.

    Attributes
    ----------
    request, result : dict
        As the API shows them.
    model : dict
        Demand, capacity curves and prices: what its workbook and charges are made of, so that
        later edits of the catalog do not change them. Amounts in it are text, to stay exact.
    """

    __tablename__ = "budgets"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    months: Mapped[int]
    request: Mapped[dict[str, Any]]
    result: Mapped[dict[str, Any]]
    model: Mapped[dict[str, Any]]
