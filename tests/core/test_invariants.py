"""What must hold whatever the numbers: monotone answers, physical floors, sums, promises."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core_helpers import catalog, deployment, fewest, gpu, plan, plan_request
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import planning
from planner.api.plan_schema import parse_plan
from planner.catalog.book import Catalog
from planner.fleet import nodes_for
from planner.hardware import Gpu
from planner.planning import PlanResult, make_plan
from planner.requests import Layout, Limits
from planner.roofline import Deployment, StepBatch, StepModel
from planner.setups.base import build_table
from planner.setups.disaggregated import DecodePool, Pair, PrefillPool
from planner.sizing import share
from planner.two_pools import prefill_batches
from planner.workload import Slo, Workload, constant

QUICK = settings(max_examples=60, derandomize=True, deadline=None)
ONE_POOL = ("static", "colocated", "chunked")
SETUPS = (*ONE_POOL, "disaggregated")
SHORT = {"max_tensor_parallel": 2, "max_gpus": 4096}


@pytest.fixture(autouse=True, scope="module")
def no_advice() -> Iterator[None]:
    """Advice re-plans every lever; it has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "advise", lambda *_: [])
        yield


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    new = copy.deepcopy(document)
    *inner, last = path.split(".")
    place = new
    for key in inner:
        place = place.setdefault(key, {})
    place[last] = value
    return new


def gpus_of(document: dict[str, Any], book: Catalog | None = None) -> float:
    return fewest(make_plan(parse_plan(document), book or catalog()))


def base(setup: str, model: str = "llama-3.1-8b", rate: float = 30.0, **rest: Any
         ) -> dict[str, Any]:
    return plan_request(rate, {"mean": 1000, "p95": 3000}, {"mean": 250, "p95": 700}, model=model,
                        setups=[setup], objective="gpus",
                        slo={"ttft_ms": 1500, "tpot_ms": 45}, limits=dict(SHORT), **rest)


# -- asking for more never takes fewer GPUs ---------------------------------------------------

HARDER = {
    "rate": ("workload.requests_per_second", (3.0, 11.0, 40.0, 300.0)),
    "prompt": ("workload.prompt_tokens", (300, 1000, 2200, 4000)),
    "output": ("workload.output_tokens", (40, 200, 600, 1500)),
    "ttft": ("slo.ttft_ms", (6000, 1800, 800, 450)),
    "tpot": ("slo.tpot_ms", (120, 50, 30, 20)),
    "percentile": ("slo.percentile", (50, 90, 97, 99.9)),
    "headroom": ("limits.target_utilization", (1.0, 0.8, 0.6, 0.3)),
    "spares": ("limits.spare_replicas", (0, 1, 5)),
    "bursts": ("workload.arrival_cv", (0.5, 1.0, 2.0, 5.0)),
}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("knob", HARDER)
def test_a_harder_request_never_takes_fewer_gpus(setup, knob):
    path, values = HARDER[knob]
    found = [gpus_of(changed(base(setup), path, v)) for v in values]
    assert found == sorted(found), dict(zip(values, found, strict=True))


@pytest.mark.parametrize("setup", SETUPS)
def test_more_prefix_hits_never_take_more_gpus(setup):
    found = [gpus_of(changed(base(setup), "workload.prefix_cache_hit_rate", v))
             for v in (0.0, 0.3, 0.6, 0.9)]
    assert found == sorted(found, reverse=True)


@settings(max_examples=12, derandomize=True, deadline=None)
@given(st.sampled_from(SETUPS), st.floats(0.5, 200), st.floats(1.02, 1.5),
       st.integers(100, 3000), st.integers(20, 800))
def test_rate_is_monotone_at_random(setup, rate, factor, prompt, output):
    document = plan_request(rate, prompt, output, setups=[setup], objective="gpus",
                            limits=dict(SHORT))
    assert gpus_of(document) <= gpus_of(
        changed(document, "workload.requests_per_second", rate * factor))


@pytest.mark.parametrize("setup", SETUPS)
def test_a_little_longer_prompts_never_take_fewer_gpus(setup):
    """Step by step over where the rows of one mean prompt fill a tile of the GEMMs more."""
    found = [gpus_of(plan_request(
        40, {"mean": mean, "p95": 2.5 * mean}, {"mean": 50, "p95": 125}, model="gpt-oss-120b",
        gpus=["a100-sxm-80gb"], setups=[setup], objective="gpus", slo={"ttft_ms": 1000,
                                                                       "tpot_ms": 30}))
             for mean in range(5940, 6241, 30)]
    assert found == sorted(found)


# -- a better GPU never takes more of them ----------------------------------------------------


def book_with(chip: Gpu) -> Catalog:
    return replace(catalog(), gpus={**catalog().gpus, chip.slug: chip})


BETTER = {
    "bandwidth": {"bandwidth_bytes_per_s": 1.3},
    "compute": {"peak_flop_per_s": 1.3},
    "memory": {"memory_bytes": 1.3},
    "links": {"link_bytes_per_s": 1.5, "pcie_bytes_per_s": 1.5, "nic_bytes_per_s": 1.5},
    "all": {"bandwidth_bytes_per_s": 1.2, "peak_flop_per_s": 1.2, "memory_bytes": 1.2,
            "link_bytes_per_s": 1.2, "nic_bytes_per_s": 1.2},
}


def improved(chip: Gpu, factors: dict[str, float]) -> Gpu:
    values = {}
    for name, factor in factors.items():
        old = getattr(chip, name)
        values[name] = ({k: v * factor for k, v in old.items()} if isinstance(old, dict)
                        else old * factor)
    return replace(chip, **values)


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("better", BETTER)
def test_a_better_gpu_never_takes_more_gpus(setup, better):
    chip = gpu()
    before = gpus_of(base(setup))
    after = gpus_of(base(setup), book_with(improved(chip, BETTER[better])))
    assert after <= before


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize(("knob", "values"), [
    ("limits.max_sequences", (8, 64, 256)), ("limits.max_gpus", (8, 64, 4096)),
    ("limits.max_tensor_parallel", (1, 2, 4, 8))])
def test_wider_limits_never_take_more_gpus(setup, knob, values):
    found = [gpus_of(changed(base(setup), knob, v)) for v in values]
    assert found == sorted(found, reverse=True)


# -- physical floors --------------------------------------------------------------------------

MODELS = ("llama-3.1-8b", "mixtral-8x7b-v0.1", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b",
          "gemma-3-27b", "nemotron-h-56b-8k", "llama-4-scout-17b-16e", "deepseek-v3.2")
LAYOUTS = ({}, {"tensor": 2}, {"tensor": 8}, {"tensor": 4, "pipeline": 2},
           {"tensor": 2, "data": 4, "expert": 8}, {"data": 16, "expert": 16})
BATCHES = ({"decodes": 1.0, "context": 1.0}, {"decodes": 64.0, "context": 4000.0},
           {"decodes": 4096.0, "context": 100.0}, {"decodes": 256.0, "context": 131072.0},
           {"prefill_tokens": 1.0, "prefill_sequences": 1.0},
           {"prefill_tokens": 100000.0, "prefill_sequences": 1.0},
           {"prefill_tokens": 512.0, "prefill_sequences": 1.0, "cached": 32000.0},
           {"prefill_tokens": 2.0**20, "prefill_sequences": 512.0},
           {"decodes": 32.0, "context": 2000.0, "prefill_tokens": 480.0, "prefill_sequences": 1.0},
           {"decodes": 64.0, "context": 2000.0, "tokens_per_decode": 5.0})


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_no_step_beats_the_machine(model, layout):
    """MFU and MBU stay within 1, ideal reaches neither roof, a real engine is slower still.

    With experts as unevenly used: even routing, as ideal has it, touches more of them.
    """
    if layout.get("data") and not catalog().llm(model).is_moe:
        pytest.skip("data-parallel attention is for MoE")
    slower = deployment(model, engine="vllm", **layout)
    alike = deployment(model, engine="ideal", **layout)
    ideal = StepModel.of(replace(alike, profile=replace(
        alike.profile, expert_skew=slower.profile.expert_skew)))
    real = StepModel.of(slower)
    for batch in BATCHES:
        floor, step = ideal.step(StepBatch(**batch)), real.step(StepBatch(**batch))
        for one in (floor, step):
            assert float(one.mfu) <= 1.0 + 1e-9, (batch, float(one.mfu))
            assert float(one.mbu) <= 1.0 + 1e-9, (batch, float(one.mbu))
        assert float(step.seconds) >= float(floor.seconds) * (1 - 1e-9), batch


@QUICK
@given(st.sampled_from(MODELS), st.sampled_from(("bf16", "fp8", "int4", "fp4")),
       st.sampled_from(("t4", "a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "tpu-v5e",
                        "mi300x")), st.floats(1, 5000), st.floats(1, 200000))
def test_shares_of_the_peaks_at_random(model, weights, slug, decodes, context):
    step = StepModel.of(deployment(model, slug, weights, engine="ideal", tensor=8)).step(
        StepBatch(decodes=decodes, context=context))
    assert 0 < float(step.mfu) <= 1 + 1e-9
    assert 0 < float(step.mbu) <= 1 + 1e-9


@pytest.mark.parametrize("model", MODELS)
def test_steps_grow_with_their_work(model):
    steps = StepModel.of(deployment(model, tensor=8))
    n = np.arange(1.0, 600.0)
    by_batch = steps.seconds(StepBatch(decodes=n, context=2000.0))
    # A window that restarts at its multiples (Llama 4) is read half on average past the first.
    reach = 8192.0 if "llama-4" in model else 1e9
    by_context = steps.seconds(StepBatch(decodes=16.0, context=np.minimum(n * 200, reach)))
    by_prompt = steps.seconds(StepBatch(prefill_tokens=n * 16, prefill_sequences=1.0))
    for seconds in (by_batch, by_context, by_prompt):
        assert (np.diff(seconds) >= -1e-12).all()


@pytest.mark.parametrize("model", MODELS)
def test_a_token_costs_no_more_in_a_larger_batch(model):
    """Decode throughput never falls with the batch when tiles are not rounded."""
    d = deployment(model, engine="ideal", tensor=8)
    n = np.arange(1.0, 2000.0)
    seconds = StepModel.of(d).seconds(StepBatch(decodes=n, context=500.0))
    assert (np.diff(seconds / n) <= 1e-12).all()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", [{"data": 8, "expert": 8}, {"pipeline": 4}])
def test_steps_grow_under_data_and_pipeline_parallelism(model, layout):
    if "data" in layout and not catalog().llm(model).is_moe:
        pytest.skip("data-parallel attention is for MoE")
    n = np.arange(1.0, 600.0)
    for engine in ("vllm", "ideal"):
        seconds = StepModel.of(deployment(model, engine=engine, **layout)).seconds(
            StepBatch(decodes=n, context=2000.0))
        assert (np.diff(seconds) >= -1e-12).all()
    assert (np.diff(seconds / n) <= 1e-12).all()


def test_tensor_parallelism_divides_the_work():
    one, two = (StepModel.of(deployment("llama-3.1-70b", engine="ideal", tensor=t)).step(
        StepBatch(decodes=8.0, context=1000.0)) for t in (1, 2))
    assert float(two.flops) == pytest.approx(float(one.flops), rel=1e-3)
    assert float(two.bytes) == pytest.approx(float(one.bytes), rel=1e-3)


# -- what options promise ---------------------------------------------------------------------

REQUESTS: dict[str, dict[str, Any]] = {
    "chat": plan_request(20, {"mean": 900, "p95": 2500}, {"mean": 250, "p95": 600},
                         limits={"spare_replicas": 1}),
    "p99": plan_request(12, 2000, 150, slo={"ttft_ms": 2500, "tpot_ms": 40, "percentile": 99}),
    "e2e": plan_request(8, 800, 200, slo={"e2e_ms": 9000}),
    "gap": plan_request(8, 800, 200, slo={"itl_ms": 120, "percentile": 95}),
    "all targets": plan_request(8, 800, 200, slo={
        "ttft_ms": 2500, "tpot_ms": 60, "itl_ms": 500, "e2e_ms": 15000}),
    "moe": plan_request(6, 1000, 200, model="mixtral-8x7b-v0.1", limits={"regions": 3}),
    "mla": plan_request(10, 1500, 300, model="deepseek-v3", gpus=["h200-sxm-141gb"],
                        slo={"ttft_ms": 4000, "tpot_ms": 80}),
    "bursts": plan_request(25, 600, 80, workload={"arrival_cv": 4.0}),
    "speculative": plan_request(15, 600, 300, speculative={"draft_tokens": 3, "acceptance": 0.7}),
    "draft model": plan_request(15, 600, 300, model="llama-3.1-70b", speculative={
        "draft_tokens": 3, "acceptance": 0.7, "draft_model": "llama-3.2-1b"}),
    "two GPUs": plan_request(15, 1200, 200, gpus=["h100-sxm-80gb", "l40s"]),
}
_DONE: dict[str, PlanResult] = {}


def done(name: str) -> PlanResult:
    if name not in _DONE:
        _DONE[name] = make_plan(parse_plan(REQUESTS[name]), catalog())
    return _DONE[name]


def option_cases() -> list[str]:
    return list(REQUESTS)


@pytest.mark.parametrize("name", option_cases())
def test_every_setup_is_found(name):
    """None of these is out of reach of any setup but request-level batching."""
    found = {o["setup"] for o in done(name).options}
    assert found >= {"colocated", "chunked", "disaggregated"}


@pytest.mark.parametrize("name", option_cases())
def test_options_hold_their_targets(name):
    request = done(name).request
    for option in done(name).options:
        for slo in request.workload.slos:
            value = option[f"{slo.metric}_ms"][f"p{slo.percentile:g}"]
            assert value <= slo.limit_s * 1e3 * (1 + 1e-9), (option["setup"], slo)


@pytest.mark.parametrize("name", option_cases())
def test_percentiles_are_ordered(name):
    for option in done(name).options:
        for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
            figure = [option[metric][p] for p in ("p50", "p90", "p95", "p99")]
            assert figure == sorted(figure), (option["setup"], metric, figure)
            assert option[metric]["mean"] > 0


@pytest.mark.parametrize("name", option_cases())
def test_gpus_add_up(name):
    for option in done(name).options:
        pools = option["pools"]
        for p in pools:
            each = p["tensor_parallel"] * p["pipeline_parallel"] * p["data_parallel"]
            assert p["gpus"] == p["replicas"] * each
            assert p["replicas"] > p["spare_replicas"] >= 0
            assert 0 < p["utilization"] <= done(name).request.limits.target_utilization * 1.001
        assert option["gpus"] == option["regions"] * sum(p["gpus"] for p in pools)
        assert sum(option["gpus_by_kind"].values()) == option["gpus"]
        assert option["gpus_in_whole_nodes"] >= option["gpus"]
        assert option["nodes"] >= math.ceil(option["gpus"] / 8)
        low, high = option["confidence"]["gpus_low"], option["confidence"]["gpus_high"]
        assert low <= option["gpus"] <= high


@pytest.mark.parametrize("name", option_cases())
def test_money_adds_up(name):
    workload = done(name).request.workload
    rate = workload.mean_requests_per_s or workload.requests_per_s
    for option in done(name).options:
        per_gpu = {p["gpu"]: p["usd_per_gpu_hour"] for p in option["prices"]}
        hourly = sum(n * per_gpu[slug] for slug, n in option["gpus_by_kind"].items())
        assert option["usd_per_hour"] == pytest.approx(hourly)
        request = option["usd_per_request"]
        assert request * rate * 3600 == pytest.approx(hourly)
        tokens_in, tokens_out = workload.prompt.mean / 1e6, workload.output.mean / 1e6
        assert (tokens_in * option["usd_per_million_input_tokens"]
                + tokens_out * option["usd_per_million_output_tokens"]) == pytest.approx(request)
        assert option["usd_per_million_tokens"] * (tokens_in + tokens_out) == pytest.approx(request)


@pytest.mark.parametrize("name", option_cases())
def test_memory_lines_add_up(name):
    for option in done(name).options:
        for pool in option["pools"]:
            m = pool["memory"]
            parts = sum(m[k] for k in ("weights_gib", "activation_gib", "runtime_gib",
                                       "graphs_gib", "draft_gib", "kv_pool_gib"))
            assert parts == pytest.approx(m["usable_gib"])
            assert m["usable_gib"] <= m["physical_gib"]


@pytest.mark.parametrize("name", option_cases())
def test_rows_stay_within_the_machine(name):
    points = done(name).points()
    place = {c: i for i, c in enumerate(points["columns"])}
    for row in points["rows"]:
        for column in ("mfu", "mbu"):
            assert row[place[column]] is None or 0 <= row[place[column]] <= 1 + 1e-9
        assert all(math.isfinite(x) and x >= 0 for x in row if isinstance(x, float)), row


@pytest.mark.parametrize("objective", ["cost", "gpus", "power"])
def test_recommended_is_the_best_of_its_options(objective):
    document = {**REQUESTS["two GPUs"], "objective": objective}
    key = {"cost": "usd_per_hour", "gpus": "gpus", "power": "power_kw"}[objective]
    options = make_plan(parse_plan(document), catalog()).options
    assert options[0][key] == min(o[key] for o in options)
    assert [o["rank"] for o in options] == list(range(1, len(options) + 1))


@pytest.mark.parametrize("objective", ["cost", "gpus", "power"])
def test_more_choice_is_never_worse(objective):
    """All setups and GPUs together are as good as the best of each alone."""
    document = {**REQUESTS["two GPUs"], "objective": objective}
    key = {"cost": "usd_per_hour", "gpus": "gpus", "power": "power_kw"}[objective]
    best = make_plan(parse_plan(document), catalog()).options[0][key]
    for setup, slug in itertools.product(SETUPS, document["gpus"]):
        alone = make_plan(parse_plan({**document, "setups": [setup], "gpus": [slug]}),
                          catalog()).options
        assert not alone or best <= alone[0][key] * (1 + 1e-9), (setup, slug)


@pytest.mark.parametrize("spares", [0, 2])
@pytest.mark.parametrize("setup", SETUPS)
def test_free_layouts_are_as_good_as_the_best_given_one(setup, spares):
    """Spares are whole replicas, so a small layout that needs one GPU more may be the better."""
    for rate in (14.0, 45.0, 70.0):
        document = changed(changed(base(setup, rate=rate), "limits.max_tensor_parallel", 8),
                           "limits.spare_replicas", spares)
        free = gpus_of(document)
        given = {t: gpus_of(changed(document, "limits.layouts", [{"tensor_parallel": t}]))
                 for t in (1, 2, 4, 8)}
        assert free <= min(given.values()), (rate, free, given)


@pytest.mark.parametrize(("setup", "rate", "model"), [
    ("colocated", 20, "qwen3-32b"), ("colocated", 40, "qwen3-32b"), ("chunked", 50, "qwen3-32b")])
def test_spares_count_in_the_choice_of_a_layout(setup, rate, model):
    document = plan_request(rate, 1500, 300, model=model, setups=[setup], objective="gpus",
                            slo={"ttft_ms": 900, "tpot_ms": 30}, limits={"spare_replicas": 2})
    given = {t: gpus_of(changed(document, "limits.layouts", [{"tensor_parallel": t}]))
             for t in (1, 2, 4, 8)}
    assert gpus_of(document) <= min(given.values()), given


def test_a_fleet_that_fits_with_its_spares_is_found():
    """Two spares on the widest layout pass max_gpus; eight GPUs of the narrow one do not."""
    document = changed(changed(base("disaggregated", rate=45.0), "limits.spare_replicas", 2),
                       "limits.max_tensor_parallel", 8)
    assert gpus_of(changed(document, "limits.max_gpus", 9)) <= 9


@pytest.mark.parametrize(("slug", "rate", "prompt"), [
    ("rtx-pro-6000-blackwell-ws", 60, 2000), ("rtx-5090", 60, 1000), ("l4", 60, 8000)])
def test_transfers_fit_the_network_cards(slug, rate, prompt):
    """What the decode replicas receive per second is at most what their cards take in."""
    document = plan_request(rate, prompt, 50, gpus=[slug], setups=["disaggregated"],
                            slo={"ttft_ms": 20000, "tpot_ms": 150})
    llm, chip = catalog().llm("llama-3.1-8b"), gpu(slug)
    for option in make_plan(parse_plan(document), catalog()).options:
        for pool in option["pools"]:
            moved = rate * prompt * llm.kv_bytes_per_token(option["kv"])
            active = pool["gpus"] * (1 - pool["spare_replicas"] / pool["replicas"])
            assert moved <= active * chip.nic_bytes_per_s, (pool["role"], active)


def test_prices_scale_the_bill():
    def bill(usd: float) -> float:
        return plan(10, pricing={"usd_per_gpu_hour": {"h100-sxm-80gb": usd}}
                    ).options[0]["usd_per_hour"]
    assert bill(4.0) == pytest.approx(2 * bill(2.0))


def test_dearer_gpus_never_make_the_recommended_cheaper():
    document = REQUESTS["two GPUs"]
    found = [make_plan(parse_plan({**document, "pricing": {"usd_per_gpu_hour": {
        "h100-sxm-80gb": usd, "l40s": 1.5}}}), catalog()).options[0]["usd_per_hour"]
        for usd in (1.0, 2.0, 4.0, 9.0)]
    assert found == sorted(found)


@pytest.mark.parametrize("regions", [2, 3, 5])
def test_regions_survive_the_loss_of_one(regions):
    one = plan(40, setups=["chunked"]).options[0]
    many = plan(40, setups=["chunked"], limits={"regions": regions}).options[0]
    pool = many["pools"][0]
    left = (regions - 1) * pool["replicas"] * pool["capacity_rps"]
    assert left >= 40 / 0.8 * (1 - 1e-3)
    assert many["gpus"] >= one["gpus"]
    assert many["usd_per_request"] == pytest.approx(many["usd_per_hour"] / 40 / 3600)


# -- disaggregated pairs are the whole-number minimum -----------------------------------------


def brute_force(request: Any, layout: Layout, most: int = 12) -> int | None:
    """Fewest GPUs over all small pairs and packings worth trying, asking the pools themselves."""
    profile = catalog().engine("vllm", gpu(), "bf16")
    d = Deployment(catalog().llm(request.model), gpu(), "bf16", "bf16", layout, profile)
    table = build_table(d, request.workload, request.limits)
    decode, best = DecodePool(table), None
    for n_d in range(1, most + 1):
        rate, cv2 = share(request, n_d)
        verdict = decode.check(rate / request.limits.target_utilization, cv2)
        if not verdict.ok:
            continue
        chain = decode.chain(rate, cv2)
        admission = decode.admission(chain, verdict.cap)
        for n_p, batch in itertools.product(range(1, most + 1),
                                            prefill_batches(request.workload)):
            pool = PrefillPool(table, batch)
            handover = Pair(pool, decode).handover_s(chain, verdict.cap)
            rate, cv2 = share(request, n_p)
            if pool.check(rate / request.limits.target_utilization, cv2, handover, admission).ok:
                total = (n_p + n_d) * layout.gpus
                best = total if best is None else min(best, total)
    return best


@pytest.mark.parametrize(("rate", "prompt", "output", "ttft", "tpot"), [
    (5, 1000, 200, 1000, 30), (60, 1000, 200, 1000, 30), (90, 2000, 100, 800, 25),
    (40, 300, 600, 600, 15), (100, 500, 400, 500, 40)])
def test_disaggregated_fleet_is_the_smallest(rate, prompt, output, ttft, tpot):
    document = plan_request(rate, prompt, output, setups=["disaggregated"], objective="gpus",
                            precisions=[{"weights": "bf16", "kv": "bf16"}],
                            slo={"ttft_ms": ttft, "tpot_ms": tpot},
                            limits={"layouts": [{"tensor_parallel": 1}]})
    request = parse_plan(document)
    assert gpus_of(document) == brute_force(request, Layout())


# -- nodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "nodes"), [
    ([], 0), ([8], 1), ([4, 4], 1), ([4, 4, 4], 2), ([2] * 5, 2), ([16], 2), ([12], 2),
    ([12, 4], 2), ([1] * 9, 2), ([16, 16, 4, 2, 2], 5)])
def test_nodes(sizes, nodes):
    assert nodes_for(sizes, 8) == nodes


@QUICK
@given(st.lists(st.sampled_from((1, 2, 4, 8, 16)), max_size=30))
def test_powers_of_two_pack_perfectly(sizes):
    assert nodes_for(sizes, 8) == math.ceil(sum(sizes) / 8)


def test_infeasible_at_zero_load_is_said_so():
    result = plan(slo={"ttft_ms": 1, "tpot_ms": 40})
    assert not result.options
    reasons = {m["reason"] for m in result.document()["infeasible"]}
    assert reasons == {"ttft_at_zero_load"}


def test_workload_without_cache_room_is_short_of_bytes():
    table = build_table(deployment("llama-3.1-70b", weights="bf16"), Workload(
        1.0, constant(100), constant(100), slos=(Slo("tpot", 1.0),)), Limits())
    assert table.memory.kv_pool_bytes < 0
    assert not table.memory.fits
    assert table.memory_cap == 0
