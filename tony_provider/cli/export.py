"""``airflow tony export``: the model of a job that trains, without ending it."""

from __future__ import annotations

import getpass
import socket
from argparse import Namespace

from tony_provider.cli.command import command
from tony_provider.cli.named import application_of, hook_of
from tony_provider.cli.printing import say
from tony_provider.cli.times import seconds_of
from tony_provider.hooks.tony import TonyHook


@command
def export(args: Namespace) -> None:
    """The command. Prints the URI of the export once it is on the store.

    Exits with 1 when none comes within the timeout. With a timeout of 0 it only asks, and says what there is so far.
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
