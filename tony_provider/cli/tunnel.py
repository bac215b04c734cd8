"""``airflow tony tunnel``: a server of a running job's task, at a port of this machine."""

from __future__ import annotations

import re
from argparse import Namespace

import attrs

from tony_provider.cli.command import command
from tony_provider.cli.local_port import cannot_be_had, expect_local_port
from tony_provider.cli.named import NotFound, application_of, hook_of, identity_of
from tony_provider.cli.printing import say
from tony_provider.cli.told_to_end import until_told_to_end
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.tunnel.tunnel import HOST
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.address import HIGHEST_PORT

_PERIOD = 0.2  # seconds between two looks at what goes on
_TARGET = re.compile(r"(?P<task>[^:]+:\d+)(:(?P<port>\d+))?")


@command
def tunnel(args: Namespace) -> None:
    """The command. Passes connections on until it is ended by Ctrl-C or a signal, or the application ends."""
    target = Target.parse(args.task)
    expect_local_port(args.local_port)
    with hook_of(args) as hook:
        found = application_of(hook, args)
        identity = identity_of(hook, found)
        if found.application is None or found.application.is_final:
            raise NotFound(f"{found.application_id} has ended: there is nothing to lead to")
        _expect_task(hook, identity, found.application_id, target.task)
        with until_told_to_end() as over:
            try:
                opened = hook.tunnel(
                    identity,
                    found.application_id,
                    target.task,
                    target.port,
                    local_port=args.local_port,
                    tell=say,
                    over=over,
                )
                with opened as way:
                    if not over.is_set():
                        say(f"{HOST}:{way.port} leads to {target}\nCtrl-C ends it")
                    while not over.is_set() and not way.wait(_PERIOD):
                        pass
            except OSError as error:
                raise SystemExit(cannot_be_had(args.local_port, error)) from error


@attrs.frozen
class Target:
    """What a tunnel leads to."""

    task: str  # such as worker:0
    port: int = 0  # 0: the first that the task was given

    @classmethod
    def parse(cls, text: str) -> Target:
        """Exits with a message for what is none."""
        found = _TARGET.fullmatch(text)
        port = int(found["port"] or 0) if found else 0
        if found is None or port > HIGHEST_PORT or found["port"] == "0":
            raise SystemExit(f"{text!r}: name a task, and perhaps its port, such as worker:0 or worker:0:8888")
        return cls(found["task"], port)

    def __str__(self) -> str:
        return f"port {self.port} of {self.task}" if self.port else f"the port of {self.task} (TONY_PORT)"


def _expect_task(hook: TonyHook, identity: Identity, application_id: str, task: str) -> None:
    status = hook.job_status(identity, application_id)
    if status is not None and task not in (known := [each.name for each in status.tasks]):
        raise NotFound(f"{application_id} has no task {task}; there are {', '.join(known[:10])}")
