"""The migration guides name the project that they are about, and only keys of ours that exist."""

from __future__ import annotations

import inspect
import re

import attrs
import pytest

from tests.documents.pages import prose
from tests.documents.test_imports import GUIDES, spans, tables
from tony_provider.hooks.fields import CONNECTION_FIELDS
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.jobspec.model import (
    AmSpec,
    Docker,
    InputSpec,
    JobSpec,
    RestartPolicy,
    TaskSpec,
    TensorBoardSpec,
    Timeouts,
)

PAGES = [
    "from-tony.md",
    "from-tf-yarn.md",
    "from-hbox.md",
    "from-skein.md",
    "from-tensorflowonspark.md",
    "from-yarn-services.md",
    "from-torchx.md",
]
PARTS = {"am": AmSpec, "docker": Docker, "restart": RestartPolicy, "timeouts": Timeouts, "tensorboard": TensorBoardSpec}


def rows(page: str) -> list[list[str]]:
    """Return the rows of all tables of a guide, without their heads."""
    return [row for table in tables(GUIDES / page) for row in table[1:]]


@pytest.mark.parametrize("page", PAGES)
def test_each_guide_links_to_its_project(page: str) -> None:
    introduction = prose(GUIDES / page).partition("\n## ")[0]
    assert re.search(r"\[[^\]]+\]\(https://[^)]+\)", introduction)


@pytest.mark.parametrize("page", sorted(path.name for path in GUIDES.glob("from-*.md")))
def test_each_row_has_a_counterpart_or_a_reason(page: str) -> None:
    for row in rows(page):
        assert len(row) == 2, row
        assert all(row), row
        assert re.search(r"`|\]\(", row[1]) or len(row[1].removeprefix("none").split()) > 2, row


@pytest.mark.parametrize("page", PAGES)
def test_each_guide_has_many_names_of_its_project(page: str) -> None:
    assert len({name for row in rows(page) for name in spans(row[0])}) > 15


@pytest.mark.parametrize("page", PAGES)
def test_keys_of_parts_of_the_job_are_there(page: str) -> None:
    named = re.findall(r"`(\w+\.\w+)`", prose(GUIDES / page))
    named = [name for name in named if name.partition(".")[0] in PARTS]
    assert named
    for part, _, key in (name.partition(".") for name in named):
        assert key in attrs.fields_dict(PARTS[part]), f"{part}.{key}"


@pytest.mark.parametrize("page", PAGES)
def test_keys_with_values_are_there(page: str) -> None:
    known = {
        *attrs.fields_dict(JobSpec),
        *attrs.fields_dict(TaskSpec),
        *attrs.fields_dict(InputSpec),
        *inspect.signature(TonyTrainOperator).parameters,
        *CONNECTION_FIELDS,
    }
    named = [name for row in rows(page) for name in re.findall(r"`(\w+): [^`]*`", row[1])]
    assert named
    assert set(named) - known == set()
