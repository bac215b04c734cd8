"""YARN's records, and the methods of the two protocols that an application master uses.

The records are IDs, access lists, resources, requests, placement constraints and launch contexts. IDs have the text
forms of Hadoop's ApplicationId, ApplicationAttemptId, ContainerId and NodeId (2.10 to 3.5). Call the methods by
``RpcClient.call``. The docstring of RpcClient describes retries and errors.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from tony_provider.runtime.common.network import Address
from tony_provider.runtime.common.quantities import MEMORY, VCORES
from tony_provider.runtime.hadoop.proto import yarn_pb2
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.proto.yarn_service_pb2 import StartContainerRequestProto
from tony_provider.runtime.hadoop.rpc import Method
from tony_provider.runtime.hadoop.tokens import Credentials

_APPLICATION = re.compile(r"application_(\d{1,18})_(\d{1,9})", re.ASCII)
_ATTEMPT = re.compile(r"appattempt_(\d{1,18})_(\d{1,9})_(\d{1,9})", re.ASCII)
_CONTAINER = re.compile(r"container_(?:e(\d{1,7})_)?(\d{1,18})_(\d{1,9})_(\d{1,9})_(\d{1,12})", re.ASCII)

_EPOCH_SHIFT = 40
_NUMBER_MASK = (1 << _EPOCH_SHIFT) - 1


def _match(pattern: re.Pattern[str], text: str, what: str) -> list[int]:
    matched = pattern.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not {what} id")
    return [int(group or 0) for group in matched.groups()]


@attrs.frozen(order=True)
class ApplicationId:
    """ID of an application, such as ``application_1700000000000_0001``."""

    cluster_timestamp: int  # start time of the ResourceManager, epoch milliseconds
    number: int

    @classmethod
    def parse(cls, text: str) -> ApplicationId:
        """Parse an application ID. Raises ValueError."""
        return cls(*_match(_APPLICATION, text, "an application"))

    @classmethod
    def from_proto(cls, proto: yarn_pb2.ApplicationIdProto) -> ApplicationId:
        return cls(proto.cluster_timestamp, proto.id)

    def to_proto(self) -> yarn_pb2.ApplicationIdProto:
        return yarn_pb2.ApplicationIdProto(id=self.number, cluster_timestamp=self.cluster_timestamp)

    def __str__(self) -> str:
        return f"application_{self.cluster_timestamp}_{self.number:04d}"


def is_application_id(text: str) -> bool:
    """Return whether a text is an application ID, and therefore safe in a path or an address."""
    return _APPLICATION.fullmatch(text) is not None


@attrs.frozen(order=True)
class ApplicationAttemptId:
    """ID of an application attempt. Each attempt runs one application master."""

    application: ApplicationId
    number: int  # from 1

    @classmethod
    def parse(cls, text: str) -> ApplicationAttemptId:
        """Parse an attempt ID. Raises ValueError."""
        timestamp, application, attempt = _match(_ATTEMPT, text, "an application attempt")
        return cls(ApplicationId(timestamp, application), attempt)

    @classmethod
    def from_proto(cls, proto: yarn_pb2.ApplicationAttemptIdProto) -> ApplicationAttemptId:
        return cls(ApplicationId.from_proto(proto.application_id), proto.attemptId)

    def to_proto(self) -> yarn_pb2.ApplicationAttemptIdProto:
        return yarn_pb2.ApplicationAttemptIdProto(application_id=self.application.to_proto(), attemptId=self.number)

    def __str__(self) -> str:
        application = self.application
        return f"appattempt_{application.cluster_timestamp}_{application.number:04d}_{self.number:06d}"


@attrs.frozen(order=True)
class ContainerId:
    """ID of a container, with the attempt that requested the container. A later attempt may have adopted it."""

    attempt: ApplicationAttemptId
    number: int  # 1 for the application master's container
    epoch: int = 0  # number of times that the ResourceManager was restarted and recovered its state

    @classmethod
    def parse(cls, text: str) -> ContainerId:
        """Parse a container ID. Raises ValueError."""
        epoch, timestamp, application, attempt, number = _match(_CONTAINER, text, "a container")
        return cls(ApplicationAttemptId(ApplicationId(timestamp, application), attempt), number, epoch)

    @classmethod
    def from_proto(cls, proto: yarn_pb2.ContainerIdProto) -> ContainerId:
        attempt = ApplicationAttemptId.from_proto(proto.app_attempt_id)
        return cls(attempt, proto.id & _NUMBER_MASK, proto.id >> _EPOCH_SHIFT)

    def to_proto(self) -> yarn_pb2.ContainerIdProto:
        return yarn_pb2.ContainerIdProto(
            app_attempt_id=self.attempt.to_proto(), id=self.epoch << _EPOCH_SHIFT | self.number
        )

    def __str__(self) -> str:
        application = self.attempt.application
        epoch = f"e{self.epoch:02d}_" if self.epoch else ""
        return (
            f"container_{epoch}{application.cluster_timestamp}_{application.number:04d}"
            f"_{self.attempt.number:02d}_{self.number:06d}"
        )


def node_address(proto: yarn_pb2.NodeIdProto) -> Address:
    """Return the address of a NodeManager, which is also its ID."""
    return Address(proto.host, proto.port)


VIEW_APP, MODIFY_APP = "VIEW_APP", "MODIFY_APP"  # YARN's names for the two access lists of an application
_EVERYBODY = "*"


@attrs.frozen
class AccessList:
    """YARN access list: the users and groups that have a permission."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    everybody: bool = False

    @classmethod
    def parse(cls, text: str) -> AccessList:
        """Parse an access list as Hadoop's AccessControlList does. Every text is valid."""
        if text.strip() == _EVERYBODY:
            return cls(everybody=True)
        users, _, groups = text.partition(" ")
        return cls(_names(users), _names(groups))

    @classmethod
    def of(cls, users: Iterable[str], groups: Iterable[str]) -> AccessList:
        """Return an access list with these users and groups. The user ``*`` stands for all users."""
        users = frozenset(users)
        return cls(everybody=True) if _EVERYBODY in users else cls(users, frozenset(groups))

    @property
    def text(self) -> str:
        """The text form that ``parse`` reads. The text form of an empty access list is one blank."""
        return _EVERYBODY if self.everybody else f"{','.join(sorted(self.users))} {','.join(sorted(self.groups))}"

    async def allows(self, user: str) -> bool:
        if self.everybody or user in self.users:
            return True
        return bool(user and self.groups) and not self.groups.isdisjoint(await asyncio.to_thread(groups_of, user))


def groups_of(user: str) -> set[str]:
    """Return the groups of a user, from this node's user database as in Hadoop's default group mapping. Blocks.

    Returns an empty set if this node does not know the user.
    """
    try:
        own = pwd.getpwnam(user).pw_gid
    except KeyError:
        return set()
    found = set()
    for number in os.getgrouplist(user, own):
        try:
            found.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue  # this node has no name for the group ID
    return found


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


ANYWHERE = "*"
_OWN_FIELDS = (MEMORY, VCORES)  # resources with own fields; Hadoop 3 also lists them among the named resources


def resource(
    memory: int,
    vcores: int,
    others: Optional[Mapping[str, int]] = None,
    units: Optional[Mapping[str, str]] = None,
) -> yarn_pb2.ResourceProto:
    """Return an amount of resources.

    ``memory`` is in MiB. ``others`` are amounts by YARN's resource names, such as ``yarn.io/gpu``. ``units`` are YARN's
    units of these amounts, such as ``Gi``; by default, an amount is in the cluster's unit of the resource.
    """
    # Without a unit, YARN uses the cluster's unit. An empty unit means a factor of 1: if the cluster counts in
    # Gi, YARN would round 8 down to 0 Gi.
    values = [
        yarn_pb2.ResourceInformationProto(key=name, value=value, units=(units or {}).get(name), type=yarn_pb2.COUNTABLE)
        for name, value in (others or {}).items()
    ]
    return yarn_pb2.ResourceProto(memory=memory, virtual_cores=vcores, resource_value_map=values)


def other_resources(proto: yarn_pb2.ResourceProto) -> dict[str, int]:
    """Return the amounts of resources other than memory and cores, by YARN's names."""
    return {entry.key: entry.value for entry in proto.resource_value_map if entry.key not in _OWN_FIELDS}


def resource_units(proto: yarn_pb2.ResourceProto) -> dict[str, str]:
    """Return the units of ``other_resources``, by YARN's names. Resources without a unit are left out."""
    listed = proto.resource_value_map
    return {entry.key: entry.units for entry in listed if entry.key not in _OWN_FIELDS and entry.units}


def resource_request(
    capability: yarn_pb2.ResourceProto,
    count: int,
    *,
    priority: int,
    allocation_request_id: int,
    node_label: Optional[str] = None,
    where: str = ANYWHERE,
    relax_locality: bool = True,
) -> yarn_pb2.ResourceRequestProto:
    """Return a request for ``count`` containers on a node, on a rack or anywhere. A count of 0 cancels the request.

    The count replaces the previous count for the same (priority, allocation_request_id, capability, where). In a
    request for a rack, ``relax_locality`` allows all nodes of the rack. In a request for ANYWHERE, it also allows nodes
    that no other request names.
    """
    return yarn_pb2.ResourceRequestProto(
        priority=yarn_pb2.PriorityProto(priority=priority),
        resource_name=where,
        capability=capability,
        num_containers=count,
        relax_locality=relax_locality,
        node_label_expression=node_label,
        execution_type_request=yarn_pb2.ExecutionTypeRequestProto(
            execution_type=yarn_pb2.GUARANTEED, enforce_execution_type=True
        ),
        allocation_request_id=allocation_request_id,
    )


def local_resource(
    uri: str,
    *,
    size: int,
    modified_ms: int,
    visibility: yarn_pb2.LocalResourceVisibilityProto = yarn_pb2.APPLICATION,
) -> yarn_pb2.LocalResourceProto:
    """Return a file on the store that NodeManagers download for a container.

    ``size`` (in bytes) and ``modified_ms`` must match the store's values exactly. ``uri`` is percent-encoded. Raises
    ValueError if the nodes cannot resolve the URI: it has no scheme, no absolute path, or an invalid port.
    """
    parts = urlsplit(uri)
    if not parts.scheme or not parts.path.startswith("/"):
        raise ValueError(f"{uri!r} is not a full URI such as hdfs://namenode/path")
    return yarn_pb2.LocalResourceProto(
        resource=yarn_pb2.URLProto(
            scheme=parts.scheme,
            host=_host(parts),
            port=parts.port or -1,  # Java's value for a missing port
            file=unquote(parts.path),
            userInfo=parts.username,
        ),
        size=size,
        timestamp=modified_ms,
        type=yarn_pb2.FILE,  # archives, too: executors unpack them, because a node's unpacked copy cannot be verified
        visibility=visibility,
    )


def _host(parts: SplitResult) -> str:
    # ``hostname`` is not used: it is in lower case, but the name of an HDFS nameservice is case-sensitive.
    host_and_port = parts.netloc.rpartition("@")[2]
    return host_and_port.rpartition(":")[0] if parts.port else host_and_port


def access_lists(acls: Iterable[yarn_pb2.ApplicationACLMapProto]) -> dict[str, str]:
    """Return the text form of an application's access lists, by permission (VIEW_APP, MODIFY_APP)."""
    prefix = "APPACCESS_"
    return {yarn_pb2.ApplicationAccessTypeProto.Name(each.accessType)[len(prefix) :]: each.acl for each in acls}


def launch_context(
    *,
    commands: Iterable[str],
    environment: Mapping[str, str],
    local_resources: Mapping[str, yarn_pb2.LocalResourceProto],
    credentials: Credentials,
    acls: Iterable[yarn_pb2.ApplicationACLMapProto] = (),
) -> yarn_pb2.ContainerLaunchContextProto:
    """Return the launch context of a container.

    The commands are joined and run as ``exec /bin/bash -c "<command>"``, where the outer shell expands ``$``. The keys
    of ``local_resources`` are file names in the container's directory. ``acls`` should be the access lists in the
    ResourceManager's answer to the registration, so that the application's viewers may read the container's logs.
    """
    return yarn_pb2.ContainerLaunchContextProto(
        localResources=[
            yarn_pb2.StringLocalResourceMapProto(key=name, value=value) for name, value in local_resources.items()
        ],
        tokens=credentials.to_bytes(),
        environment=[yarn_pb2.StringStringMapProto(key=name, value=value) for name, value in environment.items()],
        command=commands,
        application_ACLs=acls,
    )


def start_request(
    context: yarn_pb2.ContainerLaunchContextProto, container: yarn_pb2.ContainerProto
) -> StartContainerRequestProto:
    """Return the request to start an allocated container. It includes the allocation's token, which the node checks."""
    return StartContainerRequestProto(container_launch_context=context, container_token=container.container_token)


_NODE = "node"
_NODE_PARTITION = "yarn_node_partition/"  # target key of node labels (PlacementConstraints.NODE_PARTITION)
_ANY_NUMBER = 2**31 - 1  # Java's Integer.MAX_VALUE

Target = yarn_pb2.PlacementConstraintTargetProto
Simple = yarn_pb2.SimplePlacementConstraintProto


def tag_constraint(
    scope: str, namespace: str, tags: Sequence[str], *, least: int = 0, most: Optional[int] = None
) -> yarn_pb2.SimplePlacementConstraintProto:
    """Place a container only on a node or rack that already has ``least`` to ``most`` containers with these tags.

    YARN counts the containers of each tag separately. The largest of these counts must be at least ``least``, and the
    smallest at most ``most``.
    """
    target = Target(targetType=Target.ALLOCATION_TAG, targetKey=namespace, targetValues=tags)
    return Simple(
        scope=scope,
        targetExpressions=[target],
        minCardinality=least,
        maxCardinality=_ANY_NUMBER if most is None else most,
    )


def attribute_constraint(name: str, value: str, *, equal: bool) -> yarn_pb2.SimplePlacementConstraintProto:
    """Require that a node attribute has this value, or another value if not ``equal``.

    A missing attribute counts as another value.
    """
    target = Target(targetType=Target.NODE_ATTRIBUTE, targetKey=name, targetValues=[value])
    return Simple(
        scope=_NODE,
        targetExpressions=[target],
        minCardinality=1,
        maxCardinality=_ANY_NUMBER,
        attributeOpCode=yarn_pb2.EQ if equal else yarn_pb2.NE,
    )


def combined_constraint(
    rules: Sequence[yarn_pb2.SimplePlacementConstraintProto], node_label: Optional[str]
) -> Optional[yarn_pb2.PlacementConstraintProto]:
    """Return a constraint that requires all rules and the node label. Return None without rules and label.

    If there are several rules, the label is left out, because YARN would ignore it and use the queue's label.
    """
    if len(rules) > 1:
        composite = yarn_pb2.CompositePlacementConstraintProto(
            compositeType=yarn_pb2.CompositePlacementConstraintProto.AND,
            childConstraints=[yarn_pb2.PlacementConstraintProto(simpleConstraint=rule) for rule in rules],
        )
        return yarn_pb2.PlacementConstraintProto(compositeConstraint=composite)
    label = [Target(targetType=Target.NODE_ATTRIBUTE, targetKey=_NODE_PARTITION, targetValues=[node_label or ""])]
    if rules:
        rule = Simple()
        rule.CopyFrom(rules[0])
        rule.targetExpressions.extend(label if node_label else [])
        return yarn_pb2.PlacementConstraintProto(simpleConstraint=rule)
    if node_label:
        anywhere = Simple(scope=_NODE, targetExpressions=label, minCardinality=1, maxCardinality=_ANY_NUMBER)
        return yarn_pb2.PlacementConstraintProto(simpleConstraint=anywhere)
    return None


def scheduling_request(
    capability: yarn_pb2.ResourceProto,
    count: int,
    *,
    priority: int,
    allocation_request_id: int,
    tags: Sequence[str],
    constraint: Optional[yarn_pb2.PlacementConstraintProto],
) -> yarn_pb2.SchedulingRequestProto:
    """Return a request for ``count`` containers on nodes that satisfy the constraint. A count of 0 cancels the request.

    The count replaces the previous count for the same (priority, allocation_request_id). YARN rejects a request
    that differs from the previous one in anything but the count.
    """
    return yarn_pb2.SchedulingRequestProto(
        allocationRequestId=allocation_request_id,
        priority=yarn_pb2.PriorityProto(priority=priority),
        executionType=yarn_pb2.ExecutionTypeRequestProto(
            execution_type=yarn_pb2.GUARANTEED, enforce_execution_type=True
        ),
        allocationTags=tags,
        resourceSizing=yarn_pb2.ResourceSizingProto(numAllocations=count, resources=capability),
        placementConstraint=constraint,
    )


# Server: the scheduler of the active ResourceManager (``yarn.resourcemanager.scheduler.address``, default port 8030).
# Token: the token of kind YARN_AM_RM_TOKEN. If an answer has a new ``am_rm_token``, pass it to ``RpcClient.use_token``.
# Any call may raise ApplicationAttemptNotFound. The attempt has then ended, so the application master must stop.
APPLICATION_MASTER_PROTOCOL = "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"

REGISTER = Method("registerApplicationMaster", service.RegisterApplicationMasterResponseProto)
"""Register the application master.

A second registration raises InvalidApplicationMasterRequest, until the ResourceManager is restarted."""

ALLOCATE = Method("allocate", service.AllocateResponseProto, idempotent=True)
"""Send a heartbeat with requests and releases. Only one call at a time.

The ResourceManager answers a repeated ``response_id`` with its last answer. Raises ApplicationMasterNotRegistered after
a restart of the ResourceManager, InvalidResourceRequest."""

FINISH = Method("finishApplicationMaster", service.FinishApplicationMasterResponseProto, idempotent=True)
"""Unregister the application master; repeat until ``isUnregistered``.

A ResourceManager that no longer knows the attempt raises ApplicationAttemptNotFound; a restarted one raises
ApplicationMasterNotRegistered."""

# Server: a NodeManager, whose address is the node ID of its containers. Token: the NMToken for this node.
CONTAINER_MANAGEMENT_PROTOCOL = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"

START_CONTAINERS = Method("startContainers", service.StartContainersResponseProto)
"""Start containers. A second start is rejected.

``failed_requests`` lists rejected containers (see errors.serialized_error). After RpcTimeout or RpcConnectionError the
containers may be running; check their statuses."""

CONTAINER_STATUSES = Method("getContainerStatuses", service.GetContainerStatusesResponseProto, idempotent=True)
"""Return statuses. Containers that the node does not (or no longer) know are in ``failed_requests``."""
