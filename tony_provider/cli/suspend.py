"""``airflow tony suspend`` and ``resume``: a job gives all its containers back, and comes again."""

from __future__ import annotations

import getpass
import socket
from argparse import Namespace
from typing import Any

from tony_provider.cli.command import command
from tony_provider.cli.named import application_of, hook_of
from tony_provider.cli.printing import say
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.quantities import span


@command
def suspend(args: Namespace) -> None:
    """The command. The job's master is asked, and does it by itself. One that is suspended already is no error."""
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
    """The command. One that is not suspended is no error: it goes on."""
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
