"""``airflow tony kill``: end a job, with grace."""

from __future__ import annotations

import getpass
import socket
from argparse import Namespace

from tony_provider.cli.command import command
from tony_provider.cli.named import application_of, hook_of
from tony_provider.cli.printing import say
from tony_provider.cli.times import seconds_of
from tony_provider.watching.termination import Kill, end_application

BY = "`airflow tony kill`"


@command
def kill(args: Namespace) -> None:
    """The command. The job's master is asked to stop it, where it can be asked; else the application is killed.

    Exits with 1 when it has not ended within a while.
    """
    reason = args.reason or f"asked for by {getpass.getuser()} on {socket.gethostname()}"
    order = Kill(reason, by=BY, grace=None if args.grace is None else seconds_of("--grace", args.grace))
    with hook_of(args) as hook:
        found = application_of(hook, args)
        name, application = found.application_id, found.application
        if application is None or application.is_final:
            say(f"{name} has already ended")
            return
        if found.identity is None:  # of another staging directory: nothing to tidy up
            hook.kill(name, str(order))
            say(f"{name} is being killed")
            return
        ended = end_application(hook, found.identity, name, order)
    if not ended:
        raise SystemExit(f"{name} was killed, and has not ended yet")
    say(f"{name} has ended")
