"""Quantization sections of a config.json, reduced to a storage format per role.

A checkpoint lists what stays in 16 bits as names, globs or regular expressions of modules. Each
fused weight is held against the module names that published checkpoints use for it; where layers
differ, the majority of a role's elements decides.

Sources: transformers ``quantization_config.py`` (fp8, awq, gptq, bitsandbytes, mxfp4,
fbgemm_fp8), compressed-tensors ``QuantizationConfig``, NVIDIA ModelOpt ``hf_quant_config.json``,
AMD Quark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.architectures.config import Fields, show
from planner.architectures.modules import Patterns, module_names, role_of
from planner.errors import InvalidValue, UnknownArchitecture
from planner.llm import QUANTIZED_ROLES, LayerGroup, Quantization, Role
from planner.precision import FORMATS

QUANTIZABLE: Final = QUANTIZED_ROLES | {Role.INDEXER}

SUPPORTED: Final = ("fp8", "fbgemm_fp8", "awq", "gptq", "compressed-tensors", "modelopt",
                    "mxfp4", "bitsandbytes", "quark")

_MODELOPT: Final = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8_block",
    "FP8_PB_REAL": "fp8_block", "MXFP8": "mxfp8", "NVFP4": "nvfp4", "NVFP4_AWQ": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4", "W4A16_NVFP4": "nvfp4", "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4", "INT4_AWQ": "int4_g128", "W4A16_AWQ": "int4_g128",
    "W4A8_AWQ": "int4_g128", "W4A16": "int4_g128", "INT8": "int8", "INT8_SQ": "int8",
    "W8A16": "int8",
}


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a section says: a base format, names that keep 16 bits, and exceptions by role."""

    base: str | None
    ignore: Patterns
    overrides: Mapping[Role, str]


def section_of(top: Fields, text: Fields) -> Fields | None:
    """The quantization section, wherever the publisher put it."""
    for part in (top, text):
        for name in ("quantization_config", "compression_config", "quantization"):
            found = part.section(name)
            if found is not None:
                return found
            if part.data.get(name) is not None:
                # An empty object says that something is quantized, not how.
                return Fields({}, part.at(name))
    return None


def read(section: Fields, layers: Sequence[LayerGroup],
         expert_dtype: str | None) -> Quantization | None:
    """Formats of the roles that a checkpoint stores in fewer than 16 bits.

    Raises
    ------
    UnknownArchitecture
        For a quantization method without rules here.
    """
    scheme = _scheme(section)
    tally: dict[Role, Counter[str]] = {}
    for i, one in enumerate(layers):
        seen: dict[tuple[Role, int], str | None] = {}
        for weight in one.all_weights():
            if weight.role in QUANTIZABLE:
                key = weight.role, len(module_names(weight.role, i, weight.name))
                if key not in seen:
                    seen[key] = _format(scheme, weight.role, i, weight.name)
                fmt = seen[key]
                tally.setdefault(weight.role, Counter())[fmt or ""] += weight.elements
    formats = {role: c.most_common(1)[0][0] for role, c in tally.items()}
    formats = {role: fmt for role, fmt in formats.items() if fmt}
    if expert_dtype == "fp4" and Role.ROUTED_EXPERT not in scheme.overrides:
        # DeepSeek-V4: e2m1 values with one ue8m0 scale per 32, beside fp8 linears.
        formats[Role.ROUTED_EXPERT] = "mxfp4"
    return _named(formats, tally)


def _named(formats: Mapping[Role, str], tally: Mapping[Role, Counter[str]]) -> Quantization | None:
    if not formats:
        return None
    weight: Counter[str] = Counter()
    for role, fmt in formats.items():
        weight[FORMATS[fmt].precision] += sum(tally.get(role, Counter()).values())
    ordered = {role: formats[role] for role in Role if role in formats}
    return Quantization(weight.most_common(1)[0][0], ordered)


def _format(scheme: Scheme, role: Role, layer: int, name: str) -> str | None:
    if role in scheme.overrides:
        return scheme.overrides[role]
    if scheme.base is None or scheme.ignore.covers(module_names(role, layer, name)):
        return None
    return scheme.base


def _scheme(section: Fields) -> Scheme:
    method = (section.text("quant_method") or _guess(section) or "").lower().replace("_", "-")
    known = {"fp8": _fp8, "fbgemm-fp8": _fp8, "awq": _awq, "auto-awq": _awq, "gptq": _gptq,
             "gptq-marlin": _gptq, "auto-round": _gptq, "compressed-tensors": _compressed,
             "modelopt": _modelopt, "modelopt-fp4": _modelopt, "mxfp4": _mxfp4,
             "bitsandbytes": _bitsandbytes, "quark": _quark}
    if method not in known:
        raise UnknownArchitecture(
            f"the quantization method {show(section.find('quant_method')[1])} has no rules here; "
            f"known: {', '.join(SUPPORTED)}", section.at("quant_method"))
    return known[method](section)


def _guess(section: Fields) -> str | None:
    """Methods that older writers leave unnamed."""
    producer = section.data.get("producer")
    if isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        return "modelopt"
    if section.has("quant_algo") or section.section("quantization"):
        return "modelopt"
    if section.has("load_in_4bit") or section.has("load_in_8bit"):
        return "bitsandbytes"
    return "compressed-tensors" if section.has("config_groups") else None


def _patterns(section: Fields, *names: str) -> Patterns:
    return Patterns(section.items(*names) or [], section.at(section.find(*names)[0]))


_NO_PATTERNS: Final = Patterns([], "")


def _fp8(section: Fields) -> Scheme:
    base = "fp8_block" if section.has("weight_block_size") else "fp8"
    # ModelOpt marks experts it repacked on top of a block-fp8 checkpoint.
    overrides = _listed(section) if section.has("quantized_layers") else {}
    return Scheme(base, _patterns(section, "modules_to_not_convert"), overrides)


def _group(bits: int, group: int | None, section: Fields) -> str:
    if bits == 8:
        return "int8"
    if bits != 4:
        raise UnknownArchitecture(
            f"{bits}-bit weights have no storage format here (4 and 8 do)", section.at("bits"))
    # No format for 64: the finer one, which takes more memory.
    return "int4_g32" if group is not None and 0 < group < 128 else "int4_g128"


def _awq(section: Fields) -> Scheme:
    bits = section.count("bits", "w_bit", default=4, high=32)
    base = _group(bits, section.optional("group_size", "q_group_size", low=-1), section)
    return Scheme(base, _patterns(section, "modules_to_not_convert"), {})


def _gptq(section: Fields) -> Scheme:
    base = _group(section.count("bits", high=32), section.optional("group_size", low=-1), section)
    dynamic = section.section("dynamic")
    # GPTQModel: keys that begin with "-:" are left alone.
    skipped = [f"re:{key[2:]}" for key in (dynamic.data if dynamic else {})
               if isinstance(key, str) and key.startswith("-:")]
    return Scheme(base, Patterns(skipped, section.at("dynamic")), {})


def _compressed(section: Fields) -> Scheme:
    groups = section.section("config_groups")
    base: str | None = None
    overrides: dict[Role, str] = {}
    for name in groups.data if groups else ():
        group = groups.section(name) if groups else None
        weights = group.section("weights") if group else None
        if group is None or weights is None:
            continue
        fmt = _compressed_format(weights, section.text("format"))
        targets = group.items("targets") or ["Linear"]
        roles = {r for t in targets if isinstance(t, str) and t != "Linear"
                 for r in QUANTIZABLE if Patterns([t], group.at("targets")).covers(
                     module_names(r, 1, ""))}
        base = fmt if "Linear" in targets or not roles else base
        overrides.update(dict.fromkeys(roles, fmt))
    return Scheme(base, _patterns(section, "ignore"), overrides)


def _compressed_format(weights: Fields, layout: str | None) -> str:
    bits = weights.count("num_bits", high=32)
    group = weights.optional("group_size", low=-1)
    if weights.text("type") != "float":
        return _group(bits, group, weights)
    if bits == 8:
        blocks = weights.has("block_structure") or weights.text("strategy") == "block"
        return "mxfp8" if group == 32 else ("fp8_block" if blocks else "fp8")
    if bits == 4:
        return "mxfp4" if group == 32 or (layout or "").startswith("mxfp4") else "nvfp4"
    raise UnknownArchitecture(f"{bits}-bit floating-point weights have no storage format here",
                              weights.at("num_bits"))


def _algorithm(name: object, pointer: str) -> str:
    fmt = _MODELOPT.get(name.upper()) if isinstance(name, str) else None
    if fmt is None:
        raise UnknownArchitecture(
            f"the ModelOpt algorithm {show(name)} has no rules here; known: "
            f"{', '.join(_MODELOPT)}", pointer)
    return fmt


def _modelopt(section: Fields) -> Scheme:
    inner = section.section("quantization") or section
    ignore = _patterns(inner, "ignore", "exclude_modules", "modules_to_not_convert")
    algorithm = inner.text("quant_algo") or ("FP8" if inner.has("config_groups") else None)
    if algorithm == "MIXED_PRECISION" or inner.has("quantized_layers"):
        return Scheme(None, ignore, _listed(inner))
    return Scheme(_algorithm(algorithm, inner.at("quant_algo")), ignore, {})


def _listed(section: Fields) -> dict[Role, str]:
    """``quantized_layers``: an algorithm per module; the most frequent one of each role."""
    listed = section.section("quantized_layers")
    votes: dict[Role, Counter[str]] = {}
    for name, value in (listed.data if listed else {}).items():
        role = role_of(name) if isinstance(name, str) else None
        algorithm = value.get("quant_algo") if isinstance(value, Mapping) else None
        if role is not None and algorithm is not None:
            fmt = _algorithm(algorithm, section.at("quantized_layers"))
            votes.setdefault(role, Counter())[fmt] += 1
    return {role: c.most_common(1)[0][0] for role, c in votes.items()}


def _mxfp4(section: Fields) -> Scheme:
    """Only the expert tensors are packed (transformers ``Mxfp4GptOssExperts``)."""
    ignore = _patterns(section, "modules_to_not_convert")
    packed = not ignore.covers(module_names(Role.ROUTED_EXPERT, 0, "experts_w13"))
    return Scheme(None, _NO_PATTERNS, {Role.ROUTED_EXPERT: "mxfp4"} if packed else {})


def _bitsandbytes(section: Fields) -> Scheme:
    skipped = _patterns(section, "llm_int8_skip_modules")
    if section.flag("load_in_8bit", "_load_in_8bit"):
        return Scheme("int8", skipped, {})
    # NF4 keeps one fp32 scale per 64 values: 4.5 bits, 4.127 with double quantization
    # (QLoRA, arXiv:2305.14314).
    double = section.flag("bnb_4bit_use_double_quant")
    return Scheme("int4_g128" if double else "int4_g32", skipped, {})


def _quark(section: Fields) -> Scheme:
    whole = section.section("global_quant_config")
    weights = whole.section("weight") if whole else None
    dtype = weights.text("dtype") if weights else None
    formats = {"fp4": "mxfp4", "fp8_e4m3": "fp8", "int8": "int8", "int4": "int4_g128",
               "uint4": "int4_g128"}
    if dtype not in formats:
        raise UnknownArchitecture(
            f"the Quark weight type {show(dtype)} has no rules here; known: "
            f"{', '.join(formats)}", section.at("global_quant_config"))
    return Scheme(formats[dtype], _patterns(section, "exclude"), {})


def kv_precision(section: Fields | None) -> str:
    """KV precision that a checkpoint carries scales for; ``bf16`` when it does not.

    Weight quantization says nothing about the cache: a 4-bit checkpoint keeps 16-bit keys unless
    it has a ``kv_cache_scheme``.
    """
    if section is None:
        return "bf16"
    inner = section.section("quantization") or section
    scheme: Any = inner.find("kv_cache_scheme", "kv_cache_quant_algo")[1]
    if isinstance(scheme, str):
        return {"FP8": "fp8", "NVFP4": "fp4", "INT8": "int8"}.get(scheme.upper(), "bf16")
    if scheme is None:
        return "bf16"
    fields = inner.section("kv_cache_scheme", "kv_cache_quant_algo")
    bits = fields.count("num_bits", high=32, default=16) if fields else 16
    kind = "float" if fields is None else fields.text("type") or "float"
    names = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "fp4", (4, "int"): "int4",
             (16, "float"): "bf16"}
    if (bits, kind) not in names:
        raise InvalidValue(f"a {bits}-bit {show(kind)} cache is not known",
                           inner.at("kv_cache_scheme"))
    return names[(bits, kind)]
