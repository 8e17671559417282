"""Why a setup cannot work on a layout, and by how much: what no number of replicas can mend."""

from __future__ import annotations

import math

from planner.memory import MemoryBudget, sequence_bytes_per_gpu
from planner.roofline import Deployment
from planner.setups.base import Table, best_case_s, held_context
from planner.sizing import Miss, Refusal, Serving
from planner.units import bytes_to_gib, s_to_ms
from planner.workload import Slo, Workload


def memory_detail(deployment: Deployment, m: MemoryBudget, workload: Workload) -> str:
    """By how many GiB a deployment does not fit, and what takes the room."""
    need = sequence_bytes_per_gpu(deployment, held_context(deployment, workload)[0])
    other = m.runtime_bytes + m.graph_bytes + m.draft_bytes
    return (f"does not fit, {bytes_to_gib(need - m.kv_pool_bytes):.1f} GiB short per GPU: "
            f"{bytes_to_gib(m.usable_bytes):.1f} GiB usable, weights "
            f"{bytes_to_gib(m.weights_bytes):.1f}, activation "
            f"{bytes_to_gib(m.activation_bytes):.1f}, runtime {bytes_to_gib(other):.1f}, "
            f"one sequence {bytes_to_gib(need):.2f} GiB")


def miss_of(setup: str, table: Table, refusal: Refusal, source: Serving | None) -> Miss:
    """The miss that a refusal makes, with how far the best case is over the target."""
    d = table.deployment
    if not refusal.at_zero_load:
        return Miss(setup, d.gpu.slug, d.layout, d.weights, "max_gpus",
                    f"needs more than max_gpus; one replica is limited by {refusal.failed}")
    reason = {"ttft": "ttft_at_zero_load", "tpot": "tpot_at_batch_one", "itl": "itl_at_batch_one",
              "e2e": "e2e_at_zero_load"}.get(refusal.failed, refusal.failed)
    target = table.workload.slo(refusal.failed)
    over = math.inf if target is None else max(
        _best_case_s(table, target, source) / target.limit_s - 1.0, 0.0)
    return Miss(setup, d.gpu.slug, d.layout, d.weights, reason,
                _zero_load_detail(table, refusal.failed, source), over)


def late_alone(table: Table) -> Slo | None:
    """The target that a layout misses with no other request, by its columns alone."""
    token_s = float(table.decode_s[0])
    for target in table.workload.targets:
        if target.metric == "itl":
            continue
        if target.metric == "tpot":
            held = token_s * table.drafts.reference_pace(target.level) <= target.limit_s
        else:
            tokens_s, least = 0.0, target.level
            if target.metric == "e2e":
                tokens = max(table.workload.output.quantile(target.percentile / 100.0) - 1.0, 0.0)
                pace = float(table.drafts.of_length(tokens + 1.0).paces.min())
                tokens_s, least = token_s * pace * tokens, table.workload.first_level(target)
            early = table.first_token_s <= target.limit_s - tokens_s
            held = bool(early.all()) or float(table.prompt_weights @ early) >= least
        if not held:
            return target
    return None


def _zero_load_detail(table: Table, failed: str, source: Serving | None) -> str:
    """What the best case is against what was asked."""
    target = table.workload.slo(failed)
    if failed == "token_budget":
        return ("no token budget leaves room for a chunk of a prompt beside one running sequence; "
                "give a larger one")
    if target is None:
        return f"not even one sequence at a time is possible: {failed}"
    best_s = _best_case_s(table, target, source)
    if best_s <= target.limit_s:
        return (f"{failed} p{target.percentile:g}: the prefill alone takes "
                f"{s_to_ms(best_s):.1f} ms of {s_to_ms(target.limit_s):g} ms; the KV transfer and "
                "the first decode step do not fit in the rest; more replicas do not help")
    return (f"{failed} p{target.percentile:g} is {s_to_ms(best_s):.1f} ms with no other request, "
            f"{s_to_ms(best_s - target.limit_s):.1f} ms over the target of "
            f"{s_to_ms(target.limit_s):g} ms; more replicas do not help")


def _best_case_s(table: Table, target: Slo, source: Serving | None) -> float:
    if source is not None:
        return source.best_case_s(target)
    level = target.percentile / 100.0
    at = table.workload.new_prompt.quantile(table.workload.prompt_share(target))
    ttft_s = float(table.first_token_s[int(abs(table.prompt_tokens - at).argmin())])
    return best_case_s(table, target, ttft_s, max(table.workload.output.quantile(level) - 1.0, 0.0))
