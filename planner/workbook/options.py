"""The sheets Options, Pools and Latencies: every option in full, a table each."""

from __future__ import annotations

from typing import Any

from planner.workbook import words
from planner.workbook.layout import Column, Page, data_sheet, key, number, set_up
from planner.workbook.live.expr import X
from planner.workbook.plan import METRICS, Plan, Row

NAME, POOLS, LATENCIES = "Options", "Pools", "Latencies"
NOTHING = "No option meets the targets; the sheet Infeasible says why."
LABELS = {"ttft": "Time to first token", "tpot": "Time per output token",
          "itl": "Gap between tokens", "e2e": "Whole request"}


def write(page: Page, plan: Plan) -> None:
    """Fill the sheet Options: one row an option."""
    set_up(page, plan.name, NAME)
    data_sheet(page, _columns(plan), plan.options, NOTHING, frozen=2, engine=True)


def _columns(plan: Plan) -> list[Column]:
    return [*_fleet_columns(plan), *_latency_columns(plan), *_money_columns(plan),
            *_confidence_columns()]


def _fleet_columns(plan: Plan) -> list[Column]:
    return [
        Column("Rank", key("rank"), 6, "rank"),
        Column("Set-up", lambda o: words.setup(o.get("setup")), 14, "text"),
        Column("GPU", lambda o: words.gpus(plan, o), 17, "text"),
        Column("Layout", words.layout, 18, "text"),
        Column("Weights", key("weights"), 9, "text"),
        Column("KV cache", key("kv"), 8, "text"),
        Column("GPUs", live(plan, "gpus"), 6),
        Column("Replicas", live(plan, "replicas", words.replicas), 8),
        Column("Nodes", live(plan, "nodes"), 6),
        Column("Limited by", lambda o: words.limit(o.get("limited_by")), 14, "text"),
        Column("Prefill bound by", _bound("prefill"), 15, "text"),
        Column("Decode bound by", _bound("decode"), 15, "text"),
    ]


def _latency_columns(plan: Plan) -> list[Column]:
    """TTFT and TPOT at their target's percentile, and the room to every target."""
    columns = []
    for metric, style in (("ttft", "count"), ("tpot", "one")):
        columns.append(at_target(plan, metric, 8, style))
    for target in plan.targets():
        columns.append(Column(f"Headroom {words.SHORT[target.metric]} [%]",
                              live(plan, f"headroom_{target.metric}", _headroom(target.metric)), 10,
                              "percent"))
    columns.append(Column("Warning", words.warning, 22, "text"))
    return columns


def _money_columns(plan: Plan) -> list[Column]:
    return [
        Column("Cost per hour [USD/h]", live(plan, "usd_per_hour"), 9, "two"),
        Column("Cost per month [USD]", live(plan, "usd_per_month"), 10.5),
        Column("Cost per hour, whole instances [USD/h]", key("usd_per_hour_whole_instances"), 11.5,
               "two"),
        Column("Cost per million tokens [USD]", live(plan, "usd_per_million_tokens"), 11, "three"),
        *(Column(f"Cost per million {which} tokens [USD]", live(
            plan, f"usd_per_million_{which}_tokens"), 11, "three") for which in (
                "input", "output")),
        Column("Cost per request [USD]", live(plan, "usd_per_request"), 10, "small"),
        Column("Power [kW]", live(plan, "power_kw"), 7, "one"),
    ]


def _confidence_columns() -> list[Column]:
    return [
        Column("Confidence", _confidence("level"), 13, "text"),
        Column("Error of step time [%]", _confidence("tpot_error"), 9, "percent"),
        Column("Error of TTFT [%]", _confidence("ttft_error"), 9, "percent"),
        Column("GPUs, low", _confidence("gpus_low"), 7),
        Column("GPUs, high", _confidence("gpus_high"), 7),
    ]


def live(plan: Plan, name: str, of: Any = None) -> Any:
    """A figure of an option: its formula where it calculates, else the plan's value."""
    value = key(name) if of is None else of

    def found(option: Row) -> Any:
        cell = plan.cell(option, name)
        return value(option) if cell is None else cell
    return found


def at_target(plan: Plan, metric: str, width: float, style: str) -> Column:
    """A latency at the percentile of its target."""
    title = level_label(plan, metric)
    return Column(title.value, live(plan, metric, lambda o: plan.latency_ms(o, metric)), width,
                  style, title)


def level_label(plan: Plan, metric: str) -> X:
    """``TTFT p90 [ms]`` with the percentile of the inputs."""
    short, level = words.SHORT[metric], plan.percentile(metric)
    return X(f'"{short} p"&in_{metric}_percentile&" [ms]"', f"{short} p{level:g} [ms]")


def _bound(phase: str) -> Any:
    return lambda option: (option.get("bound") or {}).get(phase)


def _headroom(metric: str) -> Any:
    return lambda option: (option.get("headroom") or {}).get(metric)


def _confidence(name: str) -> Any:
    return lambda option: (option.get("confidence") or {}).get(name)


# -- pools ------------------------------------------------------------------------------------


def write_pools(page: Page, plan: Plan) -> None:
    """Fill the sheet Pools: one row a pool of an option."""
    set_up(page, plan.name, POOLS)
    data_sheet(page, _pool_columns(plan), pools(plan), NOTHING, frozen=3, engine=True)


def pools(plan: Plan) -> list[Row]:
    """The pools of all options, each with its option's ``rank`` and ``setup``."""
    return [{**pool, "rank": option.get("rank"), "setup": option.get("setup"),
             "regions": option.get("regions") or 1}
            for option in plan.options for pool in option.get("pools") or []]


def _pool_columns(plan: Plan) -> list[Column]:
    return [
        Column("Rank", key("rank"), 6, "rank"),
        Column("Set-up", lambda p: words.setup(p.get("setup")), 16, "text"),
        Column("Pool", key("role"), 9, "text"),
        Column("GPU", lambda p: plan.gpu_name(p.get("gpu")), 20, "text"),
        Column("Tensor parallel", key("tensor_parallel"), 10),
        Column("Pipeline parallel", key("pipeline_parallel"), 10),
        Column("Expert parallel", key("expert_parallel"), 10),
        Column("Data parallel", key("data_parallel"), 10),
        Column("GPUs per replica", key("gpus_per_replica"), 9),
        Column("Replicas per region", key("replicas"), 10),
        Column("Spare replicas", key("spare_replicas"), 9),
        Column("Regions", key("regions"), 9),
        Column("GPUs per region", key("gpus"), 9),
        Column("Engine", key("engine"), 28, "text"),
        Column("Batch size", key("batch_size"), 8),
        Column("Token budget [tokens]", key("token_budget"), 9),
        Column("Rate per replica [1/s]", key("requests_per_s_per_replica"), 9, "three"),
        Column("Capacity per replica [1/s]", key("capacity_rps"), 10, "three"),
        Column("Utilisation [%]", key("utilization"), 11, "percent"),
        Column("Sequences decoding at once", key("concurrency_mean"), 11, "one"),
        Column("KV pool [GiB]", _kv_pool, 9, "one"),
        Column("KV pool used [%]", key("kv_used_share"), 9, "percent1"),
    ]


def _kv_pool(pool: Row) -> Any:
    return (pool.get("memory") or {}).get("kv_pool_gib")


# -- latencies --------------------------------------------------------------------------------


def write_latencies(page: Page, plan: Plan) -> None:
    """Fill the sheet Latencies: four rows an option, one for each latency."""
    set_up(page, plan.name, LATENCIES)
    data_sheet(page, _percentile_columns(plan), latencies(plan),
               NOTHING if not plan.options else
               "The latencies of measured workers are not modelled; their rate was measured.",
               frozen=4, engine=True)


def latencies(plan: Plan) -> list[Row]:
    """One row an option and latency, those without figures left out."""
    return [{**option[f"{m}_ms"], "metric": m, "option": option}
            for option in plan.options for m in METRICS if option.get(f"{m}_ms")]


def _percentile_columns(plan: Plan) -> list[Column]:
    def option(row: Row) -> Row:
        found: Row = row["option"]
        return found

    names = (("mean", "Mean"), ("p50", "Median"), ("p90", "90th percentile"),
             ("p95", "95th percentile"), ("p99", "99th percentile"))
    return [
        Column("Rank", lambda r: option(r).get("rank"), 6, "rank"),
        Column("Set-up", lambda r: words.setup(option(r).get("setup")), 16, "text"),
        Column("GPU", lambda r: words.gpus(plan, option(r)), 26, "text"),
        Column("Latency", lambda r: LABELS[r["metric"]], 24, "text"),
        *(Column(f"{label} [ms]", key(name), 12, "one") for name, label in names),
        Column("Target [ms]", lambda r: _limit(plan, r), 10, "one"),
        Column("Target percentile [%]", lambda r: _level(plan, r), 11, "figure"),
        Column("Headroom [%]", lambda r: number((option(r).get("headroom") or {}).get(
            r["metric"])), 11, "percent"),
    ]


def _limit(plan: Plan, row: Row) -> float | None:
    target = plan.target(row["metric"])
    return target.limit_ms if target else None


def _level(plan: Plan, row: Row) -> float | None:
    target = plan.target(row["metric"])
    return target.percentile if target else None
