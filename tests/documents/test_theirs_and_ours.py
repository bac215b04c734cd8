"""The table of others' features and ours: what it names of ours is there, and whatever an import leaves is told."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
import pytest
from airflow.cli.cli_parser import get_parser
from airflow.providers.common.compat.sdk import BaseOperator

from tests.documents.pages import ROOT, anchors, prose
from tests.documents.test_imports import names, rows, spans
from tony_provider.importers.job_source import System
from tony_provider.importers.key_table import KeyRule
from tony_provider.importers.read_job import SYSTEMS, UNSUPPORTED
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec
from tony_provider.runtime.jobspec.placement import Placement

PAGE = ROOT / "docs" / "theirs-and-ours.md"
WHO = (
    "TonY",
    "TensorFlow on Slider",
    "TensorFlowOnSpark",
    "TensorFlowOnYARN",
    "tf-yarn",
    "Hbox",
    "Skein",
    "YARN services",
    "TorchX",
    "Kubeflow Trainer",
)
LEFT = [
    pytest.param(system, key, rule, id=f"{system.name}-{key}")
    for system in SYSTEMS
    for keys in system.keys
    for key, rule in keys.rules.items()
    if rule.why
]


def table() -> list[list[str]]:
    """The cells of its rows, without the heads."""
    found = [part.splitlines()[2:] for part in prose(PAGE).split("\n\n") if part.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for lines in found for line in lines]


ROWS = [pytest.param(row, id=row[0][:40]) for row in table()]


def test_each_system_has_rows() -> None:
    who = " ".join(row[1] for row in table())
    assert [each for each in WHO if each not in who] == []
    assert len(table()) > 100


@pytest.mark.parametrize("row", ROWS)
def test_each_feature_has_somebody_and_something(row: list[str]) -> None:
    assert len(row) == 3
    assert all(row)
    if row[2].startswith("none"):
        assert len(row[2].split()) > 5, "why?"
    else:
        assert "](" in row[2], "a link says more"


# -- what is named is there --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS)
def test_what_of_ours_is_named_is_there(row: list[str]) -> None:
    named = re.findall(r"`([^`]+)`", row[2])
    assert [each for each in named if not any(there(part) for part in (each, each.partition(": ")[0]))] == []


def there(name: str) -> bool:
    """Whether it is a command, a key, an argument, a field of the connection, a variable, or a word of ours."""
    looks = (is_command, is_key, is_argument, is_field, is_variable, is_stable)
    return name in _WORDS or any(look(name) for look in looks)


# What is no key by itself: values, decorators, and what stands for something.
_WORDS = {
    "@task.tony",
    "parameters",
    "standalone",
    "dry_run()",
    "--set",
    "command",
    "worker",
    "chief",
    "ps",
    "all",
    "any",
    "port",
    "started",
    "ready",
    "succeeded",
    "not-self/TAG",
    "or",
    "disk!=hdd",
    "curl",
    "yarn application -movetoqueue",
    "tony_sdk.report",
    "file",
}


def is_command(name: str) -> bool:
    """Such as ``airflow tony submit``."""
    if not name.startswith("airflow tony "):
        return False
    place: Any = get_parser()
    for word in name.split()[1:]:
        groups = [each for each in place._actions if hasattr(each, "choices") and isinstance(each.choices, dict)]
        if not groups or word not in groups[0].choices:
            return False
        place = groups[0].choices[word]
    return True


def is_key(name: str) -> bool:
    """A key of the job, of a task type, or of what is in them, as a path that begins at any of these."""
    return any(_leads(kind, name.split(".")) for kind in _KINDS)


def _leads(kind: type, path: list[str]) -> bool:
    hints = get_type_hints(kind)
    if path[0] not in attrs.fields_dict(kind):
        return False
    below = next(iter(_models(hints[path[0]])), None)
    return len(path) == 1 or (below is not None and _leads(below, path[1:]))


def _models(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and attrs.has(hint):
        yield hint
    elif get_origin(hint) in (Union, types.UnionType, list, dict):
        for each in get_args(hint):
            yield from _models(each)


def _every_model(kind: type) -> Iterator[type]:
    yield kind
    for hint in get_type_hints(kind).values():
        for each in _models(hint):
            yield from _every_model(each)


_KINDS = list(dict.fromkeys([*_every_model(JobSpec), *_every_model(TaskSpec), *_every_model(Placement)]))


def is_argument(name: str) -> bool:
    """Of the operator, or of every operator."""
    return any(name in inspect.signature(kind).parameters for kind in (TonyTrainOperator, BaseOperator))


def is_field(name: str) -> bool:
    """Of the connection, as the reference has them."""
    cells = [line.split("|")[1] for line in prose(ROOT / "docs" / "reference.md").splitlines() if line.startswith("|")]
    return any(f"`{name}`" in cell for cell in cells)


def is_stable(name: str) -> bool:
    """A name of Python's that is promised to stay."""
    return name.startswith("tony_provider.") and f"`{name}`" in (ROOT / "docs" / "stable.md").read_text()


def is_variable(name: str) -> bool:
    return name.startswith("TONY_") and f"`{name}`" in (ROOT / "docs" / "job-specification.md").read_text()


def test_values_of_keys_are_some_of_theirs() -> None:
    """``success: chief`` and the like, where the key has a fixed set of values."""
    sets: dict[str, set[str]] = {}
    for kind in _KINDS:
        for name, hint in get_type_hints(kind).items():
            for each in (hint, *get_args(hint)):
                if isinstance(each, type) and issubclass(each, Enum):
                    sets.setdefault(name, set()).update(member.value for member in each)
    given = [(key, value) for row in table() for key, value in re.findall(r"`(\w+): ([\w-]+)`", row[2])]
    assert given
    assert [(key, value) for key, value in given if key in sets and value not in sets[key]] == []


# -- whatever is left is told ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("system", "key", "rule"), LEFT)
def test_what_is_left_is_told_with_its_reason(system: System, key: str, rule: KeyRule) -> None:
    """In the row of its key: what there is instead, or more than that there is none."""
    found = [row for row in rows(system) if names(row[0], key)]
    told = " ".join(cell for row in found for cell in row[1:] if not cell.startswith("`…"))
    instead = bool(rule.here) or any(span for row in found for span in spans(row[-1]) if not span.startswith("none"))
    reason = re.sub(r"`[^`]*(?:\.\w+|/[\w-]+)`|\bnone\b", "", told).split()
    assert instead or len(reason) > 1, f"{key}: {rule.why}: {told!r}"


def test_each_systems_page_is_linked_and_leads_here() -> None:
    text = PAGE.read_text()
    for page in {*(f"{system.page}.md" for system in SYSTEMS), "from-tensorflowonspark.md"}:
        assert f"]({page}" in text
        assert "](theirs-and-ours.md" in (ROOT / "docs" / page).read_text(), page


@pytest.mark.parametrize("unread", UNSUPPORTED, ids=lambda each: each.title)
def test_messages_name_pages_that_are_there(unread: Any) -> None:
    page = ROOT / str(unread.page).split()[0]
    assert page.exists()
    assert list(anchors(page))
