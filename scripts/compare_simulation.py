"""What plans promise against what a simulation of every request shows.

Plans all examples and a grid of workloads, serves each option's own arrivals on the option's own
fleet with the router that plans assume (random), and compares TTFT and TPOT. Prints the errors as
markdown tables: promised over observed, minus one; negative is optimistic.

    python -m scripts.compare_simulation            # examples and grid
    python -m scripts.compare_simulation --grid 40  # fewer cases
    python -m scripts.compare_simulation --grid 0 --no-examples --wide 130  # at random
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.api.plan_schema import parse_plan
from planner.catalog.shipped import shipped_catalog
from planner.planning import gather
from planner.requests import PlanRequest
from planner.search import search
from planner.simulator import SimulationOptions, fleet_of, simulate, synthetic
from planner.sizing import Sized

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FIGURES = tuple(f"{metric} {level}" for metric in ("ttft", "tpot")
                for level in ("mean", "p50", "p90", "p99"))
REQUESTS = 12_000
DOUBTFUL = 0.15
"""How far a promise may be below a single simulation to be believed too low without others."""
LONG_RUNS = 5
MODELS = (("llama-3.1-8b", "bf16"), ("llama-3.1-70b", "fp8"), ("qwen3-30b-a3b", "bf16"),
          ("mixtral-8x7b-v0.1", "bf16"))
SHAPES = ((1000, 3000, 200, 500), (1000, 1000, 200, 200), (3000, 6000, 150, 300),
          (300, 900, 800, 2000))
"""Mean and p95 of prompts and answers [token]."""


@dataclass(frozen=True)
class Seen:
    """One option: its case, set-up, load and error of each figure."""

    case: str
    setup: str
    load: float
    errors: dict[str, float]


def document(model: str, weights: str, gpu: str, shape: tuple[float, ...], cv: float,
             load: float) -> dict[str, Any]:
    """A plan request of the grid; the load is the utilisation the plan may reach."""
    prompt, prompt_p95, output, output_p95 = shape
    slow = 3.0 if "70b" in model or prompt >= 3000 else 1.5
    return {"model": model, "gpus": [gpu], "precisions": [{"weights": weights}],
            "workload": {"requests_per_second": 20.0, "arrival_cv": cv,
                         "prompt_tokens": {"mean": prompt, "p95": prompt_p95},
                         "output_tokens": {"mean": output, "p95": output_p95}},
            "slo": {"ttft_ms": 1000 * slow, "tpot_ms": 60},
            "limits": {"target_utilization": load}}


def grid(most: int) -> Iterator[tuple[str, PlanRequest]]:
    """Up to ``most`` plan requests spread evenly over all combinations."""
    every = list(itertools.product(MODELS, ("h100-sxm-80gb", "a100-sxm-80gb"), SHAPES,
                                   (1.0, 2.0), (0.55, 0.7, 0.85)))
    for place in np.unique(np.linspace(0, len(every) - 1, most).astype(int)):
        (model, weights), gpu, shape, cv, load = every[place]
        if gpu.startswith("a100") and weights == "fp8":
            weights = "bf16"
        name = f"{model} {gpu} {shape[0]}/{shape[2]} CV {cv:g} load {load:g}"
        yield name, parse_plan(document(model, weights, gpu, shape, cv, load))


WIDE_MODELS = (*MODELS, ("llama-3.1-8b", "fp8"), ("qwen3-32b", "fp8"), ("gpt-oss-120b", ""),
               ("gemma-3-27b", "bf16"))
WIDE_GPUS = ("h100-sxm-80gb", "a100-sxm-80gb", "h200-sxm-141gb", "l40s", "mi300x")


def wide(most: int, seed: int) -> Iterator[tuple[str, PlanRequest]]:
    """Plan requests at random: answers of 8 to 1,500 tokens, prompts of 150 to 12,000, constant to
    widely spread, CV 1 to 3, with and without prefix hits, any percentile, utilisation 50 to 85 %.
    """
    draw = random.Random(seed)
    for place in range(most):
        (model, weights), gpu = draw.choice(WIDE_MODELS), draw.choice(WIDE_GPUS)
        prompt, output = (int(math.exp(draw.uniform(math.log(a), math.log(b))))
                          for a, b in ((150, 12_000), (8, 1500)))
        wide_prompt, wide_output = draw.choice((1, 2, 3)), draw.choice((1, 2, 3))
        cv, hit = draw.choice((1.0, 1.0, 2.0, 2.0, 3.0)), draw.choice((0.0, 0.0, 0.0, 0.5))
        asked = document(model, weights, gpu, (prompt, prompt * wide_prompt, output,
                                               output * wide_output), cv, draw.uniform(0.5, 0.85))
        asked["workload"] |= {"requests_per_second": math.exp(draw.uniform(math.log(2),
                                                                           math.log(60))),
                              "prefix_cache_hit_rate": hit}
        asked["slo"] = {"percentile": draw.choice((90, 90, 95, 99)),
                        "ttft_ms": round(700 * draw.uniform(0.7, 4.0) * (1 + prompt / 2000))}
        if draw.random() < 0.85:
            asked["slo"]["tpot_ms"] = draw.choice((30, 50, 80, 120))
        asked["limits"]["max_gpus"] = 2000
        if not weights:
            del asked["precisions"]
        elif gpu.startswith("a100") and weights == "fp8":
            asked["precisions"] = [{"weights": "bf16"}]
        name = f"{place} {model} {gpu} {prompt}x{wide_prompt}/{output}x{wide_output} CV {cv:g}"
        yield name + f" hit {hit:g}", parse_plan(asked)


def examples() -> Iterator[tuple[str, PlanRequest]]:
    """The plan requests in ``examples/``."""
    for file in sorted(EXAMPLES.glob("*.json")):
        asked = json.loads(file.read_text(encoding="utf-8"))
        if "workload" in asked:  # a budget has several
            yield file.stem, parse_plan(asked)


def compare(name: str, request: PlanRequest) -> Iterator[Seen]:
    """Every option of a plan against its simulation."""
    catalog = shipped_catalog()
    resources, _ = gather(request, catalog)
    for choice in search(request, resources).choices:
        yield observe(name, request, choice.sized(request))


def observe(name: str, request: PlanRequest, option: Sized) -> Seen:
    """One option against simulations of its own workload: a short one, and where that looks more
    than :data:`DOUBTFUL` off several long ones in its place, as bursts make one p99 no measure."""
    promised = {"ttft": option.latencies.ttft_s, "tpot": option.latencies.tpot_s}
    pool = max(option.pools, key=lambda p: p.rate_per_s / p.replicas / p.capacity_rps)
    errors: dict[str, float] = {}
    for runs, length in ((1, 1), (LONG_RUNS, 3)):
        seen = observed(request, option, runs, length)
        errors = {figure: promised[metric][level] / value - 1.0
                  for figure, value in seen.items() if value
                  for metric, level in (figure.split(),)}
        if min(errors.values()) >= -DOUBTFUL:
            break
    return Seen(name, option.setup, pool.rate_per_s / pool.replicas / pool.capacity_rps, errors)


def observed(request: PlanRequest, option: Sized, runs: int, length: int) -> dict[str, float]:
    """Figures [s] of an option's users, the mean of ``runs`` simulations ``length`` times as long
    as the last replica and slow queues need."""
    fleet = fleet_of(option, request.workload.slos, speculative=request.speculative)
    replicas = max(p.replicas for p in fleet.pools)
    count = int(min(length * max(REQUESTS, 1500 * replicas), 200_000))
    found = [simulate(fleet, synthetic(request.workload, count, seed=11 + run),
                      SimulationOptions(seed=5 + run)) for run in range(runs)]
    return {figure: sum(each.figure_s(metric)[level] for each in found) / runs
            for figure in FIGURES for metric, level in (figure.split(),)}


def table(rows: list[Seen]) -> Iterator[str]:
    """Errors by set-up: median of the absolute errors, worst low, worst high, share over 10 %."""
    by: dict[str, list[Seen]] = defaultdict(list)
    for row in rows:
        by[row.setup].append(row)
        by["all"].append(row)
        if " CV " in row.case:
            by["all, Poisson" if " CV 1 " in row.case else "all, bursts"].append(row)
    yield ("| set-up | figure | n | median error | 5th | median signed | 95th | lowest "
           "| more than 25 % low |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for setup in sorted(by, key=lambda s: (s.startswith("all"), s)):
        for figure in FIGURES:
            errors = np.array([r.errors[figure] for r in by[setup] if figure in r.errors])
            if errors.size:
                low, middle, high = np.percentile(errors, (5, 50, 95))
                yield (f"| {setup} | {figure} | {errors.size} | {np.median(abs(errors)):.1%} | "
                       f"{low:+.1%} | {middle:+.1%} | {high:+.1%} | {errors.min():+.1%} | "
                       f"{(errors < -0.25).sum()} |")


def main() -> None:
    """Print the tables and the worst cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", type=int, default=112, help="workloads of the grid")
    parser.add_argument("--no-examples", action="store_true")
    parser.add_argument("--wide", type=int, default=0, help="workloads at random")
    parser.add_argument("--seed", type=int, default=303, help="of the workloads at random")
    chosen = parser.parse_args()
    cases = [*grid(chosen.grid), *wide(chosen.wide, chosen.seed),
             *([] if chosen.no_examples else examples())]
    rows: list[Seen] = []
    for i, (name, request) in enumerate(cases, start=1):
        rows += compare(name, replace(request, measured={}))
        print(f"\r{i}/{len(cases)}", end="", file=sys.stderr, flush=True)
    print("", file=sys.stderr)
    print("\n".join(table(rows)))
    for figure in FIGURES:
        worst = sorted((r for r in rows if figure in r.errors), key=lambda r: r.errors[figure])
        for row in worst[:3]:
            print(f"lowest {figure}: {row.errors[figure]:+.1%} {row.setup} {row.case} "
                  f"(at {row.load:.0%})")


if __name__ == "__main__":
    main()
