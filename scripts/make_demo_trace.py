"""Write the demonstration trace: generated requests with the statistics of a public hour.

Rate, burstiness and lengths follow the Azure LLM inference trace 2023, conversation (CC-BY 4.0,
Splitwise, ISCA 2024): 5.53 requests/s, CV of the gaps 1.09, prompts with a median of 1,020 and a
mean of 1,155 tokens, answers with a median of 129 and a mean of 211. Gaps are gamma, lengths
log-normal; no row of the original is in it.

    python scripts/make_demo_trace.py > examples/traces/conversation_demo.csv
"""

from __future__ import annotations

import csv
import math
import sys

import numpy as np

REQUESTS, SEED = 2000, 2023
RATE_PER_S, GAP_CV = 5.53, 1.09
PROMPT, OUTPUT = (1020.0, 1154.7), (129.0, 211.13)
"""Median and mean [token]."""
LONGEST = 16_000


def lengths(median: float, mean: float, rng: np.random.Generator) -> np.ndarray:
    """Log-normal lengths [token] with a median and a mean."""
    sigma = math.sqrt(2.0 * math.log(mean / median))
    drawn = np.exp(rng.normal(math.log(median), sigma, REQUESTS))
    return np.clip(np.round(drawn), 1, LONGEST).astype(int)


def main() -> None:
    """Print the trace as CSV."""
    rng = np.random.default_rng(SEED)
    shape = 1.0 / GAP_CV**2
    arrived = np.cumsum(rng.gamma(shape, 1.0 / (shape * RATE_PER_S), REQUESTS))
    arrived -= arrived[0]
    rows = zip(arrived.tolist(), lengths(*PROMPT, rng), lengths(*OUTPUT, rng), strict=True)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("timestamp", "prompt_tokens", "output_tokens"))
    writer.writerows((f"{t:.3f}", int(p), int(o)) for t, p, o in rows)


if __name__ == "__main__":
    main()
