"""The migration guides describe what `airflow tony import` does.

Each key of another system that the import reads is in a table of the system's guide, next to our key that it becomes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.documents.pages import ROOT, prose
from tony_provider.importers.job_source import System
from tony_provider.importers.key_table import KeyRule, Keys
from tony_provider.importers.read_job import SYSTEMS

GUIDES = ROOT / "docs" / "migrate"
RULES = [
    pytest.param(system, key, rule, id=f"{system.name}-{key}")
    for system in SYSTEMS
    for keys in system.keys
    for key, rule in keys.rules.items()
]
_NAME = re.compile(r"<[^>]+>")


def tables(page: Path) -> Iterator[list[list[str]]]:
    """Yield the tables of a page, each as rows of cells. The first row is the head."""
    for part in prose(page).split("\n\n"):
        lines = part.strip().splitlines()
        if lines and lines[0].startswith("|"):
            yield [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def rows(system: System) -> list[list[str]]:
    """Return the rows of all tables of a system's guide, without their heads."""
    return [row for table in tables(GUIDES / f"{system.page}.md") for row in table[1:]]


def spans(cell: str) -> list[str]:
    """Return the code in a cell, and each of several options separately."""
    return [word for span in re.findall(r"`([^`]+)`", cell) for word in (span, *span.split(", "))]


def spellings(key: str) -> list[str]:
    """Return the forms of a key that a document may use: the whole key, its last part, or an option."""
    last = key.rpartition(">.")[2]
    return [key, last, last.rpartition(".")[2], f"-{key}", f"--{key}"]


def names(cell: str, key: str) -> bool:
    """Return whether the cell names a key. In both, ``<…>`` is any name; in the cell, ``*`` is any text."""
    known = [_NAME.sub("NAME", each) for each in spellings(key)]
    wanted = [_NAME.sub("NAME", span) for span in spans(cell)]
    return any(each == span or ("*" in span and fnmatchcase(each, span)) for each in known for span in wanted)


@pytest.mark.parametrize(("system", "key", "rule"), RULES)
def test_each_key_that_is_read_has_a_row_that_names_what_it_becomes(system: System, key: str, rule: KeyRule) -> None:
    found = [row for row in rows(system) if names(row[0], key)]
    assert found, f"docs/migrate/{system.page}.md has no row for {key}"
    if rule.here:
        last = rule.here.rpartition(".")[2].strip("<>")
        here = [" ".join(row[1:]) for row in found]
        assert any(re.search(rf"\b{last}\b", text) for text in here), (
            f"{key} becomes {rule.here}, and its row says {here}"
        )


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_options_and_keys_in_a_row_are_read(system: System) -> None:
    """Each text in a table that looks like a key of TonY, Hbox or YARN, or like an option, is a known key."""
    looks = re.compile(r"(?:tony|hbox|yarn\.service)\.[\w.<>*-]+|--?[A-Za-z][\w-]+")
    told = {span for row in rows(system) for span in spans(row[0]) if looks.fullmatch(span)}
    assert {span for span in told if not any(_knows(keys, span) for keys in system.keys)} == set()


def _knows(keys: Keys, span: str) -> bool:
    if "*" in span:
        return any(fnmatchcase(_NAME.sub("NAME", key), span) for key in keys)
    return any(keys.find(each) for each in (span, span.lstrip("-"), _NAME.sub("NAME", span)))
