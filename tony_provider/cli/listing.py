"""``airflow tony list``: the jobs of a cluster."""

from __future__ import annotations

from argparse import Namespace

from tony_provider.cli.command import command
from tony_provider.cli.named import hook_of
from tony_provider.cli.printing import print_rows, say
from tony_provider.cli.times import moment
from tony_provider.cluster.application_ref import tag_of
from tony_provider.cluster.base import Application, ApplicationFilter


@command
def list_applications(args: Namespace) -> None:
    """The command. Lists live applications, on request also those that the cluster still remembers; newest first."""
    live = None if args.all else not args.ended
    with hook_of(args) as hook:
        found = hook.get_conn().applications(ApplicationFilter(live=live, user=args.user))
    rows = [_row(application) for application in found if args.queue in (None, application.queue, _last(application))]
    if not rows and args.output == "table":
        say(_nothing(args))
        return
    print_rows(rows, args.output, whole=True)


def _nothing(args: Namespace) -> str:
    whose = (f" of {args.user}" if args.user else "") + (f" in queue {args.queue}" if args.queue else "")
    if args.ended or args.all:
        return f"The cluster remembers no job{whose}"
    return f"No job{whose} is running or waiting; --ended lists those that have ended"


def _last(application: Application) -> str:
    """Of a queue's path: some versions give it whole."""
    return application.queue.rpartition(".")[2]


def _row(application: Application) -> dict[str, str]:
    final = application.final_status.value if application.final_status and application.is_final else ""
    return {
        "application_id": application.id,
        "name": application.name,
        "user": application.user,
        "queue": application.queue,
        "state": application.state.value,
        "final_status": final,
        "started (UTC)": moment(application.started_ms),
        "ended (UTC)": moment(application.finished_ms),
        "tag": tag_of(application) or "",
    }
