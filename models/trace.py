"""Traces: when requests arrived, and how long they were."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import CatalogRow


class TraceRow(CatalogRow):
    """One trace.

    Attributes
    ----------
    requests : int
        Rows of the trace.
    summary : dict
        Statistics as the API shows them, and the workload of a plan under ``workload``.
    data : bytes
        Arrival times and lengths, packed by ``planner.traces.packing``.
    """

    __tablename__ = "traces"
    __table_args__ = (CheckConstraint("requests > 0", name="requests_positive"),)

    slug: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    format: Mapped[str] = mapped_column(String(20))
    requests: Mapped[int]
    summary: Mapped[dict[str, Any]]
    data: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
