"""Searched architectures (Puzzle, arXiv:2411.19146): every layer has its own ``block_config``.

Source: ``modeling_decilm.py`` and ``configuration_decilm.py`` of Llama-3.3-Nemotron-Super-49B.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.architectures.config import Fields
from planner.architectures.decoder import CONTEXT, VOCAB
from planner.architectures.parts import (
    NO_FFN,
    NO_MIXER,
    Attention,
    Body,
    check_heads,
    dense,
    layer,
    norm,
)
from planner.errors import InvalidValue
from planner.llm import FeedForward, LayerGroup, Mixer, Role, Weight


@dataclass(frozen=True, slots=True)
class _Sizes:
    hidden: int
    heads: int
    head_dim: int


def decilm(f: Fields) -> Body:
    """Build a DeciLM model from its ``block_configs``."""
    hidden, heads = f.count("hidden_size"), f.count("num_attention_heads", high=100_000)
    sizes = _Sizes(hidden, heads, f.count("head_dim", default=max(1, hidden // heads)))
    blocks = f.items("block_configs", length=f.layers())
    if blocks is None:
        f.count("block_configs")
    layers = tuple(_block(f, sizes, i, block) for i, block in enumerate(blocks or []))
    return Body(hidden, f.count(*VOCAB), layers, f.flag("tie_word_embeddings"),
                f.optional(*CONTEXT), norm(hidden, "final_norm"))


def _block(f: Fields, s: _Sizes, i: int, block: object) -> LayerGroup:
    pointer = f"{f.at('block_configs')}/{i}"
    if not isinstance(block, dict):
        raise InvalidValue("a block must be an object", pointer)
    whole = Fields(block, pointer)
    attn = whole.section("attention") or Fields({}, f"{pointer}/attention")
    ffn = whole.section("ffn") or Fields({}, f"{pointer}/ffn")
    skips = attn.flag("no_op") + ffn.flag("no_op")
    return layer(_mixer(attn, s), _feed_forward(ffn, s), norm((2 - skips) * s.hidden))


def _mixer(attn: Fields, s: _Sizes) -> Mixer:
    if attn.flag("no_op"):
        return NO_MIXER
    if attn.flag("replace_with_linear"):
        return Mixer("none", (Weight("linear_attn", Role.ATTENTION, s.hidden * s.hidden),))
    kv = attn.optional("num_key_value_heads")
    if kv is None:
        group = attn.count("n_heads_in_group")
        check_heads(s.heads, group, attn.at("n_heads_in_group"))
        kv = s.heads // group
    return Attention(hidden=s.hidden, heads=s.heads, kv_heads=kv, head_dim=s.head_dim,
                     window=attn.optional("window_length")).mixer()


def _feed_forward(ffn: Fields, s: _Sizes) -> FeedForward:
    if ffn.flag("no_op"):
        return NO_FFN
    if ffn.flag("replace_with_linear"):
        return FeedForward("dense", (Weight("linear_mlp", Role.DENSE_FFN,
                                            s.hidden * s.hidden),))
    width = ffn.optional("intermediate_size")
    if width is None:
        # ffn_mult counts from the two-matrix width; three matrices take two thirds of it.
        raw = int(2 * ffn.number("ffn_mult") * s.hidden / 3)
        width = -(-raw // 256) * 256
    return dense(s.hidden, width)
