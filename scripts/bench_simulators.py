"""Requests simulated per second of processor time, beside the plain simulation of the tests.

The trace is the Azure 2023 conversation hour where its CSV is given, else ten times the shipped
trace of its shape; an 8B model on one H100 a replica, four replicas, chunked prefill.

    python -m scripts.bench_simulators [TRACE.csv]
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
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


def main(path: Path, peers: list[tuple[str, Path]], python: str | None, first: int) -> None:
    """Print start-up, rates, how the time grows, and other simulators beside."""
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
        rates.append(own_rate(repeated(requests, times)))
        print(f"{times * len(requests):>9,} requests                            {rates[-1]:12,.0f} "
              "requests/s of processor time", flush=True)
    plain = plain_rate(requests)
    print(f"plain simulation, step by step in Python    {plain:12,.0f} requests/s; "
          f"{rates[0] / plain:,.0f} times slower", flush=True)
    if not peers:
        print("no public simulator was named: --peer vidur=FOLDER (docs/simulator.md)")
    beside(requests, first, peers, python)


def own_rate(requests: RequestTable, least_s: float = 0.0) -> float:
    """Requests/s of processor time of this simulator, over at least ``least_s`` seconds."""
    start, played = time.process_time(), 0
    while not played or time.process_time() - start < least_s:
        simulate(fleet(), requests, SimulationOptions("least_loaded"))
        played += len(requests)
    return played / (time.process_time() - start)


def beside(requests: RequestTable, first: int, peers: list[tuple[str, Path]], python: str | None
           ) -> None:
    """Play the first requests by each peer, and by this simulator before and after it."""
    part = request_table(requests.arrival_s[:first], requests.prompt_tokens[:first],
                         requests.output_tokens[:first])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.csv"
        with file.open("w", newline="") as out:
            csv.writer(out).writerows([("arrival_s", "prompt_tokens", "output_tokens"), *zip(
                part.arrival_s.tolist(), part.prompt_tokens.tolist(),
                part.output_tokens.tolist(), strict=True)])
        for name, place in peers:
            before = own_rate(part, 2.0)
            rate = peer_rate(name, place, python, file)
            if rate is None:
                continue
            own = 2.0 / (1.0 / before + 1.0 / own_rate(part, 2.0))
            print(f"{name:<14}{len(part):>8,} requests {rate:12,.0f} requests/s; this one "
                  f"{own:,.0f}: {own / rate:,.0f} times as many", flush=True)


def peer_rate(name: str, folder: Path, python: str | None, file: Path) -> float | None:
    """Requests/s of processor time of a peer's event loop; None where it does not run."""
    own = folder / ".venv" / "bin" / "python"
    command = [python or str(own if own.exists() else sys.executable),
               str(ROOT / "scripts" / "peer_simulators.py"), name, str(folder), str(file),
               str(REPLICAS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name:<14}does not run: {(done.stderr.splitlines() or ['no message'])[-1][:200]}")
        return None
    answer = json.loads(done.stdout.splitlines()[-1])
    return float(answer["requests"] / answer["loop_s"])


def named_peer(text: str) -> tuple[str, Path]:
    """``NAME=FOLDER``."""
    name, _, folder = text.partition("=")
    if not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER of a folder that exists")
    return name, Path(folder).resolve()


def repeated(requests: RequestTable, times: int) -> RequestTable:
    """The trace one time after the other."""
    span = requests.span_s + 1.0
    arrivals = np.concatenate([requests.arrival_s + i * span for i in range(times)])
    return request_table(arrivals, np.tile(requests.prompt_tokens, times),
                         np.tile(requests.output_tokens, times))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Requests simulated per second")
    parser.add_argument("trace", nargs="?", type=Path, default=SHARED)
    parser.add_argument("--once", action="store_true", help="play it once and print nothing")
    parser.add_argument("--peer", action="append", default=[], type=named_peer,
                        metavar="NAME=FOLDER")
    parser.add_argument("--python", help="interpreter of the peers")
    parser.add_argument("--first", type=int, default=3000, help="requests that the peers play")
    given = parser.parse_args()
    if given.once:
        simulate(fleet(), trace(given.trace), SimulationOptions("least_loaded"))
    else:
        main(given.trace, given.peer, given.python, given.first)
