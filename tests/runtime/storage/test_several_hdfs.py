"""Several HDFS behind one storage, each a stand-in here; tests/jobs/test_other_tokens.py has real ones."""

from __future__ import annotations

from typing import cast
from unittest.mock import Mock

import pytest

from tony_provider.runtime.storage import StorageInvalidPath
from tony_provider.runtime.storage.stores import SeveralHdfs
from tony_provider.runtime.storage.webhdfs.key_server import key_server_addresses
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage

OWN, OTHER = Mock(spec=WebHdfsStorage), Mock(spec=WebHdfsStorage)
SEVERAL = SeveralHdfs(cast(WebHdfsStorage, OWN), {"archive": cast(WebHdfsStorage, OTHER)})


@pytest.mark.parametrize(
    ("uri", "asked"),
    [
        ("hdfs:///data", OWN),
        ("hdfs://prod/data", OWN),
        ("hdfs://archive/data", OTHER),
        ("hdfs://Archive/data", OTHER),
    ],
)
def test_each_uri_goes_to_the_hdfs_that_it_names(uri: str, asked: Mock) -> None:
    OWN.reset_mock()
    OTHER.reset_mock()
    SEVERAL.status(uri)
    SEVERAL.write(uri, b"x")
    assert [call[0] for call in OWN.method_calls + OTHER.method_calls] == ["status", "write"]
    assert len(asked.method_calls) == 2


def test_nothing_is_renamed_from_one_to_another() -> None:
    with pytest.raises(StorageInvalidPath, match="another HDFS"):
        SEVERAL.rename("hdfs://prod/a", "hdfs://archive/a")


def test_newer_tokens_go_to_whom_they_are_of() -> None:
    OWN.reset_mock()
    OTHER.reset_mock()
    SEVERAL.take_token("first")
    SEVERAL.take_token("second", "archive")
    SEVERAL.take_token("third", "kms://http@keys:9600/kms")  # nothing that a storage shows
    assert [call.args for call in OWN.take_token.mock_calls] == [("first",)]
    assert [call.args for call in OTHER.take_token.mock_calls] == [("second",)]


@pytest.mark.parametrize(
    ("uri", "addresses"),
    [
        ("kms://http@keys:9600/kms", ["http://keys:9600/kms"]),
        ("kms://https@a;b:16000/kms", ["https://a:16000/kms", "https://b:16000/kms"]),
        ("kms://http@keys/kms/", ["http://keys:9600/kms"]),
    ],
)
def test_where_a_key_server_is(uri: str, addresses: list[str]) -> None:
    assert key_server_addresses(uri) == addresses


@pytest.mark.parametrize(
    "uri", ["", "http://keys:9600/kms", "kms://keys:9600/kms", "kms://ftp@keys/kms", "kms://http@"]
)
def test_what_is_no_key_server(uri: str) -> None:
    with pytest.raises(ValueError, match="write kms://http@host:9600/kms"):
        key_server_addresses(uri)
