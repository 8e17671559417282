"""The About sheet: how to read the workbook, units, method, and which plan this is."""

from __future__ import annotations

from collections.abc import Iterator

from planner import __version__
from planner.units import HOURS_PER_MONTH
from planner.workbook.layout import BOLD, Page, clean, lines, set_up
from planner.workbook.plan import Plan

NAME = "About"
WIDTHS = (26, 92)
SHEETS = (
    ("Summary", "the answer on one page, with named result cells (out_…) and the master check"),
    ("Inputs", "what can be changed, in named cells (in_…): workload, targets, fleet, prices, "
     "growth, GPUs, engine factors"),
    ("Options", "every option, those that hold the targets first, then the best; the first two "
     "calculate"),
    ("Operating points 1, 2", "the recommended option and the runner-up, worked out from the "
     "lengths to the latencies; the search for the replicas stands to the right of the tables"),
    ("Fleet & cost", "replicas, GPUs, nodes, power and money of the two options"),
    ("Forecast", "the same by month, with growth and price change"),
    ("Sensitivity", "GPUs and money by rate, target utilisation, spares and price"),
    ("Memory", "where the memory of one GPU of each pool goes"),
    ("Catalog", "the model, GPUs, prices and engine profiles used"),
    ("Checks", "what must hold, and which inputs changed since the plan was made"),
    ("Advice", "what each lever would change, every one planned again by the engine"),
    ("Pools", "the pools of each option: layout, replicas, batch, capacity"),
    ("Latencies", "mean and percentiles of each latency of each option"),
    ("Infeasible", "combinations that cannot work, with the shortfall"),
    ("Assumptions", "every factor behind the numbers, with its source"),
)
LEGEND = (
    ("Blue on yellow", "an input: type another value", ("input",)),
    ("Black", "a formula", ()),
    ("Green", "a link to a cell of another sheet", ("link",)),
    ("Grey, italic", "a result of the engine: it stays as it is when an input changes, and the "
     "sheet Checks then calls it stale", ("engine",)),
    ("Red", "a target missed, or a check that fails", ()),
)
UNITS = (
    ("GB, GB/s", "10⁹ bytes: bandwidth, links, memory as sold"),
    ("GiB", "2³⁰ bytes = 1.074 GB: memory as drivers and engines report it"),
    ("TFLOP/s", "10¹² floating-point operations a second, dense (without sparsity)"),
    ("ms, 1/s", "milliseconds; requests a second"),
    ("USD per month", f"a month is {HOURS_PER_MONTH:g} hours"),
    ("p90", "90 of 100 requests are at least this good"),
)
TERMS = (
    ("TTFT", "time to first token, from arrival at the server to the first token of the answer"),
    ("TPOT", "time per output token after the first, averaged over one answer"),
    ("TP2, PP2, EP8, DP8", "degrees of tensor, pipeline, expert and data parallelism of a replica"),
    ("Replica", "one copy of the model on one or more GPUs; spares are kept for failures"),
    ("Headroom", "share of a target that is left: 0 % is at the limit"),
    ("MFU, MBU", "share of the GPU's peak compute, and of its memory bandwidth, that is used"),
    ("KV pool", "memory left for the cache of running requests; negative: this much too little"),
    ("Static batches", "fixed batches: the next starts when the longest answer is done"),
    ("Colocated", "prompts and answers on the same GPUs; a new prompt interrupts the answers"),
    ("Chunked prefill", "the same, but prompts are worked off in pieces between the tokens"),
    ("Disaggregated", "one pool of GPUs for prompts, another for answers; the cache moves across"),
)
METHOD = (
    "1. The time of one engine step follows from the work of every layer: the longer of compute "
    "time and memory time, plus communication and fixed overheads.",
    "2. The factors between peak and reality come from the engine profile (sheet Assumptions).",
    "3. Memory: what weights, activations and runtime leave free is the pool for the KV cache; it "
    "bounds how many requests run at once.",
    "4. For each batch size this gives a rate, a time per token and a use of memory: an operating "
    "point.",
    "5. A queueing model reads from these points how often each batch size occurs, how long "
    "requests wait, and the percentiles of every latency.",
    "6. The capacity of a replica is the highest rate at which every target still holds.",
    "7. Replicas = rate / (capacity × target utilisation), rounded up, plus spares; then whole "
    "nodes.",
    "8. Cost = GPUs × price per GPU-hour; a month has 730 hours. The price is the lower median of "
    "the providers' cheapest fitting rows, those whose instances hold a replica.",
    "9. Options are ranked by the objective; each lever is planned again from the start.",
    "10. The range of GPUs shows the answer if step times are off by the error of the profile.",
)


def write(page: Page, plan: Plan) -> None:
    """Fill the sheet."""
    set_up(page, plan.name, NAME, pages_high=1)
    page.sheet.set_portrait()
    page.widths(WIDTHS)
    page.write(0, 0, "About this workbook", "heading")
    page.sheet.freeze_panes(1, 0)
    row = 2
    page.write(row, 0, "Colours", "heading")
    for name, text, style in LEGEND:
        row += 1
        page.write(row, 0, name, "cell", "text", *style)
        page.write(row, 1, text, "cell", "text")
        page.height(row, lines(text, WIDTHS[1]))
    row += 2
    for title, found in _blocks(plan):
        page.write(row, 0, title, "heading")
        row += 1
        for name, text in found:
            _line(page, row, name, text)
            row += 1
        row += 1
    page.sheet.print_area(0, 0, row - 2, len(WIDTHS) - 1)


def _line(page: Page, row: int, name: str, text: str) -> None:
    page.write(row, 0, name, "cell", "text", "bold")
    page.write(row, 1, text, "cell", "text")
    page.height(row, max(lines(text, WIDTHS[1]), lines(name, WIDTHS[0], BOLD)))


def _blocks(plan: Plan) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    yield "This plan", _identity(plan)
    yield "How to read it", [
        ("It calculates", "change an input and every figure of the two options follows, down to "
         "GPUs, nodes and money, at their layout; a figure equals a new plan's to 0.5 %"),
        ("Engine results", "the choice of layout, precision and batch packing, other options, "
         "advice, ranges and confidence: plan again for those"),
        ("n/a or blank", "not known, or does not apply")]
    yield "Sheets", list(SHEETS)
    yield "Units", list(UNITS)
    yield "Terms", list(TERMS)
    yield "Method", [("" if i else "In ten lines", text) for i, text in enumerate(METHOD)]


def _identity(plan: Plan) -> list[tuple[str, str]]:
    document = plan.document
    rows = [("Name", plan.name), ("Plan id", document.get("id")),
            ("Created at (UTC)", document.get("created_at")),
            ("Catalog as of", document.get("catalog_as_of")),
            ("Planner version", __version__)]
    return [(name, clean(value or "n/a")) for name, value in rows]
