"""Object stores on a real S3 server, and the errors of their users and administrators."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.s3proxy import KEY, SECRET, ObjectServer
from tony_provider.runtime.storage import LocalStorage, Storage, StorageError, errors, read_bytes
from tony_provider.runtime.storage.object_store import SINGLE_PUT, ObjectStorage
from tony_provider.runtime.storage.stores import JobStores


def opened(server: ObjectServer, bucket: str = "missing", **other: str) -> ObjectStorage:
    return ObjectStorage.open(f"s3://{bucket}/a", {**server.variables, **other})


def problems(storage: Storage, uri: str) -> Iterator[StorageError]:
    """The error of each kind of operation."""
    for work in (storage.status, storage.list, storage.open_read, storage.remove, lambda uri: storage.write(uri, b"x")):
        with pytest.raises(StorageError) as error:
            work(uri)
        yield error.value


@pytest.mark.parametrize(
    ("other", "kinds", "words"),
    [
        ({}, errors.StorageInvalidPath, "the bucket does not exist"),
        (
            {"AWS_SECRET_ACCESS_KEY": "wrong"},
            (errors.StorageAuthError, errors.StoragePermissionDenied),
            "check the access key in the AWS connection",
        ),
        (
            {"AWS_ACCESS_KEY_ID": "AKIAUNKNOWN"},
            (errors.StorageAuthError, errors.StoragePermissionDenied),
            "check the access key in the AWS connection",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            errors.StorageUnreachable,
            "a request to http://127.0.0.1:9 failed: HTTP error",
        ),
    ],
)
def test_an_error_is_one_short_line(
    object_server: ObjectServer, other: dict[str, str], kinds: type[StorageError], words: str
) -> None:
    for error in problems(opened(object_server, **other), "s3://missing/a"):
        assert isinstance(error, kinds)
        assert words in str(error)
        assert "\n" not in str(error)
        assert len(str(error)) < 300
        assert not {KEY, SECRET} & {word.strip(",:;'\"") for word in str(error).split()}


def test_the_answer_names_what_is_wrong_with_the_key(object_server: ObjectServer) -> None:
    with pytest.raises(errors.StorageAuthError, match="SignatureDoesNotMatch"):
        opened(object_server, AWS_SECRET_ACCESS_KEY="wrong").list("s3://missing/")


@pytest.mark.parametrize("endpoint", ["minio", "minio:9000", "ftp://minio"])
def test_an_address_that_is_none(object_server: ObjectServer, endpoint: str) -> None:
    with pytest.raises(errors.StorageInvalidPath, match=r"AWS_ENDPOINT_URL cannot be used: .* use https://host:port"):
        opened(object_server, AWS_ENDPOINT_URL=endpoint)


def test_a_machine_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(errors.StorageUnsupported, match="install tony-provider with the extra object-stores"):
        ObjectStorage.open("s3://bucket/a", {})


def test_a_directory_and_a_file_of_the_same_name(object_server: ObjectServer) -> None:
    bucket = object_server.add_bucket()
    storage = object_server.storage(bucket)
    for name in ("a", "a/b"):
        storage.write(f"s3://{bucket}/{name}", name.encode())
    assert [(each.name, each.is_directory) for each in storage.list(f"s3://{bucket}")] == [("a", True)]
    assert not storage.status(f"s3://{bucket}/a").is_directory
    assert read_bytes(storage, f"s3://{bucket}/a/b") == b"a/b"


def test_a_job_has_a_store_for_each_bucket(object_server: ObjectServer, tmp_path: Path) -> None:
    own = LocalStorage()
    own.object_store_variables = {**object_server.variables, "AWS_SESSION_TOKEN": "of the connection"}
    one, other = object_server.add_bucket(), object_server.add_bucket()
    stores = JobStores(own, f"file://{tmp_path}", {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET})
    for bucket in (one, other):
        uri = f"s3a://{bucket}/x"
        assert stores.can_open(uri)
        stores.of(uri).write(uri, bucket.encode())
        assert stores.of(uri) is stores.of(f"s3a://{bucket}/y")
    assert stores.of(str(tmp_path)) is own
    assert (object_server.files(one), object_server.files(other)) == ({"x": one.encode()}, {"x": other.encode()})
    stores.close()


@pytest.mark.skipif(sys.version_info >= (3, 10), reason="newer releases of obstore list every name")
def test_a_name_that_the_library_quotes_is_an_error() -> None:
    storage = ObjectStorage("s3://bucket", importlib.import_module("obstore.store").MemoryStore())
    storage.write("s3://bucket/hour=10%3A00/a", b"x")
    with pytest.raises(errors.StorageInvalidPath, match=r"use nodes with Python 3\.10 or newer"):
        storage.list("s3://bucket/hour=10%3A00")


def test_without_an_access_key_only_nodes_can_open_a_bucket(tmp_path: Path) -> None:
    stores = JobStores(LocalStorage(), str(tmp_path))
    assert not stores.can_open("s3://bucket/a")
    assert stores.can_open("hdfs:///a")


def test_variables_of_this_process_do_not_change_the_access(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = object_server.add_bucket()
    for name, value in {
        "AWS_SESSION_TOKEN": "of-another-key",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_SKIP_SIGNATURE": "true",
    }.items():
        monkeypatch.setenv(name, value)
    storage = opened(object_server, bucket)
    storage.write(f"s3://{bucket}/a", b"x")
    assert read_bytes(storage, f"s3://{bucket}/a") == b"x"


def test_a_file_and_a_directory_of_one_name_are_removed_together(object_server: ObjectServer) -> None:
    bucket = object_server.add_bucket()
    storage = opened(object_server, bucket)
    for name in ("x", "x/old", "x/older/y"):
        storage.write(f"s3://{bucket}/{name}", b"1")
    assert storage.remove(f"s3://{bucket}/x", recursive=True)
    assert not storage.exists(f"s3://{bucket}/x")
    assert storage.list(f"s3://{bucket}/") == []


class StandIn(BaseHTTPRequestHandler):
    """As S3 answers to an upload in parts, except at its end."""

    protocol_version = "HTTP/1.1"

    def _answer(self, status: int, body: str = "") -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(body.encode())

    def do_PUT(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        begun = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
        self._answer(*((200, begun) if "uploads" in self.path else (403, "<Error><Code>AccessDenied</Code></Error>")))

    def do_DELETE(self) -> None:
        self._answer(204)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def test_an_upload_whose_end_a_stand_in_refuses_fails_as_a_storage_error() -> None:
    """obstore raises an OSError of Python there, which callers take for an error of the local disk."""
    with ThreadingHTTPServer(("127.0.0.1", 0), StandIn) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "x"}
        variables["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{server.server_port}"
        storage = ObjectStorage.open("s3://bucket/a", variables)
        with pytest.raises(errors.StoragePermissionDenied, match="AccessDenied"):
            storage.write("s3://bucket/a", bytes(SINGLE_PUT + 1), overwrite=True)
        server.shutdown()


def test_an_error_of_the_source_is_not_changed(object_server: ObjectServer) -> None:
    def source() -> Iterator[bytes]:
        yield bytes(SINGLE_PUT + 1)
        raise OSError("the local disk is broken")

    bucket = object_server.add_bucket()
    with pytest.raises(OSError, match="the local disk is broken"):
        opened(object_server, bucket).write(f"s3://{bucket}/a", source(), overwrite=True)
