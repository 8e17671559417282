"""The shipped model catalog against its golden table and against what publishers say."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from planner.llm import Llm, Role, from_record

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = [json.loads(line) for line in
           (ROOT / "planner/catalog/models.jsonl").read_text().splitlines()]
RECORDS: dict[str, Llm] = {e["slug"]: from_record(e["record"]) for e in ENTRIES}
with (ROOT / "tests/golden/models.csv").open(newline="") as _handle:
    GOLDEN = list(csv.DictReader(_handle))


def test_catalog_is_large_and_golden_covers_it():
    assert len(ENTRIES) >= 120
    assert {row["slug"] for row in GOLDEN} == set(RECORDS)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: r["slug"])
def test_golden_values(row):
    llm = RECORDS[row["slug"]]
    assert llm.total_params == int(row["total"])
    assert llm.active_params == int(row["active"])
    assert llm.kv_bytes_per_token() == float(row["kv_bytes_per_token"])
    assert llm.kv_bytes_per_token_beyond_window() == float(
        row["kv_bytes_per_token_beyond_window"])
    assert llm.kv_window_cap_bytes() == float(row["kv_window_cap_bytes"])
    assert llm.state_bytes_per_sequence == int(row["state_bytes"])


def test_names_are_unique_and_resolve():
    owner: dict[str, str] = {}
    for entry in ENTRIES:
        for name in (entry["slug"], entry["hf_id"], *entry["aliases"]):
            assert owner.setdefault(name.lower(), entry["slug"]) == entry["slug"]
    for slug in ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "mixtral-8x7b-v0.1",
                 "deepseek-v3", "gpt-oss-120b", "qwen3-32b-fp8", "llama-3.1-70b-fp8"):
        assert slug in RECORDS
    assert owner["deepseek-ai/deepseek-r1"] == "deepseek-v3"
    assert owner["llama-3.3-70b"] == "llama-3.1-70b"


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e["published_total_params"]],
                         ids=lambda e: e["slug"])
def test_total_within_one_percent_of_published(entry):
    llm = RECORDS[entry["slug"]]
    stated = entry["published_total_params"] - sum(entry["published_includes"].values())
    assert llm.total_params == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["slug"])
def test_records_are_sound(entry):
    llm = RECORDS[entry["slug"]]
    assert from_record(json.loads(json.dumps(llm.to_record()))) == llm
    assert entry["source"]
    assert entry["as_of"]
    assert 0 < llm.active_params <= llm.total_params
    assert (llm.params(Role.LM_HEAD) == 0) == llm.tied_embeddings
    for count, stream in llm.streams():
        assert count > 0
        assert stream.values_per_entry % stream.heads == 0
    for group in llm.groups:
        assert all(w.elements > 0 for w in group.all_weights())
        assert 0 <= group.all_reduces <= 2


FAMILIES = ("llama", "mistral", "mixtral", "ministral", "qwen1.5", "qwen2", "qwen2.5", "qwen3",
            "qwen3-vl", "qwen3.5", "deepseek-v2", "deepseek-v3", "deepseek-v4", "kimi", "glm",
            "minimax", "gpt-oss", "gemma", "phi", "falcon", "yi", "opt", "nvidia-nemotron",
            "ai21-jamba", "c4ai-command", "granite", "internlm", "olmo", "mimo", "step",
            "seed-oss", "starcoder", "codellama")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_records(family):
    assert any(slug.startswith(family) for slug in RECORDS)
