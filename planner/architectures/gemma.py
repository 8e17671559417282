"""Gemma 3n and Gemma 4: two kinds of attention, shared caches, per-layer embeddings.

Sources: transformers ``modeling_gemma4.py`` and ``modeling_gemma3n.py``; Gemma 4 model cards.
Full layers may have other heads than sliding ones; the last ``num_kv_shared_layers`` read the
cache of an earlier layer of their kind and keep none.
"""

from __future__ import annotations

from dataclasses import replace

from planner.architectures.config import Fields
from planner.architectures.decoder import CONTEXT, VOCAB, Shape, experts, shape
from planner.architectures.decoder import Rules as _Rules
from planner.architectures.parts import (
    Attention,
    Body,
    check_heads,
    dense,
    layer,
    mlp,
    norm,
    present,
)
from planner.errors import IncompleteConfig, InvalidValue
from planner.llm import FeedForward, LayerGroup, Role, Weight


def gemma4(f: Fields) -> Body:
    """Build Gemma 4 (dense, mixture of experts, and the E models)."""
    s = shape(f, 256)
    kinds = f.words("layer_types", length=s.layers) or [
        "sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(s.layers)]
    shared = f.count("num_kv_shared_layers", default=0, low=0)
    if shared >= s.layers:
        raise InvalidValue(f"{shared} of {s.layers} layers share a cache",
                           f.at("num_kv_shared_layers"))
    layers = tuple(
        _layer4(f, s, slides=kind.startswith("slid"), reuses=i >= s.layers - shared)
        for i, kind in enumerate(kinds))
    return Body(s.hidden, f.count(*VOCAB, default=262_144), layers,
                f.flag("tie_word_embeddings", default=True), f.optional(*CONTEXT),
                (*norm(s.hidden, "final_norm"), *per_layer_tables(f, s)))


def _layer4(f: Fields, s: Shape, *, slides: bool, reuses: bool) -> LayerGroup:
    wide = f.flag("use_double_wide_mlp") and reuses
    width = f.count("intermediate_size") * (2 if wide else 1)
    if f.has("num_experts") and not f.has("enable_moe_block"):
        raise IncompleteConfig("the config has num_experts and lacks enable_moe_block",
                               f.at("enable_moe_block"))
    moe = f.flag("enable_moe_block")
    ffn = _beside(f, s.hidden, width) if moe else dense(s.hidden, width)
    ple = f.count("hidden_size_per_layer_input", default=0, low=0)
    norms = 4 + (3 if moe else 0) + (1 if ple else 0)
    gate = present(Weight("per_layer_input", Role.DENSE_FFN, 2 * s.hidden * ple, sharded=False))
    return layer(_attention4(f, s, slides=slides, own=not reuses).mixer(), ffn,
                 (*norm(norms * s.hidden), *gate))


def _beside(f: Fields, hidden: int, width: int) -> FeedForward:
    """Experts and a dense FFN read the same input; the router scales its input and output."""
    f.count("moe_intermediate_size")
    routed = experts(f, _Rules(source="Gemma4TextConfig"), hidden)
    return replace(routed, weights=(
        *routed.weights, *mlp(hidden, width), *norm(hidden + routed.experts, "router_scales")))


def _attention4(f: Fields, s: Shape, *, slides: bool, own: bool) -> Attention:
    alternative = f.flag("attention_k_eq_v") and not slides
    dim = s.head_dim if slides else f.count("global_head_dim", default=512)
    kv = f.count("num_global_key_value_heads", default=s.kv_heads) if alternative else s.kv_heads
    check_heads(s.heads, kv, f.at("num_global_key_value_heads"))
    return Attention(
        hidden=s.hidden, heads=s.heads, kv_heads=kv, head_dim=dim, own_kv=own,
        own_v=not alternative, vectors=dim * (2 if own else 1),
        window=f.count("sliding_window", default=512) if slides else None)


def per_layer_tables(f: Fields, s: Shape) -> tuple[Weight, ...]:
    """Per-layer embeddings: a looked-up table, its projection and norm."""
    ple = f.count("hidden_size_per_layer_input", default=0, low=0)
    if not ple:
        return ()
    rows = f.count("vocab_size_per_layer_input", default=262_144)
    return (Weight("per_layer_embedding", Role.LOOKUP, rows * s.layers * ple),
            Weight("per_layer_projection", Role.DENSE_FFN, s.hidden * s.layers * ple),
            *norm(ple, "per_layer_norm"))


def gemma3n(f: Fields) -> Body:
    """Gemma 3n: AltUp streams, LAuReL, per-layer embeddings, shared caches.

    Source: transformers ``modeling_gemma3n.py`` (Gemma3nTextDecoderLayer, Gemma3nTextAltUp,
    Gemma3nTextLaurelBlock). Every fifth layer is full.
    """
    s = shape(f, 256)
    kinds = f.words("layer_types", length=s.layers) or [
        "sliding_attention" if (i + 1) % 5 else "full_attention" for i in range(s.layers)]
    widths = f.find("intermediate_size")[1]
    sizes = (f.counts("intermediate_size", length=s.layers, low=1)
             if isinstance(widths, list) else None) or [f.count("intermediate_size")] * s.layers
    shared = f.count("num_kv_shared_layers", default=15, low=0)
    layers = tuple(
        _layer3n(f, s, size, slides=kind.startswith("slid"), reuses=i >= s.layers - shared)
        for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True)))
    streams = f.count("altup_num_inputs", default=4)
    altup = 2 * (streams - 1) * s.hidden * s.hidden
    outer = (*norm(s.hidden, "final_norm"), *per_layer_tables(f, s),
             *present(Weight("altup_proj", Role.DENSE_FFN, altup, sharded=False)))
    return Body(s.hidden, f.count(*VOCAB, default=262_400), layers,
                f.flag("tie_word_embeddings", default=True), f.optional(*CONTEXT), outer)


def _layer3n(f: Fields, s: Shape, width: int, *, slides: bool, reuses: bool) -> LayerGroup:
    ple = f.count("hidden_size_per_layer_input", default=256)
    rank = f.count("laurel_rank", default=64)
    streams = f.count("altup_num_inputs", default=4)
    altup = s.hidden * streams + streams**3 + streams**2 + 2 * s.hidden
    side = (Weight("laurel", Role.DENSE_FFN, 2 * s.hidden * rank, sharded=False),
            Weight("per_layer_input", Role.DENSE_FFN, 2 * s.hidden * ple, sharded=False),
            Weight("altup", Role.NORM, altup, sharded=False))
    attn = Attention(
        hidden=s.hidden, heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim,
        own_kv=not reuses, vectors=s.head_dim * (1 if reuses else 2),
        window=f.count("sliding_window", default=512) if slides else None)
    return layer(attn.mixer(), dense(s.hidden, width), (*norm(6 * s.hidden), *side))
