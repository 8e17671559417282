"""Mamba stacks without attention, and layers that run attention and Mamba-2 side by side."""

from __future__ import annotations

from dataclasses import replace

from planner.architectures.config import Fields
from planner.architectures.decoder import CONTEXT, VOCAB, shape
from planner.architectures.parts import NO_FFN, Attention, Body, dense, layer, norm
from planner.architectures.recurrent import Mamba1, Mamba2
from planner.llm import LayerGroup, Mixer


def _body(f: Fields, hidden: int, layers: tuple[LayerGroup, ...], *, tied: bool) -> Body:
    return Body(hidden, f.count(*VOCAB), layers, f.flag("tie_word_embeddings", default=tied),
                f.optional(*CONTEXT), norm(hidden, "final_norm"))


def mamba1(f: Fields, *, tied: bool = True) -> Body:
    """Mamba and Falcon-Mamba: one mixer per layer, no feed-forward half.

    Source: Mamba, arXiv:2312.00752; Falcon Mamba, arXiv:2410.05355 (its dt, B and C norms have
    no weights); transformers MambaConfig, FalconMambaConfig.
    """
    hidden = f.count("hidden_size", "d_model")
    rank = f.find("time_step_rank")[1]
    mixer = Mamba1(
        hidden=hidden,
        inner=f.count("intermediate_size", default=f.count("expand", default=2) * hidden),
        state=f.count("state_size", default=16),
        rank=-(-hidden // 16) if rank in (None, "auto") else f.count("time_step_rank"),
        kernel=f.count("conv_kernel", default=4),
        conv_bias=f.flag("use_conv_bias", default=True), proj_bias=f.flag("use_bias"),
        inner_norms=False).mixer()
    one = layer(mixer, NO_FFN, norm(hidden))
    return _body(f, hidden, (one,) * f.layers("num_hidden_layers", "n_layer"), tied=tied)


def mamba2(f: Fields) -> Body:
    """Mamba-2 (Codestral Mamba): one mixer per layer.

    Source: Mamba-2, arXiv:2405.21060; transformers Mamba2Config.
    """
    hidden = f.count("hidden_size")
    mixer = Mamba2(
        hidden=hidden, heads=f.count("num_heads"), head_dim=f.count("head_dim", default=64),
        state=f.count("state_size", default=128), groups=f.count("n_groups", default=8),
        kernel=f.count("conv_kernel", default=4),
        conv_bias=f.flag("use_conv_bias", default=True), proj_bias=f.flag("use_bias")).mixer()
    return _body(f, hidden, (layer(mixer, NO_FFN, norm(hidden)),) * f.layers(), tied=False)


def bamba(f: Fields) -> Body:
    """Bamba: Mamba-2 layers, attention at ``attn_layer_indices``, a dense FFN in each.

    Source: Bamba model card; transformers BambaConfig.
    """
    s = shape(f)
    kinds = f.words("layers_block_type", "layer_types", length=s.layers)
    chosen = f.items("attn_layer_indices") or []
    attn = Attention(hidden=s.hidden, heads=s.heads, kv_heads=s.kv_heads,
                     head_dim=s.head_dim).mixer()
    mamba = _inner_mamba(f, s.hidden, f.count("mamba_expand", default=2) * s.hidden,
                         gated_norm=True)
    ffn = dense(s.hidden, f.count("intermediate_size"))
    layers = []
    for i in range(s.layers):
        attends = kinds[i] in ("attention", "full_attention") if kinds else i in chosen
        layers.append(layer(attn if attends else mamba, ffn, norm(2 * s.hidden)))
    return _body(f, s.hidden, tuple(layers), tied=False)


def falcon_h1(f: Fields) -> Body:
    """Falcon-H1: every layer runs attention and Mamba-2 on the same input.

    Source: Falcon-H1, arXiv:2507.22448; transformers FalconH1Config.
    """
    s = shape(f)
    attn = Attention(hidden=s.hidden, heads=s.heads, kv_heads=s.kv_heads,
                     head_dim=s.head_dim).mixer()
    inner = f.optional("mamba_d_ssm") or f.count("mamba_expand", default=2) * s.hidden
    mamba = _inner_mamba(f, s.hidden, inner, gated_norm=f.flag("mamba_rms_norm"))
    both = replace(attn, weights=attn.weights + mamba.weights, state_bytes=mamba.state_bytes,
                   state_flops_per_token=mamba.state_flops_per_token)
    one = layer(both, dense(s.hidden, f.count("intermediate_size")), norm(2 * s.hidden))
    return _body(f, s.hidden, (one,) * s.layers, tied=False)


def _inner_mamba(f: Fields, hidden: int, inner: int, *, gated_norm: bool) -> Mixer:
    heads = f.count("mamba_n_heads")
    width = f.find("mamba_d_head")[1]
    return Mamba2(
        hidden=hidden, heads=heads,
        head_dim=max(1, inner // heads) if width in (None, "auto") else f.count("mamba_d_head"),
        state=f.count("mamba_d_state", default=256), groups=f.count("mamba_n_groups", default=1),
        kernel=f.count("mamba_d_conv", default=4),
        conv_bias=f.flag("mamba_conv_bias", default=True),
        proj_bias=f.flag("mamba_proj_bias"), norm=gated_norm).mixer()
