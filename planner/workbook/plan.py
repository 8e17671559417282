"""A stored plan as the sheets read it: names, targets, prices, figures at the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.units import SECONDS_PER_HOUR
from planner.workbook.layout import clean, number
from planner.workbook.live.expr import X
from planner.workload import Lengths, constant, empirical, from_mean_p95, from_p50_p95

METRICS = ("ttft", "tpot", "itl", "e2e")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """One latency target: ``percentile`` per cent of the requests within ``limit_ms``."""

    metric: str
    limit_ms: float
    percentile: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan's document, operating points and catalog rows.

    Attributes
    ----------
    document : mapping
        The body of ``POST /plans``.
    points : mapping
        ``columns`` and ``rows``.
    snapshot : mapping
        ``gpus``, ``model``, ``prices``, ``engines``.
    """

    document: Row
    points: Row
    snapshot: Row
    live: dict[Any, dict[str, X]] = field(default_factory=dict)
    """Formulas of the options that calculate, by rank and name of the figure."""

    def cell(self, option: Row, name: str) -> X | None:
        """The formula of an option's figure, None where it does not calculate."""
        return self.live.get(option.get("rank"), {}).get(name)

    @property
    def request(self) -> Row:
        """The request with every default filled in."""
        return self.document.get("request") or {}

    @property
    def best(self) -> Row | None:
        """The recommended option, None when nothing works."""
        return self.document.get("recommended")

    @property
    def options(self) -> list[Row]:
        """All options, best first."""
        return self.document.get("options") or []

    @property
    def advice(self) -> list[Row]:
        """What each lever would do."""
        return self.document.get("advice") or []

    @property
    def infeasible(self) -> list[Row]:
        """Combinations that cannot work."""
        return self.document.get("infeasible") or []

    @property
    def name(self) -> str:
        """The plan's name, or what stands in for one."""
        return clean(self.request.get("name") or "").strip() or f"Capacity plan: {self.model}"

    @property
    def model(self) -> str:
        """The language model's name."""
        model = self.snapshot.get("model") or {}
        return clean(model.get("name") or self.request.get("model") or "the model")

    def rows(self, name: str) -> list[Row]:
        """The snapshot's rows of one catalog."""
        return [r for r in self.snapshot.get(name) or [] if isinstance(r, Mapping)]

    def gpu_name(self, slug: Any) -> str:
        """A GPU's name without its vendor, or the slug when the snapshot lacks it."""
        for row in self.rows("gpus"):
            if row.get("slug") == slug:
                vendor, name = str(row.get("vendor") or ""), str(row.get("name") or slug)
                return clean(name.removeprefix(vendor).strip() or name)
        return clean(slug)

    def targets(self) -> list[Target]:
        """The latency targets of the request."""
        slo = self.request.get("slo") or {}
        common = slo.get("percentile", 90.0)
        return [Target(m, slo[f"{m}_ms"], slo.get(f"{m}_percentile", common))
                for m in METRICS if number(slo.get(f"{m}_ms")) is not None]

    def target(self, metric: str) -> Target | None:
        """The target of one metric."""
        return next((t for t in self.targets() if t.metric == metric), None)

    def percentile(self, metric: str) -> float:
        """The percentile that a metric is judged at: its target's, else 90."""
        target = self.target(metric)
        return target.percentile if target else 90.0

    def latency_ms(self, option: Row, metric: str) -> float | None:
        """A latency [ms] at the percentile of its target."""
        figures, target = option.get(f"{metric}_ms") or {}, self.target(metric)
        name = f"p{self.percentile(metric):g}"
        if name in figures:
            return number(figures[name])
        left = number((option.get("headroom") or {}).get(metric))
        return target.limit_ms * (1.0 - left) if target and left is not None else None

    @property
    def requests_per_second(self) -> float | None:
        """The peak rate [1/s], as stated or as the plan derived it."""
        stated = number((self.request.get("workload") or {}).get("requests_per_second"))
        if stated is not None:
            return stated
        derived = {a.get("name"): a.get("value") for a in self.document.get("assumptions") or []}
        return number(derived.get("requests_per_second")) or self._rate_of_day()

    def _rate_of_day(self) -> float | None:
        workload = self.request.get("workload") or {}
        day, share = workload.get("requests_per_day"), workload.get("peak_hour_share")
        return day * share / SECONDS_PER_HOUR if day and share else None

    def tokens(self, which: str) -> tuple[float | None, float | None]:
        """Mean and 95th percentile [token] of ``prompt`` or ``output``."""
        form = (self.request.get("workload") or {}).get(f"{which}_tokens")
        if form is None:
            return None, None
        lengths = lengths_of(form)
        stated = form if isinstance(form, Mapping) else {}
        return (stated.get("mean", lengths.mean), stated.get("p95", lengths.quantile(0.95)))

    def prices(self, option: Row | None = None) -> list[Row]:
        """The price rows of an option, or of the whole plan."""
        rows = self.rows("prices")
        if option is None:
            return rows
        used = {p.get("gpu") for p in option.get("pools") or []}
        return list(option.get("prices") or [r for r in rows if r.get("gpu") in used])


def lengths_of(form: Any) -> Lengths:
    """A token length from any form that a request may give.

    Examples
    --------
    >>> lengths_of({"mean": 200.0}).mean
    200.0
    """
    if isinstance(form, Mapping):
        if "p50" in form:
            return from_p50_p95(form["p50"], form["p95"])
        return from_mean_p95(form["mean"], form["p95"]) if "p95" in form else constant(form["mean"])
    if isinstance(form, list):
        return empirical([r["tokens"] for r in form], [r["share"] for r in form])
    return constant(form)
