"""GPUs in vendor units, as the API and the seed table write them."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import CatalogRow


class GpuRow(CatalogRow):
    """One accelerator. ``planner.catalog.rows`` turns it into SI units."""

    __tablename__ = "gpus"
    __table_args__ = (
        CheckConstraint("memory_gib > 0", name="memory_positive"),
        CheckConstraint("memory_bandwidth_gb_per_s > 0", name="bandwidth_positive"),
        CheckConstraint("dense_bf16_tflops > 0", name="bf16_positive"),
        CheckConstraint("link_domain_gpus >= 1", name="link_domain_at_least_one"),
        CheckConstraint("node_gpus >= 1", name="node_at_least_one"),
    )

    slug: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    vendor: Mapped[str] = mapped_column(String(100))
    architecture: Mapped[str] = mapped_column(String(100))
    memory_gib: Mapped[float]
    marketed_memory_gb: Mapped[float]
    memory_bandwidth_gb_per_s: Mapped[float]
    dense_bf16_tflops: Mapped[float]
    dense_fp8_tflops: Mapped[float | None]
    dense_int8_tflops: Mapped[float | None]
    dense_fp4_tflops: Mapped[float | None]
    dense_tf32_tflops: Mapped[float | None]
    link_gb_per_s: Mapped[float | None]
    link_domain_gpus: Mapped[int] = mapped_column(default=1)
    node_gpus: Mapped[int] = mapped_column(default=8)
    pcie_gb_per_s: Mapped[float]
    nic_gb_per_s: Mapped[float]
    tdp_w: Mapped[float | None]
    release_year: Mapped[int | None]
    interconnect: Mapped[str] = mapped_column(String(100), default="")
    compute_capability: Mapped[str] = mapped_column(String(20), default="")
    measured_bf16_gemm_tflops: Mapped[float | None]
    measured_fp8_gemm_tflops: Mapped[float | None]
    measured_fp4_gemm_tflops: Mapped[float | None]
    measured_weight_stream_gb_per_s: Mapped[float | None]
    confidence: Mapped[str] = mapped_column(String(100), default="")
    source_url: Mapped[str] = mapped_column(String(500), default="")
    source: Mapped[str] = mapped_column(Text, default="")
    source_date: Mapped[str] = mapped_column(String(10), default="")
    notes: Mapped[str] = mapped_column(Text, default="")
