"""A trace as a value: when each request arrived and how long it was."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidValue
from planner.wording import in_full

Array = NDArray[np.float64]
LEAST_REQUESTS = 3
"""Below this there is no second gap, so no burstiness."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of their arrival.

    Attributes
    ----------
    arrived_at_s : ndarray, shape (n,)
        [s] ascending, from 0.
    prompt_tokens, output_tokens : ndarray, shape (n,)
        [token] at least 1.
    format : str
        Whose column names it had, see :data:`planner.traces.columns.FORMATS`.
    skipped : int
        Rows without a token that were left out on request.
    """

    arrived_at_s: Array
    prompt_tokens: Array
    output_tokens: Array
    format: str = "plain"
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.arrived_at_s)

    @property
    def span_s(self) -> float:
        """Time from the first to the last arrival [s]."""
        return float(self.arrived_at_s[-1])

    def between(self, start_s: float, end_s: float) -> Trace:
        """The requests that arrive in ``[start_s, end_s)``, with times from ``start_s``.

        Raises
        ------
        InvalidValue
            When fewer than three requests are left.
        """
        first, last = np.searchsorted(self.arrived_at_s, [start_s, end_s])
        if last - first < LEAST_REQUESTS:
            raise InvalidValue(
                f"only {max(last - first, 0)} requests of the trace arrive between "
                f"{in_full(start_s)} and {in_full(end_s)} s; it lasts {in_full(self.span_s)} s and "
                f"at least {LEAST_REQUESTS} are needed",
                "/start_s")
        part = slice(int(first), int(last))
        return replace(self, arrived_at_s=self.arrived_at_s[part] - start_s,
                       prompt_tokens=self.prompt_tokens[part],
                       output_tokens=self.output_tokens[part])

    def faster(self, factor: float) -> Trace:
        """The same requests ``factor`` times as close together: the rate is that much higher."""
        return replace(self, arrived_at_s=self.arrived_at_s / factor)


def trace_of(arrived_at_s: Array, prompt_tokens: Array, output_tokens: Array,
             form: str = "plain", skipped: int = 0) -> Trace:
    """A trace from sorted columns; times are moved so that the first request arrives at 0.

    Raises
    ------
    InvalidValue
        Under three requests, or when all arrive at once.
    """
    if len(arrived_at_s) < LEAST_REQUESTS:
        raise InvalidValue(f"a trace needs at least three requests, not {len(arrived_at_s)}")
    if arrived_at_s[-1] <= arrived_at_s[0]:
        raise InvalidValue("all requests arrive at the same time, so the trace has no rate")
    return Trace(arrived_at_s - arrived_at_s[0], prompt_tokens, output_tokens, form, skipped)
