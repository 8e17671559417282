"""Compile the event loop and store it, so that the first simulation finds it ready.

    python -m planner.simulator

Runs at the lowest priority and takes one to two minutes of one core, once for each version.
"""

from __future__ import annotations

import os

from planner.simulator import SimulatedFleet, SimulatedPool, affine_steps, request_table, simulate


def main() -> None:
    """Serve one request on one replica."""
    if hasattr(os, "nice"):
        os.nice(19)
    pool = SimulatedPool("serve", "prefill_first", affine_steps(0.01, 1e-5), replicas=1)
    simulate(SimulatedFleet("colocated", (pool,)), request_table([0.0], [100], [10]))


if __name__ == "__main__":
    main()
