"""Nonsense from servers: always a StorageError, and in time."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.storage.servers import Reply, Request, saying, scripted
from tony_provider.runtime.storage import StorageError, StorageInvalidPath, WebHdfsConfig, WebHdfsStorage
from tony_provider.runtime.storage.errors import StorageAuthError, StorageNoSpace, StorageNotFound, StorageOtherMount
from tony_provider.runtime.storage.webhdfs.transport import (
    NoDataNode,
    NotNow,
    WebHdfsAnswer,
    check_answer,
    request_target,
)

URI = "hdfs:///a"
OPERATIONS: list[Callable[[WebHdfsStorage], object]] = [
    lambda storage: storage.status(URI),
    lambda storage: storage.list(URI),
    lambda storage: storage.open_read(URI),
    lambda storage: storage.write(URI, b"x"),
    lambda storage: storage.make_directories(URI),
    lambda storage: storage.remove(URI),
    lambda storage: storage.rename(URI, "hdfs:///b"),
    lambda storage: storage.get_delegation_token("yarn"),
    lambda storage: storage.checksum(URI),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["FileStatus", "FileStatuses", "pathSuffix", "length", "boolean", "long", "Token", "urlString", "type"]
            )
            | st.sampled_from(["RemoteException", "exception", "javaClassName", "message"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
FEW_EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def impatient(address: str) -> WebHdfsStorage:
    return WebHdfsStorage(
        WebHdfsConfig(
            [address],
            connect_timeout=0.2,
            response_timeout=0.2,
            stream_timeout=0.2,
            silence_timeout=0.2,
            timeout=0.02,
        )
    )


def ends_well(operation: Callable[[WebHdfsStorage], object], storage: WebHdfsStorage) -> None:
    """It succeeds (nonsense may be sense by chance) or raises what it may."""
    try:
        operation(storage)
    except StorageError as error:
        if not error.problem:
            pytest.fail("an error that says nothing")


@FEW_EXAMPLES
@given(operation=st.sampled_from(OPERATIONS), raw=st.binary(max_size=300))
def test_bytes_that_are_not_http(operation: Callable[[WebHdfsStorage], object], raw: bytes) -> None:
    with saying(raw) as address:
        ends_well(operation, impatient(address))


@FEW_EXAMPLES
@given(operation=st.sampled_from(OPERATIONS), code=st.sampled_from([200, 201, 400, 401, 403, 500]), body=JSON)
def test_json_that_is_not_webhdfs(operation: Callable[[WebHdfsStorage], object], code: int, body: object) -> None:
    raw = b"HTTP/1.1 %d X\r\n\r\n" % code + json.dumps(body).encode()
    with saying(raw) as address:
        ends_well(operation, impatient(address))


@pytest.mark.parametrize(
    "location", ["", "/x", "http://", "http://[", "http://h:x/", "http://h:99999/", "ftp://h/", "http://h:0/"]
)
def test_a_location_that_leads_nowhere(location: str) -> None:
    status = {"length": 3, "modificationTime": 1, "type": "FILE", "owner": "a", "permission": "600", "pathSuffix": ""}

    def answer(request: Request) -> Reply:
        if request.op == "GETFILESTATUS":
            return Reply(200, json.dumps({"FileStatus": status}).encode())
        return Reply(307, location=location)

    with scripted(answer) as address, pytest.raises(StorageError, match="names no DataNode"):
        WebHdfsStorage(WebHdfsConfig([address])).open_read(URI)


@given(st.text(max_size=40))
def test_any_location_fits_a_request_line(text: str) -> None:
    line = request_target(
        "http://host/" + text.encode("utf-8", "replace").decode("latin-1").replace("[", "").replace("]", "")
    )
    assert line.isascii()
    assert line.isprintable()
    assert " " not in line


@pytest.mark.parametrize(
    ("exception", "message", "expected"),
    [
        ("java.io.FileNotFoundException", "File does not exist: /a", StorageNotFound),
        ("org.apache.hadoop.security.token.SecretManager$InvalidToken", "token is expired", StorageAuthError),
        ("java.io.IOException", "File /a could only be written to 0 of the 1 minReplication nodes.", StorageNoSpace),
        ("java.io.IOException", "File /a could only be replicated to 0 nodes instead of", StorageNoSpace),  # 2.10
        ("org.apache.hadoop.fs.InvalidPathException", "Invalid path name", StorageInvalidPath),
        ("java.lang.Odd", "never heard of", StorageError),
        ("org.apache.hadoop.ipc.StandbyException", "not in state standby", NotNow),
        ("org.apache.hadoop.ipc.RetriableException", "NameNode still not started", NotNow),
        (
            # How a standby refuses a token (WebHdfsFileSystem.validateResponse takes it apart the same way).
            "java.lang.SecurityException",
            "Failed to obtain user group information: org.apache.hadoop.security.token.SecretManager$InvalidToken: "
            "StandbyException",
            NotNow,
        ),
        # What a DataNode says whose NameNode is gone.
        ("java.net.ConnectException", "Call From d/1 to n:8020 failed on connection exception: refused", NotNow),
        ("java.net.SocketTimeoutException", "Call From d/1 to n:8020 failed on socket timeout exception: x", NotNow),
        ("java.net.SocketException", "Call From d/1 to n:8020 failed on socket exception: x", NotNow),
        ("java.io.EOFException", 'End of File Exception between local host is: "d/1"; destination host is: n', NotNow),
        ("java.io.IOException", "Failed on local exception: java.io.IOException: Connection reset by peer", NotNow),
        (
            "java.io.IOException",
            "Failed on local exception: java.io.IOException: org.apache.hadoop.security.AccessControlException: no",
            StorageError,
        ),
        ("java.io.IOException", "Failed to find datanode, suggest to check cluster health.", NoDataNode),
        (
            "java.io.IOException",
            "Rename of /a to /b is not allowed, no eligible destination in the same namespace was found",
            StorageOtherMount,
        ),
    ],
)
def test_java_exceptions_become_ours(exception: str, message: str, expected: type[Exception]) -> None:
    name = exception.rsplit(".", 1)[-1]
    remote = {"exception": name, "javaClassName": exception, "message": message + "\n\tat java.lang.Thread.run"}
    answer = WebHdfsAnswer(403, None, json.dumps({"RemoteException": remote}).encode())
    with pytest.raises(Exception, match=message.replace("$", ".")) as error:
        check_answer(answer, URI, "write")
    assert type(error.value) is expected
    assert "Thread.run" not in str(error.value)


@pytest.mark.parametrize(
    "message",
    [
        "The operation is not allowed because the path: /a is a mount point",
        "The operation is not allowed because there are mount points: b under the path: /a",
    ],
)
def test_a_mount_point_is_known_by_the_refusal_of_a_rename(message: str) -> None:
    """In the words of a real Router; tests/gateways/test_hdfs_router.py has one."""
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        remote = {"javaClassName": "org.apache.hadoop.security.AccessControlException", "message": message}
        return Reply(403, json.dumps({"RemoteException": remote}).encode())

    with scripted(answer) as address, WebHdfsStorage(WebHdfsConfig([address])) as storage:
        assert "contains a mount point, which the HDFS router cannot move" in storage.rename_target_problem(URI)
    assert [each.op for each in asked] == ["RENAME"]
    assert asked[0].params["destination"].startswith("/a/.tony-tmp-")
