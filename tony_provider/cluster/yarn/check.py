"""Would this cluster ever run this job? Everything that can be known before submission."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from tony_provider.cluster.yarn.view import Node, Queue
from tony_provider.runtime.resource_names import GPU, MEMORY, VCORES
from tony_provider.runtime.spec.model import JobSpec


@attrs.frozen
class ClusterView:
    """What the checks go by."""

    queues: Sequence[Queue] | None  # None: the scheduler makes them as it likes
    labels: frozenset[str]
    nodes: Sequence[Node]
    largest: dict[str, int]  # the largest container that the scheduler grants, by YARN's resource names


@attrs.frozen
class Demand:
    """One container that the job needs."""

    what: str  # such as tasks.worker
    resources: dict[str, int]
    label: str | None


def problems(job: JobSpec, view: ClusterView) -> list[str]:
    """Every reason why the job could never run, each with what is allowed instead; empty when it could."""
    demands = list(_demands(job))
    found = []
    if job.queue is not None and view.queues is not None and (problem := queue_problem(job.queue, view.queues)):
        found.append(f"queue: {problem}")
    labels = sorted({demand.label for demand in demands if demand.label})
    for label in labels:
        found += _label_problems(label, job.queue, view)
    for demand in demands:
        found += _size_problems(demand, view)
    return found


def _demands(job: JobSpec) -> Iterator[Demand]:
    am = {MEMORY: int(job.am_memory), VCORES: job.am.vcores}
    yield Demand("am", am, job.am.node_label or job.node_label)
    for name, task in job.tasks.items():
        wanted = {MEMORY: int(task.memory), VCORES: task.vcores, **task.resources}
        if task.gpus:
            wanted[GPU] = task.gpus
        yield Demand(f"tasks.{name}", wanted, task.node_label or job.node_label)


def find_queue(name: str, queues: Sequence[Queue]) -> Queue | None:
    """By its path, with or without ``root``, or by its own name where only one has it."""
    by_path = {queue.path: queue for queue in queues}
    if (queue := by_path.get(name) or by_path.get(f"root.{name}")) is not None:
        return queue
    named = [queue for queue in queues if queue.name == name]
    return named[0] if len(named) == 1 else None


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


def _label_problems(label: str, queue_name: str | None, view: ClusterView) -> Iterator[str]:
    if label not in view.labels:
        known = f"this cluster has {', '.join(sorted(view.labels))}" if view.labels else "this cluster has none"
        yield f"node_label: there is no node label {label!r}; {known}"
        return
    queue = find_queue(queue_name, view.queues) if queue_name and view.queues else None
    if queue is not None and queue.labels is not None and label not in queue.labels:
        yield f"node_label: queue {queue_name!r} may not use {label!r}, only {', '.join(sorted(queue.labels))}"


def _size_problems(demand: Demand, view: ClusterView) -> Iterator[str]:
    too_large = False
    for name, amount in demand.resources.items():
        if name not in view.largest:
            too_large = True
            yield (
                f"{_key(demand, name)}: this cluster has no resource {name!r}; it has {', '.join(sorted(view.largest))}"
            )
        elif amount > view.largest[name]:
            too_large = True
            yield (
                f"{_key(demand, name)}: {_amount(name, amount)} in one container is more than the "
                f"{_amount(name, view.largest[name])} that this cluster grants"
            )
    nodes = [node for node in view.nodes if (demand.label in node.labels if demand.label else True)]
    if too_large or not nodes:  # without a node, one may come yet
        return
    for name, amount in demand.resources.items():
        most = max(node.resources.get(name, 0) for node in nodes)
        if amount > most:
            where = f"node with the label {demand.label!r}" if demand.label else "node"
            too_large = True
            yield f"{_key(demand, name)}: no {where} has {_amount(name, amount)}; the most is {_amount(name, most)}"
    if not too_large and not any(_fits(demand, node) for node in nodes):
        wanted = ", ".join(_amount(name, amount) for name, amount in demand.resources.items())
        yield f"{demand.what}: no single node has all of {wanted}"


def _fits(demand: Demand, node: Node) -> bool:
    return all(node.resources.get(name, 0) >= amount for name, amount in demand.resources.items())


def _key(demand: Demand, resource: str) -> str:
    keys = {MEMORY: "memory", VCORES: "vcores", GPU: "gpus"}
    return f"{demand.what}.{keys.get(resource, f'resources.{resource}')}"


def _amount(resource: str, amount: int) -> str:
    if resource == MEMORY:
        return f"{amount} MiB"
    names = {VCORES: "vcores", GPU: "GPUs"}
    return f"{amount} {names.get(resource, resource)}"
