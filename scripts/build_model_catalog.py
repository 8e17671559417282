"""Rebuild the model catalog and its golden table from a folder of configs.

Writes ``planner/catalog/models.jsonl`` and ``tests/golden/models.csv``.

Usage::

    python scripts/build_model_catalog.py CONFIG_FOLDER [--as-of 2026-10-31]

``CONFIG_FOLDER`` holds one ``ORG__NAME.json`` per model (a Hugging Face config.json) and an
``index.csv`` with at least ``hf_id,file,source,published_total_b,published_active_b``. The folder
is not part of the project: it is what a maintainer collected. Models of ``model_sources.json``
(config fields typed from the cited source) are added to it, with other names of a config
(``same_as``) and checkpoints that change some of its fields (``variants``).

Configs that give the same architecture become one record; the other names are its aliases.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from planner.architectures import from_config, slug_of  # noqa: E402
from planner.llm import Llm  # noqa: E402

IDENTITY = ("slug", "name", "hf_id", "architecture")
LEADERS = ("deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.1-8B-Instruct",
           "meta-llama/Llama-3.1-70B-Instruct")
"""Models that name their group; otherwise the shortest slug does."""


@dataclass(frozen=True)
class Source:
    """One config with what its publisher says about it."""

    hf_id: str
    llm: Llm
    total: int | None
    active: int | None
    origin: str
    config: Mapping[str, Any]
    derived: bool = False
    own: str = ""


def number(text: str) -> int | None:
    """Billions as text to a whole number of parameters."""
    return round(float(text) * 1e9) if text else None


def folder(path: Path, sections: Mapping[str, Any]) -> Iterator[Source]:
    """Configs of the folder, with sections that a publisher keeps in a file of its own."""
    with (path / "index.csv").open(newline="") as handle:
        for row in csv.DictReader(handle):
            config = json.loads((path / row["file"]).read_text())
            # Name the work itself, not the channel it came through.
            origin = re.sub(r"^\w+ (?=aiconfigurator)", "", row["source"])
            extra = sections.get(row["hf_id"])
            if extra:
                config["quantization_config"] = extra["section"]
                origin += f"; quantization: {extra['source']}"
            yield Source(row["hf_id"], from_config(config, hf_id=row["hf_id"]),
                         number(row["published_total_b"]), number(row["published_active_b"]),
                         origin, config)


def typed(entries: list[dict[str, Any]]) -> Iterator[Source]:
    """Models typed from a cited source."""
    for entry in entries:
        llm = from_config(entry["config"], hf_id=entry["hf_id"])
        yield Source(entry["hf_id"], llm, entry.get("published_total_params"),
                     entry.get("published_active_params"), entry["source"], entry["config"])


def derived(facts: Mapping[str, Any], known: Mapping[str, Source]) -> Iterator[Source]:
    """Checkpoints of a known architecture: other names of it, and ones that change a field."""
    for base, names in facts["same_as"].items():
        for name in names:
            config = known[base].config
            yield Source(name, from_config(config, hf_id=name), None, None,
                         f"{known[base].origin}; same config as {base}", config, derived=True)
    for one in facts["variants"]:
        config = {**known[one["base"]].config, **one["changes"]}
        yield Source(one["hf_id"], from_config(config, hf_id=one["hf_id"]), None, None,
                     one["source"], config, derived=True, own=one.get("own", ""))


def folded(sources: list[Source]) -> list[list[Source]]:
    """Groups of equal architectures, each with its leader first; ``own`` keeps one apart."""
    groups: dict[str, list[Source]] = {}
    for source in sources:
        record = {k: v for k, v in source.llm.to_record().items() if k not in IDENTITY}
        groups.setdefault(source.own + json.dumps(record, sort_keys=True), []).append(source)
    for group in groups.values():
        group.sort(key=lambda s: (s.hf_id not in LEADERS, s.derived, len(s.llm.slug), s.hf_id))
    return sorted(groups.values(), key=lambda g: g[0].llm.slug)


def entry(group: list[Source], as_of: str, includes: Mapping[str, Any]) -> dict[str, Any]:
    """One line of the catalog."""
    leader = group[0]
    names = {s.hf_id for s in group[1:]} | {slug_of(s.hf_id) for s in group}
    return {
        "slug": leader.llm.slug, "name": leader.llm.name, "hf_id": leader.hf_id,
        "aliases": sorted(names - {leader.llm.slug, leader.hf_id}),
        "published_total_params": next((s.total for s in group if s.total), None),
        "published_active_params": next((s.active for s in group if s.active), None),
        "published_includes": includes.get(leader.llm.slug, {}),
        "source": leader.origin, "as_of": as_of, "record": leader.llm.to_record(),
    }


def unique(entries: list[dict[str, Any]]) -> None:
    """Stop when two records answer to one name."""
    seen: dict[str, str] = {}
    for one in entries:
        for name in (one["slug"], one["hf_id"], *one["aliases"]):
            if seen.setdefault(name.lower(), one["slug"]) != one["slug"]:
                raise SystemExit(f"{name} names {seen[name.lower()]} and {one['slug']}")


def golden(groups: list[list[Source]]) -> list[list[Any]]:
    """Check values of every record."""
    rows: list[list[Any]] = [["slug", "total", "active", "kv_bytes_per_token",
                              "kv_bytes_per_token_beyond_window", "kv_window_cap_bytes",
                              "state_bytes", "source"]]
    for group in groups:
        m = group[0].llm
        rows.append([m.slug, m.total_params, m.active_params, repr(m.kv_bytes_per_token()),
                     repr(m.kv_bytes_per_token_beyond_window()),
                     repr(m.kv_window_cap_bytes()), m.state_bytes_per_sequence,
                     group[0].origin])
    return rows


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--as-of", default="2026-10-31")
    args = parser.parse_args()
    facts = json.loads((Path(__file__).parent / "model_sources.json").read_text())
    given = [*folder(args.folder, facts["quantization"]), *typed(facts["models"])]
    groups = folded([*given, *derived(facts, {s.hf_id: s for s in given})])
    entries = [entry(group, args.as_of, facts["published_includes"]) for group in groups]
    unique(entries)
    lines = [json.dumps(e, separators=(",", ":")) for e in entries]
    (ROOT / "planner/catalog/models.jsonl").write_text("\n".join(lines) + "\n")
    with (ROOT / "tests/golden/models.csv").open("w", newline="") as handle:
        csv.writer(handle, lineterminator="\n").writerows(golden(groups))
    print(f"{len(entries)} records from {sum(map(len, groups))} configs")


if __name__ == "__main__":
    main()
