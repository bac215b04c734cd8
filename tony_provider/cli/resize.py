"""``airflow tony resize``: a job goes on with more tasks of a type, or with fewer."""

from __future__ import annotations

import getpass
import socket
from argparse import Namespace

from tony_provider.cli.command import command
from tony_provider.cli.named import application_of, hook_of
from tony_provider.cli.printing import say
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.quantities import count
from tony_provider.runtime.spec.task_counts import EXAMPLE_WORDS


@command
def resize(args: Namespace) -> None:
    """The command. The job's master is asked, and does it by itself. What is so already is no error."""
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
    """Of ``worker=4``."""
    counts: dict[str, int] = {}
    for each in written:
        name, equals, number = each.partition("=")
        if not name or not equals or not number.isascii() or not number.isdigit() or len(number) > 9:
            raise SystemExit(f"{each!r} should be a task type and how many there are to be, such as {EXAMPLE_WORDS}")
        if name in counts:
            raise SystemExit(f"{name} is given twice")
        counts[name] = int(number)
    return counts
