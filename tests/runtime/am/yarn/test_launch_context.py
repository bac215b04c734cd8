"""The launch context that a NodeManager gets: its files, and what no value may contain."""

from __future__ import annotations

import pytest

from tony_provider.runtime.am.resource_manager import Launch
from tony_provider.runtime.am.yarn.yarn_clients import launch_context
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.tokens import Credentials


def localized(uri: str, sha256: str | None = None) -> yarn.LocalResourceProto:
    resource = LocalizedResource("input", uri, 1, 2, ResourceKind.ARCHIVE, sha256)
    launch = Launch(["true"], {}, {"tony-files/0": resource}, Credentials().to_bytes())
    (entry,) = launch_context(launch, ()).localResources
    assert entry.key == "tony-files/0"
    assert entry.value.type == yarn.FILE  # what a node has unpacked cannot be verified
    return entry.value


@pytest.mark.parametrize(
    "path",
    ["/a/b#c.txt", "/a/what?.txt", "/a/100%25.txt", "/a/an input.txt", "/a/ü:@+&=[1].txt", "/a/50%"],
)
@pytest.mark.parametrize(
    ("authority", "host", "port"),
    [
        ("nn", "nn", -1),
        ("MyNameservice", "MyNameservice", -1),
        ("10.0.0.1:8020", "10.0.0.1", 8020),
        ("[::1]:1", "[::1]", 1),
    ],
)
def test_a_file_keeps_its_name(authority: str, host: str, port: int, path: str) -> None:
    url = localized(f"hdfs://{authority}{path}").resource
    assert (url.scheme, url.host, url.port, url.file) == ("hdfs", host, port, path)
    assert not url.userInfo


def test_a_node_keeps_for_other_applications_what_containers_verify() -> None:
    assert localized("hdfs://nn/a").visibility == yarn.APPLICATION
    assert localized("hdfs://nn/a", "ab").visibility == yarn.PRIVATE
