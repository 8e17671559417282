"""Token mixers whose memory does not grow with the context.

State per sequence is an fp32 state and a 16-bit convolution window (vLLM
``MambaStateShapeCalculator``). FLOP counts of the recurrences are estimates: about 6 H d N per
token for Mamba-2 (arXiv:2405.21060) and 8 n_v d_k d_v for delta rules (arXiv:2412.06464).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.architectures.parts import norm, present
from planner.llm import Mixer, Role, Weight

FP32 = 4
BF16 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Mamba-2: H heads of width d, state N, G groups of B and C (Dao & Gu 2024)."""

    hidden: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    conv_bias: bool = True
    proj_bias: bool = False
    norm: bool = True

    def mixer(self) -> Mixer:
        """Projections z, x, B, C, dt; depthwise convolution over x, B, C; gated norm."""
        inner = self.heads * self.head_dim
        conv = inner + 2 * self.groups * self.state
        project = inner + conv + self.heads
        vectors = conv * (self.kernel + self.conv_bias) + 3 * self.heads
        vectors += inner if self.norm else 0
        vectors += (project + self.hidden) if self.proj_bias else 0
        return Mixer("mamba", (
            Weight("in_proj", Role.MIXER, self.hidden * project),
            Weight("out_proj", Role.MIXER, inner * self.hidden),
            Weight("mamba_vectors", Role.NORM, vectors)),
            state_bytes=inner * self.state * FP32 + conv * self.kernel * BF16,
            state_flops_per_token=6 * inner * self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Mamba (Gu & Dao 2023) as in Jamba, with norms on dt, B and C."""

    hidden: int
    inner: int
    state: int
    rank: int
    kernel: int
    conv_bias: bool = True
    proj_bias: bool = False
    inner_norms: bool = True

    def mixer(self) -> Mixer:
        """Projections x and z, dt/B/C from x, dt to channels, A and D per channel."""
        x = self.inner * (self.rank + 2 * self.state)
        vectors = self.inner * (self.kernel + self.conv_bias) + self.inner
        vectors += self.inner * self.state + self.inner
        vectors += (self.rank + 2 * self.state) if self.inner_norms else 0
        vectors += (2 * self.inner + self.hidden) if self.proj_bias else 0
        return Mixer("mamba", (
            Weight("in_proj", Role.MIXER, 2 * self.hidden * self.inner),
            Weight("x_proj", Role.MIXER, x),
            Weight("dt_proj", Role.MIXER, self.rank * self.inner),
            Weight("out_proj", Role.MIXER, self.inner * self.hidden),
            Weight("mamba_vectors", Role.NORM, vectors)),
            state_bytes=self.inner * self.state * FP32 + self.inner * self.kernel * BF16,
            state_flops_per_token=6 * self.inner * self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """Gated DeltaNet (arXiv:2412.06464) as in Qwen3-Next and Qwen3.5."""

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    def mixer(self) -> Mixer:
        """Projections q, k, v, z and two gates per value head; convolution over q, k, v."""
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        conv = 2 * keys + values
        state = self.value_heads * self.key_dim * self.value_dim
        return Mixer("linear", (
            Weight("in_proj_qkvz", Role.MIXER, self.hidden * (conv + values)),
            Weight("in_proj_ba", Role.MIXER, self.hidden * 2 * self.value_heads),
            Weight("out_proj", Role.MIXER, values * self.hidden),
            Weight("delta_vectors", Role.NORM,
                   conv * self.kernel + 2 * self.value_heads + self.value_dim)),
            state_bytes=state * FP32 + conv * self.kernel * BF16,
            state_flops_per_token=8 * state)


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """Kimi Delta Attention (arXiv:2510.26692): a delta rule with a decay per channel."""

    hidden: int
    heads: int
    head_dim: int
    kernel: int
    full_rank_gate: bool = False

    def mixer(self) -> Mixer:
        """Projections q, k, v, o; low-rank decay and output gates; convolution over q, k, v.

        The output gate of Kimi K3 has full rank.
        """
        inner = self.heads * self.head_dim
        state = self.heads * self.head_dim * self.head_dim
        low_rank = self.hidden * self.head_dim + self.head_dim * inner
        gates = low_rank + (self.hidden * inner if self.full_rank_gate else low_rank)
        return Mixer("linear", (
            Weight("qkv_proj", Role.MIXER, self.hidden * 3 * inner),
            Weight("gates", Role.MIXER, gates + self.hidden * self.heads),
            Weight("out_proj", Role.MIXER, inner * self.hidden),
            Weight("delta_vectors", Role.NORM,
                   3 * inner * self.kernel + inner + self.heads + self.head_dim)),
            state_bytes=state * FP32 + 3 * inner * self.kernel * BF16,
            state_flops_per_token=8 * state)


def lightning(hidden: int, heads: int, head_dim: int) -> Mixer:
    """Lightning attention (arXiv:2401.04658) as in MiniMax-Text-01 and M1: a d x d state a head."""
    inner = heads * head_dim
    return Mixer("linear", (
        Weight("qkv_proj", Role.MIXER, hidden * 3 * inner),
        Weight("output_gate", Role.MIXER, hidden * inner),
        Weight("out_proj", Role.MIXER, inner * hidden),
        *norm(inner, "linear_norm")),
        state_bytes=heads * head_dim * head_dim * FP32,
        state_flops_per_token=4 * heads * head_dim * head_dim)


def short_conv(hidden: int, kernel: int, *, bias: bool = False) -> Mixer:
    """Gated short convolution (LFM2 model card; transformers Lfm2ShortConv)."""
    return Mixer("linear", present(
        Weight("in_proj", Role.MIXER, 3 * hidden * hidden),
        Weight("out_proj", Role.MIXER, hidden * hidden),
        Weight("conv", Role.NORM, hidden * (kernel + (5 if bias else 0)))),
        state_bytes=hidden * kernel * BF16, state_flops_per_token=2 * hidden * kernel)
