"""The table of kinds of jobs: rows of tests, wherever they are, and what is printed of them at the end."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.columns import columns
from tests.jobs.job import Job

Note = Callable[..., None]
_HEADER = ("kind", "version", "containers", "nodes", "what was killed", "result")
_PROPERTY = "kind of job"


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Note:
    """Call it with what is to stand in the table."""

    def add(kind: str, job: Job, result: str, killed: str = "nothing") -> None:
        tasks = job.status().tasks
        left = json.loads(job.read("return_value.json")) if "return_value.json" in job.files() else {}
        version = left.get("version", "") if isinstance(left, dict) else ""
        row = (kind, version, str(len(tasks)), str(len({task.node for task in tasks})), killed, result)
        record_property(_PROPERTY, row)

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the rows of the tests that have passed."""
    passed = terminalreporter.getreports("passed")
    noted = [
        found for each in passed if each.when == "call" for name, found in each.user_properties if name == _PROPERTY
    ]
    if not noted:
        return
    terminalreporter.section("kinds of jobs")
    for line in columns([_HEADER, *noted]):
        terminalreporter.line(line)
