"""Workloads that are served in some months only: those whose GPUs stay within ``max_gpus``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.budget.demand import spike_factor
from planner.budget.inputs import Spike
from planner.budget.model import BudgetModel, Unserved, WorkloadLine
from planner.budget.months import length_factors, pool_months, workload_rates
from planner.wording import gpus as gpus_text


def served_months(model: BudgetModel, i: int, max_gpus: int) -> WorkloadLine:
    """A workload that has a fleet of its own, without the months that take too many GPUs.

    Counted as the months of the budget are, in the base scenario, so that these and the workbook
    agree. The last months are cut off; those in between get a rate of 0 by a launch that takes
    away all of it.
    """
    line = model.workloads[i]
    assert line.fleet is not None
    fleet, base = model.fleets[line.fleet], model.scenarios[model.base]
    rates, factors = np.zeros((2, len(model.workloads), model.months))
    rates[i] = workload_rates(line, model, base)
    factors[i] = length_factors(line, model.months)
    gpus = np.sum([pool_months(model, fleet, p, model.base, rates, factors).gpus
                   for p in range(len(fleet.pools))], axis=0)
    over = [m + 1 for m in range(model.months) if gpus[m] > max_gpus]
    served = [m + 1 for m in range(model.months) if rates[i, m] > 0.0 and gpus[m] <= max_gpus]
    if not over or not served:
        return line
    unserved = tuple(Unserved(m, int(gpus[m - 1]), int(gpus[m - 1]) - max_gpus) for m in over)
    between = [m for m in over if m < served[-1]]
    told = [f"month{'s' if len(over) > 1 else ''} {in_words(over)}: up to "
            f"{gpus_text(max(u.gpus for u in unserved), ',')}, "
            f"{max(u.short for u in unserved):,} more than max_gpus ({max_gpus:,})"]
    if line.reason and line.reason.startswith("from month"):
        told.append(line.reason)
    return replace(line, ends_month=served[-1], spikes=(*line.spikes, *_closed(
        line, between, model.months)), unserved=unserved, reason="; ".join(told))


def _closed(line: WorkloadLine, months: Sequence[int], last: int) -> list[Spike]:
    """Launches that take the rate of some months to 0."""
    factors = spike_factor(line.spikes, last)
    return [Spike(m, 1.0 - float(factors[m - 1]), 1) for m in months]


def in_words(months: Sequence[int]) -> str:
    """Months as ranges.

    Examples
    --------
    >>> in_words([3, 4, 5, 9])
    '3 to 5, 9'
    """
    runs: list[list[int]] = []
    for m in months:
        if runs and m == runs[-1][-1] + 1:
            runs[-1].append(m)
        else:
            runs.append([m])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)
