"""Check of a job against a YARN cluster: everything that can be known before submission."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tony_provider.cluster.yarn.cluster_view import ClusterView, Node, Queue
from tony_provider.cluster.yarn.demand import Demand, demands
from tony_provider.cluster.yarn.queue_check import find_queue, queue_problem
from tony_provider.cluster.yarn.room import shortages
from tony_provider.runtime.peak import Peak
from tony_provider.runtime.resource_names import VCORES
from tony_provider.runtime.spec.model import JobSpec, TaskSpec


def problems(job: JobSpec, view: ClusterView) -> list[str]:
    """Every reason why the job could never run, each with what is allowed instead; empty when it could."""
    needed = list(demands(job, view.units))
    found = []
    if job.queue is not None and view.queues is not None and (problem := queue_problem(job.queue, view.queues)):
        found.append(f"queue: {problem}")
    labels = sorted({demand.label for demand in needed if demand.label})
    for label in labels:
        found += _label_problems(label, job.queue, view)
    for demand in needed:
        found += _size_problems(demand, view)
    for name, task in job.tasks.items():
        found += _unit_problems(f"tasks.{name}", task, view)
    return found


def too_little(job: JobSpec, view: ClusterView) -> list[str]:
    """Why the nodes of now could not run this job even if they were idle; another node, or a larger one, might.

    For a job without ``problems``. Nothing is known of a cluster, or of a label, without a single node.
    """
    needed = list(demands(job, view.units))
    found = [problem for demand in needed for problem in _node_problems(demand, view)]
    if found or any(not _has_nodes(demand.label, view) for demand in needed):
        return found
    return shortages(needed, Peak(job), view.nodes, _queue(job, view), view.shared_labels)


def waits_for(job: JobSpec, view: ClusterView) -> list[str]:
    """What the nodes have too little of that is free now, so that the job waits; for one that has room on idle ones.

    Virtual cores are left out: where YARN does not heed them, more of them are in use than there are.
    """
    idle = attrs.evolve(view, nodes=[attrs.evolve(node, resources=node.free) for node in view.nodes])
    needed = [_without(VCORES, demand) for demand in demands(job, view.units)]
    found = [problem for demand in needed for problem in _node_problems(demand, idle, " free")]
    return found or shortages(needed, Peak(job), idle.nodes, _queue(job, view), view.shared_labels, " free")


def _queue(job: JobSpec, view: ClusterView) -> Queue | None:
    """The job's; None where it is not known."""
    return find_queue(job.queue, view.queues) if job.queue is not None and view.queues is not None else None


def _without(resource: str, demand: Demand) -> Demand:
    return attrs.evolve(demand, resources={name: n for name, n in demand.resources.items() if name != resource})


def _has_nodes(label: str | None, view: ClusterView) -> bool:
    return any(label is None or label in node.labels for node in view.nodes)


def _label_problems(label: str, queue_name: str | None, view: ClusterView) -> Iterator[str]:
    if label not in view.labels:
        known = f"this cluster has {', '.join(sorted(view.labels))}" if view.labels else "this cluster has none"
        yield f"node_label: there is no node label {label!r}; {known}"
        return
    queue = find_queue(queue_name, view.queues) if queue_name and view.queues else None
    if queue is not None and queue.labels is not None and label not in queue.labels:
        yield f"node_label: queue {queue_name!r} may not use {label!r}, only {', '.join(sorted(queue.labels))}"


def _size_problems(demand: Demand, view: ClusterView) -> Iterator[str]:
    for name, number in demand.resources.items():
        if name not in view.largest:
            known = ", ".join(sorted(view.largest))
            yield f"{demand.key(name)}: this cluster has no resource {name!r}; it has {known}"
        elif number > view.largest[name]:
            yield (
                f"{demand.key(name)}: {demand.amount(name, number)} in one container is more than the "
                f"{demand.amount(name, view.largest[name])} that this cluster grants"
            )


def _unit_problems(what: str, task: TaskSpec, view: ClusterView) -> Iterator[str]:
    for name, wanted in task.resources.items():
        unit = view.units.get(name, "")
        if name in view.largest and not wanted.is_whole_in(unit):
            counted = f"in whole {unit}" if unit else "one by one"
            yield (
                f"{what}.resources.{name}: this cluster counts it {counted}, and would round {wanted} down; "
                f"write {wanted.counted_in(unit)}{unit}"
            )


def _node_problems(demand: Demand, view: ClusterView, free: str = "") -> Iterator[str]:
    """Why no node could take such a container; ``free``: a word for what the nodes of the view have."""
    nodes = [node for node in view.nodes if (demand.label in node.labels if demand.label else True)]
    if not nodes:  # one may come yet
        return
    fitting = True
    for name, number in demand.resources.items():
        most = max(node.resources.get(name, 0) for node in nodes)
        if number > most:
            where = f"node with the label {demand.label!r}" if demand.label else "node"
            fitting = False
            wanted, at_most = demand.amount(name, number), demand.amount(name, most)
            yield f"{demand.key(name)}: no {where} has {wanted}{free}; the most is {at_most}"
    if fitting and not any(_fits(demand, node) for node in nodes):
        wanted = ", ".join(demand.amount(name, number) for name, number in demand.resources.items())
        yield f"{demand.what}: no single node has all of {wanted}{free}"


def _fits(demand: Demand, node: Node) -> bool:
    return all(node.resources.get(name, 0) >= number for name, number in demand.resources.items())
