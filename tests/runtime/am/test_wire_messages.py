"""Messages of executors as the session takes them."""

from __future__ import annotations

import pytest

from tony_provider.runtime.am.executor_messages import heartbeat
from tony_provider.runtime.protocol import tony_pb2


@pytest.mark.parametrize("busy", [None, 0.0, 97.5])
def test_an_idle_node_is_another_thing_than_one_that_does_not_tell(busy: float | None) -> None:
    message = tony_pb2.Heartbeat(rss_bytes=1, node_busy_percent=busy)
    assert heartbeat(tony_pb2.Heartbeat.FromString(message.SerializeToString())).values.get("node_busy_percent") == busy
