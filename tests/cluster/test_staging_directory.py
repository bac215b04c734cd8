"""Which staging directories a connection may name."""

from __future__ import annotations

import pytest

from tony_provider.cluster.errors import ConnectionProblem
from tony_provider.cluster.open_cluster import open_cluster
from tony_provider.cluster.settings import Settings, YarnSettings
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

NOBODY = "http://127.0.0.1:1"


def test_a_view_of_clients_is_refused_with_what_to_name() -> None:
    settings = Settings("alice", yarn=YarnSettings([NOBODY], WebHdfsConfig([NOBODY])), staging_dir="viewfs://all/tony")
    with pytest.raises(ConnectionProblem, match=r"^viewfs://all/tony is not on an HDFS .*; set .* to the hdfs:// URI "):
        open_cluster(settings)
