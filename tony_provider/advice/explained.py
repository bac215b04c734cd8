"""What the documents say of a rule, for those who have the package alone."""

from __future__ import annotations

from pathlib import Path

_PAGES = (  # in an installed package, and in the repository
    Path(__file__).with_name("advice.md"),
    Path(__file__).parents[2] / "docs" / "advice.md",
)


def explained(rule: str) -> str:
    """The section of a rule, without its title; empty: it has none. Raises FileNotFoundError where there is no page."""
    page = next((each for each in _PAGES if each.exists()), _PAGES[0]).read_text(encoding="utf-8")
    _, _, section = page.partition(f"\n## {rule}\n")
    return section.partition("\n## ")[0].strip()
