"""Prices: what a provider asks for one GPU-hour, when, under which commitment."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import CheckConstraint, ForeignKey, Numeric, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import CatalogRow


class PriceRow(CatalogRow):
    """One price. Money is a decimal, never a float."""

    __tablename__ = "prices"
    __table_args__ = (CheckConstraint("usd_per_gpu_hour > 0", name="usd_positive"),)

    id: Mapped[str] = mapped_column(String(200), primary_key=True)
    gpu: Mapped[str] = mapped_column(ForeignKey("gpus.slug", ondelete="RESTRICT"), index=True)
    provider: Mapped[str] = mapped_column(String(100))
    region: Mapped[str] = mapped_column(String(100), default="")
    instance: Mapped[str] = mapped_column(String(100), default="")
    gpus_per_instance: Mapped[int | None]
    commitment: Mapped[str] = mapped_column(String(20), index=True)
    usd_per_gpu_hour: Mapped[Decimal] = mapped_column(Numeric(14, 6))
    as_of: Mapped[str] = mapped_column(String(10))
    source: Mapped[str] = mapped_column(Text)
    notes: Mapped[str] = mapped_column(Text, default="")
