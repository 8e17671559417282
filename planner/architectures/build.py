"""From a config.json to an :class:`~planner.llm.Llm`: find the family, build, assemble."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from planner.architectures import quantization
from planner.architectures.config import Fields, class_names, class_of, show, text_section
from planner.architectures.decoder import Rules, decode
from planner.architectures.deepseek_v4 import deepseek_v4
from planner.architectures.extra import vision_tower
from planner.architectures.gemma import gemma3n, gemma4
from planner.architectures.hybrid import (
    granite_hybrid,
    jamba,
    kimi_linear,
    lfm2,
    minimax,
    nemotron_h,
    qwen3_next,
)
from planner.architectures.legacy import LEGACY, falcon, gpt_bigcode, mpt, opt
from planner.architectures.llama_like import DENSE
from planner.architectures.mamba import bamba, falcon_h1, mamba1, mamba2
from planner.architectures.mla import deepseek, deepseek_v2, tied_dense
from planner.architectures.moe import MOE, dbrx, hunyuan_moe, mimo_v2, minimax_m3, step3
from planner.architectures.names import MODEL_TYPES, NESTED_DEFAULTS
from planner.architectures.nas import decilm
from planner.architectures.needs import checked
from planner.architectures.parts import Body, grouped
from planner.errors import IncompleteConfig, InvalidValue, NoDecodePhase, UnknownArchitecture
from planner.llm import Llm, Role, Weight

Builder = Callable[[Fields], Body]


def _steered(rules: Rules, f: Fields) -> Body:
    return decode(replace(f, defaults={**rules.defaults, **f.defaults}), rules)


_SPECIAL: Final[dict[str, Builder]] = {
    "DeepseekV2ForCausalLM": deepseek_v2, "DeepseekV3ForCausalLM": deepseek,
    "DeepseekV32ForCausalLM": deepseek, "deepseek_v2": deepseek_v2, "deepseek_v3": deepseek,
    "deepseek_v32": deepseek, "kimi_k2": deepseek, "KimiK25ForConditionalGeneration": deepseek,
    "KimiVLForConditionalGeneration": deepseek,
    "GlmMoeDsaForCausalLM": deepseek, "Glm4MoeLiteForCausalLM": deepseek,
    "Mistral4ForCausalLM": deepseek_v2, "mistral4": deepseek_v2,
    "MistralLarge3ForCausalLM": deepseek_v2,
    "DeepseekV4ForCausalLM": deepseek_v4,
    "Gemma4ForConditionalGeneration": gemma4, "Gemma4ForCausalLM": gemma4,
    "gemma4_text": gemma4, "gemma4_unified_text": gemma4, "Gemma4UnifiedForCausalLM": gemma4,
    "Gemma4UnifiedForConditionalGeneration": gemma4,
    "Gemma3nForConditionalGeneration": gemma3n, "Gemma3nForCausalLM": gemma3n,
    "gemma3n_text": gemma3n,
    "Qwen3NextForCausalLM": qwen3_next,
    "Qwen3_5ForConditionalGeneration": qwen3_next, "Qwen3_5ForCausalLM": qwen3_next,
    "Qwen3_5MoeForConditionalGeneration": qwen3_next, "Qwen3_5MoeForCausalLM": qwen3_next,
    "qwen3_5_text": qwen3_next, "qwen3_5_moe_text": qwen3_next,
    "NemotronHForCausalLM": nemotron_h,
    "GraniteMoeHybridForCausalLM": granite_hybrid,
    "JambaForCausalLM": jamba,
    "MiniMaxM1ForCausalLM": minimax, "MiniMaxText01ForCausalLM": minimax,
    "MiniMaxForCausalLM": minimax,
    "MiniMaxM3SparseForConditionalGeneration": minimax_m3,
    "MiniMaxM3SparseForCausalLM": minimax_m3, "MiniMaxM3VLForCausalLM": minimax_m3,
    "KimiLinearForCausalLM": kimi_linear, "KimiK3ForConditionalGeneration": kimi_linear,
    "Lfm2ForCausalLM": lfm2, "Lfm2MoeForCausalLM": lfm2, "lfm2": lfm2,
    "DeciLMForCausalLM": decilm,
    "HunYuanMoEV1ForCausalLM": hunyuan_moe,
    "DbrxForCausalLM": dbrx,
    "MiMoV2FlashForCausalLM": mimo_v2,
    "Step3p5ForCausalLM": step3, "Step3p7FlashForCausalLM": step3,
    "Step3p7ForConditionalGeneration": step3, "step3p5": step3, "step3p7": step3,
    "YoutuForCausalLM": tied_dense, "MiniCPM3ForCausalLM": tied_dense,
    "MambaForCausalLM": mamba1, "FalconMambaForCausalLM": mamba1,
    "Mamba2ForCausalLM": mamba2, "BambaForCausalLM": bamba, "FalconH1ForCausalLM": falcon_h1,
    "GPTBigCodeForCausalLM": gpt_bigcode,
    "MPTForCausalLM": mpt, "MptForCausalLM": mpt,
    "OPTForCausalLM": opt,
    "FalconForCausalLM": falcon, "RWForCausalLM": falcon,
}

_CLASSES: Final[dict[str, Builder]] = {
    **{name: partial(_steered, rules) for table in (DENSE, MOE, LEGACY)
       for name, rules in table.items()},
    **_SPECIAL,
}
_FAMILIES: Final[dict[str, Builder]] = {
    **_CLASSES, **{kind: _CLASSES[name] for kind, name in MODEL_TYPES.items()}}

_DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32",
                  "float": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}

_ENCODER: Final = re.compile(
    r"(ForSequenceClassification|ForTokenClassification|ForMaskedLM|ForQuestionAnswering|"
    r"ForMultipleChoice|ForPreTraining|ForImageClassification|ForAudioClassification|"
    r"ForRewardModel\w*|ForProcessRewardModel|ForSequenceRegression|ForReranking|"
    r"EmbeddingModel|(?<!LMHead)Model|Encoder|ForCTC|ForRetrieval)$")
_ENCODER_TYPES: Final = frozenset((
    "bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "deberta-v2",
    "modernbert", "nomic_bert", "new", "gte", "mpnet", "albert", "clip", "siglip", "siglip2",
    "vit", "dinov2", "wav2vec2", "hubert", "colbert", "eurobert", "jina_embeddings_v3"))
_SEQ2SEQ: Final = re.compile(
    r"^(t5|mt5|umt5|byt5|longt5|switch_transformers|bart|mbart|pegasus|whisper|marian|m2m_100|"
    r"nllb|blenderbot|led|prophetnet|t5gemma|t5gemma2|seamless\w*|speech_to_text|moonshine)",
    re.IGNORECASE)
_NEEDED: Final = ("hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, "
                  "head_dim, intermediate_size, vocab_size")


def supported() -> tuple[str, ...]:
    """Architecture class names that :func:`from_config` has rules for."""
    return tuple(sorted((n for n in _FAMILIES if n[0].isupper()), key=str.lower))


def slug_of(hf_id: str) -> str:
    """Catalog slug of a Hugging Face id.

    Examples
    --------
    >>> slug_of("meta-llama/Meta-Llama-3.1-70B-Instruct")
    'llama-3.1-70b'
    >>> slug_of("mistralai/Mixtral-8x7B-v0.1")
    'mixtral-8x7b-v0.1'
    """
    name = hf_id.rstrip("/").rsplit("/", 1)[-1].lower().removeprefix("meta-")
    return re.sub(r"-(instruct|it|base|hf)(?=-|$)", "", name)


def from_config(config: Mapping[str, Any], *, slug: str | None = None, hf_id: str | None = None,
                name: str | None = None) -> Llm:
    """Reduce a config.json to the planner's record.

    Parameters
    ----------
    config : mapping
        The parsed file; multimodal wrappers are read for their language model.
    slug, hf_id, name : str, optional
        Identity; taken from ``_name_or_path`` or the class when absent.

    Raises
    ------
    UnknownArchitecture
        For a class or quantization method without rules.
    NoDecodePhase
        For encoders, embedders, rerankers and classifiers.
    IncompleteConfig, InvalidValue
        For a field that is missing or impossible, with its JSON pointer.
    """
    if not isinstance(config, Mapping):
        raise InvalidValue("the config must be a JSON object", "/hf_config")
    top = Fields(config)
    text = text_section(top)
    architecture, found = _family(top, text)
    body = _FAMILIES[found](checked(_with_outer_keys(top, text), found, architecture))
    listed = config.get("_name_or_path")
    hf_id = hf_id or (listed if isinstance(listed, str) and 0 < len(listed) < 200 else None)
    title = name or (hf_id.rsplit("/", 1)[-1] if hf_id else architecture)
    identity = (slug or slug_of(hf_id or title), title, hf_id, architecture)
    return _assemble(body, identity, top, text)


def _with_outer_keys(top: Fields, text: Fields) -> Fields:
    """Keys that wrappers keep outside the text section."""
    if text is top:
        return text
    data = dict(text.data)
    if data.get("tie_word_embeddings") is None:
        data["tie_word_embeddings"] = top.data.get("tie_word_embeddings")
    kind = data.get("model_type")
    missing = NESTED_DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
    return replace(text, data=data, defaults=missing)


def _family(top: Fields, text: Fields) -> tuple[str, str]:
    names, own = class_names(top, text), class_of(top)
    first = own[0] if own else (names[0] if names else "")
    found = next((n for n in names if n in _FAMILIES), None)
    _refuse_others(first, names, top.data.get("is_encoder_decoder") is True and not found)
    if found is not None:
        return first, found
    raise UnknownArchitecture(
        f"no rules for the class {show(first or None)} with model_type "
        f"{show(top.data.get('model_type'))}; it can be given by its fields instead "
        f"({_NEEDED}, and for experts num_experts, num_experts_per_tok, moe_intermediate_size)",
        top.at("architectures"))


def _refuse_others(first: str, names: list[str], encoder_decoder: bool) -> None:
    """Say plainly why a model that does not write text from a prompt alone is not planned."""
    if first in _FAMILIES:
        return
    if _ENCODER.search(first) and not first.endswith(("LMHeadModel", "ChatModel", "ChatGLMModel")):
        raise NoDecodePhase(
            f"{show(first)} has no language-model head: it encodes or scores text in one pass, so "
            "there is no decode phase to plan", "/hf_config/architectures")
    if encoder_decoder or any(_SEQ2SEQ.match(n) for n in names):
        raise UnknownArchitecture(
            f"{show(first)} is an encoder-decoder model; only decoder-only models are planned, "
            "because its cross-attention cache follows other rules", "/hf_config/architectures")
    if any(n in _ENCODER_TYPES for n in names):
        raise NoDecodePhase(
            f"{show(first)} is an encoder: it writes no tokens, so there is no decode phase to "
            "plan", "/hf_config/model_type")


def _assemble(body: Body, identity: tuple[str, str, str | None, str], top: Fields,
              text: Fields) -> Llm:
    width = body.embedding_width or body.hidden
    outer: tuple[Weight, ...] = (
        Weight("embed_tokens", Role.EMBEDDING, body.vocab * width),)
    if not body.tied:
        outer += (Weight("lm_head", Role.LM_HEAD, body.vocab * width),)
    section = quantization.section_of(top, text)
    expert = text.text("expert_dtype") or (section.text("expert_dtype") if section else None)
    native = quantization.read(section, body.layers, expert) if section else None
    slug, name, hf_id, architecture = identity
    return Llm(
        slug=slug, name=name, hf_id=hf_id, architecture=architecture, hidden=body.hidden,
        vocab=body.vocab, max_context=body.max_context, groups=grouped(body.layers),
        outer=outer + body.outer, tied_embeddings=body.tied, native=native,
        native_kv=quantization.kv_precision(section), dtype=_dtype(top, text),
        extra_params=dict((*vision_tower(top, body.hidden), *body.extra)))


def _dtype(top: Fields, text: Fields) -> str:
    """Type of what is not quantized; bf16 when the config does not say."""
    for section in (text, top):
        name, found = section.find("dtype", "torch_dtype")
        if found is not None:
            known = isinstance(found, str) and found.removeprefix("torch.") in _DTYPES
            if not known:
                raise IncompleteConfig(
                    f"{name} {show(found)} does not say how wide the weights are; known: "
                    f"{', '.join(_DTYPES)}", section.at(name))
            return _DTYPES[found.removeprefix("torch.")]
    return "bf16"
