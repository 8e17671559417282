"""Catalog rows in vendor units, as tables and the API write them, to values in SI units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Any

from planner.catalog.book import Price
from planner.engine import EngineProfile
from planner.hardware import Gpu
from planner.units import gb_to_bytes, gib_to_bytes, tflops_to_flop_per_s

RATES = ("bf16", "fp8", "int8", "fp4", "tf32")
"""Number formats that a GPU may have a dense rate for."""

GPU_DEFAULTS: Mapping[str, Any] = {
    "link_gb_per_s": None,
    "link_domain_gpus": 1,
    "node_gpus": 8,
    "pcie_gb_per_s": 64.0,
    "nic_gb_per_s": 50.0,
    "tdp_w": None,
    "release_year": None,
    "interconnect": "",
    "compute_capability": "",
    "confidence": "",
    "source_url": "",
    "source": "",
    "source_date": "",
    "notes": "",
}
"""What a GPU posted without these fields gets: an 8-GPU host, PCIe 5 x16, 400 Gb/s per GPU."""


ENGINE_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sglang": {"memory_scope": "static"},
    "tensorrt-llm": {"memory_scope": "free", "reserves_answers": True},
}
"""How an engine counts memory, for profiles that do not say: as the shipped ones do
(:data:`planner.engine.MEMORY_SCOPES`)."""


def gpu_from_fields(row: Mapping[str, Any]) -> Gpu:
    """A GPU in SI units from a row in vendor units.

    A GPU without a fast link talks over PCIe, so its link rate is the PCIe rate.

    Parameters
    ----------
    row : mapping
        Columns of ``gpus.csv`` with numbers as numbers; None where there is no such unit.

    Examples
    --------
    >>> from planner.catalog.shipped import gpu_rows
    >>> h100 = next(r for r in gpu_rows() if r["slug"] == "h100-sxm-80gb")
    >>> gpu_from_fields(h100).peak_flop_per_s["bf16"]
    989500000000000.0
    """
    rates = {name: row.get(f"dense_{name}_tflops") for name in RATES}
    link = row["link_gb_per_s"] or row["pcie_gb_per_s"]
    return Gpu(
        slug=row["slug"],
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        memory_bytes=gib_to_bytes(row["memory_gib"]),
        marketed_memory_bytes=gb_to_bytes(row["marketed_memory_gb"]),
        bandwidth_bytes_per_s=gb_to_bytes(row["memory_bandwidth_gb_per_s"]),
        peak_flop_per_s={k: tflops_to_flop_per_s(v) for k, v in rates.items() if v},
        link_bytes_per_s=gb_to_bytes(link),
        link_domain_gpus=row["link_domain_gpus"],
        node_gpus=row["node_gpus"],
        pcie_bytes_per_s=gb_to_bytes(row["pcie_gb_per_s"]),
        nic_bytes_per_s=gb_to_bytes(row["nic_gb_per_s"]),
        tdp_w=row["tdp_w"],
        release_year=row["release_year"],
        source_url=row["source_url"],
    )


def price_from_fields(row: Mapping[str, Any]) -> Price:
    """A price from a row; money becomes a decimal."""
    wanted = {f.name: row[f.name] for f in fields(Price)}
    return Price(**{**wanted, "usd_per_gpu_hour": Decimal(str(row["usd_per_gpu_hour"]))})


def engine_from_fields(row: Mapping[str, Any]) -> EngineProfile:
    """An engine profile from a row; fields it lacks keep their defaults, those of its engine first.

    Examples
    --------
    >>> engine_from_fields({"slug": "ours", "engine": "tensorrt-llm"}).memory_scope
    'free'
    """
    known = {f.name for f in fields(EngineProfile)}
    given = {**ENGINE_DEFAULTS.get(row["engine"], {}), **row}
    return EngineProfile(**{k: v for k, v in given.items() if k in known})
