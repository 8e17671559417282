"""Own results to a profile: known changes are found again, constants stay physical."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from planner.calibration.adjust import SHARES, Adjustment, calibrate_results, scale
from planner.calibration.golden import point_of
from planner.calibration.points import MeasuredPoint
from planner.catalog.book import Catalog
from planner.catalog.shipped import shipped_catalog
from planner.engine import EngineProfile
from planner.errors import InvalidValue
from planner.prediction import predict

GPU, TODAY = "h100-sxm-80gb", date(2026, 1, 1)
SHIPPED = shipped_catalog()
LOADS = [(c, p) for c in (1.0, 4.0, 16.0, 64.0) for p in (256.0, 1024.0, 2048.0, 4096.0)]


def force(weights: str = "fp8") -> EngineProfile:
    return SHIPPED.engine("vllm", SHIPPED.gpu(GPU), weights)


def measured(truth: EngineProfile, loads: Iterable[tuple[float, float]], **changes: object
             ) -> list[MeasuredPoint]:
    """What a machine with other constants would show."""
    world = replace(SHIPPED, engines={**SHIPPED.engines, truth.slug: truth})
    blank = MeasuredPoint(1.0, 256.0, 1.0, 1.0, model="llama-3.1-70b", gpu=GPU, engine="vllm",
                          weights="fp8", kv="fp8", tensor_parallel=4, source="mine.csv:2")
    points = [replace(blank, concurrency=c, prompt_tokens=p, **changes)  # type: ignore[arg-type]
              for c, p in loads]
    answers = predict([point_of(p, engine=truth.slug) for p in points], world)
    return [replace(p, ttft_s=a["ttft_ms"] / 1e3, tpot_s=a["tpot_ms"] / 1e3)
            for p, a in zip(points, answers, strict=True)]


def slower(factor: float) -> EngineProfile:
    old = force()
    return replace(old, slug="truth", **scale(old, np.array([factor]), {}))


def calibrated(points: list[MeasuredPoint], catalog: Catalog = SHIPPED) -> Adjustment:
    found = calibrate_results(points, catalog, TODAY)
    assert len(found.profiles) == 1, found.rejected
    return found


@pytest.mark.parametrize("count", [1, 3, 4, 8, 16])
def test_a_slower_machine_is_recognised(count: int) -> None:
    points = measured(slower(1.5), LOADS[:count])
    found = calibrated(points)
    assert found.before["tpot_error"] == pytest.approx(1 / 3, abs=0.05)
    assert found.after["tpot_error"] is not None
    assert found.after["tpot_error"] < 0.04
    assert found.profiles[0].points == count == len(found.kept)


def test_decode_and_prefill_are_told_apart() -> None:
    old = force()
    truth = replace(old, slug="truth", mfu=old.mfu / 2, attention_mfu=old.attention_mfu / 2)
    new = calibrated(measured(truth, LOADS[:8])).profiles[0]
    assert new.mfu == pytest.approx(old.mfu / 2, rel=0.15)
    assert new.mbu == pytest.approx(old.mbu, rel=0.15)


@pytest.mark.parametrize("count", [2, 8, 16])
def test_constants_stay_physical(count: int) -> None:
    for factor in (0.85, 1.0, 4.0):
        points = measured(slower(factor), LOADS[:count])
        found = calibrate_results(points, SHIPPED, TODAY)
        for profile in found.profiles:
            assert all(0.0 < getattr(profile, name) <= 1.0 for name in SHARES)
            assert profile.ttft_scale >= 0.8
            assert min(profile.layer_s, profile.moe_layer_s, profile.step_s) >= 0.0


def test_a_profile_says_where_it_comes_from() -> None:
    new = calibrated(measured(slower(1.2), LOADS[:5])).profiles[0]
    assert new.slug == "vllm-h100-sxm-80gb-fp8-custom"
    assert (new.engine, new.gpu, new.precision) == ("vllm", GPU, "fp8")
    assert (new.obtained, new.fitted_on, new.as_of) == ("fitted", "dense", "2026-01-01")
    assert new.source == f"own results: mine.csv; adjusted from {force().slug}"
    assert new.tpot_error is not None
    assert new.tpot_error < 0.1


def test_one_point_has_no_left_out_error() -> None:
    new = calibrated(measured(slower(1.2), LOADS[:1])).profiles[0]
    assert new.tpot_error is None
    assert new.ttft_error is None


def test_each_precision_gets_its_profile_and_no_shared_slug() -> None:
    points = [*measured(slower(1.2), LOADS[:2]),
              *(replace(p, weights="bf16", kv="bf16", tpot_s=p.tpot_s * 2, ttft_s=p.ttft_s * 2)
                for p in measured(slower(1.2), LOADS[:2]))]
    assert len(calibrate_results(points, SHIPPED, TODAY).profiles) == 2
    with pytest.raises(InvalidValue, match="make 2 profiles"):
        calibrate_results(points, SHIPPED, TODAY, slug="mine")


@pytest.mark.parametrize(("changes", "code"), [
    ({"tpot_s": 1e-5}, "tpot-below-roofline"), ({"gpu": "none"}, "unknown-gpu"),
    ({"engine": "none"}, "unknown-engine"), ({"setup": "disaggregated"}, "pools-unknown"),
    ({"prefix_hit": 0.4}, "prefix-cache"), ({"request_throughput": 1e4}, "littles-law"),
    ({"speculative": True}, "speculative"), ({"ttft_s": 60.0}, "saturated")])
def test_bad_rows_are_listed_and_do_no_harm(changes: dict[str, object], code: str) -> None:
    good = measured(slower(1.2), LOADS[:5])
    bad = replace(good[0], **changes)  # type: ignore[arg-type]
    found = calibrate_results([bad, *good], SHIPPED, TODAY)
    assert [r.code for r in found.rejected] == [code]
    assert found.profiles == calibrate_results(good, SHIPPED, TODAY).profiles


def test_nothing_gives_nothing() -> None:
    found = calibrate_results([], SHIPPED, TODAY)
    assert found.profiles == []
    assert found.before == {"tpot_error": None, "ttft_error": None}


def test_open_loops_are_used() -> None:
    old = force()
    world = replace(SHIPPED, engines={**SHIPPED.engines, "truth": slower(1.5)})
    blank = MeasuredPoint(1024.0, 256.0, 1.0, 1.0, model="llama-3.1-70b", gpu=GPU, engine="vllm",
                          weights="fp8", kv="fp8", tensor_parallel=4, source="mine.csv:2")
    points = [replace(blank, requests_per_second=r) for r in (0.5, 1.0, 2.0)]
    answers = predict([point_of(p, engine="truth") for p in points], world)
    points = [replace(p, ttft_s=a["ttft_ms"] / 1e3, tpot_s=a["tpot_ms"] / 1e3)
              for p, a in zip(points, answers, strict=True)]
    new = calibrated(points).profiles[0]
    assert new.mbu == pytest.approx(old.mbu / 1.5, rel=0.05)
