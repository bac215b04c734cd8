"""A job as people look at it."""

from __future__ import annotations

from io import StringIO

import attrs
from rich.console import Console

from tests.operators.statuses import status
from tony_provider.cli.table import job_table
from tony_provider.runtime.protocol.status import ProcessStatus, TaskProgress, TaskState, TaskStatus


def test_what_is_below_the_bar_begins_a_line_of_its_own() -> None:
    text = StringIO()
    running = status("RUNNING", step=3, total_steps=10)
    Console(file=text, width=200).print(job_table("application_1_0001", None, running, None))
    assert any(line.startswith("task ") for line in text.getvalue().splitlines())


def test_each_process_of_a_task_has_a_line_below_it() -> None:
    text = StringIO()
    further = [ProcessStatus(1, 3, 1 << 30, 75.0, TaskProgress(249, 1000, 2.4))]
    task = TaskStatus("worker", 1, TaskState.RUNNING, progress=TaskProgress(250), further=further)
    running = attrs.evolve(status("RUNNING"), tasks=[task])
    Console(file=text, width=200).print(job_table("application_1_0001", None, running, None))
    lines = [line.split() for line in text.getvalue().splitlines()]
    (place,) = [number for number, line in enumerate(lines) if line[:1] == ["worker:1"]]
    assert lines[place + 1] == ["rank", "3", "(local", "rank", "1)", "249", "2.4", "1", "GiB"]
