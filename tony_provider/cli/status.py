"""``airflow tony status``: how a job is getting on."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import attrs

from tony_provider.cli.command import command
from tony_provider.cli.glance import Glance, glance
from tony_provider.cli.named import application_of, hook_of, identity_of
from tony_provider.cli.printing import print_rows, print_whole
from tony_provider.cli.table import job_table
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.protocol.status import JobStatus


@command
def status(args: Namespace) -> None:
    """The command. Shows what is known of one job; with ``--watch`` until it ends."""
    with hook_of(args) as hook:
        if args.watch:
            from tony_provider.cli.wait_for_job import wait_for  # here: one look needs none of it

            found = application_of(hook, args)
            wait_for(hook, identity_of(hook, found), found.application_id)
            return
        seen = glance(hook, args)
    if args.output == "table":
        checkpoints = [each.line for each in seen.checkpoints]
        table = job_table(
            seen.application_id, seen.application, seen.status, seen.directory, seen.troubles, checkpoints
        )
        print_whole(table)
    elif args.output == "plain":
        print_rows(_task_rows(seen.status), "plain")
    else:
        print_rows([_whole(seen)], args.output)
    if seen.error is not None:
        raise seen.error


def _task_rows(job_status: JobStatus | None) -> list[dict[str, Any]]:
    """A line for each task, for scripts that read columns."""
    return [
        {
            "task": task.name,
            "state": task.state.value,
            "node": task.node or "-",
            "start": task.start,
            "step": task.progress.step if task.progress else "-",
        }
        for task in (job_status.tasks if job_status is not None else [])
    ]


def _whole(seen: Glance) -> dict[str, Any]:
    return {
        "application_id": seen.application_id,
        "application": to_plain(seen.application) if seen.application is not None else None,
        "job": to_plain(seen.status) if seen.status is not None else None,
        "directory": seen.directory,
        "checkpoints": [attrs.asdict(each) for each in seen.checkpoints],
        "troubles": seen.troubles,
    }
