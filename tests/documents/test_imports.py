"""The pages for those who come from elsewhere are held to what `airflow tony import` goes by.

Each key of theirs that is read is in a row of its system's page, beside the key of ours that it becomes.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from tests.documents.pages import ROOT, prose
from tony_provider.importers.job_source import System
from tony_provider.importers.key_table import KeyRule, Keys
from tony_provider.importers.read_job import SYSTEMS

RULES = [
    pytest.param(system, key, rule, id=f"{system.name}-{key}")
    for system in SYSTEMS
    for keys in system.keys
    for key, rule in keys.rules.items()
]
_NAME = re.compile(r"<[^>]+>")


def rows(system: System) -> list[list[str]]:
    """The cells of all tables of its page, without their heads."""
    lines = [line for line in prose(ROOT / "docs" / f"{system.page}.md").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def spans(cell: str) -> list[str]:
    """What stands in code, each option of several by itself."""
    return [word for span in re.findall(r"`([^`]+)`", cell) for word in (span, *span.split(", "))]


def spellings(key: str) -> list[str]:
    """As a document may call it: whole, its last part, or as an option."""
    last = key.rpartition(">.")[2]
    return [key, last, last.rpartition(".")[2], f"-{key}", f"--{key}"]


def names(cell: str, key: str) -> bool:
    """Whether the cell names a key; in both ``<…>`` is any name, and in the cell ``*`` is any text."""
    known = [_NAME.sub("NAME", each) for each in spellings(key)]
    wanted = [_NAME.sub("NAME", span) for span in spans(cell)]
    return any(each == span or ("*" in span and fnmatchcase(each, span)) for each in known for span in wanted)


@pytest.mark.parametrize(("system", "key", "rule"), RULES)
def test_each_key_that_is_read_has_a_row_that_names_what_it_becomes(system: System, key: str, rule: KeyRule) -> None:
    found = [row for row in rows(system) if names(row[0], key)]
    assert found, f"docs/{system.page}.md has no row for {key}"
    if rule.here:
        last = rule.here.rpartition(".")[2].strip("<>")
        here = [" ".join(row[1:]) for row in found]
        assert any(re.search(rf"\b{last}\b", text) for text in here), (
            f"{key} becomes {rule.here}, and its row says {here}"
        )


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_options_and_keys_in_a_row_are_read(system: System) -> None:
    """What looks like a key of TonY's, an Hbox option or a property of YARN's is one that is known."""
    looks = re.compile(r"(?:tony|hbox|yarn\.service)\.[\w.<>*-]+|--?[A-Za-z][\w-]+")
    told = {span for row in rows(system) for span in spans(row[0]) if looks.fullmatch(span)}
    unknown = {span for span in told if not any(_knows(keys, span) for keys in system.keys)}
    assert unknown - _OTHERS.get(system.name, set()) == set()


# Options of other commands than the one that is read.
_OTHERS = {
    "yarn-service": {"-stop", "-start", "-destroy", "-status"},
    "torchx": {"-s", "-cfg", "--workspace", "--dryrun", "--wait", "--log"},
}


def _knows(keys: Keys, span: str) -> bool:
    if "*" in span:
        return any(fnmatchcase(_NAME.sub("NAME", key), span) for key in keys)
    return any(keys.find(each) for each in (span, span.lstrip("-"), _NAME.sub("NAME", span)))
