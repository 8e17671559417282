"""Earlier decoders: OPT, GPT-2, GPT-J, GPT-NeoX, BLOOM, MPT, Falcon, Phi-1/2, GPT-BigCode."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.architectures.config import Fields
from planner.architectures.decoder import CONTEXT, VOCAB, WIDTH, Rules, decode, shape
from planner.architectures.parts import Attention, Body, dense, layer, norm
from planner.llm import Role, Weight

LEGACY: Final[dict[str, Rules]] = {
    "GPT2LMHeadModel": Rules(
        source="GPT-2 (Radford et al. 2019); transformers GPT2Config", tied=True, gated=False,
        qkv_bias=True, out_bias=True, mlp_bias=True, norm_vectors=2, positions=0,
        width_factor=4, defaults={"vocab_size": 50257}),
    "GPTNeoXForCausalLM": Rules(
        source="GPT-NeoX, arXiv:2204.06745; transformers GPTNeoXConfig", gated=False,
        qkv_bias="attention_bias", out_bias="attention_bias", default_bias=True, mlp_bias=True,
        norm_vectors=2, parallel=True),
    "GPTJForCausalLM": Rules(
        source="GPT-J-6B; transformers GPTJConfig (one norm, parallel block)", gated=False,
        mlp_bias=True, head_bias=True, norms=1, norm_vectors=2, parallel=True, width_factor=4),
    "CodeGenForCausalLM": Rules(
        source="CodeGen, arXiv:2203.13474; transformers CodeGenConfig", gated=False,
        mlp_bias=True, head_bias=True, norms=1, norm_vectors=2, parallel=True, width_factor=4),
    "BloomForCausalLM": Rules(
        source="BLOOM, arXiv:2211.05100; transformers BloomConfig (norm after the embedding)",
        tied=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_vectors=2,
        embedding_norm=True, width_factor=4),
    "PhiForCausalLM": Rules(
        source="Phi-2 model card; transformers PhiConfig (one norm, parallel block, head bias)",
        gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True, norms=1,
        norm_vectors=2, parallel=True, width_factor=4),
}
"""Rules by class name."""


def gpt_bigcode(f: Fields) -> Body:
    """StarCoder: GPT-2 with one key/value head.

    Source: StarCoder, arXiv:2305.06161; transformers GPTBigCodeConfig (``multi_query``).
    """
    kv = 1 if f.flag("multi_query", default=True) else None
    return decode(replace(f, data={**f.data, "num_key_value_heads": kv}),
                  LEGACY["GPT2LMHeadModel"])


def mpt(f: Fields) -> Body:
    """MPT: no biases, ALiBi positions, tied table.

    Source: MPT-7B model card; transformers MptConfig (``attn_config``, ``expansion_ratio``).
    """
    attn = f.section("attn_config") or Fields({}, f.at("attn_config"))
    kv = 1 if attn.text("attn_type") == "multiquery_attention" else attn.optional("kv_n_heads")
    bias = not f.flag("no_bias", default=True)
    rules = Rules(
        source="MptConfig", tied=True, gated=False, qkv_bias=bias, out_bias=bias, mlp_bias=bias,
        norm_vectors=2 if bias else 1, width_factor=f.count("expansion_ratio", default=4),
        positions=None if attn.flag("alibi", default=True) else 0)
    return decode(replace(f, data={**f.data, "num_key_value_heads": kv}), rules)


def opt(f: Fields) -> Body:
    """OPT: biases everywhere, learned positions with two extra rows, tied table.

    Source: OPT, arXiv:2205.01068; transformers OPTConfig. OPT-350M projects a narrower
    embedding in and out and has no final norm.
    """
    s = shape(f)
    bias = f.flag("enable_bias", default=True)
    width = f.count("ffn_dim", *WIDTH, default=4 * s.hidden)
    attn = Attention(hidden=s.hidden, heads=s.heads, kv_heads=s.heads, head_dim=s.head_dim,
                     qkv_bias=bias, out_bias=bias)
    one = layer(attn.mixer(), dense(s.hidden, width, gated=False, bias=bias),
                norm(4 * s.hidden))
    narrow = f.count("word_embed_proj_dim", default=s.hidden)
    final = f.flag("do_layer_norm_before", default=True) and not f.flag("_remove_final_layer_norm")
    context = f.count(*CONTEXT, default=2048)
    outer = (Weight("positions", Role.LOOKUP, (context + 2) * s.hidden, sharded=False),
             *norm(2 * s.hidden if final else 0, "final_norm"),
             *norm(2 * s.hidden * narrow if narrow != s.hidden else 0, "project_in_out"))
    return Body(s.hidden, f.count(*VOCAB), (one,) * s.layers,
                f.flag("tie_word_embeddings", default=True), context, outer,
                embedding_width=narrow)


def falcon(f: Fields) -> Body:
    """Falcon: parallel block; one key/value head (7B) or a few (40B, 180B); tied table.

    Source: Falcon, arXiv:2311.16867; transformers FalconConfig (``new_decoder_architecture``
    has two input norms).
    """
    new = f.flag("new_decoder_architecture")
    single = f.flag("multi_query", default=True) and not new
    given = f.optional("num_kv_heads", "n_head_kv")
    s = shape(replace(f, data={**f.data, "num_kv_heads": 1 if single else (given if new else None),
                               "n_head_kv": None}))
    bias = f.flag("bias")
    parallel = f.flag("parallel_attn", default=True)
    norms = f.count("num_ln_in_parallel_attn", default=2) if new else (1 if parallel else 2)
    attn = Attention(hidden=s.hidden, heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim,
                     qkv_bias=bias, out_bias=bias)
    width = f.count("ffn_hidden_size", default=4 * s.hidden)
    one = layer(attn.mixer(), dense(s.hidden, width, gated=False, bias=bias),
                norm(2 * norms * s.hidden), parallel=parallel or new)
    return Body(s.hidden, f.count(*VOCAB), (one,) * s.layers,
                f.flag("tie_word_embeddings", default=True), f.optional(*CONTEXT),
                norm(2 * s.hidden, "final_norm"))
