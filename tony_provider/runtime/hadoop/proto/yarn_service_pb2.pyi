from tony_provider.runtime.hadoop.proto import security_pb2 as _security_pb2
from tony_provider.runtime.hadoop.proto import yarn_pb2 as _yarn_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SchedulerResourceTypes(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY: _ClassVar[SchedulerResourceTypes]
    CPU: _ClassVar[SchedulerResourceTypes]
MEMORY: SchedulerResourceTypes
CPU: SchedulerResourceTypes

class RegisterApplicationMasterRequestProto(_message.Message):
    __slots__ = ("host", "rpc_port", "tracking_url")
    HOST_FIELD_NUMBER: _ClassVar[int]
    RPC_PORT_FIELD_NUMBER: _ClassVar[int]
    TRACKING_URL_FIELD_NUMBER: _ClassVar[int]
    host: str
    rpc_port: int
    tracking_url: str
    def __init__(self, host: _Optional[str] = ..., rpc_port: _Optional[int] = ..., tracking_url: _Optional[str] = ...) -> None: ...

class RegisterApplicationMasterResponseProto(_message.Message):
    __slots__ = ("maximumCapability", "client_to_am_token_master_key", "application_ACLs", "containers_from_previous_attempts", "queue", "nm_tokens_from_previous_attempts", "scheduler_resource_types", "resource_types")
    MAXIMUMCAPABILITY_FIELD_NUMBER: _ClassVar[int]
    CLIENT_TO_AM_TOKEN_MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_ACLS_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FROM_PREVIOUS_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NM_TOKENS_FROM_PREVIOUS_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    maximumCapability: _yarn_pb2.ResourceProto
    client_to_am_token_master_key: bytes
    application_ACLs: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ApplicationACLMapProto]
    containers_from_previous_attempts: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerProto]
    queue: str
    nm_tokens_from_previous_attempts: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.NMTokenProto]
    scheduler_resource_types: _containers.RepeatedScalarFieldContainer[SchedulerResourceTypes]
    resource_types: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ResourceTypeInfoProto]
    def __init__(self, maximumCapability: _Optional[_Union[_yarn_pb2.ResourceProto, _Mapping]] = ..., client_to_am_token_master_key: _Optional[bytes] = ..., application_ACLs: _Optional[_Iterable[_Union[_yarn_pb2.ApplicationACLMapProto, _Mapping]]] = ..., containers_from_previous_attempts: _Optional[_Iterable[_Union[_yarn_pb2.ContainerProto, _Mapping]]] = ..., queue: _Optional[str] = ..., nm_tokens_from_previous_attempts: _Optional[_Iterable[_Union[_yarn_pb2.NMTokenProto, _Mapping]]] = ..., scheduler_resource_types: _Optional[_Iterable[_Union[SchedulerResourceTypes, str]]] = ..., resource_types: _Optional[_Iterable[_Union[_yarn_pb2.ResourceTypeInfoProto, _Mapping]]] = ...) -> None: ...

class AllocateRequestProto(_message.Message):
    __slots__ = ("ask", "release", "blacklist_request", "response_id", "progress", "update_requests", "scheduling_requests", "tracking_url")
    ASK_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    BLACKLIST_REQUEST_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TRACKING_URL_FIELD_NUMBER: _ClassVar[int]
    ask: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ResourceRequestProto]
    release: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerIdProto]
    blacklist_request: _yarn_pb2.ResourceBlacklistRequestProto
    response_id: int
    progress: float
    update_requests: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.UpdateContainerRequestProto]
    scheduling_requests: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.SchedulingRequestProto]
    tracking_url: str
    def __init__(self, ask: _Optional[_Iterable[_Union[_yarn_pb2.ResourceRequestProto, _Mapping]]] = ..., release: _Optional[_Iterable[_Union[_yarn_pb2.ContainerIdProto, _Mapping]]] = ..., blacklist_request: _Optional[_Union[_yarn_pb2.ResourceBlacklistRequestProto, _Mapping]] = ..., response_id: _Optional[int] = ..., progress: _Optional[float] = ..., update_requests: _Optional[_Iterable[_Union[_yarn_pb2.UpdateContainerRequestProto, _Mapping]]] = ..., scheduling_requests: _Optional[_Iterable[_Union[_yarn_pb2.SchedulingRequestProto, _Mapping]]] = ..., tracking_url: _Optional[str] = ...) -> None: ...

class AllocateResponseProto(_message.Message):
    __slots__ = ("a_m_command", "response_id", "allocated_containers", "completed_container_statuses", "limit", "updated_nodes", "num_cluster_nodes", "preempt", "nm_tokens", "am_rm_token", "application_priority", "update_errors", "updated_containers", "containers_from_previous_attempts", "rejected_scheduling_requests")
    A_M_COMMAND_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOCATED_CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_CONTAINER_STATUSES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_NODES_FIELD_NUMBER: _ClassVar[int]
    NUM_CLUSTER_NODES_FIELD_NUMBER: _ClassVar[int]
    PREEMPT_FIELD_NUMBER: _ClassVar[int]
    NM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    AM_RM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    UPDATE_ERRORS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FROM_PREVIOUS_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_SCHEDULING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    a_m_command: _yarn_pb2.AMCommandProto
    response_id: int
    allocated_containers: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerProto]
    completed_container_statuses: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerStatusProto]
    limit: _yarn_pb2.ResourceProto
    updated_nodes: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.NodeReportProto]
    num_cluster_nodes: int
    preempt: _yarn_pb2.PreemptionMessageProto
    nm_tokens: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.NMTokenProto]
    am_rm_token: _security_pb2.TokenProto
    application_priority: _yarn_pb2.PriorityProto
    update_errors: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.UpdateContainerErrorProto]
    updated_containers: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.UpdatedContainerProto]
    containers_from_previous_attempts: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerProto]
    rejected_scheduling_requests: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.RejectedSchedulingRequestProto]
    def __init__(self, a_m_command: _Optional[_Union[_yarn_pb2.AMCommandProto, str]] = ..., response_id: _Optional[int] = ..., allocated_containers: _Optional[_Iterable[_Union[_yarn_pb2.ContainerProto, _Mapping]]] = ..., completed_container_statuses: _Optional[_Iterable[_Union[_yarn_pb2.ContainerStatusProto, _Mapping]]] = ..., limit: _Optional[_Union[_yarn_pb2.ResourceProto, _Mapping]] = ..., updated_nodes: _Optional[_Iterable[_Union[_yarn_pb2.NodeReportProto, _Mapping]]] = ..., num_cluster_nodes: _Optional[int] = ..., preempt: _Optional[_Union[_yarn_pb2.PreemptionMessageProto, _Mapping]] = ..., nm_tokens: _Optional[_Iterable[_Union[_yarn_pb2.NMTokenProto, _Mapping]]] = ..., am_rm_token: _Optional[_Union[_security_pb2.TokenProto, _Mapping]] = ..., application_priority: _Optional[_Union[_yarn_pb2.PriorityProto, _Mapping]] = ..., update_errors: _Optional[_Iterable[_Union[_yarn_pb2.UpdateContainerErrorProto, _Mapping]]] = ..., updated_containers: _Optional[_Iterable[_Union[_yarn_pb2.UpdatedContainerProto, _Mapping]]] = ..., containers_from_previous_attempts: _Optional[_Iterable[_Union[_yarn_pb2.ContainerProto, _Mapping]]] = ..., rejected_scheduling_requests: _Optional[_Iterable[_Union[_yarn_pb2.RejectedSchedulingRequestProto, _Mapping]]] = ...) -> None: ...

class FinishApplicationMasterRequestProto(_message.Message):
    __slots__ = ("diagnostics", "tracking_url", "final_application_status")
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    TRACKING_URL_FIELD_NUMBER: _ClassVar[int]
    FINAL_APPLICATION_STATUS_FIELD_NUMBER: _ClassVar[int]
    diagnostics: str
    tracking_url: str
    final_application_status: _yarn_pb2.FinalApplicationStatusProto
    def __init__(self, diagnostics: _Optional[str] = ..., tracking_url: _Optional[str] = ..., final_application_status: _Optional[_Union[_yarn_pb2.FinalApplicationStatusProto, str]] = ...) -> None: ...

class FinishApplicationMasterResponseProto(_message.Message):
    __slots__ = ("isUnregistered",)
    ISUNREGISTERED_FIELD_NUMBER: _ClassVar[int]
    isUnregistered: bool
    def __init__(self, isUnregistered: bool = ...) -> None: ...

class StartContainerRequestProto(_message.Message):
    __slots__ = ("container_launch_context", "container_token")
    CONTAINER_LAUNCH_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    container_launch_context: _yarn_pb2.ContainerLaunchContextProto
    container_token: _security_pb2.TokenProto
    def __init__(self, container_launch_context: _Optional[_Union[_yarn_pb2.ContainerLaunchContextProto, _Mapping]] = ..., container_token: _Optional[_Union[_security_pb2.TokenProto, _Mapping]] = ...) -> None: ...

class StartContainersRequestProto(_message.Message):
    __slots__ = ("start_container_request",)
    START_CONTAINER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    start_container_request: _containers.RepeatedCompositeFieldContainer[StartContainerRequestProto]
    def __init__(self, start_container_request: _Optional[_Iterable[_Union[StartContainerRequestProto, _Mapping]]] = ...) -> None: ...

class ContainerExceptionMapProto(_message.Message):
    __slots__ = ("container_id", "exception")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    container_id: _yarn_pb2.ContainerIdProto
    exception: _yarn_pb2.SerializedExceptionProto
    def __init__(self, container_id: _Optional[_Union[_yarn_pb2.ContainerIdProto, _Mapping]] = ..., exception: _Optional[_Union[_yarn_pb2.SerializedExceptionProto, _Mapping]] = ...) -> None: ...

class StartContainersResponseProto(_message.Message):
    __slots__ = ("services_meta_data", "succeeded_requests", "failed_requests")
    SERVICES_META_DATA_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    services_meta_data: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.StringBytesMapProto]
    succeeded_requests: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerIdProto]
    failed_requests: _containers.RepeatedCompositeFieldContainer[ContainerExceptionMapProto]
    def __init__(self, services_meta_data: _Optional[_Iterable[_Union[_yarn_pb2.StringBytesMapProto, _Mapping]]] = ..., succeeded_requests: _Optional[_Iterable[_Union[_yarn_pb2.ContainerIdProto, _Mapping]]] = ..., failed_requests: _Optional[_Iterable[_Union[ContainerExceptionMapProto, _Mapping]]] = ...) -> None: ...

class StopContainersRequestProto(_message.Message):
    __slots__ = ("container_id",)
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    container_id: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerIdProto]
    def __init__(self, container_id: _Optional[_Iterable[_Union[_yarn_pb2.ContainerIdProto, _Mapping]]] = ...) -> None: ...

class StopContainersResponseProto(_message.Message):
    __slots__ = ("succeeded_requests", "failed_requests")
    SUCCEEDED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    succeeded_requests: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerIdProto]
    failed_requests: _containers.RepeatedCompositeFieldContainer[ContainerExceptionMapProto]
    def __init__(self, succeeded_requests: _Optional[_Iterable[_Union[_yarn_pb2.ContainerIdProto, _Mapping]]] = ..., failed_requests: _Optional[_Iterable[_Union[ContainerExceptionMapProto, _Mapping]]] = ...) -> None: ...

class GetContainerStatusesRequestProto(_message.Message):
    __slots__ = ("container_id",)
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    container_id: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerIdProto]
    def __init__(self, container_id: _Optional[_Iterable[_Union[_yarn_pb2.ContainerIdProto, _Mapping]]] = ...) -> None: ...

class GetContainerStatusesResponseProto(_message.Message):
    __slots__ = ("status", "failed_requests")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FAILED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    status: _containers.RepeatedCompositeFieldContainer[_yarn_pb2.ContainerStatusProto]
    failed_requests: _containers.RepeatedCompositeFieldContainer[ContainerExceptionMapProto]
    def __init__(self, status: _Optional[_Iterable[_Union[_yarn_pb2.ContainerStatusProto, _Mapping]]] = ..., failed_requests: _Optional[_Iterable[_Union[ContainerExceptionMapProto, _Mapping]]] = ...) -> None: ...
