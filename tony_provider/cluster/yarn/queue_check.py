"""Check of the queue that a job names: whether there is one, and whether it takes applications."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.cluster.yarn.cluster_view import Queue


def find_queue(name: str, queues: Sequence[Queue]) -> Queue | None:
    """The queue with this path, with or without ``root``, or with this own name where only one has it."""
    by_path = {queue.path: queue for queue in queues}
    if (queue := by_path.get(name) or by_path.get(f"root.{name}")) is not None:
        return queue
    named = [queue for queue in queues if queue.name == name]
    return named[0] if len(named) == 1 else None


def upwards(queue: Queue, every: Sequence[Queue]) -> list[Queue]:
    """A queue and those that it lies in: who may submit to one of these, or administers it, may so in the queue."""
    return [each for each in every if queue.path == each.path or queue.path.startswith(f"{each.path}.")]


def queue_problem(name: str, queues: Sequence[Queue]) -> str | None:
    """Why this queue takes no applications, with what does; None when it takes them."""
    queue = find_queue(name, queues)
    leaves = ", ".join(sorted(queue.name for queue in queues if queue.is_leaf))
    if queue is None:
        parent = find_queue(name.rpartition(".")[0] or "root", queues)
        if parent is None or not parent.makes_children:
            return f"there is no queue {name!r}; this cluster has {leaves}"
    elif not queue.is_leaf and not queue.makes_children:
        below = ", ".join(sorted(leaf.name for leaf in queues if leaf.path.startswith(f"{queue.path}.")))
        return f"{name!r} is a parent queue, which takes no applications; below it are {below}"
    elif queue.state not in ("", "RUNNING"):
        return f"{name!r} is {queue.state} and takes no applications; others are {leaves}"
    return None
