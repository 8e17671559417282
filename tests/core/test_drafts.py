"""Speculative decoding: how many steps answers take, and what users see of them (docs/formulas.md
2.12 and 4.6), against its limits and simulations."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from core_helpers import plan
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.arrivals import Influx
from planner.drafts import Drafts, accepted_tokens, pace_at, step_moments
from planner.loops.luck import LUCK_SHARES, LUCK_SWINGS, mean_of_luck
from planner.queueing import Chain, Outputs
from planner.requests import Speculative
from planner.simulator import fleet_of, simulate, synthetic
from planner.stalls import Stalls
from planner.workload import Gaps, Workload, constant, empirical, from_mean_p95

LEVELS = (50.0, 90.0, 95.0, 99.0)
SETUPS = ("colocated", "chunked", "disaggregated", "static")
STEP_S, STOP_S = 0.01, 0.05


def by_hand(drafted: int, acceptance: float, tokens: int) -> tuple[float, float]:
    """Mean and variance of the steps that write some tokens, over all that may happen."""
    chances = [acceptance ** (k - 1) * (1.0 - acceptance) for k in range(1, drafted + 1)]
    chances.append(acceptance**drafted)
    law: dict[int, float] = {}
    for written in product(range(1, drafted + 2), repeat=tokens):
        chance = math.prod(chances[k - 1] for k in written)
        steps = int(np.searchsorted(np.cumsum(written), tokens)) + 1
        law[steps] = law.get(steps, 0.0) + chance
    mean = sum(n * p for n, p in law.items())
    return mean, sum(n * n * p for n, p in law.items()) - mean**2


@pytest.mark.parametrize(("drafted", "acceptance"), [(1, 0.3), (2, 0.7), (3, 0.9), (4, 0.5)])
def test_steps_of_an_answer_by_hand(drafted: int, acceptance: float) -> None:
    tokens = np.arange(1.0, 6.0)
    found = step_moments(Speculative(drafted, acceptance), tokens)
    wanted = [by_hand(drafted, acceptance, int(t)) for t in tokens]
    assert np.transpose(found) == pytest.approx(np.array(wanted), abs=1e-12)


def test_nothing_accepted_is_a_token_a_step_and_all_accepted_a_draft_a_step() -> None:
    tokens = np.array([0.0, 1.0, 2.0, 5.0, 6.0, 999.0, 4001.0, 100_000.0])
    for speculative, steps in ((Speculative(4, 0.0), tokens),
                               (Speculative(4, 1.0), np.ceil(tokens / 5.0))):
        mean, variance = step_moments(speculative, tokens)
        assert mean == pytest.approx(steps)
        assert variance == pytest.approx(np.zeros(8), abs=1e-6)


@given(drafted=st.integers(1, 12), acceptance=st.floats(0.0, 1.0))
@settings(max_examples=50, derandomize=True, deadline=None)
def test_longer_answers_take_more_steps_and_no_fewer_than_the_mean_says(
        drafted: int, acceptance: float) -> None:
    speculative, tokens = Speculative(drafted, acceptance), np.arange(1.0, 3000.0)
    steps, variance = step_moments(speculative, tokens)
    assert (np.diff(steps) >= -1e-9).all()
    assert (variance >= 0.0).all()
    assert (steps >= tokens / accepted_tokens(speculative) - 1e-9).all()
    assert (steps <= tokens + 1e-9).all()
    assert steps[-1] - steps[-drafted - 2] == pytest.approx(
        (drafted + 1.0) / accepted_tokens(speculative), rel=1e-4)


def workload(answers: Any) -> Workload:
    return Workload(1.0, constant(500), answers)


def test_without_speculation_a_step_is_a_token() -> None:
    answers = from_mean_p95(200, 500)
    drafts = Drafts(None, workload(answers))
    assert (drafts.accepted, drafts.quickest, drafts.outputs) == (1.0, 1.0, answers.gaps.mean)
    assert drafts.own is answers.gaps
    assert drafts.work is answers
    assert drafts.own.rows[3:].tolist() == [[1.0]]


def test_acceptance_of_nothing_is_the_law_without_speculation() -> None:
    """Each step then writes one token; only the step itself is longer, as it verifies more."""
    answers = from_mean_p95(50, 150)
    drafts, none = (Drafts(s, workload(answers)) for s in (Speculative(4, 0.0), None))
    assert drafts.accepted == pytest.approx(1.0)
    assert drafts.own.paces == pytest.approx(np.ones(len(LUCK_SHARES)))
    assert (drafts.outputs, drafts.reference_outputs) == pytest.approx(
        (none.outputs, none.reference_outputs))
    assert drafts.work.mean == pytest.approx(none.work.mean)


def test_paces_are_those_of_answers_drawn_by_chance() -> None:
    speculative, answers = Speculative(4, 0.7), empirical([41, 81, 321], [0.3, 0.4, 0.3])
    drafts, rng = Drafts(speculative, workload(answers)), np.random.default_rng(1)
    drawn = []
    for tokens, share in zip(answers.tokens, answers.weights, strict=True):
        written = np.minimum(rng.geometric(0.3, (int(20_000 * share), int(tokens) - 1)), 5)
        steps = (written.cumsum(axis=1) < tokens - 1.0).sum(axis=1) + 1
        drawn.append(steps / (tokens - 1.0) * drafts.accepted)
    seen = np.concatenate(drawn)
    assert mean_of_luck(drafts.own.paces) == pytest.approx(seen.mean(), rel=0.01)
    edges = np.quantile(seen, [0.5, 0.9, 0.95, 0.99])
    found = [pace_at(drafts.own, q) for q in (0.5, 0.9, 0.95, 0.99)]
    assert found == pytest.approx(edges, rel=0.07)


def test_the_parts_of_a_normal_law() -> None:
    assert LUCK_SHARES.sum() == pytest.approx(1.0)
    assert pytest.approx(0.0, abs=1e-12) == LUCK_SHARES @ LUCK_SWINGS
    assert pytest.approx(1.0, abs=0.04) == LUCK_SHARES @ LUCK_SWINGS**2


@given(rate=st.floats(0.01, 8.0), output=st.integers(2, 300), accepted=st.integers(1, 6),
       apart=st.booleans(), most=st.sampled_from([math.inf, 0.08]))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_gaps_of_steps_that_write_several_are_those_of_as_many_steps(
        rate: float, output: int, accepted: int, apart: bool, most: float) -> None:
    """A token at a time, and ``accepted`` at a time in answers of as many more."""
    laws = []
    for each in (1, accepted):
        token_s = np.array([STEP_S / each])
        stalls = Stalls(rate, rate * STOP_S, STOP_S, STOP_S**2, 0.0, STOP_S, 1.0, 0.0,
                        most_s=most / each, least_s=STOP_S, apart=apart)
        answer = (output - 1.0) * each + 1.0
        laws.append(Chain.of(rate, answer, token_s / (1.0 - rate * STOP_S), Influx(),
                             stalls.added(token_s), Gaps.of_length(answer),
                             Outputs(float(each), output - 1.0)))
    plain, drafted = (law.gap_figures(1, LEVELS) for law in laws)
    assert [drafted[0], *drafted[1]] == pytest.approx([plain[0], *plain[1]], rel=1e-3)
    shares = [float(law.gaps_within(1.2 * STEP_S)[0]) for law in laws]
    assert shares[1] == pytest.approx(shares[0])


@pytest.mark.parametrize("setup", SETUPS)
def test_the_gap_is_a_step_and_a_token_its_part(setup: str) -> None:
    """Of long answers, where luck evens out, and with hardly any prompt that stops them."""
    made = plan(0.02, 50, 3000, setups=[setup], advice=False,
                speculative={"draft_tokens": 3, "acceptance": 0.8},
                slo={"ttft_ms": 20_000, "percentile": 90})
    seen, table = made.sized[0].latencies, made.sized[0].pools[-1].table
    alone = float(table.step_s[0])
    if setup == "disaggregated":
        alone *= table.deployment.profile.disaggregated_scale
    assert seen.itl_s["p50"] == pytest.approx(alone, rel=1e-6)
    accepted = accepted_tokens(Speculative(3, 0.8))
    assert seen.tpot_s["mean"] == pytest.approx(seen.itl_s["mean"] / accepted, rel=0.01)


@pytest.mark.parametrize("setup", SETUPS)
def test_no_target_below_a_step_is_kept(setup: str) -> None:
    """A token's part of a step would keep it."""
    ask: dict[str, Any] = {"setups": [setup], "advice": False, "limits": {"max_gpus": 64}}
    speculative = {"draft_tokens": 4, "acceptance": 0.8}
    made = plan(2.0, 500, 200, **ask, speculative=speculative)
    step_ms = 1e3 * made.sized[0].latencies.itl_s["p50"]
    late = plan(2.0, 500, 200, **ask, speculative=speculative,
                slo={"itl_ms": 0.3 * step_ms, "percentile": 90})
    assert not late.sized
    assert plan(2.0, 500, 200, **ask, speculative=speculative,
                slo={"itl_ms": 4.0 * step_ms, "percentile": 90}).sized


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("slo", [{"tpot_ms": 7}, {"ttft_ms": 4000, "e2e_ms": 12_000}],
                         ids=lambda s: "-".join(s))
def test_longer_answers_never_take_fewer_gpus(setup: str, slo: dict[str, Any]) -> None:
    gpus = []
    for output in (1, 2, 3, 5, 12, 40, 95, 97, 110, 250, 800):
        made = plan(60.0, 500, output, setups=[setup], advice=False, objective="gpus",
                    speculative={"draft_tokens": 5, "acceptance": 0.8},
                    slo={**slo, "percentile": 95}, limits={"max_gpus": 20_000})
        gpus.append(made.options[0]["gpus"] if made.options else math.inf)
    assert gpus == sorted(gpus)
    assert gpus[0] < math.inf


@pytest.mark.parametrize("setup", ["colocated", "chunked", "disaggregated"])
@pytest.mark.parametrize(("output", "slo"), [
    (300, {"ttft_ms": 4000, "itl_ms": 40, "percentile": 90}),
    (20, {"ttft_ms": 4000, "itl_ms": 80, "percentile": 95}),
    (120, {"ttft_ms": 4000, "tpot_ms": 8, "percentile": 95}),
    ({"mean": 150, "p95": 400}, {"ttft_ms": 4000, "tpot_ms": 9, "itl_ms": 60, "percentile": 90})])
def test_targets_with_drafts_are_kept_in_a_simulation(
        setup: str, output: Any, slo: dict[str, Any]) -> None:
    made = plan(10.0, 1000, 100, setups=[setup], advice=False, slo=slo,
                workload={"output_tokens": output},
                speculative={"draft_tokens": 4, "acceptance": 0.7},
                limits={"max_gpus": 500, "spare_replicas": 0})
    request, sized = made.request, made.sized[0]
    for target in request.workload.slos:
        promised = sized.latencies.of(target.metric)[f"p{target.percentile:g}"]
        assert promised <= target.limit_s * 1.0001
    fleet = fleet_of(sized, request.workload.slos, speculative=request.speculative)
    seen = simulate(fleet, synthetic(request.workload, 30_000, 0)).attainment()
    for target in request.workload.slos:
        held = seen[target.metric]
        assert held is not None
        assert held >= target.percentile / 100.0 - 0.01, target


def test_a_step_holds_prompts_for_several_tokens() -> None:
    added = Stalls(2.0, 0.1, STOP_S, STOP_S**2, 0.0, STOP_S, 1.0, 0.5, most_s=0.1).added(
        np.array([STEP_S]))
    steps = added.by_output(3.0)
    whole = Stalls(2.0, 0.1, STOP_S, STOP_S**2, 0.0, STOP_S, 1.0, 0.5, most_s=0.3).added(
        np.array([3.0 * STEP_S]))
    assert steps.columns == pytest.approx(whole.columns)
    assert steps.step_s == pytest.approx(whole.step_s)
    assert steps.most_s == pytest.approx(whole.most_s)
    assert added.by_output(1.0) is added
