"""The feature matrix and the migration guides name only what exists, and give a reason for each key left out."""

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

from tests.documents.pages import ROOT, prose
from tests.documents.test_imports import GUIDES, names, rows, spans, tables
from tony_provider.hooks.fields import CONNECTION_FIELDS
from tony_provider.importers.job_source import System
from tony_provider.importers.key_table import KeyRule
from tony_provider.importers.read_job import SYSTEMS, UNSUPPORTED
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec
from tony_provider.runtime.jobspec.placement import Placement

PAGE = GUIDES / "features.md"
OTHERS = {**{system.title: system.page for system in SYSTEMS}, "TensorFlowOnSpark": "from-tensorflowonspark"}
LEFT = [
    pytest.param(system, key, rule, id=f"{system.name}-{key}")
    for system in SYSTEMS
    for keys in system.keys
    for key, rule in keys.rules.items()
    if rule.why
]
(MATRIX,) = tables(PAGE)
HEAD = [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell) for cell in MATRIX[0]]
ROWS = [pytest.param(row, id=row[0][:40]) for row in MATRIX[1:]]
OURS = [
    pytest.param(row[1], id=f"{page.stem}-{row[0][:40]}")
    for page in sorted(GUIDES.glob("*.md"))
    for table in tables(page)
    for row in table[1:]
]


def test_each_system_has_a_column_with_features() -> None:
    assert HEAD[:2] == ["feature", "tony_provider"]
    assert sorted(HEAD[2:]) == sorted(OTHERS)
    for column in range(2, len(HEAD)):
        assert len([row for row in MATRIX[1:] if row[column]]) > 5, HEAD[column]
    assert len(ROWS) > 30
    assert len(OURS) > 150


@pytest.mark.parametrize("row", ROWS)
def test_each_feature_has_a_link_or_a_reason(row: list[str]) -> None:
    assert len(row) == len(HEAD)
    assert row[0]
    if row[1] == "none":
        assert len(missing()[row[0]].split()) > 5, "why?"
    else:
        assert "](" in row[1], "a link says more"
    assert [cell for cell in row[2:] if not re.fullmatch(r"✓?|[A-Za-z][\w, ]*", cell)] == []


def missing() -> dict[str, str]:
    """Return the reason or the alternative for each missing feature."""
    section = PAGE.read_text().partition("\n## Missing features\n")[2]
    return dict(re.findall(r"^- \*\*(.+?)\.\*\* (.+)$", section, re.MULTILINE))


# -- names of ours exist -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", OURS)
def test_names_of_ours_exist(cell: str) -> None:
    named = re.findall(r"`([^`]+)`", cell)
    assert [each for each in named if not any(there(part) for part in (each, each.partition(": ")[0]))] == []


def there(name: str) -> bool:
    """Return whether a name is a command, key, value, argument, field of the connection, variable, or known word."""
    looks = (is_command, is_key, is_value, is_argument, is_variable)
    return name in _WORDS or name in CONNECTION_FIELDS or any(look(name) for look in looks)


# Texts that are neither keys nor values of ours.
_WORDS = {
    "@task.tony",
    "TonyTrainOperator",
    "tony_sdk.report",
    "--set",
    "prepare",  # the task type that all others wait for
    "standalone",
    "TF_CONFIG",
    "tcp://$TONY_RENDEZVOUS",
    "$TONY_APPLICATION_ID",
    "$TONY_TASK_INDEX",
    "RAY_ADDRESS",
    "ray status",
    "PATH",
    "/bin/sh",
    "8GiB",
    "8g",
    "8GB",
    "hdfs://",
    # names of other systems that a counterpart refers to
    "YARN_CONTAINER_RUNTIME_…",
    "or(…)",
    "driver",
    "scheduler",
    "viewfs://",
    "gloo_allred_task",
    "NEVER",
    "ALWAYS",
    "HTTP",
    "TARBALL",
    "REPLICA",
    "${COMPONENT_INSTANCE_NAME}",
    "${app_id}",
    "${replica_id}",
}


def is_command(name: str) -> bool:
    """Return whether a name is a command such as ``airflow tony submit``."""
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
    """Return whether a name is a path of keys that begins in the job, a task type, or a part of these."""
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


def _value_sets() -> dict[str, set[str]]:
    """Return the values of each key that has a fixed set of values."""
    sets: dict[str, set[str]] = {}
    for kind in _KINDS:
        for name, hint in get_type_hints(kind).items():
            for each in (hint, *get_args(hint)):
                if isinstance(each, type) and issubclass(each, Enum):
                    sets.setdefault(name, set()).update(member.value for member in each)
    return sets


_VALUES = _value_sets()


def is_value(name: str) -> bool:
    """Return whether a name is a value of some key, such as ``first-come``."""
    return any(name in values for values in _VALUES.values())


def is_argument(name: str) -> bool:
    """Return whether a name is an argument of the operator or of all operators."""
    return any(name in inspect.signature(kind).parameters for kind in (TonyTrainOperator, BaseOperator))


def is_variable(name: str) -> bool:
    page = ROOT / "docs" / "reference" / "environment-variables.md"
    return name.startswith("TONY_") and f"`{name}`" in page.read_text()


def test_values_of_keys_exist() -> None:
    """Check ``success: chief`` and the like, if the key has a fixed set of values."""
    cells = [cell for parameters in OURS for cell in parameters.values]
    given = [pair for cell in cells for pair in re.findall(r"`(\w+): ([\w-]+)`", str(cell))]
    assert given
    assert [(key, value) for key, value in given if key in _VALUES and value not in _VALUES[key]] == []


# -- each key that is left out has a reason ----------------------------------------------------------------------------


@pytest.mark.parametrize(("system", "key", "rule"), LEFT)
def test_each_key_that_is_left_out_has_a_counterpart_or_a_reason(system: System, key: str, rule: KeyRule) -> None:
    found = [row for row in rows(system) if names(row[0], key)]
    told = " ".join(cell for row in found for cell in row[1:])
    instead = bool(rule.here) or any(span for row in found for span in spans(row[-1]) if not span.startswith("none"))
    reason = re.sub(r"\bnone\b", "", told).split()
    assert instead or len(reason) > 1, f"{key}: {rule.why}: {told!r}"


def test_each_guide_is_linked_and_leads_here() -> None:
    text = PAGE.read_text()
    for page in sorted(GUIDES.glob("from-*.md")):
        assert f"]({page.name})" in text
        assert "](features.md)" in page.read_text(), page
    assert {f"{page}.md" for page in OTHERS.values()} <= {page.name for page in GUIDES.glob("from-*.md")}


@pytest.mark.parametrize("unread", UNSUPPORTED, ids=lambda each: each.title)
def test_messages_name_pages_by_their_titles(unread: Any) -> None:
    titles = [prose(page).partition("\n")[0].removeprefix("# ") for page in GUIDES.glob("*.md")]
    (named,) = re.findall(r'"([^"]+)"', unread.page)
    assert named in titles
