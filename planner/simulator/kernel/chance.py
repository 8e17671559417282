"""Random numbers of a run."""

from __future__ import annotations

import numpy as np

from planner.compiled import compiled, entry
from planner.simulator.arrays import State


@compiled
def draw(st: State) -> float:
    """Uniform number in [0, 1) (SplitMix64, Steele et al. 2014)."""
    st.random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = st.random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@entry
def draw_steps(st: State, tokens: np.ndarray, drafted: int, acceptance: float) -> np.ndarray:
    """Decode steps that each answer takes when every draft token is accepted by chance."""
    steps = np.zeros(tokens.shape[0], dtype=np.int64)
    for r in range(tokens.shape[0]):
        left = tokens[r]
        while left > 0:
            taken = 1
            while taken <= drafted and draw(st) < acceptance:
                taken += 1
            left -= taken
            steps[r] += 1
    return steps
