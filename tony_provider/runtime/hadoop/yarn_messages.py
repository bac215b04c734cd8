"""YARN's messages made from plain values, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional
from urllib.parse import SplitResult, unquote, urlsplit

from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.proto.yarn_service_pb2 import StartContainerRequestProto
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.resource_names import MEMORY, VCORES

ANYWHERE = "*"
_OWN_FIELDS = (MEMORY, VCORES)  # Hadoop 3 also lists these two among the named resources


def resource(
    memory: int,
    vcores: int,
    others: Optional[Mapping[str, int]] = None,
    units: Optional[Mapping[str, str]] = None,
) -> yarn.ResourceProto:
    """An amount of resources.

    ``memory`` in MiB; ``others`` by YARN's names, such as ``yarn.io/gpu``. ``units`` are YARN's, such as ``Gi``, for
    those that are not in the unit that the cluster counts them in.
    """
    # Left out, that is the cluster's own unit; "" would be one, and YARN would convert it, rounding down to 0.
    values = [
        yarn.ResourceInformationProto(key=name, value=value, units=(units or {}).get(name), type=yarn.COUNTABLE)
        for name, value in (others or {}).items()
    ]
    return yarn.ResourceProto(memory=memory, virtual_cores=vcores, resource_value_map=values)


def other_resources(proto: yarn.ResourceProto) -> dict[str, int]:
    """What an amount holds beside memory and cores, by YARN's names."""
    return {entry.key: entry.value for entry in proto.resource_value_map if entry.key not in _OWN_FIELDS}


def units(proto: yarn.ResourceProto) -> dict[str, str]:
    """The units of ``other_resources``, where they are not counted one by one."""
    listed = proto.resource_value_map
    return {entry.key: entry.units for entry in listed if entry.key not in _OWN_FIELDS and entry.units}


def resource_request(
    capability: yarn.ResourceProto,
    count: int,
    *,
    priority: int,
    allocation_request_id: int,
    node_label: Optional[str] = None,
    where: str = ANYWHERE,
    relax_locality: bool = True,
) -> yarn.ResourceRequestProto:
    """A request for ``count`` containers on a node, on a rack or anywhere; 0 withdraws them.

    It counts for this (priority, allocation_request_id, capability, where) in all. ``relax_locality``: for a rack, that
    it may be any node of it; for anywhere, that it may be any node at all, and not only those that are asked for, too.
    """
    return yarn.ResourceRequestProto(
        priority=yarn.PriorityProto(priority=priority),
        resource_name=where,
        capability=capability,
        num_containers=count,
        relax_locality=relax_locality,
        node_label_expression=node_label,
        execution_type_request=yarn.ExecutionTypeRequestProto(
            execution_type=yarn.GUARANTEED, enforce_execution_type=True
        ),
        allocation_request_id=allocation_request_id,
    )


def local_resource(
    uri: str,
    *,
    size: int,
    modified_ms: int,
    archive: bool = False,
    visibility: yarn.LocalResourceVisibilityProto = yarn.APPLICATION,
) -> yarn.LocalResourceProto:
    """A file on the store for a container; size in bytes and modification time exactly as the store reports them.

    ``uri`` is percent-encoded, as URIs are. Raises ValueError for one that the nodes cannot resolve (no scheme, no
    absolute path, a port that is none).
    """
    parts = urlsplit(uri)
    if not parts.scheme or not parts.path.startswith("/"):
        raise ValueError(f"{uri!r} is not a full URI such as hdfs://namenode/path")
    return yarn.LocalResourceProto(
        resource=yarn.URLProto(
            scheme=parts.scheme,
            host=_host(parts),
            port=parts.port or -1,  # Java's way to say that there is none
            file=unquote(parts.path),
            userInfo=parts.username,
        ),
        size=size,
        timestamp=modified_ms,
        type=yarn.ARCHIVE if archive else yarn.FILE,
        visibility=visibility,
    )


def _host(parts: SplitResult) -> str:
    # Not ``hostname``, which is in lower case: the name of an HDFS nameservice keeps its letters.
    host_and_port = parts.netloc.rpartition("@")[2]
    return host_and_port.rpartition(":")[0] if parts.port else host_and_port


def access_lists(acls: Iterable[yarn.ApplicationACLMapProto]) -> dict[str, str]:
    """An application's access lists by what they allow, VIEW_APP or MODIFY_APP."""
    prefix = "APPACCESS_"
    return {yarn.ApplicationAccessTypeProto.Name(each.accessType)[len(prefix) :]: each.acl for each in acls}


def launch_context(
    *,
    commands: Iterable[str],
    environment: Mapping[str, str],
    local_resources: Mapping[str, yarn.LocalResourceProto],
    credentials: Credentials,
    acls: Iterable[yarn.ApplicationACLMapProto] = (),
) -> yarn.ContainerLaunchContextProto:
    """How a container is started. ``local_resources`` by the name they get in its directory.

    The commands' words are joined and become ``exec /bin/bash -c "<command>"``: a ``$`` expands in the outer shell.
    ``acls`` are to be those of the ResourceManager's register answer, so that the users named there may read the logs.
    """
    return yarn.ContainerLaunchContextProto(
        localResources=[
            yarn.StringLocalResourceMapProto(key=name, value=value) for name, value in local_resources.items()
        ],
        tokens=credentials.to_bytes(),
        environment=[yarn.StringStringMapProto(key=name, value=value) for name, value in environment.items()],
        command=commands,
        application_ACLs=acls,
    )


def start_request(
    context: yarn.ContainerLaunchContextProto, container: yarn.ContainerProto
) -> StartContainerRequestProto:
    """The request to start one container. Its own token, from the allocation, says what the node may start."""
    return StartContainerRequestProto(container_launch_context=context, container_token=container.container_token)
