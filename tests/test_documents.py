"""The documents say what the code says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import attrs
import pytest

from tony_provider import exceptions
from tony_provider.hooks.connection import missing_connection
from tony_provider.hooks.fields import CONNECTION_FIELDS
from tony_provider.operators.result import JobResult
from tony_provider.operators.tony import TonyTrainOperator

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def first_column(document: str, heading: str) -> list[str]:
    """The names in the first column of the first table below a heading."""
    section = (ROOT / "docs" / document).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_every_argument_of_the_operator_is_documented() -> None:
    parameters = inspect.signature(TonyTrainOperator.__init__).parameters.values()
    assert first_column("operator.md", "Arguments") == [
        parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
    ]


def test_every_key_of_the_result_is_documented() -> None:
    assert sorted(first_column("operator.md", "What it returns")) == sorted(
        field.name for field in attrs.fields(JobResult)
    )


def test_every_exception_is_documented() -> None:
    public = [name for name, kind in vars(exceptions).items() if getattr(kind, "__module__", "") == exceptions.__name__]
    assert sorted(first_column("operator.md", "How it fails")) == sorted(public)


def test_every_field_of_the_connection_is_documented() -> None:
    assert sorted(first_column("connection.md", "Fields")) == sorted(CONNECTION_FIELDS)


def test_the_readme_adds_connections_as_the_error_for_a_missing_one_says() -> None:
    commands = re.findall(r"airflow connections add (?:[^\n]*\\\n)*[^\n]*", missing_connection("tony_default"))
    assert len(commands) == 2
    for command in commands:
        assert " ".join(command.split()) in " ".join(README.split())


@pytest.mark.parametrize("path", re.findall(r"\]\(([\w./-]+)\)", README))
def test_links_of_the_readme_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
