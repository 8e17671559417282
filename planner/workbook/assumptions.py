"""The Assumptions sheet: every factor behind the numbers, with its source."""

from __future__ import annotations

from typing import Any

from planner.workbook.layout import Column, Page, data_sheet, key, set_up
from planner.workbook.plan import Plan, Row

NAME = "Assumptions"
MEANINGS = {
    "prompt_distribution": "how the lengths of prompts spread",
    "output_distribution": "how the lengths of answers spread",
    "target_utilization": "share of the capacity that is planned on",
    "hours_per_month": "hours that a month is billed for",
    "kv_pool_percentile": "how often the cache must hold all running requests",
    "requests_per_second": "arrivals at the peak, derived from the request",
    "request_seconds": "how long a user waits for an answer",
    "mfu": "how much of the peak compute large matrix products reach",
    "mbu": "how much of the memory bandwidth a decode step reaches",
    "attention_mfu": "the same as MFU, for attention",
    "attention_mbu": "the same as MBU, for attention",
    "link_efficiency": "how much of the link between GPUs is reached",
    "collective_latency_us": "start-up time of an exchange between GPUs",
    "layer_overhead_us": "time lost in each dense layer of a step",
    "moe_layer_overhead_us": "time lost in each mixture-of-experts layer of a step",
    "latent_layer_overhead_us": "more time lost in each layer of latent attention",
    "recurrent_layer_overhead_us": "more time lost in each recurrent layer",
    "sequence_overhead_us": "time lost for each sequence in each step",
    "expert_mfu": "share of the peak arithmetic that products of routed experts reach",
    "expert_mbu": "share of the memory bandwidth that reads of routed experts reach",
    "step_overhead_ms": "time lost in each step of the engine",
    "request_overhead_ms": "time the server adds to each request",
    "memory_utilization": "share of the memory the engine may use, as its own option counts it",
}
"""Plain words for the names that the planner gives, by the part after the last dot."""


def write(page: Page, plan: Plan) -> None:
    """Fill the sheet: one row an assumption."""
    set_up(page, plan.name, NAME)
    columns = [
        Column("Name", key("name"), 38, "text"),
        Column("Value", key("value"), 14, "figure"),
        Column("Unit", key("unit"), 28, "text"),
        Column("Meaning", meaning, 42, "text"),
        Column("Source", key("source"), 68, "text"),
    ]
    data_sheet(page, columns, plan.document.get("assumptions") or [],
               "The plan holds no assumptions.")


def meaning(row: Row) -> str:
    """An assumption in plain words, empty when there are none."""
    name: Any = row.get("name") or ""
    if str(name).startswith("price."):
        return "price of one GPU"
    return MEANINGS.get(str(name).rpartition(".")[2], "")
