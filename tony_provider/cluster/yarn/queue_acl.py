"""Whether a user may submit to a queue, by the access lists that the scheduler shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.errors import ConfigurationHidden
from tony_provider.cluster.yarn.cluster_view import Queue
from tony_provider.cluster.yarn.queue_check import find_queue, upwards
from tony_provider.runtime.hadoop.access_list import AccessList

if TYPE_CHECKING:
    from tony_provider.cluster.yarn.cluster import YarnCluster


@attrs.frozen
class QueueAccess:
    """Whether a user may submit to a queue, and why."""

    known: bool | None  # None: only the cluster can tell
    detail: str


def may_submit(cluster: YarnCluster, queue: str) -> QueueAccess:
    """Whether the cluster's user may submit to a queue that takes applications. Raises ClusterError."""
    user, every = cluster.user, cluster.queues()
    if every is None or find_queue(queue, every) is None:
        return QueueAccess(None, "the scheduler makes queues as it likes, and does not say who may submit")
    try:
        if (cluster.rest.setting("yarn.acl.enable") or "").lower() != "true":
            return QueueAccess(True, "takes applications of everybody")
    except ConfigurationHidden:
        return QueueAccess(None, "takes applications; whether access lists count is hidden")
    return judge(user, queue, every)


def judge(user: str, queue: str, every: Sequence[Queue]) -> QueueAccess:
    """Whether the user may submit to the queue by its access lists, where access lists count."""
    found = find_queue(queue, every)
    shown = found.submitters if found is not None else None
    if found is None or shown is None:
        return QueueAccess(None, "takes applications; its access lists are not shown")
    lists = [AccessList.parse(text) for each in upwards(found, every) for text in each.submitters or []]
    if any(each.everybody or user in each.users for each in lists):
        return QueueAccess(True, f"takes applications of {user}")
    if groups := sorted({group for each in lists for group in each.groups}):
        return QueueAccess(None, f"takes those of the groups {', '.join(groups)}; only the cluster knows {user}'s")
    allowed = sorted({name for each in lists for name in each.users})
    return QueueAccess(
        False, f"its access list does not let {user} submit, only {', '.join(allowed) or 'administrators'}"
    )
