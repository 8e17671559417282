"""Users who wait for their answers: the rate that they send at a fleet by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.api.simulation_schema import SimulationSchema
from planner.api.simulation_service import job_of_fleet
from planner.catalog.shipped import shipped_catalog
from planner.simulations.tasks import document_of, run
from planner.simulations.users import TOLERANCE

BODY: dict[str, Any] = {
    "fleet": {"model": "llama-3.1-8b", "setup": "chunked",
              "pools": [{"gpu": "h100-sxm-80gb", "replicas": 2}]},
    "workload": {"concurrent_users": 200, "think_time_s": 5, "prompt_tokens": 1000,
                 "output_tokens": 200},
    "slo": {"ttft_ms": 1000, "tpot_ms": 40}, "requests": 5000}


def simulated(**changes: Any) -> dict[str, Any]:
    catalog = shipped_catalog()
    job = job_of_fleet(SimulationSchema().load({**BODY, **changes}), catalog)
    seen: list[float] = []
    found = run(job, catalog, None, lambda share: seen.append(share) or True)
    assert seen == sorted(seen), "progress goes on, whatever the rounds"
    assert seen[-1] <= 0.85
    return document_of(found, job)


def users(number: float, think_s: float) -> dict[str, Any]:
    return {**BODY["workload"], "concurrent_users": number, "think_time_s": think_s}


@pytest.mark.parametrize(("number", "think_s", "changes"), [
    (200, 5, {}), (20, 0, {}), (3000, 5, {}), (3000, 0, {}), (2, 600, {"requests": 300}),
    (200, 5, {"arrivals": {"pattern": "on_off", "on_s": 5, "off_s": 5}}),
    (400, 5, {"failures": [{"at_s": 10, "duration_s": 60, "replica": 1}]})])
def test_the_rate_is_that_of_its_own_answers(number: float, think_s: float,
                                             changes: dict[str, Any]) -> None:
    """Little's law, also of users that the fleet cannot keep up with."""
    body = simulated(workload=users(number, think_s), **changes)
    sent = number / (think_s + body["observed"]["e2e_ms"]["mean"] / 1000)
    assert body["requests_per_second"] == pytest.approx(sent, rel=1.01 * TOLERANCE)


def test_a_multiple_of_the_rate_is_as_many_more_users() -> None:
    more = simulated(rate_scale=2)
    assert more["requests_per_second"] == pytest.approx(
        simulated(workload=users(400, 5))["requests_per_second"], rel=2 * TOLERANCE)


def test_more_users_send_more_and_longer_pauses_less() -> None:
    rates = [simulated(workload=users(n, z))["requests_per_second"]
             for n, z in ((100, 5), (200, 5), (200, 1))]
    assert rates == sorted(rates)


def test_a_stated_rate_stays() -> None:
    stated = {"requests_per_second": 7.5, "prompt_tokens": 1000, "output_tokens": 200}
    body = simulated(workload=stated, rate_scale=2, requests=300)
    assert body["requests_per_second"] == pytest.approx(15.0)
