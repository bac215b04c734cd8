"""This project's .proto files against the generated classes inside the real Hadoop jars, for each version served."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from tests.hadoop.resolve import resolve
from tony_provider.runtime.hadoop.proto import rpc_pb2, security_pb2, yarn_pb2, yarn_service_pb2

DUMP = Path(__file__).with_name("DumpDescriptors.java")
RPC = "org.apache.hadoop.ipc.protobuf."
YARN = "org.apache.hadoop.yarn.proto."
CLASSES = [
    RPC + "RpcHeaderProtos",
    RPC + "IpcConnectionContextProtos",
    "org.apache.hadoop.security.proto.SecurityProtos",
    YARN + "YarnProtos",
    YARN + "YarnServiceProtos",
]
# The engine's header moved with the shading of protobuf, in Hadoop 3.3.
UNSHADED = ("2.", "3.1.", "3.2.")

# What came with Hadoop 3. Nothing may depend on 2.10 having it; an unknown field or message is passed over.
SINCE_3 = {
    "CredentialsKVProto",
    "CredentialsProto",
    "AllocateResponseProto.containers_from_previous_attempts",
    # Placement, from 3.1 on.
    "AllocateRequestProto.scheduling_requests",
    "AllocateResponseProto.rejected_scheduling_requests",
    "CompositePlacementConstraintProto",
    "ContainerProto.allocation_tags",
    "PlacementConstraintProto",
    "PlacementConstraintTargetProto",
    "RejectedSchedulingRequestProto",
    "ResourceSizingProto",
    "SchedulingRequestProto",
    "SimplePlacementConstraintProto",
}
ENUMERATIONS_SINCE_3 = {
    "CompositePlacementConstraintProto.CompositeType",
    "NodeAttributeOpCodeProto",
    "PlacementConstraintTargetProto.TargetType",
    "RejectionReasonProto",
}
# Node attributes. A job that names one is refused where no node has it, so this is never sent to 3.1.
SINCE_3_2 = {"SimplePlacementConstraintProto.attributeOpCode"}
ENUMERATIONS_SINCE_3_2 = {"NodeAttributeOpCodeProto"}
# Declared without a default, since the versions differ (0 in 2.10, -1 in 3).
OTHER_DEFAULT = {"ResourceRequestProto.allocation_request_id"}

Messages = dict[str, DescriptorProto]
Enums = dict[str, EnumDescriptorProto]


def flatten(files: list[FileDescriptorProto]) -> tuple[Messages, Enums]:
    """Every message and enumeration by its name without the package."""
    messages: Messages = {}
    enums: Enums = {}

    def add(message: DescriptorProto, outer: str) -> None:
        name = outer + message.name
        messages[name] = message
        enums.update({f"{name}.{enum.name}": enum for enum in message.enum_type})
        for nested in message.nested_type:
            add(nested, f"{name}.")

    for file in files:
        enums.update({enum.name: enum for enum in file.enum_type})
        for message in file.message_type:
            add(message, "")
    return messages, enums


def our_file(descriptor: FileDescriptor) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    descriptor.CopyToProto(proto)
    return proto


OUR_MESSAGES, OUR_ENUMS = flatten(
    [our_file(module.DESCRIPTOR) for module in (rpc_pb2, security_pb2, yarn_pb2, yarn_service_pb2)]
)


_MORE = [pytest.param(version, marks=pytest.mark.long) for version in ("3.1.4", "3.2.4", "3.5.0")]


@pytest.fixture(scope="module", params=["2.10.2", "3.3.6", "3.4.2", *_MORE])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def theirs(version: str) -> tuple[Messages, Enums]:
    engine = "ProtobufRpcEngineProtos" if version.startswith(UNSHADED) else "ProtobufRpcEngine2Protos"
    classes = [*CLASSES, RPC + engine]
    class_path = str(resolve(version) / "jars" / "*")
    done = subprocess.run(
        ["java", "-cp", class_path, str(DUMP), *classes], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return flatten(list(FileDescriptorSet.FromString(done.stdout).file))


def lacking(version: str, since_3: set[str], since_3_2: set[str]) -> set[str]:
    return since_3 if version.startswith("2.") else since_3_2 if version.startswith("3.1.") else set()


def shape(field: FieldDescriptorProto, name: str) -> tuple[object, ...]:
    """All of a field that the two must share; types by name without the package."""
    default = None if name in OTHER_DEFAULT else field.default_value
    type_name = field.type_name.split(".hadoop.")[-1].removeprefix("common.").removeprefix("yarn.")
    return field.name, field.number, field.type, field.label, type_name, default


def test_every_field_is_as_in_the_jars(version: str, theirs: tuple[Messages, Enums]) -> None:
    absent: set[str] = set()
    for name, message in OUR_MESSAGES.items():
        if name not in theirs[0]:
            absent.add(name)
            continue
        real = {field.number: field for field in theirs[0][name].field}
        for field in message.field:
            full_name = f"{name}.{field.name}"
            if field.number not in real:
                absent.add(full_name)
            else:
                assert shape(field, full_name) == shape(real[field.number], full_name)
    assert absent == lacking(version, SINCE_3, SINCE_3_2)


def test_every_enumeration_is_as_in_the_jars(version: str, theirs: tuple[Messages, Enums]) -> None:
    absent = {name for name in OUR_ENUMS if name not in theirs[1]}
    assert absent == lacking(version, ENUMERATIONS_SINCE_3, ENUMERATIONS_SINCE_3_2)
    for name, enum in OUR_ENUMS.items():
        if name in absent:
            continue
        ours = {value.name: value.number for value in enum.value}
        real = {value.name: value.number for value in theirs[1][name].value}
        # The versions differ in what more they know; what is declared here, all must have.
        assert ours.items() <= real.items(), name
