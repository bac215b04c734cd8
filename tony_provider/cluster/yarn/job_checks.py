"""Checks of a job against a YARN cluster before its submission.

The checks concern queue, labels, container sizes, capacity, placement rules and container images. The module also
computes the containers that a job needs. Each problem is one line that includes the allowed or available values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from tony_provider.cluster.yarn.cluster_view import ClusterView, Node, Queue, find_queue, queue_problem
from tony_provider.runtime.common.quantities import GPU, MEMORY, VCORES, amount, count, some
from tony_provider.runtime.frameworks.task_type_rules import PeakDemand
from tony_provider.runtime.hadoop.yarn_records import AccessList
from tony_provider.runtime.jobspec.container_content import (
    HOST_NETWORK,
    MASTER_DOCKER_KEY,
    NO_MASTER_NETWORK,
    images,
    is_docker_image,
)
from tony_provider.runtime.jobspec.model import Docker, JobSpec, PidNamespace, TaskSpec
from tony_provider.runtime.jobspec.placement import (
    AttributeRule,
    Placement,
    PlacementConstraint,
    PlacementScope,
    TagTarget,
    own_tags,
)


@attrs.frozen
class Demand:
    """Containers of one kind that a job needs concurrently."""

    what: str  # the job's key for these containers, such as tasks.worker
    resources: dict[str, int]  # per container, by YARN's names, in the cluster's units
    label: str | None  # node label
    count: int = 1  # minimum number of containers
    units: Mapping[str, str] = attrs.field(factory=dict)  # units by resource, only for resources with a unit
    task_type: str | None = None  # None for the application master, which always runs

    def key(self, resource: str) -> str:
        """Return the key in the job specification that requests the resource, such as tasks.worker.memory."""
        keys = {MEMORY: "memory", VCORES: "vcores", GPU: "gpus"}
        return f"{self.what}.{keys.get(resource, f'resources.{resource}')}"

    def amount(self, resource: str, number: int) -> str:
        """Format an amount of a resource for users."""
        return amount(resource, number, self.units.get(resource, ""))


def demands(job: JobSpec, units: Mapping[str, str]) -> Iterator[Demand]:
    """Yield the demands of a job, the application master's first. For ``units``, see ClusterView."""
    am = {MEMORY: int(job.am_memory), VCORES: job.am.vcores}
    yield Demand("am", am, job.am.node_label or job.node_label)
    for name, task in job.tasks.items():
        others = {other: wanted.counted_in(units.get(other, "")) for other, wanted in task.resources.items()}
        wanted = {MEMORY: int(task.memory), VCORES: task.vcores, **others}
        if task.gpus:
            wanted[GPU] = task.gpus
        label, count = task.node_label or job.node_label, job.minimum_containers(name)
        yield Demand(f"tasks.{name}", wanted, label, count, units, name)


def _shortages(demands: Sequence[Demand], job: JobSpec, view: ClusterView, free: str = "") -> list[str]:
    """Describe resources that the nodes or the queue lack, with the figures. Virtual cores are not counted.

    Return [] if all concurrent containers fit. ``free`` is a part of the messages: " free" if the nodes
    of ``view`` have only their free resources, otherwise empty.
    """
    peak, queue, shared = PeakDemand(job), _queue(job, view), view.shared_labels
    found: list[str] = []
    for label in sorted({demand.label or "" for demand in demands}):
        wanted = [demand for demand in demands if (demand.label or "") == label]
        reached = [node for node in view.nodes if _reaches(label, node, queue, shared)]
        for resource in sorted({name for demand in wanted for name in demand.resources} - {VCORES}):
            limits = _Limits(free=free) if free else _limits(queue, label, shared)
            found += _of_resource(resource, wanted, peak, reached, label, limits)
    return found


def _at_once(demands: Sequence[Demand], peak: PeakDemand, weigh: Callable[[Demand], int]) -> list[Demand]:
    """Return the demands of the master and of those concurrent task types that have the largest total by ``weigh``."""
    types = peak.heaviest({demand.task_type: weigh(demand) for demand in demands if demand.task_type is not None})
    return [demand for demand in demands if demand.task_type is None or demand.task_type in types]


def _reaches(label: str, node: Node, queue: Queue | None, shared: frozenset[str]) -> bool:
    if label:
        return label in node.labels
    if queue is None or queue.default_label:
        return True  # the job's queue may set a default label
    return not node.labels or bool(node.labels & shared)


@attrs.frozen
class _Limits:
    """Limits of the queue and of a user in it, in percent of the nodes."""

    queue: float = 100.0  # maximum share of the queue
    user: float | None = None  # guaranteed share of the queue; None if a single user has no limit
    factor: float = 1.0  # multiplies ``user`` to give the limit of a single user
    free: str = ""  # see ``_shortages``


def _limits(queue: Queue | None, label: str, shared: frozenset[str]) -> _Limits:
    if queue is None or (not label and (shared or queue.default_label)):
        return _Limits()
    at_most = queue.maximum.get(label, 100.0)
    if queue.user_factor is None:
        return _Limits(at_most)
    return _Limits(at_most, queue.guaranteed.get(label), queue.user_factor)


def _of_resource(
    resource: str, demands: Sequence[Demand], peak: PeakDemand, nodes: Sequence[Node], label: str, limits: _Limits
) -> Iterator[str]:
    """Yield at most one shortage, because further ones have the same cause."""
    where = f"the nodes with the label {label!r}" if label else "the nodes"
    there = [node.resources.get(resource, 0) for node in nodes]
    if shortage := _of_sum(resource, demands, peak, sum(there), where, limits):
        yield shortage
        return
    amount = demands[0].amount
    for least in sorted({each for demand in demands if (each := demand.resources.get(resource, 0))}, reverse=True):
        large = [demand for demand in demands if demand.resources.get(resource, 0) >= least]
        count = sum(demand.count for demand in _at_once(large, peak, lambda demand: demand.count))
        room = sum(each // least for each in there)
        if count > room:
            sized = f"{count} containers of {amount(resource, least)} or more"
            yield f"{sized} are needed, but {where} have{limits.free} room for only {room}"
            return


def _of_sum(
    resource: str, demands: Sequence[Demand], peak: PeakDemand, total: int, where: str, limits: _Limits
) -> str | None:
    """Describe by how much the total demand exceeds the nodes' total, the queue's limit or the user's limit.

    Return None if it exceeds none of them.
    """
    most_of_it = _at_once(demands, peak, lambda demand: demand.count * demand.resources.get(resource, 0))
    wanted = {demand.what: (demand.count, demand.resources.get(resource, 0)) for demand in most_of_it}
    needed, largest = sum(count * each for count, each in wanted.values()), max(each for _, each in wanted.values())

    def amount(number: int) -> str:
        return demands[0].amount(resource, number)

    asked = " + ".join(f"{count} x {amount(each)} ({what})" for what, (count, each) in wanted.items() if each)
    asked = f"{asked} is {amount(needed)}"
    of_queue, of_user = math.ceil(total * limits.queue / 100), _most_of_user(total, largest, limits)
    if needed > total:
        return f"{asked}; {where} have {amount(total)}{limits.free} together"
    if needed > of_queue:
        return f"{asked}; the queue gets at most {amount(of_queue)}, {limits.queue:g} % of {where}"
    if of_user is not None and needed - largest > of_user:
        share = f"{limits.factor:g} times its {limits.user:g} % of {where}"
        return f"{asked}; each user of the queue gets at most {amount(of_user)}, {share}"
    return None


def _most_of_user(total: int, largest: int, limits: _Limits) -> int | None:
    """Return the limit of a user in the queue, or None if only the queue's limit applies.

    YARN allocates a container if the user's use before it is at most this limit. YARN counts a queue as at least as
    large as the ``largest`` container.
    """
    if limits.user is None:
        return None
    return math.ceil(max(total * limits.user / 100, largest) * limits.factor)


def job_problems(job: JobSpec, view: ClusterView) -> list[str]:
    """Return every reason why the job could never run, each with the allowed values, or []."""
    needed = list(demands(job, view.units))
    found = []
    if job.queue is not None and view.queues is not None and (problem := queue_problem(job.queue, view.queues)):
        found.append(f"queue: {problem}")
    labels = sorted({demand.label for demand in needed if demand.label})
    for label in labels:
        found += _label_problems(label, job, view)
    for demand in needed:
        found += _size_problems(demand, view)
    for name, task in job.tasks.items():
        found += _unit_problems(f"tasks.{name}", task, view)
    return found


def capacity_shortages(job: JobSpec, view: ClusterView) -> list[str]:
    """Describe why the present nodes could not run this job even if idle. A new node may resolve these shortages.

    The job must have no ``job_problems``. Return nothing for a cluster or label without nodes, because their
    future size is unknown.
    """
    needed = list(demands(job, view.units))
    found = [problem for demand in needed for problem in _node_problems(demand, view)]
    if found or any(not _has_nodes(demand.label, view) for demand in needed):
        return found
    return _shortages(needed, job, view)


def present_shortages(job: JobSpec, view: ClusterView) -> list[str]:
    """Describe which free resources are too scarce now, so that the job has to wait. The job must fit on idle nodes.

    Virtual cores are ignored: if YARN does not enforce them, more may be in use than exist.
    """
    idle = attrs.evolve(view, nodes=[attrs.evolve(node, resources=node.free) for node in view.nodes])
    needed = [_without(VCORES, demand) for demand in demands(job, view.units)]
    found = [problem for demand in needed for problem in _node_problems(demand, idle, " free")]
    return found or _shortages(needed, job, idle, " free")


def _queue(job: JobSpec, view: ClusterView) -> Queue | None:
    """Return the job's queue, or None if it is unknown."""
    return find_queue(job.queue, view.queues) if job.queue is not None and view.queues is not None else None


def _without(resource: str, demand: Demand) -> Demand:
    return attrs.evolve(demand, resources={name: n for name, n in demand.resources.items() if name != resource})


def _has_nodes(label: str | None, view: ClusterView) -> bool:
    return any(label is None or label in node.labels for node in view.nodes)


def _label_problems(label: str, job: JobSpec, view: ClusterView) -> Iterator[str]:
    if label not in view.labels:
        known = f"this cluster has {', '.join(sorted(view.labels))}" if view.labels else "this cluster has none"
        yield f"node_label: there is no node label {label!r}; {known}"
        return
    queue = _queue(job, view)
    if queue is not None and queue.labels is not None and label not in queue.labels:
        yield f"node_label: queue {job.queue!r} may not use {label!r}, only {', '.join(sorted(queue.labels))}"


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
    """Describe why no node could run a container of this demand. ``free``: see ``_shortages``."""
    nodes = [node for node in view.nodes if (demand.label in node.labels if demand.label else True)]
    if not nodes:  # nodes with this label may register later
        return
    fitting = True
    for name, number in demand.resources.items():
        most = max(node.resources.get(name, 0) for node in nodes)
        if number > most:
            where = f"node with the label {demand.label!r}" if demand.label else "node"
            fitting = False
            wanted, at_most = demand.amount(name, number), demand.amount(name, most)
            yield f"{demand.key(name)}: no {where} has {wanted}{free}; the largest amount on one node is {at_most}"
    if fitting and not any(_fits(demand, node) for node in nodes):
        wanted = ", ".join(demand.amount(name, number) for name, number in demand.resources.items())
        yield f"{demand.what}: no single node has all of {wanted}{free}"


def _fits(demand: Demand, node: Node) -> bool:
    return all(node.resources.get(name, 0) >= number for name, number in demand.resources.items())


HANDLER = "yarn.resourcemanager.placement-constraints.handler"
HIDDEN = "hidden"  # replaces the value of a setting that the cluster does not show
_DISABLED = "disabled"
_ATTRIBUTE_PREFIX = "rm.yarn.io"  # default prefix of attributes (NodeAttribute.PREFIX_CENTRALIZED)
_SHOWN = 10


def handler_problems(job: JobSpec, handler: str | None) -> Iterator[str]:
    """Describe why YARN would ignore placement rules.

    ``handler`` is the value of the setting HANDLER, or None if this YARN version does not have it.
    """
    if handler not in (None, _DISABLED):
        return
    for name in filter(job.placed_by_rules, job.tasks):
        why = "does not support them" if handler is None else f"has them {_DISABLED}"
        yield (
            f"tasks.{name}.placement: rules and tags need placement constraints (YARN 3.1 or newer), but this YARN "
            f"{why}; its administrator must set {HANDLER} to scheduler"
        )
        return  # all other task types have the same problem


def names_nodes(job: JobSpec) -> bool:
    """Return whether a task type names nodes or racks."""
    placements = [task.placement for task in job.tasks.values() if task.placement is not None]
    return any(placement.nodes or placement.racks for placement in placements)


def racks_of(job: JobSpec, nodes: Sequence[Node]) -> dict[str, str]:
    """Return the racks by host name, for the nodes that a job names and all nodes on the racks that it names."""
    placements = [task.placement for task in job.tasks.values() if task.placement is not None]
    hosts = {host for placement in placements for host in placement.nodes}
    racks = {rack for placement in placements for rack in placement.racks}
    return {node.host: node.rack for node in nodes if node.host in hosts or node.rack in racks}


def placement_problems(job: JobSpec, view: ClusterView) -> Iterator[str]:
    """Describe why containers could never be placed as the job requires, each with the available values.

    Report nothing for a cluster without nodes.
    """
    for name, task in job.tasks.items():
        if task.placement is None or not view.nodes:
            continue
        path, label = f"tasks.{name}.placement", task.node_label or job.node_label
        unknown = [*_unknown_places(task.placement, view.nodes, path)]
        yield from unknown or _too_few(job, name, task.placement, suitable(task.placement, label, view.nodes), path)


def _unknown_places(placement: Placement, nodes: Sequence[Node], path: str) -> Iterator[str]:
    hosts, racks = sorted({node.host for node in nodes}), sorted({node.rack for node in nodes})
    for node in placement.nodes:
        if node not in hosts:
            yield f"{path}.nodes: there is no node {node!r} now; this cluster has {some(hosts, _SHOWN)}"
    for rack in placement.racks:
        if rack not in racks:
            yield f"{path}.racks: no node is on a rack {rack!r}; the racks are {some(racks, _SHOWN)}"
    for text in placement.attributes:
        rule = AttributeRule.parse(text)
        if not any(_keeps(rule, node) for node in nodes):
            values = sorted({value for node in nodes if (value := node.attributes.get(_full(rule.name))) is not None})
            others = some(_names(nodes), _SHOWN) or "none"
            known = f"nodes have {some(values, _SHOWN)} for it" if values else f"nodes have {others}"
            yield f"{path}.attributes: no node has {text}; {known}"


def suitable(placement: Placement | None, label: str | None, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that the placement and the label allow for containers."""
    rules = [AttributeRule.parse(text) for text in placement.attributes] if placement is not None else []
    found = [node for node in nodes if (label is None or label in node.labels) and all(_keeps(r, node) for r in rules)]
    if placement is not None and placement.required:
        found = [node for node in found if node.host in placement.nodes or node.rack in placement.racks]
    return found


def _too_few(job: JobSpec, task_type: str, placement: Placement, nodes: Sequence[Node], path: str) -> Iterator[str]:
    needed = job.minimum_containers(task_type)
    if not nodes:
        yield f"{path}: no node satisfies all conditions"
        return
    for index, rule in enumerate(placement.constraints):
        most = _most_on_one(rule, own_tags(task_type, placement))
        if most is None:
            continue
        places = {node.host if rule.scope is PlacementScope.NODE else node.rack for node in nodes}
        if needed > most * len(places):
            there = f"{count(len(places), rule.scope.value)} that could run them"
            yield (
                f"{path}.constraints[{index}]: {needed} containers must run at the same time, at most {most} on one "
                f"{rule.scope.value}, but the cluster has only {there}"
            )


def _most_on_one(rule: PlacementConstraint, own: Sequence[str]) -> int | None:
    """Return how many containers of this task type the rule allows per node or rack, or None for any number.

    ``own`` are the tags of the task type.
    """
    apart = [target for target in map(TagTarget.parse, rule.anti_affinity) if target.own and target.tag in own]
    if apart:
        return 1
    if rule.cardinality is None or rule.max is None:
        return None
    target = TagTarget.parse(rule.cardinality)
    return rule.max if target.own and target.tag in own else None


def _keeps(rule: AttributeRule, node: Node) -> bool:
    value = node.attributes.get(_full(rule.name))
    return (value == rule.value) is rule.equal


def _full(name: str) -> str:
    return name if "/" in name else f"{_ATTRIBUTE_PREFIX}/{name}"


def _names(nodes: Sequence[Node]) -> list[str]:
    return sorted({f"{name}={value}" for node in nodes for name, value in node.attributes.items()})


_EXECUTOR = "yarn.nodemanager.container-executor.class"
_RUNTIMES = "yarn.nodemanager.runtime.linux.allowed-runtimes"
_DEFAULT_NETWORK = "yarn.nodemanager.runtime.linux.docker.default-container-network"
_ALL_SINCE = (3, 1)  # Hadoop version whose NodeManagers support mounts and registry credentials


@attrs.frozen
class NodeSettings:
    """The configuration of one NodeManager."""

    host: str
    version: str  # Hadoop version of the node
    properties: Mapping[str, str]  # all properties, including defaults

    def allows(self, name: str, value: str, default: str) -> bool:
        """Return whether the comma-separated list in property ``name`` contains the value."""
        return value in {each.strip() for each in self.properties.get(name, default).split(",")}


def nodes_for_images(job: JobSpec, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes on which label and placement allow those containers of the job that run in images."""
    own: dict[str, tuple[str | None, Placement | None]] = {
        f"tasks.{name}.docker": (task.node_label, task.placement) for name, task in job.tasks.items()
    }
    own[MASTER_DOCKER_KEY] = (job.am.node_label, None)
    if job.tensorboard:
        own["tensorboard.docker"] = (job.tensorboard.node_label, None)
    hosts: set[str] = set()
    for path, image in images(job).items():
        if image is not None:
            label, placement = own[path]
            hosts.update(node.host for node in suitable(placement, label or job.node_label, nodes))
    return [node for node in nodes if node.host in hosts]


def image_problems(job: JobSpec, user: str, node: NodeSettings) -> list[str]:
    """Describe why this node would not start the job's containers as specified. Return [] if no problem is known.

    The allowed images and mounts are in the node's container-executor.cfg, which cannot be read remotely.
    """
    every = images(job)
    found = [problem for image in every.values() if image for problem in _one_image_problems(image, user, node)]
    master, network = every[MASTER_DOCKER_KEY], node.properties.get(_DEFAULT_NETWORK, HOST_NETWORK)
    if master is not None and is_docker_image(master) and master.network is None and network != HOST_NETWORK:
        found.append(
            f"{MASTER_DOCKER_KEY}: its network would be {network}, the default of {node.host}; {NO_MASTER_NETWORK}"
        )
    if _version(node.version) < _ALL_SINCE:
        given = {"mounts": any(image and image.mounts for image in every.values())}
        given["client_config"] = bool(job.docker and job.docker.client_config)
        since = ".".join(map(str, _ALL_SINCE))
        found += [
            f"docker.{key}: the NodeManager of {node.host} has Hadoop {node.version}, which does not support it; it "
            f"requires Hadoop {since} or newer"
            for key, is_given in given.items()
            if is_given
        ]
    return list(dict.fromkeys(found))


def _one_image_problems(image: Docker, user: str, node: NodeSettings) -> Iterator[str]:
    runtime = image.runtime.value if image.runtime else "docker"
    said = f"the NodeManager of {node.host}"
    executor = node.properties.get(_EXECUTOR, "DefaultContainerExecutor").rpartition(".")[2]
    if executor == "DefaultContainerExecutor":
        yield f"docker: {said} starts only plain processes, not images ({_EXECUTOR} is {executor})"
        return
    if not node.allows(_RUNTIMES, runtime, "default"):
        allowed = node.properties.get(_RUNTIMES, "default")
        yield f"docker: {said} does not allow the runtime {runtime} ({_RUNTIMES} is {allowed})"
        return
    yield from _unknown_keys(image, node, f"yarn.nodemanager.runtime.linux.{runtime}.", said)
    yield from _not_allowed(image, user, node, f"yarn.nodemanager.runtime.linux.{runtime}.", said)


def _unknown_keys(image: Docker, node: NodeSettings, prefix: str, said: str) -> Iterator[str]:
    """Report keys that an old NodeManager ignores. It also lacks the setting that Hadoop added with the key."""
    came_with = {
        "tmpfs": "default-tmpfs-mounts",
        "pid_namespace": "host-pid-namespace.allowed",
        "oci_runtime": "allowed-container-runtimes",
        "delayed_removal": "delayed-removal.allowed",
    }
    for key, setting in came_with.items():
        if getattr(image, key) and f"{prefix}{setting}" not in node.properties:
            yield f"docker.{key}: {said} has Hadoop {node.version}, which does not support it; remove the key"


def _not_allowed(image: Docker, user: str, node: NodeSettings, prefix: str, said: str) -> Iterator[str]:
    lists = (
        ("network", f"{prefix}allowed-container-networks", "host,none,bridge"),
        ("oci_runtime", f"{prefix}allowed-container-runtimes", "runc"),
    )
    for key, setting, default in lists:
        wanted = getattr(image, key)
        if wanted and not node.allows(setting, wanted, default):
            yield f"docker.{key}: {said} does not allow {wanted} ({setting} is {node.properties.get(setting, default)})"
    switches = (
        ("privileged", image.privileged, f"{prefix}privileged-containers.allowed"),
        ("pid_namespace", image.pid_namespace is PidNamespace.HOST, f"{prefix}host-pid-namespace.allowed"),
        ("delayed_removal", image.delayed_removal, f"{prefix}delayed-removal.allowed"),
    )
    for key, wanted, setting in switches:
        if wanted and node.properties.get(setting) == "false":
            yield f"docker.{key}: {said} does not allow it ({setting} is false)"
    setting = f"{prefix}privileged-containers.acl"
    who = AccessList.parse(node.properties.get(setting, ""))
    if image.privileged and not (who.everybody or who.groups or user in who.users):
        yield f"docker.privileged: {said} does not allow it for {user} ({setting} is {who.text.strip() or 'empty'})"


def _version(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version. Return _ALL_SINCE if it cannot be parsed, so that no check fails."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else _ALL_SINCE
