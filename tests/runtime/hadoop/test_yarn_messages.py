"""YARN's messages from plain values."""

from __future__ import annotations

import pytest

from tony_provider.runtime.hadoop import yarn_records
from tony_provider.runtime.hadoop.errors import (
    InvalidResourceRequest,
    RemoteError,
    remote_error,
    serialized_error,
)
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.tokens import Credentials


@pytest.mark.parametrize(
    ("uri", "host", "port", "path"),
    [
        ("hdfs://127.0.0.1:8020/user/alice/an%20input", "127.0.0.1", 8020, "/user/alice/an input"),
        ("hdfs://MyNameservice/a", "MyNameservice", -1, "/a"),
        ("hdfs://[::1]:8020/a", "[::1]", 8020, "/a"),
        ("file:///opt/a%23b", "", -1, "/opt/a#b"),
    ],
)
def test_local_resources(uri: str, host: str, port: int, path: str) -> None:
    url = yarn_records.local_resource(uri, size=1, modified_ms=2).resource
    assert (url.host, url.port, url.file) == (host, port, path)


@pytest.mark.parametrize("uri", ["/a/path", "hdfs:relative", "", "hdfs://host:port/a"])
def test_what_nodes_cannot_resolve_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"full URI|[Pp]ort"):
        yarn_records.local_resource(uri, size=1, modified_ms=2)


def test_other_resources_leave_out_what_has_its_own_field() -> None:
    proto = yarn_records.resource(64, 1, {"yarn.io/gpu": 2})
    proto.resource_value_map.add(key="memory-mb", value=64, units="Mi")  # as Hadoop 3 answers
    assert yarn_records.other_resources(proto) == {"yarn.io/gpu": 2}


def test_units_are_left_out_where_they_are_the_clusters_own() -> None:
    """YARN takes an empty one for units of one, and rounds what it counts in larger ones down to nothing."""
    proto = yarn_records.resource(64, 1, {"yarn.io/gpu": 2, "rate": 10}, {"rate": "Gi"})
    gpus, rate = proto.resource_value_map
    assert not gpus.HasField("units")
    assert rate.units == "Gi"
    proto.resource_value_map.add(key="memory-mb", value=64, units="Mi")
    assert yarn_records.resource_units(proto) == {"rate": "Gi"}


def test_a_request_always_says_its_allocation_request_id() -> None:
    request = yarn_records.resource_request(yarn_records.resource(64, 1), 2, priority=3, allocation_request_id=0)
    assert request.HasField("allocation_request_id")
    assert (request.resource_name, request.num_containers, request.priority.priority) == ("*", 2, 3)
    assert not request.HasField("node_label_expression")


def test_a_launch_context_carries_a_token_file() -> None:
    credentials = Credentials({}, {"key": b"value"})
    context = yarn_records.launch_context(
        commands=["exec", "true"], environment={"A": "b"}, local_resources={}, credentials=credentials
    )
    assert Credentials.from_bytes(context.tokens) == credentials
    assert list(context.command) == ["exec", "true"]


@pytest.mark.parametrize(
    ("java_class", "text", "error", "said"),
    [
        ("org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException", "why", InvalidResourceRequest, "why"),
        ("org.apache.hadoop.security.AccessControlException", "", RemoteError, "AccessControlException"),
        ("a.B", "a.B: why\n\tat c.D.e(D.java:1)", RemoteError, "B: why"),
        ("", "", RemoteError, ""),
    ],
)
def test_java_exceptions_by_type(java_class: str, text: str, error: type[RemoteError], said: str) -> None:
    made = remote_error(java_class, text)
    assert type(made) is error
    assert said in str(made)


def test_an_exception_inside_an_answer() -> None:
    made = serialized_error(yarn.SerializedExceptionProto(class_name="a.B", message="why", trace="a.B: why\n\tat c"))
    assert (str(made), made.trace) == ("B: why", "a.B: why\n\tat c")


def test_access_lists_by_what_they_allow() -> None:
    acls = [
        yarn.ApplicationACLMapProto(accessType=yarn.APPACCESS_VIEW_APP, acl="bob operators"),
        yarn.ApplicationACLMapProto(accessType=yarn.APPACCESS_MODIFY_APP),
    ]
    assert yarn_records.access_lists(acls) == {"VIEW_APP": "bob operators", "MODIFY_APP": " "}
