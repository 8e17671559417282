"""The documents: links resolve, settings and commands are real and complete."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"),
                    *(ROOT / "examples").glob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
SETTING = re.compile(r"\b(?:PLANNER_[A-Z0-9_]*[A-Z0-9]|DATABASE_URL)\b")


def outside_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(file: Path) -> set[str]:
    """Anchors as the usual Markdown viewers make them from headings."""
    headings = re.findall(r"^#+ (.+)$", outside_code(file.read_text(encoding="utf-8")),
                          flags=re.MULTILINE)
    plain = [re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", h).strip().lower() for h in headings]
    return {re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in plain}


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.name)
def test_links_resolve(file: Path) -> None:
    broken = []
    for link in LINK.findall(outside_code(file.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_document_is_reachable_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [d.name for d in (ROOT / "docs").glob("*.md") if f"docs/{d.name}" not in text]
    assert not missing


def test_every_setting_is_documented() -> None:
    pytest.importorskip("planner.settings")
    sources = [ROOT / "app.py", *(ROOT / "planner").rglob("*.py")]
    used = {name for s in sources if s.exists()
            for name in SETTING.findall(s.read_text(encoding="utf-8"))}
    documented = set(SETTING.findall((ROOT / "docs" / "settings.md").read_text(encoding="utf-8")))
    assert used <= documented
    assert documented <= used, "documented, but nothing reads it"


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.name)
def test_make_targets_exist(file: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)(?=[`\s])",
                           "\n".join(re.findall(r"```.*?```|`[^`]+`",
                                                file.read_text(encoding="utf-8"),
                                                flags=re.DOTALL))))
    assert named <= targets


def test_files_named_in_commands_exist() -> None:
    named = {name for d in DOCUMENTS
             for name in re.findall(r"\b(?:examples|scripts)/[\w.]+\.(?:json|py|sh)\b",
                                    d.read_text(encoding="utf-8"))}
    assert named
    assert all((ROOT / name).exists() for name in named)
