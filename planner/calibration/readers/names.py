"""Names that tools use for precisions, GPUs and engines, in the planner's words."""

from __future__ import annotations

import re

_PRECISIONS = (
    ("fp4", ("nvfp4", "mxfp4", "fp4")),
    ("int4", ("w4a16", "w4a8", "int4", "awq", "gptq", "marlin")),
    ("int8", ("w8a8", "w8a16", "int8")),
    ("fp8", ("fp8", "float8")),
    ("bf16", ("bfloat16", "bf16")),
    ("fp16", ("float16", "fp16", "half")),
    ("fp32", ("float32", "fp32")),
)
_DEVICES = (
    ("gb300", "gb300-nvl72"), ("gb200", "gb200-nvl72"), ("b300", "b300-sxm"),
    ("b200", "b200-sxm-180gb"), ("gh200", "gh200-96gb"), ("h200 nvl", "h200-nvl-141gb"),
    ("h200", "h200-sxm-141gb"), ("h100 pcie", "h100-pcie-80gb"), ("h100 nvl", "h100-nvl-94gb"),
    ("h100", "h100-sxm-80gb"), ("h800", "h800-sxm-80gb"), ("h20", "h20-96gb"),
    ("a100-sxm4-80gb", "a100-sxm-80gb"), ("a100-sxm4-40gb", "a100-sxm-40gb"),
    ("a100 80gb pcie", "a100-pcie-80gb"), ("a100-pcie-40gb", "a100-pcie-40gb"),
    ("l40s", "l40s"), ("l40", "l40"), ("l4", "l4"), ("a10g", "a10g"), ("a10", "a10"),
    ("a30", "a30"), ("a40", "a40"), ("rtx a6000", "rtx-a6000"),
    ("rtx 6000 ada generation", "rtx-6000-ada"), ("rtx 4090", "rtx-4090"),
    ("rtx 5090", "rtx-5090"), ("tesla t4", "t4"), ("mi300x", "mi300x"), ("mi325x", "mi325x"),
    ("mi355x", "mi355x"), ("mi350x", "mi350x"),
)
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trt": "tensorrt-llm", "trtllm": "tensorrt-llm",
            "trt-llm": "tensorrt-llm", "tensorrt-llm": "tensorrt-llm",
            "tensorrt_llm": "tensorrt-llm"}


def precision_of(text: str | None) -> str | None:
    """The planner's name of a precision, a data type or a quantisation; None for ``auto``.

    A name that is none of them is None too: the file then does not say.

    Examples
    --------
    >>> precision_of("W4A16_AWQ"), precision_of("fp8_e4m3"), precision_of("bfloat16")
    ('int4', 'fp8', 'bf16')
    >>> precision_of("auto") is None
    True
    """
    name = (text or "").lower()
    return next((precision for precision, marks in _PRECISIONS
                 if any(mark in name for mark in marks)), None)


def gpu_of(text: str | None) -> str | None:
    """The slug of a GPU that a driver names, else the text itself (it may be a slug).

    Examples
    --------
    >>> gpu_of("NVIDIA H100 80GB HBM3"), gpu_of("NVIDIA L40S"), gpu_of("h100-sxm-80gb")
    ('h100-sxm-80gb', 'l40s', 'h100-sxm-80gb')
    """
    name = re.sub(r"\s+", " ", (text or "").lower())
    if not re.match(r"(nvidia|amd|tesla)\b", name):
        return text
    # A whole word: "L4" must not match "L40S", nor "A10" "A100".
    return next((slug for mark, slug in _DEVICES
                 if re.search(rf"(?<![a-z0-9]){mark}(?![a-z0-9])", name)), text)


def engine_of(backend: str | None) -> str | None:
    """The engine that a client's back end talks to; None where it could be any (``openai``).

    Examples
    --------
    >>> engine_of("sglang-oai-chat"), engine_of("trt"), engine_of("openai-chat")
    ('sglang', 'tensorrt-llm', None)
    """
    name = (backend or "").lower()
    if name in _ENGINES:
        return _ENGINES[name]
    return _ENGINES.get(re.split(r"[-_]", name)[0])
