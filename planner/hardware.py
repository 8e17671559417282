"""The accelerator as a value: peaks, memory, links, power. SI units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from planner.errors import InvalidValue
from planner.precision import Format

Link = Literal["domain", "network"]
IDLE_POWER_SHARE = 0.2
"""Share of the board power drawn without work (memory, leakage, fans)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator as software sees it.

    Attributes
    ----------
    slug, name, vendor, architecture : str
    memory_bytes : float
        [B] that the driver reports.
    marketed_memory_bytes : float
        [B] of the decimal number on the box (napkin only).
    bandwidth_bytes_per_s : float
        [B/s] of device memory.
    peak_flop_per_s : mapping
        Dense tensor-core rates [FLOP/s] by ``bf16 fp8 int8 fp4 tf32``; a missing key means the
        device has no such unit.
    link_bytes_per_s : float
        [B/s] per direction to the other GPUs of its domain.
    link_domain_gpus : int
        GPUs that the fast link joins (1 = none; they talk over PCIe).
    node_gpus : int
        GPUs that share a host.
    pcie_bytes_per_s, nic_bytes_per_s : float
        [B/s] per direction, per GPU.
    tdp_w : float or None
        [W] board power.
    release_year : int or None
    source_url : str
    """

    slug: str
    name: str
    vendor: str
    architecture: str
    memory_bytes: float
    marketed_memory_bytes: float
    bandwidth_bytes_per_s: float
    peak_flop_per_s: Mapping[str, float]
    link_bytes_per_s: float
    link_domain_gpus: int
    node_gpus: int
    pcie_bytes_per_s: float
    nic_bytes_per_s: float
    tdp_w: float | None = None
    release_year: int | None = None
    source_url: str = ""

    def peak(self, fmt: Format) -> float:
        """Dense peak [FLOP/s] for a GEMM with weights in ``fmt``.

        A GPU without units for the format runs it at the next wider rate it has: fp4 falls back
        to the 16-bit rate (weight-only kernels), fp8 on Ampere as well.
        """
        return self.peak_flop_per_s.get(fmt.peak) or self.peak_flop_per_s["bf16"]

    def unpacks(self, fmt: Format) -> bool:
        """Whether weights in ``fmt`` are unpacked to 16 bits before they are multiplied."""
        return fmt.bytes_per_value < 2.0 and (fmt.peak == "bf16"
                                              or not self.peak_flop_per_s.get(fmt.peak))

    def power_capped_scale(self, power_cap_w: float | None) -> float:
        """Factor on the compute roof under a power cap; the memory roof keeps its rate.

        Dynamic power grows about with the cube of the clock above an idle floor of a fifth of the
        board power, so the clock follows the cube root of the power left. Splitwise (ISCA 2024)
        figure 9: capping H100 from 700 W to 350 W slows prefill sharply and decode hardly.

        Raises
        ------
        InvalidValue
            For a cap at or below the idle floor, under which nothing is computed.
        """
        if power_cap_w is None or self.tdp_w is None or power_cap_w >= self.tdp_w:
            return 1.0
        idle_w = IDLE_POWER_SHARE * self.tdp_w
        if power_cap_w <= idle_w:
            raise InvalidValue(
                f"power_cap_w {power_cap_w:g} is not above the idle draw of {self.slug}, "
                f"{idle_w:g} W ({IDLE_POWER_SHARE:.0%} of its {self.tdp_w:g} W)", "/power_cap_w")
        left = (power_cap_w - idle_w) / (self.tdp_w - idle_w)
        return float(left ** (1.0 / 3.0))

    def group_link(self, gpus: int) -> tuple[float, Link]:
        """Bandwidth [B/s] per GPU and kind of the slowest link inside a group of ``gpus``."""
        if gpus <= self.link_domain_gpus:
            return self.link_bytes_per_s, "domain"
        if gpus <= self.node_gpus:
            return self.pcie_bytes_per_s, "domain"
        return self.nic_bytes_per_s, "network"
