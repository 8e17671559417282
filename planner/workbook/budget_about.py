"""The About sheet of a budget: how to read it, its method, its columns, which budget it is."""

from __future__ import annotations

from planner import __version__
from planner.workbook.budget_grid import Live
from planner.workbook.layout import BOLD, Page, clean, lines, set_up

ABOUT = "About"
WIDTHS = (30, 100)
COLOURS = (
    ("Blue on yellow", "input: change it and months, GPUs and money follow", ("input",)),
    ("Black", "formula of the same sheet", ()),
    ("Green", "formula that takes from another sheet", ("link",)),
    ("Amber", "result of the engine: a workbook cannot make it again; the sheet Checks says when "
     "an edit made it stale", ("engine",)),
)
SHEETS = (
    ("Summary", "the answer on one page, with named results (out_…)"),
    ("Inputs", "inputs of the whole budget with named cells (in_…), scenarios, price steps"),
    ("GPU prices", "list and committed prices, GPUs owned, servers to buy"),
    ("Workloads", "rates, growth, seasons, lengths and targets, in the order of their fleets"),
    ("Launches", "months in which a workload's rate is multiplied"),
    ("Demand", "requests per second of every workload in every month"),
    ("Weights", "what a request weighs in its fleet as its tokens grow"),
    ("Layouts", "GPU, parallel layout, spares and regions of every fleet"),
    ("Capacity", "requests per second against replicas at those layouts"),
    ("Fleets", "load, replicas and GPUs in every month"),
    ("Cost", "GPUs, committed base and burst, amounts, energy and carbon in every month"),
    ("Buy or rent", "capital, depreciation and running cost of servers against rent"),
    ("Orders", "what must be ordered for each month, and by when"),
    ("Plan against actual", "room for what each month turned out to be"),
    ("Scenarios", "low, base and high, and questions, as the engine answered them"),
    ("Checks", "whether sums agree and what is stale"),
    ("Sized for", "lengths and targets of the sizing, to compare edits with"),
)
METHOD = (
    ("Demand", "rate × scenario × (1 + growth)^(months since start) × season × launches"),
    ("Load", "rates × weights, summed over the fleet, × mix factor × (1 + headroom), over the "
     "regions that are left when one fails"),
    ("Replicas", "from the capacity table, rounded up: the planner's own sizing at the layout of "
     "the fleet's busiest month; then spares and regions"),
    ("Committed base", "in each contract the largest demand whose on-demand cost over the "
     "months that use it is above the contract's price; the rest is burst"),
    ("Effective cost", "burst at the on-demand price, the committed base whether used or not, "
     "running cost of GPUs owned"),
    ("List, contracted cost", "the rented GPUs at list price; with the negotiated discount"),
    ("Breakage cost", "committed hours that nobody used, less resale; part of the effective cost"),
    ("Energy, carbon", "GPUs × board power × mean power × PUE × hours; × carbon intensity"),
    ("Owning", "servers are bought when a month needs more than stand, kept, and written off in a "
     "straight line to the residual value"),
    ("Break-even", "first month by whose end renting has cost as much as buying"),
)


def write_about(state: Live) -> None:
    """Fill the sheet."""
    page = Page(state.book.get_worksheet_by_name(ABOUT), state.styles)
    set_up(page, state.model.name or "Budget", ABOUT)
    page.widths(WIDTHS)
    page.write(0, 0, "About this budget", "heading")
    row = 2
    page.write(row, 0, "Colours", "heading")
    for name, told, style in COLOURS:
        row += 1
        page.write(row, 0, name, "cell", "text", *style)
        page.write(row, 1, told, "cell", "text")
    d = state.document
    blocks = (
        ("This budget", (("Budget id", d.get("id")), ("Created at (UTC)", d.get("created_at")),
                         ("Catalog as of", state.model.catalog_as_of),
                         ("Planner version", __version__))),
        ("Sheets", SHEETS), ("Method", METHOD),
        ("Assumptions", tuple((a["name"], f"{a['value']} {a['unit']} ({a['source']})")
                              for a in d["assumptions"])))
    for title, found in blocks:
        row += 2
        page.write(row, 0, title, "heading")
        for name, value in found:
            row += 1
            shown = clean(value or "n/a")
            page.write(row, 0, name, "cell", "text", "bold")
            page.write(row, 1, shown, "cell", "text")
            page.height(row, max(lines(shown, WIDTHS[1] - 1), lines(name, WIDTHS[0] - 1, BOLD)))
    page.sheet.freeze_panes(1, 0)
    page.sheet.print_area(0, 0, row, len(WIDTHS) - 1)
