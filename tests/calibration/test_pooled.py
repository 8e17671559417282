"""The pooled fit of step constants, and what it reads from the benchmark tables."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.constants import STEP_NAMES, in_order, passed_on, step_seconds
from planner.calibration.datasets import curve_compiles, curve_layout, curve_speculates, load
from planner.calibration.fit import Sample, fit
from planner.calibration.golden import read_golden
from planner.calibration.pooled import LEVELS, fit_effects, levels_of
from planner.calibration.profiles import fit_all, priors, sample_of, step_fields
from planner.calibration.run import prior_catalog, profiles_of
from planner.catalog.shipped import shipped_catalog
from planner.requests import Layout
from planner.roofline import StepBatch, StepModel, experts_touched

BASE = prior_catalog(shipped_catalog())
POINTS = [r.measured for r in read_golden() if r.decode is None][::2]


def _curve(**fields: object) -> dict[str, str]:
    row = {"tp_size": "8.0", "pp_size": "1.0", "attention_dp_size": "1.0", "moe_tp_size": "8.0",
           "moe_ep_size": "1.0", "backend": "trtllm", "model_path": "deepseek-ai/DeepSeek-R1",
           "silicon_data_source": "source_file=2026-04-06.csv; measured=2026-01-29; "
                                  "release:1.2.0rc6.post2"}
    return {**row, **{k: str(v) for k, v in fields.items()}}


@pytest.mark.parametrize(("fields", "layout"), [
    ({}, Layout(8)),
    ({"moe_tp_size": 1.0, "moe_ep_size": 8.0}, Layout(8, 1, 8)),
    ({"tp_size": 64.0, "moe_ep_size": 8.0}, Layout(8, 1, 8)),
    ({"tp_size": 1.0, "attention_dp_size": 64.0, "moe_ep_size": 8.0}, Layout(1, 1, 8, 8)),
    ({"tp_size": 1.0, "attention_dp_size": 8.0, "moe_tp_size": 1.0, "moe_ep_size": 8.0},
     Layout(1, 1, 8, 8)),
    ({"tp_size": 4.0, "attention_dp_size": 4.0, "moe_tp_size": 1.0, "moe_ep_size": 16.0},
     Layout(4, 1, 4)),
    ({"tp_size": 2.0, "attention_dp_size": 2.0, "moe_tp_size": 1.0, "moe_ep_size": 4.0,
      "silicon_data_source": "db-dump/2026-04-27; config_id=706; silicon_concurrency=256"},
     Layout(2, 1, 2)),
    ({"tp_size": 2.0, "attention_dp_size": 2.0, "moe_tp_size": 1.0, "moe_ep_size": 4.0,
      "silicon_data_source": "db-dump/2026-04-27; config_id=707; silicon_concurrency=256"},
     Layout(1, 1, 2, 2)),
])
def test_layouts_that_the_sample_multiplied_twice(fields: dict[str, float], layout: Layout
                                                  ) -> None:
    assert curve_layout(_curve(**fields)) == layout


@pytest.mark.parametrize(("fields", "layout"), [
    ({"tp_size": 1.0, "moe_tp_size": 4.0}, Layout(1, 1, 1, 4)),
    ({"tp_size": 2.0, "moe_tp_size": 4.0}, Layout(2, 1, 1, 2)),
    ({"tp_size": 2.0, "moe_tp_size": 1.0, "moe_ep_size": 2.0}, Layout(2, 1, 2)),
    ({"tp_size": 4.0, "moe_tp_size": 2.0, "moe_ep_size": 2.0}, Layout(4, 1, 2)),
    ({"tp_size": 2.0, "moe_tp_size": 0.0, "moe_ep_size": 0.0}, Layout(2)),
])
def test_vendor_rows_without_data_parallelism_have_what_their_experts_need(
        fields: dict[str, float], layout: Layout) -> None:
    row = _curve(silicon_data_source="source_file=/data/qwen.csv; silicon_concurrency=8",
                 **{"attention_dp_size": "", **fields})
    assert curve_layout(row) == layout


def test_runs_with_a_draft_are_told_by_release_and_date() -> None:
    assert not curve_speculates(_curve())
    assert curve_speculates(_curve(silicon_data_source="release:1.2.0rc6.post3"))
    late = "measured=2026-01-14T22:26:21Z; release:1.1.0rc2.post2"
    assert curve_speculates(_curve(silicon_data_source=late))
    assert not curve_speculates(_curve(silicon_data_source=late.replace("2026-01", "2025-12")))
    assert not curve_speculates(_curve(backend="vllm", silicon_data_source=late))


def test_runs_that_compile_are_told_by_engine_and_month() -> None:
    early = "measured=2025-11-10T00:00:00.000Z; silicon_concurrency=4"
    assert curve_compiles(_curve(backend="sglang", silicon_data_source=early))
    assert not curve_compiles(_curve(silicon_data_source=early))
    assert not curve_compiles(_curve(backend="sglang", silicon_data_source="measured=2026-03-25"))
    assert not curve_compiles(_curve(backend="sglang", silicon_data_source=early,
                                     model_path="Qwen/Qwen3-32B"))


def test_a_run_listed_under_two_names_counts_once(tmp_path: Path) -> None:
    """The sample lists runs of DeepSeek-R1 under V3 too."""
    row = _curve(mode="agg", silicon_data_source="silicon_concurrency=4", silicon_ttft_ms=189.0,
                 silicon_tpot_ms=8.05, isl=1024, osl=1024, system="b200_sxm", precision="fp4",
                 backend_version="")
    other = {**row, "silicon_tpot_ms": "8.15"}
    with (tmp_path / "serving_curves.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerows([row, {**row, "model_path": "deepseek-ai/DeepSeek-V3"}, other])
    assert sorted(p.tpot_s for p in load(tmp_path)) == pytest.approx([0.00805, 0.00815])


def test_first_tokens_of_a_run_that_compiles_are_not_fitted() -> None:
    late = [replace(p, ttft_s=60.0, compiling=True) for p in POINTS[:40]]
    with_late, without = (fit(sample_of(points, BASE), LEVELS) for points in (
        [*late, *POINTS[40:]], [*(replace(p, ttft_s=math.nan) for p in late), *POINTS[40:]]))
    assert with_late.first.keys() == without.first.keys()
    for key, constants in without.first.items():
        assert with_late.first[key] == pytest.approx(constants)


def test_gpus_of_a_family_share_steps_and_have_first_tokens_of_their_own() -> None:
    pooled = fit_all(POINTS, BASE, with_errors=False)
    profiles = profiles_of(pooled, BASE, "", "")
    family, h100, h200 = (profiles[f"vllm-{name}-fp8"] for name in (
        "hopper", "h100-sxm-80gb", "h200-sxm-141gb"))
    assert h100.mbu == h200.mbu == family.mbu
    assert h100.layer_s == h200.layer_s == family.layer_s
    assert len({p.request_s for p in (family, h100, h200)}) == 3
    catalog = replace(BASE, engines=profiles)
    assert catalog.engine("vllm", BASE.gpu("h100-sxm-80gb"), "fp8") == h100
    assert catalog.engine("vllm", BASE.gpu("h100-pcie-80gb"), "fp8") == family


def test_a_profile_of_a_users_own_wins_over_the_shipped_one_of_its_gpu() -> None:
    catalog = shipped_catalog()
    gpu = catalog.gpu("h100-sxm-80gb")
    shipped = catalog.engine("vllm", gpu, "fp8")
    own = replace(shipped, slug="a-run", gpu=gpu.slug)
    both = replace(catalog, engines={**catalog.engines, own.slug: own})
    assert both.engine("vllm", gpu, "fp8") == own
    assert both.engine("vllm", catalog.gpu("h200-sxm-141gb"), "fp8") != own


def test_experts_touched_has_its_limits() -> None:
    tokens = np.array([0.0, 1.0, 32.0, 1e9])
    even, skewed = (experts_touched(8 / 256, tokens, c) for c in (0.0, 1.0))
    assert even[:2] == pytest.approx([0.0, 8 / 256])
    assert even[3] == pytest.approx(1.0)
    assert skewed[3] == pytest.approx(1.0, abs=1e-6)
    assert np.all(skewed <= even + 1e-12)
    assert experts_touched(8 / 256, tokens, 1e-7) == pytest.approx(even, abs=0.01)


def test_slopes_are_those_of_differences() -> None:
    sample = sample_of(POINTS, BASE)
    logs, features = sample.prior, sample.features
    seconds, slope = step_seconds(logs, features.decode, features.precision)
    for place in range(len(STEP_NAMES)):
        moved = logs.copy()
        moved[:, place] += 1e-7
        change = step_seconds(moved, features.decode, features.precision)[0] - seconds
        assert change / 1e-7 == pytest.approx(slope[:, place], rel=1e-3, abs=1e-8)


def test_a_fit_has_the_step_times_of_the_profile_that_it_makes() -> None:
    pooled = fit_all(POINTS, BASE, with_errors=False)
    catalog = replace(BASE, engines=profiles_of(pooled, BASE, "", ""))
    found, sample = pooled.found, pooled.sample
    sample = sample.running(BASE, found)
    predicted = found.tpot(sample)
    from planner.calibration.golden import point_of
    from planner.prediction import predict
    free = [i for i, p in enumerate(sample.points) if (p.concurrency or 0) <= 32]
    answers = predict([point_of(sample.points[i]) for i in free], catalog)
    ratios = [a["tpot_ms"] / 1e3 / predicted[i] for i, a in zip(free, answers, strict=True)]
    assert np.median(np.abs(np.log(ratios))) < 0.01


def test_an_engine_without_points_of_a_family_takes_what_others_showed() -> None:
    """A dense model on an engine that saw only mixtures of experts keeps physical constants."""
    moe = [p for p in POINTS if BASE.llm(p.model or "").is_moe]
    sample = sample_of(moe, BASE)
    found = fit(sample, LEVELS)
    gpu = BASE.gpu("h100-sxm-80gb")
    from planner.calibration.constants import step_bounds
    bounds = step_bounds(priors(BASE, "tensorrt-llm", gpu))
    constants = np.exp(found.effects.constants(bounds, levels_of("tensorrt-llm", "hopper")))
    fields = step_fields(constants, "fp8")
    assert 0.4 <= fields["mfu"] <= 0.8
    assert 0.6 <= fields["mbu"] <= 0.95
    assert fields["moe_layer_s"] > fields["layer_s"] > 0


def test_a_point_counts_as_much_as_its_weight() -> None:
    sample = sample_of(POINTS[:80], BASE)
    size = len(sample.points)
    twice = sample.at(np.array([*range(size), *range(size // 2)], dtype=np.intp))
    heavy = replace(sample, weight=sample.weight * np.where(np.arange(size) < size // 2, 2.0, 1.0))
    wrong = replace(twice, tpot=np.where(np.arange(len(twice.points)) < size, twice.tpot, 9.0),
                    weight=twice.weight * (np.arange(len(twice.points)) < size))

    def found(of: Sample) -> np.ndarray:
        effects = fit_effects(of.features, of.tpot, of.prior, of.bounds, of.keys, LEVELS,
                              weight=of.weight)
        return sample.constants(effects)

    assert found(heavy) == pytest.approx(found(twice), abs=1e-6)
    assert found(wrong) == pytest.approx(found(sample), abs=1e-6)
    assert np.abs(found(heavy) - found(sample)).max() > 1e-3


def test_more_experts_and_sequences_never_take_less_time() -> None:
    catalog = shipped_catalog()
    gpu = catalog.gpu("h200-sxm-141gb")
    from planner.roofline import Deployment
    model = StepModel.of(Deployment(catalog.llm("deepseek-v3"), gpu, "fp8", "fp8",
                                    Layout(8, 1, 8), catalog.engine("vllm", gpu, "fp8")))
    times = model.seconds(StepBatch(decodes=np.arange(1.0, 513.0), context=2000.0))
    assert np.all(np.diff(times) >= 0)


def test_no_wider_precision_multiplies_faster_in_a_fit() -> None:
    logs = np.zeros((2, len(STEP_NAMES)))
    place = {name: i for i, name in enumerate(STEP_NAMES)}
    logs[:, place["expert_mfu_fp8"]] = math.log(0.1)
    logs[1, place["expert_mfu_fp4"]] = math.log(0.02)
    found = np.exp(in_order(logs))
    assert found[0, place["expert_mfu_bf16"]] == pytest.approx(0.2)
    assert found[1, place["expert_mfu_fp8"]] == pytest.approx(0.04)
    assert found[1, place["expert_mfu_bf16"]] == pytest.approx(0.08)
    assert found[0, place["expert_mbu_bf16"]] == 1.0
    assert in_order(in_order(logs)) == pytest.approx(in_order(logs))


def test_slopes_pass_from_a_constant_to_the_one_that_holds_it() -> None:
    sample = sample_of(POINTS, BASE)
    logs = sample.prior.copy()
    experts = [i for i, name in enumerate(STEP_NAMES) if name.startswith("expert_mfu")]
    logs[:, experts] = np.log([0.5, 0.2, 0.05, 0.3])
    seconds, slope = step_seconds(in_order(logs), sample.features.prefill,
                                  sample.features.precision)
    slope = passed_on(slope, logs, in_order(logs))
    for place in experts:
        moved = logs.copy()
        moved[:, place] += 1e-7
        more, _ = step_seconds(in_order(moved), sample.features.prefill,
                               sample.features.precision)
        assert (more - seconds) / 1e-7 == pytest.approx(slope[:, place], rel=1e-4, abs=1e-7)
