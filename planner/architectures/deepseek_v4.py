"""DeepSeek-V4: one shared key-value head, a window, and compressed entries for the far context.

Source: DeepSeek-V4 report section 2; transformers ``modeling_deepseek_v4.py``. A layer keeps the
last ``sliding_window`` tokens; layers with a compression ratio r also keep one entry per r
tokens, read in full (r = 128) or through an indexer that picks ``index_topk`` (r = 4).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.architectures.config import Fields
from planner.architectures.decoder import Rules, experts
from planner.architectures.mla import finish
from planner.architectures.parts import Body, layer, norm
from planner.llm import KvStream, LayerGroup, Mixer, Role, Weight


@dataclass(frozen=True, slots=True)
class _Sizes:
    hidden: int
    heads: int
    head_dim: int
    q_rank: int
    index_heads: int
    index_dim: int
    topk: int
    window: int


def deepseek_v4(f: Fields) -> Body:
    """Build DeepSeek-V4 (Flash and Pro)."""
    s = _Sizes(f.count("hidden_size"), f.count("num_attention_heads", high=100_000),
               f.count("head_dim"), f.count("q_lora_rank"), f.count("index_n_heads"),
               f.count("index_head_dim"), f.count("index_topk"), f.count("sliding_window"))
    ratios = _ratios(f, f.layers())
    hashed = f.count("num_hash_layers", default=0, low=0)
    kinds = f.words("mlp_layer_types", length=len(ratios)) or [
        "hash_moe" if i < hashed else "moe" for i in range(len(ratios))]
    layers = tuple(_layer(f, s, ratio, hashes=kind == "hash_moe")
                   for ratio, kind in zip(ratios, kinds, strict=True))
    body = finish(f, s.hidden, layers)
    streams = f.count("hc_mult", high=1_000)
    head = streams * (streams * s.hidden + 1) + 1
    outer = (*body.outer, *norm(head, "hyper_head"))
    return Body(body.hidden, body.vocab, body.layers, body.tied, body.max_context, outer,
                body.extra)


def _ratios(f: Fields, layers: int) -> list[int]:
    ratios = f.counts("compress_ratios", length=layers)
    if ratios is not None:
        return ratios
    kinds = f.words("layer_types", length=layers) or ["sliding_attention"] * layers
    table = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    return [table.get(kind, 0) for kind in kinds]


def _layer(f: Fields, s: _Sizes, ratio: int, *, hashes: bool) -> LayerGroup:
    # The first layers route by a frozen table from token to experts: no balancing bias.
    rules = Rules(source="DeepseekV4Config", shared_always=True, router_bias=not hashes)
    streams = f.count("hc_mult", high=1_000)
    width = (2 + streams) * streams
    hyper = 2 * (width * streams * s.hidden + width + 3)
    weights = (*norm(2 * s.hidden), *norm(hyper, "hyper_connections"))
    return layer(_mixer(f, s, ratio), experts(f, rules, s.hidden), weights)


def _mixer(f: Fields, s: _Sizes, ratio: int) -> Mixer:
    groups, o_rank = f.count("o_groups"), f.count("o_lora_rank")
    context = s.heads * s.head_dim
    weights = (
        Weight("latent_a_proj", Role.ATTENTION, s.hidden * (s.q_rank + s.head_dim),
               sharded=False),
        Weight("q_b_proj", Role.ATTENTION, s.q_rank * context),
        Weight("o_a_proj", Role.ATTENTION, context * o_rank),
        Weight("o_b_proj", Role.ATTENTION, groups * o_rank * s.hidden),
        *norm(s.q_rank + s.head_dim + s.heads, "attention_vectors"))
    flops = 4 * s.heads * s.head_dim
    window = KvStream("window", s.head_dim, window=s.window, prefill_flops_per_pair=flops,
                      decode_flops_per_pair=flops)
    far = () if ratio <= 1 else _far(s, ratio, flops)
    return Mixer("compressed" if far else "sliding", (*weights, *_compressor(s, ratio)), s.heads,
                 streams=(window, *far))


def _far(s: _Sizes, ratio: int, flops: int) -> tuple[KvStream, ...]:
    indexed = ratio < 128
    entry = KvStream("compressed", s.head_dim, stride=ratio,
                     attend=s.topk if indexed else None, prefill_flops_per_pair=flops,
                     decode_flops_per_pair=flops)
    if not indexed:
        return (entry,)
    score = 2 * s.index_heads * s.index_dim
    return (entry, KvStream("index", s.index_dim, stride=ratio, prefill_flops_per_pair=score,
                            decode_flops_per_pair=score, bytes_per_value=2.0))


def _compressor(s: _Sizes, ratio: int) -> tuple[Weight, ...]:
    """Projections to compressed entries (twice as wide for overlapping windows) and indexer."""
    if ratio <= 1:
        return ()
    lanes = 2 if ratio < 128 else 1
    main = 2 * s.hidden * lanes * s.head_dim
    vectors = ratio * lanes * s.head_dim + s.head_dim
    weights = [Weight("compressor", Role.ATTENTION, main, sharded=False),
               *norm(vectors, "compressor_vectors")]
    if ratio < 128:
        index = (2 * s.hidden * lanes * s.index_dim + s.q_rank * s.index_heads * s.index_dim
                 + s.hidden * s.index_heads)
        weights += [Weight("indexer", Role.INDEXER, index, sharded=False),
                    *norm(ratio * lanes * s.index_dim + s.index_dim, "indexer_vectors")]
    return tuple(weights)
