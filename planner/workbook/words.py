"""The plan in plain English: names of set-ups and limits, layouts, and the answer in a sentence."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from planner.wording import gpus as gpus_text
from planner.workbook.layout import clean, number
from planner.workbook.plan import Plan, Row, Target

SETUPS = {"static": "Static batches", "colocated": "Colocated", "chunked": "Chunked prefill",
          "disaggregated": "Disaggregated"}
LIMITS = {"ttft": "time to first token", "tpot": "time per output token",
          "itl": "gap between tokens", "e2e": "time of the whole request",
          "memory": "memory for the KV cache", "token_budget": "token budget",
          "throughput": "throughput", "kv_transfer": "network cards"}
SHORT = {"ttft": "TTFT", "tpot": "TPOT", "itl": "gap between tokens", "e2e": "whole request"}
ROLES = {"serve": "serve", "prefill": "prefill", "decode": "decode"}
REASONS = {
    "memory": "Does not fit in GPU memory",
    "token_budget": "Token budget too small for a chunk of a prompt",
    "ttft_at_zero_load": "First token too late even with no other request",
    "tpot_at_batch_one": "Tokens too slow even with one request at a time",
    "itl_at_batch_one": "Gap between tokens too long even with one request at a time",
    "e2e_at_zero_load": "Whole request too slow even with no other request",
    "engine": "The engine does not run on this GPU",
    "max_gpus": "Needs more GPUs than the request allows",
    "no_price": "No price known",
    "throughput": "Cannot carry the rate",
    "kv_transfer": "Network cards too slow to move the KV cache",
}
LEVELS = {
    "measured": "Measured: the efficiency comes from measurements of such a deployment.",
    "fitted": "Fitted: the efficiency was fitted to measurements of similar deployments.",
    "extrapolated": "Extrapolated: the efficiency was fitted to measurements, but not on this GPU "
                    "or not on this kind of model.",
    "assumed": "Assumed: the efficiency comes from published figures, not from a measurement of "
               "such a deployment.",
}
PRICE_RULE = "the lower median of the providers' cheapest fitting rows"
LEVERS = {
    "fp8_weights": "FP8 weights", "fp8_kv": "FP8 KV cache", "chunk_budget": "Token budget",
    "more_tensor_parallel": "Wider tensor parallel", "prefix_caching": "Prefix caching",
    "speculative_decoding": "Speculative decoding", "spare_replica": "Spare replica",
    "another_gpu": "Another GPU", "disaggregated": "Two pools",
    "faster_gpu": "A faster GPU", "no_price": "No price",
    "beyond_context": "Longer than the context",
}


def spaced(name: Any) -> str:
    """A code name as words."""
    return clean(name or "").replace("_", " ")


def setup(name: Any) -> str:
    """The name of a set-up."""
    return SETUPS.get(str(name), spaced(name).capitalize())


def limit(name: Any) -> str:
    """What limits an option."""
    return LIMITS.get(str(name), spaced(name))


def lever(code: Any) -> str:
    """What a piece of advice is about."""
    name = str(code or "")
    for prefix, said in (("limited_by_", "The limit"), ("misses_", "Missed target"),
                         ("relax_", "Looser target")):
        metric = name.removeprefix(prefix)
        if metric != name:
            return f"{said}: {limit(metric)}"
    return LEVERS.get(name, spaced(name).capitalize())


def reason(name: Any) -> str:
    """Why a combination cannot work."""
    return REASONS.get(str(name), spaced(name).capitalize())


def degrees(pool: Row) -> str:
    """The parallelism of one replica: ``TP2``, ``TP8 EP8``; measured workers by their GPUs."""
    if pool.get("tensor_parallel") is None:
        each = round((pool.get("gpus") or 0) / max(pool.get("replicas") or 1, 1))
        return gpus_text(each)
    others = (("PP", "pipeline_parallel"), ("EP", "expert_parallel"), ("DP", "data_parallel"))
    more = [f"{short}{pool[name]}" for short, name in others if (pool.get(name) or 1) > 1]
    return " ".join([f"TP{pool['tensor_parallel']}", *more])


def layout(option: Row) -> str:
    """All pools of an option in short: ``6 × TP2 prefill + 4 × TP4 decode``."""
    pools = option.get("pools") or []
    names = [f"{p.get('replicas')} × {degrees(p)}" for p in pools]
    if len(pools) > 1:
        names = [f"{n} {p.get('role')}" for n, p in zip(names, pools, strict=True)]
    return " + ".join(names)


def gpus(plan: Plan, option: Row) -> str:
    """The GPU types of an option."""
    slugs = dict.fromkeys(p.get("gpu") for p in option.get("pools") or [])
    return " + ".join(plan.gpu_name(s) for s in slugs)


def replicas(option: Row) -> int:
    """Replicas of all pools in all regions, spares included."""
    each: int = sum(p.get("replicas") or 0 for p in option.get("pools") or [])
    return each * int(option.get("regions") or 1)


def spares(option: Row) -> int:
    """Spare replicas of all pools in all regions."""
    each: int = sum(p.get("spare_replicas") or 0 for p in option.get("pools") or [])
    return each * int(option.get("regions") or 1)


def precision(option: Row) -> str:
    """Weight and cache precision."""
    weights, kv = option.get("weights"), option.get("kv")
    if not weights and not kv:
        return ""
    return clean(weights if weights == kv else f"{weights} weights, {kv} KV cache")


def figure(value: Any, places: int = 0) -> str:
    """A number with thousands separators, trailing zeros dropped; ``n/a`` when missing."""
    found = number(value)
    if found is None:
        return "n/a"
    text = f"{half_up(found, places):,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def half_up(value: float, places: int) -> Decimal:
    """A number rounded as a spreadsheet shows it: halves away from zero.

    Examples
    --------
    >>> str(half_up(10986.5, 0))
    '10987'
    """
    return Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def money(value: Any) -> str:
    """An amount with two decimals, up to four where they are not zero."""
    found = number(value)
    if found is None:
        return "n/a"
    whole, _, part = f"{half_up(found, 4):,.4f}".partition(".")
    return f"{whole}.{part.rstrip('0'):0<2}"


def span(low: float | None, high: float | None) -> str | None:
    """A range in words, one number when both ends are equal."""
    if low is None or high is None:
        return None
    return figure(low) if low == high else f"{figure(low)} to {figure(high)}"


def target(one: Target) -> str:
    """A target in short: ``TTFT p90 1,000 ms``."""
    return f"{SHORT[one.metric]} p{one.percentile:g} {figure(one.limit_ms, 2)} ms"


def job(plan: Plan) -> str:
    """What is asked for: the rate, the model and the targets."""
    rate, targets = plan.requests_per_second, plan.targets()
    asked = f"{figure(rate, 2)} requests/s of {plan.model}"
    if not targets:
        return asked
    return f"{asked} within {' and '.join(target(t) for t in targets)}"


def answer(plan: Plan) -> str:
    """The plan's answer in a sentence or two."""
    option = plan.best
    if option is None:
        return refusal(plan)
    end = f" The limit is {limit(option['limited_by'])}." if option.get("limited_by") else ""
    missed = warning(option)
    if missed:
        return (f"{_fleet(plan, option)} come closest to {job(plan)}{_money(option)}, but miss a "
                f"target: {missed}.{end}")
    return f"{_fleet(plan, option)} serve {job(plan)}{_money(option)}.{end}"


def warning(option: Row) -> str:
    """What an option misses, in short: the first sentences of its warnings."""
    return "; ".join(clean(w).split(". ")[0].removesuffix(".")
                     for w in option.get("warnings") or [])


def refusal(plan: Plan) -> str:
    """Why there is no answer, with the shortfall."""
    why = str(plan.document.get("reason") or "").removeprefix("No setup meets the targets.")
    why = named(plan, why.strip())
    said = f"Nothing that was tried can serve {job(plan)}."
    return f"{said} {why}".strip()


def _fleet(plan: Plan, option: Row) -> str:
    pools = option.get("pools") or []
    notes = [setup(option.get("setup")).lower(), precision(option), _spare_words(option)]
    tail = "; ".join(n for n in notes if n)
    if len(pools) == 1:
        return (f"{option.get('gpus')} {gpus(plan, option)} ({_replicas(pools[0], option)}; "
                f"{tail})")
    regions = int(option.get("regions") or 1)
    parts = [f"{(p.get('gpus') or 0) * regions} {plan.gpu_name(p.get('gpu'))} for "
             f"{p.get('role')} ({_replicas(p, option)})" for p in pools]
    return f"{gpus_text(option.get('gpus') or 0)}, {' and '.join(parts)} ({tail}),"


def _replicas(pool: Row, option: Row) -> str:
    count = (pool.get("replicas") or 0) * int(option.get("regions") or 1)
    return f"{count} {'replica' if count == 1 else 'replicas'} of {degrees(pool)}"


def _spare_words(option: Row) -> str:
    count = spares(option)
    if not count:
        return ""
    return f"{count} spare {'replica' if count == 1 else 'replicas'} included"


def _money(option: Row) -> str:
    hourly, monthly = number(option.get("usd_per_hour")), number(option.get("usd_per_month"))
    if hourly is None or monthly is None:
        return "; no price is known for it"
    return f", at {half_up(hourly, 2):,.2f} USD/hour ({half_up(monthly, 0):,.0f} USD/month)"


def named(plan: Plan, text: Any) -> str:
    """A text of the plan with GPU and set-up code names replaced by their names."""
    said = clean(text)
    for row in sorted(plan.rows("gpus"), key=lambda r: -len(str(r.get("slug")))):
        said = said.replace(str(row.get("slug")), plan.gpu_name(row.get("slug")))
    for code in SHORT:
        said = re.sub(rf"\b{code}\b", LIMITS[code], said)
    for old, new in (("costs the same price as", "costs the same as"), ("setup", "set-up")):
        said = said.replace(old, new)
    return said[:1].upper() + said[1:]


def price(plan: Plan, row: Row) -> str:
    """A price with where it comes from."""
    origin = [row.get("provider"), row.get("region"), spaced(row.get("commitment")),
              row.get("as_of")]
    told = [", ".join(clean(o) for o in origin if o), market(row), clean(row.get("notes") or "")]
    return (f"{money(row.get('usd_per_gpu_hour'))} USD per hour for one "
            f"{plan.gpu_name(row.get('gpu'))} ({'; '.join(t for t in told if t)})")


def market(row: Row) -> str:
    """Between what a price lies: ``market 2.15 to 12.29 USD, 9 providers``; else empty.

    Examples
    --------
    >>> market({"usd_per_gpu_hour_low": 2.15, "usd_per_gpu_hour_high": 12.29, "providers": 9})
    'market 2.15 to 12.29 USD, 9 providers'
    """
    low, high = number(row.get("usd_per_gpu_hour_low")), number(row.get("usd_per_gpu_hour_high"))
    count = number(row.get("providers")) or 0
    if low is None or high is None or count < 2:
        return ""
    return f"market {half_up(low, 2):,.2f} to {half_up(high, 2):,.2f} USD, {count:g} providers"


def confidence(option: Row) -> str:
    """How sure the figures are, and the range of GPUs."""
    found = option.get("confidence") or {}
    level, error = str(found.get("level") or ""), number(found.get("tpot_error"))
    said = LEVELS.get(level, spaced(level).capitalize())
    if error and number(found.get("gpus_low")) is not None:
        band = span(found["gpus_low"], number(found.get("gpus_high")))
        said += f" If step times are off by {error:.0%}, {band} GPUs are needed." if band else ""
    first = number(found.get("ttft_error"))
    return said + (f" The median error of the time to first token is {first:.0%}." if first else "")
