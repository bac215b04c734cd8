"""The pages for those who come from other tools: each row says where its left side is from, and names keys of ours."""

from __future__ import annotations

import inspect
import re

import attrs
import pytest

from tests.documents.pages import ROOT, prose
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.jobspec.model import (
    AmSpec,
    Docker,
    JobSpec,
    RestartPolicy,
    TaskSpec,
    TensorBoardSpec,
    Timeouts,
)

PAGES = [
    "from-tf-yarn.md",
    "from-hbox.md",
    "from-skein.md",
    "from-tensorflowonspark.md",
    "from-yarn-services.md",
    "from-torchx.md",
]
PARTS = {"am": AmSpec, "docker": Docker, "restart": RestartPolicy, "timeouts": Timeouts, "tensorboard": TensorBoardSpec}


def rows(page: str) -> list[list[str]]:
    """The cells of those tables that have a column for where something is said."""
    tables = prose(ROOT / "docs" / page).split("\n\n")
    found = [table.splitlines()[2:] for table in tables if "| where it is said |" in table]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for table in found for line in table]


@pytest.mark.parametrize("page", PAGES)
def test_every_row_names_a_source(page: str) -> None:
    assert len(rows(page)) > 15
    for row in rows(page):
        assert len(row) == 3, row
        assert re.search(r"`[\w./…-]+(\.\w+|/hbox-\w+)`", row[1]), row


@pytest.mark.parametrize("page", PAGES)
def test_keys_of_parts_of_the_job_are_there(page: str) -> None:
    named = [name for row in rows(page) for name in re.findall(r"`(\w+\.\w+)`", row[2])]
    named = [name for name in named if name.partition(".")[0] in PARTS]
    assert named
    for part, _, key in (name.partition(".") for name in named):
        assert key in attrs.fields_dict(PARTS[part]), f"{part}.{key}"


@pytest.mark.parametrize("page", PAGES)
def test_keys_with_values_are_there(page: str) -> None:
    known = {
        *attrs.fields_dict(JobSpec),
        *attrs.fields_dict(TaskSpec),
        *inspect.signature(TonyTrainOperator).parameters,
    }
    named = [name for row in rows(page) for name in re.findall(r"`(\w+): [^`]*`", row[2])]
    assert named
    assert set(named) - known - {"deal"} == set()
