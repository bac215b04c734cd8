"""What a reader of the portal types to see the event files of jobs on a machine of their own."""

from __future__ import annotations

from collections.abc import Iterable

from tony_provider.cluster.history.tensorboard_command import tensorboard_command
from tony_provider.plugins.portal.job_row import Row


def tensorboard_commands(rows: Iterable[Row]) -> list[str]:
    """A command for the jobs of each connection and user, in the order of the rows: one reads through one of these.

    Jobs whose connection is not known, as of damaged summaries, are left out.
    """
    groups: dict[tuple[str, str | None], list[str]] = {}
    for row in rows:
        through = row["tony_conn_id"], row["proxy_user"] or None
        groups.setdefault(through, []).append(row["application_id"])
    return [tensorboard_command(ids, *through) for through, ids in groups.items() if through[0]]
