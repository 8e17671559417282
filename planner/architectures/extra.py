"""Parameters that a checkpoint has beside its language model: the vision tower."""

from __future__ import annotations

from typing import Final

from planner.architectures.config import Fields

_GATED: Final = ("pixtral", "glm4v", "qwen2_5_vl", "gemma4", "mistral")
"""Towers whose blocks have three FFN matrices instead of two."""


def vision_tower(top: Fields, text_hidden: int) -> tuple[tuple[str, int], ...]:
    """Approximate size of the vision tower and its projector; nothing when fields are missing.

    Blocks of ``4 h^2`` attention and two (gated: three) FFN matrices, the patch embedding, and a
    projector into the text width. Source: ViT, arXiv:2010.11929, and the towers' transformers
    classes.
    """
    vision = top.data.get("vision_config")
    if not isinstance(vision, dict):
        return ()
    hidden = _size(vision, "hidden_size", "embed_dim", "width")
    depth = _size(vision, "num_hidden_layers", "depth", "layers", "vt_num_hidden_layers")
    if not hidden or not depth:
        return ()
    ratio = vision.get("mlp_ratio")
    width = _size(vision, "intermediate_size") or int(
        hidden * (ratio if isinstance(ratio, (int, float)) and 0 < ratio < 100 else 4))
    kind = vision.get("model_type")
    gated = isinstance(kind, str) and kind.startswith(_GATED)
    block = 4 * hidden * hidden + (3 if gated else 2) * hidden * width + 2 * hidden
    patch = _size(vision, "patch_size") or 14
    stem = 3 * patch * patch * hidden * (_size(vision, "temporal_patch_size") or 1)
    merge = _size(vision, "spatial_merge_size") or 1
    merged = hidden * merge * merge
    projector = merged * merged + merged * text_hidden if merge > 1 else hidden * text_hidden
    return (("vision_tower", depth * block + stem + projector),)


def _size(data: dict[str, object], *names: str) -> int | None:
    for name in names:
        value = data.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1_000_000:
            return value
    return None
