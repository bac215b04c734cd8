from tony_provider.runtime.hadoop.proto import security_pb2 as _security_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResourceTypesProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COUNTABLE: _ClassVar[ResourceTypesProto]

class ExecutionTypeProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GUARANTEED: _ClassVar[ExecutionTypeProto]
    OPPORTUNISTIC: _ClassVar[ExecutionTypeProto]

class ContainerStateProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    C_NEW: _ClassVar[ContainerStateProto]
    C_RUNNING: _ClassVar[ContainerStateProto]
    C_COMPLETE: _ClassVar[ContainerStateProto]

class LocalResourceVisibilityProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUBLIC: _ClassVar[LocalResourceVisibilityProto]
    PRIVATE: _ClassVar[LocalResourceVisibilityProto]
    APPLICATION: _ClassVar[LocalResourceVisibilityProto]

class LocalResourceTypeProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ARCHIVE: _ClassVar[LocalResourceTypeProto]
    FILE: _ClassVar[LocalResourceTypeProto]
    PATTERN: _ClassVar[LocalResourceTypeProto]

class ApplicationAccessTypeProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPACCESS_VIEW_APP: _ClassVar[ApplicationAccessTypeProto]
    APPACCESS_MODIFY_APP: _ClassVar[ApplicationAccessTypeProto]

class NodeStateProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NS_NEW: _ClassVar[NodeStateProto]
    NS_RUNNING: _ClassVar[NodeStateProto]
    NS_UNHEALTHY: _ClassVar[NodeStateProto]
    NS_DECOMMISSIONED: _ClassVar[NodeStateProto]
    NS_LOST: _ClassVar[NodeStateProto]
    NS_REBOOTED: _ClassVar[NodeStateProto]
    NS_DECOMMISSIONING: _ClassVar[NodeStateProto]
    NS_SHUTDOWN: _ClassVar[NodeStateProto]

class NodeAttributeOpCodeProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NO_OP: _ClassVar[NodeAttributeOpCodeProto]
    EQ: _ClassVar[NodeAttributeOpCodeProto]
    NE: _ClassVar[NodeAttributeOpCodeProto]

class RejectionReasonProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RRP_COULD_NOT_PLACE_ON_NODE: _ClassVar[RejectionReasonProto]
    RRP_COULD_NOT_SCHEDULE_ON_NODE: _ClassVar[RejectionReasonProto]

class AMCommandProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AM_RESYNC: _ClassVar[AMCommandProto]
    AM_SHUTDOWN: _ClassVar[AMCommandProto]

class FinalApplicationStatusProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APP_UNDEFINED: _ClassVar[FinalApplicationStatusProto]
    APP_SUCCEEDED: _ClassVar[FinalApplicationStatusProto]
    APP_FAILED: _ClassVar[FinalApplicationStatusProto]
    APP_KILLED: _ClassVar[FinalApplicationStatusProto]
    APP_ENDED: _ClassVar[FinalApplicationStatusProto]

class ContainerUpdateTypeProto(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INCREASE_RESOURCE: _ClassVar[ContainerUpdateTypeProto]
    DECREASE_RESOURCE: _ClassVar[ContainerUpdateTypeProto]
    PROMOTE_EXECUTION_TYPE: _ClassVar[ContainerUpdateTypeProto]
    DEMOTE_EXECUTION_TYPE: _ClassVar[ContainerUpdateTypeProto]
COUNTABLE: ResourceTypesProto
GUARANTEED: ExecutionTypeProto
OPPORTUNISTIC: ExecutionTypeProto
C_NEW: ContainerStateProto
C_RUNNING: ContainerStateProto
C_COMPLETE: ContainerStateProto
PUBLIC: LocalResourceVisibilityProto
PRIVATE: LocalResourceVisibilityProto
APPLICATION: LocalResourceVisibilityProto
ARCHIVE: LocalResourceTypeProto
FILE: LocalResourceTypeProto
PATTERN: LocalResourceTypeProto
APPACCESS_VIEW_APP: ApplicationAccessTypeProto
APPACCESS_MODIFY_APP: ApplicationAccessTypeProto
NS_NEW: NodeStateProto
NS_RUNNING: NodeStateProto
NS_UNHEALTHY: NodeStateProto
NS_DECOMMISSIONED: NodeStateProto
NS_LOST: NodeStateProto
NS_REBOOTED: NodeStateProto
NS_DECOMMISSIONING: NodeStateProto
NS_SHUTDOWN: NodeStateProto
NO_OP: NodeAttributeOpCodeProto
EQ: NodeAttributeOpCodeProto
NE: NodeAttributeOpCodeProto
RRP_COULD_NOT_PLACE_ON_NODE: RejectionReasonProto
RRP_COULD_NOT_SCHEDULE_ON_NODE: RejectionReasonProto
AM_RESYNC: AMCommandProto
AM_SHUTDOWN: AMCommandProto
APP_UNDEFINED: FinalApplicationStatusProto
APP_SUCCEEDED: FinalApplicationStatusProto
APP_FAILED: FinalApplicationStatusProto
APP_KILLED: FinalApplicationStatusProto
APP_ENDED: FinalApplicationStatusProto
INCREASE_RESOURCE: ContainerUpdateTypeProto
DECREASE_RESOURCE: ContainerUpdateTypeProto
PROMOTE_EXECUTION_TYPE: ContainerUpdateTypeProto
DEMOTE_EXECUTION_TYPE: ContainerUpdateTypeProto

class ApplicationIdProto(_message.Message):
    __slots__ = ("id", "cluster_timestamp")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    id: int
    cluster_timestamp: int
    def __init__(self, id: _Optional[int] = ..., cluster_timestamp: _Optional[int] = ...) -> None: ...

class ApplicationAttemptIdProto(_message.Message):
    __slots__ = ("application_id", "attemptId")
    APPLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTID_FIELD_NUMBER: _ClassVar[int]
    application_id: ApplicationIdProto
    attemptId: int
    def __init__(self, application_id: _Optional[_Union[ApplicationIdProto, _Mapping]] = ..., attemptId: _Optional[int] = ...) -> None: ...

class ContainerIdProto(_message.Message):
    __slots__ = ("app_id", "app_attempt_id", "id")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    APP_ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    app_id: ApplicationIdProto
    app_attempt_id: ApplicationAttemptIdProto
    id: int
    def __init__(self, app_id: _Optional[_Union[ApplicationIdProto, _Mapping]] = ..., app_attempt_id: _Optional[_Union[ApplicationAttemptIdProto, _Mapping]] = ..., id: _Optional[int] = ...) -> None: ...

class NodeIdProto(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ResourceInformationProto(_message.Message):
    __slots__ = ("key", "value", "units", "type")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: int
    units: str
    type: ResourceTypesProto
    def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ..., units: _Optional[str] = ..., type: _Optional[_Union[ResourceTypesProto, str]] = ...) -> None: ...

class ResourceTypeInfoProto(_message.Message):
    __slots__ = ("name", "units", "type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    units: str
    type: ResourceTypesProto
    def __init__(self, name: _Optional[str] = ..., units: _Optional[str] = ..., type: _Optional[_Union[ResourceTypesProto, str]] = ...) -> None: ...

class ResourceProto(_message.Message):
    __slots__ = ("memory", "virtual_cores", "resource_value_map")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_CORES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VALUE_MAP_FIELD_NUMBER: _ClassVar[int]
    memory: int
    virtual_cores: int
    resource_value_map: _containers.RepeatedCompositeFieldContainer[ResourceInformationProto]
    def __init__(self, memory: _Optional[int] = ..., virtual_cores: _Optional[int] = ..., resource_value_map: _Optional[_Iterable[_Union[ResourceInformationProto, _Mapping]]] = ...) -> None: ...

class PriorityProto(_message.Message):
    __slots__ = ("priority",)
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    priority: int
    def __init__(self, priority: _Optional[int] = ...) -> None: ...

class ResourceUtilizationProto(_message.Message):
    __slots__ = ("pmem", "vmem", "cpu")
    PMEM_FIELD_NUMBER: _ClassVar[int]
    VMEM_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    pmem: int
    vmem: int
    cpu: float
    def __init__(self, pmem: _Optional[int] = ..., vmem: _Optional[int] = ..., cpu: _Optional[float] = ...) -> None: ...

class ContainerProto(_message.Message):
    __slots__ = ("id", "nodeId", "node_http_address", "resource", "priority", "container_token", "execution_type", "allocation_request_id", "version", "allocation_tags")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODEID_FIELD_NUMBER: _ClassVar[int]
    NODE_HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_TAGS_FIELD_NUMBER: _ClassVar[int]
    id: ContainerIdProto
    nodeId: NodeIdProto
    node_http_address: str
    resource: ResourceProto
    priority: PriorityProto
    container_token: _security_pb2.TokenProto
    execution_type: ExecutionTypeProto
    allocation_request_id: int
    version: int
    allocation_tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[_Union[ContainerIdProto, _Mapping]] = ..., nodeId: _Optional[_Union[NodeIdProto, _Mapping]] = ..., node_http_address: _Optional[str] = ..., resource: _Optional[_Union[ResourceProto, _Mapping]] = ..., priority: _Optional[_Union[PriorityProto, _Mapping]] = ..., container_token: _Optional[_Union[_security_pb2.TokenProto, _Mapping]] = ..., execution_type: _Optional[_Union[ExecutionTypeProto, str]] = ..., allocation_request_id: _Optional[int] = ..., version: _Optional[int] = ..., allocation_tags: _Optional[_Iterable[str]] = ...) -> None: ...

class ContainerStatusProto(_message.Message):
    __slots__ = ("container_id", "state", "diagnostics", "exit_status", "capability", "executionType")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONTYPE_FIELD_NUMBER: _ClassVar[int]
    container_id: ContainerIdProto
    state: ContainerStateProto
    diagnostics: str
    exit_status: int
    capability: ResourceProto
    executionType: ExecutionTypeProto
    def __init__(self, container_id: _Optional[_Union[ContainerIdProto, _Mapping]] = ..., state: _Optional[_Union[ContainerStateProto, str]] = ..., diagnostics: _Optional[str] = ..., exit_status: _Optional[int] = ..., capability: _Optional[_Union[ResourceProto, _Mapping]] = ..., executionType: _Optional[_Union[ExecutionTypeProto, str]] = ...) -> None: ...

class URLProto(_message.Message):
    __slots__ = ("scheme", "host", "port", "file", "userInfo")
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    USERINFO_FIELD_NUMBER: _ClassVar[int]
    scheme: str
    host: str
    port: int
    file: str
    userInfo: str
    def __init__(self, scheme: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., file: _Optional[str] = ..., userInfo: _Optional[str] = ...) -> None: ...

class LocalResourceProto(_message.Message):
    __slots__ = ("resource", "size", "timestamp", "type", "visibility", "pattern")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    resource: URLProto
    size: int
    timestamp: int
    type: LocalResourceTypeProto
    visibility: LocalResourceVisibilityProto
    pattern: str
    def __init__(self, resource: _Optional[_Union[URLProto, _Mapping]] = ..., size: _Optional[int] = ..., timestamp: _Optional[int] = ..., type: _Optional[_Union[LocalResourceTypeProto, str]] = ..., visibility: _Optional[_Union[LocalResourceVisibilityProto, str]] = ..., pattern: _Optional[str] = ...) -> None: ...

class StringLocalResourceMapProto(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: LocalResourceProto
    def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[LocalResourceProto, _Mapping]] = ...) -> None: ...

class StringStringMapProto(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class StringBytesMapProto(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class ApplicationACLMapProto(_message.Message):
    __slots__ = ("accessType", "acl")
    ACCESSTYPE_FIELD_NUMBER: _ClassVar[int]
    ACL_FIELD_NUMBER: _ClassVar[int]
    accessType: ApplicationAccessTypeProto
    acl: str
    def __init__(self, accessType: _Optional[_Union[ApplicationAccessTypeProto, str]] = ..., acl: _Optional[str] = ...) -> None: ...

class ContainerLaunchContextProto(_message.Message):
    __slots__ = ("localResources", "tokens", "service_data", "environment", "command", "application_ACLs")
    LOCALRESOURCES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_DATA_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_ACLS_FIELD_NUMBER: _ClassVar[int]
    localResources: _containers.RepeatedCompositeFieldContainer[StringLocalResourceMapProto]
    tokens: bytes
    service_data: _containers.RepeatedCompositeFieldContainer[StringBytesMapProto]
    environment: _containers.RepeatedCompositeFieldContainer[StringStringMapProto]
    command: _containers.RepeatedScalarFieldContainer[str]
    application_ACLs: _containers.RepeatedCompositeFieldContainer[ApplicationACLMapProto]
    def __init__(self, localResources: _Optional[_Iterable[_Union[StringLocalResourceMapProto, _Mapping]]] = ..., tokens: _Optional[bytes] = ..., service_data: _Optional[_Iterable[_Union[StringBytesMapProto, _Mapping]]] = ..., environment: _Optional[_Iterable[_Union[StringStringMapProto, _Mapping]]] = ..., command: _Optional[_Iterable[str]] = ..., application_ACLs: _Optional[_Iterable[_Union[ApplicationACLMapProto, _Mapping]]] = ...) -> None: ...

class SerializedExceptionProto(_message.Message):
    __slots__ = ("message", "trace", "class_name", "cause")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    message: str
    trace: str
    class_name: str
    cause: SerializedExceptionProto
    def __init__(self, message: _Optional[str] = ..., trace: _Optional[str] = ..., class_name: _Optional[str] = ..., cause: _Optional[_Union[SerializedExceptionProto, _Mapping]] = ...) -> None: ...

class NodeReportProto(_message.Message):
    __slots__ = ("nodeId", "httpAddress", "rackName", "used", "capability", "numContainers", "node_state", "health_report", "last_health_report_time", "node_labels", "containers_utilization", "node_utilization", "decommissioning_timeout")
    NODEID_FIELD_NUMBER: _ClassVar[int]
    HTTPADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACKNAME_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    NUMCONTAINERS_FIELD_NUMBER: _ClassVar[int]
    NODE_STATE_FIELD_NUMBER: _ClassVar[int]
    HEALTH_REPORT_FIELD_NUMBER: _ClassVar[int]
    LAST_HEALTH_REPORT_TIME_FIELD_NUMBER: _ClassVar[int]
    NODE_LABELS_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    NODE_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    DECOMMISSIONING_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    nodeId: NodeIdProto
    httpAddress: str
    rackName: str
    used: ResourceProto
    capability: ResourceProto
    numContainers: int
    node_state: NodeStateProto
    health_report: str
    last_health_report_time: int
    node_labels: _containers.RepeatedScalarFieldContainer[str]
    containers_utilization: ResourceUtilizationProto
    node_utilization: ResourceUtilizationProto
    decommissioning_timeout: int
    def __init__(self, nodeId: _Optional[_Union[NodeIdProto, _Mapping]] = ..., httpAddress: _Optional[str] = ..., rackName: _Optional[str] = ..., used: _Optional[_Union[ResourceProto, _Mapping]] = ..., capability: _Optional[_Union[ResourceProto, _Mapping]] = ..., numContainers: _Optional[int] = ..., node_state: _Optional[_Union[NodeStateProto, str]] = ..., health_report: _Optional[str] = ..., last_health_report_time: _Optional[int] = ..., node_labels: _Optional[_Iterable[str]] = ..., containers_utilization: _Optional[_Union[ResourceUtilizationProto, _Mapping]] = ..., node_utilization: _Optional[_Union[ResourceUtilizationProto, _Mapping]] = ..., decommissioning_timeout: _Optional[int] = ...) -> None: ...

class ExecutionTypeRequestProto(_message.Message):
    __slots__ = ("execution_type", "enforce_execution_type")
    EXECUTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENFORCE_EXECUTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    execution_type: ExecutionTypeProto
    enforce_execution_type: bool
    def __init__(self, execution_type: _Optional[_Union[ExecutionTypeProto, str]] = ..., enforce_execution_type: bool = ...) -> None: ...

class ResourceRequestProto(_message.Message):
    __slots__ = ("priority", "resource_name", "capability", "num_containers", "relax_locality", "node_label_expression", "execution_type_request", "allocation_request_id")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    NUM_CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    RELAX_LOCALITY_FIELD_NUMBER: _ClassVar[int]
    NODE_LABEL_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TYPE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    priority: PriorityProto
    resource_name: str
    capability: ResourceProto
    num_containers: int
    relax_locality: bool
    node_label_expression: str
    execution_type_request: ExecutionTypeRequestProto
    allocation_request_id: int
    def __init__(self, priority: _Optional[_Union[PriorityProto, _Mapping]] = ..., resource_name: _Optional[str] = ..., capability: _Optional[_Union[ResourceProto, _Mapping]] = ..., num_containers: _Optional[int] = ..., relax_locality: bool = ..., node_label_expression: _Optional[str] = ..., execution_type_request: _Optional[_Union[ExecutionTypeRequestProto, _Mapping]] = ..., allocation_request_id: _Optional[int] = ...) -> None: ...

class ResourceBlacklistRequestProto(_message.Message):
    __slots__ = ("blacklist_additions", "blacklist_removals")
    BLACKLIST_ADDITIONS_FIELD_NUMBER: _ClassVar[int]
    BLACKLIST_REMOVALS_FIELD_NUMBER: _ClassVar[int]
    blacklist_additions: _containers.RepeatedScalarFieldContainer[str]
    blacklist_removals: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, blacklist_additions: _Optional[_Iterable[str]] = ..., blacklist_removals: _Optional[_Iterable[str]] = ...) -> None: ...

class PlacementConstraintTargetProto(_message.Message):
    __slots__ = ("targetType", "targetKey", "targetValues")
    class TargetType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NODE_ATTRIBUTE: _ClassVar[PlacementConstraintTargetProto.TargetType]
        ALLOCATION_TAG: _ClassVar[PlacementConstraintTargetProto.TargetType]
        SELF: _ClassVar[PlacementConstraintTargetProto.TargetType]
    NODE_ATTRIBUTE: PlacementConstraintTargetProto.TargetType
    ALLOCATION_TAG: PlacementConstraintTargetProto.TargetType
    SELF: PlacementConstraintTargetProto.TargetType
    TARGETTYPE_FIELD_NUMBER: _ClassVar[int]
    TARGETKEY_FIELD_NUMBER: _ClassVar[int]
    TARGETVALUES_FIELD_NUMBER: _ClassVar[int]
    targetType: PlacementConstraintTargetProto.TargetType
    targetKey: str
    targetValues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, targetType: _Optional[_Union[PlacementConstraintTargetProto.TargetType, str]] = ..., targetKey: _Optional[str] = ..., targetValues: _Optional[_Iterable[str]] = ...) -> None: ...

class SimplePlacementConstraintProto(_message.Message):
    __slots__ = ("scope", "targetExpressions", "minCardinality", "maxCardinality", "attributeOpCode")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    TARGETEXPRESSIONS_FIELD_NUMBER: _ClassVar[int]
    MINCARDINALITY_FIELD_NUMBER: _ClassVar[int]
    MAXCARDINALITY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTEOPCODE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    targetExpressions: _containers.RepeatedCompositeFieldContainer[PlacementConstraintTargetProto]
    minCardinality: int
    maxCardinality: int
    attributeOpCode: NodeAttributeOpCodeProto
    def __init__(self, scope: _Optional[str] = ..., targetExpressions: _Optional[_Iterable[_Union[PlacementConstraintTargetProto, _Mapping]]] = ..., minCardinality: _Optional[int] = ..., maxCardinality: _Optional[int] = ..., attributeOpCode: _Optional[_Union[NodeAttributeOpCodeProto, str]] = ...) -> None: ...

class CompositePlacementConstraintProto(_message.Message):
    __slots__ = ("compositeType", "childConstraints")
    class CompositeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AND: _ClassVar[CompositePlacementConstraintProto.CompositeType]
        OR: _ClassVar[CompositePlacementConstraintProto.CompositeType]
        DELAYED_OR: _ClassVar[CompositePlacementConstraintProto.CompositeType]
    AND: CompositePlacementConstraintProto.CompositeType
    OR: CompositePlacementConstraintProto.CompositeType
    DELAYED_OR: CompositePlacementConstraintProto.CompositeType
    COMPOSITETYPE_FIELD_NUMBER: _ClassVar[int]
    CHILDCONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    compositeType: CompositePlacementConstraintProto.CompositeType
    childConstraints: _containers.RepeatedCompositeFieldContainer[PlacementConstraintProto]
    def __init__(self, compositeType: _Optional[_Union[CompositePlacementConstraintProto.CompositeType, str]] = ..., childConstraints: _Optional[_Iterable[_Union[PlacementConstraintProto, _Mapping]]] = ...) -> None: ...

class PlacementConstraintProto(_message.Message):
    __slots__ = ("simpleConstraint", "compositeConstraint")
    SIMPLECONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    COMPOSITECONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    simpleConstraint: SimplePlacementConstraintProto
    compositeConstraint: CompositePlacementConstraintProto
    def __init__(self, simpleConstraint: _Optional[_Union[SimplePlacementConstraintProto, _Mapping]] = ..., compositeConstraint: _Optional[_Union[CompositePlacementConstraintProto, _Mapping]] = ...) -> None: ...

class ResourceSizingProto(_message.Message):
    __slots__ = ("numAllocations", "resources")
    NUMALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    numAllocations: int
    resources: ResourceProto
    def __init__(self, numAllocations: _Optional[int] = ..., resources: _Optional[_Union[ResourceProto, _Mapping]] = ...) -> None: ...

class SchedulingRequestProto(_message.Message):
    __slots__ = ("allocationRequestId", "priority", "executionType", "allocationTags", "resourceSizing", "placementConstraint")
    ALLOCATIONREQUESTID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONTYPE_FIELD_NUMBER: _ClassVar[int]
    ALLOCATIONTAGS_FIELD_NUMBER: _ClassVar[int]
    RESOURCESIZING_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTCONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    allocationRequestId: int
    priority: PriorityProto
    executionType: ExecutionTypeRequestProto
    allocationTags: _containers.RepeatedScalarFieldContainer[str]
    resourceSizing: ResourceSizingProto
    placementConstraint: PlacementConstraintProto
    def __init__(self, allocationRequestId: _Optional[int] = ..., priority: _Optional[_Union[PriorityProto, _Mapping]] = ..., executionType: _Optional[_Union[ExecutionTypeRequestProto, _Mapping]] = ..., allocationTags: _Optional[_Iterable[str]] = ..., resourceSizing: _Optional[_Union[ResourceSizingProto, _Mapping]] = ..., placementConstraint: _Optional[_Union[PlacementConstraintProto, _Mapping]] = ...) -> None: ...

class RejectedSchedulingRequestProto(_message.Message):
    __slots__ = ("reason", "request")
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    reason: RejectionReasonProto
    request: SchedulingRequestProto
    def __init__(self, reason: _Optional[_Union[RejectionReasonProto, str]] = ..., request: _Optional[_Union[SchedulingRequestProto, _Mapping]] = ...) -> None: ...

class PreemptionContainerProto(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: ContainerIdProto
    def __init__(self, id: _Optional[_Union[ContainerIdProto, _Mapping]] = ...) -> None: ...

class PreemptionResourceRequestProto(_message.Message):
    __slots__ = ("resource",)
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    resource: ResourceRequestProto
    def __init__(self, resource: _Optional[_Union[ResourceRequestProto, _Mapping]] = ...) -> None: ...

class StrictPreemptionContractProto(_message.Message):
    __slots__ = ("container",)
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    container: _containers.RepeatedCompositeFieldContainer[PreemptionContainerProto]
    def __init__(self, container: _Optional[_Iterable[_Union[PreemptionContainerProto, _Mapping]]] = ...) -> None: ...

class PreemptionContractProto(_message.Message):
    __slots__ = ("resource", "container")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    resource: _containers.RepeatedCompositeFieldContainer[PreemptionResourceRequestProto]
    container: _containers.RepeatedCompositeFieldContainer[PreemptionContainerProto]
    def __init__(self, resource: _Optional[_Iterable[_Union[PreemptionResourceRequestProto, _Mapping]]] = ..., container: _Optional[_Iterable[_Union[PreemptionContainerProto, _Mapping]]] = ...) -> None: ...

class PreemptionMessageProto(_message.Message):
    __slots__ = ("strictContract", "contract")
    STRICTCONTRACT_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    strictContract: StrictPreemptionContractProto
    contract: PreemptionContractProto
    def __init__(self, strictContract: _Optional[_Union[StrictPreemptionContractProto, _Mapping]] = ..., contract: _Optional[_Union[PreemptionContractProto, _Mapping]] = ...) -> None: ...

class NMTokenProto(_message.Message):
    __slots__ = ("nodeId", "token")
    NODEID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    nodeId: NodeIdProto
    token: _security_pb2.TokenProto
    def __init__(self, nodeId: _Optional[_Union[NodeIdProto, _Mapping]] = ..., token: _Optional[_Union[_security_pb2.TokenProto, _Mapping]] = ...) -> None: ...

class UpdateContainerRequestProto(_message.Message):
    __slots__ = ("container_version", "container_id", "update_type", "capability", "execution_type")
    CONTAINER_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TYPE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    container_version: int
    container_id: ContainerIdProto
    update_type: ContainerUpdateTypeProto
    capability: ResourceProto
    execution_type: ExecutionTypeProto
    def __init__(self, container_version: _Optional[int] = ..., container_id: _Optional[_Union[ContainerIdProto, _Mapping]] = ..., update_type: _Optional[_Union[ContainerUpdateTypeProto, str]] = ..., capability: _Optional[_Union[ResourceProto, _Mapping]] = ..., execution_type: _Optional[_Union[ExecutionTypeProto, str]] = ...) -> None: ...

class UpdateContainerErrorProto(_message.Message):
    __slots__ = ("reason", "update_request", "current_container_version")
    REASON_FIELD_NUMBER: _ClassVar[int]
    UPDATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CURRENT_CONTAINER_VERSION_FIELD_NUMBER: _ClassVar[int]
    reason: str
    update_request: UpdateContainerRequestProto
    current_container_version: int
    def __init__(self, reason: _Optional[str] = ..., update_request: _Optional[_Union[UpdateContainerRequestProto, _Mapping]] = ..., current_container_version: _Optional[int] = ...) -> None: ...

class UpdatedContainerProto(_message.Message):
    __slots__ = ("update_type", "container")
    UPDATE_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    update_type: ContainerUpdateTypeProto
    container: ContainerProto
    def __init__(self, update_type: _Optional[_Union[ContainerUpdateTypeProto, str]] = ..., container: _Optional[_Union[ContainerProto, _Mapping]] = ...) -> None: ...
