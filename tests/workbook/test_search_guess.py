"""Guessed rates of a search: those that a search one by one comes to, in a few rounds."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable

import numpy as np
import openpyxl
import pytest

from planner.workbook.fast import FastBook, settings
from planner.workbook.layout import lines
from planner.workbook.live.bins import bins
from planner.workbook.live.expr import x
from planner.workbook.live.guess import Guess
from planner.workbook.live.targets import FIRST_OCTAVES, OCTAVES, STEPS, Load

CEILING = 7.5


def one_by_one(highest: float, wanted: float) -> list[float]:
    """Rates of the search when each is asked after the one before it."""
    low, high = CEILING / 2.0**OCTAVES, CEILING
    rates = []
    for i in range(STEPS):
        rates.append(math.sqrt(low * high) if i else CEILING / 2.0**FIRST_OCTAVES)
        low, high = (rates[-1], high) if rates[-1] <= highest else (low, rates[-1])
    first = max(math.ceil(wanted / low - 1e-9), 1)
    fewer = max(first - 1, 1)
    return [*rates, wanted / fewer,
            wanted / (fewer if first > 1 and wanted / fewer <= highest else first)]


def searched(guess: Guess, holds: Callable[[float], bool], most_rounds: int
             ) -> tuple[list[float], int]:
    """The rates of the search, and how many were asked."""
    asked = 0
    for _ in range(most_rounds):
        rates = guess.rates()
        assert len(set(rates)) == len(rates)
        asked += len(rates)
        places = guess.learn(rates, [holds(r) for r in rates])
        if places is not None:
            return [rates[p] for p in places], asked
    return pytest.fail("no end")


@pytest.mark.parametrize("highest", [0.0, 0.003, 0.4, 0.95, 3.14, 7.4, 9.0])
@pytest.mark.parametrize("hint", [0.0, 1.0])
def test_the_rates_are_those_of_a_search_one_by_one(highest: float, hint: float) -> None:
    guess = Guess(CEILING, 40.0, hint)
    assert searched(guess, lambda r: r <= highest, 8)[0] == one_by_one(highest, 40.0)


@pytest.mark.parametrize("highest", [0.9998, 1.0, 1.0015, 1.0034])
@pytest.mark.parametrize("hint", [0.95, 0.998, 3.14, 7.4])
def test_a_rate_near_the_hint_is_found_in_one_round(highest: float, hint: float) -> None:
    guess = Guess(CEILING, 40.0, hint)
    rates, asked = searched(guess, lambda r: r <= highest * hint, 1)
    assert rates == one_by_one(highest * hint, 40.0)
    assert asked <= 2 * guess.width


@pytest.mark.parametrize("highest", [0.9, 0.985, 0.996, 1.0, 1.003, 1.02, 1.1])
@pytest.mark.parametrize("burstier", [1.0, 1.006, 1.02, 1.3, 3.0])
@pytest.mark.parametrize("hint", [0.01, 0.5, 2.9, 7.0])
def test_few_rounds_find_every_rate(highest: float, burstier: float, hint: float) -> None:
    guess = Guess(CEILING, 40.0, hint, burstier)
    rates, asked = searched(guess, lambda r: r <= highest * hint, 4)
    assert rates == one_by_one(highest * hint, 40.0)
    assert asked <= 6 * guess.width


def test_answers_without_order_end_all_the_same() -> None:
    """Rates that hold above some that do not: the search takes the answers as they come."""
    def holds(rate: float) -> bool:
        return rate < 0.5 or 1.0 < rate < 1.5

    rates, _ = searched(Guess(CEILING, 40.0, 2.0), holds, STEPS + 12)
    low, high = CEILING / 2.0**OCTAVES, CEILING
    for i, rate in enumerate(rates[:STEPS]):
        assert rate == (math.sqrt(low * high) if i else CEILING / 2.0**FIRST_OCTAVES)
        low, high = (rate, high) if holds(rate) else (low, rate)


def load_of(planned: float) -> Load:
    """The load of a plan of so many replicas."""
    return Load(x(1.0), x(0.8), x(1.0), x(1e6), planned=planned)


def test_a_large_fleet_is_searched_with_more_tries() -> None:
    assert load_of(0.0).steps == load_of(250.0).steps == STEPS
    assert load_of(251.0).steps == STEPS + 1
    for planned in (300, 2000, 30000):
        tries = load_of(float(planned)).steps
        width = 2.0 ** (FIRST_OCTAVES / 2.0 ** (tries - 1)) - 1.0
        assert 4 * planned * width < 1.02


def test_rows_of_batch_sizes_end_where_the_step_jumps() -> None:
    ends, widths = bins(512, 512.0, jumps=frozenset({3, 197, 320}))
    assert ends[0] == 1
    assert ends[-1] == 512
    assert (np.cumsum(widths) == ends).all()
    assert (widths[ends <= 64] == 1).all()
    assert {197, 320} <= set(ends)
    assert 197 not in bins(512, 512.0)[0]
    assert widths.max() <= 0.75 * math.sqrt(256)


def test_an_area_is_one_formula_with_the_value_of_each_cell() -> None:
    target = io.BytesIO()
    with FastBook(target, settings()) as book:
        sheet = book.add_worksheet("A")
        values = np.array([[1.5, 2.0], [0.25, -3.0]])
        sheet.put_number(0, 0, 7.0, book.add_format({}))
        sheet.reach(2, 2)
        sheet.add_area(1, 1, 'IF(A1<5,1%,"&")', book.add_format({}), np.zeros((2, 2)))
        sheet.add_area(1, 1, 'IF(A1<5,1%,"&")', book.add_format({}), values)
    with zipfile.ZipFile(target) as parts:
        xml = parts.read("xl/worksheets/sheet1.xml").decode()
    assert xml.count("IF(A1&lt;5,1%,") == 1
    read = openpyxl.load_workbook(io.BytesIO(target.getvalue()), data_only=True)["A"]
    assert [[read.cell(r, c).value for c in (2, 3)] for r in (2, 3)] == [[1.5, 0.25], [2, -3]]
    formulas = openpyxl.load_workbook(io.BytesIO(target.getvalue()))["A"]
    assert formulas["C3"].value == '=IF(B2<5,1%,"&")'


def test_a_wrapped_text_of_wide_letters_gets_all_its_lines() -> None:
    """As LibreOffice breaks it in a column of 68 characters."""
    text = ("vllm-ada-fp8 (assumed, 2026-11-30): L40S GEMM 0.82 bf16 and 0.63 fp8 of spec; stream "
            "0.87; memory: start-up logs of vLLM 0.19 on H100; moved as the fits on "
            "b200-sxm-180gb, mi300x, mi325x, mi355x, h100-sxm-80gb, h200-sxm-141gb moved")
    assert lines(text, 67.2) == 4
