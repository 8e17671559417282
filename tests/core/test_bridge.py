"""A bridge: its steps sum to the change whatever is planned between, in one fixed order."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.bridge import CATALOG, PARTS, Figures, Step, bridge, differing
from planner.requests import Limits, PlanRequest, Pricing
from planner.workload import Slo, Workload, constant, from_mean_p95

WORKLOAD = Workload(12.0, from_mean_p95(2000, 6000), constant(300), slos=(Slo("ttft", 1.0),))
NOT_PLANNED = ("workload", "name", "advice", "stated", "assumptions")
"""Fields that no part has: the workload comes by its own, the others change no option."""
START = PlanRequest("llama-3.1-70b", WORKLOAD, ("h100-sxm-80gb",))
END = replace(START, model="llama-3.1-8b", gpus=("l40s",), setups=("chunked",), engine="sglang",
              pricing=Pricing("spot"), limits=Limits(spare_replicas=1), objective="gpus",
              workload=Workload(24.0, constant(3000), constant(300), prefix_hit=0.5,
                                slos=(Slo("ttft", 0.5),)))


def test_every_field_of_a_request_belongs_to_one_part() -> None:
    workload = [f for part in PARTS for f in part.workload]
    request = [f for part in PARTS for f in part.request]
    assert sorted(workload) == sorted(f.name for f in fields(Workload))
    assert sorted([*request, *NOT_PLANNED]) == sorted(
        f.name for f in fields(PlanRequest))


def test_parts_are_found_by_value() -> None:
    same = replace(START, workload=replace(WORKLOAD, prompt=from_mean_p95(2000, 6000)))
    assert differing(START, same) == []
    assert [p.name for p in differing(START, END)] == [p.name for p in PARTS]


def counted(request: PlanRequest) -> Figures:
    """GPUs that depend on every part in a product, so that the order matters."""
    asked = request.workload
    work = asked.requests_per_s * asked.prompt.mean / 1000 * (1 - asked.prefix_hit)
    size = 3 if request.model == "llama-3.1-70b" else 1
    gpus = round(work * size / asked.slos[0].limit_s) + request.limits.spare_replicas
    usd = gpus * (1.0 if request.pricing.commitment == "spot" else 3.0)
    return Figures(gpus, usd, usd * 730)


def assert_it_sums(steps: list[Step], first: Figures, last: Figures) -> None:
    assert steps[0].before == first
    assert steps[-1].after == last
    for one, other in itertools.pairwise(steps):
        assert one.after == other.before
    assert sum(s.after.gpus - s.before.gpus for s in steps) == last.gpus - first.gpus


def test_one_step_a_part_in_order() -> None:
    steps = bridge(START, END, counted, counted(START), counted(END))
    assert [s.parts for s in steps] == [(p.name,) for p in PARTS]
    assert_it_sums(steps, counted(START), counted(END))
    assert (steps[0].before.gpus, steps[0].after.gpus) == (72, 144)  # the rate doubles


def test_the_same_request_needs_no_step() -> None:
    assert bridge(START, START, counted, counted(START), counted(START)) == []


def test_a_request_without_a_plan_shares_the_next_step() -> None:
    def plan(request: PlanRequest) -> Figures | None:
        between = request.workload.requests_per_s == 24 and request.model == "llama-3.1-70b"
        return None if between else counted(request)

    steps = bridge(START, END, plan, counted(START), counted(END))
    assert steps[0].parts == ("rate", "lengths", "prefix_cache", "slo", "pricing", "model")
    assert_it_sums(steps, counted(START), counted(END))


def test_what_the_catalog_changed_is_a_step_of_its_own() -> None:
    first, last = Figures(100, 1.0, 2.0), Figures(50, 1.0, 2.0)
    end = replace(START, objective="gpus")
    steps = bridge(START, end, counted, first, last)
    assert [s.parts for s in steps] == [(CATALOG,), ("objective",), (CATALOG,)]
    assert_it_sums(steps, first, last)


@pytest.mark.parametrize("lost", [START, END])
def test_a_plan_that_is_no_longer_possible_is_one_step(lost: PlanRequest) -> None:
    def plan(request: PlanRequest) -> Figures | None:
        return None if request is lost else counted(request)

    steps = bridge(START, END, plan, counted(START), counted(END))
    assert [s.parts for s in steps] == [(*(p.name for p in PARTS), CATALOG)]
    assert_it_sums(steps, counted(START), counted(END))


def test_an_unpriced_step_is_skipped_where_both_ends_have_a_price() -> None:
    def plan(request: PlanRequest) -> Figures:
        found = counted(request)
        bare = request.gpus == ("l40s",) and request.engine == "vllm"
        return Figures(found.gpus, None, None) if bare else found

    steps = bridge(START, END, plan, counted(START), counted(END))
    assert ("gpus", "efficiency") in [s.parts for s in steps]
    assert all(s.after.usd_per_hour is not None for s in steps)


@given(st.lists(st.one_of(st.none(), st.integers(1, 500)), min_size=13, max_size=13),
       st.integers(1, 500), st.integers(1, 500))
def test_whatever_is_planned_the_steps_sum(plans: list[int | None], first: int, last: int) -> None:
    answers = iter(plans)

    def plan(_: PlanRequest) -> Figures | None:
        gpus = next(answers, 7)
        return None if gpus is None else Figures(gpus, 2.0 * gpus, 1460.0 * gpus)

    ends = (Figures(first, 2.0 * first, 1460.0 * first), Figures(last, 2.0 * last, 1460.0 * last))
    steps = bridge(START, END, plan, *ends)
    assert_it_sums(steps, *ends)
    assert [p for s in steps for p in s.parts if p != CATALOG] == [p.name for p in PARTS]
