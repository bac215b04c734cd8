"""A job as people look at it."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from tests.operators.statuses import status
from tony_provider.cli.table import job_table


def test_what_is_below_the_bar_begins_a_line_of_its_own() -> None:
    text = StringIO()
    running = status("RUNNING", step=3, total_steps=10)
    Console(file=text, width=200).print(job_table("application_1_0001", None, running, None))
    assert any(line.startswith("task ") for line in text.getvalue().splitlines())
