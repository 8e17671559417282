"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) and its sparse index.

DeepSeek V2/V3/R1, V3.2 (DSA), Kimi K2, GLM-5, GLM-4.7-Flash, Mistral Small 4, MiniCPM3 …:
one latent of ``kv_lora_rank + qk_rope_head_dim`` numbers per token and layer serves all heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from planner.architectures.config import Fields
from planner.architectures.decoder import (
    CONTEXT,
    VOCAB,
    Rules,
    experts,
    sparse_layers,
)
from planner.architectures.parts import Body, dense, layer, mtp_params, norm, present
from planner.errors import IncompleteConfig
from planner.llm import KvStream, LayerGroup, Mixer, Role, Weight


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of one MLA layer: a heads, q and c latent ranks, n, r and v head widths."""

    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int
    bias: bool = False
    gated: bool = False

    def weights(self) -> tuple[Weight, ...]:
        """Latent projections (replicated under TP), per-head projections, norms.

        h q + q a(n+r) (or h a(n+r) without a query latent) + h(c+r) + c a(n+v) + a v h.
        """
        key = self.nope + self.rope
        down = self.kv_rank + self.rope + (self.q_rank or 0)
        up = (self.q_rank or self.hidden) * self.heads * key
        return present(
            Weight("latent_a_proj", Role.ATTENTION, self.hidden * down, sharded=False),
            Weight("q_proj", Role.ATTENTION, up),
            Weight("kv_b_proj", Role.ATTENTION, self.kv_rank * self.heads
                   * (self.nope + self.value)),
            Weight("o_proj", Role.ATTENTION, self.heads * self.value * self.hidden),
            Weight("output_gate", Role.ATTENTION,
                   self.hidden * self.heads * self.value if self.gated else 0),
            Weight("latent_bias", Role.NORM, down + self.hidden if self.bias else 0,
                   sharded=False),
            Weight("latent_norms", Role.NORM,
                   self.kv_rank + (self.q_rank or 0), sharded=False))

    def stream(self, attend: int | None = None) -> KvStream:
        """The latent: prefill 2a(n+r+v) per key, decode absorbed 2a((c+r)+c).

        Re-expanding a cached latent costs 2 c a(n+v).
        """
        a, c = self.heads, self.kv_rank
        return KvStream("latent", c + self.rope, attend=attend,
                        prefill_flops_per_pair=2 * a * (self.nope + self.rope + self.value),
                        decode_flops_per_pair=2 * a * (2 * c + self.rope),
                        expand_flops_per_entry=2 * c * a * (self.nope + self.value))

    def mixer(self) -> Mixer:
        """Dense MLA."""
        return Mixer("mla", self.weights(), self.heads, streams=(self.stream(),))


def latent(f: Fields) -> Latent:
    """Read the MLA sizes of a config."""
    return Latent(
        hidden=f.count("hidden_size"), heads=f.count("num_attention_heads", high=100_000),
        q_rank=f.optional("q_lora_rank"), kv_rank=f.count("kv_lora_rank"),
        nope=f.count("qk_nope_head_dim", low=0), rope=f.count("qk_rope_head_dim", low=0),
        value=f.count("v_head_dim"), bias=f.flag("attention_bias"))


def with_index(f: Fields, base: Latent, *, own: bool) -> Mixer:
    """DeepSeek Sparse Attention: ``index_topk`` latents per query, chosen by an indexer.

    The indexer has ``q ih d + h d + 2 d + h ih`` parameters and scores every key with
    ``2 ih d`` FLOP. A layer that shares another's choice has neither (GLM-5.2).
    Source: DeepSeek-V3.2 report, inference/model.py ``Indexer``; transformers GlmMoeDsaIndexer.
    """
    heads, width = f.count("index_n_heads"), f.count("index_head_dim")
    streams = [base.stream(f.count("index_topk"))]
    weights = base.weights()
    if own:
        elements = (base.q_rank or base.hidden) * heads * width + base.hidden * (width + heads)
        weights += (Weight("indexer", Role.INDEXER, elements, sharded=False),
                    *norm(2 * width, "indexer_norm"))
        streams.append(KvStream("index", width, prefill_flops_per_pair=2 * heads * width,
                                decode_flops_per_pair=2 * heads * width, bytes_per_value=2.0))
    return Mixer("sparse", weights, base.heads, streams=tuple(streams))


_BIASED: Final = Rules(
    source="DeepSeek-V3, arXiv:2412.19437; transformers DeepseekV3TopkRouter", router_bias=True)
"""V3 balances its experts with a bias per expert, which the checkpoint stores."""

_PLAIN: Final = Rules(source="DeepSeek-V2, arXiv:2405.04434; transformers DeepseekV2Moe")


def deepseek_v2(f: Fields) -> Body:
    """DeepSeek V2 and Mistral 4: no balancing bias."""
    return _build(f, _PLAIN)


def deepseek(f: Fields) -> Body:
    """DeepSeek V3, R1, V3.1 and V3.2; Kimi K2; GLM-4.7-Flash and GLM-5."""
    return _build(f, _BIASED)


def tied_dense(f: Fields) -> Body:
    """Youtu-LLM and MiniCPM3: MLA over dense FFNs, tied table.

    Source: transformers YoutuConfig, MiniCPM3Config.
    """
    return _build(replace(f, defaults={"tie_word_embeddings": True}), _PLAIN)


def _build(f: Fields, rules: Rules) -> Body:
    """Layers of MLA, dense or sparse, over experts or a dense FFN.

    Layers of GLM-5.2 whose ``indexer_types`` entry is ``shared`` reuse an earlier choice.
    """
    base, layers = latent(f), f.layers()
    routed = sparse_layers(f, layers)
    sparse = f.optional("index_topk") is not None
    owners = f.words("indexer_types", length=layers) or _owners(f, layers)
    body: list[LayerGroup] = []
    for moe, owner in zip(routed, owners, strict=True):
        mixer = with_index(f, base, own=owner == "full") if sparse else base.mixer()
        ffn = experts(f, rules, base.hidden) if moe else dense(
            base.hidden, f.count("intermediate_size"))
        body.append(layer(mixer, ffn, norm(2 * base.hidden)))
    return finish(f, base.hidden, tuple(body))


def _owners(f: Fields, layers: int) -> list[str]:
    """Transformers GlmMoeDsaConfig: every ``index_topk_freq``-th layer chooses, or a pattern."""
    if f.has("index_topk_pattern"):
        raise IncompleteConfig("index_topk_pattern is not read here; give indexer_types",
                               f.at("indexer_types"))
    every = max(1, f.count("index_topk_freq", default=1, low=0))
    offset = f.count("index_skip_topk_offset", default=2, low=0)
    return ["shared" if max(i - offset + 1, 0) % every else "full" for i in range(layers)]


def finish(f: Fields, hidden: int, layers: tuple[LayerGroup, ...]) -> Body:
    """Vocabulary, context and prediction layers."""
    modules = f.count("num_nextn_predict_layers", default=0, low=0, high=64)
    return Body(hidden, f.count(*VOCAB), layers, f.flag("tie_word_embeddings"),
                f.optional(*CONTEXT), norm(hidden, "final_norm"),
                mtp_params(layers[-1], hidden, modules))
