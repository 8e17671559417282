"""Documents with far too much in them are refused before much is read of them."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from planner.api.budget_schema import BudgetSchema, BudgetWorkloadSchema
from planner.api.compare_schema import CompareSchema
from planner.api.plan_schema import PlanSchema
from planner.api.validation import InvalidDocument, load_document

PLAN = {"model": "llama-3.1-8b", "slo": {"tpot_ms": 50}, "workload": {
    "requests_per_second": 2, "prompt_tokens": 1000, "output_tokens": 200}}


class Calls:
    """Counts the calls of a function that it takes the place of."""

    def __init__(self, function: Any) -> None:
        self.function, self.count = function, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self.function(*args, **kwargs)


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls(difflib.get_close_matches)
    monkeypatch.setattr(difflib, "get_close_matches", calls)
    return calls


def refused(schema: Any, document: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidDocument) as caught:
        load_document(schema, document)
    return caught.value.errors


@pytest.mark.parametrize("count", [60, 119, 50_000])
def test_few_of_many_unknown_fields_are_guessed_and_listed(guesses: Calls, count: int) -> None:
    errors = refused(PlanSchema(), {**PLAN, **{f"modell{i}": 1 for i in range(count)}})
    assert guesses.count == 20
    assert len(errors) == min(count, 100)
    messages = [message for _, message in errors]
    assert messages.count("unknown field; did you mean model?") == 20
    assert messages.count("unknown field") == len(errors) - 20


def test_a_known_field_is_never_called_unknown() -> None:
    many = {**{f"x{i}": 1 for i in range(200)}, **PLAN}
    assert not {"/model", "/slo", "/workload"} & {p for p, _ in refused(PlanSchema(), many)}


def read_entries(monkeypatch: pytest.MonkeyPatch, schema: type) -> Calls:
    calls = Calls(schema._do_load)  # type: ignore[attr-defined]
    monkeypatch.setattr(schema, "_do_load", lambda self, *a, **k: calls(self, *a, **k))
    return calls


def test_workloads_are_counted_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = read_entries(monkeypatch, BudgetWorkloadSchema)
    assert refused(BudgetSchema(), {"workloads": [PLAN] * 201}) == [
        ("/workloads", "must have 1 to 200 entries, not 201")]
    assert calls.count == 0
    load_document(BudgetSchema(), {"workloads": [PLAN] * 2})
    assert calls.count == 2


def test_launches_are_limited() -> None:
    launches = [{"month": 1, "multiplier": 2}]
    load_document(BudgetSchema(), {"workloads": [{**PLAN, "launches": launches * 100}]})
    assert refused(BudgetSchema(), {"workloads": [{**PLAN, "launches": launches * 101}]}) == [
        ("/workloads/0/launches", "must have 0 to 100 entries, not 101")]


def test_plans_are_counted_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = read_entries(monkeypatch, PlanSchema)
    errors = refused(CompareSchema(), {"plans": [PLAN] * 9})
    assert errors == [("/plans", "must have 2 to 8 entries, not 9")]
    assert calls.count == 0
