"""A user's own results to engine profiles: factors on the profile in force, or a full fit.

How much is changed depends on how much is known. Of one engine, GPU and weight precision,

- fewer than 4 points set one factor on all times of a step;
- 4 to 11 set one on decode, one on prefill, and one on the time to the first token;
- 12 or more (of closed loops) are fitted like the shipped profiles, with the one in force as the
  prior.

Every constant stays physical: no share above its bound, no scale of the first token below 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.calibration.constants import (
    first_token_limits,
    highest_of,
    step_bounds,
)
from planner.calibration.features import PRECISIONS, precision_key
from planner.calibration.fit import Sample, fit, left_out, median
from planner.calibration.golden import point_of
from planner.calibration.points import MeasuredPoint
from planner.calibration.pooled import TPOT_SCALE, TTFT_SCALE
from planner.calibration.profiles import first_token_fields, priors, rounded, step_fields
from planner.calibration.report import Errors, errors_of
from planner.calibration.screening import Rejection, screen
from planner.catalog.book import Catalog
from planner.engine import EngineProfile
from planner.errors import InvalidValue, PlannerError
from planner.profile_scope import kinds_of

Array = NDArray[np.float64]
TWO_FACTORS_FROM, FIT_FROM = 4, 12
"""Kept points from which there are factors by phase, and from which all constants are fitted."""
PULL = 0.05
"""Weight of leaving a factor at 1: a tenth costs as much as half a percent of TPOT."""
OWN_LEVEL = (3.0,)
"""Spread of a user's constants around the profile in force, in units of the usual one."""
WIDEST = np.log(20.0)
"""No factor is further from 1 than 20."""
SHARES = ("mfu", "mbu", "expert_mfu", "expert_mbu", "attention_mfu", "attention_mbu",
          "link_efficiency")
DECODE = ("mbu", "expert_mbu", "attention_mbu", "link_efficiency", "collective_latency_s",
          "layer_s", "moe_layer_s", "latent_layer_s", "recurrent_layer_s", "step_s", "sequence_s")
PREFILL = ("mfu", "expert_mfu", "attention_mfu")
CODES = {"unknown-engine": "the catalog has no profile of this engine to start from",
         "prefix-cache": "prompts were found in the prefix cache, so TTFT is not a prefill",
         "pools-unknown": "a disaggregated result does not say what its two pools are"}
"""Codes of rejections beyond those of :mod:`planner.calibration.screening`."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What some results make of the profiles.

    Attributes
    ----------
    profiles : list of EngineProfile
        One for each engine, GPU and weight precision with a kept point.
    kept : list of MeasuredPoint
    rejected : list of Rejection
    before, after : dict
        ``tpot_error`` and ``ttft_error``: median absolute relative errors on the kept points.
    """

    profiles: list[EngineProfile] = field(default_factory=list)
    kept: list[MeasuredPoint] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    before: dict[str, float | None] = field(default_factory=dict)
    after: dict[str, float | None] = field(default_factory=dict)


def calibrate_results(points: Iterable[MeasuredPoint], catalog: Catalog, as_of: date | str,
                      slug: str | None = None) -> Adjustment:
    """Screen measured points and adjust the profiles that they speak about.

    Parameters
    ----------
    points : iterable of MeasuredPoint
        With what was measured filled in (:func:`planner.calibration.points.with_defaults`).
    catalog : Catalog
        Its profiles are the starting point.
    as_of : date or str
        Date of the new profiles.
    slug : str, optional
        Name of the new profile; default ``<engine>-<gpu>-<precision>-custom``.

    Raises
    ------
    InvalidValue
        When a slug is given and the points make several profiles.
    """
    screened = screen(points, catalog)
    usable, refused = _usable(screened.kept, catalog)
    groups: dict[tuple[str, str, str], list[MeasuredPoint]] = {}
    for p in usable:
        groups.setdefault((p.engine or "", p.gpu or "", p.weights or ""), []).append(p)
    if slug is not None and len(groups) > 1:
        names = "; ".join(" ".join(key) for key in groups)
        raise InvalidValue(f"the results make {len(groups)} profiles ({names}), so one slug cannot "
                           "name them: leave it out", "/slug")
    profiles, before, after = [], [], []
    for members in groups.values():
        old, new = _adjusted(members, catalog, str(as_of), slug)
        profiles.append(new)
        before.append(_errors(members, catalog, old))
        after.append(_errors(members, catalog, new))
    rejected = [*screened.rejected, *refused]
    return Adjustment(profiles, usable, rejected, _medians(before), _medians(after))


def _usable(points: Iterable[MeasuredPoint], catalog: Catalog
            ) -> tuple[list[MeasuredPoint], list[Rejection]]:
    kept, refused = [], []
    for p in points:
        verdict = _unusable(p, catalog)
        if verdict is None:
            kept.append(p)
        else:
            refused.append(Rejection(p, *verdict))
    return kept, refused


def _unusable(p: MeasuredPoint, catalog: Catalog) -> tuple[str, str] | None:
    if p.prefix_hit and p.prefix_hit > 0.02:
        return "prefix-cache", (f"{p.prefix_hit:.0%} of the prompt tokens were in the prefix "
                                "cache; measure with prompts of their own")
    if p.setup == "disaggregated":
        return "pools-unknown", "a disaggregated result has two pools and the row has one"
    if p.output_tokens < 2:
        return "impossible-value", "one output token has no time between tokens"
    try:
        catalog.engine(p.engine or "", catalog.gpu(p.gpu or ""), p.weights or "")
    except PlannerError as error:
        return "unknown-engine", error.message
    return None


def _errors(points: Sequence[MeasuredPoint], catalog: Catalog, profile: EngineProfile) -> Errors:
    """Errors of points under a profile."""
    within = replace(catalog, engines={**catalog.engines, profile.slug: profile})
    return errors_of(points, [point_of(p, engine=profile.slug) for p in points], within)


def _medians(parts: Sequence[Errors]) -> dict[str, float | None]:
    if not parts:
        return {"tpot_error": None, "ttft_error": None}
    whole = Errors(np.concatenate([e.tpot for e in parts]), np.concatenate([e.ttft for e in parts]))
    return {f"{phase}_error": _rounded(whole.median(phase)) for phase in ("tpot", "ttft")}


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(value, 4)


# -- one engine, GPU and precision ---------------------------------------------------------------


def _adjusted(points: Sequence[MeasuredPoint], catalog: Catalog, as_of: str, slug: str | None
              ) -> tuple[EngineProfile, EngineProfile]:
    """The profile in force for some points, and the adjusted one."""
    head = points[0]
    gpu = catalog.gpu(head.gpu or "")
    old = catalog.engine(head.engine or "", gpu, head.weights or "")
    closed = [p for p in points if p.closed_loop]
    if len(closed) >= FIT_FROM:
        changes = _fitted(closed, catalog, old)
    else:
        changes = _scaled(points, catalog, old)
    name = slug or f"{old.engine}-{gpu.slug}-{head.weights}-custom"
    new = replace(old, slug=name[:100], gpu=gpu.slug, precision=head.weights or "*",
                  version=head.engine_version or old.version, obtained="fitted",
                  points=len(points), fitted_on=_kinds(points, catalog),
                  source=_source(points, old), as_of=as_of, **changes)
    return old, replace(new, train_error=_rounded(_errors(points, catalog, new).median("tpot")))


def _kinds(points: Iterable[MeasuredPoint], catalog: Catalog) -> str:
    return " ".join(sorted(set().union(*(kinds_of(catalog.llm(p.model or "")) for p in points))))


def _source(points: Iterable[MeasuredPoint], old: EngineProfile) -> str:
    """File names, as the readers put them before the line, and the profile that was adjusted."""
    names = dict.fromkeys("posted rows" if p.source.startswith("points/")
                          else p.source.rpartition(":")[0] or p.source for p in points)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    shown = ", ".join(list(names)[:10]) + more
    return f"own results: {shown[:1000]}; adjusted from {old.slug}"


def _fitted(points: Sequence[MeasuredPoint], catalog: Catalog, old: EngineProfile
            ) -> dict[str, Any]:
    """All constants, fitted with the profiles in force as the prior."""
    gpu, precision = catalog.gpu(points[0].gpu or ""), points[0].weights or "bf16"
    key = precision if precision in PRECISIONS else "bf16"
    prior = {**priors(catalog, points[0].engine or "", gpu), key: old}
    sample = Sample.of(points, catalog, [("own",)] * len(points), {"own": prior})
    found = fit(sample, OWN_LEVEL)
    constants = np.exp(found.effects.constants(step_bounds(prior), ("own",)))
    errors = [_rounded(median(e)) for e in left_out(sample, catalog, OWN_LEVEL)]
    at = precision_key(key, "fp4" in gpu.peak_flop_per_s)
    return {**step_fields(constants, at),
            **first_token_fields(found.first_token(("own",)), at), "expert_imbalance": 1.0,
            "tpot_error": errors[0], "ttft_error": errors[1]}


# -- factors on a profile ------------------------------------------------------------------------


def _scaled(points: Sequence[MeasuredPoint], catalog: Catalog, old: EngineProfile
            ) -> dict[str, Any]:
    """Constants under the best factors, with the errors of leaving each point out."""
    highest = {name: highest_of(name) for name in SHARES}
    best = _factors(points, catalog, old, highest)
    changes = {name: rounded(value) for name, value in scale(old, best, highest).items()}
    left = [_one_left_out(points, i, catalog, old, highest, best) for i in range(len(points))]
    errors = _medians(left) if len(points) > 1 else {"tpot_error": None, "ttft_error": None}
    return {**changes, **errors}


def _one_left_out(points: Sequence[MeasuredPoint], place: int, catalog: Catalog,
                  old: EngineProfile, highest: Mapping[str, float], start: Array) -> Errors:
    rest = [p for i, p in enumerate(points) if i != place]
    if not rest:
        return Errors(np.array([]), np.array([]))
    changes = scale(old, _factors(rest, catalog, old, highest, start), highest)
    return _errors([points[place]], catalog, replace(old, **changes))




def _factors(points: Sequence[MeasuredPoint], catalog: Catalog, old: EngineProfile,
             highest: Mapping[str, float], start: Array | None = None) -> Array:
    """Factors on the times of decode, prefill and first token that fit some points best.

    As many as ``start`` has, where the search begins; else as many as the points allow.
    """
    size = 1 if len(points) < TWO_FACTORS_FROM else 3
    first = np.zeros(size) if start is None else np.log(start)

    def residual(x: Array) -> Array:
        changed = replace(old, **scale(old, np.exp(x), highest))
        errors = _errors(points, catalog, changed)
        parts = [np.log1p(np.nan_to_num(errors.tpot, nan=9.0)) / TPOT_SCALE,
                 np.log1p(np.nan_to_num(errors.ttft, nan=9.0)) / TTFT_SCALE]
        return np.concatenate([*parts, PULL / TPOT_SCALE * x])

    from scipy.optimize import least_squares  # late: it takes half a second to load

    found = least_squares(residual, first, bounds=(-WIDEST, WIDEST), loss="soft_l1",
                          max_nfev=30, ftol=1e-4, xtol=1e-3)
    return np.asarray(np.exp(found.x))


def scale(old: EngineProfile, factors: Array, highest: Mapping[str, float]) -> dict[str, Any]:
    """The constants of a profile with its times multiplied.

    Parameters
    ----------
    old : EngineProfile
    factors : ndarray, shape (1,) or (3,)
        On all times of a step; or on those of decode, of prefill, and of the first token.
    highest : mapping
        The largest value of each share.

    Examples
    --------
    >>> slower = scale(EngineProfile("a", "a", mfu=0.6, mbu=0.8, step_s=0.001), np.array([2.0]), {})
    >>> slower["mfu"], slower["mbu"], slower["step_s"]
    (0.3, 0.4, 0.002)
    """
    decode, prefill = factors[0], factors[1] if len(factors) > 1 else factors[0]
    changes = {}
    for names, factor in ((DECODE, float(decode)), (PREFILL, float(prefill))):
        for name in names:
            value = getattr(old, name)
            changes[name] = (min(value / factor, max(highest.get(name, 1.0), value))
                             if name in SHARES else value * factor)
    if len(factors) > 2:
        for name in ("ttft_scale", "request_s", "first_steps", "prompt_token_s"):
            value, (low, high) = getattr(old, name), first_token_limits(name)
            changes[name] = float(np.clip(value * factors[2], min(low, value), max(high, value)))
    return changes
