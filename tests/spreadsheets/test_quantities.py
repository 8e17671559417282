"""What a cell says: numbers with units, shares, percentiles, dates; ambiguity is refused."""

from __future__ import annotations

import contextlib
import datetime
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.spreadsheets import quantities as q
from planner.spreadsheets.quantities import BadCell
from planner.spreadsheets.sheets import Cell


def cell(value: Any, **more: Any) -> Cell:
    return Cell("A1", value, **more)


@pytest.mark.parametrize(("quantity", "text", "expected"), [
    (q.MILLISECONDS, "50 ms", 50), (q.MILLISECONDS, "0.05 s", 50), (q.MILLISECONDS, "0.05s", 50),
    (q.MILLISECONDS, "< 500ms", 500), (q.MILLISECONDS, "≤ 1 sec", 1000),
    (q.MILLISECONDS, "50 000 ms", 50_000), (q.MILLISECONDS, "250 µs", 0.25),
    (q.SECONDS, "2 min", 120), (q.SECONDS, "500 ms", 0.5),
    (q.TOKENS, "1,000", 1000), (q.TOKENS, "1,234,567", 1_234_567), (q.TOKENS, "1'000", 1000),
    (q.TOKENS, "1 000", 1000), (q.TOKENS, "1\u00a0000 tokens", 1000), (q.TOKENS, " 2000 ", 2000),
    (q.TOKENS, "1,000.5", 1000.5), (q.TOKENS, "1e3", 1000), (q.TOKENS, "１２", 12),
    (q.TOKENS, "-5", -5), (q.TOKENS, "−5", -5), (q.TOKENS, ".5", 0.5),
    (q.PER_SECOND, "12 requests/s", 12), (q.PER_SECOND, "12 rps", 12),
    (q.PER_SECOND, "12 req per second", 12), (q.PER_SECOND, "720/min", 12),
    (q.PER_SECOND, "3.6k/h", 1), (q.PER_DAY, "50k/day", 50_000),
    (q.PER_DAY, "1.2M requests per day", 1_200_000), (q.PER_DAY, "500,000", 500_000),
    (q.DOLLARS, "$2.49", 2.49), (q.DOLLARS, "USD 2.49", 2.49), (q.DOLLARS, "2.49 USD/h", 2.49),
    (q.DOLLARS, "2.49 $ per GPU-hour", 2.49), (q.USERS, "300 users", 300),
])
def test_numbers(quantity: q.Quantity, text: str, expected: float) -> None:
    assert q.number_of(cell(text), quantity) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("quantity", "value", "words"), [
    (q.TOKENS, "1,5", r"more than one way \(is it 1.5\?\)"), (q.TOKENS, "1.500", "1500 or 1.5"),
    (q.TOKENS, "1.234.567", "more than one way"), (q.TOKENS, "1.000,5", "more than one way"),
    (q.TOKENS, "0,500", "more than one way"), (q.TOKENS, "1,00,000", "more than one way"),
    (q.TOKENS, "5 10", "more than one way"), (q.TOKENS, "2k", "1000 or 1024"),
    (q.TOKENS, "12 ms", "unknown unit 'ms'"), (q.TOKENS, "about 12", "must be a number"),
    (q.TOKENS, "12;13", "unknown unit"), (q.TOKENS, "3-5", "unknown unit"),
    (q.TOKENS, "", "must be a number"), (q.TOKENS, True, "must be a number"),
    (q.TOKENS, datetime.datetime(2026, 1, 2), "is a date or a time"),
    (q.TOKENS, datetime.time(1, 2), "is a date or a time"), (q.TOKENS, math.inf, "too large"),
    (q.TOKENS, "9" * 400, "too large"), (q.TOKENS, 10**400, "too large"),
    (q.DOLLARS, "2.49 €", "unknown unit"), (q.PER_SECOND, "5 /day", "unknown unit"),
    (q.MILLISECONDS, "50 m", "unknown unit"), (q.PER_SECOND, "5 m", "unknown unit"),
])
def test_refused_numbers(quantity: q.Quantity, value: Any, words: str) -> None:
    with pytest.raises(BadCell, match=words):
        q.number_of(cell(value), quantity)


def test_a_bare_number_has_the_unit_of_its_header() -> None:
    assert q.number_of(cell(0.5), q.MILLISECONDS, "s") == 500
    assert q.number_of(cell("50 ms"), q.MILLISECONDS, "s") == 50
    with pytest.raises(BadCell, match="needs its unit"):
        q.number_of(cell(0.5), q.MILLISECONDS, None)
    assert q.number_of(cell("0.5 s"), q.MILLISECONDS, None) == 500


def test_a_percentage_is_no_number() -> None:
    with pytest.raises(BadCell, match="percentage"):
        q.number_of(cell(0.5, percent=True), q.TOKENS)


def test_what_could_not_be_calculated() -> None:
    for reader in (q.share_of, q.percentile_of, q.date_of, q.text_of,
                   lambda c: q.number_of(c, q.TOKENS)):
        with pytest.raises(BadCell, match="never calculated"):
            reader(cell(None, fault="was never calculated"))


@pytest.mark.parametrize(("value", "percent", "expected"), [
    ("80%", False, 0.8), ("80 %", False, 0.8), (0.8, False, 0.8), ("0.8", False, 0.8),
    (0.8, True, 0.8), (1, False, 1.0), (0, False, 0.0), ("12.5 percent", False, 0.125)])
def test_shares(value: Any, percent: bool, expected: float) -> None:
    assert q.share_of(cell(value, percent=percent)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("value", "percent", "words"), [
    (80, False, "may be 80% or a mistake"), ("80", False, "may be 80%"),
    (8000, False, "0% to 100%"), (80, True, "0% to 100%, not 8000%"),
    ("150%", False, "0% to 100%"), (-0.1, False, "0% to 100%"),
    ("0,8", False, "more than one way"), ("some", False, "must be a number"),
    (True, False, "no number"), ("5 ms", False, "unknown unit")])
def test_refused_shares(value: Any, percent: bool, words: str) -> None:
    with pytest.raises(BadCell, match=words):
        q.share_of(cell(value, percent=percent))


@pytest.mark.parametrize(("value", "percent", "expected"), [
    (90, False, 90), ("90", False, 90), ("p90", False, 90), ("P99.9", False, 99.9),
    ("90%", False, 90), (0.9, True, 90), ("95th percentile", False, 95)])
def test_percentiles(value: Any, percent: bool, expected: float) -> None:
    assert q.percentile_of(cell(value, percent=percent)) == pytest.approx(expected)


def test_a_percentile_below_one_is_ambiguous() -> None:
    with pytest.raises(BadCell, match=r"may be 0\.9% or 90%"):
        q.percentile_of(cell(0.9))


@pytest.mark.parametrize(("value", "expected"), [
    (datetime.datetime(2026, 11, 3, 10), "2026-11-03"), (datetime.date(2026, 11, 3), "2026-11-03"),
    ("2026-11-03", "2026-11-03"), ("2026/11/3", "2026-11-03"), ("2026-11", "2026-11"),
    ("2026", "2026"), (2026, "2026"), (2026.0, "2026"), ("2026-H2", "2026-H2"),
    ("3 Nov 2026", "2026-11-03"), ("Nov 2026", "2026-11"), ("November 3, 2026", "2026-11-03"),
    ("3.11.2026", "2026-11-03"), ("25/12/2026", "2026-12-25"), ("12/25/2026", "2026-12-25"),
    ("2026-11-03T10:00:00Z", "2026-11-03")])
def test_dates(value: Any, expected: str) -> None:
    assert q.date_of(cell(value)) == expected


@pytest.mark.parametrize("value", ["03/11/2026", "2026-13-01", "2026-02-30", "tomorrow", 45_000,
                                   45_000.5, True, datetime.time(1), "3 Foo 2026", "32.1.2026"])
def test_refused_dates(value: Any) -> None:
    with pytest.raises(BadCell, match="date"):
        q.date_of(cell(value))


def test_choices() -> None:
    words = {q.spelled(w): w for w in ("on_demand", "spot")}
    assert q.choice_of(cell("On-Demand"), words, "commitment") == "on_demand"
    assert q.choices_of(cell("spot; on demand,spot"), words, "commitment") == ["spot", "on_demand"]
    with pytest.raises(BadCell, match="is no commitment; allowed: on_demand, spot"):
        q.choice_of(cell("gratis"), words, "commitment")
    with pytest.raises(BadCell, match="names no commitment"):
        q.choices_of(cell(" , "), words, "commitment")


@given(st.floats(min_value=0, max_value=1e15, allow_subnormal=False))
def test_any_number_comes_back_from_its_cell(value: float) -> None:
    assert q.number_of(cell(value), q.TOKENS) == value
    assert q.number_of(cell(repr(value), decimal_point=True), q.TOKENS) == value


@given(st.integers(0, 10**12))
def test_thousands_separators_change_nothing(value: int) -> None:
    for text in (f"{value:,}", f"{value:_}".replace("_", " "), str(value)):
        assert q.number_of(cell(text), q.TOKENS) == value


@example(math.inf)
@example(math.nan)
@example(10**400)
@given(st.text(max_size=30) | st.floats() | st.integers() | st.booleans() | st.datetimes())
def test_any_cell_is_read_or_refused(value: Any) -> None:
    readers = [q.share_of, q.percentile_of, q.date_of, q.text_of,
               *(lambda c, k=kind: q.number_of(c, k) for kind in (  # type: ignore[misc]
                   q.TOKENS, q.MILLISECONDS, q.PER_DAY, q.DOLLARS, q.PER_SECOND))]
    for reader in readers:
        with contextlib.suppress(BadCell):
            found = reader(cell(value))
            assert isinstance(found, str) or math.isfinite(found)
