"""Traces in: the formats of published ones, and a clear refusal of every bad one."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import PlannerError
from planner.traces.packing import pack, unpack
from planner.traces.reader import BadTrace, read_trace
from planner.traces.statistics import statistics, workload_at_peak
from planner.traces.stream import ReadLimits, TraceTooLarge
from planner.traces.trace import Trace

HEADER = "timestamp,prompt_tokens,output_tokens\n"
JSON_ROW = '{"timestamp": 0, "input_length": 1, "output_length": 1}\n'
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"


def read(text: str | bytes, limits: ReadLimits | None = None, **options: object) -> Trace:
    data = text.encode() if isinstance(text, str) else text
    return read_trace(io.BytesIO(data), limits, **options)  # type: ignore[arg-type]


FORMATS = {
    "plain": HEADER + "10,100,5\n11.5,200,6\n13,300,7\n",
    "azure": ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,100,5\n"
              "2023-11-16 18:17:05.4799600,200,6\n2023-11-16 18:17:06.9799600,300,7\n"),
    "burstgpt": ("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
                 "Total tokens,Log Type\n5,,1,GPT-4,100,5,105,API log\n"
                 "6.5,,1,\"GPT, four\",200,6,206,API log\n8,,1,GPT-4,300,7,307,API log\n"),
    "mooncake": ('{"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [0, 1]}\n'
                 '{"timestamp": 1500, "input_length": 200, "output_length": 6, "hash_ids": []}\n'
                 '{"timestamp": 3000, "input_length": 300, "output_length": 7}\n'),
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0,100,5\n1.5,200,6\n3,300,7\n",
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_published_formats(form: str, packed: bool) -> None:
    text = FORMATS[form].encode()
    trace = read(gzip.compress(text) if packed else text)
    assert trace.format == form
    assert trace.arrived_at_s.tolist() == pytest.approx([0, 1.5, 3])
    assert trace.prompt_tokens.tolist() == [100, 200, 300]
    assert trace.output_tokens.tolist() == [5, 6, 7]


@pytest.mark.parametrize("text", [
    "\ufeff" + FORMATS["plain"], FORMATS["plain"].replace("\n", "\r\n"),
    FORMATS["plain"].replace("\n", "\r"), FORMATS["plain"].replace("\n", "\r").rstrip(),
    FORMATS["plain"].replace(",", ";"), FORMATS["plain"].replace(",", "\t"),
    FORMATS["plain"].replace("\n", "\n\n"), FORMATS["plain"].rstrip(),
    FORMATS["plain"].replace("100", "100.0"), FORMATS["plain"].replace(",100", ", 100"),
])
def test_spellings_of_the_same_trace(text: str) -> None:
    assert read(text).prompt_tokens.tolist() == [100, 200, 300]


class Piece(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(7 if size is None or size < 0 else min(size, 7))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_may_be_cut_in_two(end: str) -> None:
    text = FORMATS["plain"].replace("\n", end).encode()
    for start in range(7):
        assert len(read_trace(Piece(b"\n" * start + text))) == 3


def test_gzip_members_in_a_row_are_one_file() -> None:
    head, tail = FORMATS["plain"][:50].encode(), FORMATS["plain"][50:].encode()
    assert len(read(gzip.compress(head) + gzip.compress(tail))) == 3


def test_time_units_and_failed_requests() -> None:
    failed = FORMATS["burstgpt"] + "9,,1,GPT-4,300,0,300,API log\n"
    with pytest.raises(BadTrace, match=r"row 4 has Response tokens '0'.*skip_empty=true"):
        read(failed)
    trace = read(failed, skip_empty=True)
    assert (len(trace), trace.skipped) == (3, 1)
    assert read(FORMATS["plain"], time_unit="ms").span_s == pytest.approx(0.003)


@pytest.mark.parametrize(("header", "unit", "form"), [
    ("arrived_at_s,input_length,output_length", "s", "plain"),
    ("timestamp_s,input_length,output_length", "s", "mooncake"),
    ("timestamp,input_length,output_length", "ms", "mooncake"),
    ("timestamp,input_length,output_tokens", "s", "plain"),
    ("arrived_at,input_length,output_length", "s", "plain"),
    ("arrived_at_ms,prompt_tokens,output_tokens", "ms", "plain"),
    ("Timestamp [ms],ContextTokens,GeneratedTokens", "ms", "azure"),
    ("Arrival time in milliseconds,num_prefill_tokens,num_decode_tokens", "ms", "vidur"),
    ("Timestamp (seconds),Request tokens,Response tokens", "s", "burstgpt"),
])
def test_the_name_of_the_time_column_says_the_unit(header: str, unit: str, form: str) -> None:
    trace = read(header + "\n0,10,10\n1,10,10\n10,10,10\n")
    assert trace.span_s == pytest.approx({"s": 10, "ms": 0.01}[unit])
    assert trace.format == form
    names = header.split(",")
    rows = "".join(json.dumps(dict(zip(names, (t, 10, 10), strict=True))) + "\n"
                   for t in (0, 1, 10))
    assert read(rows).span_s == trace.span_s
    other = {"s": "ms", "ms": "s"}[unit]
    asked = read(header + "\n0,10,10\n1,10,10\n10,10,10\n", time_unit=other)
    assert asked.span_s == pytest.approx({"s": 10, "ms": 0.01}[other]), "who asks knows better"


def test_iso_times_have_no_unit() -> None:
    rows = "".join(f"2024-01-01T00:00:{s:02},10,10\n" for s in (0, 1, 10))
    for header in ("timestamp,input_length,output_length",
                   "arrived_at_ms,input_tokens,output_length"):
        assert read(header + "\n" + rows).span_s == 10
    assert read("timestamp,input_length,output_length\n" + rows, time_unit="ms").span_s == 10


def test_other_units_and_units_of_tokens_are_no_column_of_ours() -> None:
    for name in ("timestamp_us", "timestamp_ns", "timestamp_min"):
        with pytest.raises(BadTrace, match="no column 'timestamp'"):
            read(f"{name},prompt_tokens,output_tokens\n0,1,1\n")
    with pytest.raises(BadTrace, match="no column 'prompt_tokens'"):
        read("timestamp,prompt_tokens_s,output_tokens\n0,1,1\n")
    with pytest.raises(BadTrace, match="could both be timestamp"):
        read("timestamp_s,timestamp_ms,prompt_tokens,output_tokens\n0,0,1,1\n")


BAD = {
    "empty": ("", "is empty"),
    "blank": ("\n\n", "is empty"),
    "header alone": (HEADER, "at least three requests"),
    "missing column": ("timestamp,prompt_tokens\n1,2\n", "no column 'output_tokens'.*'timestamp'"),
    "two of a kind": ("timestamp,prompt_tokens,input_tokens,output_tokens\n", "could both be"),
    "unsorted": (HEADER + "1,1,1\n3,1,1\n2,1,1\n", "row 3 comes before the row above it"),
    "negative length": (HEADER + "1,1,1\n2,-5,1\n", "row 2 has prompt_tokens '-5'"),
    "negative time": (HEADER + "-1,1,1\n", "row 1 has the timestamp '-1'"),
    "no tokens": (HEADER + "1,1,1\n2,1,0\n", "row 2 has output_tokens '0'"),
    "a fraction": (HEADER + "1,1,1.5\n", "row 1 has output_tokens '1.5'"),
    "nan length": (HEADER + "1,1,1\n2,nan,1\n", "row 2 has prompt_tokens 'nan'"),
    "nan time": (HEADER + "1,1,1\nnan,1,1\n", "row 2 has the timestamp 'nan'"),
    "infinite time": (HEADER + "inf,1,1\n", "row 1 has the timestamp"),
    "too long": (HEADER + "1,1,1\n2,1,99999999999\n", "row 2 has output_tokens"),
    "words": (HEADER + "1,1,1\n2,many,1\n", "row 2 has prompt_tokens 'many'"),
    "kinds of time": (HEADER + "2024-01-01,1,1\n5,1,1\n", "row 2 has the timestamp '5'"),
    "short row": (HEADER + "1,1,1\n2,1\n", "row 2 has 2 fields; the header has 3"),
    "long row": (HEADER + "1,1,1\n2,1,1,1\n", "row 2 has 4 fields"),
    "at once": (HEADER + "1,1,1\n" * 4, "at the same time"),
    "not utf-8": (HEADER.encode() + b"1,1,1\n2,\xff,1\n", "line 3 is not UTF-8.*0xff"),
    "utf-16": (FORMATS["plain"].encode("utf-16"), "line 1 is not UTF-8"),
    "a workbook": (b"PK\x03\x04\x14\x00\x08\x08", "no column"),
    "not json": ('{"timestamp": 0, "input_length": 1, "output_length": 1}\n{"timestamp"\n',
                 "row 2 is not JSON"),
    "json without a key": ('{"timestamp": 0, "input_length": 1, "output_length": 1}\n'
                           '{"timestamp": 1, "input_length": 1}\n', "row 2 has no 'output_length'"),
    "json null": ('{"timestamp": 0, "input_length": null, "output_length": 1}\n', "row 1 has inp"),
    "json true": ('{"timestamp": 0, "input_length": true, "output_length": 1}\n', "row 1 has inp"),
    "an array": ("[1, 2]\n", "no column"),
    "half of a gzip": (gzip.compress(FORMATS["plain"].encode())[:-12], "ends in the middle"),
    "gzip of noise": (b"\x1f\x8b" + b"noise" * 9, "gzip data is broken"),
    "a line end in a number": (HEADER + '1,1,1\n2,"1\n2",10\n', r"row 2 has prompt_tokens '1\\n2'"),
    "a line end in a time": (HEADER + '"1\r\n2",12,10\n', r"row 1 has the timestamp '1\\n2'"),
    "text after a quote": (HEADER + '1,1,1\n2,"10"0,10\n', "row 2 is not CSV.*expected after"),
    "an open quote": (HEADER + '1,1,1\n2,1,"10\n3,1,1\n', "row 2 is not CSV.*end of data"),
    "an open quote, no line end": (HEADER + '1,1,"10', "row 1 is not CSV.*end of data"),
    "an open quote in the header": ('timestamp,prompt_tokens,"output_tokens\n1,1,1\n',
                                    "the header is not CSV"),
    "underscores": (HEADER + "1,1_000,1\n", "row 1 has prompt_tokens '1_000'"),
    "underscores in a time": (HEADER + "1,1,1\n1_0,1,1\n", "row 2 has the timestamp '1_0'"),
    "underscores in the first time": (HEADER + "1_0,1,1\n", "row 1 has the timestamp '1_0'"),
    "other digits": (HEADER + "1,\u0661\u0662,1\n", "row 1 has prompt_tokens"),
    "doubled key": (JSON_ROW + '{"timestamp": 1, "input_length": 1, "input_length": 2, '
                    '"output_length": 1}\n', "row 2 has the key 'input_length' twice"),
    "doubled key in the first row": ('{"timestamp": 0, "timestamp": 9, "input_length": 1, '
                                     '"output_length": 1}\n', "row 1 has the key 'timestamp'"),
    "doubled key inside": (JSON_ROW[:-2] + ', "x": {"a": 1, "a": 2}}\n', "row 1 has the key 'a'"),
    "underscores in json": (JSON_ROW.replace('h": 1', 'h": "1_0"'), "row 1 has input_length '1_0'"),
    "a nul": (HEADER + "1,\x00,1\n", "row 1 "),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_traces(name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(BadTrace, match=message):
        read(text)


def test_quotes_that_are_closed_may_hold_anything() -> None:
    text = ('note,timestamp,prompt_tokens,output_tokens\n"a\nb",0,1,1\n"say ""x"", y",1,"2",1\n'
            ',2,3,1\n')
    assert read(text).prompt_tokens.tolist() == [1, 2, 3]


def test_the_pointer_names_row_and_column() -> None:
    with pytest.raises(BadTrace) as found:
        read(BAD["negative length"][0])
    assert found.value.pointer == "/rows/2/prompt_tokens"


def test_too_many_rows_and_too_long_a_line() -> None:
    rows = HEADER + "".join(f"{i},1,1\n" for i in range(11))
    assert len(read(rows, ReadLimits(rows=11))) == 11
    with pytest.raises(TraceTooLarge, match="more than 10 rows"):
        read(rows, ReadLimits(rows=10))
    with pytest.raises(TraceTooLarge, match="more than 50 bytes"):
        read(rows, ReadLimits(size_bytes=50))
    with pytest.raises(BadTrace, match="line 1 is longer than 1,000,000 bytes"):
        read("x" * 3_000_000)


@pytest.mark.parametrize("start", [
    HEADER + "0,1,1\n",
    HEADER + '0,1,1\n0,"',
    '{"timestamp": 0, "input_length": 1, "output_length": 1}\n',
])
@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"  \n"])
def test_blank_lines_count(start: str, blank: bytes) -> None:
    data = start.encode() + blank * 900
    if not start.endswith('"'):
        with contextlib.suppress(BadTrace):  # a CSV line of spaces is a row of one field
            assert read(data, ReadLimits(rows=100)).skipped == 0
    stream = Counted(gzip.compress(start.encode() + blank * 5_000_000))
    if blank == b"  \n" and start.endswith("1\n"):
        with pytest.raises(BadTrace, match="row 2 has 1 fields"):
            read_trace(stream, ReadLimits(rows=100))
        return
    with pytest.raises(TraceTooLarge, match=r"more than 1,100 lines.*after row 1\)"):
        read_trace(stream, ReadLimits(rows=100))
    assert stream.taken <= 65_536, "the rest is not even read"


def test_blank_lines_before_the_first_row_count() -> None:
    with pytest.raises(TraceTooLarge, match="more than 1,001 lines"):
        read("\n" * 2_000, ReadLimits(rows=1))


class Counted(io.BytesIO):
    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def test_a_gzip_bomb_is_not_inflated() -> None:
    engine = zlib.compressobj(9, wbits=31)
    block = ("1,1,1\n" * 200_000).encode()
    bomb = engine.compress(HEADER.encode())
    bomb += b"".join(engine.compress(block) for _ in range(200)) + engine.flush()
    stream = Counted(bomb)
    with pytest.raises(TraceTooLarge, match="more than 1,000,000 bytes of text"):
        read_trace(stream, ReadLimits(size_bytes=1_000_000))
    assert stream.taken < len(bomb), "what lies beyond the limit is not even read"


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_noise_is_refused(data: bytes) -> None:
    line = b'{"timestamp": 0, "input_length": 1, "output_length": 1}\n'
    for start in (b"", HEADER.encode(), line, b"\x1f\x8b"):
        with contextlib.suppress(PlannerError):
            read(start + data)


rows = st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 10**7), st.integers(1, 10**7)),
                min_size=3, max_size=50)


@given(rows)
@settings(max_examples=100, deadline=None)
def test_packing_keeps_every_row(found: list[tuple[float, int, int]]) -> None:
    found.sort()
    if found[-1][0] <= found[0][0]:
        return
    trace = read(HEADER + "".join(f"{t!r},{p},{o}\n" for t, p, o in found))
    again = unpack(pack(trace))
    assert np.abs(again.arrived_at_s - trace.arrived_at_s).max() <= 0.5e-6
    assert (again.prompt_tokens == trace.prompt_tokens).all()
    assert (again.output_tokens == trace.output_tokens).all()
    workload = workload_at_peak(trace)
    assert sum(p["share"] for p in workload["prompt_tokens"]) == pytest.approx(1)


def test_slices_and_rates() -> None:
    trace = read(HEADER + "".join(f"{i},1,1\n" for i in range(100)))
    part = trace.between(10, 20)
    assert (len(part), part.arrived_at_s[0], part.span_s) == (10, 0, 9)
    assert trace.faster(2).span_s == 99 / 2
    with pytest.raises(PlannerError, match="only 0 requests"):
        trace.between(500, 600)


def test_a_trace_shorter_than_a_minute_is_its_own_peak() -> None:
    stats = statistics(read(HEADER + "".join(f"{i / 10},1,1\n" for i in range(101))))
    assert stats["span_s"] == 10
    assert stats["requests_per_second_peak"] == pytest.approx(10.1)
    few = statistics(read(HEADER + "".join(f"{i},1,1\n" for i in range(4))))
    assert few["requests_per_second_peak"] == few["requests_per_second_mean"] == 1.333
    assert few["peak_over_mean"] == 1.0


@pytest.mark.skipif(not SHARED.exists(), reason="the published traces are not here")
@pytest.mark.parametrize(("name", "form", "requests"), [
    ("raw_format_azure_code_first2000.csv", "azure", 1999),
    ("raw_format_mooncake_first500.jsonl", "mooncake", 500),
    ("azure2023_conv.csv", "plain", 19366),
])
def test_real_files(name: str, form: str, requests: int) -> None:
    with (SHARED / name).open("rb") as stream:
        trace = read_trace(stream)
    assert (trace.format, len(trace)) == (form, requests)
