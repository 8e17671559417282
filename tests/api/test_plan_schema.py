"""Reading plan and estimate requests, without Flask."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from planner.api.echo import echo
from planner.api.estimate_schema import parse_estimate
from planner.api.plan_checks import check_plan
from planner.api.plan_schema import DEFAULT_GPUS, parse_plan
from planner.api.validation import InvalidDocument
from planner.architectures import from_config
from planner.catalog.book import Catalog
from planner.catalog.shipped import shipped_catalog
from planner.errors import ContextTooLong, NotInCatalog, PlannerError
from planner.planning import make_plan
from planner.requests import SETUPS, Batch, Layout, Precisions
from planner.workload import from_mean_p95

BASE: dict[str, Any] = {
    "model": "tiny", "slo": {"ttft_ms": 1000, "tpot_ms": 50},
    "workload": {"requests_per_second": 12, "prompt_tokens": {"mean": 2000, "p95": 6000},
                 "output_tokens": 300}}


def changed(pointer: str, value: Any, base: dict[str, Any] = BASE) -> dict[str, Any]:
    """A copy of a document with one field set (or removed, for ``...``)."""
    document = copy.deepcopy(base)
    *path, last = pointer.strip("/").split("/")
    here = document
    for key in path:
        here = here.setdefault(key, {})
    if value is ...:
        del here[last]
    else:
        here[last] = value
    return document


def test_defaults() -> None:
    request = parse_plan(BASE)
    assert request.gpus == DEFAULT_GPUS
    assert request.setups == SETUPS
    assert request.precisions == (Precisions(),)
    assert (request.engine, request.fidelity, request.objective) == ("vllm", "operator", "cost")
    assert (request.workload.arrival_cv, request.workload.prefix_hit) == (1.0, 0.0)
    assert [(s.metric, s.limit_s, s.percentile) for s in request.workload.slos] == [
        ("ttft", 1.0, 90.0), ("tpot", 0.05, 90.0)]
    assert request.assumptions == ()


@pytest.mark.parametrize(("length", "mean"), [
    (300, 300), (300.0, 300), ({"mean": 300.5}, 300.5), ({"mean": 300, "p95": 900}, 300),
    ([{"tokens": 100, "share": 1}, {"tokens": 300, "share": 3}], 250)])
def test_lengths(length: Any, mean: float) -> None:
    request = parse_plan(changed("workload/output_tokens", length))
    assert request.workload.output.mean == pytest.approx(mean, rel=1e-3)


def test_a_log_normal_keeps_its_percentiles() -> None:
    request = parse_plan(changed("workload/output_tokens", {"p50": 200, "p95": 900}))
    assert request.workload.output.quantile(0.5) == pytest.approx(200, rel=0.1)
    assert request.workload.prompt.tokens == pytest.approx(from_mean_p95(2000, 6000).tokens)


def test_requests_per_day() -> None:
    rate = {"requests_per_day": 1_000_000, "peak_hour_share": 0.09}
    document = changed("workload/requests_per_second", ...)
    document["workload"].update(rate)
    request = parse_plan(document)
    assert request.workload.requests_per_s == pytest.approx(25.0)  # 1e6 x 0.09 / 3600
    assert request.assumptions[0]["name"] == "requests_per_second"
    assert rate.items() <= echo(request)["workload"].items()


@pytest.mark.parametrize(("slo", "seconds"), [
    ({"e2e_ms": 20_000, "ttft_ms": 500}, 20.0),
    ({"ttft_ms": 1000, "tpot_ms": 50}, 1.0 + 0.05 * 299),
    ({"ttft_ms": 1000, "itl_ms": 50}, 1.0 + 0.05 * 299)])
def test_users_follow_littles_law(slo: dict[str, Any], seconds: float) -> None:
    document = changed("workload/requests_per_second", ..., changed("slo", slo))
    document["workload"].update(concurrent_users=900, think_time_s=30)
    request = parse_plan(document)
    assert request.workload.requests_per_s == pytest.approx(900 / (30 + seconds))
    assert [a["name"] for a in request.assumptions] == ["request_seconds", "requests_per_second"]


def test_own_percentiles() -> None:
    slo = {"ttft_ms": 1000, "e2e_ms": 30_000, "percentile": 95, "ttft_percentile": 99}
    request = parse_plan(changed("slo", slo))
    assert [(s.metric, s.percentile) for s in request.workload.slos] == [("ttft", 99), ("e2e", 95)]


BAD = [
    ("model", ..., "/model"), ("model", 5, "/model"), ("model", "a b", "/model"),
    ("workload", ..., "/workload"), ("workload", 5, "/workload"), ("slo", ..., "/slo"),
    ("slo", {}, "/slo"), ("slo", {"percentile": 90}, "/slo"),
    ("slo/ttft_ms", 0, "/slo/ttft_ms"), ("slo/ttft_ms", "1000", "/slo/ttft_ms"),
    ("slo/percentile", 49, "/slo/percentile"), ("slo/percentile", 100, "/slo/percentile"),
    ("slo/e2e_percentile", 95, "/slo/e2e_percentile"), ("slo/speed", 1, "/slo/speed"),
    ("workload/requests_per_second", ..., "/workload/requests_per_second"),
    ("workload/requests_per_second", 0, "/workload/requests_per_second"),
    ("workload/requests_per_second", -1, "/workload/requests_per_second"),
    ("workload/requests_per_second", True, "/workload/requests_per_second"),
    ("workload/requests_per_second", float("nan"), "/workload/requests_per_second"),
    ("workload/requests_per_second", float("inf"), "/workload/requests_per_second"),
    ("workload/requests_per_second", 10**400, "/workload/requests_per_second"),
    ("workload/requests_per_day", 100, "/workload/requests_per_day"),
    ("workload/peak_hour_share", 0.1, "/workload/peak_hour_share"),
    ("workload/think_time_s", 1, "/workload/think_time_s"),
    ("workload/trace", "My trace", "/workload/trace"),
    ("workload/prompt_tokens", ..., "/workload/prompt_tokens"),
    ("workload/prompt_tokens", 0, "/workload/prompt_tokens"),
    ("workload/prompt_tokens", 1.5, "/workload/prompt_tokens"),
    ("workload/prompt_tokens", True, "/workload/prompt_tokens"),
    ("workload/prompt_tokens", "many", "/workload/prompt_tokens"),
    ("workload/prompt_tokens", [], "/workload/prompt_tokens"),
    ("workload/prompt_tokens", {}, "/workload/prompt_tokens"),
    ("workload/prompt_tokens", {"p95": 5}, "/workload/prompt_tokens"),
    ("workload/prompt_tokens", {"mean": 5, "p50": 5, "p95": 5}, "/workload/prompt_tokens"),
    ("workload/prompt_tokens", {"mean": 2000, "p95": 500}, "/workload/prompt_tokens/p95"),
    ("workload/prompt_tokens", {"mean": 100, "p95": 5000}, "/workload/prompt_tokens/p95"),
    ("workload/prompt_tokens", {"p50": 100, "p95": 50}, "/workload/prompt_tokens/p95"),
    ("workload/prompt_tokens", {"mean": 5, "p99": 9}, "/workload/prompt_tokens/p99"),
    ("workload/prompt_tokens", [{"tokens": 5}], "/workload/prompt_tokens/0/share"),
    ("workload/prompt_tokens", [{"tokens": 5, "share": 0}], "/workload/prompt_tokens"),
    ("workload/prompt_tokens", [{"tokens": 5, "share": 1}, {"tokens": 0, "share": 1}],
     "/workload/prompt_tokens/1/tokens"),
    ("workload/prefix_cache_hit_rate", 1, "/workload/prefix_cache_hit_rate"),
    ("workload/arrival_cv", -0.1, "/workload/arrival_cv"),
    ("gpus", [], "/gpus"), ("gpus", "l40s", "/gpus"), ("gpus", ["l40s", "l40s"], "/gpus/1"),
    ("gpus", ["l40s", 4], "/gpus/1"),
    ("setups", ["serial"], "/setups/0"), ("setups", [], "/setups"),
    ("precisions", [{"weights": "fp7"}], "/precisions/0/weights"),
    ("precisions", [{}, {}], "/precisions/1"),
    ("fidelity", "exact", "/fidelity"), ("objective", "speed", "/objective"),
    ("limits", None, "/limits"),
    ("limits/target_utilization", 1.01, "/limits/target_utilization"),
    ("limits/target_utilization", 0, "/limits/target_utilization"),
    ("limits/spare_replicas", -1, "/limits/spare_replicas"),
    ("limits/regions", 0, "/limits/regions"), ("limits/max_gpus", 1.5, "/limits/max_gpus"),
    ("limits/layouts", [{"tensor_parallel": 0}], "/limits/layouts/0/tensor_parallel"),
    ("limits/token_budgets", [0], "/limits/token_budgets/0"),
    ("pricing/commitment", "gift", "/pricing/commitment"),
    ("pricing/usd_per_gpu_hour", {"l40s": 0}, "/pricing/usd_per_gpu_hour/l40s"),
    ("pricing/usd_per_gpu_hour", {"A b": 1}, "/pricing/usd_per_gpu_hour/A b"),
    ("pricing/usd_per_gpu_hour", 2.5, "/pricing/usd_per_gpu_hour"),
    ("pricing/pue", 0.9, "/pricing/pue"),
    ("speculative", {"draft_tokens": 4}, "/speculative/acceptance"),
    ("speculative", {"draft_tokens": 0, "acceptance": 0.5}, "/speculative/draft_tokens"),
    ("measured", {"encode": {}}, "/measured/encode"),
    ("power_cap_w", -5, "/power_cap_w"), ("colour", "red", "/colour"),
]


@pytest.mark.parametrize(("where", "value", "pointer"), BAD,
                         ids=[f"{i}-{b[2]}" for i, b in enumerate(BAD)])
def test_refusals_point_at_the_field(where: str, value: Any, pointer: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse_plan(changed(where, value))
    assert [p for p, _ in caught.value.errors] == [pointer]


def test_two_rates_are_one_too_many() -> None:
    document = changed("workload/requests_per_day", 100)
    document["workload"]["peak_hour_share"] = 0.1
    with pytest.raises(InvalidDocument, match="only one"):
        parse_plan(document)


def test_users_of_answers_of_one_token_wait_for_that_token() -> None:
    document = changed("workload/requests_per_second", ..., changed("slo", {"ttft_ms": 500}))
    document["workload"].update(concurrent_users=900, think_time_s=30, output_tokens=1)
    request = parse_plan({**document, "model": "llama-3.1-8b"})
    assert request.workload.requests_per_s == pytest.approx(900 / 30.5)
    made = make_plan(request, shipped_catalog())
    own = made.request.workload.requests_per_s
    answer_s = made.sized[0].latencies.e2e_s["mean"]
    assert own == pytest.approx(900 / (30 + answer_s), rel=0.01)


@pytest.mark.parametrize("setups", [["colocated"], ["static", "disaggregated"]])
def test_token_budgets_are_for_chunks(setups: list[str]) -> None:
    document = changed("setups", setups)
    document["limits"] = {"token_budgets": [2048]}
    with pytest.raises(InvalidDocument, match="only goes with the setup chunked") as caught:
        parse_plan(document)
    assert caught.value.pointer == "/limits/token_budgets"
    assert parse_plan({**document, "setups": [*setups, "chunked"]}).limits.token_budgets == (2048,)


def test_users_need_an_answer_time() -> None:
    document = changed("workload/requests_per_second", ..., changed("slo", {"ttft_ms": 500}))
    document["workload"].update(concurrent_users=9, think_time_s=3)
    with pytest.raises(InvalidDocument) as caught:
        parse_plan(document)
    assert caught.value.pointer == "/workload/concurrent_users"


FULL = {
    **BASE, "name": "all", "gpus": ["l40s", "h100-sxm-80gb"], "setups": ["chunked"],
    "precisions": [{"weights": "fp8", "kv": "fp8"}, {"weights": None, "kv": None}],
    "engine": "ideal", "fidelity": "napkin", "objective": "gpus", "power_cap_w": 500,
    "advice": False,
    "slo": {"ttft_ms": 33, "tpot_ms": 7, "itl_ms": 70, "e2e_ms": 9000, "tpot_percentile": 99},
    "limits": {"max_gpus": 64, "max_sequences": 128, "memory_utilization": 0.85, "regions": 2,
               "layouts": [{"tensor_parallel": 4, "expert_parallel": 4}],
               "token_budgets": [512, 2048]},
    "pricing": {"commitment": "owned", "provider": "me", "usd_per_gpu_hour": {"l40s": 0.7}},
    "speculative": {"draft_tokens": 4, "acceptance": 0.7, "draft_model": "tiny"},
    "measured": {"prefill": {"requests_per_second": 3.5, "gpus": 4},
                 "decode": {"requests_per_second": 5}},
}


@pytest.mark.parametrize("document", [BASE, FULL], ids=["smallest", "full"])
def test_the_echo_makes_the_same_request(document: dict[str, Any]) -> None:
    first = echo(parse_plan(document))
    assert echo(parse_plan(first)) == first
    assert first["limits"]["target_utilization"] == 0.8
    assert first["pricing"]["commitment"] == document.get("pricing", {}).get(
        "commitment", "on_demand")


def test_values_of_a_full_request() -> None:
    request = parse_plan(FULL)
    assert request.limits.layouts == (Layout(4, 1, 4, 1),)
    assert request.measured["prefill"].requests_per_s == 3.5
    assert request.speculative is not None
    assert request.pricing.usd_per_gpu_hour == {"l40s": 0.7}


def test_a_saved_workload() -> None:
    saved = {"workload": BASE["workload"], "slo": {"e2e_ms": 9000}}
    document = {"model": "tiny", "workload": "chat"}
    request = parse_plan(document, {"chat": saved}.get)
    assert request.workload.requests_per_s == 12
    assert request.workload.slos[0].metric == "e2e"
    assert echo(request)["workload"]["requests_per_second"] == 12
    own = parse_plan({**document, "slo": {"ttft_ms": 9}}, {"chat": saved}.get)
    assert [s.metric for s in own.workload.slos] == ["ttft"]
    with pytest.raises(NotInCatalog) as caught:
        parse_plan(document, {}.get)
    assert caught.value.pointer == "/workload"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512,
              "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
              "intermediate_size": 1024, "vocab_size": 32000, "max_position_embeddings": 8192}
    llm = from_config(config, slug="tiny", hf_id="lab/tiny")
    shipped = shipped_catalog()
    return Catalog(gpus=shipped.gpus, llms={"tiny": llm}, aliases={"lab/tiny": "tiny"},
                   prices=shipped.prices, engines=shipped.engines)


@pytest.mark.parametrize(("where", "value", "kind", "pointer"), [
    ("model", "nothing", NotInCatalog, "/model"),
    ("gpus", ["l40s", "nothing"], NotInCatalog, "/gpus/1"),
    ("engine", "nothing", NotInCatalog, "/engine"),
    ("pricing/usd_per_gpu_hour", {"nothing": 1}, NotInCatalog, "/pricing/usd_per_gpu_hour/nothing"),
    ("speculative", {"draft_tokens": 4, "acceptance": 0.5, "draft_model": "no"}, NotInCatalog,
     "/speculative/draft_model"),
    ("workload/prompt_tokens", 7893, ContextTooLong, "/workload/prompt_tokens"),
    ("workload/prompt_tokens", {"mean": 4000, "p95": 9000}, ContextTooLong,
     "/workload/prompt_tokens"),
    ("workload/output_tokens", [{"tokens": 10, "share": 99}, {"tokens": 9000, "share": 1}],
     ContextTooLong, "/workload/prompt_tokens"),
])
def test_checks_against_the_catalog(catalog: Catalog, where: str, value: Any,
                                    kind: type[PlannerError], pointer: str) -> None:
    with pytest.raises(kind) as caught:
        check_plan(parse_plan(changed(where, value)), catalog)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("document", [
    BASE, changed("model", "Lab/Tiny"), changed("engine", "ideal"),
    changed("workload/prompt_tokens", 7892)])
def test_checks_pass(catalog: Catalog, document: dict[str, Any]) -> None:
    check_plan(parse_plan(document), catalog)


STEP: dict[str, Any] = {"model": "tiny", "gpu": "l40s", "batch": {"decodes": 4}}


def test_an_estimate() -> None:
    request = parse_estimate({**STEP, "tensor_parallel": 2, "weights": "bf16",
                              "batch": {"decodes": 32, "context_tokens": 1500}})
    assert request.layout == Layout(2, 1, 1, 1)
    assert request.batches == (Batch(32, 1500.0),)
    assert not request.many
    assert parse_estimate({"model": "tiny", "gpu": "l40s", "batches": [{"decodes": 1}]}).many


@pytest.mark.parametrize(("where", "value", "pointer"), [
    ("batch", ..., "/batch"), ("batches", [{"decodes": 1}], "/batches"), ("gpu", ..., "/gpu"),
    ("batch", {}, "/batch/decodes"), ("batch/decodes", -1, "/batch/decodes"),
    ("batch/colour", 1, "/batch/colour"), ("tensor_parallel", 0, "/tensor_parallel"),
    ("memory_utilization", 1.5, "/memory_utilization"), ("kv", "fp7", "/kv")])
def test_bad_estimates_are_refused(where: str, value: Any, pointer: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse_estimate(changed(where, value, STEP))
    assert [p for p, _ in caught.value.errors] == [pointer]


@pytest.mark.parametrize(("batches", "pointer"), [
    ([], "/batches"), ([{"decodes": 1}] * 10_001, "/batches"),
    ([{"decodes": 1}, {"decodes": "x"}], "/batches/1/decodes")])
def test_bad_lists_of_batches(batches: list[Any], pointer: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse_estimate({"model": "tiny", "gpu": "l40s", "batches": batches})
    assert caught.value.pointer == pointer
