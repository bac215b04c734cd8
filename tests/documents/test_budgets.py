"""Pages keep their word budgets, guides begin alike, and examples bring the programs that they run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.pages import PAGES, ROOT, blocks, name

DOCS = ROOT / "docs"
WHOLE = 68_100  # words
FOLDERS = {"get-started": 1_300, "training-code": 1_200, "dags": 1_200, "platform": 1_200, "explanation": 1_500}
ALONE = {"README.md": 700, "CHANGELOG.md": 600, "docs/migrate/features.md": 900, "docs/explanation/performance.md": 900}
GUIDES = [page for folder in ("training-code", "dags", "platform") for page in sorted((DOCS / folder).glob("*.md"))]
_PROGRAM = re.compile(r"\b(?:python3?|torchrun)\s+(?:--?[\w-]+(?:[= ][\w$]+)?\s+)*([\w-][\w/.-]*\.py)\b")
_FILES = re.compile(r"\bfiles[\"']?\s*[:=]\s*(?:\[[^\]]*\]|\{[^}]*\}|(?:\n\s*- .*)+)")


def words(page: Path) -> int:
    """Count words and code, without the bars of tables and other marks."""
    return sum(bool(re.search(r"\w", each)) for each in page.read_text().split())


def test_all_pages_together() -> None:
    assert sum(words(page) for page in DOCS.rglob("*.md")) <= WHOLE


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_keeps_its_budget(page: Path) -> None:
    parts = page.relative_to(ROOT).parts
    budget = ALONE.get(name(page)) or FOLDERS.get(parts[1] if len(parts) > 2 else "")
    assert budget is None or words(page) <= budget


@pytest.mark.parametrize("page", [page for page in GUIDES if page.stem != "frameworks"], ids=name)
def test_a_guide_says_what_it_shows_and_what_it_needs(page: Path) -> None:
    _title, first, *_ = re.split(r"\n\s*\n", page.read_text())
    assert first.startswith("This guide shows how to ")
    assert "\n## Before you begin\n" in page.read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_an_example_brings_its_program(page: Path) -> None:
    for block in (*blocks(page, "yaml"), *blocks(page, "python")):
        if "framework" in block and re.search(r"\btasks\b", block):
            brought = " ".join(_FILES.findall(block))
            assert [each for each in _PROGRAM.findall(block) if each.split("/")[-1] not in brought] == []
