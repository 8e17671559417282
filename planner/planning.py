"""A plan: the search, priced, ranked, explained. The entry point of the library and the API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from planner import points as point_rows
from planner.advice import advise, advise_infeasible, reason_of, too_long
from planner.catalog.book import Catalog, PriceChoice
from planner.contexts import noted_share
from planner.describe import (
    miss_document,
    missed_targets,
    option_document,
    price_document,
    profile_assumptions,
)
from planner.engine_fit import unfit
from planner.fleet import Fleet, build_fleet, region_rate
from planner.llm import Llm
from planner.measured import measured_options
from planner.other_ways import OtherWays
from planner.pricing import Pricer
from planner.requests import PlanRequest
from planner.search import precisions, search
from planner.sizing import Miss, Resources, Sized
from planner.wording import gpus as gpus_text

Ranked = tuple[dict[str, Any], Fleet]
Describe = Callable[[int, Fleet, PlanRequest, dict[str, PriceChoice]], dict[str, Any]]
"""How an option becomes a document, see :func:`planner.describe.option_document`."""
USER_ROUNDS, USER_TOLERANCE = 4, 1.01
"""Rounds of the load that users make, and the rise of the rate that is not worth another."""


@dataclass(slots=True)
class PlanResult:
    """A finished plan with everything it was made of.

    Attributes
    ----------
    request : PlanRequest
    options : list of dict
        As documents, best first.
    sized : list of Sized
        The same options as values, for operating points.
    """

    request: PlanRequest
    resources: Resources
    prices: dict[str, PriceChoice]
    catalog_as_of: str
    options: list[dict[str, Any]]
    sized: list[Sized]
    missed: list[Miss]
    advice: list[dict[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The contract's body without ``id``, ``created_at`` and ``request``."""
        return {
            "recommended": self.options[0] if self.options else None,
            "reason": reason_of(self.options, self.missed, self.request.workload.targets),
            "options": self.options,
            "infeasible": [miss_document(m) for m in self.missed],
            "advice": self.advice,
            "assumptions": self.assumptions(),
            "catalog_as_of": self.catalog_as_of,
        }

    def assumptions(self) -> list[dict[str, Any]]:
        """Every factor that stands behind the numbers, with its source."""
        workload, limits = self.request.workload, self.request.limits
        stated: dict[str, str] = {row["name"]: row["source"] for row in self.request.assumptions}
        rows: list[dict[str, Any]] = [
            {"name": "prompt_distribution", "value": workload.prompt.kind, "unit": "",
             "source": "request"},
            {"name": "requests_per_second", "value": workload.requests_per_s, "unit": "1/s",
             "source": f"{_rate_source(workload.users, stated)}, at the peak of one region"},
            {"name": "arrival_cv", "value": workload.arrival_cv, "unit": "",
             "source": stated.get("arrival_cv", "request; 1 = Poisson arrivals")},
            {"name": "output_distribution", "value": workload.output.kind, "unit": "",
             "source": "request"},
            *self._beyond_context(),
            *({"name": f"{slo.metric}_target", "value": "always met", "unit": "",
               "source": "no answer has a second token, so none has a time between tokens"}
              for slo in workload.slos if slo not in workload.targets),
            {"name": "target_utilization", "value": limits.target_utilization,
             "unit": "share of capacity", "source": "request"},
            {"name": "hours_per_month", "value": self.request.pricing.utilization_hours_per_month,
             "unit": "h", "source": "request; 730 h = 365 days / 12"},
            {"name": "kv_pool_percentile", "value": 99.0, "unit": "%",
             "source": "cache of the running sequences fits in 99 % of the time"},
        ]
        used = {p.deployment.profile.slug: p.deployment.profile
                for option in self.sized for p in option.pools}
        for profile in used.values():
            rows += profile_assumptions(profile)
        for choice in self.prices.values():
            document, price = price_document(choice), choice.price
            rows.append({"name": f"price.{price.gpu}", "value": document["usd_per_gpu_hour"],
                         "unit": "USD per GPU-hour",
                         "source": ", ".join(str(x) for x in (
                             price.provider, price.region, price.commitment, price.as_of,
                             price.source) if x)})
        return rows

    def _beyond_context(self) -> list[dict[str, Any]]:
        """The share of the requests that are longer than the model's context, where some are."""
        llm = self.resources.llm
        share = noted_share(self.request.workload, llm)
        return [{"name": "requests_beyond_context", "value": share, "unit": "share of requests",
                 "source": f"prompt and answer above the {llm.max_context} tokens of {llm.slug}; "
                           "counted as served"}] if share else []

    def points(self, setup: str | None = None, gpu: str | None = None) -> dict[str, Any]:
        """Operating points of the options, optionally of one setup or GPU."""
        chosen = point_rows.rows(self.request, self.sized)
        names = list(point_rows.COLUMNS)
        place = {"setup": names.index("setup"), "gpu": names.index("gpu")}
        chosen = [r for r in chosen if setup in (None, r[place["setup"]])
                  and gpu in (None, r[place["gpu"]])]
        return {"columns": names, "rows": chosen}

    def snapshot(self) -> dict[str, Any]:
        """The catalog rows that the plan used."""
        gpus = [_gpu_row(g) for g in self.resources.gpus]
        profiles = {p.slug: asdict(p) for p in self.resources.profiles.values()}
        return {"gpus": gpus, "model": _model_row(self.resources.llm),
                "draft": _model_row(draft) if (draft := self.resources.draft) else None,
                "prices": [price_document(p) for p in self.prices.values()],
                "engines": list(profiles.values())}


def make_plan(request: PlanRequest, catalog: Catalog) -> PlanResult:
    """Size, price and rank every setup that a request asks for.

    Parameters
    ----------
    request : PlanRequest
    catalog : Catalog

    Returns
    -------
    PlanResult
        With no options when nothing can serve the workload; ``missed`` then says why.

    Raises
    ------
    NotInCatalog
        When a model, GPU or engine is unknown.
    """
    pricer = Pricer(catalog, request.pricing)
    resources, prices = gather(request, catalog, pricer)
    regional = _regional(request)
    if request.measured:
        options, missed = measured_options(regional, resources, prices)
        return PlanResult(regional, resources, prices, catalog.as_of, options, [], missed)
    regional, ranked, missed = _settled(regional, resources, pricer)
    found: list[dict[str, Any]] = []
    if request.verify:
        ranked, found = _verified(regional, resources, pricer, ranked)
    used = {slug: c for _, fleet in reversed(ranked)
            for slug, c in pricer.of_fleet(fleet).items()}
    result = PlanResult(regional, resources, {**prices, **used}, catalog.as_of,
                        [document for document, _ in ranked], [f.sized for _, f in ranked],
                        missed, found)
    result.advice = too_long(regional, resources) + found
    if not request.advice:
        return result
    if ranked:
        lines = advise(regional, resources, pricer, ranked[0][1])
        if ranked[0][0].get("verification", {}).get("held"):  # what was simulated, not promised
            lines = [row for row in lines if not row["code"].startswith("misses_")]
        result.advice += lines
    else:
        result.advice += advise_infeasible(regional, resources, pricer)
    return result


def _verified(request: PlanRequest, resources: Resources, pricer: Pricer, ranked: list[Ranked]
              ) -> tuple[list[Ranked], list[dict[str, Any]]]:
    """The options after the best were simulated, and what that changed."""
    from planner.verification import verify_best  # late: it loads the simulator

    return verify_best(
        ranked, request,
        lambda fleet: option_document(0, fleet, request, pricer.of_fleet(fleet)),
        lambda document: _order(document, request.objective),
        OtherWays(request, resources).beside)


def plan_in_short(request: PlanRequest, catalog: Catalog, describe: Describe
                  ) -> tuple[list[dict[str, Any]], list[Miss]]:
    """The ranked options of a request as short documents, and what cannot work; no advice.

    Raises
    ------
    NotInCatalog
        When a model, GPU or engine is unknown.
    """
    pricer = Pricer(catalog, request.pricing)
    resources, prices = gather(request, catalog, pricer)
    regional = _regional(request)
    if request.measured:
        return measured_options(regional, resources, prices)
    _, ranked, missed = _settled(regional, resources, pricer, describe)
    return [document for document, _ in ranked], missed


def _settled(request: PlanRequest, resources: Resources, pricer: Pricer,
             describe: Describe = option_document
             ) -> tuple[PlanRequest, list[Ranked], list[Miss]]:
    """Rank the options; where users set the load, at the rate that they would then make.

    U users who think Z seconds send ``U / (Z + R)`` requests/s when an answer takes R (Little's
    law). The plan starts from the slowest answer that the targets allow and is made again with
    the answer time of its own winner, which can only raise the rate.
    """
    ranked, missed = _ranked(request, resources, pricer, describe)
    workload = request.workload
    for _ in range(USER_ROUNDS if workload.users else 0):
        if not ranked or workload.users is None:
            break
        answer_s = ranked[0][1].sized.latencies.e2e_s["mean"]
        total = workload.users / (workload.think_s + answer_s)
        rate = region_rate(total, request.limits.regions)
        if rate <= workload.requests_per_s * USER_TOLERANCE:
            break
        workload = replace(workload, requests_per_s=rate, mean_requests_per_s=total)
        request = replace(request, workload=workload)
        ranked, missed = _ranked(request, resources, pricer, describe)
    return request, ranked, missed


def _ranked(request: PlanRequest, resources: Resources, pricer: Pricer, describe: Describe
            ) -> tuple[list[Ranked], list[Miss]]:
    found = search(request, resources)
    fleets, beyond = _within_limit(request, (c.sized(request) for c in found.choices))
    return rank(request, fleets, pricer, describe), found.missed + beyond


def _within_limit(request: PlanRequest, sized: Iterable[Sized]) -> tuple[list[Fleet], list[Miss]]:
    """Fleets that stay within ``max_gpus`` with spares and regions, and those that do not."""
    fleets, beyond = [], []
    for option in sized:
        fleet = build_fleet(option, request)
        if fleet.gpus <= request.limits.max_gpus:
            fleets.append(fleet)
            continue
        d = option.pools[0].deployment
        beyond.append(Miss(option.setup, d.gpu.slug, d.layout, d.weights, "max_gpus",
                           f"needs {gpus_text(fleet.gpus)} with spares and regions, "
                           f"{fleet.gpus - request.limits.max_gpus} more than max_gpus"))
    return fleets, beyond


def gather(request: PlanRequest, catalog: Catalog, pricer: Pricer | None = None
           ) -> tuple[Resources, dict[str, PriceChoice]]:
    """The catalog values of a request: model, GPUs, profiles, prices (of a pricer, if one is
    there), draft model."""
    llm = catalog.llm(request.model)
    gpus = tuple(catalog.gpu(slug, f"/gpus/{i}") for i, slug in enumerate(request.gpus))
    weights = {pair[0] for pair in precisions(request, llm)}
    profiles = {(g.slug, w): catalog.engine(request.engine, g, w) for g in gpus for w in weights}
    pricer = pricer or Pricer(catalog, request.pricing)
    pricer.check()
    prices = {g.slug: choice for g in gpus if (choice := pricer.choice(g.slug)) is not None}
    draft = None
    if request.speculative and request.speculative.draft_model:
        draft = catalog.llm(request.speculative.draft_model, "/speculative/draft_model")
    usd = {slug: float(p.price.usd_per_gpu_hour) for slug, p in prices.items()}
    reasons = {g.slug: unfit(request.engine, g, catalog) for g in gpus}
    return Resources(llm, gpus, profiles, usd, pricer.by_stage(gpus), draft,
                     {slug: why for slug, why in reasons.items() if why}), prices


def _regional(request: PlanRequest) -> PlanRequest:
    """The request as one region sees it."""
    workload = request.workload
    rate = region_rate(workload.requests_per_s, request.limits.regions)
    mean = workload.mean_requests_per_s or workload.requests_per_s
    return replace(request, workload=workload.at_rates(rate, mean))


def rank(request: PlanRequest, fleets: Iterable[Fleet], pricer: Pricer,
         describe: Describe = option_document) -> list[Ranked]:
    """Options as documents with their fleets: those that keep every target first, then by the
    objective."""
    drafts = [(describe(0, fleet, request, pricer.of_fleet(fleet)), fleet)
              for fleet in fleets]
    drafts.sort(key=lambda pair: (len(missed_targets(pair[1].sized.latencies, request)) > 0,
                                  _order(pair[0], request.objective)))
    for place, (document, _) in enumerate(drafts, start=1):
        document["rank"] = place
    return drafts


def _order(option: dict[str, Any], objective: str) -> tuple[float, ...]:
    """Priced before unpriced, then the objective, then latency, then a stable name."""
    usd, watts = option["usd_per_hour"], option["power_kw"]
    unpriced = 1.0 if usd is None else 0.0
    late = (option["ttft_ms"]["p90"] or 0.0) + (option["tpot_ms"]["p90"] or 0.0)
    cost, gpus = usd or 0.0, float(option["gpus"])
    return {"cost": (unpriced, round(cost, 6), gpus, late),
            "gpus": (gpus, unpriced, cost, late),
            "power": (1.0 if watts is None else 0.0, watts or 0.0, cost, late)}[objective]


def _rate_source(users: float | None, stated: dict[str, str]) -> str:
    """What the rate of a plan follows from."""
    if users:
        return "users / (think time + answer time of the recommended option)"
    return stated.get("requests_per_second", "request")


def _gpu_row(gpu: Any) -> dict[str, Any]:
    return {**asdict(gpu), "peak_flop_per_s": dict(gpu.peak_flop_per_s)}


def _model_row(llm: Llm) -> dict[str, Any]:
    return {"slug": llm.slug, "name": llm.name, "hf_id": llm.hf_id,
            "architecture": llm.architecture, "total_params": llm.total_params,
            "active_params": llm.active_params, "layers": llm.layers, "hidden": llm.hidden,
            "vocab": llm.vocab, "max_context": llm.max_context,
            "kv_bytes_per_token": llm.kv_bytes_per_token(),
            "state_bytes_per_sequence": llm.state_bytes_per_sequence,
            "native_weights": llm.native_precision, "native_kv": llm.native_kv,
            "record": llm.to_record()}
