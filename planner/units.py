"""The only place where units are converted. SI inside, vendor units at the edges.

GB is 10^9 bytes (bandwidth, links, marketing); GiB is 2^30 bytes (memory, engine logs).
"""

from __future__ import annotations

from typing import Final

BYTES_PER_GB: Final = 1e9
BYTES_PER_GIB: Final = float(2**30)
FLOP_PER_TFLOP: Final = 1e12
MS_PER_S: Final = 1e3
US_PER_S: Final = 1e6
SECONDS_PER_HOUR: Final = 3600.0
SECONDS_PER_DAY: Final = 86_400.0
HOURS_PER_MONTH: Final = 730.0
"""365 days x 24 h / 12: the month that cloud price lists use."""
TOKENS_PER_MILLION: Final = 1e6
W_PER_KW: Final = 1e3


def gb_to_bytes(gb: float) -> float:
    """Decimal gigabytes [GB] to bytes [B]."""
    return gb * BYTES_PER_GB


def gib_to_bytes(gib: float) -> float:
    """Binary gigabytes [GiB] to bytes [B]."""
    return gib * BYTES_PER_GIB


def bytes_to_gib(value_bytes: float) -> float:
    """Bytes [B] to binary gigabytes [GiB]."""
    return value_bytes / BYTES_PER_GIB


def bytes_to_gb(value_bytes: float) -> float:
    """Bytes [B] to decimal gigabytes [GB]."""
    return value_bytes / BYTES_PER_GB


def tflops_to_flop_per_s(tflops: float) -> float:
    """Vendor rate [TFLOP/s] to [FLOP/s]."""
    return tflops * FLOP_PER_TFLOP


def s_to_ms(seconds: float) -> float:
    """Seconds [s] to milliseconds [ms]."""
    return seconds * MS_PER_S


def ms_to_s(milliseconds: float) -> float:
    """Milliseconds [ms] to seconds [s]."""
    return milliseconds / MS_PER_S
