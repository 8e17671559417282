"""Cells as numbers with units, shares, choices, lists and dates; strict where two readings exist.

Every reader takes a :class:`~planner.spreadsheets.sheets.Cell` and gives the value in the unit
of the API, or raises :class:`BadCell` with what was wrong and what is allowed.
"""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.api.fields import shown
from planner.spreadsheets.sheets import Cell, is_date


class BadCell(ValueError):
    """A cell that cannot be read; the message says why and what is allowed."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A kind of number.

    Attributes
    ----------
    units : mapping
        Words for units, lower case, to their size in the unit of the API.
    example : str
        How to write one.
    suffixes : bool
        Whether ``k`` and ``M`` may stand for thousand and million.
    """

    units: Mapping[str, float]
    example: str
    suffixes: bool = False


_SECONDS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
            "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
            "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
            "ms": 0.001, "msec": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
            "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "microseconds": 1e-6}
_MILLISECONDS = {word: size * 1000.0 for word, size in _SECONDS.items()}
_PER_SECOND = {"/s": 1.0, "/sec": 1.0, "/second": 1.0, "1/s": 1.0, "rps": 1.0, "qps": 1.0,
               "/min": 1 / 60, "/minute": 1 / 60, "rpm": 1 / 60, "qpm": 1 / 60,
               "/h": 1 / 3600, "/hour": 1 / 3600}
_PER_DAY = {"/d": 1.0, "/day": 1.0, "1/d": 1.0, "1/day": 1.0, "/month": 12 / 365,
            "/week": 1 / 7, "/year": 1 / 365}
_DOLLARS = {"usd": 1.0, "$": 1.0, "us$": 1.0, "usd/h": 1.0, "$/h": 1.0, "usd/hour": 1.0,
            "$/hour": 1.0, "usd/hr": 1.0, "$/hr": 1.0, "usd/gpu-hour": 1.0, "usd/gpu-h": 1.0,
            "$/gpu-hour": 1.0, "usd/gpu/h": 1.0}
MILLISECONDS = Quantity(_MILLISECONDS, "500 ms or 0.5 s")
SECONDS = Quantity(_SECONDS, "20 s or 2 min")
TOKENS = Quantity({"token": 1.0, "tokens": 1.0, "tok": 1.0, "toks": 1.0}, "2000")
PER_SECOND = Quantity(_PER_SECOND, "12 /s or 720 /min", True)
PER_DAY = Quantity(_PER_DAY, "500000 /day", True)
DOLLARS = Quantity(_DOLLARS, "2.49 or 2.49 USD")
USERS = Quantity({"user": 1.0, "users": 1.0}, "300", True)
PLAIN = Quantity({}, "4")

_NUMBER = re.compile(r"(?P<sign>[-+]?)(?P<digits>\d[\d.,' ’]*|\.\d+)(?P<exp>[eE][-+]?\d+)?")
_GROUPED = re.compile(r"\d{1,3}(?P<mark>[,' ’])\d{3}(?:(?P=mark)\d{3})*(?:\.\d+)?")
_POINTED = re.compile(r"[1-9]\d{0,2}\.\d{3}")
_SUFFIX = {"k": 1e3, "K": 1e3, "M": 1e6, "million": 1e6, "mio": 1e6, "thousand": 1e3}


def text_of(cell: Cell) -> str:
    """A cell's text on one line, in compatibility form; numbers as they are written.

    Raises
    ------
    BadCell
    """
    value = _sound(cell)
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_date(value):
        raise BadCell(f"is a date or a time ({value}); text is needed. Set the cell's format to "
                      "text and type it again")
    if isinstance(value, float) and abs(value) < 1e15 and value == int(value):
        value = int(value)
    return str(value).strip()


def number_of(cell: Cell, quantity: Quantity, unit: str | None = "") -> float:
    """A number in the unit of the API.

    Parameters
    ----------
    unit : str or None
        Unit that a bare number in the column has: one of ``quantity.units``; ``""`` for the
        API's own; None where the header names none, so that the cell must.

    Raises
    ------
    BadCell

    Examples
    --------
    >>> number_of(Cell("A1", "0.05 s"), MILLISECONDS)
    50.0
    >>> number_of(Cell("A1", "1,000"), TOKENS)
    1000.0
    """
    value = _sound(cell)
    if isinstance(value, bool):
        raise BadCell(f"must be a number such as {quantity.example}, not {shown(value)}")
    if is_date(value):
        raise BadCell(f"is a date or a time ({value}); the spreadsheet program may have taken the "
                      f"number for one. Write it such as {quantity.example}")
    if isinstance(value, int | float):
        if cell.percent:
            raise BadCell(f"is a percentage; a number such as {quantity.example} is needed")
        number, word = _finite(value), ""
    else:
        number, word = split_number(value, quantity.example, cell.decimal_point)
    size = _size(word, quantity, unit)
    return number if size == 1.0 else _clean(number * size)


def share_of(cell: Cell) -> float:
    """A share from 0 to 1: ``80%`` in any form, or ``0.8``; a bare 80 may be either.

    Raises
    ------
    BadCell
    """
    allowed = "write a percentage such as 80% or a share from 0 to 1 such as 0.8"
    value, percent = _plain_number(cell, allowed)
    if percent:
        value = value if cell.percent else value / 100.0
        if not 0.0 <= value <= 1.0:
            raise BadCell(f"must be 0% to 100%, not {value * 100:g}%")
        return _clean(value)
    if 1.0 < value <= 100.0:
        raise BadCell(f"{value:g} may be {value:g}% or a mistake; {allowed}")
    if not 0.0 <= value <= 1.0:
        raise BadCell(f"must be 0% to 100%, not {value:g}; {allowed}")
    return value


def percentile_of(cell: Cell) -> float:
    """A percentile such as 90: ``90``, ``90%``, ``p90``.

    Raises
    ------
    BadCell
    """
    allowed = "write a percentile such as 90, p90 or 90%"
    if isinstance(cell.value, str) and not cell.fault:
        text = re.sub(r"^p(?=\d)|(?<=\d)(th|st|nd|rd)\b.*$", "", cell.value.strip().lower())
        cell = Cell(cell.place, text, decimal_point=True)
    value, percent = _plain_number(cell, allowed)
    if percent:
        return _clean(value * 100.0 if cell.percent else value)
    if 0.0 < value <= 1.0:
        raise BadCell(f"{value:g} may be {value:g}% or {value * 100:g}%; {allowed}")
    return value


def choice_of(cell: Cell, choices: Mapping[str, str], noun: str) -> str:
    """One of some words, by any of their names (see :func:`spelled`).

    Raises
    ------
    BadCell
    """
    return _chosen(text_of(cell), choices, noun)


def choices_of(cell: Cell, choices: Mapping[str, str], noun: str) -> list[str]:
    """Several words, separated by commas, semicolons, ``+`` or line breaks, each once.

    Raises
    ------
    BadCell
    """
    parts = [p.strip() for p in re.split(r"[,;+\n]", text_of(cell)) if p.strip()]
    if not parts:
        raise BadCell(f"names no {noun}")
    return list(dict.fromkeys(_chosen(p, choices, noun) for p in parts))


def date_of(cell: Cell) -> str:
    """A date as ISO 8601, as exact as it is given: a day, a month, a half-year or a year.

    Raises
    ------
    BadCell
    """
    value = _sound(cell)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    allowed = "write a date as 2026-11-03, 2026-11 or 2026"
    if isinstance(value, bool) or is_date(value):
        raise BadCell(f"is no date; {allowed}")
    if isinstance(value, int | float):
        if 1990 <= value <= 2100 and value == int(value):
            return str(int(value))
        raise BadCell(f"{shown(value)} is no date; {allowed}")
    found = _date_text(value.strip())
    if found is None:
        raise BadCell(f"{shown(value)} is no date that can be read in one way only; {allowed}")
    return found


def spelled(text: str) -> str:
    """A word without case, spaces, hyphens and underscores, to compare spellings.

    Examples
    --------
    >>> spelled("On-Demand") == spelled("on_demand")
    True
    """
    return re.sub(r"[\s_\-–.]+", "", unicodedata.normalize("NFKC", text).casefold())


def split_number(text: str, example: str, decimal_point: bool = False) -> tuple[float, str]:
    """A number at the beginning of a text, and the rest.

    Parameters
    ----------
    decimal_point : bool
        Whether ``1.500`` can only be one and a half.

    Raises
    ------
    BadCell
        Also for what may be read in two ways: ``1,5``, ``1.500``.
    """
    plain = unicodedata.normalize("NFKC", text).replace("−", "-").strip()
    plain = re.sub(r"^(<=|≤|<)\s*", "", plain)
    plain = re.sub(r"^(US\$|\$|USD)\s*(?=[\d.])", "", plain, flags=re.IGNORECASE)
    match = _NUMBER.match(plain)
    if match is None:
        raise BadCell(f"must be a number such as {example}, not {shown(text)}")
    digits = match["digits"].rstrip(" ,'’.")
    rest = plain[match.start("digits") + len(digits):]
    if match["exp"] and len(digits) == len(match["digits"]):
        rest = plain[match.end():]
        digits += match["exp"]
    rest = rest.strip()
    if not re.match(r"[\d.,]", rest):
        number = _digits(digits, text, decimal_point)
        return (-number if match["sign"] == "-" else number), rest
    raise BadCell(f"must be one number such as {example}, not {shown(text)}")


def _digits(digits: str, text: str, decimal_point: bool) -> float:
    mantissa = re.split("[eE]", digits)[0]
    if re.fullmatch(r"\d*\.?\d+", mantissa):
        if _POINTED.fullmatch(mantissa) and not decimal_point:
            whole = mantissa.replace(".", "")
            raise BadCell(f"{shown(text)} may be {whole} or {float(mantissa):g}; write it without "
                          "a thousands separator")
        return _finite(float(digits))
    if _GROUPED.fullmatch(mantissa) and not mantissa.startswith("0"):
        return _finite(float(re.sub(r"[,' ’]", "", digits)))
    guess = f" (is it {mantissa.replace(',', '.')}?)" if re.fullmatch(r"\d+,\d+", mantissa) else ""
    raise BadCell(f"{shown(text)} may be read in more than one way{guess}; write decimals with a "
                  "point and no thousands separators")


# -- parts of the readers -----------------------------------------------------------------------


def _sound(cell: Cell) -> Any:
    if cell.fault:
        raise BadCell(cell.fault)
    return cell.value


def _finite(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadCell("is too large a number")
    return number


def _clean(value: float) -> float:
    """A converted number without the last digits that conversion adds: 0.05 s is 50 ms."""
    return float(f"{value:.14g}") if math.isfinite(value) else _finite(value)


def _size(word: str, quantity: Quantity, unit: str | None) -> float:
    """What one of a unit counts in the unit of the API."""
    factor = 1.0
    for suffix, size in _SUFFIX.items():
        if word.startswith(suffix) and not word[len(suffix):len(suffix) + 1].isalpha():
            if not quantity.suffixes:
                break
            factor, word = size, word[len(suffix):].strip()
            break
    key = _unit_word(word)
    if key == "":
        if unit is None:
            raise BadCell(f"needs its unit, because the header names none; write it such as "
                          f"{quantity.example}")
        return factor * (quantity.units[unit] if unit else 1.0)
    if key in quantity.units:
        return factor * quantity.units[key]
    if quantity is TOKENS and key in ("k", "k tokens", "k tok"):
        raise BadCell("ends in k, which may be 1000 or 1024 tokens; write the number in full")
    raise BadCell(f"has the unknown unit {shown(word)}; write it such as {quantity.example}")


def _unit_word(word: str) -> str:
    """A unit in its short form: ``requests per second`` is ``/s``."""
    key = unicodedata.normalize("NFKC", word).strip().rstrip(".").lower()
    key = re.sub(r"\bper\b", "/", key)
    key = re.sub(r"^(requests?|reqs?|r|queries|calls)\s*(?=/)", "", key)
    key = re.sub(r"\s*([/-])\s*", r"\1", key)
    return re.sub(r"^/second(s)?$", "/s", key)


def unit_named(word: str, quantity: Quantity) -> str | None:
    """The unit that a header names, as a key of the quantity's units; None for another word."""
    key = _unit_word(word)
    return key if key in quantity.units else None


def _plain_number(cell: Cell, allowed: str) -> tuple[float, bool]:
    """A number and whether it was given as a percentage."""
    value = _sound(cell)
    if isinstance(value, bool) or is_date(value):
        raise BadCell(f"is no number; {allowed}")
    if isinstance(value, int | float):
        return _finite(value), cell.percent
    number, word = split_number(value, "80%", cell.decimal_point)
    if word.lower() in ("%", "percent", "per cent", "pct"):
        return number, True
    if word:
        raise BadCell(f"has the unknown unit {shown(word)}; {allowed}")
    return number, False


def _chosen(text: str, choices: Mapping[str, str], noun: str) -> str:
    found = choices.get(spelled(text))
    if found is not None:
        return found
    words: Sequence[str] = list(dict.fromkeys(choices.values()))
    listed = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
    raise BadCell(f"{shown(text)} is no {noun}; allowed: {listed}")


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _date_text(text: str) -> str | None:
    """A written date in ISO form, None where it is none or may be two."""
    if match := re.fullmatch(r"(\d{4})(?:[-/.](\d{1,2})(?:[-/.](\d{1,2}))?)?(?:[T ].*)?", text):
        return _iso(*match.groups())
    if match := re.fullmatch(r"(\d{4})[- ]?H([12])", text, re.IGNORECASE):
        return f"{match[1]}-H{match[2]}"
    if match := re.fullmatch(r"(?:(\d{1,2})\.?\s+)?([A-Za-z]{3,9})\.?,?\s+(\d{4})", text):
        return _iso(match[3], _month(match[2]), match[1])
    if match := re.fullmatch(r"([A-Za-z]{3,9})\.?\s+(\d{1,2}),?\s+(\d{4})", text):
        return _iso(match[3], _month(match[1]), match[2])
    if match := re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{4})", text):
        return _iso(match[3], match[2], match[1])  # points: the day comes first everywhere
    if match := re.fullmatch(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})", text):
        first, second = int(match[1]), int(match[2])
        if first > 12 >= second:
            return _iso(match[3], match[2], match[1])
        if second > 12 >= first or first == second:
            return _iso(match[3], match[1], match[2])
    return None


def _month(word: str) -> str | None:
    return next((str(i) for i, m in enumerate(_MONTHS, 1) if word.lower().startswith(m)), "0")


def _iso(year: str, month: str | None, day: str | None) -> str | None:
    try:
        full = datetime.date(int(year), int(month or 1), int(day or 1))
    except ValueError:
        return None
    return full.isoformat()[:10 if day else 7 if month else 4]
