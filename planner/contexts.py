"""Requests that are longer than the context a model was built for."""

from __future__ import annotations

from planner.llm import Llm
from planner.workload import Workload

NOTED_SHARE = 0.001
"""Share of the requests from which a plan says that they are too long."""


def share_beyond(workload: Workload, most_tokens: float) -> float:
    """Share of the requests whose prompt and answer together exceed ``most_tokens``."""
    answers = zip(workload.output.tokens, workload.output.weights, strict=True)
    return sum(float(weight) * workload.prompt.share_above(most_tokens - float(tokens))
               for tokens, weight in answers)


def noted_share(workload: Workload, llm: Llm) -> float:
    """Share of the requests beyond the context of a model; 0 where it is hardly any."""
    if llm.max_context is None:
        return 0.0
    most = float(llm.max_context)
    share = workload.remembered(("beyond", most), lambda: share_beyond(workload, most))
    return share if share >= NOTED_SHARE else 0.0


def beyond_message(share: float, llm: Llm) -> str:
    """What a plan says of such requests."""
    return (f"{share:.1%} of the requests are longer than the context of {llm.max_context:,} "
            f"tokens that {llm.name} has: an engine refuses or cuts them. The plan counts them as "
            "served.").replace("%", " %")
