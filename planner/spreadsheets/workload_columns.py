"""The columns of the workload sheet: one table for the template, the reader and the help page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.spreadsheets import quantities as q
from planner.spreadsheets.headers import Heading

Kind = Literal["text", "number", "share", "percentile", "choice", "choices", "date"]
SHEET = "Workloads"
MAX_WORKLOADS = 100
"""Filled rows of one file; each is planned in full."""


@dataclass(frozen=True, slots=True)
class WorkloadColumn:
    """One column.

    Attributes
    ----------
    heading : Heading
    kind : str
        How its cells are read.
    unit : str
        Shown in brackets after the label.
    path : str
        JSON pointer into the plan request; empty for what is only carried through.
    note : str
        What the header's note and the help sheet say.
    example : object
        In the example row.
    choices : str
        Name of the list on the sheet Lists that the drop-down shows.
    need : str
        ``required``, ``rate`` (one of several), ``target`` (one of several) or ``optional``.
    width : float
        [characters]
    """

    heading: Heading
    kind: Kind
    path: str
    note: str
    unit: str = ""
    example: object = None
    choices: str = ""
    need: str = "optional"
    width: float = 11.0

    @property
    def key(self) -> str:
        """Short name."""
        return self.heading.key

    @property
    def title(self) -> str:
        """The header as the template writes it."""
        return f"{self.heading.label} [{self.unit}]" if self.unit else self.heading.label


def _number(key: str, label: str, path: str, quantity: q.Quantity, unit: str, note: str,
            variants: tuple[str, ...] = (), needs_unit: tuple[str, ...] = (),
            example: object = None, need: str = "optional", width: float = 12.0
            ) -> WorkloadColumn:
    heading = Heading(key, label, variants, quantity, "", needs_unit)
    return WorkloadColumn(heading, "number", path, note, unit, example, "", need, width)


def _target(metric: str, label: str, note: str, variants: tuple[str, ...], example: object = None
            ) -> WorkloadColumn:
    with_unit = tuple(f"{v} ms" for v in (metric, *variants))
    return _number(f"{metric}_ms", label, f"/slo/{metric}_ms", q.MILLISECONDS, "ms", note,
                   with_unit, (label, metric, *variants), example, "target")


def _words(key: str, label: str, kind: Kind, path: str, note: str, choices: str,
           variants: tuple[str, ...] = (), example: object = None, need: str = "optional",
           width: float = 13.0) -> WorkloadColumn:
    return WorkloadColumn(Heading(key, label, variants), kind, path, note, "", example, choices,
                          need, width)


def _share(key: str, label: str, path: str, note: str, variants: tuple[str, ...] = (),
           example: object = None, need: str = "optional") -> WorkloadColumn:
    return WorkloadColumn(Heading(key, label, variants), "share", path, note, "%", example,
                          need=need, width=12.0)


COLUMNS: tuple[WorkloadColumn, ...] = (
    WorkloadColumn(Heading("name", "Name", ("workload", "workload name", "title", "service",
                                            "use case")),
                   "text", "/name", "What the plan is called. Free text.",
                   example="Support chat", width=26.0),
    _words("model", "Model", "choice", "/model",
           "Language model: slug, Hugging Face id or name. The list is on the sheet Lists.",
           "models", ("llm", "language model", "model name", "model id"),
           "llama-3.1-70b", "required", 24.0),
    _number("requests_per_second", "Requests per second", "/workload/requests_per_second",
            q.PER_SECOND, "1/s", "Rate at the peak. Give this, or requests per day with the share "
            "of the peak hour, or users with their pause.",
            ("rps", "qps", "peak requests per second", "req per s", "requests s", "peak rps",
             "requests second"),
            ("rate", "request rate", "requests", "load", "traffic", "arrival rate"), 12, "rate"),
    _number("requests_per_day", "Requests per day", "/workload/requests_per_day", q.PER_DAY,
            "1/day", "Requests of a whole day; needs the share of the peak hour.",
            ("daily requests", "requests day", "req per day"), example=None, need="rate"),
    _share("peak_hour_share", "Share of the day in its peak hour", "/workload/peak_hour_share",
           "A day's requests that fall in its busiest hour, such as 10%.",
           ("peak hour share", "peak share", "share of peak hour"), need="rate"),
    _number("concurrent_users", "Users at the same time", "/workload/concurrent_users", q.USERS,
            "", "Users who wait for an answer or think; needs their pause.",
            ("concurrent users", "users", "active users"), need="rate"),
    _number("think_time_s", "Pause between requests of a user", "/workload/think_time_s",
            q.SECONDS, "s", "From an answer to the user's next request.",
            ("think time s", "think time seconds"), ("think time", "pause"), need="rate",
            width=13.0),
    _number("prompt_tokens_mean", "Prompt tokens, mean", "/workload/prompt_tokens", q.TOKENS,
            "token", "Mean length of a prompt, cached part included.",
            ("prompt tokens", "input tokens", "mean prompt tokens", "mean input tokens",
             "prompt length", "input length", "input tokens mean", "isl"), example=2000,
            need="required"),
    _number("prompt_tokens_p95", "Prompt tokens, 95th percentile", "/workload/prompt_tokens/p95",
            q.TOKENS, "token", "19 of 20 prompts are at most this long. Blank: all prompts have "
            "the mean length.", ("prompt p95", "input tokens p95", "p95 prompt tokens",
                                 "p95 input tokens"), example=6000, width=12.0),
    _number("output_tokens_mean", "Output tokens, mean", "/workload/output_tokens", q.TOKENS,
            "token", "Mean length of an answer.",
            ("output tokens", "completion tokens", "mean output tokens", "output length",
             "generated tokens", "osl"), example=300, need="required"),
    _number("output_tokens_p95", "Output tokens, 95th percentile", "/workload/output_tokens/p95",
            q.TOKENS, "token", "19 of 20 answers are at most this long. Blank: all answers have "
            "the mean length.", ("output p95", "p95 output tokens", "completion tokens p95"),
            width=12.0),
    _number("arrival_cv", "Arrival CV", "/workload/arrival_cv", q.PLAIN, "",
            "Spread of the gaps between arrivals over their mean: 1 (default) is random, 4 is a "
            "burst.", ("burstiness", "cv")),
    _share("prefix_cache_hit_rate", "Prefix-cache hit rate", "/workload/prefix_cache_hit_rate",
           "Prompt tokens found in the prefix cache. Blank: 0%.",
           ("prefix hit rate", "cache hit rate", "prefix caching", "prefix cache hits",
            "hit rate"), example=0.0),
    _target("ttft", "Time to first token", "Target. Give at least one of the four targets.",
            ("ttft target", "time to first token target", "ttft slo", "slo ttft"), 1000),
    _target("tpot", "Time per output token", "Target: mean gap between the tokens of one answer.",
            ("tpot target", "time per output token target", "tpot slo", "slo tpot"), 50),
    _target("itl", "Gap between tokens", "Target for every single gap between two tokens.",
            ("itl target", "inter token latency", "gap between tokens target")),
    _target("e2e", "Whole request", "Target from arrival to the last token.",
            ("e2e target", "end to end", "latency", "total latency", "whole request target")),
    WorkloadColumn(Heading("percentile", "Percentile", ("target percentile", "slo percentile")),
                   "percentile", "/slo/percentile",
                   "Requests in a hundred that must be within the targets. Blank: 90.",
                   example=90),
    _words("gpus", "GPUs", "choices", "/gpus",
           "GPU types to try, separated by commas. Blank: the planner's usual six.", "gpus",
           ("gpu", "accelerator", "accelerators", "gpu types", "gpu type", "hardware"),
           "h100-sxm-80gb", width=24.0),
    _words("setups", "Set-ups", "choices", "/setups",
           "Ways of serving to try, separated by commas. Blank: all four.", "setups",
           ("setup", "serving setup"), "chunked"),
    _words("weights", "Weights", "choice", "/precisions/0/weights",
           "Precision of the weights. Blank: as the model ships.", "weights",
           ("weight precision", "precision", "quantization", "quantisation"), "fp8", width=9.0),
    _words("kv", "KV cache", "choice", "/precisions/0/kv",
           "Precision of the KV cache. Blank: as the model ships.", "kv",
           ("kv precision", "kv cache precision"), "fp8", width=9.0),
    _words("engine", "Engine", "choice", "/engine",
           "Serving engine or efficiency profile. Blank: vllm.", "engines",
           ("serving engine", "engine profile"), "vllm", width=14.0),
    _words("commitment", "Commitment", "choice", "/pricing/commitment",
           "How GPU-hours are bought. Blank: on_demand.", "commitments",
           ("price commitment", "purchase option", "pricing"), "on_demand"),
    _words("provider", "Provider", "choice", "/pricing/provider",
           "Whose prices apply. Blank: the lower median of all providers.", "providers",
           ("cloud", "vendor", "cloud provider"), width=14.0),
    _words("region", "Region", "choice", "/pricing/region",
           "Price region as the provider names it. Blank: any.", "regions", ("cloud region",)),
    _number("usd_per_gpu_hour", "Price per GPU-hour", "/pricing/usd_per_gpu_hour", q.DOLLARS,
            "USD", "Your own price; wins over the catalog. Needs exactly one GPU in the row.",
            ("own price", "gpu price", "usd per gpu hour", "price", "gpu hour price",
             "price per gpu hour usd")),
    _share("target_utilization", "Target utilisation", "/limits/target_utilization",
           "Part of the capacity that is planned on. Blank: 80%.",
           ("utilisation", "max utilisation"), example=0.8),
    _number("spare_replicas", "Spare replicas", "/limits/spare_replicas", q.PLAIN, "",
            "Kept for failures, in each pool. Blank: 0.", ("spares", "spare", "n 1"), example=1),
    _number("regions", "Regions", "/limits/regions", q.PLAIN, "",
            "Active regions, of which one may fail. Blank: 1.", ("active regions",)),
    _number("max_gpus", "Most GPUs", "/limits/max_gpus", q.PLAIN, "",
            "Upper limit of the fleet. Blank: 4096.", ("max gpus", "gpu limit")),
    _words("objective", "Objective", "choice", "/objective",
           "What the best option is ranked by. Blank: cost.", "objectives",
           ("optimise for", "optimize for", "rank by"), "cost", width=11.0),
    WorkloadColumn(Heading("start", "Start", ("start date", "go live", "launch", "launch date")),
                   "date", "", "When it is needed; carried into the results. Nothing is "
                   "calculated from it.", width=12.0),
    WorkloadColumn(Heading("notes", "Notes", ("note", "comment", "comments", "remark", "remarks")),
                   "text", "", "Free text; carried into the results.", width=34.0),
)
"""Every column, in the order of the template."""

BY_KEY = {c.key: c for c in COLUMNS}
