"""Broken files: always InvalidValue, with the file, the place and the field."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration import readers
from planner.calibration.points import MeasuredPoint
from planner.calibration.readers import MAX_BYTES, detect, read
from planner.errors import InvalidValue

FIXTURES = sorted((Path(__file__).parent / "fixtures").iterdir())
HEADER = "concurrency,prompt_tokens,output_tokens,ttft_ms,tpot_ms"
VLLM = next(p for p in FIXTURES if p.name == "vllm_bench_serve.json")


def message(content: bytes, name: str = "f") -> str:
    with pytest.raises(InvalidValue) as caught:
        read(name, content)
    assert caught.value.message.startswith(name)
    return caught.value.message


@pytest.mark.parametrize(("row", "said"), [
    ("4,100,50,-3,8", "f, row 3, ttft_ms: must not be negative, not -3.0"),
    ("4,100,50,nan,8", "f, row 3, ttft_ms: must be a number from 0, not 'nan'"),
    ("4,100,50,inf,8", "f, row 3, ttft_ms: must be a number from 0, not 'inf'"),
    ("4,100,50,,8", "f, row 3, ttft_ms: missing"),
    ("4,100,50,12ms,8", "f, row 3, ttft_ms: must be a number from 0, not '12ms'"),
    ("4,100,50,1e300,8", "f, row 3, ttft_ms: must be at most 1e+12"),
    (",100,50,30,8", "f, row 3, concurrency: missing, and so is requests_per_second"),
    ("4,100,50,30,8,9", "f, row 3: 6 cells under 5 headers"),
    ('4,100,50,"30,8', "f, row 3: not CSV: unexpected end of data"),
])
def test_a_bad_cell_is_named(row: str, said: str) -> None:
    assert said in message(f"{HEADER}\n4,100,50,30,8\n{row}\n".encode())


@pytest.mark.parametrize(("column", "cell", "said"), [
    ("weights", "bf17", "row 2, weights: unknown precision 'bf17'; allowed: bf16"),
    ("tp", "1.5", "row 2, tp: must be a whole number from 1, not 1.5"),
    ("tp", "0", "row 2, tp: must be a whole number from 1, not 0"),
    ("prefix_cache_hit_rate", "1", "row 2, prefix_cache_hit_rate: must be from 0 to below 1"),
    ("speculative", "perhaps", "row 2, speculative: must be true or false"),
    ("model", "m" * 301, "row 2, model: must be one line of at most 300"),
])
def test_a_bad_optional_cell_is_named(column: str, cell: str, said: str) -> None:
    assert said in message(f"{HEADER},{column}\n4,100,50,30,8,{cell}\n".encode())


@pytest.mark.parametrize(("header", "said"), [
    ("concurrency,ttft_ms", "the header lacks prompt_tokens, output_tokens, tpot_ms"),
    ("isl,osl,ttft,tpot", "the header lacks concurrency or requests_per_second"),
    (f"{HEADER},ttft_ms", "row 1: the column 'ttft_ms' is there twice"),
    ("hello", "the header lacks"),
])
def test_a_bad_header_is_named(header: str, said: str) -> None:
    assert said in message(f"{header}\n1,2,3,4,5\n".encode())


@pytest.mark.parametrize(("content", "said"), [
    (b"", "the file is empty"), (b" \n\n", "the file is empty"),
    (b"\xef\xbb\xbf", "the file is empty"),
    (HEADER.encode(), "a header but no rows"), (b"[]", "no results inside"),
    (b'{"benchmarks": []}', "no results inside"),
    (gzip.compress(b"{}"), "a gzip file; unpack it first"), (b"PK\x03\x04..", "a zip file"),
    (HEADER.encode() + b"\n4,\xff,50,30,8", "line 2: not UTF-8 text"),
    ("{}".encode("utf-16"), "line 1: not UTF-8 text"),
    (b'{"a": 1}\n{"a": ', "not the result of a known benchmark; known: vllm bench serve"),
    (b"[1]", "f:1[0]: a result must be a JSON object"),
    (b"[[[{}]]]", "a result must be a JSON object"),
    (b"{" * 10, "line 1: not JSON"), (b"[" * 200_000, "line 1: nested too deeply"),
    (b'{"benchmarks": [1]}', "benchmarks[0], benchmark: must be an object"),
    (b"[" + b"9" * 5000 + b"]", "line 1: a number has too many digits"),
])
def test_a_bad_file_is_named(content: bytes, said: str) -> None:
    assert said in message(content)


def test_the_line_of_broken_json_is_named() -> None:
    good = json.dumps(json.loads(VLLM.read_text())).encode()
    assert "line 3: not JSON" in message(good + b"\n" + good + b"\n{broken\n")


@pytest.mark.parametrize(("key", "value", "said"), [
    ("mean_ttft_ms", "NaN", "must be a finite number, not nan"),
    ("mean_tpot_ms", "-1", "must not be negative, not -1"),
    ("completed", "true", "must be a number, not True"),
    ("completed", "[]", "must be a number, not a list"),
    ("request_throughput", "1" * 400, "must be at most 1e+12, not a huge number"),
    ("max_concurrency", '"many"', "must be a number from 0, not 'many'"),
    ("model_id", "7", "must be a text, not 7"),
    ("request_rate", "-Infinity", "must be a finite number, not -inf"),
])
def test_a_bad_json_field_is_named(key: str, value: str, said: str) -> None:
    record = json.loads(VLLM.read_text())
    record[key] = "@"
    content = json.dumps(record).replace('"@"', value).encode()
    assert f"f:1, {key}: {said}" in message(content)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "20.0 MB; a result file may have 20 MB" in message(b"{" + b" " * MAX_BYTES)
    monkeypatch.setattr(readers.rows, "MAX_ROWS", 3)
    assert "more than 3 rows" in message((HEADER + "\n4,100,50,30,8" * 4).encode())
    monkeypatch.setattr(readers, "MAX_ROWS", 1)
    assert "more than 1 results" in message(VLLM.read_bytes() * 2)


def test_a_hostile_file_name_stays_out_of_the_message() -> None:
    with pytest.raises(InvalidValue) as caught:
        read("a\nb\x1b[31m" + "c" * 500, b"")
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 150


# -- fuzz ---------------------------------------------------------------------------------------


def sound(content: bytes) -> None:
    """Read it, or refuse it in the one way there is."""
    refused = None
    points: list[MeasuredPoint] = []
    try:
        detect("f", content)
        points = read("f", content)
    except InvalidValue as error:
        refused = error.message
    assert bool(points) != bool(refused)
    assert (refused or "").isprintable()
    assert all(p.ttft_s >= 0 and p.tpot_s >= 0 for p in points)


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(
    lambda t: t.encode("utf-8", "surrogatepass"))))
@settings(max_examples=300, deadline=None)
def test_any_bytes(content: bytes) -> None:
    sound(content)


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]),
    st.just({}), st.just([1]), st.just({"avg": "x"}), st.just("-1"), st.just(10**400))


def replaced(value: Any, choice: random.Random, odd: Any) -> Any:
    """The value with one random part exchanged or, with luck, removed."""
    if isinstance(value, dict) and value and choice.random() < 0.9:
        key = choice.choice(sorted(value))
        if choice.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: replaced(value[key], choice, odd)}
    if isinstance(value, list) and value and choice.random() < 0.9:
        place = choice.randrange(len(value))
        return [replaced(v, choice, odd) if i == place else v for i, v in enumerate(value)]
    return odd


@pytest.mark.parametrize("path", [p for p in FIXTURES if p.suffix.startswith(".json")],
                         ids=lambda p: p.name)
@given(seed=st.integers(0, 2**32), odd=ODD)
@settings(max_examples=150, deadline=None)
def test_any_json_with_one_odd_part(path: Path, seed: int, odd: Any) -> None:
    text = path.read_text()
    record = json.loads(text if path.suffix == ".json" and "appended" not in path.name
                        else text.splitlines()[0])
    sound(json.dumps(replaced(record, random.Random(seed), odd)).encode())


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.name)
@given(seed=st.integers(0, 2**32), junk=st.binary(max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_file_with_bytes_exchanged(path: Path, seed: int, junk: bytes) -> None:
    content, choice = path.read_bytes(), random.Random(seed)
    start = choice.randrange(len(content))
    sound(content[:start] + junk + content[start + choice.randrange(40):])
