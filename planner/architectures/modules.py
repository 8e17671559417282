"""Names of modules in published checkpoints, and the patterns that quantizers list.

A fused weight has several spellings (``self_attn.q_proj`` in most, ``attn.wq_b`` in DeepSeek's
own code). A list of patterns covers it when, in one spelling, most of its parts match.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from planner.errors import InvalidValue
from planner.llm import Role

_PREFIXES: Final = ("model.layers", "model.language_model.layers", "language_model.model.layers",
                    "layers", "backbone.layers", "transformer.h", "model.decoder.layers")

_SPELLINGS: Final[dict[Role, tuple[tuple[str, ...], ...]]] = {
    Role.ATTENTION: (
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        ("self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa",
         "self_attn.kv_b_proj", "self_attn.o_proj"),
        ("self_attn.qkv_proj", "self_attn.o_proj"),
        ("attn.wq_a", "attn.wq_b", "attn.wkv", "attn.wo_a", "attn.wo_b"),
        ("attn.c_attn", "attn.c_proj"),
        ("attention.wqkv", "attention.wo"),
        ("mixer.q_proj", "mixer.k_proj", "mixer.v_proj", "mixer.o_proj")),
    Role.MIXER: (
        ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba", "linear_attn.out_proj"),
        ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"),
        ("mamba.in_proj", "mamba.out_proj"), ("mixer.in_proj", "mixer.out_proj"),
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")),
    Role.INDEXER: (
        ("self_attn.indexer.wq_b", "self_attn.indexer.wk"),
        ("attn.indexer.wq_b", "attn.indexer.wk"),
        ("self_attn.index_q_proj", "self_attn.index_k_proj")),
    Role.DENSE_FFN: (
        ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        ("mlp.gate_up_proj", "mlp.down_proj"), ("mixer.up_proj", "mixer.down_proj"),
        ("mlp.c_fc", "mlp.c_proj"), ("feed_forward.w1", "feed_forward.w2", "feed_forward.w3"),
        ("fc1", "fc2")),
    Role.SHARED_EXPERT: (
        ("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
         "mlp.shared_experts.down_proj"),
        ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
         "mlp.shared_expert.down_proj"),
        ("block_sparse_moe.shared_experts.gate_proj", "block_sparse_moe.shared_experts.up_proj",
         "block_sparse_moe.shared_experts.down_proj"),
        ("feed_forward.shared_expert.gate_proj", "feed_forward.shared_expert.up_proj",
         "feed_forward.shared_expert.down_proj"),
        ("ffn.shared_experts.w1", "ffn.shared_experts.w2", "ffn.shared_experts.w3"),
        ("mixer.shared_experts.up_proj", "mixer.shared_experts.down_proj")),
    Role.ROUTED_EXPERT: (
        ("mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "mlp.experts.0.down_proj"),
        ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
        ("block_sparse_moe.experts.0.w1", "block_sparse_moe.experts.0.w2",
         "block_sparse_moe.experts.0.w3"),
        ("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"),
        ("ffn.experts.0.w1", "ffn.experts.0.w2", "ffn.experts.0.w3"),
        ("mixer.experts.0.up_proj", "mixer.experts.0.down_proj")),
    Role.LATENT: (
        ("mixer.fc1_latent_proj", "mixer.fc2_latent_proj"),
        ("block_sparse_moe.routed_expert_down_proj", "block_sparse_moe.routed_expert_up_proj")),
}

_MOST_PATTERNS: Final = 100_000
_MOST_EXPRESSIONS: Final = 30
_MOST_LOOPS: Final = 3
_COST: Final = (1, 3, 20, 400)
"""Work of one try by the number of loops in the expression."""
_BUDGET: Final = 6_000_000
_COMPLEX: Final = re.compile(r"\)\s*[*+{?]|\\[1-9]")
"""Quantified groups and back references: a way to make matching take for ever."""
_LAYER: Final = re.compile(r"\.\d+\.")


class Patterns:
    """A list of module patterns: names, globs (``*``) and regular expressions (``re:``).

    Configs are untrusted, so the work is bounded: what has no digit is tried on one layer only,
    and what has one is tried until a budget is spent.

    Parameters
    ----------
    entries : iterable
        Entries that are not strings are an error.
    pointer : str
        JSON pointer of the list.
    """

    def __init__(self, entries: Iterable[object], pointer: str) -> None:
        listed = list(entries)
        if len(listed) > _MOST_PATTERNS:
            raise InvalidValue(f"more than {_MOST_PATTERNS} patterns", pointer)
        self._pointer = pointer
        self._names: set[str] = set()
        self._heads: set[str] = set()
        self._same: list[re.Pattern[str]] = []
        self._layered: list[re.Pattern[str]] = []
        self._answers: dict[str, bool] = {}
        self._left = _BUDGET
        self._price = 0
        for i, entry in enumerate(listed):
            self._add(entry, f"{pointer}/{i}")
        self._runs = sorted({name.count(".") + 1 for name in self._names})
        self._lengths = sorted({len(head) for head in self._heads})
        self._any = bool(self._names or self._heads or self._same or self._layered)
        if len(self._same) + len(self._layered) > 2_000:
            raise InvalidValue("more patterns than can be applied", pointer)

    def _add(self, entry: object, pointer: str) -> None:
        if not isinstance(entry, str):
            raise InvalidValue("a module pattern must be a string", pointer)
        if not entry.startswith("re:") and "*" not in entry:
            self._names.add(entry)
        elif not entry.startswith("re:") and entry.find("*") == len(entry) - 1:
            self._heads.add(entry[:-1])
        else:
            kind = self._layered if any(c.isdigit() for c in entry) else self._same
            expression = entry.startswith("re:")
            kind.append(self._expression(entry[3:], pointer) if expression
                        else _glob(entry[:300]))
            if kind is self._layered:
                self._price += _COST[_loops(entry)] if expression else 1

    def _expression(self, text: str, pointer: str) -> re.Pattern[str]:
        self._left -= _BUDGET // _MOST_EXPRESSIONS
        if self._left < 0:
            raise InvalidValue(f"more than {_MOST_EXPRESSIONS} regular expressions", pointer)
        return _expression(text, pointer)

    def matches(self, name: str) -> bool:
        """Whether any pattern matches a module name (or a part of its path)."""
        if any(name[:n] in self._heads for n in self._lengths):
            return True
        if self._names and self._listed(name):
            return True
        return self._alike(name) or self._by_layer(name)

    def _listed(self, name: str) -> bool:
        """transformers skips a module when a listed name is part of its path."""
        words = name.split(".")
        return any(".".join(words[i:i + run]) in self._names for run in self._runs
                   for i in range(len(words) - run + 1))

    def _alike(self, name: str) -> bool:
        """Patterns without digits say the same of every layer."""
        if not self._same:
            return False
        key = _LAYER.sub(".0.", name, count=1)
        if key not in self._answers:
            self._answers[key] = any(p.match(key) for p in self._same)
        return self._answers[key]

    def _by_layer(self, name: str) -> bool:
        if not self._layered:
            return False
        self._left -= self._price
        if self._left < 0:
            raise InvalidValue("more patterns than can be applied", self._pointer)
        return any(p.match(name) for p in self._layered)

    def covers(self, spellings: Sequence[Sequence[str]]) -> bool:
        """Whether most parts of a weight match in one of its spellings."""
        return self._any and any(
            2 * sum(map(self.matches, names)) > len(names) for names in spellings)


def _glob(text: str) -> re.Pattern[str]:
    """A glob, which also covers what lies below the module it names."""
    whole, below = fnmatch.translate(text), fnmatch.translate(f"{text}.*")
    return re.compile(f"{whole}|{below}")


def _loops(text: str) -> int:
    return text.count("*") + text.count("+") + text.count("{")


def _expression(text: str, pointer: str) -> re.Pattern[str]:
    if len(text) > 300 or _loops(text) > _MOST_LOOPS or _COMPLEX.search(text):
        raise InvalidValue("this regular expression is too complex to be applied", pointer)
    try:
        return re.compile(text)
    except (re.error, OverflowError) as error:
        raise InvalidValue("this is not a regular expression", pointer) from error


@lru_cache(maxsize=20_000)
def module_names(role: Role, layer: int, name: str) -> tuple[tuple[str, ...], ...]:
    """Spellings of a weight of one layer, each as the names of its parts."""
    spellings = _SPELLINGS.get(role, ())
    if role is Role.MIXER and not name.startswith(("qkv", "gates", "out", "output")):
        spellings = spellings[:-1]
    return tuple(tuple(f"{prefix}.{layer}.{part}" for part in parts)
                 for prefix in _PREFIXES for parts in spellings)


_ROLE_WORDS: Final = (
    ("shared_expert", Role.SHARED_EXPERT), ("experts", Role.ROUTED_EXPERT),
    ("latent_proj", Role.LATENT), ("index", Role.INDEXER), ("linear_attn", Role.MIXER),
    ("in_proj", Role.MIXER), ("out_proj", Role.MIXER), ("attn", Role.ATTENTION),
    ("q_proj", Role.ATTENTION), ("k_proj", Role.ATTENTION), ("v_proj", Role.ATTENTION),
    ("o_proj", Role.ATTENTION), ("mlp", Role.DENSE_FFN), ("feed_forward", Role.DENSE_FFN),
    ("up_proj", Role.DENSE_FFN), ("down_proj", Role.DENSE_FFN))


def role_of(name: str) -> Role | None:
    """Role of a module by its name; None for the head, the embedding and other towers."""
    if any(word in name for word in ("lm_head", "vision", "visual", "mtp", "embed")):
        return None
    return next((role for word, role in _ROLE_WORDS if word in name), None)
