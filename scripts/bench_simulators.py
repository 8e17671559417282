"""Requests simulated per second of processor time, beside the plain simulation of the tests.

The trace is the Azure 2023 conversation hour where its CSV is given, else ten times the shipped
trace of its shape; an 8B model on one H100 a replica, four replicas, chunked prefill.

    python -m scripts.bench_simulators [TRACE.csv]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from planner.catalog.shipped import shipped_catalog
from planner.requests import Layout
from planner.roofline import Deployment
from planner.simulator import (
    RequestTable,
    SimulatedFleet,
    SimulationOptions,
    pool_of,
    request_table,
    simulate,
    time_slice,
)

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data" / "traces" / "azure2023_conv.csv"
SHIPPED = ROOT / "examples" / "trace_conversation.csv"
REPLICAS, PLAIN_S = 4, 60.0
"""Replicas, and [s] of the trace that the plain simulation plays."""


def trace(path: Path) -> RequestTable:
    """The trace, or ten times the shipped one, which has its statistics."""
    rows = np.loadtxt(path if path.exists() else SHIPPED, delimiter=",", skiprows=1)
    requests = request_table(rows[:, 0], rows[:, 1], rows[:, 2])
    return requests if path.exists() else repeated(requests, 10)


def fleet() -> SimulatedFleet:
    """Four replicas of an 8B model."""
    catalog = shipped_catalog()
    gpu = catalog.gpu("h100-sxm-80gb")
    d = Deployment(catalog.llm("llama-3.1-8b"), gpu, "bf16", "bf16", Layout(),
                   catalog.engine("vllm", gpu, "bf16"))
    return SimulatedFleet("chunked", (pool_of(d, "serve", "chunked", REPLICAS,
                                              token_budget=2048),))


def plain_rate(requests: RequestTable) -> float:
    """Requests/s of processor time of the plain step-by-step simulation in the tests."""
    sys.path.insert(0, str(ROOT / "tests" / "simulator"))
    from plain_simulation import Plain, affine

    part = time_slice(requests, 0.0, PLAIN_S)
    step = affine(0.006, 2e-5, 1e-5, 5e-9)
    start = time.process_time()
    Plain(fleet(), [step], part).play()
    return len(part) / (time.process_time() - start)


def main() -> None:
    """Print start-up, rates and how the time grows."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else SHARED
    requests, options = trace(path), SimulationOptions("least_loaded")
    name = path.name if path.exists() else f"10 x {SHIPPED.name}"
    simulate(fleet(), requests, options)  # compiles where nothing is stored yet
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "scripts.bench_simulators", str(path), "--once"],
                   check=True, cwd=ROOT)
    print(f"{name}: {len(requests):,} requests on {REPLICAS} replicas")
    print(f"a process of its own, start-up included      {time.perf_counter() - start:8.2f} s")
    rates = []
    for times in (1, 4, 16):
        copies = repeated(requests, times)
        busy = time.process_time()
        simulate(fleet(), copies, options)
        rates.append(len(copies) / (time.process_time() - busy))
        print(f"{len(copies):>9,} requests                            {rates[-1]:12,.0f} "
              "requests/s of processor time")
    plain = plain_rate(requests)
    print(f"plain simulation, step by step in Python    {plain:12,.0f} requests/s; "
          f"{rates[0] / plain:,.0f} times slower")


def repeated(requests: RequestTable, times: int) -> RequestTable:
    """The trace one time after the other."""
    span = requests.span_s + 1.0
    arrivals = np.concatenate([requests.arrival_s + i * span for i in range(times)])
    return request_table(arrivals, np.tile(requests.prompt_tokens, times),
                         np.tile(requests.output_tokens, times))


if __name__ == "__main__":
    if "--once" in sys.argv:
        simulate(fleet(), trace(Path(sys.argv[1])), SimulationOptions("least_loaded"))
    else:
        main()
