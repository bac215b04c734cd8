"""Object stores on a real S3 server, and the errors of their users and administrators."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3proxy import KEY, SECRET, ObjectServer
from tony_provider.runtime.storage import LocalStorage, Storage, StorageError, errors, read_bytes
from tony_provider.runtime.storage.object_store import ObjectStorage
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
