"""Commands that change a running job, or copy its checkpoint or model.

Contains ``kill``, ``suspend``, ``resume``, ``resize``, ``export`` and ``checkpoint`` of ``airflow tony``.
"""

from __future__ import annotations

import getpass
import socket
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any

from tony_provider.cli.command import application_of, command, hook_of, say, seconds_of
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, kept_checkpoints
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.checkpoint.checkpoint_restore import copy_checkpoint
from tony_provider.runtime.checkpoint.stored_checkpoint import DamagedCheckpoint
from tony_provider.runtime.common.quantities import count, span
from tony_provider.runtime.jobspec.task_types import RESIZE_EXAMPLE_WORDS
from tony_provider.runtime.protocol.status import JobState
from tony_provider.watching.termination import KillOrder, end_application

BY = "`airflow tony kill`"


@command
def kill(args: Namespace) -> None:
    """Stop a job through its master, or kill the application if the master is unreachable.

    Exits with 1 if it does not end in time.
    """
    reason = args.reason or f"asked for by {getpass.getuser()} on {socket.gethostname()}"
    order = KillOrder(reason, by=BY, grace=None if args.grace is None else seconds_of("--grace", args.grace))
    with hook_of(args) as hook:
        found = application_of(hook, args)
        name, application = found.application_id, found.application
        if application is None or application.is_final:
            say(f"{name} has already ended")
            return
        if found.identity is None:  # from another staging directory, so there are no files to remove
            hook.kill(name, str(order))
            say(f"{name} is being killed")
            return
        ended = end_application(hook, found.identity, name, order)
    if not ended:
        raise SystemExit(f"{name} was killed, and has not ended yet")
    say(f"{name} has ended")


@command
def suspend(args: Namespace) -> None:
    """Ask the job's master to suspend the job. A suspended job is no error."""
    with hook_of(args) as hook:
        name, answer = _ask(hook, args, "suspend")
    if answer.get("state") == JobState.SUSPENDED:
        say(f"{name} is suspended already")
        return
    within = span(float(answer["suspended_within"]))
    say(f"{name} gives its containers back, after a checkpoint, within {within}")
    say(f"`airflow tony resume {name}` has it go on")


@command
def resume(args: Namespace) -> None:
    """Resume a suspended job. A job that is not suspended is no error, and continues."""
    with hook_of(args) as hook:
        name, answer = _ask(hook, args, "resume")
    if answer.get("state") == JobState.SUSPENDED:
        say(f"{name} asks for its containers, and goes on from its newest checkpoint")
    else:
        say(f"{name} goes on; it was not suspended")


def _ask(hook: TonyHook, args: Namespace, action: str) -> tuple[str, dict[str, Any]]:
    reason = args.reason or f"asked for by {getpass.getuser()} on {socket.gethostname()}"
    found = application_of(hook, args)
    name, application = found.application_id, found.application
    if application is None or application.is_final:
        raise SystemExit(f"{name} has already ended")
    return name, hook.control(name, action, {"reason": reason})


@command
def resize(args: Namespace) -> None:
    """Ask the job's master to resize task types. A count that is already correct is no error."""
    counts = _counts(args.counts)
    reason = args.reason or f"asked for by {getpass.getuser()} on {socket.gethostname()}"
    with hook_of(args) as hook:
        found = application_of(hook, args)
        name, application = found.application_id, found.application
        if application is None or application.is_final:
            raise SystemExit(f"{name} has already ended")
        answer = hook.resize(name, counts, reason)
    for task_type, number in counts.items():
        before = answer["before"][task_type]
        if number == before:
            say(f"{name} has {count(number, task_type)} already, or is to have them")
        elif answer["state"] == JobState.SUSPENDED:
            say(f"{name} is suspended, and has {count(number, task_type)} once it is resumed")
        elif number > before:
            say(f"{name} asks for {count(number - before, 'container')}, and goes on with {number} once they are there")
        else:
            say(f"{name} goes on with {count(number, task_type)}, after a checkpoint")


def _counts(written: list[str]) -> dict[str, int]:
    """Parse counts such as ``worker=4``."""
    counts: dict[str, int] = {}
    for each in written:
        name, equals, number = each.partition("=")
        if not name or not equals or not number.isascii() or not number.isdigit() or len(number) > 9:
            raise SystemExit(
                f"{each!r} should be a task type and how many there are to be, such as {RESIZE_EXAMPLE_WORDS}"
            )
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
    reason = args.reason or f"asked for by {getpass.getuser()} on {socket.gethostname()}"
    with hook_of(args) as hook:
        found = application_of(hook, args)
        name, application = found.application_id, found.application
        if application is None or application.is_final:
            raise SystemExit(f"{name} has already ended; `airflow tony status {name}` says where its model is")
        if seconds:
            say(hook.export(name, reason, seconds=seconds).uri)
        else:
            _only_ask(hook, name, reason)


def _only_ask(hook: TonyHook, application_id: str, reason: str) -> None:
    answer = hook.control(application_id, "export", {"reason": reason})
    say(f"{application_id} is asked for an export of its model")
    for what, key in (("export", "newest"), ("checkpoint", "checkpoint")):
        known = answer.get(key)
        say(f"newest {what} so far: {known['uri'] if known else 'none'}")


@command
def checkpoint(args: Namespace) -> None:
    """Copy the files of a checkpoint, as the task with the given rank sees them. The directory must not exist yet."""
    directory = Path(args.directory).absolute()
    if directory.exists():
        raise SystemExit(f"{directory} already exists; name a directory that the command can create")
    if not directory.parent.is_dir():
        raise SystemExit(f"there is no directory {directory.parent}")
    with hook_of(args) as hook:
        found = application_of(hook, args)
        storage = hook.storage()
        chains = CheckpointChains(storage, hook.layout, found.identity) if found.identity else None
        chain = chains.used_by(found.application_id) if chains else None
        kept = kept_checkpoints(storage, chain.uri) if chain else []
        wanted = [each for each in kept if args.snapshot in (None, each.number)]
        if not wanted or chain is None:
            which = "checkpoint" if args.snapshot is None else f"snapshot {args.snapshot}"
            labels = f"; it has {', '.join(each.label for each in kept)}" if kept else ""
            raise SystemExit(f"{found.application_id} has no {which} in the storage{labels}")
        uri = chain.uri if args.snapshot is None else wanted[0].uri
        try:
            point = copy_checkpoint(storage, uri, directory, args.rank, threading.Event())
        except DamagedCheckpoint as error:
            raise SystemExit(str(error)) from error
        say(f"{directory} holds {point.label}")
