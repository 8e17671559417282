"""Number formats: bytes a value takes with its scales, and which tensor-core peak applies.

Two vocabularies. A *precision* is what the API calls it (``bf16 fp16 fp8 int8 int4 fp4``,
and ``fp32`` for checkpoints kept in single precision). A *format* is how an engine stores it,
scales included: ``nvfp4`` and ``mxfp4`` are both ``fp4``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.errors import UnsupportedPrecision

WEIGHT_PRECISIONS: Final = ("bf16", "fp16", "fp8", "int8", "int4", "fp4", "fp32")
KV_PRECISIONS: Final = ("bf16", "fp16", "fp8", "int8", "int4", "fp4", "fp32")


@dataclass(frozen=True, slots=True)
class Format:
    """One storage format.

    Attributes
    ----------
    name : str
    precision : str
        The API's name for it.
    bytes_per_value : float
        [B] including scales and zero points.
    nominal_bytes : float
        [B] without scales; what a napkin uses.
    peak : str
        Tensor-core rate a GEMM with these weights runs at where the GPU has it:
        ``bf16`` (also for weight-only formats, which are expanded before the product),
        ``fp8`` or ``fp4``.
    source : str
    """

    name: str
    precision: str
    bytes_per_value: float
    nominal_bytes: float
    peak: str
    source: str


_FORMATS: Final = (
    Format("bf16", "bf16", 2.0, 2.0, "bf16", "IEEE-like 16-bit brain float"),
    Format("fp16", "fp16", 2.0, 2.0, "bf16", "IEEE 754 binary16; same tensor-core rate as bf16"),
    Format("fp32", "fp32", 4.0, 4.0, "tf32", "IEEE 754 binary32, multiplied as TF32"),
    Format("fp8", "fp8", 1.0, 1.0, "fp8", "per-tensor or per-channel scales, OCP FP8 E4M3"),
    Format("fp8_block", "fp8", 1.0 + 4.0 / (128 * 128), 1.0, "fp8",
           "128x128 blocks with one fp32 scale, DeepSeek-V3 report section 3.3"),
    Format("mxfp8", "fp8", 1.0 + 1.0 / 32, 1.0, "fp8", "OCP MX v1.0: one 8-bit scale per 32"),
    Format("int8", "int8", 1.0, 1.0, "bf16", "weight-only int8, per-channel scales"),
    Format("int4_g128", "int4", 0.5 + 2.5 / 128, 0.5, "bf16",
           "GPTQ/AWQ groups of 128: fp16 scale and 4-bit zero, AWQ MLSys 2024"),
    Format("int4_g32", "int4", 0.5 + 2.0 / 32, 0.5, "bf16",
           "compressed-tensors groups of 32 with a 16-bit scale, Kimi K2.5"),
    Format("mxfp4", "fp4", 0.5 + 1.0 / 32, 0.5, "fp4", "OCP MX v1.0: one 8-bit scale per 32"),
    Format("nvfp4", "fp4", 0.5 + 1.0 / 16, 0.5, "fp4", "one fp8 scale per 16 values, NVIDIA NVFP4"),
)
FORMATS: Final = {f.name: f for f in _FORMATS}
"""Every storage format by name."""

DEFAULT_FORMAT: Final = {
    "bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8_block",
    "int8": "int8", "int4": "int4_g128", "fp4": "nvfp4",
}
"""The format that a precision asked for by name is stored in, unless the model ships another."""

_KV_BYTES: Final = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "int8": 1.0,
                    "int4": 0.5, "fp4": 0.5}


def weight_format(precision: str) -> Format:
    """The default storage format of a weight precision.

    Raises
    ------
    UnsupportedPrecision
        For a name that is not in ``WEIGHT_PRECISIONS``.
    """
    if precision not in DEFAULT_FORMAT:
        raise UnsupportedPrecision(
            f"unknown weight precision {precision!r}; allowed: {', '.join(WEIGHT_PRECISIONS)}")
    return FORMATS[DEFAULT_FORMAT[precision]]


def kv_bytes_per_value(precision: str) -> float:
    """Bytes [B] of one cached key or value.

    Raises
    ------
    UnsupportedPrecision
        For a name that is not in ``KV_PRECISIONS``.
    """
    if precision not in _KV_BYTES:
        raise UnsupportedPrecision(
            f"unknown KV precision {precision!r}; allowed: {', '.join(KV_PRECISIONS)}")
    return _KV_BYTES[precision]
