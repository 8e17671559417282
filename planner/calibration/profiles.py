"""From fitted constants to engine profiles: rows per precision, and transfer to unseen GPUs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.calibration.constants import (
    BY_PRECISION,
    FIRST_TOKEN_NAMES,
    SHARED,
    STEP_NAMES,
    kind_of,
    step_bounds,
)
from planner.calibration.features import PRECISIONS, precision_key
from planner.calibration.fit import Errors, Fit, Sample, fit, left_out, median
from planner.calibration.points import MeasuredPoint
from planner.calibration.pooled import LEVELS, levels_of
from planner.catalog.book import Catalog
from planner.closed_loop import CONSTANTS
from planner.engine import EngineProfile, profile_slug
from planner.hardware import Gpu
from planner.profile_scope import kinds_of

Array = NDArray[np.float64]
UNSEEN_ERROR, FAMILY_ERROR, UNFITTED_ERROR = 0.2, 0.2, 0.3
"""Least relative TPOT errors claimed for a precision, a GPU of a measured family, and a GPU of a
family that was not measured: predicting one GPU from another errs by 0.1-0.25."""
ALIKE = 0.01
"""Correlation with which points of one model, GPU, engine and precision count: they come from few
runs and share what is peculiar to those, so n of them tell as much as n / (1 + (n - 1) ALIKE)
others (design effect, Kish 1965, section 5.4). Chosen by cross-validation: models that a fit has
not seen are predicted better with it, other configurations of those it has seen a little worse."""
MIN_POINTS = 8
"""Fewer points than this of a GPU family and engine are not fitted."""


@dataclass(frozen=True, slots=True)
class EngineFit:
    """One engine on one family of GPUs: its points, constants and errors.

    GPUs of one family share the die (H100 and H200), so they share constants: the one with more
    bandwidth then never decodes slower. ``gpu`` stands for the family; ``step`` and ``first_token``
    are in the orders of :mod:`planner.calibration.constants`, ``by_gpu`` has the first-token
    constants of each GPU where several of the family were measured, ``determined`` says which step
    constants the data moved away from their prior.
    """

    engine: str
    gpu: Gpu
    points: tuple[MeasuredPoint, ...]
    step: Array
    first_token: Array
    by_gpu: Mapping[str, Array]
    determined: NDArray[np.bool_]
    errors: Errors

    @property
    def family(self) -> str:
        """Architecture name, as profiles select by it."""
        return family_of(self.gpu)

    @property
    def gpus(self) -> list[str]:
        """Slugs of the GPUs that were measured."""
        return sorted({p.gpu or "" for p in self.points})

    @property
    def served(self) -> bool:
        """Whether closed loops were measured, not full batches alone."""
        return any(math.isfinite(p.ttft_s) for p in self.points)

    @property
    def precisions(self) -> set[str]:
        """Weight precisions that were measured."""
        return {p.weights or "bf16" for p in self.points}


@dataclass(frozen=True, slots=True)
class PooledFit:
    """All engines and families fitted together, and how well families are told from others."""

    sample: Sample
    found: Fit
    fits: list[EngineFit]
    unseen_family: dict[str, float]


def family_of(gpu: Gpu) -> str:
    """Architecture name of a GPU, as profiles select by it."""
    return gpu.architecture.lower()


def sample_of(points: Iterable[MeasuredPoint], catalog: Catalog) -> Sample:
    """Points of every engine and family that has enough, with the catalog's profiles as prior.

    Points with a draft model are left out: their TPOT is not one step.
    """
    groups: dict[tuple[str, str], list[MeasuredPoint]] = {}
    for point in points:
        if point.engine and point.gpu and not point.speculative:
            key = point.engine, family_of(catalog.gpu(point.gpu))
            groups.setdefault(key, []).append(point)
    groups = {k: members for k, members in sorted(groups.items()) if len(members) >= MIN_POINTS}
    chosen = [p for members in groups.values() for p in members]
    keys = [levels_of(*key) for key, members in groups.items() for _ in members]
    base: dict[Hashable, dict[str, EngineProfile]] = {
        key: priors(catalog, key[0], catalog.gpu(members[0].gpu or ""))
        for key, members in groups.items()}
    chosen = weighted(chosen)
    served = {(p.engine, family_of(catalog.gpu(p.gpu or "")), p.gpu)
              for p in chosen if math.isfinite(p.ttft_s)}
    several = {key for key in groups if sum(unit[:2] == key for unit in served) > 1}
    units = [(*key, p.gpu) if key in several else key
             for key, members in groups.items() for p in members]
    return Sample.of(chosen, catalog, keys, base, units)


def weighted(points: Sequence[MeasuredPoint]) -> list[MeasuredPoint]:
    """Points that count less the more there are of their kind; 1 each on average."""
    kinds = [(p.engine, p.gpu, p.model, p.weights) for p in points]
    alike = Counter(kinds)
    share = np.array([1.0 / (1.0 + (alike[kind] - 1) * ALIKE) for kind in kinds])
    return [replace(p, weight=float(p.weight * s))
            for p, s in zip(points, share / share.mean(), strict=True)]


def fit_all(points: Iterable[MeasuredPoint], catalog: Catalog, with_errors: bool = True
            ) -> PooledFit:
    """Fit every engine and family with enough points together.

    ``with_errors`` also fits without parts of the points, to state errors (ten times the work).
    """
    sample = sample_of(points, catalog)
    found = fit(sample, LEVELS)
    errors = left_out(sample, catalog, LEVELS) if with_errors else None
    train = found.tpot(sample.running(catalog, found)) / sample.tpot - 1.0
    fits = []
    for key in dict.fromkeys(k[-1] for k in sample.keys):
        here = np.array([i for i, k in enumerate(sample.keys) if k[-1] == key])
        gpu = catalog.gpu(sample.points[here[0]].gpu or "")
        bounds = step_bounds(priors(catalog, sample.points[here[0]].engine or "", gpu))
        logs = found.effects.constants(bounds, sample.keys[here[0]])
        stated = Errors(median(train[here]), *(
            (median(errors[0][here]), median(errors[1][here])) if errors else (0.0, 0.0)))
        fits.append(EngineFit(sample.points[here[0]].engine or "", gpu,
                              tuple(sample.points[i] for i in here), np.exp(logs),
                              found.first_token(sample.keys[here[0]]), _by_gpu(sample, found, here),
                              np.abs(logs - bounds.prior) > 0.02, stated))
    unseen = left_out_family(sample, catalog) if with_errors else {}
    return PooledFit(sample, found, fits, unseen)


def _by_gpu(sample: Sample, found: Fit, here: NDArray[np.intp]) -> dict[str, Array]:
    """First-token constants of each GPU among some points that has its own."""
    units = {sample.points[i].gpu or "": sample.units[i] for i in here}
    return {gpu: found.first[unit] for gpu, unit in sorted(units.items())
            if len(set(units.values())) > 1 and unit in found.first}


def left_out_family(sample: Sample, catalog: Catalog) -> dict[str, float]:
    """Median TPOT error of each engine when whole families are predicted without their points."""
    families = np.array([str(k[2]) for k in sample.keys])
    engines = np.array([str(k[1]) for k in sample.keys])
    errors = np.full(len(families), np.nan)
    for family in sorted(set(families)):
        inside, outside = np.flatnonzero(families != family), np.flatnonzero(families == family)
        if inside.size:
            found = fit(sample.at(inside), LEVELS)
            rest = sample.at(outside).running(catalog, found)
            errors[outside] = found.tpot(rest) / rest.tpot - 1.0
    return {engine: median(errors[engines == engine]) for engine in sorted(set(engines))}


def priors(catalog: Catalog, engine: str, gpu: Gpu) -> dict[str, EngineProfile]:
    """The profiles in force for an engine and GPU, by weight precision."""
    return {p: catalog.engine(engine, gpu, p) for p in PRECISIONS}


def rows(result: EngineFit, catalog: Catalog, as_of: str, source: str) -> list[EngineProfile]:
    """The fitted profiles of one engine and family: one per precision, and one for any other.

    Each measured GPU has the same with first-token constants of its own.
    """
    own = [_rows(result, catalog, as_of, source, gpu, first)
           for gpu, first in result.by_gpu.items()]
    family = _rows(result, catalog, as_of, source, result.family, result.first_token)
    return [row for made in [family, *own] for row in made]


def _rows(result: EngineFit, catalog: Catalog, as_of: str, source: str, gpu: str,
          first_token: Array) -> list[EngineProfile]:
    """The profiles of a family or one of its GPUs."""
    prior = priors(catalog, result.engine, result.gpu)
    seen = set().union(*(kinds_of(catalog.llm(p.model or "")) for p in result.points))
    made = []
    for precision in ("*", *PRECISIONS[1:]):
        key = "bf16" if precision == "*" else precision
        known = key in result.precisions and result.served
        least = 0.0 if known else UNSEEN_ERROR if result.served else UNFITTED_ERROR
        made.append(replace(
            prior[key], slug=profile_slug(result.engine, gpu, precision), gpu=gpu,
            precision=precision, expert_imbalance=1.0, obtained="fitted" if known else "assumed",
            **step_fields(result.step, _constants_of(key, result.gpu)),
            **first_token_fields(first_token, _constants_of(key, result.gpu)),
            tpot_error=round(max(result.errors.tpot_left_out, least), 4),
            ttft_error=_stated(result.errors.ttft_left_out),
            train_error=round(result.errors.tpot_train, 4), points=len(result.points),
            fitted_on=" ".join([*sorted(seen), *result.gpus]),
            source=_source(result, key, source, known), as_of=as_of))
    return made


def _stated(error: float) -> float | None:
    """A profile's error; None where nothing was measured."""
    return None if math.isnan(error) else round(error, 4)


def _constants_of(precision: str, gpu: Gpu) -> str:
    return precision_key(precision, "fp4" in gpu.peak_flop_per_s)


def _source(result: EngineFit, precision: str, source: str, known: bool) -> str:
    used = {f"{n}_{_constants_of(precision, result.gpu)}" for n in BY_PRECISION} | set(SHARED)
    still = [kind_of(n) for n, moved in zip(STEP_NAMES, result.determined, strict=True)
             if n in used and not moved]
    missing = "; this precision was not measured" if result.served else "; full batches only"
    text = source if known else source + missing
    return f"{text}; at their prior: {', '.join(still)}" if still else text


def step_fields(constants: Array, precision: str) -> dict[str, Any]:
    """Step constants as profile fields for one precision."""
    named = dict(zip(STEP_NAMES, (float(x) for x in constants), strict=True))
    fields = {name: named[f"{name}_{precision}"] for name in BY_PRECISION}
    fields |= {name: named[name] for name in SHARED}
    fields["moe_layer_s"] = fields.pop("moe_extra_s") + fields["layer_s"]
    return {name: rounded(value) for name, value in fields.items()}


def first_token_fields(constants: Array, precision: str) -> dict[str, Any]:
    """First-token constants as profile fields for one precision."""
    named = dict(zip(FIRST_TOKEN_NAMES, (float(x) for x in constants), strict=True))
    return {name: rounded(named.get(f"{name}_{precision}", named.get(name, 0.0)))
            for name in CONSTANTS}


def rounded(value: float) -> float:
    """Four significant digits: more would only look precise."""
    return float(f"{value:.4g}")


# -- transfer ---------------------------------------------------------------------------------


def transferred(pooled: PooledFit, catalog: Catalog, as_of: str) -> list[EngineProfile]:
    """Profiles of GPUs that were not measured: their prior with the effects that others showed.

    A family whose name extends a fitted one's takes that one's effects too. All are ``assumed``,
    with the error that predicting whole families from the others makes.
    """
    made = []
    for profile in catalog.engines.values():
        own = [f for f in pooled.fits if f.engine == profile.engine]
        if not own or profile.gpu in catalog.gpus or profile.version.startswith("0.11"):
            continue
        near = [f for f in own if profile.gpu.startswith(f.family)]
        family = near[0].family if near else profile.gpu
        made.append(_transferred_row(profile, pooled, near or own, family, catalog, as_of))
    return made


def _transferred_row(profile: EngineProfile, pooled: PooledFit, sources: Sequence[EngineFit],
                     family: str, catalog: Catalog, as_of: str) -> EngineProfile:
    keys = levels_of(profile.engine, family)
    own = {p: catalog.engines.get(profile_slug(profile.engine, profile.gpu, p),
                                  profile) for p in PRECISIONS}
    constants = np.exp(pooled.found.effects.constants(step_bounds(own), keys))
    near = profile.gpu.startswith(family)
    precision = profile.precision if profile.precision in PRECISIONS else "bf16"
    units = [("fp4" in g.peak_flop_per_s) for g in catalog.gpus.values()
             if family_of(g) == profile.gpu]
    key = precision_key(precision, any(units))
    names = ", ".join(slug for f in sources for slug in f.gpus)
    error = pooled.unseen_family.get(profile.engine, 0.0)
    fitted = family != profile.gpu
    least = FAMILY_ERROR if fitted else UNFITTED_ERROR
    return replace(profile, **step_fields(constants, key),
                   **first_token_fields(pooled.found.first_token(keys), key),
                   expert_imbalance=1.0,
                   obtained="assumed", tpot_error=round(max(error, least), 4), as_of=as_of,
                   points=sum(len(f.points) for f in sources) if fitted and near else 0,
                   source=(f"transfer: as fitted on {names}" if fitted else
                           f"{profile.source}; moved as the fits on {names} moved"))


def merged(catalog: Catalog, fresh: Iterable[EngineProfile]) -> Mapping[str, EngineProfile]:
    """The catalog's profiles with the fresh ones in their places."""
    return {**catalog.engines, **{p.slug: p for p in fresh}}
