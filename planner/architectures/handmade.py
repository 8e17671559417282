"""Models described by a few fields instead of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.architectures.config import Fields, show
from planner.architectures.parts import (
    Attention,
    Moe,
    check_heads,
    dense,
    grouped,
    layer,
    norm,
)
from planner.errors import IncompleteConfig, InvalidValue
from planner.llm import FeedForward, LayerGroup, Llm, Role, Weight

_KNOWN: Final = frozenset((
    "slug", "name", "hf_id", "hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate",
    "vocab", "tied_embeddings", "max_context", "gated", "experts", "active_experts",
    "moe_intermediate", "shared_experts", "dense_layers", "sliding_window", "full_every",
    "dtype"))


def from_fields(fields: Mapping[str, Any]) -> Llm:
    """A llama-like model from its sizes.

    Parameters
    ----------
    fields : mapping
        ``slug``, ``hidden``, ``layers``, ``heads``, ``vocab`` and ``intermediate`` (or the
        expert fields) are needed. ``kv_heads`` defaults to ``heads``, ``head_dim`` to
        ``hidden / heads``, ``tied_embeddings`` to false, ``gated`` to true (three FFN matrices).
        ``experts``, ``active_experts`` and ``moe_intermediate`` make every layer after the first
        ``dense_layers`` a mixture of experts, with ``shared_experts`` of the same width.
        ``sliding_window`` applies to all layers except every ``full_every``-th.

    Raises
    ------
    IncompleteConfig, InvalidValue
        With the JSON pointer of the field.
    """
    if not isinstance(fields, Mapping):
        raise InvalidValue("the model must be a JSON object", "/model")
    f = Fields(fields, "/model")
    unknown = [k for k in fields if k not in _KNOWN]
    if unknown:
        raise InvalidValue(
            f"unknown field {show(unknown[0])}; known: {', '.join(sorted(_KNOWN))}",
            f.at(str(unknown[0])[:60]))
    slug = f.text("slug")
    if not slug:
        raise IncompleteConfig("the model lacks slug, a short name", f.at("slug"))
    hidden, vocab = f.count("hidden"), f.count("vocab")
    tied = f.flag("tied_embeddings")
    outer = (Weight("embed_tokens", Role.EMBEDDING, vocab * hidden),
             *(() if tied else (Weight("lm_head", Role.LM_HEAD, vocab * hidden),)),
             *norm(hidden, "final_norm"))
    return Llm(
        slug=slug[:200], name=(f.text("name") or slug)[:200], hf_id=f.text("hf_id"),
        architecture="fields", hidden=hidden, vocab=vocab, max_context=f.optional("max_context"),
        groups=grouped(_layers(f, hidden)), outer=outer, tied_embeddings=tied,
        dtype=_dtype(f))


def _dtype(f: Fields) -> str:
    dtype = f.text("dtype") or "bf16"
    if dtype not in ("bf16", "fp16", "fp32"):
        raise InvalidValue(f"dtype must be bf16, fp16 or fp32, not {show(dtype)}", f.at("dtype"))
    return dtype


def _layers(f: Fields, hidden: int) -> list[LayerGroup]:
    count, window = f.layers("layers"), f.optional("sliding_window")
    every = f.optional("full_every")
    first = f.count("dense_layers", default=0, low=0) if f.has("experts") else count
    layers = []
    for i in range(count):
        local = window is not None and not (every and (i + 1) % every == 0)
        layers.append(layer(_attention(f, hidden, window if local else None).mixer(),
                            _feed_forward(f, hidden, moe=i >= first), norm(2 * hidden)))
    return layers


def _attention(f: Fields, hidden: int, window: int | None) -> Attention:
    heads = f.count("heads", high=100_000)
    kv_heads = f.count("kv_heads", default=heads, high=100_000)
    check_heads(heads, kv_heads, f.at("kv_heads"))
    head_dim = f.optional("head_dim", high=100_000)
    if head_dim is None and hidden % heads:
        raise InvalidValue(f"hidden ({hidden}) is not a multiple of heads ({heads}) and head_dim "
                           "is not given", f.at("heads"))
    return Attention(hidden=hidden, heads=heads, kv_heads=kv_heads,
                     head_dim=head_dim or hidden // heads, window=window)


def _feed_forward(f: Fields, hidden: int, *, moe: bool) -> FeedForward:
    gated = f.flag("gated", default=True)
    if not moe:
        return dense(hidden, f.count("intermediate"), gated=gated)
    experts, active = f.count("experts", high=100_000), f.count("active_experts", high=100_000)
    if active > experts:
        raise InvalidValue(f"{active} active experts of {experts}", f.at("active_experts"))
    width = f.count("moe_intermediate", "intermediate")
    return Moe(hidden=hidden, experts=experts, active=active, width=width, gated=gated,
               shared=width * f.count("shared_experts", default=0, low=0, high=1_000),
               ).feed_forward()
