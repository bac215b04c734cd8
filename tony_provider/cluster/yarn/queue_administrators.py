"""Who administers a queue, and so may look at what runs in it, and end it: by the access lists that YARN shows."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.cluster.yarn.cluster_view import Queue
from tony_provider.cluster.yarn.queue_check import find_queue, upwards
from tony_provider.runtime.hadoop.access_list import AccessList

_ROOT = "root"  # whose administrators are those of every queue: all that is known where YARN chooses the queue


def queue_administrators(queue: str | None, every: Sequence[Queue]) -> list[str]:
    """The access lists of the queue's administrators, as far as the scheduler shows them.

    Lists that hold nobody are left out, and those that hold everybody: that is what YARN takes for the root queue where
    nobody has said anything, and no word that jobs' output is for all.
    """
    found = find_queue(queue or _ROOT, every) or find_queue(_ROOT, every)
    lists = [text for each in (upwards(found, every) if found else ()) for text in each.administrators]
    return [text for text in dict.fromkeys(lists) if _names_somebody(AccessList.parse(text))]


def _names_somebody(found: AccessList) -> bool:
    return not found.everybody and found != AccessList()
