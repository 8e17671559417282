"""First tokens of plans near saturation, where most of the wait is for a place in the batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.api.plan_schema import parse_plan
from planner.catalog.shipped import shipped_catalog
from planner.planning import gather
from planner.search import search
from planner.simulator import SimulationOptions, fleet_of, simulate, synthetic
from planner.sizing import share

pytestmark = pytest.mark.slow
OFFLINE = Path(__file__).parents[2] / "examples" / "offline_batch.json"
RUNS, REQUESTS = 4, 60_000


@pytest.mark.parametrize(("setup", "gpu", "weights"), [
    ("chunked", "a100-sxm-80gb", "fp8"), ("colocated", "h100-sxm-80gb", "int4")])
def test_first_tokens_near_saturation_are_not_far_too_early(setup, gpu, weights):
    """At 93 % of what they carry, one replica under its share of the arrivals."""
    document = json.loads(OFFLINE.read_text(encoding="utf-8"))
    request = parse_plan({**document, "setups": [setup], "gpus": [gpu],
                          "precisions": [{"weights": weights, "kv": "fp8"}]})
    resources, _ = gather(request, shipped_catalog())
    option = search(request, resources).choices[0].sized(request)
    pool = option.pools[0]
    rate, (_, cv2) = 0.93 * pool.capacity_rps, share(request, pool.replicas)
    promised = pool.source.latencies(rate, cv2, pool.batch_size)
    assert promised is not None
    fleet = fleet_of(option, request.workload.slos)
    fleet = replace(fleet, pools=(replace(fleet.pools[0], replicas=1),))
    workload = replace(request.workload, requests_per_s=rate, arrival_cv=cv2**0.5)
    runs = [simulate(fleet, synthetic(workload, REQUESTS, seed=seed), SimulationOptions(seed=seed)
                     ).figure_s("ttft") for seed in range(RUNS)]
    for figure in ("mean", "p50", "p90"):
        seen = float(np.mean([run[figure] for run in runs]))
        assert 0.85 < promised.ttft_s[figure] / seen < 1.25, figure
