"""From fitted constants to engine profiles: rows per precision, and transfer to unseen GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.calibration.constants import FIRST_TOKEN_NAMES, STEP_NAMES, step_bounds
from planner.calibration.features import PRECISIONS, extract
from planner.calibration.fit import Fitted, fit, predict_tpot
from planner.calibration.points import MeasuredPoint
from planner.catalog.book import Catalog
from planner.engine import EngineProfile
from planner.hardware import Gpu
from planner.profile_scope import kinds_of

Array = NDArray[np.float64]
UNSEEN_ERROR, FAMILY_ERROR, UNFITTED_ERROR = 0.2, 0.2, 0.3
"""Least relative TPOT errors claimed for a precision, a GPU of a measured family, and a GPU of a
family that was not measured: predicting one GPU from another errs by 0.12-0.25."""
MIN_POINTS = 8
"""Fewer points than this of a GPU and engine are not fitted."""
_OVERHEADS = ("layer_s", "moe_layer_s", "step_s")


@dataclass(frozen=True, slots=True)
class EngineFit:
    """One engine on one family of GPUs: its points and their fit.

    GPUs of one family share the die (H100 and H200), so they share constants: the one with more
    bandwidth then never decodes slower. ``gpu`` stands for the family.
    """

    engine: str
    gpu: Gpu
    points: tuple[MeasuredPoint, ...]
    fitted: Fitted

    @property
    def family(self) -> str:
        """Architecture name, as profiles select by it."""
        return self.gpu.architecture.lower()

    @property
    def gpus(self) -> list[str]:
        """Slugs of the GPUs that were measured."""
        return sorted({p.gpu or "" for p in self.points})

    @property
    def precisions(self) -> set[str]:
        """Weight precisions that were measured."""
        return {p.weights or "bf16" for p in self.points}


def fit_all(points: Iterable[MeasuredPoint], catalog: Catalog) -> list[EngineFit]:
    """Fit every engine and family with enough points; the catalog's profiles are the prior."""
    groups: dict[tuple[str, str], list[MeasuredPoint]] = {}
    for point in points:
        if point.engine and point.gpu:
            family = catalog.gpu(point.gpu).architecture.lower()
            groups.setdefault((point.engine, family), []).append(point)
    fits = []
    for (engine, _), members in sorted(groups.items()):
        if len(members) >= MIN_POINTS:
            gpu = catalog.gpu(members[0].gpu or "")
            prior = priors(catalog, engine, gpu)
            fits.append(EngineFit(engine, gpu, tuple(members), fit(members, catalog, prior)))
    return fits


def priors(catalog: Catalog, engine: str, gpu: Gpu) -> dict[str, EngineProfile]:
    """The profiles in force for an engine and GPU, by weight precision."""
    return {p: catalog.engine(engine, gpu, p) for p in PRECISIONS}


def rows(result: EngineFit, catalog: Catalog, as_of: str, source: str) -> list[EngineProfile]:
    """The fitted profiles of one engine and GPU: one per precision, and one for any other."""
    prior = priors(catalog, result.engine, result.gpu)
    seen = set().union(*(kinds_of(catalog.llm(p.model or "")) for p in result.points))
    made = []
    for precision in ("*", *PRECISIONS[1:]):
        key = "bf16" if precision == "*" else precision
        known = key in result.precisions
        made.append(replace(
            prior[key], slug=profile_slug(result.engine, result.family, precision),
            gpu=result.family, precision=precision, expert_imbalance=1.0,
            obtained="fitted" if known else "assumed", **step_fields(result.fitted.step, key),
            **first_token_fields(result.fitted.first_token),
            tpot_error=round(max(result.fitted.tpot_left_out, 0.0 if known else UNSEEN_ERROR), 4),
            ttft_error=round(result.fitted.ttft_left_out, 4),
            train_error=round(result.fitted.tpot_train, 4), points=result.fitted.points,
            fitted_on=" ".join([*sorted(seen), *result.gpus]),
            source=_source(result, source, known), as_of=as_of))
    return made


def profile_slug(engine: str, family: str, precision: str) -> str:
    """The slug of a family's profile."""
    return f"{engine}-{family.replace(' ', '-')}-{precision.replace('*', 'any')}"


def _source(result: EngineFit, source: str, known: bool) -> str:
    still = [n for n, moved in zip(STEP_NAMES, result.fitted.determined, strict=True) if not moved]
    text = source if known else f"{source}; this precision was not measured"
    return f"{text}; at their prior: {', '.join(still)}" if still else text


def step_fields(constants: Array, precision: str) -> dict[str, Any]:
    """Step constants as profile fields for one precision."""
    named = dict(zip(STEP_NAMES, (float(x) for x in constants), strict=True))
    fields = {k: rounded(v) for k, v in named.items() if not k.startswith("mfu_")}
    return {"mfu": rounded(named[f"mfu_{precision}"]), **fields}


def first_token_fields(constants: Array) -> dict[str, Any]:
    """First-token constants as profile fields."""
    return {n: rounded(float(v)) for n, v in zip(FIRST_TOKEN_NAMES, constants, strict=True)}


def rounded(value: float) -> float:
    """Four significant digits: more would only look precise."""
    return float(f"{value:.4g}")


# -- transfer ---------------------------------------------------------------------------------


def transferred(fits: Sequence[EngineFit], catalog: Catalog, as_of: str) -> list[EngineProfile]:
    """Profiles of GPUs that were not measured.

    A GPU family with a fitted member takes the geometric mean of its members' constants; other
    families keep their prior's hardware factors and take the engine's host overheads. All are
    ``assumed``, with the error that predicting each fitted GPU from the others makes.
    """
    made = []
    for profile in catalog.engines.values():
        own = [f for f in fits if f.engine == profile.engine]
        if not own or profile.gpu in catalog.gpus or profile.version.startswith("0.11"):
            continue
        family = [f for f in own if profile.gpu.startswith(f.gpu.architecture.lower())]
        error = round(left_out_gpu(own, catalog), 4)
        made.append(_family_row(profile, family, error, as_of) if family
                    else _engine_row(profile, own, catalog, error, as_of))
    return made


def _family_row(profile: EngineProfile, family: Sequence[EngineFit], error: float, as_of: str
                ) -> EngineProfile:
    precision = profile.precision if profile.precision in PRECISIONS else "bf16"
    step, first = _mean([f.fitted.step for f in family]), _mean(
        [f.fitted.first_token for f in family])
    names = ", ".join(slug for f in family for slug in f.gpus)
    return replace(profile, **step_fields(step, precision), **first_token_fields(first),
                   expert_imbalance=1.0, obtained="assumed", as_of=as_of,
                   tpot_error=max(error, FAMILY_ERROR),
                   points=sum(f.fitted.points for f in family),
                   source=f"transfer: mean of the fits on {names}")


def _engine_row(profile: EngineProfile, own: Sequence[EngineFit], catalog: Catalog, error: float,
                as_of: str) -> EngineProfile:
    """The family's own hardware factors with the engine's overheads, scaled as they were found."""
    first = _mean([f.fitted.first_token for f in own])
    scaled: dict[str, Any] = {}
    for name in _OVERHEADS:
        place = STEP_NAMES.index(name)
        ratios = [f.fitted.step[place]
                  / getattr(priors(catalog, f.engine, f.gpu)["bf16"], name) for f in own]
        scaled[name] = rounded(getattr(profile, name) * float(np.exp(np.mean(np.log(ratios)))))
    return replace(profile, **scaled, **first_token_fields(first), obtained="assumed",
                   tpot_error=max(error, UNFITTED_ERROR), as_of=as_of,
                   source=f"{profile.source}; overheads as fitted on "
                   f"{', '.join(slug for f in own for slug in f.gpus)}")


def _mean(vectors: Sequence[Array]) -> Array:
    return np.asarray(np.exp(np.mean(np.log(np.stack(vectors)), axis=0)))


def left_out_gpu(fits: Sequence[EngineFit], catalog: Catalog) -> float:
    """Median TPOT error when each family is predicted from the engine's other families.

    Alone, a family is predicted from the prior.
    """
    errors = []
    for target in fits:
        others = [f.fitted.step for f in fits if f.family != target.family]
        bounds = step_bounds(priors(catalog, target.engine, target.gpu), False)
        constants = _mean(others) if others else np.exp(bounds.prior)
        tpot = np.array([p.tpot_s for p in target.points])
        clients = np.array([p.concurrency or 1.0 for p in target.points])
        features = extract(target.points, catalog, clients)
        errors.append(np.abs(predict_tpot(constants, features) / tpot - 1.0))
    return float(np.median(np.concatenate(errors)))


def merged(catalog: Catalog, fresh: Iterable[EngineProfile]) -> Mapping[str, EngineProfile]:
    """The catalog's profiles with the fresh ones in their places."""
    return {**catalog.engines, **{p.slug: p for p in fresh}}
