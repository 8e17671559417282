"""Advice that is computed: what binds, and what each lever would do, every one re-planned.

A lever changes one thing of the request, keeps the recommended setup and GPUs, and is sized again
on the recommended layouts and their neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog.book import Catalog
from planner.contexts import beyond_message, noted_share
from planner.describe import limiting_pool, missed_targets
from planner.fleet import Fleet, FleetSize, fleet_size
from planner.hardware import Gpu
from planner.one_pool import DEFAULT_TOKEN_BUDGETS, OnePool
from planner.pricing import Pricer
from planner.requests import PlanRequest, Precisions, Speculative
from planner.roofline import Deployment, StepBatch, StepModel
from planner.search import search
from planner.sizing import Miss, Resources
from planner.two_pools import TwoPools
from planner.units import s_to_ms
from planner.wording import gpus as gpus_text
from planner.workload import REFERENCE_TOKENS, Slo

PREFIX_HIT = 0.5
"""Prefix-cache hit rate that the lever tries."""
DRAFT = Speculative(draft_tokens=3, acceptance=0.7)
"""Speculation that the lever tries: 2.5 tokens a step, as published EAGLE-class drafts reach."""
RELAX = 1.5
"""Factor on the binding target."""
OTHER_GPUS = ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x", "l40s")
"""GPUs that the lever "another GPU" tries when the request does not name them."""
MOST_OTHER_GPUS = 3


@dataclass(frozen=True, slots=True)
class Lever:
    """One change of the request and how to say it."""

    code: str
    label: str
    request: PlanRequest


def advise(request: PlanRequest, resources: Resources, pricer: Pricer, fleet: Fleet
           ) -> list[dict[str, Any]]:
    """What limits the recommended option and what each applicable lever does to its GPUs.

    Returns
    -------
    list of dict
        ``code``, ``message``, ``gpus_before``, ``gpus_after`` and ``usd_per_hour_after`` (None
        where not known).
    """
    metric, role = limiting_pool(fleet, request)
    rows = [_row(f"limited_by_{metric}", _binding_message(metric, role, fleet), fleet.gpus,
                 fleet.gpus, None)]
    rows += [_row(f"misses_{m}", f"At {gpus_text(fleet.gpus)} it misses its {m.upper()} target.",
                  fleet.gpus, None, None) for m in missed_targets(fleet.sized.latencies, request)]
    for lever in _levers(request, resources, fleet, metric):
        after = _cheapest(lever.request, _resources(lever.request, resources, pricer), pricer)
        rows.append(_lever_row(lever, fleet, after, pricer))
    rows += _other_gpus(request, resources, pricer, fleet)
    rows += _unpriced(request, pricer)
    return rows + faster_gpu_trap(request, pricer, fleet)


def too_long(request: PlanRequest, resources: Resources) -> list[dict[str, Any]]:
    """That some requests are longer than the model's context, where they are."""
    share = noted_share(request.workload, resources.llm)
    if not share:
        return []
    return [_row("beyond_context", beyond_message(share, resources.llm), None, None, None)]


def _unpriced(request: PlanRequest, pricer: Pricer) -> list[dict[str, Any]]:
    """GPUs of the request that are planned by count because no price fits."""
    wish = request.pricing
    where = "".join(f" of {x}" for x in (wish.provider, wish.region) if x)
    return [_row("no_price", f"{slug} has no {wish.commitment} price{where}: it is planned by "
                 "count and ranked after what has one.", None, None, None)
            for slug in request.gpus if pricer.choice(slug) is None]


def advise_infeasible(request: PlanRequest, resources: Resources, pricer: Pricer
                      ) -> list[dict[str, Any]]:
    """What would make a plan possible when nothing holds: precision, targets, other GPUs."""
    rows = []
    for lever in _rescues(request, resources, pricer.catalog):
        after = _cheapest(lever.request, _resources(lever.request, resources, pricer), pricer)
        rows.append(_lever_row(lever, None, after, pricer))
    return rows


def _rescues(request: PlanRequest, resources: Resources, catalog: Catalog) -> Iterator[Lever]:
    """Changes that may turn "nothing works" into a plan."""
    tried = {p.weights or resources.llm.native_precision for p in request.precisions}
    if not tried & {"fp8", "fp4", "int4"}:
        yield Lever("fp8_weights", "FP8 weights and KV cache",
                    replace(request, precisions=(Precisions("fp8", "fp8"),)))
    for slo in request.workload.targets:
        yield from _relaxed(request, slo.metric)
    for slug in [s for s in OTHER_GPUS if s in catalog.gpus and s not in request.gpus][
            :MOST_OTHER_GPUS]:
        yield Lever("another_gpu", catalog.gpu(slug).name, replace(request, gpus=(slug,)))


def reason_of(options: list[dict[str, Any]], missed: list[Miss], slos: Sequence[Slo] = ()) -> str:
    """Why the winner wins over the best other setup, or why nothing works, in one sentence.

    Latencies are compared at the percentiles of the targets ``slos``, else at the 90th.
    """
    if not options:
        return _why_nothing(missed)
    best = options[0]
    others = [o for o in options[1:] if o["setup"] != best["setup"]] or options[1:]
    name = _name(best)
    if not others:
        return _alone(name, best)
    other = others[0]
    if best.get("warnings"):
        return f"No option meets every target; {name} comes first ({_missed(best)})."
    if other.get("warnings"):
        return f"{name} meets the targets, {_name(other)} does not ({_missed(other)})."
    return (f"{name} {_saving(best, other, slos)} {_name(other)} ({gpus_text(best['gpus'])} "
            f"against {other['gpus']}, which {_limit_words(other['limited_by'])}).")


def _alone(name: str, best: dict[str, Any]) -> str:
    if best.get("warnings"):
        return f"No option meets every target; {name} is the only one ({_missed(best)})."
    return f"{name} is the only option that meets the targets."


def _missed(option: dict[str, Any]) -> str:
    """What an option misses: the first sentence of its first warning, without its full stop."""
    return str(option["warnings"][0]).split(". ")[0].removesuffix(".")


def _saving(best: dict[str, Any], other: dict[str, Any], slos: Sequence[Slo]) -> str:
    """By how much the winner is better: money, else GPUs, else latency."""
    if best["usd_per_hour"] is not None and other["usd_per_hour"] is not None:
        less = other["usd_per_hour"] - best["usd_per_hour"]
        if less > 0.005:
            return f"costs {less:,.2f} USD/h ({less / other['usd_per_hour']:.0%}) less than"
    elif other["gpus"] > best["gpus"]:
        return f"needs {gpus_text(other['gpus'] - best['gpus'])} fewer than"
    elif best["usd_per_hour"] is None:
        return "needs as many GPUs as"
    else:
        return "has a known price, unlike"
    words = []
    for metric in ("ttft", "tpot"):
        level = next((f"p{s.percentile:g}" for s in slos if s.metric == metric), "p90")
        ours, theirs = (option[f"{metric}_ms"].get(level) for option in (best, other))
        if None not in (ours, theirs) and ours < theirs:
            words.append(f"{metric.upper()} {level} {ours:,.0f} ms against {theirs:,.0f}")
    return f"costs the same with {' and '.join(words)} as" if words else "is as good as"


def _limit_words(metric: str) -> str:
    return {"throughput": "is limited by throughput", "kv_transfer": "is limited by its network",
            "memory": "is limited by room for KV cache"}.get(
        metric, f"is limited by {metric.upper()}")


def _name(option: dict[str, Any]) -> str:
    kinds = " + ".join(dict.fromkeys(p["gpu"] for p in option["pools"]))
    return f"{option['setup']} on {kinds}"


def _why_nothing(missed: list[Miss]) -> str:
    if not missed:
        return "Nothing was tried: the request names no setup or GPU."
    first = min(missed, key=lambda m: (m.reason == "memory", m.over, m.layout.gpus))
    return (f"No setup meets the targets. Closest: {first.setup} on {first.gpu} with tensor "
            f"parallel {first.layout.tensor}, pipeline parallel {first.layout.pipeline}: "
            f"{first.detail}.")


def _binding_message(metric: str, role: str, fleet: Fleet) -> str:
    words = {
        "ttft": "time to first token is what the last replica buys",
        "tpot": "time per output token is what the last replica buys",
        "itl": "the worst gap between tokens is what the last replica buys",
        "e2e": "end-to-end latency is what the last replica buys",
        "memory": "room for KV cache caps the batch",
        "throughput": "prompts and tokens fill the replicas' time",
    }
    return f"In the {role} pool {words.get(metric, metric)} ({gpus_text(fleet.gpus)})."


# -- levers -----------------------------------------------------------------------------------


def _levers(request: PlanRequest, resources: Resources, fleet: Fleet, metric: str
            ) -> Iterator[Lever]:
    """Levers that apply to the recommended option."""
    kept = _kept(request, fleet)
    sized, gpus = fleet.sized, [p.pool.deployment.gpu for p in fleet.pools]
    decodes = request.workload.output.several
    if decodes and "disaggregated" not in request.setups and missed_targets(sized.latencies,
                                                                            request):
        yield Lever("disaggregated", "two pools (disaggregated)",
                    replace(kept, setups=("disaggregated",)))
    wide = sized.weights in ("bf16", "fp16", "fp32")
    if wide and all("fp8" in g.peak_flop_per_s for g in gpus):
        yield Lever("fp8_weights", "FP8 weights",
                    replace(kept, precisions=(Precisions("fp8", sized.kv),)))
    if sized.kv in ("bf16", "fp16", "fp32") and (decodes or metric == "memory"):
        yield Lever("fp8_kv", "an FP8 KV cache",
                    replace(kept, precisions=(Precisions(sized.weights, "fp8"),)))
    if sized.setup == "chunked":
        yield from _budget_levers(kept, fleet)
    yield from _parallel_lever(kept, resources, fleet)
    if not request.workload.prefix_hit:
        yield Lever("prefix_caching", f"prefix caching with a hit rate of {PREFIX_HIT:.0%}",
                    replace(kept, workload=replace(kept.workload, prefix_hit=PREFIX_HIT)))
    if decodes and request.speculative is None:
        yield Lever("speculative_decoding",
                    f"speculative decoding ({DRAFT.draft_tokens} draft tokens, acceptance "
                    f"{DRAFT.acceptance:g})", replace(kept, speculative=DRAFT))
    yield from _relaxed(kept, metric)
    if not request.limits.spare_replicas:
        yield Lever("spare_replica", "one spare replica in each pool (N+1)", replace(
            kept, limits=replace(kept.limits, spare_replicas=1)))


def _kept(request: PlanRequest, fleet: Fleet) -> PlanRequest:
    """The request narrowed to the recommended setup, GPUs and precision."""
    sized = fleet.sized
    return replace(request, setups=(sized.setup,),
                   gpus=tuple(dict.fromkeys(p.pool.deployment.gpu.slug for p in fleet.pools)),
                   precisions=(Precisions(sized.weights, sized.kv),))


def _budget_levers(kept: PlanRequest, fleet: Fleet) -> Iterator[Lever]:
    now = fleet.pools[0].pool.token_budget or 0
    for label, budget in (("smaller", max((b for b in DEFAULT_TOKEN_BUDGETS if b < now),
                                          default=None)),
                          ("larger", min((b for b in DEFAULT_TOKEN_BUDGETS if b > now),
                                         default=None))):
        if budget:
            yield Lever("chunk_budget", f"a {label} token budget ({budget} instead of {now})",
                        replace(kept, limits=replace(kept.limits, token_budgets=(budget,))))


def _parallel_lever(kept: PlanRequest, resources: Resources, fleet: Fleet) -> Iterator[Lever]:
    wider = []
    for p in fleet.pools:
        d = p.pool.deployment
        layout = replace(d.layout, tensor=d.layout.tensor * 2,
                         expert=d.layout.expert * (2 if d.layout.expert > 1 else 1))
        heads = [g.mixer.heads for g in resources.llm.groups if g.mixer.heads]
        reach = max(d.gpu.link_domain_gpus, d.gpu.node_gpus)
        if layout.tensor <= reach and all(h % layout.tensor == 0 for h in heads):
            wider.append(layout)
    if len(wider) == len(fleet.pools):
        degrees = "/".join(str(x.tensor) for x in dict.fromkeys(wider))
        yield Lever("more_tensor_parallel", f"tensor parallel {degrees}", replace(
            kept, limits=replace(kept.limits, layouts=tuple(dict.fromkeys(wider)))))


def _relaxed(kept: PlanRequest, metric: str) -> Iterator[Lever]:
    target = kept.workload.slo(metric)
    if target is None:
        return
    loose = Slo(target.metric, target.limit_s * RELAX, target.percentile)
    slos = tuple(loose if s is target else s for s in kept.workload.slos)
    yield Lever(f"relax_{metric}",
                f"a {metric.upper()} target of {s_to_ms(loose.limit_s):g} ms instead of "
                f"{s_to_ms(target.limit_s):g}",
                replace(kept, workload=replace(kept.workload, slos=slos)))


def _resources(request: PlanRequest, resources: Resources, pricer: Pricer) -> Resources:
    """Catalog values of a changed request."""
    catalog = pricer.catalog
    gpus = tuple(catalog.gpu(s) for s in request.gpus)
    weights = {p.weights or resources.llm.native_precision for p in request.precisions}
    profiles = {(g.slug, w): catalog.engine(request.engine, g, w) for g in gpus for w in weights}
    choices = {g.slug: pricer.choice(g.slug) for g in gpus}
    usd = {s: float(c.price.usd_per_gpu_hour) for s, c in choices.items() if c is not None}
    return replace(resources, gpus=gpus, profiles=profiles, usd_per_gpu_hour=usd,
                   usd_by_stage=pricer.by_stage(gpus))


@dataclass(frozen=True, slots=True)
class After:
    """What a lever leads to: the fleet, and the targets that it still misses."""

    fleet: FleetSize
    missed: tuple[str, ...]


def _cheapest(request: PlanRequest, resources: Resources, pricer: Pricer) -> After | None:
    """The option that ranks first: those that keep every target before the others."""
    found = [After(fleet, _missed_by(choice, request))
             for choice in search(request, resources).choices
             if (fleet := fleet_size(choice.pools, request)).gpus <= request.limits.max_gpus]

    def key(after: After) -> tuple[bool, float, int]:
        usd = pricer.usd_per_hour(after.fleet)
        return bool(after.missed), math.inf if usd is None else usd, after.fleet.gpus

    return min(found, key=key, default=None)


def _missed_by(choice: OnePool | TwoPools, request: PlanRequest) -> tuple[str, ...]:
    """Targets that a choice misses; only short answers can miss one that sizing has asked for."""
    if request.workload.output.mean >= REFERENCE_TOKENS or not request.workload.slo("tpot"):
        return ()
    return tuple(missed_targets(choice.sized(request).latencies, request))


def _lever_row(lever: Lever, before: Fleet | None, after: After | None, pricer: Pricer
               ) -> dict[str, Any]:
    gpus = before.gpus if before else None
    if after is None:
        return _row(lever.code, f"With {lever.label} the targets could not be met.", gpus, None,
                    None)
    count, usd = after.fleet.gpus, pricer.usd_per_hour(after.fleet)
    money = "" if usd is None else f", {usd:,.2f} USD/h"
    still = "".join(f" {m.upper()} misses its target there." for m in after.missed)
    if gpus is None:
        message = f"With {lever.label} it works: {gpus_text(count)}{money}.{still}"
    else:
        delta = count - gpus
        change = "no change" if not delta else f"{abs(delta)} {'more' if delta > 0 else 'fewer'}"
        message = (f"With {lever.label}: {gpus_text(count)} instead of {gpus} "
                   f"({change}{money}).{still}")
    return _row(lever.code, message, gpus, count, usd)


def _row(code: str, message: str, before: int | None, after: int | None, usd: float | None
         ) -> dict[str, Any]:
    return {"code": code, "message": message, "gpus_before": before, "gpus_after": after,
            "usd_per_hour_after": usd}


# -- other GPUs -------------------------------------------------------------------------------


def _other_gpus(request: PlanRequest, resources: Resources, pricer: Pricer, fleet: Fleet
                ) -> list[dict[str, Any]]:
    """The recommended setup on GPUs that the request did not name."""
    rows = []
    catalog = pricer.catalog
    others = [s for s in OTHER_GPUS if s in catalog.gpus and s not in request.gpus]
    for slug in others[:MOST_OTHER_GPUS]:
        asked = replace(_kept(request, fleet), gpus=(slug,))
        chosen = _resources(asked, resources, pricer)
        profile = chosen.profiles[slug, fleet.sized.weights]
        doubt = "" if profile.obtained == "fitted" else " (efficiency assumed, not measured)"
        lever = Lever("another_gpu", catalog.gpu(slug).name + doubt, asked)
        rows.append(_lever_row(lever, fleet, _cheapest(asked, chosen, pricer), pricer))
    return rows


def faster_gpu_trap(request: PlanRequest, pricer: Pricer, fleet: Fleet) -> list[dict[str, Any]]:
    """How prefill and decode each change on a faster GPU: compute and bandwidth rarely rise alike.

    Splitwise (ISCA 2024) table IV: H100 against A100 halves TTFT but takes only 30 % off the time
    between tokens.
    """
    now, catalog = fleet.pools[-1].pool.deployment, pricer.catalog
    other = _faster(now.gpu, request, catalog)
    if other is None:
        return []
    profile = catalog.engine(request.engine, other, now.weights)
    then = Deployment(now.llm, other, now.weights, now.kv, now.layout, profile, now.power_cap_w,
                      now.fidelity)
    workload = request.workload
    running = max(fleet.sized.latencies.mean_running, 1.0)
    steps = []
    for deployment in (now, then):
        model = StepModel.of(deployment)
        steps.append((
            float(model.seconds(StepBatch(prefill_tokens=workload.new_prompt.mean,
                                          prefill_sequences=1.0))),
            float(model.seconds(StepBatch(decodes=running, context=workload.running_context)))))
    prefill = steps[0][0] / steps[1][0]
    decode = steps[0][1] / steps[1][1] if workload.output.several else None
    cost = ""
    then_price, now_price = pricer.choice(other.slug), pricer.choice(now.gpu.slug)
    if then_price is not None and now_price is not None:
        ratio = then_price.price.usd_per_gpu_hour / now_price.price.usd_per_gpu_hour
        cost = f" at {ratio:.2f} times the price"
    message = f"{other.name} against {now.gpu.name}: prefill {prefill:.2f} times as fast"
    message += f"{cost}." if decode is None else (
        f", decode {decode:.2f} times{cost}. A faster GPU helps the phase that its faster part "
        "serves: compute for prefill, bandwidth for decode.")
    return [{**_row("faster_gpu", message, fleet.gpus, None, None),
             "prefill_speedup": prefill, "decode_speedup": decode, "gpu": other.slug}]


def _faster(gpu: Gpu, request: PlanRequest, catalog: Catalog) -> Gpu | None:
    """A GPU with more compute: one of the request's, else the next common one."""
    names = [*request.gpus, *OTHER_GPUS]
    for slug in names:
        other = catalog.gpus.get(slug)
        if other and other.peak_flop_per_s["bf16"] > 1.05 * gpu.peak_flop_per_s["bf16"]:
            return other
    for slug in OTHER_GPUS:
        other = catalog.gpus.get(slug)
        if other and other.bandwidth_bytes_per_s > 1.05 * gpu.bandwidth_bytes_per_s:
            return other
    return None
