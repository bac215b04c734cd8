"""What a NodeManager is told of a container: the files under their very names."""

from __future__ import annotations

import pytest

from tony_provider.runtime.am.resource_manager import Launch
from tony_provider.runtime.am.yarn.nm_client import launch_context
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource, ResourceKind
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.spec.model import JobSpec

APPLICATION_DIR = "hdfs://nn/jobs/x"
RUNTIME = LocalizedResource("tony", "hdfs://nn/cache/tony.zip", 1, 2, ResourceKind.ARCHIVE)
DESCRIPTION = ApplicationDescription(
    "application_1_0001", "me", JobSpec("standalone", {}), APPLICATION_DIR, None, [], RUNTIME
)


def localized(uri: str, kind: ResourceKind = ResourceKind.FILE) -> yarn.LocalResourceProto:
    launch = Launch(["true"], {}, [LocalizedResource("input", uri, 1, 2, kind)], Credentials().to_bytes())
    (entry,) = launch_context(launch, (), DESCRIPTION).localResources
    assert entry.key == "input"
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


def test_what_is_the_applications_own_goes_with_it() -> None:
    assert localized(f"{APPLICATION_DIR}/staging/a").visibility == yarn.APPLICATION
    assert localized(f"{APPLICATION_DIR}yz/a", ResourceKind.ARCHIVE).visibility == yarn.PRIVATE
