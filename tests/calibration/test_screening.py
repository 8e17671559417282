"""Each code of a rejection, next to a point that is just good enough."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.points import MeasuredPoint
from planner.calibration.screening import CODES, Floors, _floors, screen
from planner.catalog.shipped import shipped_catalog

CATALOG = shipped_catalog()
CLOSED = MeasuredPoint(
    1024.0, 256.0, ttft_s=0.0627, tpot_s=0.00834, source="a:1", model="llama-3.1-8b",
    gpu="h100-sxm-80gb", engine="vllm", weights="bf16", kv="bf16", tensor_parallel=1,
    concurrency=16.0, request_throughput=7.1297, output_tokens_per_s=1825.2, requests=320.0)
OPEN = replace(CLOSED, concurrency=None, requests_per_second=7.5)


def verdict(point: MeasuredPoint, **keywords: Any) -> tuple[str, str]:
    """Code and reason, both empty for a point that is kept."""
    result = screen([point], CATALOG, **keywords)
    assert len(result.kept) + len(result.rejected) == 1
    return result.rejected[0][1:] if result.rejected else ("", "")


def at(point: MeasuredPoint, **values: Any) -> MeasuredPoint:
    """A point with other values and no throughput, unless it is given."""
    return replace(point, **{"request_throughput": None, "output_tokens_per_s": None, **values})


def floors(point: MeasuredPoint) -> Floors:
    return _floors([point], CATALOG)[0]


@pytest.mark.parametrize("point", [CLOSED, OPEN])
def test_a_sound_point_is_kept(point: MeasuredPoint) -> None:
    assert verdict(point) == ("", "")


REJECTED = [
    (replace(CLOSED, gpu=None, weights=None, kv=None), "incomplete",
     "the row does not say gpu, weights"),
    (replace(CLOSED, model="llama-3.1-8bb"), "unknown-model", "did you mean llama-3.1-8b"),
    (replace(CLOSED, gpu="h100-sxm-80"), "unknown-gpu", "did you mean h100-sxm-80gb"),
    (replace(CLOSED, weights="bf17"), "unknown-precision", "unknown weight precision 'bf17'"),
    (replace(CLOSED, kv="bf17"), "unknown-precision", "unknown KV precision 'bf17'"),
    (replace(CLOSED, speculative=True), "speculative", "speculative decoding"),
    (replace(CLOSED, output_tokens=0.0), "impossible-value", "output_tokens is 0"),
    (replace(CLOSED, prompt_tokens=0.0), "impossible-value", "prompt_tokens is 0"),
    (replace(CLOSED, tpot_s=0.0), "impossible-value", "tpot_s is 0"),
    (replace(CLOSED, requests=0.0), "impossible-value", "requests is 0"),
    (replace(CLOSED, e2e_s=0.05), "impossible-value",
     "the first token came after 0.0627 s, later than the end of the answer at 0.05 s"),
    (replace(CLOSED, e2e_s=4.0), "impossible-value", "is 2.19 s but the end-to-end latency is 4 s"),
    (replace(CLOSED, concurrency=None), "no-load", "neither a concurrency nor"),
    (replace(CLOSED, concurrency=12.0), "littles-law",
     "7.13 requests/s x (TTFT 0.0627 s + TPOT 8.34 ms x 255) is 15.61 requests in flight, "
     "but the concurrency is 12"),
    (replace(CLOSED, concurrency=24.0), "littles-law", "but the concurrency is 24"),
    (replace(CLOSED, output_tokens_per_s=900.0), "throughput-mismatch",
     "900 output tokens/s, but 7.13 requests/s of 256 tokens make 1825"),
    (at(CLOSED, tpot_s=0.004), "tpot-below-roofline",
     "sequences take at 100 % of the bandwidth and peak of 1 x h100-sxm-80gb"),
    (at(CLOSED, ttft_s=0.010), "ttft-below-roofline", "TTFT 10 ms is below the 15 ms that 1024"),
    (replace(OPEN, requests_per_second=12.0), "saturated",
     "7.13 requests/s completed of 12 offered"),
    (at(OPEN, ttft_s=6.0), "saturated", "TTFT 6 s is 399 times the ideal prefill of 15 ms"),
]


@pytest.mark.parametrize(("point", "code", "said"), REJECTED)
def test_each_reason_has_a_code_and_the_numbers(point: MeasuredPoint, code: str, said: str
                                                ) -> None:
    found, reason = verdict(point)
    assert found == code
    assert said in reason


def test_every_code_is_tested_and_described() -> None:
    assert {code for _, code, _ in REJECTED} == set(CODES)


def test_order_is_kept() -> None:
    result = screen([CLOSED, replace(CLOSED, gpu="x"), OPEN], CATALOG)
    assert result.kept == [CLOSED, OPEN]
    assert [r.point.gpu for r in result.rejected] == ["x"]


def test_a_concurrency_beside_a_rate_is_only_a_cap() -> None:
    assert verdict(replace(CLOSED, concurrency=256.0, requests_per_second=7.5)) == ("", "")
    assert verdict(replace(CLOSED, concurrency=8.0, requests_per_second=7.5))[0] == "littles-law"


def test_a_short_run_that_fills_and_drains_is_no_breach() -> None:
    # 32 requests at 16 in flight: the mean is two thirds of the cap.
    short = replace(CLOSED, requests=32.0, request_throughput=5.0, output_tokens_per_s=1280.0)
    assert verdict(short) == ("", "")
    assert verdict(replace(short, requests=3200.0))[0] == "littles-law"


def test_the_measured_number_in_flight_is_exact() -> None:
    low = replace(CLOSED, request_throughput=4.0, output_tokens_per_s=1024.0, requests=3200.0)
    assert verdict(low)[0] == "littles-law"
    assert verdict(replace(low, mean_running=8.8)) == ("", "")


def test_the_tail_of_an_open_run_is_no_saturation() -> None:
    # 50 requests at 10/s take 5 s to send and 2 s for the last answer: 7.1/s at best.
    tail = at(OPEN, requests_per_second=10.0, requests=50.0, request_throughput=6.9)
    assert verdict(tail) == ("", "")
    assert verdict(replace(tail, requests=5000.0))[0] == "saturated"


def test_medians_do_not_add_up() -> None:
    medians = replace(CLOSED, ttft_statistic="median", tpot_statistic="median", concurrency=24.0)
    assert verdict(medians) == ("", "")


def test_drafts_can_be_allowed_and_beat_the_step() -> None:
    fast = at(CLOSED, speculative=True, tpot_s=0.003)
    assert verdict(fast, allow_speculative=True) == ("", "")
    assert verdict(replace(fast, speculative=False))[0] == "tpot-below-roofline"


def test_a_stated_prefix_hit_lowers_the_floor_of_the_first_token() -> None:
    early = at(CLOSED, ttft_s=0.010)
    assert verdict(replace(early, prefix_hit=0.9)) == ("", "")


def test_a_split_set_up_is_only_held_to_one_sequence() -> None:
    split = at(CLOSED, setup="disaggregated", concurrency=512.0, tpot_s=0.0052, ttft_s=0.012)
    assert verdict(split) == ("", "")
    assert verdict(replace(split, setup="chunked"))[0] == "tpot-below-roofline"


def test_no_kv_precision_is_the_one_the_model_ships() -> None:
    assert verdict(replace(CLOSED, kv=None)) == ("", "")
    assert floors(replace(CLOSED, kv=None)) == floors(CLOSED)


def test_one_output_token_has_no_gap() -> None:
    assert verdict(at(CLOSED, output_tokens=1.0, tpot_s=0.0, concurrency=1.0)) == ("", "")


def test_eight_bit_activations_may_double_the_peak() -> None:
    half = floors(replace(CLOSED, weights="int8")).prefill_s
    assert half == pytest.approx(floors(CLOSED).prefill_s / 2, rel=0.05)


def test_floor_by_hand() -> None:
    """Weights over bandwidth: (8.03 G - 0.53 G embedding) x 2 B / 3.35 TB/s = 4.48 ms, and KV."""
    point = at(CLOSED, concurrency=1.0)
    cache = (1024 + 128) * 131072 / 3.35e12
    assert floors(point).tpot_s == pytest.approx((8.03e9 - 0.525e9) * 2 / 3.35e12 + cache, rel=2e-3)


@given(tensor=st.sampled_from([1, 2, 4, 8]), running=st.floats(1, 256),
       prompt=st.floats(1, 100_000), output=st.floats(2, 8000))
@settings(max_examples=60, deadline=None)
def test_more_sequences_and_longer_prompts_never_lower_a_floor(
        tensor: int, running: float, prompt: float, output: float) -> None:
    point = at(CLOSED, tensor_parallel=tensor, concurrency=running, prompt_tokens=prompt,
               output_tokens=output)
    more = replace(point, concurrency=running * 2, prompt_tokens=prompt * 1.5)
    assert floors(more).tpot_s >= floors(point).tpot_s * (1 - 1e-9)
    assert floors(more).prefill_s >= floors(point).prefill_s * (1 - 1e-9)


NUMBER = st.one_of(st.none(), st.floats(0, 1e12))


ALWAYS = ("prompt_tokens", "output_tokens", "ttft_s", "tpot_s")
PERHAPS = ("concurrency", "requests_per_second", "mean_running", "e2e_s", "output_tokens_per_s",
           "request_throughput", "requests")


@given(values=st.fixed_dictionaries({**dict.fromkeys(ALWAYS, st.floats(0, 1e12)),
                                     **dict.fromkeys(PERHAPS, NUMBER)}),
    model=st.sampled_from(sorted(CATALOG.llms)), gpu=st.sampled_from(sorted(CATALOG.gpus)),
    weights=st.sampled_from(["bf16", "fp8", "int4", "fp4", "?"]))
@settings(max_examples=200, deadline=None)
def test_any_values_are_kept_or_rejected(values: dict[str, Any], model: str, gpu: str,
                                         weights: str) -> None:
    code, reason = verdict(replace(CLOSED, model=model, gpu=gpu, weights=weights, **values))
    assert code in {"", *CODES}
    assert bool(reason) == bool(code)


def test_many_points_are_screened_together() -> None:
    rng = np.random.default_rng(1)
    many = [replace(CLOSED, source=str(i), prompt_tokens=float(rng.integers(900, 1100)))
            for i in range(5000)]
    start = time.perf_counter()
    assert len(screen(many, CATALOG).kept) == 5000
    assert time.perf_counter() - start < 5.0
