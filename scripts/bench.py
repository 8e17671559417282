"""Time the work a user waits for: plans, estimates, workbooks.

Runs in this process against a fresh SQLite file, so it measures the planner and not a network.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
REPEATS = 5


class Api:
    """The application with a loaded catalog, called without a network."""

    def __init__(self, folder: str) -> None:
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/bench.sqlite"
        from app import create_app  # reads the environment, so only now

        application = create_app()
        for command in (["db", "upgrade"], ["catalog", "load"]):
            result = application.test_cli_runner().invoke(args=command)
            if result.exit_code:
                raise SystemExit(f"flask {' '.join(command)} failed: {result.output}")
        self.client = application.test_client()

    def post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """POST a document; stop on an error."""
        response = self.client.post(f"/api/v1/{path}", json=document)
        if response.status_code >= 300:
            raise SystemExit(f"POST {path}: {response.status_code} {response.get_data(True)[:500]}")
        return dict(response.json or {})

    def get(self, path: str) -> bytes:
        """GET a resource; stop on an error."""
        response = self.client.get(f"/api/v1/{path}")
        if response.status_code != 200:
            raise SystemExit(f"GET {path}: {response.status_code}")
        return bytes(response.get_data())


def example(name: str) -> dict[str, Any]:
    """One of the plan requests in ``examples/``."""
    return dict(json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8")))


def many_steps(count: int) -> dict[str, Any]:
    """An estimate of ``count`` engine steps in one call."""
    batches = [{"decodes": 1 + i % 256, "context_tokens": 500 + i, "prefill_tokens": 0}
               for i in range(count)]
    return {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "batches": batches}


def jobs(api: Api) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    plans = {f"plan {file.stem}": partial(api.post, "plans", example(file.stem))
             for file in sorted(EXAMPLES.glob("*.json"))}
    plan_id = api.post("plans", example("chat"))["id"]
    return {**plans,
            "estimate 10,000 steps": partial(api.post, "estimates", many_steps(10_000)),
            "workbook chat": partial(api.get, f"plans/{plan_id}/workbook")}


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """First and median time [s] of ``REPEATS`` runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times[0], statistics.median(times)


def main() -> None:
    """Print one line a job: name, first run, median."""
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'job':<28}{'first':>10}{'median':>10}")
        for name, work in jobs(Api(folder)).items():
            first, median = timed(work)
            print(f"{name:<28}{first * 1e3:>7.0f} ms{median * 1e3:>7.0f} ms")


if __name__ == "__main__":
    main()
