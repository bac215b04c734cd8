"""A job as people look at it."""

from __future__ import annotations

from io import StringIO
from typing import Any

import attrs
import pytest
from rich.console import Console

from tests.operators.statuses import application, status
from tony_provider.cli.show_status import job_table
from tony_provider.runtime.protocol.status import (
    Failure,
    FailureKind,
    ProcessStatus,
    TaskProgress,
    TaskState,
    TaskStatus,
)


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


@pytest.mark.parametrize("named", ["[/x]", "[bold red]FAILED[/]", "[link=http://elsewhere/]click[/link]", ":skull:"])
def test_what_a_job_or_a_cluster_calls_things_is_no_markup(named: str) -> None:
    """Seen: the name of a task's type, and that of its node, broke the table, or were links in it."""
    text = _table_of(named)
    assert text.count(named) >= 9
    assert "\x1b]8" not in text


@pytest.mark.parametrize("order", ["\x1b]0;owned\x07", "\x1b[2J", "\u202e", "\x9b", "\u200b", "\x07"])
def test_nothing_in_a_table_is_obeyed_by_a_terminal(order: str) -> None:
    text = _table_of(f"a{order}z")
    assert "az" in text
    assert order not in text


def _table_of(named: str) -> str:
    """The table of a job that calls everything this, as a terminal gets it; it shows colours."""
    further = [ProcessStatus(1, 3)]
    task = TaskStatus(named, 1, TaskState.RUNNING, node=named, further=further)
    more: dict[str, Any] = {
        "message": named,
        "failure": Failure(FailureKind.USER, "ended", cause=named),
        "model_dir": named,
    }
    running = attrs.evolve(status("RUNNING"), tasks=[task], warnings=[named], troubles=[named], **more)
    of_cluster = application("RUNNING", queue=named, user=named, tracking_url=named, diagnostics=named)
    text = StringIO()
    console = Console(file=text, width=400, force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(job_table("application_1_0001", of_cluster, running, named, [named]))
    return text.getvalue()
