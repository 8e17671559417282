"""Workloads that share a fleet, as one: rates add, lengths mix, the strictest target holds.

Each length distribution enters with its share of the requests. Burstiness adds as the variances
of independent streams do (Whitt 1983, QNA section 4.3: ``ca^2 = sum(share ca_i^2)``); prefix hits
are weighted by prompt tokens. Prompt and answer lengths are mixed apart from one another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.workload import Lengths, Slo, Workload

Array = NDArray[np.float64]
MOST_POINTS = 32
"""Points that a mixture is cut down to: as many as a log-normal has."""


def strictest(workloads: Sequence[Workload]) -> tuple[Slo, ...]:
    """Of the targets for one metric the lowest limit at the highest percentile."""
    merged: dict[str, Slo] = {}
    for slo in (s for w in workloads for s in w.targets):
        old = merged.get(slo.metric)
        merged[slo.metric] = slo if old is None else Slo(
            slo.metric, min(slo.limit_s, old.limit_s), max(slo.percentile, old.percentile))
    return tuple(merged.values())


def mixed_lengths(parts: Sequence[Lengths], shares: Sequence[float]) -> Lengths:
    """A mixture of length distributions, cut to :data:`MOST_POINTS` at conditional means.

    Examples
    --------
    >>> from planner.workload import constant
    >>> mixed_lengths([constant(100), constant(300)], [0.75, 0.25]).mean
    150.0
    """
    if len(parts) == 1:
        return parts[0]
    tokens = np.concatenate([p.tokens for p in parts])
    weights = np.concatenate([p.weights * s for p, s in zip(parts, shares, strict=True)])
    values, inverse = np.unique(tokens, return_inverse=True)
    weights = np.bincount(inverse, weights=weights).astype(float)
    if len(values) > MOST_POINTS:
        values, weights = _merged(values, weights / weights.sum())
    return Lengths(values, weights / weights.sum(), "empirical",
                   parts=tuple(zip(np.divide(shares, sum(shares)).tolist(), parts, strict=True)))


def _merged(tokens: Array, weights: Array) -> tuple[Array, Array]:
    """Neighbours merged at their mean: bins finer towards the long end, where targets bind."""
    edges = np.concatenate([np.linspace(0.0, 0.9, 19)[1:], np.linspace(0.91, 0.99, 9),
                            [0.995, 0.999]])
    middle = np.cumsum(weights) - weights / 2.0
    bins = np.searchsorted(edges, middle)
    total = np.bincount(bins, weights=weights)
    sums = np.bincount(bins, weights=weights * tokens)
    used = total > 0
    return np.asarray(sums[used] / total[used]), np.asarray(total[used], dtype=float)


def grown(workload: Workload, factor: float) -> Workload:
    """The workload with every prompt and answer ``factor`` times as long."""
    if factor == 1.0:
        return workload
    return replace(workload, prompt=workload.prompt.scaled(factor),
                   output=workload.output.scaled(factor))


def mix(workloads: Sequence[Workload], rates: Sequence[float],
        slos: tuple[Slo, ...] | None = None) -> Workload:
    """One workload that stands for several at their rates [1/s].

    Parameters
    ----------
    slos : tuple of Slo, optional
        Targets to hold; the strictest of all unless given.
    """
    targets = strictest(workloads) if slos is None else slos
    parts = [(w, r) for w, r in zip(workloads, rates, strict=True) if r > 0.0]
    parts = parts or [(workloads[0], 1.0)]
    total = sum(r for _, r in parts)
    if len(parts) == 1:
        return replace(parts[0][0], requests_per_s=total, mean_requests_per_s=None, users=None,
                       slos=targets)
    shares = [r / total for _, r in parts]
    each = [w for w, _ in parts]
    tokens = [s * w.prompt.mean for s, w in zip(shares, each, strict=True)]
    hit = sum(t * w.prefix_hit for t, w in zip(tokens, each, strict=True)) / sum(tokens)
    cv = round(math.sqrt(sum(s * w.arrival_cv**2 for s, w in zip(shares, each, strict=True))), 9)
    return Workload(total, mixed_lengths([w.prompt for w in each], shares),
                    mixed_lengths([w.output for w in each], shares), cv, hit, targets)
