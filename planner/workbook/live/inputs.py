"""The Inputs sheet: every figure that can be changed, in blue, with unit, source, date and note."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from planner.engine import EngineProfile
from planner.hardware import Gpu
from planner.units import bytes_to_gb, bytes_to_gib, s_to_ms
from planner.workbook import words
from planner.workbook.layout import clean, lines, number
from planner.workbook.live import allowed as may
from planner.workbook.live.allowed import NONE, Allowed
from planner.workbook.live.board import Board
from planner.workbook.live.expr import X, as_number, both, is_number, when, x
from planner.workbook.live.lengths import LengthInputs
from planner.workbook.live.step import Hardware
from planner.workbook.live.targets import NEVER_S, Targets
from planner.workbook.plan import Plan, Row, lengths_of
from planner.workload import MAX_P95_OVER_MEAN, SEVERAL_TOKENS, Z95, Lengths

NAME = "Inputs"
WIDTHS = (30, 13, 16, 31, 26, 11, 60, 10, 13)
NOTE, ALLOWED, USED = 6, 7, 8
"""Columns of the note, of whether an input is allowed, and of what is calculated with."""
LAST_ROW = 400
"""Rows that are marked where an input is not allowed."""
SHOWN_AT = 90.0
"""Percentile at which a latency without a target is shown."""
HEADER = ("Input", "Value", "Unit", "Cell name", "Source", "As of", "Note",
          "1 = allowed", "Used")
GPU_FIELDS = (
    ("memory_gib", "Memory", "GiB", lambda g: bytes_to_gib(g.memory_bytes)),
    ("bandwidth_gb_s", "Memory bandwidth", "GB/s", lambda g: bytes_to_gb(g.bandwidth_bytes_per_s)),
    ("link_gb_s", "Link to other GPUs", "GB/s", lambda g: bytes_to_gb(g.link_bytes_per_s)),
    ("pcie_gb_s", "PCIe", "GB/s", lambda g: bytes_to_gb(g.pcie_bytes_per_s)),
    ("nic_gb_s", "Network per GPU", "GB/s", lambda g: bytes_to_gb(g.nic_bytes_per_s)),
    ("node_gpus", "GPUs per node", "", lambda g: g.node_gpus),
    ("tdp_w", "Board power", "W", lambda g: g.tdp_w),
)
ENGINE_FIELDS = (
    ("mfu", "Share of peak compute", "share", lambda e: e.mfu),
    ("half_tokens", "Rows at half of it", "rows", lambda e: e.half_tokens),
    ("tile_tokens", "Rows of a tile", "rows", lambda e: e.tile_tokens),
    ("mbu", "Share of memory bandwidth", "share", lambda e: e.mbu),
    ("expert_mfu", "Share of peak compute for experts", "share", lambda e: e.expert_mfu),
    ("expert_mbu", "Share of bandwidth for experts", "share", lambda e: e.expert_mbu),
    ("attention_mfu", "Share of peak in attention", "share", lambda e: e.attention_mfu),
    ("attention_mbu", "Share of bandwidth in attention", "share", lambda e: e.attention_mbu),
    ("link_efficiency", "Share of the link", "share", lambda e: e.link_efficiency),
    ("collective_latency_us", "Start of a collective", "µs",
     lambda e: e.collective_latency_s * 1e6),
    ("layer_us", "Overhead of a layer", "µs", lambda e: e.layer_s * 1e6),
    ("moe_layer_us", "Overhead of a layer of experts", "µs", lambda e: e.moe_layer_s * 1e6),
    ("latent_layer_us", "More in a layer of latent attention", "µs",
     lambda e: e.latent_layer_s * 1e6),
    ("recurrent_layer_us", "More in a recurrent layer", "µs",
     lambda e: e.recurrent_layer_s * 1e6),
    ("sequence_us", "Overhead of a sequence and step", "µs", lambda e: e.sequence_s * 1e6),
    ("step_ms", "Overhead of a step", "ms", lambda e: s_to_ms(e.step_s)),
    ("request_ms", "Overhead of a request", "ms", lambda e: s_to_ms(e.request_s)),
    ("first_steps", "Steps until the client has a token", "steps", lambda e: e.first_steps),
    ("prompt_token_us", "Overhead of a prompt token", "µs", lambda e: e.prompt_token_s * 1e6),
    ("ttft_scale", "First token over prefill", "factor", lambda e: e.ttft_scale),
    ("disaggregated_scale", "Token time of a decode pool", "factor",
     lambda e: e.disaggregated_scale),
    ("expert_skew", "Unevenness of the use of experts", "CV²", lambda e: e.expert_skew),
    ("expert_imbalance", "Fullest expert rank over mean", "factor", lambda e: e.expert_imbalance),
    ("memory_utilization", "Memory that it may use", "share", lambda e: e.memory_utilization),
)


@dataclass(slots=True, eq=False)
class InputCells:
    """Every input as a cell, and what it was when the workbook was written."""

    rate: X
    day_share: X
    prompt: LengthInputs
    output: LengthInputs
    hit: X
    cv: X
    targets: Targets
    whole_level: X
    utilization: X
    spares: X
    regions: X
    max_gpus: X
    hours: X
    growth: X
    price_cut: X
    allowed: X
    faults: X
    """Inputs that are not allowed."""
    hardware: dict[tuple[str, str], Hardware] = field(default_factory=dict)
    prices: dict[tuple[int, str], X] = field(default_factory=dict)
    """USD per GPU-hour by option rank and GPU slug."""
    kept: list[tuple[str, X, Any]] = field(default_factory=list)
    """Label, cell and first value of each input that an engine result depends on."""

    @property
    def several(self) -> X:
        """Whether some answer has a second token."""
        return self.output.longest >= SEVERAL_TOKENS


class InputSheet:
    """Writes the sheet and collects its cells."""

    def __init__(self, board: Board, plan: Plan) -> None:
        self.board, self.plan = board, plan
        self.kept: list[tuple[str, X, Any]] = []

    def head(self) -> None:
        """Widths, header and panes."""
        page = self.board.page
        page.widths(WIDTHS)
        for place, label in enumerate(HEADER):
            page.write(0, place, label, "count" if place in (1, ALLOWED, USED) else "text",
                       "header")
        page.sheet.freeze_panes(1, 1)
        page.sheet.repeat_rows(0)
        self.board.row = 1

    def block(self, title: str) -> None:
        """A heading between the lines."""
        self.board.page.write(self.board.row, 0, title, "heading")
        self.board.page.height(self.board.row, 1.6)
        self.board.row += 1

    def line(self, label: str, value: Any, unit: str, name: str, style: str = "figure",
             source: str = "request", as_of: str = "", note: str = "",
             check: Allowed | None = None, kept: bool = True, fits: Callable[[X], X] | None = None
             ) -> X:
        """One input (a value, blue) or one that follows from others (an expression, black).

        Returns
        -------
        X
            The cell; where it is checked the one with what is calculated with. ``fits`` is what
            an input must keep beside its bounds.
        """
        page, row = self.board.page, self.board.row
        page.write(row, 0, label, "cell", "text")
        for column, text in ((2, unit), (3, name), (4, source), (5, as_of), (NOTE, note)):
            page.write(row, column, text, "cell", "text")
        page.height(row, max(lines(clean(text), WIDTHS[column] - 1.0) for column, text in
                             ((0, label), (4, source), (NOTE, note))))
        first: Any
        if isinstance(value, X):
            style = "fraction" if style == "figure" else style
            cell, first = self.board.put(row, 1, value, "cell", style, name=name), value
        else:
            first = NONE if value is None else value
            style = "fraction" if style == "figure" and isinstance(
                first, float) and first != int(first) else style
            cell = self.board.put_value(row, 1, first, "cell", style, "input", name=name)
            if kept:
                self.kept.append((label, cell, first))
        if check is not None:
            cell = self._checked(cell, first, name, style, check, fits)
        self.board.row += 1
        return cell

    def _checked(self, cell: X, first: Any, name: str, style: str, check: Allowed,
                 fits: Callable[[X], X] | None) -> X:
        """Whether an input is allowed, and what is calculated with, in cells beside it."""
        board, row = self.board, self.board.row
        board.page.sheet.data_validation(row, 1, row, 1, check.validation(f"$B${row + 1}"))
        test = check.test(cell, None if isinstance(first, X) else first)
        used = board.put(row, USED, may.used(cell, test, first), "cell", style,
                         name=f"use_{name.removeprefix('in_')}")
        holds = test if fits is None else X(f"IF({test.text},{fits(used).text},FALSE)", 1.0)
        board.put(row, ALLOWED, when(holds, 1.0, 0.0), "cell", "count")
        return used

    def verdict(self) -> tuple[X, X]:
        """Whether all inputs are allowed, and the number of those that are not."""
        faults = X("COUNTIF(inputs_each_allowed,0)", 0.0)
        self.board.page.sheet.conditional_format(1, ALLOWED, LAST_ROW, ALLOWED, {
            "type": "formula", "criteria": "=AND(ISNUMBER($H2),$H2=0)",
            "format": self.board.page.mark({"bg_color": "#FBE5E3", "font_color": "#9C0006"})})
        allowed = self.line("Inputs are allowed", when(faults.is_(0.0), 1.0, 0.0), "1 = yes",
                            "inputs_allowed", "count", "calculated", "",
                            "0: the planner would refuse those with a 0 beside them; results are "
                            "n/a until they are changed")
        return allowed, faults

    def finish(self) -> None:
        """Name the columns that the verdict reads."""
        last = self.board.row
        self.board.define("inputs_each_allowed", f"$H$2:$H${last}")
        self.board.define("inputs_each_label", f"$A$2:$A${last}")

    def plain(self, label: str, text: str) -> None:
        """A choice of the search, as text: an engine result."""
        page, row = self.board.page, self.board.row
        page.write(row, 0, label, "cell", "text")
        page.merge(row, 1, 6, text, "cell", "text", "engine")
        page.height(row, lines(clean(text), sum(WIDTHS[1:]) - 2))
        self.board.row += 1


def write(board: Board, plan: Plan, hardware: list[tuple[Gpu, EngineProfile, float | None]],
          priced: list[tuple[int, Row]]) -> InputCells:
    """Fill the sheet.

    Parameters
    ----------
    hardware : list
        GPU, engine profile and memory utilisation of the request (or None), each pair once.
    priced : list
        Rank and document of the options whose prices are inputs.
    """
    s = InputSheet(board, plan)
    s.head()
    workload = plan.request.get("workload") or {}
    limits = plan.request.get("limits") or {}
    s.block("Workload")
    regions = int(limits.get("regions") or 1)
    rate = s.line("Requests per second", _peak(plan, regions), "1/s", "in_requests_per_second",
                  "figure", _rate_source(workload), "", "arrivals at the peak, all regions "
                  "together", may.RATE)
    day_share = s.line("Mean rate over the day / peak", _mean_share(plan, workload), "share",
                       "in_mean_over_peak", "figure", _rate_source(workload), "",
                       "requests and tokens are counted at the mean rate", may.SHARE)
    prompt = _length(s, plan, "prompt", "Prompt")
    output = _length(s, plan, "output", "Output")
    hit = s.line("Prefix-cache hit rate", float(workload.get("prefix_cache_hit_rate") or 0.0),
                 "share", "in_prefix_cache_hit_rate", "percent1", "request", "",
                 "share of prompt tokens found in the cache", may.HITS)
    cv = s.line("Arrival CV", float(workload.get("arrival_cv", 1.0)), "", "in_arrival_cv", "figure",
                "request", "", "burstiness: 1 = arrivals at random, more = burstier",
                may.CV)
    s.block("Latency targets")
    targets, whole_level = _targets(s, plan, output)
    s.block("Fleet")
    used = s.line("Target utilisation", float(limits.get("target_utilization", 0.8)), "share",
                  "in_target_utilization", "percent1", "request", "",
                  "share of the capacity that is planned on", may.UTILIZATION)
    spares = s.line("Spare replicas", limits.get("spare_replicas", 0), "", "in_spare_replicas",
                    "count", "request", "", "for each pool and region, kept for failures",
                    may.SPARES)
    region_cell = s.line("Regions", regions, "", "in_regions", "count", "request", "",
                         "with R > 1 one may fail, so each carries 1 / (R - 1)", may.REGIONS)
    max_gpus = s.line("Most GPUs", limits.get("max_gpus", 4096), "", "in_max_gpus", "count",
                      "request", "", "more are no answer", may.GPUS)
    cells = InputCells(rate, day_share, prompt, output, hit, cv, targets, whole_level, used,
                       spares, region_cell, max_gpus, x(730.0), x(0.0), x(0.0), x(1.0),
                       x(0.0))
    _money(s, plan, priced, cells)
    cells.allowed, cells.faults = s.verdict()
    for place, (gpu, profile, share) in enumerate(hardware, start=1):
        cells.hardware[gpu.slug, profile.slug] = _hardware(s, plan, place, gpu, profile, share)
    s.block("What was tried (engine results)")
    for label, text in _tried(plan):
        s.plain(label, text)
    s.finish()
    board.page.sheet.print_area(0, 0, board.row - 1, NOTE)
    cells.kept = s.kept
    return cells


def spread_fits(source: LengthInputs) -> X:
    """Whether a mean and a 95th percentile belong to a log-normal, or to the list given."""
    ratio = source.p95 / source.mean
    inside = both(ratio >= 1.0 - 1e-9, ratio <= MAX_P95_OVER_MEAN, source.mean >= 1.0)
    if not source.listed:
        return inside
    given = source.p95.is_(source.given_p95)
    value = float(inside.value > 0 or given.value > 0)
    return X(f"OR({inside.text},{given.text})", value)


def _peak(plan: Plan, regions: int) -> float:
    """Requests per second of all regions together."""
    stated = number((plan.request.get("workload") or {}).get("requests_per_second"))
    if stated is not None:
        return float(stated)
    day = plan._rate_of_day()
    if day:
        return float(day)
    return float(plan.requests_per_second or 1.0) * max(regions - 1, 1)


def _rate_source(workload: Row) -> str:
    if number(workload.get("requests_per_day")) is not None:
        return "requests per day × share of the peak hour"
    if number(workload.get("concurrent_users")) is not None:
        return "users / (pause + answer time)"
    return "request"


def _mean_share(plan: Plan, workload: Row) -> float:
    day = number(workload.get("requests_per_day"))
    share = number(workload.get("peak_hour_share"))
    return 1.0 / (24.0 * share) if day is not None and share else 1.0


def _length(s: InputSheet, plan: Plan, which: str, title: str) -> LengthInputs:
    """Mean and 95th percentile; a constant's percentile follows its mean."""
    form = (plan.request.get("workload") or {}).get(f"{which}_tokens") or 1
    given: Lengths = lengths_of(form)
    mean_value, p95_value = plan.tokens(which)
    mean_value = given.mean if mean_value is None else mean_value
    p95_value = given.quantile(0.95) if p95_value is None else p95_value
    mean = s.line(f"{title} tokens, mean", float(mean_value), "tokens", f"in_{which}_tokens_mean",
                  "figure", "request", "", "cached part included; a list of lengths is scaled"
                  if which == "prompt" else "length of an answer; a list of lengths is scaled",
                  may.MEAN_TOKENS)
    name, note = f"in_{which}_tokens_p95", "at most 3.87 times the mean"
    p95_value = float(p95_value)
    wide = False
    if isinstance(form, dict) and "p50" in form and given.kind == "lognormal":
        wide = math.log(form["p95"] / form["p50"]) / Z95 > Z95

    def fits(p95: X) -> X:
        return spread_fits(LengthInputs(mean, p95, given, p95_value, wide))

    if given.kind == "constant":
        p95 = s.line(f"{title} tokens, 95th percentile", mean, "tokens", name, "figure",
                     "all of one length", "", "type a number above the mean for a spread",
                     may.P95_TOKENS, fits=fits)
    else:
        p95 = s.line(f"{title} tokens, 95th percentile", p95_value, "tokens", name,
                     "figure", "request", "", note if given.kind == "lognormal" else
                     "another value replaces the list by a log-normal",
                     may.P95_TOKENS, fits=fits)
    return LengthInputs(mean, p95, given, p95_value, wide)


def _targets(s: InputSheet, plan: Plan, output: LengthInputs) -> tuple[Targets, X]:
    """Limits and levels; a metric without a target says n/a and is not checked."""
    common = _common_percentile(plan)
    all_ = s.line("Percentile", common, "% of requests", "in_percentile", "figure", "request", "",
                  "share of requests that must hold the targets", may.LEVEL)
    names = {"ttft": "Time to first token", "tpot": "Time per output token",
             "itl": "Gap between tokens", "e2e": "Whole request"}
    limit_s: dict[str, X] = {}
    level_of: dict[str, X] = {}
    for metric, label in names.items():
        target = plan.target(metric)
        if target is None and metric in ("itl", "e2e"):
            continue
        cell = s.line(label, None if target is None else float(target.limit_ms), "ms",
                      f"in_{metric}_ms", "figure", "request", "",
                      "a number sets a target" if target is None else
                      "type n/a for no target", may.TARGET)
        name = f"in_{metric}_percentile"
        if target is None or target.percentile == common:
            at = s.line(f"{label}, percentile", when(is_number(cell), all_, SHOWN_AT),
                        "% of requests", name, "figure", "the percentile above", "",
                        f"{SHOWN_AT:g} without a target", may.LEVEL)
        else:
            at = s.line(f"{label}, percentile", target.percentile, "% of requests", name, "figure",
                        "request", "", "", may.LEVEL)
        never = x(NEVER_S)
        limit_s[metric] = when(is_number(cell), as_number(cell) / 1000.0, never)
        level_of[metric] = at / 100.0
    for metric in ("tpot", "itl"):
        if metric in limit_s:  # answers of one token have no time between tokens
            limit_s[metric] = when(output.longest >= SEVERAL_TOKENS, limit_s[metric],
                                   x(NEVER_S))
    whole = level_of.get("e2e", x(0.9))
    return Targets(
        limit_s["ttft"], level_of["ttft"], limit_s["tpot"], level_of["tpot"],
        limit_s.get("e2e"), level_of.get("e2e"), limit_s.get("itl"), level_of.get("itl")), whole


def _common_percentile(plan: Plan) -> float:
    """The percentile of the request; where each target has its own, the default if one has it."""
    stated = number((plan.request.get("slo") or {}).get("percentile"))
    if stated is not None:
        return float(stated)
    levels = [t.percentile for t in plan.targets()]
    return SHOWN_AT if SHOWN_AT in levels or not levels else float(levels[0])


def _money(s: InputSheet, plan: Plan, priced: list[tuple[int, Row]], cells: InputCells) -> None:
    """Prices of the options, and growth."""
    s.block("Money and growth")
    pricing = plan.request.get("pricing") or {}
    for rank, option in priced:
        rows = {r.get("gpu"): r for r in plan.prices(option)}
        slugs = list(dict.fromkeys(p.get("gpu") for p in option.get("pools") or []))
        for slug in slugs:
            row = rows.get(slug)
            shared = cells.prices.get((1, str(slug)))
            if shared is not None and row and shared.value == number(row.get("usd_per_gpu_hour")):
                cells.prices[rank, str(slug)] = shared
                continue
            name = _price_name(rank, option, slugs, slug)
            label = f"Price of {plan.gpu_name(slug)}" + (", runner-up" if rank > 1 else "")
            value = number(row.get("usd_per_gpu_hour")) if row else None
            note = words.price(plan, row) if row else "no price is known; type one"
            cells.prices[rank, str(slug)] = s.line(
                label, None if value is None else float(value), "USD per GPU-hour", name, "price",
                clean((row or {}).get("source") or "none"), clean((row or {}).get("as_of") or ""),
                note, may.PRICE_OR_NONE if value is None else may.PRICE)
        if len(slugs) > 1 and rank == 1:
            _average(s, option)
    cells.hours = s.line("Hours per month", float(
        pricing.get("utilization_hours_per_month") or 730.0), "h", "in_hours_per_month", "figure",
        "request", "", "365 days / 12 = 730", may.HOURS)
    cells.growth = s.line("Growth per month", 0.0, "share", "in_growth_per_month", "percent1",
                          "assumed", "", "of the requests per second; sheet Forecast",
                          may.MONTHLY, False)
    cells.price_cut = s.line("Price change per month", 0.0, "share", "in_price_change_per_month",
                             "percent1", "assumed", "", "of the price of a GPU-hour",
                             may.MONTHLY, False)


def _average(s: InputSheet, option: Row) -> None:
    """The average price of two kinds of GPU, by the fleet as it is."""
    hourly, gpus = number(option.get("usd_per_hour")), number(option.get("gpus"))
    if hourly is None or not gpus or not (s.plan.snapshot.get("model") or {}).get("record"):
        return
    s.line("Price, average", X("IF(gpus_1>0,hourly_1/gpus_1,0)", hourly / gpus),
           "USD per GPU-hour", "in_usd_per_gpu_hour", "price", "calculated", "",
           "over all GPUs of the recommended option; change the two prices above")


def _price_name(rank: int, option: Row, slugs: list[Any], slug: Any) -> str:
    """The contract's name where the option is the recommended one."""
    if len(slugs) == 1:
        return "in_usd_per_gpu_hour" if rank == 1 else "in_usd_per_gpu_hour_2"
    role = next(p.get("role") for p in option.get("pools") or [] if p.get("gpu") == slug)
    return f"in_{role}_usd_per_gpu_hour" + ("" if rank == 1 else "_2")


def _hardware(s: InputSheet, plan: Plan, place: int, gpu: Gpu, profile: EngineProfile,
              share: float | None) -> Hardware:
    """Specifications of a GPU and factors of an engine profile."""
    s.block(f"GPU {place}: {plan.gpu_name(gpu.slug)}")
    source = clean(gpu.source_url)
    cells: dict[str, X] = {}
    for name, label, unit, of in GPU_FIELDS:
        value = of(gpu)
        cells[name] = s.line(label, None if value is None else float(value), unit,
                             f"gpu{place}_{name}", "figure", source, "", "",
                             may.NUMBER_OR_NONE if value is None else may.POSITIVE)
    for peak, rate in sorted(gpu.peak_flop_per_s.items()):
        cells[f"{peak}_tflops"] = s.line(f"{peak.upper()} dense", float(rate) / 1e12, "TFLOP/s",
                                         f"gpu{place}_{peak}_tflops", "figure", source, "", "",
                                         may.POSITIVE)
    s.block(f"Engine {place}: {profile.slug}")
    engine: dict[str, X] = {}
    for name, label, unit, of in ENGINE_FIELDS:
        value = float(of(profile))
        if name == "memory_utilization" and share is not None:
            value = float(share)
        style = "percent1" if unit == "share" else "figure"
        engine[name] = s.line(label, value, unit, f"eng{place}_{name}", style,
                              clean(f"{profile.slug} ({profile.obtained})"), clean(profile.as_of),
                              clean(profile.source) if name == "mfu" else "",
                              _factor(name, unit))
    return Hardware(cells, engine)


def _factor(name: str, unit: str) -> Allowed:
    """What a factor of an engine profile may be."""
    if unit == "share":
        return may.SHARE
    return may.POSITIVE if unit == "factor" or name == "tile_tokens" else may.SIZE


def _tried(plan: Plan) -> Iterator[tuple[str, str]]:
    request = plan.request
    yield "Model", plan.model
    yield "GPUs", ", ".join(plan.gpu_name(g) for g in request.get("gpus") or [])
    yield "Set-ups", ", ".join(words.setup(s) for s in request.get("setups") or [])
    yield "Precisions", ", ".join(words.precision(p) or "what the model ships in"
                                  for p in request.get("precisions") or [])
    yield "Engine", clean(request.get("engine") or "")
    yield "Objective", f"lowest {words.spaced(request.get('objective'))}"
    yield "Commitment", words.spaced((request.get("pricing") or {}).get("commitment"))

