"""Variables of the environment that look like settings."""

from __future__ import annotations

import pytest

from app import create_app
from planner.jobs.run import BEAT_S
from planner.settings import LEAST_STALE_S, SETTINGS, Setting, load_settings, unknown_settings


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


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e300", "x", "1.5x"])
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.kind is not str],
                         ids=lambda s: s.name)
def test_a_number_that_cannot_be_used_stops_the_start(setting: Setting, value: str) -> None:
    with pytest.raises(ValueError, match=rf"{setting.name} must be a .*number from .* to .*; got"
                       ) as found:
        load_settings(environ={setting.name: value})
    assert value.removesuffix("0") in str(found.value) or "e+300" in str(found.value)
    for edge in (setting.least, setting.most):
        kind = int if setting.kind is int else float
        assert load_settings(environ={setting.name: str(kind(edge))})[setting.name] == edge


@pytest.mark.parametrize(("name", "value"), [
    ("PLANNER_JOB_STALE_S", "0"), ("PLANNER_JOB_STALE_S", "2.9"), ("PLANNER_JOB_PROCESSES", "-3"),
    ("PLANNER_SQLITE_BUSY_MS", "-5"), ("PLANNER_PAGE_LIMIT", "0"), ("PLANNER_MAX_TRACE_ROWS", "2"),
    ("PLANNER_EXECUTOR", "dask://127.0.0.1:99999"), ("PLANNER_EXECUTOR", "dask://127.0.0.1:0"),
    ("PLANNER_EXECUTOR", "dask://:8786"), ("PLANNER_EXECUTOR", "dask://a b:8786"),
    ("PLANNER_EXECUTOR", "dask://tcp://a:8786"), ("PLANNER_EXECUTOR", "dask://a"),
    ("PLANNER_EXECUTOR", "dask://a:65536"), ("PLANNER_LOG_LEVEL", "loud")])
def test_what_would_break_later_stops_the_start(name: str, value: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=f"error: {name} must be .*(?i:got) '?{value}"):
        create_app({"DATABASE_URL": "sqlite://"})


@pytest.mark.parametrize("address", ["scheduler:8786", "10.0.0.1:1", "[::1]:65535", "a-b.c_d:6000"])
def test_addresses_of_dask(address: str) -> None:
    url = f"dask://{address}"
    assert load_settings(environ={"PLANNER_EXECUTOR": url})["PLANNER_EXECUTOR"] == url


def test_a_job_is_not_taken_from_one_that_shows_life() -> None:
    assert LEAST_STALE_S >= 3 * BEAT_S
