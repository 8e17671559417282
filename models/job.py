"""Jobs: long work that any process of the service may take up."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, utc_now

STATUSES = ("queued", "running", "done", "failed", "cancelled")


class JobRow(Base):
    """One job. Who works on it says so by ``owner`` and keeps ``heartbeat_at`` fresh.

    Attributes
    ----------
    request : dict
        What to do, with everything that was looked up when it was asked for.
    attempts : int
        How often it was taken up; above one it was taken over from a process that died.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint("progress >= 0 AND progress <= 1", name="progress_is_a_share"),
        CheckConstraint("status IN ('queued', 'running', 'done', 'failed', 'cancelled')",
                        name="status_known"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20), index=True)
    status: Mapped[str] = mapped_column(String(10), default="queued", index=True)
    progress: Mapped[float] = mapped_column(default=0.0)
    created_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)
    started_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    owner: Mapped[str | None] = mapped_column(String(100))
    attempts: Mapped[int] = mapped_column(default=0)
    error: Mapped[str | None] = mapped_column(Text)
    request: Mapped[dict[str, Any]]


class SimulationRow(Base):
    """What a simulation found; it appears when its job is done.

    Attributes
    ----------
    result : dict
        As the API shows it.
    requests : bytes
        Columns of every request, packed by ``planner.jobs.columns``.
    """

    __tablename__ = "simulations"

    id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    result: Mapped[dict[str, Any]]
    requests: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)


class SweepPartRow(Base):
    """Finished cells of a sweep: a run of consecutive ones, so that a restart repeats none.

    Attributes
    ----------
    part : int
        Which run of cells.
    cells : int
        How many they are.
    rows : bytes
        The rows of the answer, JSON compressed with zlib.
    """

    __tablename__ = "sweep_parts"

    sweep: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"),
                                       primary_key=True)
    part: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cells: Mapped[int]
    rows: Mapped[bytes] = mapped_column(LargeBinary)
