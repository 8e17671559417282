"""What may be typed into an input: the validation of its cell, and the same as a formula.

Spreadsheet programs check only what is typed, not what is pasted or filled in; so each input has a
cell that says whether it is allowed, and one with what is calculated with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.workbook.live.expr import X, words, x

NONE = "n/a"
"""What stands for no figure in an input that may be without one."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The numbers that an input may hold.

    Attributes
    ----------
    low, high : float
    above : bool
        Whether ``low`` itself is not allowed.
    title, text : str
        Of the messages of the spreadsheet program.
    whole : bool
        Whole numbers alone.
    optional : bool
        Whether ``n/a`` (or an empty cell) is allowed too.
    """

    low: float
    high: float
    title: str
    text: str
    above: bool = False
    whole: bool = False
    optional: bool = False

    def test(self, cell: X, first: float | str | None = None) -> X:
        """Whether the cell may be calculated with; what it held ``first`` always may, text and
        errors never."""
        at = cell.text
        tests = [f"{at}{'>' if self.above else '>='}{x(self.low).text}",
                 f"{at}<={x(self.high).text}"]
        if self.whole:
            tests.append(f"INT({at})={at}")
        number = f"AND({','.join(tests)})"
        if isinstance(first, int | float):
            number = f"OR({at}={x(first).text},{number})"
        other = f'IF(ISERROR({at}),FALSE,OR({at}="",{at}="{NONE}"))' if self.optional else "FALSE"
        return X(f"IF(ISNUMBER({at}),{number},{other})", 1.0)

    def validation(self, place: str) -> dict[str, Any]:
        """The data validation of the cell at a place."""
        told = {"input_title": self.title[:32], "input_message": self.text[:255],
                "error_title": "Not allowed", "error_message": self.text[:255]}
        if self.optional:
            return {"validate": "custom", "value": f"={self.test(X(place, 0.0)).text}", **told}
        low = self.low if not self.above else max(self.low, 1e-12)
        return {"validate": "integer" if self.whole else "decimal", "criteria": "between",
                "minimum": low, "maximum": self.high, **told}


def used(cell: X, test: X, otherwise: Any) -> X:
    """What is calculated with: the cell where it is allowed, else something that calculates."""
    other = otherwise if isinstance(otherwise, X) else words(
        otherwise) if isinstance(otherwise, str) else x(otherwise)
    return X(f"IF({test.text},{cell.text},{other.text})", cell.value)


SHARE = Allowed(0.0, 1.0, "A share", "A number above 0, at most 1 (100 %).", above=True)
POSITIVE = Allowed(0.0, 1e15, "A positive number", "A number above 0.", above=True)
RATE = Allowed(0.0, 1e9, "A positive number", "A number above 0.", above=True)
SIZE = Allowed(0.0, 1e15, "A number", "A number, 0 or more.")
NUMBER_OR_NONE = Allowed(0.0, 1e15, "A positive number", "A number above 0, or n/a.", above=True,
                         optional=True)
PRICE = Allowed(0.0, 1e6, "A price", "A number, 0 or more.")
PRICE_OR_NONE = Allowed(0.0, 1e6, "A price", "A number, 0 or more, or n/a.", optional=True)
TARGET = Allowed(0.0, 1e9, "A target", "Milliseconds above 0, or n/a for no target.", above=True,
                 optional=True)
LEVEL = Allowed(1.0, 99.99, "Percentile", "Per cent of the requests, 1 to 99.99.")
HITS = Allowed(0.0, 0.999999, "Prefix-cache hit rate", "From 0 to below 1.")
CV = Allowed(0.0, 100.0, "Arrival CV", "0 or more; 1 is Poisson.")
UTILIZATION = Allowed(0.0, 1.0, "Target utilisation", "Above 0, at most 1.", above=True)
SPARES = Allowed(0.0, 100_000.0, "A whole number", "A whole number from 0.", whole=True)
REGIONS = Allowed(1.0, 1000.0, "A whole number", "A whole number from 1.", whole=True)
GPUS = Allowed(1.0, 1e6, "A whole number", "A whole number from 1.", whole=True)
MEAN_TOKENS = Allowed(1.0, 1e7, "Mean length", "At least 1 token.")
P95_TOKENS = Allowed(1.0, 4e7, "95th percentile", "From the mean to 3.87 times the mean.")
HOURS = Allowed(0.0, 744.0, "Hours", "Above 0, at most 744.", above=True)
MONTHLY = Allowed(-0.9, 5.0, "Change per month", "-90 % to 500 % a month.")
