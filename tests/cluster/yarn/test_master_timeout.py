from __future__ import annotations

import pytest

from tests.hadoop.cluster import HadoopCluster
from tony_provider.cluster.yarn.configuration import master_lost_after, parse_seconds
from tony_provider.cluster.yarn.rest import RestConfig, YarnRest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("600000", 600.0),
        ("10m", 600.0),
        (" 90 S ", 90.0),
        ("0", 0.0),
        ("", 7.0),
        ("soon", 7.0),
        ("5 weeks", 7.0),
        ("-1", 7.0),
    ],
)
def test_times_as_hadoop_writes_them(text: str, seconds: float) -> None:
    assert parse_seconds(text, default=7.0) == seconds


def test_a_real_cluster_says_how_long_it_waits(hadoop: HadoopCluster) -> None:
    """It sets neither: the next master may need the fifteen minutes of YARN's default, or ten, and a start."""
    rest = YarnRest(RestConfig(hadoop.rm_webapp, user="alice"))
    seconds = rest.setting("yarn.am.liveness-monitor.expiry-interval-ms")
    assert seconds
    assert master_lost_after(rest) == float(seconds) / 1000 + 300
    rest.close()
