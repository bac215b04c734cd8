"""URIs, and which store has which."""

from __future__ import annotations

import cattrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.storage import (
    LocalStorage,
    StorageInvalidPath,
    StorageUnsupported,
    WebHdfsConfig,
    WebHdfsStorage,
    open_storage,
    uris,
)

PARTS = st.lists(
    st.text(min_size=1, max_size=10).filter(lambda part: part not in (".", "..") and not set(part) & {"/", "\0"}),
    max_size=4,
)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("hdfs://nn:9000/a/b", ("hdfs", "nn:9000", "/a/b")),
        ("hdfs:///a//b/", ("hdfs", "", "/a/b")),
        ("HDFS://mycluster", ("hdfs", "mycluster", "/")),
        ("/a/b c#?%20", ("file", "", "/a/b c#?%20")),
        ("s3://bucket/key", ("s3", "bucket", "/key")),
    ],
)
def test_parse(uri: str, expected: tuple[str, str, str]) -> None:
    parsed = uris.parse(uri)
    assert (parsed.scheme, parsed.authority, parsed.path) == expected


@given(st.sampled_from(["hdfs://nn:9000", "file://", "s3://bucket"]), PARTS)
def test_join_and_parent_are_inverse(store: str, parts: list[str]) -> None:
    uri = uris.join(store, *parts)
    assert str(uris.parse(uri)) == uri
    assert uris.join(store, "/".join(parts)) == uri
    if parts:
        assert uris.name(uri) == parts[-1]
        assert uris.parent(uri) == uris.join(store, *parts[:-1])
    else:
        assert uris.parent(uri) == uri


@pytest.mark.parametrize("uri", ["", "a", "./a", "/a/../b", "/a/.", "/a\0", "hdfs://nn/../x", "hdfs:/a"])
def test_what_is_no_uri(uri: str) -> None:
    with pytest.raises(StorageInvalidPath):
        uris.parse(uri)


def test_stores_by_scheme() -> None:
    config = WebHdfsConfig(["http://nn:9870"])
    assert isinstance(open_storage("/a"), LocalStorage)
    assert isinstance(open_storage("file:///a"), LocalStorage)
    assert isinstance(open_storage("hdfs:///a", webhdfs=config), WebHdfsStorage)
    assert isinstance(open_storage("webhdfs://nn:9870/a", webhdfs=config), WebHdfsStorage)
    with pytest.raises(StorageUnsupported, match="WebHDFS connection"):
        open_storage("hdfs:///a")
    with pytest.raises(StorageUnsupported, match="gopher"):
        open_storage("gopher://a/b")


def test_an_object_store_holds_no_files_of_jobs() -> None:
    with pytest.raises(StorageUnsupported, match="only inputs and outputs can be on an object store"):
        open_storage("s3://bucket/a")


@pytest.mark.parametrize("address", ["nn:9870", "hdfs://nn:9000", "http://", "http://nn:9870?a=b", ""])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ValueError, match="use http://host:9870"):
        WebHdfsConfig([address])


def test_the_configuration_travels() -> None:
    config = WebHdfsConfig(["http://a:1/", "http://b:2/gateway"], user="alice", authorities=["nn"], timeout=5)
    assert config.addresses == ["http://a:1", "http://b:2/gateway"]
    assert cattrs.structure(cattrs.unstructure(config), WebHdfsConfig) == config
    with pytest.raises(ValueError, match="at least one"):
        WebHdfsConfig([])
