"""Commands that change a running job, or copy its checkpoint or model.

Contains ``kill``, ``save``, ``suspend``, ``resume``, ``resize``, ``export`` and ``checkpoint`` of ``airflow tony``.
"""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tony_provider.cli.command import command, hook_of, job_of, reason_of, running_job, say, seconds_of
from tony_provider.cluster.training.checkpoint_chains import kept_checkpoints
from tony_provider.runtime.checkpoint.catalog import copy_checkpoint
from tony_provider.runtime.checkpoint.stored_checkpoint import DamagedCheckpoint
from tony_provider.runtime.jobspec.model import RESIZE_EXAMPLE_WORDS
from tony_provider.runtime.protocol.job_orders import describe_answer
from tony_provider.watching.termination import KillOrder, end_job

BY = "`airflow tony kill`"


@command
def kill(args: Namespace) -> None:
    """Stop a job through its master, or kill the application if the master is unreachable.

    Exits with 1 if the job does not end in time.
    """
    grace = None if args.grace is None else seconds_of("--grace", args.grace)
    order = KillOrder(reason_of(args), by=BY, grace=grace)
    with hook_of(args) as hook:
        job, application = job_of(hook, args)
        if not application or application.is_final:
            say(f"{job} has already ended")
            return
        if job.identity is None:  # its files are in an unknown staging directory, and cannot be removed
            job.kill(str(order))
            say(f"{job} is being killed")
            return
        ended = end_job(job, order)
    if not ended:
        raise SystemExit(f"{job} was killed, but has not ended yet")
    say(f"{job} has ended")


@command
def save(args: Namespace) -> None:
    """Ask the programs of a job to save a checkpoint. A program may ignore the request."""
    _order(args, "checkpoint")


@command
def suspend(args: Namespace) -> None:
    """Ask the job's master to suspend the job. It is no error if the job is already suspended."""
    _order(args, "suspend")


@command
def resume(args: Namespace) -> None:
    """Resume a suspended job. It is no error if the job is not suspended."""
    _order(args, "resume")


@command
def resize(args: Namespace) -> None:
    """Ask the job's master to resize task types. It is no error if a type already has the requested size."""
    _order(args, "resize", _counts(args.counts))


def _order(args: Namespace, order: str, counts: Mapping[str, int] = MappingProxyType({})) -> None:
    """Send an order, and print what happens next. ``counts`` are the new numbers of tasks of a resize."""
    reason = reason_of(args)
    with running_job(args) as job:
        answer = job.resize(counts, reason) if counts else job.control(order, {"reason": reason})
    for line in describe_answer(order, str(job), answer, counts):
        say(line)


def _counts(written: list[str]) -> dict[str, int]:
    """Parse counts such as ``worker=4``."""
    counts: dict[str, int] = {}
    for each in written:
        name, equals, number = each.partition("=")
        if not name or not equals or not number.isascii() or not number.isdigit() or len(number) > 9:
            raise SystemExit(f"{each!r} should be a task type and its number of tasks, such as {RESIZE_EXAMPLE_WORDS}")
        if name in counts:
            raise SystemExit(f"{name} is given twice")
        counts[name] = int(number)
    return counts


@command
def export(args: Namespace) -> None:
    """Export the model of a job, and print its URI once it is on the store.

    Exits with 1 if there is no export within the timeout. With a timeout of 0, only sends the request, and prints the
    newest export and checkpoint so far.
    """
    seconds = seconds_of("--timeout", args.timeout)
    with running_job(args, "; `airflow tony status {}` shows the location of its model") as job:
        if seconds:
            say(job.export(reason_of(args), seconds=seconds).uri)
            return
    _order(args, "export")


@command
def checkpoint(args: Namespace) -> None:
    """Copy the files of a checkpoint that the task with the given rank sees, to a directory that does not exist yet."""
    directory = Path(args.directory).absolute()
    if directory.exists():
        raise SystemExit(f"{directory} already exists; name a directory that the command can create")
    if not directory.parent.is_dir():
        raise SystemExit(f"there is no directory {directory.parent}")
    with hook_of(args) as hook:
        job, _ = job_of(hook, args)
        chain = job.chain() if job.identity else None
        kept = kept_checkpoints(hook.storage(), chain.uri) if chain else []
        wanted = [each for each in kept if args.snapshot in (None, each.number)]
        if not wanted or chain is None:
            which = "checkpoint" if args.snapshot is None else f"snapshot {args.snapshot}"
            labels = f"; it has {', '.join(each.label for each in kept)}" if kept else ""
            raise SystemExit(f"{job} has no {which} in the storage{labels}")
        uri = chain.uri if args.snapshot is None else wanted[0].uri
        try:
            point = copy_checkpoint(hook.storage(), uri, directory, args.rank, threading.Event())
        except DamagedCheckpoint as error:
            raise SystemExit(str(error)) from error
        say(f"{directory} holds {point.label}")
