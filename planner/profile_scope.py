"""How far a profile's fit reaches: was it fitted on the like of what it is used for?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.llm import Llm
from planner.roofline import LATENT, RECURRENT, Deployment

KINDS = frozenset({"dense", "moe", "mla", "recurrent"})
EXTRAPOLATED_ERROR, ASSUMED_ERROR = 0.2, 0.25
"""Least relative TPOT errors where a fit is stretched, and where nothing was measured: leaving out
whole models errs by 0.20, whole GPUs by 0.15 (docs/accuracy.md)."""
_LEVELS = ("measured", "fitted", "extrapolated", "assumed")


def kinds_of(llm: Llm) -> set[str]:
    """What kinds of layers a model has: ``dense moe mla recurrent``."""
    kinds = {"moe" if llm.is_moe else "dense"}
    mixers = {g.mixer.kind for g in llm.groups}
    if mixers & LATENT:
        kinds.add("mla")
    if mixers & RECURRENT:
        kinds.add("recurrent")
    return kinds


def level_of(deployment: Deployment) -> str:
    """``measured``, ``fitted``, ``extrapolated`` or ``assumed``.

    Extrapolated: the profile was fitted, but not on this GPU, or on no model with these kinds of
    layers. A profile fitted from a user's own results names no GPU and holds where it is asked for.
    """
    profile = deployment.profile
    if profile.obtained != "fitted":
        return profile.obtained
    seen = set(profile.fitted_on.split())
    alike = not seen - KINDS or deployment.gpu.slug in seen
    return "fitted" if alike and kinds_of(deployment.llm) <= seen else "extrapolated"


def tpot_error_of(deployment: Deployment) -> float:
    """Relative TPOT error to expect: the profile's, and more where it is stretched."""
    profile = deployment.profile
    if profile.engine == "ideal":
        return 0.0
    floor = {"measured": 0.0, "fitted": 0.0, "extrapolated": EXTRAPOLATED_ERROR}.get(
        level_of(deployment), ASSUMED_ERROR)
    return max(profile.tpot_error or floor, floor)


def confidence_of(deployments: Sequence[Deployment]) -> dict[str, Any]:
    """The least sure level of some deployments and their largest known errors."""
    level = max((level_of(d) for d in deployments), key=_LEVELS.index)
    ttft = [d.profile.ttft_error for d in deployments if d.profile.ttft_error is not None]
    return {"level": level, "tpot_error": max(map(tpot_error_of, deployments)),
            "ttft_error": max(ttft, default=None)}
