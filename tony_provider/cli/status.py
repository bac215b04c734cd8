"""``airflow tony status``"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow.cli.simple_table import AirflowConsole
from rich.console import Console

from tony_provider.cli.command import command
from tony_provider.cli.following import wait_for
from tony_provider.cli.named import application_of, hook_of, identity_of
from tony_provider.cli.table import job_table
from tony_provider.cluster.base import Application
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.protocol.status import JobStatus


@command
def status(args: Namespace) -> None:
    """What is known of one job; with ``--watch`` until it ends."""
    with hook_of(args) as hook:
        found = application_of(hook, args)
        if args.watch:
            wait_for(hook, identity_of(hook, found), found.application_id)
            return
        application, job_status, directory = found.application, None, None
        if found.identity is not None:
            job_status = hook.job_status(found.identity, found.application_id)
            directory = hook.application_dir(found.identity, found.application_id)
    if args.output == "table":
        Console(soft_wrap=True).print(job_table(found.application_id, application, job_status, directory))
    elif args.output == "plain":
        AirflowConsole().print_as(_task_rows(job_status), "plain")
    else:
        AirflowConsole().print_as([_whole(found.application_id, application, job_status, directory)], args.output)


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


def _whole(
    application_id: str, application: Application | None, job_status: JobStatus | None, directory: str | None
) -> dict[str, Any]:
    return {
        "application_id": application_id,
        "application": to_plain(application) if application is not None else None,
        "job": to_plain(job_status) if job_status is not None else None,
        "directory": directory,
    }
