"""Variables of the environment that look like settings."""

from __future__ import annotations

import pytest

from app import create_app
from planner.settings import SETTINGS, unknown_settings


@pytest.mark.parametrize(("name", "near"), [
    ("PLANNER_DATABASE_URL", "DATABASE_URL"), ("PLANNER_PAGE_LIMITS", "PLANNER_PAGE_LIMIT"),
    ("PLANNER_LOGLEVEL", "PLANNER_LOG_LEVEL"), ("PLANNER_JOB_PROCESS", "PLANNER_JOB_PROCESSES")])
def test_a_name_that_is_none_is_told_with_the_closest(name: str, near: str) -> None:
    [sentence] = unknown_settings({name: "x", "HOME": "/", near: "y"})
    assert sentence == f"{name} is no setting and is ignored; did you mean {near}?"


def test_names_that_are_settings_and_names_of_others_are_not_told() -> None:
    assert unknown_settings({s.name: "x" for s in SETTINGS} | {"PATH": "", "MYPLANNER_X": ""}) == []
    [sentence] = unknown_settings({"PLANNER_QQQ": "x"})
    assert "docs/settings.md" in sentence


def test_the_start_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
                           ) -> None:
    monkeypatch.setenv("PLANNER_DATABASE_URL", "sqlite://")
    create_app({"DATABASE_URL": "sqlite://", "PLANNER_EXECUTOR": "none"})
    said = "".join(capsys.readouterr())
    assert "did you mean DATABASE_URL?" in said
    assert "warning" in said
