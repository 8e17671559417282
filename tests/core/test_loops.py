"""The compiled loops against SciPy and plain NumPy; what the search leaves out, asked after all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from core_helpers import share_within_either, tokens_within
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.special import gammainc, ndtr

from planner import one_pool, two_pools
from planner.api.plan_schema import parse_plan
from planner.catalog.shipped import shipped_catalog
from planner.compiled import entry
from planner.loops.batches import first_failure
from planner.loops.chain import GONE, chain_columns
from planner.loops.gamma import gamma_within
from planner.loops.halving import halvings
from planner.loops.percentiles import mixture_percentiles
from planner.planning import make_plan
from planner.queueing import Chain
from planner.setups.disaggregated import DecodePool
from planner.warm_up import uncompiled, warm_up
from planner.workload import REFERENCE_TOKENS, constant

QUICK = settings(max_examples=60, deadline=None)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NO_LIMIT = np.array([np.inf])


@entry
def gamma_shares(shapes, values):
    shares = np.empty(len(shapes))
    for i in range(len(shapes)):
        shares[i] = gamma_within(shapes[i], values[i])
    return shares


@pytest.mark.parametrize("shape", [1e-3, 0.1, 0.5, 1.0, 3.0, 30.0, 1000.0])
def test_the_gamma_law_is_scipys(shape):
    values = shape * np.concatenate([np.linspace(0.0, 3.0, 40), [10.0, 100.0, 1e4]])
    assert gamma_shares(np.full(len(values), shape), values) == pytest.approx(
        gammainc(shape, values), rel=1e-9, abs=1e-12)


@QUICK
@given(load=st.floats(1e-3, 900.0), size=st.integers(1, 400), growth=st.floats(0.0, 0.02),
       peak=st.floats(1.0, 9.0), prompts=st.floats(0.0, 0.9), left=st.floats(0.0, 5.0))
def test_weights_of_the_chain_are_the_products(load, size, growth, peak, prompts, left):
    n = np.arange(1.0, size + 1.0)
    tpot = 0.01 + growth * n / size
    (ratio, full, weight, stay), empty = chain_columns(
        load, tpot, np.full(size, peak), peak, np.full(size, prompts), np.full(size, left), 2.0)
    utilization = load * tpot / n
    logs = np.cumsum(np.log(utilization) / peak)
    top = max(float(logs.max()), 0.0)
    assert weight == pytest.approx(np.exp(logs - top), rel=1e-9, abs=np.exp(-GONE))
    assert empty == pytest.approx(np.exp(-top), rel=1e-9)
    assert full == pytest.approx(prompts + (1.0 - prompts) * utilization)
    assert ratio == pytest.approx(full ** (1.0 / peak))
    assert stay == pytest.approx(2.0 * (1.0 - prompts + left * full / utilization))


def test_a_chain_that_fills_up_again_keeps_its_weights():
    """Utilisation that falls far below 1 and rises above it once more."""
    tpot = np.concatenate([np.full(60, 1e-5), np.full(60, 50.0)])
    n = np.arange(1.0, 121.0)
    logs = np.cumsum(np.log(10.0 * tpot / n))
    (_, _, weight, _), _ = chain_columns(10.0, tpot, np.ones(120), 1.0, np.zeros(120),
                                         np.zeros(120), 1.0)
    assert weight == pytest.approx(np.exp(logs - max(logs.max(), 0.0)), rel=1e-9, abs=np.exp(-GONE))


@QUICK
@given(starts=st.lists(st.floats(0.01, 2.0), min_size=1, max_size=20), none=st.floats(0.0, 0.95),
       shape=st.floats(0.05, 50.0), scale=st.floats(1e-4, 1.0), share=st.floats(0.3, 0.999))
def test_percentiles_of_a_mixture_are_where_it_reaches_them(starts, none, shape, scale, share):
    start = np.sort(np.array(starts))
    weights = np.full(len(start), 1.0 / len(start))
    times = np.array([none, shape, scale])[:, None, None]
    found = mixture_percentiles(np.array([share]), float(start.mean()), start, times,
                                NO_LIMIT.repeat(len(start)), weights, 1e-6, 200)[0]

    def reached(x):
        over = x - start
        law = none + (1.0 - none) * gammainc(shape, np.maximum(over, 0.0) / scale)
        return float(np.where(over >= 0.0, law, 0.0) @ weights)

    assert reached(found) >= share - 1e-9
    assert reached(found * (1.0 - 3e-6)) < share


def test_a_percentile_at_a_jump_is_the_jump():
    start, times = np.array([0.1, 0.2, 0.4]), np.array([1.0, 1.0, 1.0])[:, None, None]
    found = mixture_percentiles(np.array([0.3, 0.5, 0.9]), 0.2, start, times, NO_LIMIT.repeat(3),
                                np.full(3, 1.0 / 3.0), 1e-6, 60)
    assert found.tolist() == [0.1, 0.2, 0.4]


def requests():
    for name in ("chat", "rag", "moe_deepseek", "azure_conversation", "code_completion"):
        document = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
        for change in ({}, {"objective": "gpus"}):
            yield pytest.param({**document, **change, "advice": False}, id=f"{name}{len(change)}")


@pytest.mark.slow
@pytest.mark.parametrize("document", list(requests()))
def test_what_cannot_win_is_rightly_left_out(document, monkeypatch):
    """Every variant asked gives the same options."""
    catalog, request = shipped_catalog(), parse_plan(document)
    quick = make_plan(request, catalog).options
    monkeypatch.setattr(one_pool._Best, "cannot_lose_to", lambda *_: False)
    monkeypatch.setattr(two_pools._Pairing, "_cannot_win", lambda *_: False)
    assert make_plan(request, catalog).options == quick


def largest_cap(source, rate, cv2):
    """The largest batch limit that holds, from the formulas one by one; 0 where none does."""
    chain = source.chain(rate, cv2)
    if chain is None:
        return 0
    caps = source.caps[source.caps <= len(chain.n)]
    index = caps - 1
    held = chain.ratio[index] < 1.0
    tpot, ttft = source.workload.slo("tpot"), source.workload.slo("ttft")
    output, workload = source.workload.output, source.workload
    if tpot:
        answers = [(output.mean, workload.reference.gaps)]
        if output.mean > REFERENCE_TOKENS:
            answers = [(output.mean, output.gaps), (REFERENCE_TOKENS, workload.reference.gaps)]
        for tokens, gaps in answers:
            own = Chain.of(rate, tokens, chain.tpot_s, chain.influx, chain.added, gaps)
            share = own.token_share_within(tpot.limit_s)[index]
            held &= share >= tpot.percentile / 100.0 - 1e-6
    if ttft:
        wait, latency = source.prefill(rate, cv2, chain.mean_running_by_cap()[index])
        share = share_within_either(ttft.limit_s, wait, *(x[index] for x in chain.waiting()),
                                    latency, source.table.prompt_weights)
        held &= share >= ttft.percentile / 100.0 - 1e-6
    return int(caps[held][-1]) if held.any() else 0


@pytest.mark.slow
@pytest.mark.parametrize("document", list(requests()))
@pytest.mark.parametrize("cv2", [0.5, 1.0, 4.0])
def test_a_check_is_what_the_formulas_say_one_by_one(document, cv2):
    found = make_plan(parse_plan({**document, "setups": ["colocated", "chunked"]}),
                      shipped_catalog())
    seen = set()
    for option in found.sized:
        source = option.pools[0].source
        if source.slow:
            continue
        for share in (1e-6, 0.2, 0.5, 0.7, 0.8, 0.9, 0.97):
            rate = share * source.ceiling
            verdict = source.check(rate, cv2)
            assert verdict.cap == largest_cap(source, rate, cv2), (option.setup, share)
            seen.add(verdict.ok)
    assert seen in ({True, False}, set())


def ends(source, chain, rate, cv2, cap):
    """Whether whole requests are in time under a batch limit: at the quickest token time that its
    share of the tokens keeps, from the formulas one by one. None where it is too close to say."""
    target, workload = source.workload.slo("e2e"), source.workload
    q, index = target.percentile / 100.0, np.array([cap - 1])
    tokens = workload.output.quantile(q) - 1.0
    times = chain.times_of(constant(tokens + 1.0).gaps)
    shares = chain.written()[:cap].copy()
    shares[-1] *= 1.0 + chain.tail()[cap - 1]
    shares = np.append(shares / shares.sum(), np.zeros(len(chain.n) - cap))
    grid = np.linspace(times.step_s[0], target.limit_s / tokens, 20_000)
    first, enough = workload.first_level(target), workload.token_level(target)
    kept = np.array([tokens_within(times, np.array([x])) @ shares for x in grid])[:, 0] >= enough
    if not kept.any():
        return False
    wait, latency = source.prefill(rate, cv2, chain.mean_running_by_cap()[index])
    places = [x[index] for x in chain.waiting()]
    within = [float(share_within_either(target.limit_s - x * tokens, wait, *places, latency,
                                        source.table.prompt_weights)[0])
              for x in grid[max(int(np.argmax(kept)) - 1, 0):][:2]]
    return None if min(within) < first <= max(within) else min(within) >= first


@pytest.mark.slow
@pytest.mark.parametrize("name", ["code_completion", "summarization"])
def test_whole_requests_end_as_the_formulas_say_one_by_one(name):
    document = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    found = make_plan(parse_plan({**document, "setups": ["colocated", "chunked"], "advice": False}),
                      shipped_catalog())
    seen = set()
    for source in (option.pools[0].source for option in found.sized):
        for share in (0.3, 0.6, 0.8):
            rate = share * source.ceiling
            chain = source.chain(rate, 1.0)
            caps = source.caps[source.caps <= len(chain.n)] if chain else source.caps[:0]
            caps = [cap for cap in caps if chain.ratio[cap - 1] < 1.0]
            for cap in caps[::9]:
                expected = ends(source, chain, rate, 1.0, int(cap))
                late = source._late(source.workload.slo("e2e"), chain, rate, 1.0, int(cap))
                assert expected in (None, not late), (source.setup, share, cap)
                seen.add(late)
    assert seen == {True, False}


def decode_cap(source, rate, cv2):
    """The largest batch limit of a decode pool that holds, from the formulas one by one, and what
    fails where none does."""
    chain, index = source.chain(rate, cv2), source.caps - 1
    good = (chain.ratio[index] < 1.0) & (chain.waiting()[0][index] <= source.admission_share)
    failed = "throughput"
    for metric, target in source.targets:
        if target:
            share = chain.token_share_within(target.limit_s)[index]
            held = share >= target.percentile / 100.0 - 1e-6
            failed = metric if not (good & held).any() and held.sum() < good.sum() else failed
            good = good & held
    return (int(source.caps[good][-1]), "") if good.any() else (0, failed)


@pytest.mark.slow
@pytest.mark.parametrize("slo", [{"tpot_ms": 40}, {"tpot_ms": 25, "itl_ms": 40}, {"ttft_ms": 900},
                                 {"tpot_ms": 3}])
@pytest.mark.parametrize("cv2", [0.5, 1.0, 4.0])
def test_a_check_of_a_decode_pool_is_what_the_formulas_say(slo, cv2):
    document = json.loads((EXAMPLES / "chat.json").read_text(encoding="utf-8"))
    found = make_plan(parse_plan({**document, "setups": ["disaggregated"]}), shipped_catalog())
    workload = parse_plan({**document, "slo": slo}).workload
    table = replace(found.sized[0].pools[1].table, workload=workload)
    source = DecodePool(table)
    for share in (1e-6, 0.2, 0.5, 0.7, 0.8, 0.9, 0.97, 1.01, 1.5):
        rate = share * source.ceiling
        verdict = source.check(rate, cv2)
        assert (verdict.cap, verdict.failed) == decode_cap(source, rate, cv2), share


@entry
def failed_row(held, tpot, ttft):
    return first_failure(held, (True, tpot, ttft))


@QUICK
@given(held=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1,
                     max_size=6).filter(lambda rows: not any(all(r) for r in rows)),
       tpot=st.booleans(), ttft=st.booleans())
def test_what_fails_is_what_some_limit_would_hold_without(held, tpot, ttft):
    rows = np.array(held).T.copy()
    rows[1], rows[2] = rows[1] | (not tpot), rows[2] | (not ttft)
    asked = [row for row, wanted in enumerate((True, tpot, ttft)) if wanted]
    lonely = [row for row in (1, 2, 0) if row in asked and len(asked) > 1
              and rows[[r for r in asked if r != row]].all(axis=0).any()]
    expected = lonely[0] if lonely else min(asked, key=lambda row: int(rows[row].sum()))
    assert failed_row(rows, tpot, ttft) == expected


@pytest.mark.parametrize("spread_s", [0.0, 0.002])
def test_halving_closes_in_on_where_a_mixture_reaches_a_share(spread_s):
    start, weights = np.array([0.01, 0.02, 0.5]), np.array([0.6, 0.4, 0.0])
    none, shape, scale, most = 0.3, 2.0, 0.004, np.array([np.inf, 0.03, 0.0])

    def share(time_s):
        over = time_s - start
        begun = ndtr(over / spread_s) if spread_s else over >= 0.0
        more = gammainc(shape, np.maximum(over, 0.0) / scale)
        return weights @ np.where(over >= most, 1.0, none * begun + (1.0 - none) * more)

    shares = np.array([0.2, 0.5, 0.9, 0.999])
    rows = [np.tile(row, (4, 1)) for row in (weights, start, np.full(3, spread_s), most)]
    times = np.stack([np.full((4, 3), value) for value in (none, shape, scale)])
    tries = halvings(np.full(4, 0.08), shares, rows[0], rows[1], rows[2], times, rows[3], 25)
    for at, wanted in zip(tries, shares, strict=True):
        assert list(np.abs(np.diff(at))) == pytest.approx(0.04 / 2.0 ** np.arange(1, 25))
        assert [share(x) < wanted for x in at[:-1]] == list(np.diff(at) > 0.0)
        assert share(at[-1] - 1e-8) <= wanted <= share(at[-1] + 1e-8)


def test_decodes_that_prompts_would_fill_do_not_close_larger_batches():
    """Short prompts, many experts: one prompt in a step fetches most, several share them."""
    request = {"model": "gemma-4-26b-a4b", "gpus": ["h100-sxm-80gb"], "setups": ["chunked"],
               "workload": {"requests_per_second": 150, "prompt_tokens": 40, "output_tokens": 60},
               "slo": {"ttft_ms": 500, "tpot_ms": 60}, "limits": {"max_tensor_parallel": 1},
               "advice": False}
    source = make_plan(parse_plan(request), shipped_catalog()).sized[0].pools[0].source
    mean = source.workload.new_prompt.mean
    closed = 1.0 / (source.extra_per_token[0] * mean)
    assert closed < 150.0
    rates = np.geomspace(0.5 * closed, 10.0 * closed, 80)
    held = [source.check(rate, 1.0).ok for rate in rates]
    assert held == sorted(held, reverse=True)
    assert rates[held.index(False)] > 2.0 * closed
    chain = source.chain(1.5 * closed, 1.0)
    first = int(np.argmax(source.extra_per_token * mean * 1.5 * closed < 1.0))
    assert first > 0
    assert chain.tpot_s[:first] == pytest.approx(chain.tpot_s[first])


def test_without_a_place_for_machine_code_it_is_compiled_all_the_same(monkeypatch):
    def nowhere(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr("planner.compiled.njit", nowhere)
    assert entry(lambda x: x + 1.0)(2.0) == 3.0


def test_warming_up_compiles_every_loop():
    warm_up()
    assert uncompiled() == []


@pytest.mark.slow
@pytest.mark.parametrize("document", list(requests()))
@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_no_rate_above_the_ceiling_holds(document, cv):
    workload = {**document["workload"], "arrival_cv": cv}
    found = make_plan(parse_plan({**document, "workload": workload}), shipped_catalog())
    asked = 0
    for pool in (p for option in found.sized for p in option.pools):
        ceiling = pool.source.ceiling * (1.0 + 1e-6)
        asked += 1
        assert not pool.source.check(ceiling, cv**2).ok, (pool.role, pool.deployment.layout)
    assert asked or not found.options
