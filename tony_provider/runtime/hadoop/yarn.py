"""The methods of an application master's two protocols: with the ResourceManager, and with the NodeManagers.

Call them by ``RpcClient.call``, which describes retries and errors.
"""

from __future__ import annotations

from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.rpc import Method

# The scheduler of the active ResourceManager: ``yarn.resourcemanager.scheduler.address``, default port 8030. The token
# is of kind YARN_AM_RM_TOKEN. Pass a token that YARN has rolled (``am_rm_token`` of an answer) to ``use_token``. Any
# call may raise ApplicationAttemptNotFound: the attempt has ended, so stop.
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

# A NodeManager, whose address is the node ID of its containers; the token is its NMToken.
CONTAINER_MANAGEMENT_PROTOCOL = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"

START_CONTAINERS = Method("startContainers", service.StartContainersResponseProto)
"""Start containers. A second start is rejected.

``failed_requests`` lists rejected containers (see errors.serialized_error). After RpcTimeout or RpcConnectionError the
containers may be running; check their statuses."""

CONTAINER_STATUSES = Method("getContainerStatuses", service.GetContainerStatusesResponseProto, idempotent=True)
"""Return statuses. Containers that the node does not (or no longer) know are in ``failed_requests``."""
