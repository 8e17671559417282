"""How far a profile's fit reaches: was it fitted on the like of what it is used for?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.llm import Llm
from planner.roofline import Deployment

_LEVELS = ("measured", "fitted", "extrapolated", "assumed")


def kinds_of(llm: Llm) -> set[str]:
    """What kinds of layers a model has: ``dense moe mla recurrent``."""
    kinds = {"moe" if llm.is_moe else "dense"}
    mixers = {g.mixer.kind for g in llm.groups}
    if mixers & {"mla", "sparse", "compressed"}:
        kinds.add("mla")
    if mixers & {"mamba", "linear"}:
        kinds.add("recurrent")
    return kinds


def level_of(deployment: Deployment) -> str:
    """``measured``, ``fitted``, ``extrapolated`` or ``assumed``.

    Extrapolated: the profile was fitted, but on no model with these kinds of layers.
    """
    profile = deployment.profile
    if profile.obtained == "fitted":
        unseen = kinds_of(deployment.llm) - set(profile.fitted_on.split())
        return "extrapolated" if unseen else "fitted"
    return profile.obtained


def confidence_of(deployments: Sequence[Deployment]) -> dict[str, Any]:
    """The least sure level of some deployments and their largest known errors."""
    level = max((level_of(d) for d in deployments), key=_LEVELS.index)
    tpot = [d.profile.tpot_error for d in deployments if d.profile.tpot_error is not None]
    ttft = [d.profile.ttft_error for d in deployments if d.profile.ttft_error is not None]
    return {"level": level, "tpot_error": max(tpot, default=None),
            "ttft_error": max(ttft, default=None)}
